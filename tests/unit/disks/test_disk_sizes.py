"""How far a replica's size can be trusted: what is said, and what to do (R5, R6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_dirs import LogDirState, Replica
from retention_cli.core.model import TopicPartition
from retention_cli.disks.disk import Disk, Room
from retention_cli.disks.replica_sizes import Sizes, smaller_replicas
from retention_cli.memory.partition import PartitionMemory
from retention_cli.policy.settings import Settings
from tests.support.facts import Log

ORDERS = TopicPartition("orders", 0)
DISK = Disk(1, ("/a",), Room(9_000, 5_000, 1_000), {ORDERS: 1_000})
FAILED = RequestFailedError("not allowed", retriable=False)
MINUTE = 60_000


@dataclass
class Brokers:
    """Answers about settings, as given."""

    check: Any = field(default_factory=lambda: {"log.retention.check.interval.ms": "300000"})
    topic: Any = field(default_factory=lambda: {"segment.bytes": "100", "file.delete.delay.ms": "60000"})

    def broker_values(self, brokers: list[int], _: object) -> dict[int, Any]:
        return dict.fromkeys(brokers, self.check)

    def topic_values(self, topics: list[str], _: object) -> dict[str, Any]:
        return dict.fromkeys(topics, self.topic)


def looked(
    memory: PartitionMemory,
    minute: int,
    start: int,
    size: int,
    brokers: Brokers | None = None,
    *,
    future: bool = False,
    path: str = "/a",
) -> Sizes:
    """One look: 100 offsets in all, a replica of this size on broker 1."""
    facts = Log(start, [0] * (100 - start)).facts(Settings())
    copies = [Replica(ORDERS, size, future=False), *([Replica(ORDERS, 1, future=True)] if future else ())]
    sizes, reader = Sizes(), brokers or Brokers()
    dirs = {1: [LogDirState(path, 9_000, 4_000, copies)], 2: FAILED}
    sizes.add(reader, dirs, {ORDERS: facts}, {ORDERS: memory}, minute * MINUTE)  # type: ignore[arg-type]
    return sizes


def doubt(sizes: Sizes) -> str:
    why = sizes.doubt(DISK, ORDERS, "R6")
    return "" if why is None else why.reasons[0].text


def test_replica_seen_for_the_first_time_is_doubted_for_two_checks() -> None:
    memory = PartitionMemory()
    first = looked(memory, 0, 50, 1_000)
    assert "watched for 11 m" in doubt(first)
    assert "--inventory" in doubt(first)
    assert (first.dead_bytes(DISK, ORDERS), first.doubtful_bytes(DISK, ORDERS)) == (0, 500)
    assert doubt(looked(memory, 10, 50, 1_000))
    assert not doubt(looked(memory, 11, 50, 1_000))
    assert memory.changed


def test_replica_is_doubted_after_a_log_start_move_until_its_size_falls() -> None:
    memory = PartitionMemory()
    assert not doubt(looked(memory, 0, 0, 1_000))
    moved = looked(memory, 60, 40, 1_000)
    assert "has moved since its size on broker 1 last fell" in doubt(moved)
    assert (moved.dead_bytes(DISK, ORDERS), moved.doubtful_bytes(DISK, ORDERS)) == (400, 0)
    assert doubt(looked(memory, 600, 40, 1_000))
    fallen = looked(memory, 601, 40, 600)
    assert not doubt(fallen)
    assert fallen.leaving_bytes(DISK) == 400
    assert looked(memory, 603, 40, 600).leaving_bytes(DISK) == 0


def test_replica_moving_to_another_dir_is_doubted_and_restarts_there() -> None:
    memory = PartitionMemory()
    looked(memory, 0, 50, 1_000)
    assert "being moved" in doubt(looked(memory, 60, 50, 1_000, future=True))
    there = looked(memory, 61, 50, 1_000, path="/b")
    other = Disk(1, ("/b",), DISK.room, DISK.replicas)
    assert there.doubt(other, ORDERS, "R6") is not None


def test_unreadable_sweep_settings_leave_the_replica_doubted() -> None:
    for brokers in (Brokers(check=FAILED), Brokers(topic=FAILED), Brokers(check={}), Brokers(topic={})):
        memory = PartitionMemory()
        looked(memory, 0, 50, 1_000, brokers)
        sizes = looked(memory, 6_000, 50, 1_000, brokers)
        assert "could not be read" in doubt(sizes)
        assert sizes.longest([1], ["orders"]) != (300_000, 60_000)
    assert looked(PartitionMemory(), 0, 50, 1_000, Brokers(topic=FAILED)).segment_bytes == {}


@pytest.mark.parametrize(
    ("setting", "bytes_"),
    [({}, 0), ({"cleanup.policy": "compact,delete"}, 1_200), ({"remote.storage.enable": "true"}, 1_200)],
    ids=["plain", "compacted", "tiered"],
)
def test_segments_deleted_without_a_move_of_the_log_start_may_be_leaving(setting: dict[str, str], bytes_: int) -> None:
    """A cleaner, or a local retention, deletes them; growth hides it. All that the replica had may be leaving."""
    memory, brokers = PartitionMemory(), Brokers()
    brokers.topic |= {"cleanup.policy": "delete", "remote.storage.enable": "false", **setting}
    assert looked(memory, 0, 0, 1_200, brokers).may_leave_bytes(DISK, None) is None
    assert looked(memory, 60, 0, 1_000, brokers).may_leave_bytes(DISK, 0) == 200 + bytes_
    assert looked(memory, 120, 0, 1_000, brokers).may_leave_bytes(DISK, 60 * MINUTE) == (1_000 if bytes_ else 0)


def test_replica_that_was_away_at_the_last_look_at_its_disk_counts_as_come() -> None:
    memory, brokers = PartitionMemory(), Brokers()
    brokers.topic |= {"cleanup.policy": "delete", "remote.storage.enable": "false"}
    looked(memory, 0, 0, 1_000, brokers)
    assert looked(memory, 60, 0, 1_000, brokers).may_leave_bytes(DISK, 30 * MINUTE) is None
    assert looked(memory, 120, 0, 1_000, brokers).may_leave_bytes(DISK, 60 * MINUTE) == 0


def test_replica_that_was_never_seen_is_doubted() -> None:
    elsewhere = Disk(3, ("/a",), DISK.room, DISK.replicas)
    why = looked(PartitionMemory(), 0, 0, 1_000).doubt(elsewhere, ORDERS, "R6")
    assert why is not None
    assert "could not be laid beside" in why.reasons[0].text


def test_replica_smaller_by_more_than_two_segments_counts_as_lagging() -> None:
    room, first, second = Room(10_000, 5_000, 5_000), TopicPartition("a", 0), TopicPartition("b", 0)
    disks = [Disk(1, ("/d",), room, {first: 1_000, second: 900}), Disk(2, ("/d",), room, {first: 799, second: 700})]
    found = smaller_replicas(disks, {first, second}, {"a": 100, "b": 100})
    assert found.keys() == {(1, first)}
    [reason] = found[1, first].reasons
    assert reason.code == "R6"
    assert reason.text.startswith("its replica on broker 2 takes 799 B, another 1000 B: it lags, or is being filled")
    assert smaller_replicas(disks, {second}, {"a": 100, "b": 100}) == {}
    assert smaller_replicas(disks, {first, second}, {}).keys() == {(1, first), (1, second)}, (
        "how large segments are is not known"
    )
