"""Calculate with facts that may be unknown: one unknown fact makes the whole result unknown, with its reason."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from retention_cli.core.model import Maybe, Unknown

P = ParamSpec("P")
T = TypeVar("T")


class _NotKnownError(Exception):
    """Ends a calculation; never leaves :func:`or_unknown`."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__()
        self.unknown = unknown


def certain(value: Maybe[T]) -> T:
    """Return a known fact; end the calculation if it is unknown. Only for use within :func:`or_unknown`."""
    if isinstance(value, Unknown):
        raise _NotKnownError(value)
    return value


def or_unknown(calculation: Callable[P, T]) -> Callable[P, Maybe[T]]:
    """Make a calculation return unknown if it meets an unknown fact."""

    @functools.wraps(calculation)
    def calculate(*args: P.args, **kwargs: P.kwargs) -> Maybe[T]:
        try:
            return calculation(*args, **kwargs)
        except _NotKnownError as met:
            return met.unknown

    return calculate
