"""Group partitions that have the same reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from retention_cli.core.model import Reason, TopicPartition


@dataclass(frozen=True, slots=True)
class SameReasons:
    """Partitions with the same reasons: their number, and that of their topics.

    ``places`` are at least the partitions of the first topics, in order.
    """

    reasons: tuple[Reason, ...]
    count: int
    topics: int
    places: Sequence[TopicPartition]


def grouped(rows: Iterable[tuple[TopicPartition, tuple[Reason, ...]]]) -> list[SameReasons]:
    """Return partitions grouped by reasons, the most frequent first; ties are ordered by their first partition.

    ``rows`` must be in the order of their partitions.
    """
    grouped: dict[tuple[Reason, ...], list[TopicPartition]] = {}
    for tp, reasons in rows:
        grouped.setdefault(reasons, []).append(tp)
    found = [SameReasons(reasons, len(tps), len({tp.topic for tp in tps}), tps) for reasons, tps in grouped.items()]
    return sorted(found, key=lambda one: (-one.count, one.places[0]))
