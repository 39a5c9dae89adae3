"""A replica that is behind the others is not estimated: it holds older records alone (R6)."""

from __future__ import annotations

from retention_cli.core.model import TopicPartition
from retention_cli.disks.disk import Disk, Room
from retention_cli.disks.replica_sizes import smaller_replicas

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
ROOM = Room(10_000, 5_000, 5_000)


def test_a_replica_that_is_smaller_by_more_than_two_segments_is_behind() -> None:
    disks = [Disk(1, ("/d",), ROOM, {A: 1_000, B: 900}), Disk(2, ("/d",), ROOM, {A: 799, B: 700})]
    found = smaller_replicas(disks, {A, B}, {"a": 100, "b": 100})
    assert found.keys() == {(1, A)}
    [reason] = found[1, A].reasons
    assert reason.code == "R6"
    assert reason.text.startswith("its replica on broker 2 takes 799 B, another 1000 B: it lags, or is being filled")
    assert smaller_replicas(disks, {B}, {"a": 100, "b": 100}) == {}
    assert smaller_replicas(disks, {A, B}, {}).keys() == {(1, A), (1, B)}, "how large segments are is not known"
