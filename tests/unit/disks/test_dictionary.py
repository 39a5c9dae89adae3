"""An inventory as columns: numbers that stand for topics, partitions and log dirs, and nothing lost."""

from __future__ import annotations

import pyarrow as pa
import pytest

from retention_cli.disks.inventory.errors import InventoryError
from retention_cli.disks.solve.dictionary import LogDir, encoded
from retention_cli.disks.solve.segments import NO_END, UNDATED

SCHEMA = pa.schema(
    [
        ("broker", pa.int32()),
        ("dir", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("bytes", pa.int64()),
        ("largest_timestamp", pa.int64()),
        ("active", pa.bool_()),
    ]
)


def table(*rows: tuple[object, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


ROWS = (
    (2, "/b", "orders", 1, 0, 10, 5, 100, False),
    (1, "/a", "orders", 10, 0, 10, 6, None, True),
    (1, "/b", "billing", 0, 0, None, 7, 300, False),
    (1, "/a", "orders", 1, 10, 20, 8, 400, False),
)


def test_partitions_are_numbered_by_topic_and_number_and_dirs_by_broker_and_path() -> None:
    """R6 breaks ties by (topic, partition): the numbers must stand in that order, 10 behind 9."""
    found = encoded(table(*ROWS).column)
    assert [str(found.partitions[n]) for n in found.segments.partition.tolist()] == [
        "orders-1",
        "orders-10",
        "billing-0",
        "orders-1",
    ]
    assert list(found.partitions) == sorted(found.partitions)
    assert [found.dirs[n] for n in found.segments.disk.tolist()] == [
        LogDir(2, "/b"),
        LogDir(1, "/a"),
        LogDir(1, "/b"),
        LogDir(1, "/a"),
    ]


def test_a_time_or_an_end_that_is_not_known_is_never_taken_for_one() -> None:
    segments = encoded(table(*ROWS).column).segments
    assert segments.largest_timestamp.tolist() == [100, UNDATED, 300, 400]
    assert segments.next_offset.tolist() == [10, 10, NO_END, 20]
    assert segments.active.tolist() == [False, True, False, False]


def test_partition_numbers_with_holes_are_numbered_all_the_same() -> None:
    found = encoded(table((1, "/a", "t", 2**31 - 1, 0, 1, 1, 1, False), (1, "/a", "s", 4, 0, 1, 1, 1, False)).column)
    assert [str(one) for one in found.partitions] == ["s-4", "t-2147483647"]
    assert found.segments.partition.tolist() == [1, 0]


def test_tables_of_several_brokers_are_one_inventory() -> None:
    """Each file of an inventory comes with dictionaries of its own."""
    parts = [
        table(*rows).set_column(2, "topic", table(*rows).column("topic").dictionary_encode())
        for rows in (ROWS[:2], ROWS[2:])
    ]
    found = encoded(pa.concat_tables(parts).column)
    whole = encoded(table(*ROWS).column)
    assert (found.partitions, found.dirs) == (whole.partitions, whole.dirs)
    for name in ("disk", "partition", "base_offset", "next_offset", "size_bytes", "largest_timestamp", "active"):
        assert getattr(found.segments, name).tolist() == getattr(whole.segments, name).tolist()


def test_log_dirs_on_one_device_become_one_disk() -> None:
    found = encoded(table(*ROWS).column)
    assert found.on_disks([0, 0, 1]).disk.tolist() == [1, 0, 0, 0]


def test_an_empty_inventory_is_one() -> None:
    found = encoded(table().column)
    assert (len(found.segments), list(found.partitions), list(found.dirs)) == (0, [], [])


@pytest.mark.parametrize("row", [(None, "/a", "t", 0, 0, 1, 1, 1, False), (1, "/a", None, 0, 0, 1, 1, 1, False), (1, "/a", "t", 0, 0, 1, None, 1, False), (1, "/a", "t", -1, 0, 1, 1, 1, False)])  # fmt: skip
def test_rows_without_what_they_need_are_refused(row: tuple[object, ...]) -> None:
    with pytest.raises(InventoryError):
        encoded(table(row).column)
