"""A partition's log as a picture: the records to trim, those kept, and each consumer's position."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kretain.render.output import BLANK, Document, Line, Part, picture_width, show
from retention_cli.core.model import ANCIENT_MS, Unknown, known
from retention_cli.core.units import format_duration, format_time, timestamp
from retention_cli.decide.decision import Weighed
from retention_cli.plan.value import row_as_json
from retention_cli.reports.explain import Explained, cutoff_ms, why

SHOWN: Final = 8
_GOES, _STAYS = "░", "█"


class Marker(NamedTuple):
    """A sign at an offset."""

    name: str
    offset: int
    text: str


def print_explained(found: Sequence[Explained], output: str, *, every_row: bool, run: str | None = None) -> None:
    """Print one picture per partition, or their numbers for scripts; ``run`` is the run that saw them."""
    show(
        output,
        *explained_document(found, run),
        lambda: (run and Line(f"As run {run} saw it", "bold"), *_explained(found, every_row=every_row)),
        ("topic", "partition", "marker", "offset", "text"),
        (
            {"topic": one.facts.topic.name, "partition": one.facts.partition, **mark._asdict(), "marker": mark.name}
            for one in found
            for mark in markers(one)
        ),
    )


def _explained(found: Sequence[Explained], *, every_row: bool) -> Iterator[Part]:
    order = {"hold": 0, "trim": 1, "keep": 2, "skip": 3}
    shown = (
        found
        if every_row or len(found) <= SHOWN
        else sorted(found, key=lambda one: (order[one.decision.action], -one.decision.records, one.facts.tp))[:SHOWN]
    )
    for one in shown:
        facts, decision = one.facts, one.decision
        style = {"trim": "yellow", "hold": "magenta"}.get(decision.action, "")
        yield Line(f"{facts.tp}  {decision.action}", f"bold {style}".strip())
        start, end = known(facts.log_start), known(facts.high_watermark)
        if start is not None and end is not None and end > start:
            yield from picture(
                start,
                end,
                decision.trim_to,
                markers(one),
                picture_width(100),
            )
        text = why(one)
        yield from (
            BLANK,
            Line(text, indent=2),
            *(
                Line(f"{reason.code}  {reason.text}", indent=4)
                for reason in decision.reasons
                if decision.action == "trim" or (decision.action == "keep" and reason.text not in text)
            ),
            BLANK,
        )
    if len(shown) < len(found):
        yield Line(f"{len(found) - len(shown):,} more partitions (--all shows them).", "dim")


def markers(one: Explained) -> list[Marker]:
    """Return the signs in the log, by offset."""
    facts, trim_to = one.facts, one.decision.trim_to
    start, end, stable = known(facts.log_start), known(facts.high_watermark), known(facts.last_stable_offset)
    floor, newest = known(facts.floor), known(facts.newest)
    bounds = {bound.bound for bound in one.weighed}
    found: list[Marker | None] = [
        None if start is None else Marker("S", start, "log start"),
        None if floor is None else Marker("floor", floor.offset, f"{floor.by} has read up to here"),
        *(
            Marker(
                "age",
                answer.offset,
                f"every record before it is older than {format_duration(one.now_ms - time_ms)} ({timestamp(time_ms)})",
            )
            for time_ms, answer in sorted(facts.lookups.items())
            if time_ms != ANCIENT_MS and not isinstance(answer, Unknown) and answer.offset not in bounds
        ),
        None
        if newest is None or newest.offset is None or (start is not None and newest.offset < start)
        else Marker("newest", newest.offset, f"the newest event time, {format_time(newest.time_ms)}"),
        *(
            Marker(bound.code, bound.bound, _bound_text(bound, start, cutoff_ms(one, bound.code)))
            for bound in one.weighed
            if bound.bound is not None
        ),
        None if stable in (None, end) else Marker("L", stable or 0, "last stable offset: an open transaction begins"),
        None if trim_to is None else Marker("trim", trim_to, "the new log start"),
        None if end is None else Marker("H", end, "high watermark"),
    ]
    return sorted((mark for mark in found if mark is not None), key=lambda mark: mark.offset)


def _bound_text(bound: Weighed, start: int | None, cutoff: int | None) -> str:
    text = f"bound of {bound.rule}" if cutoff is None else f"bound of {bound.rule} (cutoff {format_time(cutoff)})"
    if bound.bound is not None and start is not None and bound.bound <= start:
        return f"{text}: nothing more to trim"
    match bound.allowed:
        case Unknown():
            return f"{text}: trims nothing, because a guard is unknown"
        case None:
            return f"{text}: {bound.limited_by} allows nothing"
        case int(offset):
            return f"{text}: {bound.limited_by} lowers it to {offset:,}" if offset != bound.bound else text


def picture(start: int, end: int, trim_to: int | None, marks: Sequence[Marker], width: int) -> list[str]:
    """Return the log as a bar from S to H, with the trimmed part shaded, and a line for each marker under it."""
    cells = max(20, width - 4)

    def cell(offset: int) -> int:
        return round((min(max(offset, start), end) - start) * (cells - 1) / (end - start))

    goes = 0 if trim_to is None else cells if trim_to >= end else max(1, cell(trim_to))
    lines = [_GOES * goes + _STAYS * (cells - goes)]
    for mark in marks:
        at = cell(mark.offset)
        label = f"{mark.name} {mark.offset:,}  {mark.text}{' (before the log start)' if mark.offset < start else ''}"
        right, left = cells - at - 2, at - 1  # the room on either side of the sign
        to_the_right = len(label) <= right or (len(label) > left and at < cells // 2)
        room = right if to_the_right else left
        first, *more = [label] if len(label) <= room else textwrap.wrap(label, room)
        lines += (
            [" " * at + "▲ " + first, *(" " * (at + 2) + line for line in more)]
            if to_the_right
            else [first.rjust(left) + " ▲", *(line.rjust(left) for line in more)]
        )
    return [f"  {line}" for line in lines]


def explained_document(found: Sequence[Explained], run: str | None = None) -> Document:
    """Return what JSON has: a row per partition."""
    return (
        {"format": "kretain.explain/v1", **({} if run is None else {"run": run})},
        "partitions",
        (
            {
                **row_as_json(one.decision),
                "bounds": [
                    {
                        "rule": bound.rule,
                        "code": bound.code,
                        "asked": bound.bound,
                        "allowed": bound.allowed if isinstance(bound.allowed, int) else None,
                        "limited_by": bound.limited_by,
                        "before": _before(cutoff_ms(one, bound.code)),
                        "reasons": [{"code": r.code, "text": r.text} for r in bound.allowed.reasons]
                        if isinstance(bound.allowed, Unknown)
                        else [],
                    }
                    for bound in one.weighed
                ],
                "why": why(one),
            }
            for one in found
        ),
    )


def _before(cutoff: int | None) -> str | None:
    """Return a cutoff as JSON's time; None without one, or if beyond any calendar (``--older-than 99999999d``)."""
    try:
        return None if cutoff is None else timestamp(cutoff)
    except (ValueError, OverflowError, OSError):
        return None
