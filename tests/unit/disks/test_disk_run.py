"""A pass that looks at the disks again, for the partitions that had to be read again, forgets no disk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_dirs import LogDirState
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.core.model import TopicPartition
from retention_cli.disks.run import DiskRun
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.recall import Remembered
from retention_cli.policy.settings import DiskRules

FIRST, AGAIN = TopicPartition("a", 0), TopicPartition("a", 1)


class Answers:
    """What two brokers answer, of which the second is silent."""

    def brokers(self) -> list[int]:
        return [1, 2]

    def log_dirs(self, brokers: Iterable[int]) -> dict[int, list[LogDirState] | RequestFailedError]:
        silent = RequestFailedError("timed out", retriable=True)
        return {one: [LogDirState("/a", 1_000, 500)] if one == 1 else silent for one in brokers}


def test_partition_with_a_replica_on_a_silent_broker_stays_held_after_a_second_look() -> None:
    """R6 holds every partition with a replica there, not those alone that were read again."""
    state = DiskRun(DiskRules())
    leaders = {tp: PartitionMetadata(1, 0, (1, 2)) for tp in (FIRST, AGAIN)}
    for some in (leaders, {AGAIN: leaders[AGAIN]}):
        remembered = Remembered(Ledger(None), {}, some, 0, 0)
        state.look(cast(Any, Answers()), {}, {}, some, remembered, lambda: 0)
    assert [set(one.replicas) for one in state.disks if not one.dirs] == [{FIRST, AGAIN}]
