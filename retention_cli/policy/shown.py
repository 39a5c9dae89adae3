"""Bound and escape text that others wrote, in a file or a message, for display. Pure."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any, Final

from retention_cli.core.file_problems import schema_problem

MOST: Final = 80
"""No error repeats more characters than this of one value."""
_REPR: Final = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = MOST
_REPR.maxlevel = 2


def shown(value: object) -> str:
    """Return a value as Python writes it, ending in … if it is longer than :data:`MOST`."""
    if value is None:
        return "nothing (null)"
    try:
        text = _REPR.repr(value)
    except ValueError:  # more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


def short(text: str) -> str:
    """Return the text; if it is longer than any value, its beginning and …, which no value has."""
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


def plain(text: str) -> str:
    """Return a name without quotes, if it can be printed so."""
    return short(text) if text.strip() and text.isprintable() else shown(text)


def value_problem(item: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, from one of the errors in pydantic's ValidationError."""
    said = schema_problem(item)
    if item["type"] in ("literal_error", "bool_type"):
        words = said.replace("'", "")
        return f"{shown(item['input'])} {words}"
    return said
