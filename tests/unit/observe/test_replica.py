"""MirrorMaker 2's offset syncs, as its ``OffsetSync`` writes them."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import TopicPartition
from retention_cli.observe.floors.sources.mirror_topics import Committed, Extent, Sync, parse_committed, parse_sync
from retention_cli.observe.floors.sources.proof import Print, Run, out_of_range, proven_to
from retention_cli.observe.floors.sources.replica import position_of

TP = TopicPartition("t", 1)
KEY = b"\x00\x06orders\x00\x00\x00\x02"
VALUE = struct.pack(">qq", 9, 4)


def test_sync_message_decodes_to_two_offsets() -> None:
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
def test_invalid_sync_message_is_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(ValueError):
        parse_sync(key, value)


@given(st.text(max_size=300), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_encoded_sync_reads_back(topic: str, partition: int, upstream: int, downstream: int) -> None:
    name = topic.encode("utf-8", "ignore")
    key = struct.pack(">h", len(name)) + name + struct.pack(">i", partition)
    assert parse_sync(key, struct.pack(">qq", upstream, downstream)) == (
        (name.decode(), partition),
        (upstream, downstream),
    )


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_any_sync_bytes_are_read_or_refused(key: bytes, value: bytes) -> None:
    try:
        tp, sync = parse_sync(key, value)
    except ValueError:
        return
    assert min(tp.partition, *sync) >= 0


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (["m", {"cluster": "a", "partition": 1, "topic": "t"}], {"offset": 9}, (Committed("m", "a", TP), 9)),
        (["m", {"cluster": "a", "partition": 1, "topic": "t"}], None, (Committed("m", "a", TP), None)),
        (["c", {"group": "g", "partition": 1, "topic": "t"}], {"offset": 9}, None),
        (["h", {"sourceClusterAlias": "a", "targetClusterAlias": "b"}], {"offset": 9}, None),
    ],
)
def test_connect_offset_is_the_last_copied_record(key: object, value: object, told: object) -> None:
    content = None if value is None else json.dumps(value).encode()
    assert parse_committed(json.dumps(key).encode(), content) == told


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"x", b"{}"),
        (b"[" * 9_000, b"{}"),
        (b'{"a": 1}', b"{}"),
        (b'["m", {"cluster": 1, "partition": 1, "topic": "t"}]', b'{"offset": 1}'),
        (b'["m", {"cluster": "a", "partition": -1, "topic": "t"}]', b'{"offset": 1}'),
        (b'["m", {"cluster": "a", "partition": 1, "topic": "t"}]', b"{}"),
        (b'["m", {"cluster": "a", "partition": 1, "topic": "t"}]', b'{"offset": -1}'),
        (b'["m", {"cluster": "a", "partition": 1, "topic": "t"}]', b'{"offset": true}'),
        (b'["m", {"cluster": "a", "partition": 1, "topic": "t"}]', b'{"offset": 1.5}'),
        (b'["m", {"cluster": "a", "partition": 1, "topic": "t"}]', b'{"offset": 9223372036854775807}'),
    ],
)
def test_invalid_connect_offset_message_is_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(ValueError):
        parse_committed(key, value)


@pytest.mark.parametrize(
    ("extent", "sync", "committed", "position"),
    [
        (Extent(0, 20), Sync(9, 4), 9, 10),
        (Extent(0, 20), Sync(9, 4), 12, 10),
        (Extent(0, 20), Sync(9, 4), 6, 7),
        (Extent(7, 7), None, None, 7),
        (Extent(7, 7), Sync(3, 3), 3, 7),
        (Extent(12, 20), Sync(9, 4), 9, 10),
        (Extent(0, 20), None, 9, "MirrorMaker 2 has no offset sync"),
        (Extent(0, 20), Sync(9, 4), None, "MirrorMaker 2 has no committed offset"),
    ],
)
def test_copy_position_is_the_lower_of_both_sources(
    extent: Extent, sync: Sync | None, committed: int | None, position: int | str
) -> None:
    found = position_of(extent, sync, committed)
    assert found == position if isinstance(position, int) else str(found).startswith(position)


@pytest.mark.parametrize(
    ("sync", "there", "said"),
    [
        (Sync(9, 4), Extent(0, 5), None),
        (Sync(9, 4), Extent(4, 5), None),
        (Sync(9, 4), Extent(0, 4), "the copy of offset 9 is no longer there"),
        (Sync(9, 4), Extent(5, 9), "the copy of offset 9 is no longer there"),
        (Sync(20, 4), Extent(0, 9), "its offset sync is of offset 20"),
    ],
)
def test_sync_counts_only_for_existing_records(sync: Sync, there: Extent, said: str | None) -> None:
    found = out_of_range(Run(TP, Extent(0, 20), TP, there, sync))
    assert found is None if said is None else str(found).startswith(said)


@pytest.mark.parametrize(
    ("offsets", "matched", "whole", "proven"),
    [
        ([0, 1, 4, 9], 4, True, 10),
        ([0, 1, 4, 9], 4, False, 10),
        ([0, 1, 4], 3, False, 5),
        ([0, 1, 4], 2, True, 4),
        ([3, 4], 0, True, 3),
        ([], 0, False, 0),
    ],
)
def test_copy_is_proven_up_to_its_first_missing_record(
    offsets: list[int], matched: int, whole: bool, proven: int
) -> None:
    run = Run(TP, Extent(0, 20), TP, Extent(0, 20), Sync(9, 9))
    assert proven_to(run, [Print(one, 5, b"a") for one in offsets], matched, whole=whole) == proven


def test_record_fingerprints_ignore_offsets() -> None:
    one = Print(1, 5, b"a")
    assert one.is_of(Print(9, 5, b"a"))
    assert not one.is_of(Print(1, 6, b"a"))
    assert not one.is_of(Print(1, 5, b"b"))
