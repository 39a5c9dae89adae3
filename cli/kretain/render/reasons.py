"""Reasons for people: partitions with the same ones stand together, the most frequent first."""

from __future__ import annotations

from collections.abc import Iterable

from kretain.render import screen
from kretain.render.words import partitions
from retention_cli.model import Reason, TopicPartition

MOST = 20


def print_reasons(
    title: str,
    rows: Iterable[tuple[TopicPartition, tuple[Reason, ...]]],
    style: str | None = None,
    *,
    markdown: bool = False,
) -> None:
    """Print a heading, then the partitions and their reasons; nothing where there are no rows."""
    grouped: dict[tuple[Reason, ...], list[TopicPartition]] = {}
    for tp, reasons in rows:
        grouped.setdefault(reasons, []).append(tp)
    if not grouped:
        return
    screen.heading(title, markdown=markdown)
    largest_first = sorted(grouped.items(), key=lambda item: (-len(item[1]), item[1][0]))
    for reasons, members in largest_first[:MOST]:
        screen.bullet(partitions(members), style, markdown=markdown)
        for reason in reasons:
            screen.bullet(f"{reason.code}  {reason.text}", indent=4, markdown=markdown)
    if len(largest_first) > MOST:
        screen.bullet(f"and {len(largest_first) - MOST:,} more (-o csv has each partition's)", markdown=markdown)
