"""Our ListOffsets request beside the client's own, to the byte; and answers without rows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from retention_cli.brokers.log_offsets import OffsetRequest, list_offsets
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.wire.connections import LEFT_OUT
from retention_cli.core.model import TopicPartition

VERSIONS = st.sampled_from([6, 7])
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
    ours = OffsetRequest(wanted, committed=committed, timed=version == 7)
    for one in (ours, theirs):
        one.API_VERSION = version
        one.with_header(correlation_id=9, client_id="kretain")
    for framed in (False, True):
        assert ours.encode(header=True, framed=framed) == theirs.encode(header=True, framed=framed)
    assert ours.encode() == theirs.encode()


@pytest.mark.parametrize(
    "topics", [b"\0", b"\1", b"\2\2t\0\0", b"\2\2t\1\0"], ids=["null", "none", "null-rows", "no-rows"]
)
def test_an_answer_without_a_row_leaves_the_partition_unknown(topics: bytes) -> None:
    reply = ListOffsetsResponse.decode(bytes(4) + topics + b"\0", version=7)

    class Wire:
        async def fan_out(self, work: Any, on_reply: Any) -> None:
            for jobs in work.values():
                for job in jobs:
                    on_reply(job.about, reply)

    tp = TopicPartition("t", 0)
    wire: Any = Wire()
    leaders = {tp: PartitionMetadata(1, 1, (1,))}
    assert asyncio.run(list_offsets(wire, [{tp: "latest"}], leaders)) == [{tp: LEFT_OUT}]
