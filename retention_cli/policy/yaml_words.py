"""What is wrong with text that is not YAML, in our words: a parser's own are those of its grammar. Pure."""

from __future__ import annotations

from typing import Final

_INDENT: Final = "the indent does not fit the lines above it: entries of one list or mapping begin in the same column"
_NO_TEXT: Final = "it has characters that no text has: is it the right file?"
_NO_DATE: Final = "there is no such date or time: mend it, or quote it"
_MERGE: Final = "<<: takes a mapping by its *NAME, or a list of these"
_TAG: Final = "a value begins with !, a tag of YAML, of which none is used here: quote it, or take the tag out"
_WORDS: Final = (
    # what PyYAML's two parsers or Python's readers of values say, in lower case, and what we say: the first one counts
    ("cannot start any token", "a tab, or a sign of YAML's own (@ ` %): indent with spaces, and quote such a value"),
    ("mapping values are not allowed", f"a colon stands where no key can: quote a value that has one; or {_INDENT}"),
    ("could not find expected ':'", "a line is neither key: value nor an entry with a dash"),
    ("yaml document", "its %YAML line names another version: take it out"),
    ("directive", "it begins with %, as directives do: quote it"),
    (
        "undefined alias",
        "*NAME repeats what &NAME marks, and no such mark is before it: quote what begins with *",
    ),
    ("duplicate anchor", "&NAME marks two values: give each its own name"),
    ("an anchor", "& marks a value with a name, and there is none: quote what begins with &"),
    ("refers to itself", "an alias refers to itself"),
    ("an alias", "* repeats what a &NAME marks, and there is no name: quote what begins with *"),
    ("escape", "a backslash in double quotes is no escape that YAML knows: use single quotes"),
    ("quoted scalar", "a quote is not closed"),
    ("',' or ']'", "a [ is not closed by ], or a comma is missing"),
    ("',' or '}'", "a { is not closed by }, or a comma is missing"),
    ("block scalar", "| and > begin a text of several lines: they stand alone, and the text below, indented"),
    ("constructor", _TAG),
    ("base64", _TAG),
    ("tag", _TAG),
    ("single document", "a second document begins (---): write one to a file"),
    ("document start", "something stands before ---, or after the document's end"),
    ("special characters", _NO_TEXT),
    ("control characters", _NO_TEXT),
    ("surrogates", _NO_TEXT),
    ("sequence entries are not allowed", f"a dash stands where no list can: {_INDENT}"),
    ("for merging", _MERGE),
    ("unhashable", "a key is itself a list or a mapping: quote it"),
    ("node content", "a value is missing, or begins with a sign of YAML's own: quote it"),
    ("block collection", _INDENT),
    ("block mapping", _INDENT),
    ("must be in ", _NO_DATE),
    ("out of range for", _NO_DATE),
    ("digits", "a number has thousands of digits"),
    ("literal for int", "it begins as a number does, and is none: quote it"),
    ("to float", "it begins as a number does, and is none: quote it"),
)
_ELSE: Final = "look for a quote, a bracket or a colon that is missing or left over"


def yaml_problem(said: str) -> str:
    """Return what is wrong, from what the parser says. Nothing of the text is repeated: it may be a secret."""
    lower = said.lower()
    return f"not YAML: {next((ours for theirs, ours in _WORDS if theirs in lower), _ELSE)}"
