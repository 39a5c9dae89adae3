"""MirrorMaker 2's offset syncs, as its ``OffsetSync`` writes them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.observe.floors.sources.replica import Extent, Print, Sync, is_copy, parse_sync, position_of

KEY = b"\x00\x06orders\x00\x00\x00\x02"
VALUE = struct.pack(">qq", 9, 4)


def test_a_sync_names_two_offsets_of_one_record() -> None:
    assert parse_sync(KEY, VALUE) == (("orders", 2), (9, 4))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, VALUE),
        (b"", VALUE),
        (b"\x00", VALUE),
        (b"\xff\xffxxxx", VALUE),
        (KEY[:-1], VALUE),
        (KEY + b"x", VALUE),
        (b"\x00\x01\xff\x00\x00\x00\x00", VALUE),
        (KEY[:-4] + b"\xff" * 4, VALUE),
        (KEY, VALUE[:-1]),
        (KEY, VALUE + b"x"),
        (KEY, b""),
        (KEY, struct.pack(">qq", -1, 4)),
        (KEY, struct.pack(">qq", 9, -1)),
    ],
)
def test_whatever_is_no_sync_is_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(ValueError):
        parse_sync(key, value)


@given(st.text(max_size=300), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_what_is_written_is_read(topic: str, partition: int, upstream: int, downstream: int) -> None:
    name = topic.encode("utf-8", "ignore")
    key = struct.pack(">h", len(name)) + name + struct.pack(">i", partition)
    assert parse_sync(key, struct.pack(">qq", upstream, downstream)) == (
        (name.decode(), partition),
        (upstream, downstream),
    )


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_any_bytes_are_read_or_refused(key: bytes, value: bytes) -> None:
    try:
        tp, sync = parse_sync(key, value)
    except ValueError:
        return
    assert min(tp.partition, *sync) >= 0


@pytest.mark.parametrize(
    ("extent", "sync", "there", "position"),
    [
        (Extent(0, 20), Sync(9, 4), Extent(0, 5), 10),
        (Extent(0, 20), Sync(9, 4), Extent(4, 5), 10),
        (Extent(7, 7), None, None, 7),
        (Extent(7, 7), Sync(3, 3), None, 7),
        (Extent(12, 20), Sync(9, 4), None, 10),
        (Extent(0, 20), None, Extent(0, 20), "MirrorMaker 2 has told no offset sync"),
        (Extent(0, 20), Sync(9, 4), None, "its copy is not there"),
        (Extent(0, 20), Sync(9, 4), Extent(0, 4), "the copy of offset 9 is no longer there"),
        (Extent(0, 20), Sync(9, 4), Extent(5, 9), "the copy of offset 9 is no longer there"),
    ],
)
def test_a_sync_counts_while_its_copy_is_there(
    extent: Extent, sync: Sync | None, there: Extent | None, position: int | str
) -> None:
    found = position_of(extent, sync, there)
    assert found == position if isinstance(position, int) else str(found).startswith(position)


@pytest.mark.parametrize(
    ("other", "copy"),
    [
        (Print(5, False, b"a"), True),
        (Print(5, False, b"b"), False),
        (Print(6, False, b"a"), False),
        (Print(6, True, b"a"), True),
        (Print(6, True, b"b"), False),
    ],
)
def test_a_copy_has_the_same_content_and_time_unless_its_broker_stamped_it(other: Print, copy: bool) -> None:
    assert is_copy(Print(5, False, b"a"), other) is copy
