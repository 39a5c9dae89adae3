"""The arguments of the Python API: durations, times, patterns and rules, checked as the command's options are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict

from kretain.api.errors import translated, usage
from retention_cli.core.units import UnitError, parse_duration_ms, parse_time_ms
from retention_cli.policy.model import PatternError, compiled
from retention_cli.policy.settings import OneOff

Duration = str | int | dt.timedelta
"""``"3d"``, milliseconds, or a timedelta."""


class Rules(TypedDict, total=False):
    """The one-off rules, as the command's flags (docs/policy.md). They turn the policy file's own triggers off."""

    consumed_after: Duration
    event_time: Duration
    older_than: Duration
    before: str | int | dt.datetime
    unconsumed: Literal["hold", "trim"]


_LAST_MS: Final = 2**63 - 1


def duration_ms(name: str, value: object) -> int:
    """Return a duration in ms: a text such as ``3d``, a number of ms, or a timedelta.

    Raises:
        KretainError: it is none of these, or negative.
    """
    return _ms(
        name,
        value // dt.timedelta(milliseconds=1) if isinstance(value, dt.timedelta) else value,
        parse_duration_ms,
        "give a duration such as '3d', milliseconds, or a timedelta",
    )


def time_ms(name: str, value: object) -> int:
    """Return a moment in Unix ms: ISO 8601 with a zone, a number of ms, or a datetime with a zone.

    Raises:
        KretainError: it is none of these, or Kafka can't represent it.
    """
    return _ms(
        name,
        value.isoformat() if isinstance(value, dt.datetime) else value,
        parse_time_ms,
        "give ISO 8601 with a zone, Unix ms, or a datetime with a zone",
    )


def _ms(name: str, given: object, parse: Callable[[str], int], hint: str) -> int:
    try:
        found = parse(given) if isinstance(given, str) else given
    except UnitError as error:
        raise usage(f"{name}: {error}") from None
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= _LAST_MS:
        raise usage(f"{name}: {hint}")
    return found


def patterns(given: Sequence[object]) -> tuple[str, ...]:
    """Return topics' names, globs and ``re:`` expressions.

    Raises:
        KretainError: one is not a text, empty, or not a regular expression.
    """
    for one in given:
        if not isinstance(one, str) or not one:
            raise usage("a topic is a name, a glob or re:^…$; several are several arguments")
        try:
            compiled(one)
        except PatternError as error:
            raise usage(str(error)) from None
    return tuple(map(str, given))


def group_patterns(given: Sequence[object]) -> tuple[str, ...]:
    """Return names, globs and ``re:`` expressions of groups, one of which may be called ``""``.

    Raises:
        KretainError: one is not a text, or not a regular expression; or all are one text.
    """
    if isinstance(given, str):
        raise usage("groups: give a list of names or patterns")
    patterns([one for one in given if one != ""])
    return tuple(map(str, given))


def positive(name: str, value: int | None) -> int | None:
    """Return a number of 1 or more, or None.

    Raises:
        KretainError: it is another number, or none.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise usage(f"{name}: give a number of 1 or more")
    return value


def rules_of(topics: tuple[str, ...], given: Mapping[str, Any]) -> OneOff:
    """Return the one-off rules in keywords. None is as if a keyword were left out.

    Raises:
        KretainError: a keyword is unknown, or its value wrong.
    """
    for name in given:
        if name not in Rules.__annotations__:
            raise usage(f"{name}: unknown keyword; rules are {', '.join(Rules.__annotations__)}")
    flags = {name: value for name, value in given.items() if value is not None}
    unconsumed = flags.pop("unconsumed", None)
    if unconsumed not in (None, "hold", "trim"):
        raise usage("unconsumed: give 'hold' or 'trim'")
    with translated():
        return OneOff(
            patterns=topics,
            unconsumed=unconsumed,
            **{
                f"{name}_ms": (time_ms if name == "before" else duration_ms)(name, value)
                for name, value in flags.items()
            },
        )
