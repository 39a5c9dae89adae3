"""What libraries find wrong with a file's content, in our words. Pure: tables of what they say.

Nothing of the content is repeated, as the file may be another one than the user meant, and hold secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_AT: Final = re.compile(r"\bline (\d+) column \d+")
_CUT: Final = "it ends in the middle: it was cut short"
_JSON: Final = (
    ("eof while", _CUT),
    ("unterminated string", _CUT),
    ("utf-8", "it is not UTF-8"),
    ("unicode", "a \\u escape in it stands for no character"),
    ("recursion", "it is nested too deep"),
    ("trailing characters", "something follows its end"),
    ("extra data", "something follows its end"),
    ("control character", "a string has a line break or a tab that is not escaped"),
    ("escape", "a backslash in a string is no escape that JSON knows"),
    ("comma", "a comma is missing or left over"),
    ("delimiter", "a comma or a colon is missing"),
    ("key must be", "a key is not in double quotes"),
    ("property name", "a key is not in double quotes, or a comma is left over"),
    ("number", "a number in it can't be read"),
)
"""What pydantic's or Python's JSON reader says (in lower case), and what we say: the first that fits."""
_PARQUET: Final = (
    ("magic bytes", "it is no Parquet file, or was not written to its end"),
    ("size is 0", "it is empty"),
    ("footer", "it is no Parquet file, or was not written to its end"),
    ("crc", "the checksum of a page is wrong: its bytes are damaged"),
    ("checksum", "the checksum of a page is wrong: its bytes are damaged"),
    ("end of stream", "it was cut short"),
    ("eof", "it was cut short"),
    ("memory", "its columns do not fit in memory, or its bytes are damaged"),
)
_STORES: Final = (
    ("access_denied", "the store does not let these credentials do that (access denied): grant it"),
    ("http status 403", "the store does not accept these credentials, or does not let them do that (HTTP 403)"),
    ("no_such_bucket", "there is no such bucket"),
    ("http status 404", "there is no such bucket, or nothing of that name (HTTP 404)"),
    ("invalid_access_key_id", "the store does not know this access key"),
    ("invalid_client_token_id", "the store does not know this access key"),
    ("signature_does_not_match", "the secret does not fit the access key"),
    ("expired", "the credentials have expired"),
    ("slow_down", "the store throttles: try again later"),
    ("http status 503", "the store is too busy: try again later (HTTP 503)"),
    ("network_connection", "the store can't be reached: look at its endpoint and the network"),
    ("curlcode", "the store can't be reached: look at its endpoint and the network"),
)
"""What clients of object stores say. No other store has these words in its errors, so all else is passed on."""
_SQLITE: Final = (
    ("not a database", "it is no SQLite database"),
    ("malformed", "it is damaged"),
    ("locked", "another process holds it locked: try again"),
    ("readonly", "it may not be written"),
    ("disk is full", "its disk is full"),
    ("disk i/o", "its disk fails"),
    ("unable to open", "it can't be opened"),
    ("no such", "a table or a column is missing: it is not as kretain made it"),
)
_TYPES: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "extra_forbidden": "is not a key here",
    "too_short": "is empty",
    "list_type": "is not a list",
    "tuple_type": "is not a list",
    "model_type": "is not a mapping of keys to values",
    "model_attributes_type": "is not a mapping of keys to values",
    "dict_type": "is not a mapping of keys to values",
    "int_type": "is not a whole number",
    "int_parsing": "is not a whole number",
    "int_from_float": "is not a whole number",
    "int_parsing_size": "is too large a number",
    "float_type": "is not a number",
    "float_parsing": "is not a number",
    "finite_number": "is not a number",
    "bool_type": "is not true or false",
    "bool_parsing": "is not true or false",
    "string_type": "is not text",
    "string_unicode": "is not text",
}
"""The kinds of pydantic's errors."""
_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than_equal": ("ge", "is less than"),
    "greater_than": ("gt", "is not more than"),
    "less_than_equal": ("le", "is more than"),
    "less_than": ("lt", "is not less than"),
    "literal_error": ("expected", "is not"),
    "enum": ("expected", "is not"),
}


def _first(table: tuple[tuple[str, str], ...], said: str, otherwise: str) -> str:
    lower = said.lower()
    return next((ours for theirs, ours in table if theirs in lower), otherwise)


def json_problem(error: ValueError) -> tuple[int | None, str]:
    """Return the line (from 1) where text is not JSON, None if it is not known, and what is wrong there."""
    text = str(error)
    if isinstance(error, json.JSONDecodeError):
        cut = not error.doc[error.pos :].strip()
        return error.lineno, _CUT if cut else _first(_JSON, error.msg, "it is not JSON")
    at = _AT.search(text)
    return None if at is None else int(at[1]), _first(_JSON, text, "it is not JSON")


def schema_problem(item: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, from one of the errors in pydantic's ValidationError."""
    kind, context = item["type"], item.get("ctx", {})
    if kind == "value_error":  # one of our own checks
        return str(context["error"])
    if kind in _BOUNDS:
        key, text = _BOUNDS[kind]
        return f"{text} {context[key]}"
    return _TYPES.get(kind, "is not what belongs there")


def parquet_problem(error: BaseException) -> str:
    """Return why a file can't be read as Parquet, from what pyarrow says."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return _first(_PARQUET, str(error), "its bytes are damaged, or it is no Parquet file")


def store_problem(error: OSError) -> str:
    """Return why a file system or an object store failed, in one line, from what the system or pyarrow says."""
    if error.strerror:
        return error.strerror
    text = " ".join(str(error).split())
    return _first(_STORES, text, text) if "AWS Error" in text else text


def sqlite_problem(error: BaseException) -> str:
    """Return why a database can't be used, from what SQLite or the system says."""
    if isinstance(error, OSError):
        return error.strerror or "it can't be read"
    if getattr(error, "sqlite_errorcode", None) is None:  # of our own checks
        return " ".join(str(error).split())
    return _first(_SQLITE, str(error), "what it holds is not as kretain wrote it")
