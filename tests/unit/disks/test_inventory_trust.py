"""An inventory is believed only as far as the cluster bears it out (R6)."""

from __future__ import annotations

from typing import Any

import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.disks.disk import Disk, Room
from retention_cli.disks.inventory.format import ScannedReplica
from retention_cli.disks.inventory_trust import doubt, doubts_of
from retention_cli.policy.settings import Settings
from tests.support.facts import Log, topic

MIB = 1 << 20
TP = TopicPartition("orders", 0)
FACTS = Log(10, [0] * 90).facts(Settings(), topic(TP.topic))
ID: Any = FACTS.topic.topic_id
GOOD = ScannedReplica(1, "/a", TP, ID, 1, 80, 0, 80, 100, 10 * MIB, 8 * MIB, MIB // 2, 0, 0, 5)
EPOCH = 5
NOW = FACTS._replace(leader_epoch=EPOCH)


@pytest.mark.parametrize("size", [17 * MIB // 2, 10 * MIB, None])
def test_inventory_that_fits_the_cluster_is_trusted(size: int | None) -> None:
    assert doubt(GOOD, FACTS, size) is None


@pytest.mark.parametrize(
    ("one", "size", "said"),
    [
        (GOOD._replace(topic_id="another"), 10 * MIB, "scanned before the topic was recreated"),
        (GOOD._replace(topic_id=None), 10 * MIB, "no topic id"),
        (GOOD._replace(actives=0, active_base=-1), 10 * MIB, "no active segment"),
        (GOOD._replace(actives=2), 10 * MIB, "more than one active"),
        (GOOD._replace(active_base=60), 10 * MIB, "behind the active"),
        (GOOD._replace(last_base=101, active_base=101), 10 * MIB, "reach to offset 101"),
        (GOOD, -1, "not in /a any more"),
        (GOOD, 7 * MIB, "its broker says 7.00 MiB in all"),
        (GOOD._replace(log_bytes=9, live_bytes=5, active_bytes=2), 10 * MIB, "more than was written since"),
        (GOOD, 8 * MIB, "its broker says 8.00 MiB in all"),
        (GOOD._replace(end=-1), 8 * MIB, "its broker says 8.00 MiB in all"),
        (GOOD._replace(first_base=11), 10 * MIB, "begin at offset 11, its log at 10"),
    ],
)
def test_inventory_that_contradicts_the_cluster_is_doubted(one: ScannedReplica, size: int, said: str) -> None:
    why = doubt(one, FACTS, size)
    assert why is not None
    assert said in why
    assert "scan again" in why


def test_records_written_since_the_scan_raise_no_doubt() -> None:
    """An inventory of half of what the log has by now, in offsets as in bytes."""
    assert doubt(GOOD._replace(end=50, last_base=40, active_base=40), FACTS, 20 * MIB) is None


def test_replica_created_after_the_scan_is_doubted_unless_unmanaged() -> None:
    disks = [Disk(n, ("/a",), Room(100, 50, 50), {TP: 10 * MIB}) for n in (1, 2)]
    other = ScannedReplica(2, "/a", TopicPartition("other", 0), "x", 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, None)
    assert set(doubts_of([GOOD, other], disks, {TP: NOW}, {})) == {(2, "orders", 0)}
    assert doubts_of([GOOD], disks, {TP: NOW}, {}) == {}, "nothing was scanned on broker 2"
    offline = Disk(1, ("/a",), Unknown.because("disk", "offline"), {})
    assert doubts_of([GOOD], [offline], {TP: NOW}, {}) == {}


@pytest.mark.parametrize(
    ("one", "now", "end", "said"),
    [
        (GOOD, 5, None, None),
        (GOOD, 7, Found(100), None),
        (GOOD, 7, Found(120), None),
        (GOOD, 7, Found(99), "leader epoch 5 ends at 99 by now, and it was scanned up to 100"),
        (GOOD, 7, None, "could not be asked: scan again"),
        (GOOD, 7, RequestFailedError("timed out", retriable=True), "could not be asked (timed out)"),
        (GOOD, 7, NotFound(), "has no record of by now: it was cut"),
        (GOOD, None, Found(99), "ends at 99"),
        (GOOD, 4, None, "under leader epoch 5, which this log never had"),
        (GOOD._replace(leader_epoch=None), 0, None, None),
        (GOOD._replace(leader_epoch=None), 1, None, "does not say under which leader epoch"),
        (GOOD._replace(leader_epoch=None), None, None, "does not say under which leader epoch"),
    ],
)
def test_replica_truncated_since_the_scan_is_doubted(
    one: ScannedReplica, now: int | None, end: Answer | None, said: str | None
) -> None:
    """A log that was cut and has grown again has the same offsets, and other records (M1)."""
    disks = [Disk(1, ("/a",), Room(100, 50, 50), {TP: 10 * MIB})]

    ends = {} if end is None else {(TP, 5): end}
    found = doubts_of([one], disks, {TP: FACTS._replace(leader_epoch=now)}, ends)
    assert (said is None) == (not found)
    if said is not None:
        assert said in found[1, "orders", 0]
        assert "scan again" in found[1, "orders", 0]
