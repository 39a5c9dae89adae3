"""Partitions that stand where they stand for the same reasons, drawn together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from retention_cli.core.model import Reason, TopicPartition


@dataclass(frozen=True, slots=True)
class SameReasons:
    """Partitions with the same reasons: how many, of how many topics.

    ``places`` are those of the first topics at least, in order.
    """

    reasons: tuple[Reason, ...]
    count: int
    topics: int
    places: Sequence[TopicPartition]


def grouped(rows: Iterable[tuple[TopicPartition, tuple[Reason, ...]]]) -> list[SameReasons]:
    """Draw partitions together; the most frequent reasons come first, of equally frequent ones the first partition's.

    Rows come in the order of their partitions.
    """
    grouped: dict[tuple[Reason, ...], list[TopicPartition]] = {}
    for tp, reasons in rows:
        grouped.setdefault(reasons, []).append(tp)
    found = [SameReasons(reasons, len(tps), len({tp.topic for tp in tps}), tps) for reasons, tps in grouped.items()]
    return sorted(found, key=lambda one: (-one.count, one.places[0]))
