"""Where consumers stand, on the screen and for scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kretain.options import Output
from kretain.render import data, screen
from kretain.render.plan import SHOWN
from kretain.render.reasons import MOST, print_reasons
from kretain.render.screen import Column
from kretain.render.words import count, number
from retention_cli.model import PartitionFacts, Unknown, known
from retention_cli.positions import GroupPosition, Positions

FORMAT = "kretain.offsets/v1"
COLUMNS = (
    "topic",
    "partition",
    "log_start",
    "high_watermark",
    "last_stable_offset",
    "min_commit",
    "min_commit_by",
    "lag",
    "reasons",
)
GROUP_COLUMNS = ("topic", "partition", "group", "committed", "lag")


def print_floors(positions: Positions, output: Output, *, every_row: bool) -> None:
    """Print one row per partition."""
    rows = [_floor_row(one) for one in positions.facts]
    if _for_scripts(positions, output, COLUMNS, rows):
        return
    shown = _shorten(positions.facts, every_row=every_row)
    screen.print_table(
        (
            Column("partition"),
            Column("log start", "right"),
            Column("high watermark", "right"),
            Column("floor", "right"),
            Column("lag", "right"),
            Column("set by"),
        ),
        [
            (
                str(one.tp),
                number(known(one.log_start)),
                number(known(one.high_watermark)),
                number(row["min_commit"]),
                number(row["lag"]),
                (row["min_commit_by"] or _codes(one)).removeprefix("group:"),
            )
            for one, row in ((one, _floor_row(one)) for one in shown)
        ],
        ["magenta" if isinstance(one.floor, Unknown) and not one.empty else None for one in shown],
    )
    _print_unknown(positions.facts)


def print_groups(positions: Positions, output: Output, *, every_row: bool) -> None:
    """Print one row per partition and group."""
    rows = [_group_row(one) for one in positions.groups]
    if _for_scripts(positions, output, GROUP_COLUMNS, rows):
        return
    shown = rows if every_row or len(rows) <= SHOWN else sorted(rows, key=lambda row: -(row["lag"] or 0))[:MOST]
    if len(shown) < len(rows):
        screen.say(f"The {len(shown)} of {len(rows):,} positions that lag most (all of them: --all, or -o csv):")
        screen.say()
    screen.print_table(
        (Column("partition"), Column("group"), Column("committed", "right"), Column("lag", "right")),
        [
            (f"{row['topic']}-{row['partition']}", row["group"], number(row["committed"]), number(row["lag"]))
            for row in shown
        ],
    )
    _print_unknown(positions.facts)


def _for_scripts(positions: Positions, output: Output, columns: Sequence[str], rows: list[dict[str, Any]]) -> bool:
    head: Mapping[str, Any] = {
        "format": FORMAT,
        "cluster": {"id": positions.cluster_id, "bootstrap": positions.bootstrap},
    }
    match output:
        case Output.json:
            data.print_json(head, "partitions", rows)
        case Output.yaml:
            data.print_yaml({**head, "partitions": rows})
        case Output.csv:
            data.print_csv(columns, rows)
        case Output.table:
            return False
    return True


def _shorten(facts: Sequence[PartitionFacts], *, every_row: bool) -> Sequence[PartitionFacts]:
    if every_row or len(facts) <= SHOWN:
        return facts
    shown = sorted(facts, key=lambda one: (-(_lag(one) or 0), one.tp))[:MOST]
    screen.say(f"The {len(shown)} of {len(facts):,} partitions that lag most (all of them: --all, or -o csv):")
    screen.say()
    return sorted(shown, key=lambda one: one.tp)


def _floor_row(one: PartitionFacts) -> dict[str, Any]:
    floor = known(one.floor)
    reasons = one.floor.reasons if isinstance(one.floor, Unknown) else one.floor.notes
    return {
        "topic": one.topic.name,
        "partition": one.partition,
        "log_start": known(one.log_start),
        "high_watermark": known(one.high_watermark),
        "last_stable_offset": known(one.last_stable_offset),
        "min_commit": None if floor is None else floor.offset,
        "min_commit_by": None if floor is None else floor.by,
        "lag": _lag(one),
        "reasons": [] if one.empty else [{"code": reason.code, "text": reason.text} for reason in reasons],
    }


def _group_row(one: GroupPosition) -> dict[str, Any]:
    return {
        "topic": one.tp.topic,
        "partition": one.tp.partition,
        "group": one.group,
        "committed": one.committed,
        "lag": one.lag,
    }


def _lag(one: PartitionFacts) -> int | None:
    if isinstance(one.floor, Unknown) or isinstance(one.high_watermark, Unknown):
        return None
    return one.high_watermark - one.floor.offset


def _codes(one: PartitionFacts) -> str:
    if one.empty or not isinstance(one.floor, Unknown):
        return ""
    return ", ".join(dict.fromkeys(reason.code for reason in one.floor.reasons))


def _print_unknown(facts: Sequence[PartitionFacts]) -> None:
    unknown = [(one.tp, one.floor.reasons) for one in facts if isinstance(one.floor, Unknown) and not one.empty]
    known_floors = sum(not isinstance(one.floor, Unknown) for one in facts)
    screen.say()
    screen.say(f"{count(len(facts), 'partition')}: {known_floors:,} with a floor, {len(unknown):,} unknown.", "bold")
    print_reasons("Unknown", unknown, "magenta")
