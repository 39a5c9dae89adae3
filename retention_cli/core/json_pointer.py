"""JSON pointers (RFC 6901) into values of JSON's kinds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any


@lru_cache
def tokens_of(pointer: str) -> tuple[str, ...]:
    """Return a pointer's names and indexes, from outside in."""
    return tuple(one.replace("~1", "/").replace("~0", "~") for one in pointer.split("/")[1:])


def at(found: Any, tokens: Sequence[str]) -> Any:
    """Return what is at a place in a value.

    Raises:
        LookupError, TypeError, ValueError: nothing is there.
    """
    for name in tokens:
        if isinstance(found, list):
            found = found[int(name)] if name.isascii() and name.isdigit() else None
        else:
            found = found[name]
    return found
