"""An inventory as columns: numbers that stand for topics, partitions and log dirs, and nothing lost."""

from __future__ import annotations

from typing import Any

from retention_cli.core.model import TopicPartition
from retention_cli.disks.inventory_view import InventoryView
from retention_cli.disks.segments import NO_END, UNDATED
from tests.support.disks import view_of

ROWS = (
    (2, "/b", "orders", 1, 0, 10, 5, 100, False),
    (1, "/a", "orders", 10, 0, 10, 6, None, True),
    (1, "/b", "billing", 0, 0, None, 7, 300, False),
    (1, "/a", "orders", 1, 10, 20, 8, 400, False),
)


def encoded(*rows: tuple[Any, ...]) -> InventoryView:
    return view_of(
        [
            (broker, path, TopicPartition(topic, number), "id", base, following, size, size, time, active, None)
            for broker, path, topic, number, base, following, size, time, active in rows
        ]
    )


def test_partitions_and_dirs_are_numbered_in_sorted_order() -> None:
    """R6 breaks ties by (topic, partition): the numbers must stand in that order, 10 behind 9."""
    found = encoded(*ROWS)
    names = [str(found.partitions[n]) for n in found.segments.partition.tolist()]
    assert names == ["orders-1", "orders-10", "billing-0", "orders-1"]
    assert list(found.partitions) == sorted(found.partitions)
    assert [found.dirs[n] for n in found.segments.disk.tolist()] == [(2, "/b"), (1, "/a"), (1, "/b"), (1, "/a")]


def test_unknown_time_or_end_of_a_segment_has_a_marker_value() -> None:
    segments = encoded(*ROWS).segments
    assert segments.largest_timestamp.tolist() == [100, UNDATED, 300, 400]
    assert segments.next_offset.tolist() == [10, 10, NO_END, 20]
    assert segments.active.tolist() == [False, True, False, False]


def test_partition_numbers_with_gaps_are_numbered_without_gaps() -> None:
    found = encoded((1, "/a", "t", 2**31 - 1, 0, 1, 1, 1, False), (1, "/a", "s", 4, 0, 1, 1, 1, False))
    assert [str(one) for one in found.partitions] == ["s-4", "t-2147483647"]
    assert found.segments.partition.tolist() == [1, 0]


def test_empty_inventory_has_no_segments_partitions_or_dirs() -> None:
    found = encoded()
    assert (len(found.segments), list(found.partitions), list(found.dirs)) == (0, [], [])
