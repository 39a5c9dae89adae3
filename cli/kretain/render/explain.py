"""Print a partition's log as a picture: the records to trim, those kept, and each consumer's position."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from retention_cli.core.model import ANCIENT_MS, Unknown, known
from retention_cli.core.units import format_duration, format_time, timestamp
from retention_cli.decide.decision import Weighed
from retention_cli.plan.columns import row_as_json
from retention_cli.reports.explain import Explained, cutoff_ms, why

FORMAT = "kretain.explain/v1"
SHOWN = 8
_GOES, _STAYS = "░", "█"


@dataclass(frozen=True, slots=True)
class Marker:
    """A sign at an offset."""

    name: str
    offset: int
    text: str


def print_explained(found: Sequence[Explained], output: Output, *, every_row: bool) -> None:
    """Print one picture per partition, or their numbers for scripts."""
    match output:
        case Output.json:
            data.print_json({"format": FORMAT}, "partitions", (_as_json(one) for one in found))
        case Output.yaml:
            data.print_yaml({"format": FORMAT, "partitions": [_as_json(one) for one in found]})
        case Output.csv:
            rows = [
                {
                    "topic": one.facts.topic.name,
                    "partition": one.facts.partition,
                    "marker": m.name,
                    "offset": m.offset,
                    "text": m.text,
                }
                for one in found
                for m in markers(one)
            ]
            data.print_csv(("topic", "partition", "marker", "offset", "text"), rows)
        case Output.table:
            order = {"hold": 0, "trim": 1, "keep": 2, "skip": 3}
            ordered = sorted(found, key=lambda one: (order[one.decision.action], -one.decision.records, one.facts.tp))
            shown = list(found) if every_row or len(found) <= SHOWN else ordered[:SHOWN]
            for one in shown:
                _draw(one)
            if len(shown) < len(found):
                screen.say(f"{len(found) - len(shown):,} more partitions (--all shows them).", "dim")


def _draw(one: Explained) -> None:
    facts, decision = one.facts, one.decision
    style = {"trim": "yellow", "hold": "magenta"}.get(decision.action, "")
    screen.say(f"{facts.tp}  {decision.action}", f"bold {style}".strip())
    start, end = known(facts.log_start), known(facts.high_watermark)
    if start is not None and end is not None and end > start:
        for line in picture(start, end, decision.trim_to, markers(one), _width()):
            screen.say(line)
    screen.say()
    screen.bullet(why(one))
    for reason in decision.reasons if decision.action == "trim" else ():
        screen.bullet(f"{reason.code}  {reason.text}", indent=4)
    screen.say()


def _width() -> int:
    return min(120, shutil.get_terminal_size((100, 24)).columns) if screen.is_terminal() else 100


def markers(one: Explained) -> list[Marker]:
    """Return the signs in the log, by offset."""
    facts = one.facts
    found = []
    start = known(facts.log_start)
    if start is not None:
        found.append(Marker("S", start, "log start"))
    if (floor := known(facts.floor)) is not None:
        found.append(Marker("floor", floor.offset, f"{floor.by} has read up to here"))
    asked = {bound.asked for bound in one.weighed}
    for time_ms, answer in sorted(facts.lookups.items()):
        if time_ms != ANCIENT_MS and not isinstance(answer, Unknown) and answer.offset not in asked:
            age = format_duration(one.now_ms - time_ms)
            found.append(Marker("age", answer.offset, f"before it, all is older than {age} ({timestamp(time_ms)})"))
    newest = known(facts.newest)
    if newest is not None and newest.offset is not None and (start is None or newest.offset >= start):
        found.append(Marker("newest", newest.offset, f"the largest event time, {format_time(newest.time_ms)}"))
    for bound in one.weighed:
        if bound.asked is not None:
            cutoff = cutoff_ms(one, bound.code)
            before = "" if cutoff is None else f", before {format_time(cutoff)}"
            found.append(Marker(bound.code, bound.asked, _asked(bound, start) + before))
    if (stable := known(facts.last_stable_offset)) is not None and stable != known(facts.high_watermark):
        found.append(Marker("L", stable, "last stable offset: an open transaction begins"))
    if one.decision.trim_to is not None:
        found.append(Marker("trim", one.decision.trim_to, "the new log start"))
    if (end := known(facts.high_watermark)) is not None:
        found.append(Marker("H", end, "high watermark"))
    return sorted(found, key=lambda marker: marker.offset)


def _asked(bound: Weighed, start: int | None) -> str:
    if bound.asked is not None and start is not None and bound.asked <= start:
        return f"{bound.rule} asks for nothing more"
    match bound.allowed:
        case Unknown():
            return f"{bound.rule} asks for this, allowed: unknown, so nothing"
        case None:
            return f"{bound.rule} asks for this, allowed: nothing, by {bound.limited_by}"
        case int(allowed) if allowed != bound.asked:
            return f"{bound.rule} asks for this, allowed: {allowed:,}, by {bound.limited_by}"
    return f"{bound.rule} asks for this"


def picture(start: int, end: int, trim_to: int | None, marks: Sequence[Marker], width: int) -> list[str]:
    """Return the log as a bar from S to H, with the trimmed part shaded, and a line for each marker under it."""
    cells = max(20, width - 4)

    def cell(offset: int) -> int:
        return round((min(max(offset, start), end) - start) * (cells - 1) / (end - start))

    goes = 0 if trim_to is None else cells if trim_to >= end else max(1, cell(trim_to))
    lines = ["  " + _GOES * goes + _STAYS * (cells - goes)]
    for mark in marks:
        at = cell(mark.offset)
        outside = " (before the log start)" if mark.offset < start else ""
        label = f"{mark.name} {mark.offset:,}  {mark.text}{outside}"
        if at + len(label) + 2 <= cells:
            lines.append("  " + " " * at + "▲ " + label)
        elif at >= len(label) + 1:
            lines.append("  " + " " * (at - len(label) - 1) + label + " ▲")
        else:  # too long for either side: under its sign
            lines.append("  " + " " * at + "▲")
            for line in textwrap.wrap(label, cells):
                before = min(max(0, at - len(line) // 2), cells - len(line))
                lines.append("  " + " " * before + line)
    return lines


def _as_json(one: Explained) -> dict[str, Any]:
    bounds = [
        {
            "rule": bound.rule,
            "code": bound.code,
            "asked": bound.asked,
            "allowed": bound.allowed if isinstance(bound.allowed, int) else None,
            "limited_by": bound.limited_by,
            "before": _before(cutoff_ms(one, bound.code)),
            "reasons": [{"code": r.code, "text": r.text} for r in bound.allowed.reasons]
            if isinstance(bound.allowed, Unknown)
            else [],
        }
        for bound in one.weighed
    ]
    return {**row_as_json(one.decision), "bounds": bounds, "why": why(one)}


def _before(cutoff: int | None) -> str | None:
    """Return a cutoff as JSON's time; None if there is none, or if no calendar has it (``--older-than 99999999d``)."""
    try:
        return None if cutoff is None else timestamp(cutoff)
    except (ValueError, OverflowError, OSError):
        return None
