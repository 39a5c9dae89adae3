"""What another policy would have deleted and kept (``kretain replay``)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kretain.render.output import BLANK, MOST, Column, Line, Part, Table, heading, number, show, signed, size
from retention_cli.core.model import TopicPartition
from retention_cli.core.units import count, timestamp

if TYPE_CHECKING:  # it imports pyarrow's part
    from retention_cli.evidence.replay import Difference, Replayed

FORMAT: Final = "kretain.replay/v1"
COLUMNS: Final = (
    *("cluster", "topic", "partition", "earlier", "later", "never", "same", "unread", "unread_by", "unread_run"),
    *("held", "lacking"),
)
_WIDE: Final = 40


def print_replayed(found: Replayed, source: str, output: str) -> None:
    """Print what differs: by day, and by partition."""
    head = {
        "format": FORMAT,
        "policy": source,
        "runs": [one.run for one in found.runs],
        "decisions": found.decisions,
        "totals": dict(found.totals),
        "partitions_without_size": found.unsized,
        "days": [
            {"day": timestamp(one.start_ms)[:10], "bytes": one.kept, "bytes_under_policy": one.under_policy}
            for one in found.days
        ],
        "holds": [one._asdict() for one in found.reasons],
    }
    rows = (one._asdict() for one in found.differences())
    show(output, head, "partitions", rows, lambda: _people(found, source), COLUMNS)


def _people(found: Replayed, source: str) -> Iterator[Part]:
    totals, days = found.totals, found.days
    yield Line(f"{count(len(found.runs), 'run')}, decided again by {source}", "bold")
    if totals["unread"]:
        yield Line(f"It would have deleted {count(totals['unread'], 'record')} that a group had not read.", "bold red")
    if totals["lacking"]:
        lacking = f"{count(totals['lacking'], 'partition')} of {totals['partitions']:,}"
        yield Line(
            f"For {lacking} the evidence lacks a fact in some run: there it holds, and deletes no more.", "yellow"
        )
    for name, text in (
        ("earlier", "deleted earlier than they were, if they were"),
        ("later", "deleted later"),
        ("never", "not deleted in this time, and really were"),
        ("same", "deleted by the same run"),
    ):
        yield Line(f"{count(totals[name], 'record')} {text}", indent=2)
    yield heading("What leaders' logs held after each day's last run")
    most = max(max(one.kept, one.under_policy) for one in days) or 1
    yield Table(
        (
            Column("day", whole=True),
            Column("really", "right"),
            Column("by this policy", "right"),
            Column("difference", "right"),
            Column("█ both  ▓ policy alone  ░ really alone"),
        ),
        [
            (
                timestamp(one.start_ms)[:10],
                size(one.kept),
                size(one.under_policy),
                signed(one.under_policy - one.kept),
                "█" * both + ("▓" if one.under_policy > one.kept else "░") * (longest - both),
            )
            for one in days
            for both, longest in (sorted(round(_WIDE * n / most) for n in (one.kept, one.under_policy)),)
        ],
    )
    if found.unsized:
        yield Line(f"{count(found.unsized, 'partition')} without a known size are not in this.", "dim")
    yield from _partitions(found)
    if found.reasons:
        yield heading("On hold")
    for held in found.reasons[:MOST]:
        yield Line(f"{held.code}  {count(held.decisions, 'decision')}, such as: {held.text}", indent=2, code=held.code)


def _partitions(found: Replayed) -> Iterator[Part]:
    def weight(one: Difference) -> tuple[int, int]:
        return one.unread, one.earlier + one.later + one.never

    shown = heapq.nlargest(MOST, (one for one in found.differences() if any(weight(one))), key=weight)
    if not shown:
        return
    yield heading("Partitions that differ most")
    yield Table(
        (Column("partition"), *(Column(one, "right") for one in ("unread", "earlier", "later", "never")), Column("by")),
        [
            (
                str(TopicPartition(one.topic, one.partition)),
                *(number(amount) for amount in (one.unread, one.earlier, one.later, one.never)),
                f"{one.unread_by or 'no known group'}, {one.unread_run}" if one.unread else "",
            )
            for one in shown
        ],
        ["red" if one.unread else None for one in shown],
    )
    yield BLANK
    yield Line("kretain explain TOPIC:PARTITION --run RUN draws one as a run saw it; -o csv has each partition.", "dim")
