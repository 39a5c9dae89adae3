"""What libraries find wrong with a file's content: our words for what people meet, with theirs for the rest. Pure.

Nothing of the content is repeated, as the file may be another one than the user meant, and hold secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_AT: Final = re.compile(r"\s*\bat line (\d+) column \d+")
_QUOTED: Final = re.compile(r"((?<![A-Za-z])[\"'`]|[:(\"`]).*", re.DOTALL)
"""From the first sign on behind which a library may quote a file."""
_CUT: Final = "it ends in the middle: it was cut short"
_JSON: Final = (
    ("eof while", _CUT),
    ("unterminated string", _CUT),
    ("trailing characters", "something follows its end"),
    ("extra data", "something follows its end"),
    ("control character", "a string has a line break or a tab that is not escaped"),
    ("expected value", "it is not JSON"),
    ("expecting value", "it is not JSON"),
)
"""What pydantic's or Python's JSON reader says (in lower case), and what we say: the first that fits."""
_PARQUET: Final = (
    ("size is 0", "it is empty"),
    ("magic bytes", "it is not a Parquet file, or was not written to its end"),
    ("footer", "it is not a Parquet file, or was not written to its end"),
)
_AZURE: Final = "check AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, az login, or this machine's identity"
_STORES: Final = (
    ("access_denied", "the store does not let these credentials do that (access denied): grant it"),
    ("http status 403", "the store does not accept these credentials, or does not let them do that (HTTP 403)"),
    ("http status 404", "there is no such bucket, or nothing of that name (HTTP 404)"),
    ("network_connection", "the store can't be reached: check its endpoint and the network"),
    ("containernotfound", "there is no such container: create it"),
    ("defaultazurecredential", f"there are no credentials for Azure: {_AZURE}"),
    ("[authorization", f"Azure does not accept these credentials, or does not let them do that: {_AZURE}"),
    ("[authentication", f"Azure does not accept these credentials: {_AZURE}"),
    ("get a new connection", "the store can't be reached: check its endpoint and the network"),
    ("could not resolve", "the store can't be reached: check its endpoint and the network"),
    ("curlcode", "the store can't be reached: check its endpoint and the network"),
)
"""What clients of object stores say."""
_QUERY: Final = re.compile(r"\?[^\s'\"]*")
_SQLITE: Final = (
    ("not a database", "it is not an SQLite database"),
    ("malformed", "it is damaged"),
    ("locked", "another process holds it locked: try again"),
    ("readonly", "it may not be written"),
)
_INDENT: Final = "the indent does not fit the lines above it: entries of one list or mapping begin in the same column"
_YAML: Final = (
    ("cannot start any token", "a tab, or a sign of YAML's own (@ ` %): indent with spaces, and quote such a value"),
    ("mapping values are not allowed", f"a colon is where no key can be: quote a value that has one; or {_INDENT}"),
    ("could not find expected ':'", "a line is neither key: value nor an entry with a dash"),
    (
        "undefined alias",
        "*NAME repeats what an earlier &NAME marks, and there is none: quote a value that begins with *",
    ),
    ("refers to itself", "an alias refers to itself"),
    ("escape", "YAML does not know this escape in double quotes: use single quotes"),
    ("quoted scalar", "a quote is not closed"),
    ("',' or ']'", "a [ is not closed by ], or a comma is missing"),
    ("',' or '}'", "a { is not closed by }, or a comma is missing"),
    ("constructor", "a value begins with !, a YAML tag, which kretain does not use: quote it, or remove the tag"),
    ("single document", "a second document begins (---): write one to a file"),
    ("special characters", "it has bytes that are not text: is it the right file?"),
    ("block collection", _INDENT),
    ("block mapping", _INDENT),
)
"""What PyYAML's two parsers say."""
_TYPES: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "extra_forbidden": "is not a key here",
    "too_short": "is empty",
    "list_type": "is not a list",
    "model_type": "is not a mapping of keys to values",
    "model_attributes_type": "is not a mapping of keys to values",
    "dict_type": "is not a mapping of keys to values",
    "int_type": "is not a whole number",
    "int_parsing": "is not a whole number",
    "float_type": "is not a number",
    "float_parsing": "is not a number",
    "bool_type": "is not true or false",
    "string_type": "is not text",
}
"""The kinds of pydantic's errors."""
_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than_equal": ("ge", "is less than"),
    "greater_than": ("gt", "is not more than"),
    "less_than_equal": ("le", "is more than"),
    "less_than": ("lt", "is not less than"),
    "literal_error": ("expected", "is not"),
}


def _first(table: tuple[tuple[str, str], ...], text: str, otherwise: str) -> str:
    """Return our words, else ``otherwise`` and what the library said up to what it may quote, on one line."""
    lower = text.lower()
    if (ours := next((ours for theirs, ours in table if theirs in lower), None)) is not None:
        return ours
    theirs = " ".join(_QUOTED.sub("", text).split())[:120]
    return f"{otherwise} ({theirs})" if theirs else otherwise


def json_problem(error: ValueError) -> tuple[int | None, str]:
    """Return the line (from 1) where text is not JSON, None if it is not known, and what is wrong there."""
    if isinstance(error, json.JSONDecodeError):
        cut = not error.doc[error.pos :].strip()
        return error.lineno, _CUT if cut else _first(_JSON, error.msg, "it is not JSON")
    text = str(error)
    at = _AT.search(text)
    return None if at is None else int(at[1]), _first(_JSON, _AT.sub("", text), "it is not JSON")


def yaml_problem(text: str) -> str:
    """Return what is wrong with text that is not YAML, from what the parser or a reader of its values says."""
    return f"not YAML: {_first(_YAML, text, 'look for a quote, a bracket or a colon that is missing or left over')}"


def schema_problem(item: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, from one of the errors in pydantic's ValidationError."""
    kind, context = item["type"], item.get("ctx", {})
    if kind == "value_error":  # one of our own checks
        return str(context["error"])
    if kind in _BOUNDS:
        key, text = _BOUNDS[kind]
        return f"{text} {context[key]}"
    return _TYPES.get(kind) or _first((), str(item.get("msg", "")), "is not what belongs there")


def parquet_problem(error: BaseException) -> str:
    """Return why a file can't be read as Parquet, from what pyarrow says."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return _first(_PARQUET, str(error).rpartition("': ")[2], "its bytes are damaged, or it is not a Parquet file")


def store_problem(error: Exception) -> str:
    """Return why a file system or an object store failed, in one line, from what the system or pyarrow says.

    A URL in it may have a token of Azure's (SAS) behind its question mark.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = _QUERY.sub("", " ".join(str(error).split()))
    known = "AWS Error" in text or "Azure" in text
    return next((ours for theirs, ours in _STORES if known and theirs in text.lower()), text)


def sqlite_problem(error: BaseException) -> str:
    """Return why a database can't be used, from what SQLite or the system says."""
    if isinstance(error, OSError):
        return error.strerror or "it can't be read"
    if getattr(error, "sqlite_errorcode", None) is None:  # of our own checks
        return " ".join(str(error).split())
    return _first(_SQLITE, str(error), "its content is not what kretain wrote")
