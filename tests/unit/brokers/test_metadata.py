"""Our decoder of Metadata answers beside the client's own."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataResponse

from retention_cli.brokers.metadata import PartitionMetadata, TopicMetadata, decode, topic_id_text

Topic = MetadataResponse.MetadataResponseTopic
Broker = MetadataResponse.MetadataResponseBroker
INT = st.integers(-1, 2**31 - 1)
NODES = st.lists(INT, max_size=4)
PARTITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "error_code": st.sampled_from([0, 0, 5, 9]),
            "partition_index": INT,
            "leader_id": INT,
            "leader_epoch": INT,
            "replica_nodes": NODES | st.lists(INT, min_size=126, max_size=130),
            "isr_nodes": NODES,
            "offline_replicas": NODES,
        }
    ),
    max_size=6,
)
TOPICS = st.lists(
    st.fixed_dictionaries(
        {
            "error_code": st.sampled_from([0, 0, 3]),
            "name": st.text(min_size=1, max_size=200),
            "topic_id": st.uuids() | st.just(uuid.UUID(int=0)),
            "is_internal": st.booleans(),
            "partitions": PARTITIONS,
        }
    ),
    max_size=5,
)
BROKERS = st.lists(st.tuples(INT, st.text(max_size=20), INT, st.none() | st.text(max_size=9)), max_size=4)
VERSIONS = st.sampled_from([10, 11, 12])


def encoded(brokers: Any, cluster_id: str | None, topics: Any, version: int) -> bytes:
    made = [
        Topic(**{**one, "partitions": [Topic.MetadataResponsePartition(**row) for row in one["partitions"]]})
        for one in topics
    ]
    named = [Broker(node_id=node, host=host, port=port, rack=rack) for node, host, port, rack in brokers]
    response = MetadataResponse(throttle_time_ms=7, brokers=named, cluster_id=cluster_id, controller_id=1, topics=made)
    return bytes(response.encode(version=version))


@given(BROKERS, st.none() | st.text(max_size=30), TOPICS, VERSIONS)
def test_metadata_answer_equals_kafka_pythons_decoding(
    brokers: Any, cluster_id: str | None, topics: Any, version: int
) -> None:
    data = encoded(brokers, cluster_id, topics, version)
    theirs, ours = MetadataResponse[version].decode(data), decode(data, version)
    assert ours.cluster_id == (theirs.cluster_id or "")
    assert ours.brokers == {one.node_id for one in theirs.brokers}
    assert ours.missing == {one.name for one in theirs.topics if one.error_code == 3}
    assert ours.topics == {
        one.name: TopicMetadata(
            one.name,
            one.topic_id and topic_id_text(one.topic_id.bytes),
            one.is_internal,
            {
                row.partition_index: PartitionMetadata(
                    None if row.leader_id < 0 else row.leader_id, row.leader_epoch, tuple(row.replica_nodes)
                )
                for row in one.partitions
            },
        )
        for one in theirs.topics
        if one.error_code == 0 or one.partitions
    }


@given(BROKERS, TOPICS, VERSIONS, st.data())
def test_truncated_metadata_answer_is_an_error(brokers: Any, topics: Any, version: int, data: st.DataObject) -> None:
    whole = encoded(brokers, "cluster", topics, version)
    with pytest.raises(ValueError, match="Metadata response"):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))], version)


def test_unknown_tagged_fields_of_a_metadata_answer_are_skipped() -> None:
    """KIP-482: tagged fields may stand behind every broker, topic and partition."""
    tags = b"\x01\x07\x03abc"
    broker = b"\0\0\0\x05" + b"\x02h" + b"\0\0\x23\x84" + b"\0" + tags
    partition = b"\0\0" + b"\0\0\0\0" + b"\0\0\0\x05" + b"\0\0\0\x02" + b"\x02\0\0\0\x05" + b"\x01" + b"\x01" + tags
    topic = b"\0\0" + b"\x02t" + bytes(15) + b"\x01" + b"\0" + b"\x02" + partition + b"\x80\0\0\0" + tags
    data = b"\0\0\0\0" + b"\x02" + broker + b"\x02c" + b"\0\0\0\x05" + b"\x02" + topic + tags
    found = decode(data, 12)
    assert (found.cluster_id, found.brokers) == ("c", frozenset({5}))
    topic_id = topic_id_text(uuid.UUID(int=1).bytes)
    assert found.topics == {
        "t": TopicMetadata("t", topic_id, internal=False, partitions={0: PartitionMetadata(5, 2, (5,))})
    }


def test_leader_below_zero_is_none() -> None:
    row = {"error_code": 5, "leader_epoch": 4, "replica_nodes": [1], "isr_nodes": [], "offline_replicas": []}
    rows = [row | {"partition_index": 0, "leader_id": -1}, row | {"partition_index": 1, "leader_id": 0}]
    topic = {"name": "t", "is_internal": False, "error_code": 0, "topic_id": uuid.UUID(int=5), "partitions": rows}
    found = decode(encoded([], "c", [topic], 12), 12).topics["t"].partitions
    assert found[0].leader is None
    assert found[1].leader == 0, "a broker's id may be 0"
