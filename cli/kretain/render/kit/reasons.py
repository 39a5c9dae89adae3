"""Print reasons: partitions with the same reasons are grouped, the most frequent first."""

from __future__ import annotations

from collections.abc import Iterable

from kretain.render.kit import screen
from kretain.render.kit.text import partitions
from retention_cli.core.grouping import grouped
from retention_cli.core.model import Reason, TopicPartition

MOST = 20


def print_reasons(
    title: str,
    rows: Iterable[tuple[TopicPartition, tuple[Reason, ...]]],
    style: str | None = None,
    *,
    markdown: bool = False,
) -> None:
    """Print a heading, then the partitions and their reasons; nothing if there are no rows."""
    found = grouped(rows)
    if not found:
        return
    screen.heading(title, markdown=markdown)
    for one in found[:MOST]:
        screen.bullet(partitions(one.places, of_topics=one.topics), style, markdown=markdown)
        for reason in one.reasons:
            screen.bullet(f"{reason.code}  {reason.text}", indent=4, markdown=markdown)
    if len(found) > MOST:
        screen.bullet(f"and {len(found) - MOST:,} more (-o csv has each partition's)", markdown=markdown)
