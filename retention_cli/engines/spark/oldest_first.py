"""R6 with an inventory, over Spark: the result of :mod:`retention_cli.disks.solve.oldest_first`, by windows (R6).

Segments are shuffled twice: all of them by partition, for the running maximum of their times, and kept that way; and
those that the walk can reach by disk, for the running sum. This process gets one row per disk, and the largest
blockers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.disks.solve.leaving import Leaving
from retention_cli.disks.solve.oldest_first import NOTHING_HELD, above_ceilings, broken_partitions
from retention_cli.disks.solve.outcome import Blocker, DiskOutcome
from retention_cli.disks.solve.room import Disk
from retention_cli.engines.spark.disk_reasons import in_the_way, unknown_partitions
from retention_cli.engines.spark.disk_rows import TP, AtFirst, DiskRows
from retention_cli.engines.spark.inventory import SparkInventory
from retention_cli.policy.settings import DiskRules


@dataclass(frozen=True, slots=True)
class SparkOldestFirst:
    """Like :class:`~retention_cli.disks.solve.oldest_first.OldestFirst`. A context manager: on exit it frees frames.

    ``bounds`` is a frame of topic, partition and bound; ``unknown`` one of topic, partition and reasons
    (array<struct<code,text>>). The outcomes have each disk's largest blockers
    (:data:`~retention_cli.disks.solve.outcome.SHOWN`), and count the others.
    """

    bounds: Any
    outcomes: Sequence[DiskOutcome]
    unknown: Any

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the frames that Spark keeps."""
        self.bounds.unpersist()


def oldest_first(
    inventory: SparkInventory,
    disks: Sequence[Disk],
    rules: DiskRules,
    partitions: Any,
    leaving: Sequence[Leaving] = (),
    held: Mapping[TopicPartition, Unknown] = NOTHING_HELD,
) -> SparkOldestFirst:
    """Return the bounds that bring each disk under its ceiling, the oldest segments first.

    Args:
        inventory: the cluster's inventory.
        disks: all disks that could be read.
        rules: the policy's disk rules; ``percent`` is set.
        partitions: topic, partition, topic_id, managed (bool: R6 may trim it), log_start, trim_to (the other rules'
            bound), limit_offset, limit_guard, limit_text (how far R6 may trim), limit_reasons
            (array<struct<code,text>>: why that is unknown); all but the first two may be null. One row each; read
            several times, so persist it first. Partitions that are only in the inventory are not managed.
        leaving: per disk, what is leaving it other than a live replica's bytes.
        held: partitions that must not be trimmed, and why.

    Raises:
        InventoryError: the inventory changed while it was read, or ``partitions`` has a partition twice.
    """
    unknown, excess = above_ceilings(disks, rules, inventory.dirs)
    work = DiskRows(inventory, disks, partitions, {**broken_partitions(inventory.incomplete), **held})
    kept: list[Any] = []
    try:
        rows = work.on_disks(walks=any(one > 0 for one in excess)).persist()
        kept.append(rows)
        start = work.at_first(rows)
        away = [*leaving, *(Leaving() for _ in disks)]
        dead = [one.dead + away[n].known_bytes for n, one in enumerate(start)]
        remaining = [excess[n] - dead[n] - away[n].uncertain_bytes - one.gone for n, one in enumerate(start)]
        over = {n: size_bytes for n, size_bytes in enumerate(remaining) if size_bytes > 0}
        ends = _End(work.nothing(), [one.gone for one in start])
        if over:
            ends = _walk(work, rows, over, start, kept)
    finally:
        for frame in kept:
            frame.unpersist()
    outcomes = [
        DiskOutcome(
            disk=disk,
            percent=rules.percent,
            unknown=unknown.get(n),
            excess_bytes=max(0, excess[n]),
            dead_bytes=dead[n],
            other_rules_bytes=start[n].gone,
            freed_bytes=ends.gone[n] - start[n].gone,
            short_bytes=0 if n in unknown else max(0, remaining[n] - (ends.gone[n] - start[n].gone)),
            level_ms=ends.levels.get(n),
            in_the_way=ends.stays.get(n, _NOTHING)[0],
            unnamed=ends.stays.get(n, _NOTHING)[1],
            doubtful_bytes=away[n].uncertain_bytes,
            unexplained_bytes=away[n].possible_bytes,
        )
        for n, disk in enumerate(disks)
    ]
    return SparkOldestFirst(ends.bounds, outcomes, unknown_partitions(work, outcomes))


_NOTHING: Final[tuple[Sequence[Blocker], int]] = ((), 0)


@dataclass(slots=True)
class _End:
    """The walk's result. By disk: all bytes freed, the newest time trimmed because of it, and its blockers."""

    bounds: Any
    gone: Sequence[int]
    levels: Mapping[int, int] = field(default_factory=dict)
    stays: Mapping[int, tuple[Sequence[Blocker], int]] = field(default_factory=dict)


def _walk(work: DiskRows, rows: Any, over: Mapping[int, int], start: Sequence[AtFirst], kept: list[Any]) -> _End:
    """Walk, for disks that must free this many bytes. Frames that can be freed afterwards are added to ``kept``."""
    from pyspark.sql import functions as f

    walked = work.walked(rows, over, sum(start[n].candidates for n in over)).persist()
    kept.append(walked)
    levels = work.levels(walked)
    bounds = walked.groupBy(*TP).agg(f.max("next").alias("bound")).persist()
    try:
        after = work.replicas_after(rows, bounds).persist()
        kept.append(after)
        gone = work.freed(after)
        short = [n for n, size_bytes in over.items() if size_bytes > gone[n] - start[n].gone]
        stays = in_the_way(work, after, short)
    except BaseException:
        bounds.unpersist()
        raise
    return _End(bounds, gone, levels, stays)
