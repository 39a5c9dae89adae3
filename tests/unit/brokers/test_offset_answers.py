"""Our ListOffsets beside the client's own: requests to the byte, answers of every kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from retention_cli.brokers.wire.offset_answers import Request, decode
from tests.support.answers import encoded

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "partition_index": st.integers(0, 2**31 - 1),
            "error_code": st.sampled_from([0, 0, 3, -1, 78]),
            "timestamp": st.integers(-1, 2**63 - 1),
            "offset": st.integers(-1, 2**63 - 1),
            "leader_epoch": st.integers(-1, 2**31 - 1),
        }
    ),
    max_size=8,
)
TOPICS = st.lists(st.tuples(st.text(max_size=200), ROWS), max_size=5)
VERSIONS = st.sampled_from([6, 7])


@given(TOPICS, VERSIONS, st.integers(0, 1000))
def test_offset_answer_equals_kafka_pythons_decoding(topics: Any, version: int, throttle_ms: int) -> None:
    data = encoded(topics, version, throttle_ms)
    theirs = ListOffsetsResponse[version].decode(data)
    ours = decode(data)
    assert ours.throttle_time_ms == theirs.throttle_time_ms
    assert [(name, list(rows)) for name, rows in ours.topics] == [
        (topic.name, [(row.partition_index, row.error_code, row.timestamp, row.offset) for row in topic.partitions])
        for topic in theirs.topics
    ]


def test_unknown_tagged_fields_of_an_offset_answer_are_skipped() -> None:
    """KIP-482: tagged fields may stand behind every row and topic."""
    tags = b"\x01\x07\x03abc"
    row = b"\0\0\0\x05" + b"\0\0" + (8).to_bytes(8, "big") + (9).to_bytes(8, "big") + b"\0\0\0\x01"
    data = b"\0\0\0\0" + b"\x02" + b"\x02t" + b"\x03" + row + tags + row + b"\0" + tags + tags
    assert [(name, list(rows)) for name, rows in decode(data).topics] == [("t", [(5, 0, 8, 9)] * 2)]


@given(TOPICS, VERSIONS, st.data())
def test_truncated_offset_answer_is_an_error(topics: Any, version: int, data: st.DataObject) -> None:
    whole = encoded(topics, version)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(ValueError, match="ListOffsets"):
        decode(cut)
    with pytest.raises(ValueError, match="ListOffsets"):
        decode(whole + b"\0")


@given(st.binary(max_size=200))
def test_corrupt_offset_answer_raises_only_a_value_error(noise: bytes) -> None:
    try:
        topics = decode(noise).topics
    except ValueError:  # so is a name that is no UTF-8
        return
    assert all(len(row) == 4 for _name, rows in topics for row in rows)


WANTED = st.dictionaries(
    st.text(max_size=200),
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1), st.integers(-3, 2**63 - 1)), max_size=140
    ),
    max_size=5,
)


@given(WANTED | st.integers(126, 130).map(lambda n: {str(i): [] for i in range(n)}), VERSIONS, st.booleans())
def test_offset_request_equals_kafka_pythons_bytes(wanted: Any, version: int, committed: bool) -> None:
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    row_class = topic_class.ListOffsetsPartition
    topics = [
        topic_class(
            name=name,
            partitions=[row_class(partition_index=n, current_leader_epoch=e, timestamp=t) for n, e, t in rows],
        )
        for name, rows in wanted.items()
    ]
    theirs = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=topics)
    ours = Request(wanted, committed=committed, timed=version == 7)
    for one in (ours, theirs):
        one.API_VERSION = version
        one.with_header(correlation_id=9, client_id="kretain")
    for framed in (False, True):
        assert ours.encode(header=True, framed=framed) == theirs.encode(header=True, framed=framed)
    assert ours.encode() == theirs.encode()
