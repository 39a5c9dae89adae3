"""What no inventory tells of replicas by now counts as on its way, so that nothing else goes in its stead (R6)."""

from __future__ import annotations

import pytest

from retention_cli.core.model import TopicPartition
from retention_cli.disks.disk import Disk, Room
from retention_cli.disks.inventory.format import ScannedReplica
from retention_cli.disks.pending_deletes import doubted_bytes, indexes_gone
from retention_cli.policy.settings import DiskRules

TP = TopicPartition("orders", 0)
ABOVE, BELOW = DiskRules(percent=50), DiskRules(percent=90)
SIZE = 1000
SCANNED = ScannedReplica(1, "/a", TP, "id", 1, 80, 0, 80, 100, 600, 400, 100, 9, 4, 0)
"""Closed segments of 500 up to 80, of which 100 lay below S; an active one of 100; 400 bytes came after the scan."""


@pytest.mark.parametrize(
    ("scanned", "start", "decided", "doubted"),
    [
        (SCANNED, 0, 0, 0),
        (SCANNED, 20, 0, 0),
        (SCANNED, 20, 80, 0),
        (SCANNED, 20, 99, 0),  # what was active at the scan reaches up to 100 at least
        (SCANNED, 20, 100, SIZE - 500),  # the walk counts the closed segments, and nobody what came after them
        (SCANNED._replace(end=200, log_bytes=SIZE), 200, 0, 0),  # nothing was written since
        (SCANNED._replace(end=200), 200, 0, SIZE - 500),  # the log goes on beyond H, which a follower holds up
        (SCANNED._replace(end=-1), 20, 80, 0),
        (SCANNED._replace(end=-1), 20, 81, SIZE - 500),
        (SCANNED, 150, 0, SIZE - 500),
        (SCANNED._replace(live_bytes=0), 150, 0, SIZE - 500),
        (None, 0, 0, 0),
        (None, 1, 0, SIZE),
        (None, 0, 1, SIZE),
        (SCANNED, None, 0, SIZE),
    ],
)
def test_what_may_be_dead_and_is_in_no_row(
    scanned: ScannedReplica | None, start: int | None, decided: int, doubted: int
) -> None:
    disk = Disk(1, ("/a",), Room(2000, 1500, SIZE), {TP: SIZE})
    known = {} if scanned is None else {(0, TP): scanned}
    starts = {} if start is None else {TP: start}
    ends = {TP: 200}
    assert doubted_bytes([disk], ABOVE, known, starts, ends, {TP: decided}) == [doubted]
    assert doubted_bytes([disk], BELOW, known, starts, ends, {TP: decided}) == [0], "nothing is asked of that disk"


def test_what_was_swept_since_is_not_counted_as_there() -> None:
    """Of 500 closed bytes 400 were swept, and 200 came after them: all 300 that the replica has may be dead."""
    disk = Disk(1, ("/a",), Room(2000, 1500, 300), {TP: 300})
    dead = SCANNED._replace(live_bytes=0)
    assert doubted_bytes([disk], ABOVE, {(0, TP): dead}, {TP: 150}, {TP: 200}, {}) == [300 - 200]


def test_indexes_go_with_their_segments_and_all_of_a_replica_s_with_it() -> None:
    disk = Disk(1, ("/a",), Room(2000, 1500, SIZE), {TP: SIZE})
    deleted = SCANNED._replace(tp=TopicPartition("deleted", 0))
    elsewhere = SCANNED._replace(broker=2)
    assert indexes_gone([SCANNED, deleted, elsewhere], [disk], ()) == {disk.name: 4 + 9}
    assert indexes_gone([SCANNED], [disk], {(1, *TP)}) == {disk.name: 9}, "it is not believed"
