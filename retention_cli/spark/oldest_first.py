"""R6 with an inventory, over Spark (RULES.md R6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from retention_cli.disks.outcome import DiskOutcome
from retention_cli.disks.room import Disk
from retention_cli.policy.settings import DiskRules
from retention_cli.spark.inventory import SparkInventory


@dataclass(frozen=True, slots=True)
class SparkOldestFirst:
    """As :class:`retention_cli.disks.oldest_first.OldestFirst`. A context manager: it lets go of what Spark keeps.

    ``bounds`` is a frame of topic, partition and bound; ``unknown`` one of topic, partition and reasons
    (array<struct<code,text>>). Of what is in a disk's way the outcomes name the most (:data:`SHOWN`), and count the
    others.
    """

    bounds: Any
    outcomes: Sequence[DiskOutcome]
    unknown: Any

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bounds.unpersist()


def oldest_first(
    inventory: SparkInventory,
    disks: Sequence[Disk],
    rules: DiskRules,
    partitions: Any,
    leaving_bytes: Sequence[int] = (),
) -> SparkOldestFirst:
    """Return the bounds that bring each disk under its ceiling, the oldest segments first.

    Args:
        inventory: of this cluster.
        disks: all disks that could be read.
        rules: the policy's; ``percent`` is set.
        partitions: topic, partition, topic_id, managed (bool: R6 may touch it), log_start, trim_to (where other rules
            trim to), limit_offset, limit_guard, limit_text (how far R6 may go), limit_reasons
            (array<struct<code,text>>: why that is unknown); all but the first two and managed may be null. A row
            each. What the inventory has and this has not is not managed.
        leaving_bytes: per disk, what brokers have swept lately and may not have deleted yet.
    """
    raise NotImplementedError
