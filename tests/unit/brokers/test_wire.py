"""Answers of brokers: decoded as the client does, to the byte; −1 is never an offset, an error never "none"."""

from __future__ import annotations

import asyncio
import io
import itertools
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from kafka.errors import IncompatibleBrokerVersion
from kafka.future import Future
from kafka.protocol.admin import DeleteRecordsRequest, ListGroupsRequest
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse, OffsetFetchResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.metadata import MetadataResponse

from retention_cli.brokers import commits, groups
from retention_cli.brokers.commits import CommitsUnknown, GroupCommits, coordinator_partition, outcome_of, why
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.groups import ListedGroup
from retention_cli.brokers.log_offsets import (
    Answer as OffsetAnswer,
    Found,
    NotFound,
    OffsetRequest,
    decode as decode_offsets,
    epoch_ends,
    list_offsets,
)
from retention_cli.brokers.metadata import (
    PartitionMetadata,
    TopicConfig,
    TopicMetadata,
    Values,
    _config,
    decode as decode_metadata,
    topic_id_text,
)
from retention_cli.brokers.reader import _READ, _missing
from retention_cli.brokers.wire.answers import Answer, GroupAnswer, decode, request
from retention_cli.brokers.wire.connections import LEFT_OUT, error_named
from retention_cli.brokers.wire.frames import TimedConnection, TimedProtocol
from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.observe.cluster import bare_facts
from tests.support.answers import batched, single
from tests.support.facts import known
from tests.support.says import refusal

NAMES = st.text(max_size=200)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "partition_index": st.integers(0, 2**31 - 1),
            "committed_offset": st.integers(-(2**63), 2**63 - 1),
            "committed_leader_epoch": st.integers(-1, 2**31 - 1),
            "metadata": st.one_of(st.just(""), st.none(), st.text(max_size=300)),
            "error_code": st.sampled_from([0, 0, 0, 88, -1]),
        }
    ),
    max_size=6,
    unique_by=lambda one: one["partition_index"],
)
PLAIN_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "partition_index": st.integers(0, 300),
            "committed_offset": st.integers(-3, 2**40),
            "committed_leader_epoch": st.integers(-1, 300),
            "metadata": st.sampled_from(["", None]),
            "error_code": st.just(0),
        }
    ),
    max_size=30,
    unique_by=lambda one: one["partition_index"],
)
TOPICS = st.lists(st.tuples(NAMES, st.one_of(PLAIN_ROWS, ROWS)), max_size=4, unique_by=lambda one: one[0])
GROUPS = st.lists(st.tuples(NAMES, TOPICS, st.sampled_from([0, 0, 69, 15])), max_size=4, unique_by=lambda one: one[0])


def as_ours(group: str | None, theirs: Any) -> GroupAnswer:
    commits = {
        topic.name: [
            (
                row.partition_index,
                row.committed_offset,
                row.committed_leader_epoch if row.committed_leader_epoch >= 0 else None,
            )
            for row in topic.partitions
            if row.committed_offset >= 0 and not row.error_code
        ]
        for topic in theirs.topics
    }
    failed = {
        topic.name: (row.partition_index, row.error_code)
        for topic in theirs.topics
        for row in reversed(topic.partitions)  # the first one stays
        if row.error_code
    }
    negative = {
        topic.name: found
        for topic in theirs.topics
        if (
            found := {
                row.partition_index: row.committed_offset
                for row in topic.partitions
                if row.committed_offset < 0 and not row.error_code
            }
        )
    }
    return GroupAnswer(
        group,
        theirs.error_code,
        commits,
        sum(len(topic.partitions) for topic in theirs.topics),
        failed,
        negative,
    )


ROW = {"partition_index": 0, "committed_offset": 4, "committed_leader_epoch": 1, "metadata": "", "error_code": 0}


@given(GROUPS, st.integers(0, 1000))
@example([("g" * 200, [("t" * 127, [ROW, {**ROW, "partition_index": 1, "metadata": "\0\0\0"}])], 0)], 0)
@example([("g", [("t", [{**ROW, "partition_index": number} for number in range(300)])], 0)], 0)
def test_commit_answer_of_several_groups_equals_kafka_pythons_decoding(groups: Any, throttle_ms: int) -> None:
    data = batched(groups, throttle_ms)
    theirs = OffsetFetchResponse[8].decode(data)
    assert decode(data, 8) == Answer(throttle_ms, [as_ours(one.group_id, one) for one in theirs.groups])


@given(TOPICS, st.sampled_from([0, 69]))
def test_commit_answer_of_one_group_equals_kafka_pythons_decoding(topics: Any, error: int) -> None:
    data = single(topics, error)
    assert decode(data, 7) == Answer(0, [as_ours(None, OffsetFetchResponse[7].decode(data))])


@pytest.mark.parametrize("tagged_last", [False, True])
def test_unknown_tagged_fields_of_a_commit_answer_are_skipped(*, tagged_last: bool) -> None:
    """KIP-482: tagged fields may stand behind every row, topic and group."""
    tags = b"\x02\x00\x01\xaa\x05\x02\xbb\xcc"
    row = b"\0\0\0\x03" + (7).to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\x01" + b"\0\0"
    plain = b"\0\0\0\x04" + (9).to_bytes(8, "big") + b"\0\0\0\x02" + b"\x01" + b"\0\0" + b"\0"
    rows = [row + tags, plain][:: -1 if tagged_last else 1]
    topic = b"\x02t" + b"\x03" + b"".join(rows) + tags
    data = b"\0\0\0\0" + b"\x02" + b"\x02g" + b"\x02" + topic + b"\0\0" + tags + tags
    assert decode(data, 8) == Answer(
        0, [GroupAnswer("g", 0, {"t": [(3, 7, None), (4, 9, 2)][:: -1 if tagged_last else 1]}, rows=2)]
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\0\0\0\0\x02\x02g\x00\0\0\0\0", "null in place of topics"),
        (b"\0\0\0\0\x02\x02g\x02\x02t\x00\0\0\0\0\0", "null in place of topics or partitions"),
        (b"\0\0\0\0\x02\x02g\x02\x02t\x81\x80\x80\x40" + bytes(20), "ends too early"),  # 2^27 partitions
        (batched([("one", [("t", [ROW]), ("t", [])], 0)]), "a topic twice"),
        (batched([("one", [], 0), ("one", [("t", [ROW])], 0)]), "a group twice"),
        (batched([("one", [("t", [ROW, {**ROW, "committed_offset": 5}])], 0)]), "a partition twice"),
        (batched([("one", [("t", [ROW, {**ROW, "metadata": "m"}])], 0)]), "a partition twice"),
        (batched([("one", [("t", [ROW, {**ROW, "partition_index": -1}])], 0)]), "below zero"),
    ],
)
def test_commit_answer_without_its_arrays_or_with_a_name_twice_is_an_error_at_once(data: bytes, said: str) -> None:
    """F2: another partition without a commit would look like one with it."""
    assert said in refusal(ValueError, decode, data, 8)


@given(GROUPS, st.data())
def test_truncated_commit_answer_is_an_error(groups: Any, data: st.DataObject) -> None:
    whole = batched(groups)
    for broken in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"\0"):
        assert "OffsetFetch" in refusal(ValueError, decode, broken, 8)


@given(st.binary(max_size=200), st.sampled_from([7, 8]))
def test_corrupt_commit_answer_raises_only_a_value_error(noise: bytes, version: int) -> None:
    try:
        answer = decode(noise, version)
    except ValueError:  # so is a name that is no UTF-8
        return
    assert isinstance(answer, Answer)


@pytest.mark.parametrize(("names", "version"), [(["alone"], 7), (["one", "two"], 8)])
def test_commit_request_is_sent_by_kafka_python_and_decoded_by_us(names: Any, version: int) -> None:
    sent = request(names, batched=version == 8)
    sent.API_VERSION = version
    sent.with_header(correlation_id=5, client_id="c")
    assert names[-1].encode() in sent.encode(header=True)
    response = sent.header.get_response_class()
    topics = [("t", [ROW | {"metadata": "m"}])]
    received = io.BytesIO(b"\0\0\0\x05\0" + (single(topics, 0) if version == 7 else batched([("one", topics, 0)])))
    assert (response.parse_header(received).correlation_id, response.decode(received).groups[0].commits) == (
        5,
        {"t": [(0, 4, 1)]},
    )


# -- our ListOffsets request beside the client's own, to the byte; and answers without rows --


WANTED = st.dictionaries(
    st.text(max_size=200),
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1), st.integers(-3, 2**63 - 1)), max_size=140
    ),
    max_size=5,
)


@given(
    WANTED | st.integers(126, 130).map(lambda n: {str(i): [] for i in range(n)}), st.sampled_from([6, 7]), st.booleans()
)
def test_offset_request_equals_kafka_pythons_bytes(wanted: Any, version: int, committed: bool) -> None:
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    topics = [
        topic_class(
            name=name,
            partitions=[
                topic_class.ListOffsetsPartition(partition_index=n, current_leader_epoch=e, timestamp=t)
                for n, e, t in rows
            ],
        )
        for name, rows in wanted.items()
    ]
    theirs = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=topics)
    ours = OffsetRequest(wanted, committed=committed, timed=version == 7)
    for one in (ours, theirs):
        one.API_VERSION = version
        one.with_header(correlation_id=9, client_id="kretain")
    for how in ({}, {"header": True, "framed": False}, {"header": True, "framed": True}):
        assert ours.encode(**how) == theirs.encode(**how)


ListedTopic = ListOffsetsResponse.ListOffsetsTopicResponse
OFFSET_ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1),
        st.sampled_from([0, 0, 6, -1]),
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**63 - 1),
    ),
    max_size=140,
)


@given(st.lists(st.tuples(NAMES, OFFSET_ROWS), max_size=4), st.integers(0, 1000), st.sampled_from([6, 7]), st.data())
def test_offset_answer_equals_kafka_pythons_decoding(
    topics: Any, throttle_ms: int, version: int, data: st.DataObject
) -> None:
    response = ListOffsetsResponse(
        throttle_time_ms=throttle_ms,
        topics=[
            ListedTopic(
                name=name,
                partitions=[
                    ListedTopic.ListOffsetsPartitionResponse(
                        partition_index=n, error_code=error, timestamp=time_ms, offset=offset, leader_epoch=1
                    )
                    for n, error, time_ms, offset in rows
                ],
            )
            for name, rows in topics
        ],
    )
    whole = bytes(response.encode(version=version))
    assert decode_offsets(whole) == (throttle_ms, [(name, *row) for name, rows in topics for row in rows])
    for broken in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"\0"):
        assert "ListOffsets" in refusal(ValueError, decode_offsets, broken)


def test_unknown_tagged_fields_of_an_offset_answer_are_skipped() -> None:
    tags = b"\x02\x00\x01\xaa\x05\x02\xbb\xcc"
    row = bytes(3) + b"\3" + bytes(2) + bytes(7) + b"\4" + bytes(7) + b"\5" + bytes(4)
    data = bytes(4) + b"\2" + b"\2t" + b"\3" + row + tags + row + b"\0" + tags + tags
    assert decode_offsets(data).rows == [("t", 3, 0, 4, 5)] * 2


@pytest.mark.parametrize(
    "topics", [b"\0", b"\1", b"\2\2t\0\0", b"\2\2t\1\0"], ids=["null", "none", "null-rows", "no-rows"]
)
def test_an_answer_without_a_row_leaves_the_partition_unknown(topics: bytes) -> None:
    reply = decode_offsets(bytes(4) + topics + b"\0")

    async def fan_out(work: Any, on_reply: Any) -> None:
        for job in itertools.chain(*work.values()):
            on_reply(job.about, reply)

    tp = TopicPartition("t", 0)
    wire: Any = SimpleNamespace(fan_out=fan_out)
    assert asyncio.run(list_offsets(wire, [{tp: "latest"}], {tp: PartitionMetadata(1, 1, (1,))})) == [{tp: LEFT_OUT}]


@pytest.mark.parametrize(("named", "says"), [(3, Found(10)), (2, NotFound()), (-1, NotFound()), (4, NotFound())])
def test_end_is_an_epochs_only_if_the_answer_names_that_epoch(named: int, says: OffsetAnswer) -> None:
    """F5, M2: version 0 names none, and answers for an epoch that the log never had with the end of an earlier one."""

    async def fan_out(work: Any, on_reply: Any) -> None:
        for job in itertools.chain(*work.values()):
            row = made(partition=0, error_code=0, leader_epoch=named, end_offset=10)
            on_reply(job.about, made(topics=[made(topic="t", partitions=[row])]))
            with pytest.raises(IncompatibleBrokerVersion):  # of a deposed leader, which answers before version 2
                BrokerVersionData(api_versions={23: (0, 1)}).api_version(job.request)

    tp = TopicPartition("t", 0)
    answers = asyncio.run(epoch_ends(made(fan_out=fan_out), [(tp, 3)], {tp: PartitionMetadata(1, 5, (1,))}))
    assert answers[tp, 3] == says


# -- when a request's time is up --


class _Connection(TimedConnection):
    """One that has a request in flight, and another behind it, but no socket."""

    def __init__(self, second: Any) -> None:
        self.looks: list[float] = []
        self.ended: list[Any] = []
        super().__init__(SimpleNamespace(call_at=lambda when, _look: self.looks.append(when)))
        self.deletes = set()
        self.parser = TimedProtocol(client_id="t")
        self.second = self.send_request(second)
        self.in_flight_requests = [(1, Future()), (2, self.second)]

    def close(self, error: Any = None) -> None:
        self.ended.append(error)

    def time_passes(self, seconds: float) -> None:
        """The timer of the second request fires, which was sent so long ago."""
        now = time.monotonic()
        self._request_timed_out(self.second, now - seconds, now)


def test_request_near_its_deadline_does_not_poll_for_its_turn() -> None:
    connection = _Connection(ListGroupsRequest())
    connection.time_passes(0.0001)
    assert (connection.ended, connection.looks[0] > time.monotonic() + 0.05) == ([], True)
    connection.in_flight_requests.pop(0)
    connection.parser.answered = time.monotonic() - 0.05
    connection.time_passes(0.0001)
    assert len(connection.ended) == 1


def test_delete_does_not_wait_for_its_turn() -> None:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    topics = [topic(name="t", partitions=[topic.DeleteRecordsPartition(partition_index=0, offset=1)])]
    connection = _Connection(DeleteRecordsRequest(topics=topics, timeout_ms=1, version=2))
    connection.time_passes(1.0)
    assert len(connection.ended) == 1


# -- our decoder of Metadata answers beside the client's own --


Topic = MetadataResponse.MetadataResponseTopic
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
METADATA_TOPICS = st.lists(
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
METADATA_VERSIONS = st.sampled_from([10, 11, 12])


def encoded(brokers: Any, cluster_id: str | None, topics: Any, version: int) -> bytes:
    made = [
        Topic(**{**one, "partitions": [Topic.MetadataResponsePartition(**row) for row in one["partitions"]]})
        for one in topics
    ]
    named = [
        MetadataResponse.MetadataResponseBroker(node_id=node, host=host, port=port, rack=rack)
        for node, host, port, rack in brokers
    ]
    response = MetadataResponse(throttle_time_ms=7, brokers=named, cluster_id=cluster_id, controller_id=1, topics=made)
    return bytes(response.encode(version=version))


ROW_OF_A_LEADER = {"error_code": 5, "leader_epoch": 4, "replica_nodes": [1], "isr_nodes": [], "offline_replicas": []}
LEADERS = [ROW_OF_A_LEADER | {"partition_index": number, "leader_id": number - 1} for number in (0, 1)]
"""A leader below zero is none, and a broker's id may be 0."""


@given(BROKERS, st.none() | st.text(max_size=30), METADATA_TOPICS, METADATA_VERSIONS)
@example(
    *([], "c"),
    [{"name": "t", "is_internal": False, "error_code": 0, "topic_id": uuid.UUID(int=5), "partitions": LEADERS}],
    12,
)
def test_metadata_answer_equals_kafka_pythons_decoding(
    brokers: Any, cluster_id: str | None, topics: Any, version: int
) -> None:
    data = encoded(brokers, cluster_id, topics, version)
    theirs, ours = MetadataResponse[version].decode(data), decode_metadata(data, version)
    assert [ours.cluster_id, ours.brokers, ours.missing] == [
        theirs.cluster_id or "",
        {one.node_id for one in theirs.brokers},
        {one.name for one in theirs.topics if one.error_code == 3},
    ]
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


@given(BROKERS, METADATA_TOPICS, METADATA_VERSIONS, st.data())
def test_truncated_metadata_answer_is_an_error(brokers: Any, topics: Any, version: int, data: st.DataObject) -> None:
    whole = encoded(brokers, "cluster", topics, version)
    assert "Metadata response" in refusal(
        ValueError, decode_metadata, whole[: data.draw(st.integers(0, len(whole) - 1))], version
    )


def test_unknown_tagged_fields_of_a_metadata_answer_are_skipped() -> None:
    """KIP-482: tagged fields may stand behind every broker, topic and partition."""
    tags = b"\x01\x07\x03abc"
    broker = b"\0\0\0\x05" + b"\x02h" + b"\0\0\x23\x84" + b"\0" + tags
    partition = b"\0\0" + b"\0\0\0\0" + b"\0\0\0\x05" + b"\0\0\0\x02" + b"\x02\0\0\0\x05" + b"\x01" + b"\x01" + tags
    topic = b"\0\0" + b"\x02t" + bytes(15) + b"\x01" + b"\0" + b"\x02" + partition + b"\x80\0\0\0" + tags
    found = decode_metadata(b"\0\0\0\0" + b"\x02" + broker + b"\x02c" + b"\0\0\0\x05" + b"\x02" + topic + tags, 12)
    read = TopicMetadata("t", topic_id_text(uuid.UUID(int=1).bytes), False, {0: PartitionMetadata(5, 2, (5,))})
    assert (found.cluster_id, found.brokers, found.topics) == ("c", frozenset({5}), {"t": read})


# -- sentinels and error codes end in ``brokers/``: −1 is never an offset, an error never "none" --


def made(**values: Any) -> Any:
    return SimpleNamespace(**values)


def answering(value: Any) -> Any:
    """Return a coroutine function that gives this answer to any request."""

    async def answer(*_: Any, **__: Any) -> Any:
        return value

    return answer


def outcome(error_code: int = 0, **topics: list[tuple[int, ...]]) -> Any:
    """What an answer about the group ``a`` comes to."""
    keys = ("partition_index", "committed_offset", "committed_leader_epoch", "error_code")
    rows = [
        (topic, [dict(zip(keys, row, strict=True), metadata="") for row in partitions])
        for topic, partitions in topics.items()
    ]
    [answer] = decode(batched([("a", rows, error_code)]), 8).groups
    return outcome_of("a", answer)


def test_committed_offset_zero_counts_and_minus_one_does_not() -> None:
    found = outcome(t=[(0, 0, 0, 0), (1, 7, -1, 0), (2, -1, -1, 0)])
    assert found == GroupCommits("a", {"t": [(0, 0, 0), (1, 7, None)]}, {"t": {2: -1}})
    assert outcome(error_code=69) == GroupCommits("a", {}), "a group that was deleted has none"


@pytest.mark.parametrize("code", [14, 15, 16, 24, 30, 88, -1])
def test_group_error_is_not_an_empty_answer(code: int) -> None:
    """F3, F9: loading, not available, not coordinator, not authorized, unstable, anything."""
    found = outcome(error_code=code)
    assert (type(found), found.topics) == (CommitsUnknown, None), "it may stand anywhere"


def test_error_of_one_partition_affects_only_its_topic() -> None:
    """F3: what was read of the other topics still counts."""
    found = outcome(t=[(0, 5, 0, 0)], u=[(0, 5, 0, 88), (1, 7, 0, 0)], v=[(0, -2, 0, 0)])
    assert (type(found), found.topics, found.retriable) == (CommitsUnknown, frozenset({"u"}), True)
    assert found.read == GroupCommits("a", {"t": [(0, 5, 0)], "v": []}, {"v": {0: -2}})
    assert found.text.startswith("u-0: ")


@pytest.mark.parametrize(("rows", "error", "settled"), [(2, 0, True), (1, 0, False), (0, 0, False), (0, 69, True)])
def test_pending_offset_is_ruled_out_only_by_an_answer_for_each_partition(
    monkeypatch: pytest.MonkeyPatch, rows: int, error: int, *, settled: bool
) -> None:
    """F3: a partition that is left out of the answer may be the one with the pending offset. 69: there is no group."""
    assert (pending(monkeypatch, GroupAnswer("g", error, {}, rows), {"t": 2}) == []) is settled


@pytest.mark.parametrize(("rows", "doubted"), [(2, {"t"}), (1, None)])
def test_pending_offset_on_one_topic_says_nothing_of_one_that_is_left_out(
    monkeypatch: pytest.MonkeyPatch, rows: int, doubted: set[str] | None
) -> None:
    """F3: the group may have a pending offset there, too."""
    (found,) = pending(monkeypatch, GroupAnswer("g", 0, {}, rows, {"t": (0, 88)}), {"t": 1, "u": 1})
    assert found.topics == doubted


def pending(monkeypatch: pytest.MonkeyPatch, answer: GroupAnswer, topics: dict[str, int]) -> list[CommitsUnknown]:
    """Return what a coordinator's answer about these topics (with their partition counts) leaves pending."""

    async def fan_out(work: Any, on_reply: Any, **_: int) -> None:
        for job in work[1]:
            on_reply(job.about, Answer(0, [answer]))

    monkeypatch.setattr(commits, "_suspects", answering(["g"]))
    monkeypatch.setattr(commits, "find_coordinators", answering(({"g": 1}, {})))
    wire = made(highest_version=answering(8), fan_out=fan_out)
    return asyncio.run(commits.read_pending(wire, ["g"], topics, 0))


def test_failed_request_fails_each_of_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(work: Any, on_reply: Any, **_: int) -> None:
        for job in work[1]:
            on_reply(job.about, RequestFailedError("time-out", retriable=False))

    monkeypatch.setattr(commits, "find_coordinators", answering(({"a": 1, "b": 1}, {})))
    told: list[Any] = []
    asyncio.run(commits.read_commits(made(highest_version=answering(8), fan_out=failing), ["a", "b"], told.append, 0))
    assert {one.group: one.text for one in told} == {"a": "time-out", "b": "time-out"}


@pytest.mark.parametrize(
    ("code", "retriable"),
    [(3, True), (6, True), (14, True), (15, True), (16, True), (29, False), (30, False), (42, False)],
)
def test_error_codes_know_whether_a_retry_helps(code: int, *, retriable: bool) -> None:
    error = known(error_named(code))
    assert (error.retriable, error.answered, error_named(0)) == (retriable, True, None)


def member(subscribed: list[str], assigned: list[str]) -> Any:
    metadata = ConsumerProtocolSubscription(topics=subscribed, user_data=None, version=0).encode(version=0)
    kind = ConsumerProtocolAssignment.TopicPartition
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[kind(topic=one, partitions=[0]) for one in assigned], user_data=None, version=0
    ).encode(version=0)
    return made(client_id="c", member_metadata=metadata, member_assignment=assignment)


def test_share_group_that_no_answer_names_a_coordinator_of_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """F3: left out of what is read, it would hold nothing. Kafka's own brokers name each; a proxy may not."""
    monkeypatch.setattr(commits, "find_coordinators", answering(({}, {})))
    found: list[Any] = []
    asyncio.run(commits.read_share_offsets(made(fan_out=answering(None)), ["s"], found.append, 0.0))
    assert found == [CommitsUnknown("s", "its coordinator is unknown", None)]


@pytest.mark.parametrize("numbers", [(0, 0), (0, -1)])
def test_share_group_with_a_partition_named_twice_is_unknown(
    monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]
) -> None:
    """F2: it would make up for one without a start offset. Python takes a partition below zero for the last one."""
    rows = [made(partition_index=one, start_offset=5, error_code=0, error_message=None) for one in numbers]
    group = made(group_id="s", error_code=0, error_message=None, topics=[made(topic_name="t", partitions=rows)])

    async def fan_out(work: Any, on_reply: Any, **_: int) -> None:
        for job in work[1]:
            on_reply(job.about, made(groups=[group]))

    monkeypatch.setattr(commits, "find_coordinators", answering(({"s": 1}, {})))
    monkeypatch.setattr(commits, "_pointing_letters", answering({}))
    found: list[Any] = []
    asyncio.run(
        commits.read_share_offsets(made(highest_version=answering(8), fan_out=fan_out), ["s"], found.append, 0.0)
    )
    assert found == [CommitsUnknown("s", "its coordinator returned a partition twice, or one below zero", None)]


def listed(*by_broker: tuple[str, str, str]) -> list[ListedGroup]:
    """List a group, which each broker lists with a type, a protocol type and a state."""

    async def fan_out(work: Any, on_reply: Any, **_: Any) -> None:
        for broker in work:
            kind, protocol, state = by_broker[broker]
            group = made(group_id="g", group_type=kind, protocol_type=protocol, group_state=state)
            on_reply(broker, made(error_code=0, groups=[group]))

    return asyncio.run(groups.list_groups(made(fan_out=fan_out), range(len(by_broker)), 0.0))


@pytest.mark.parametrize(
    ("kind", "protocol", "means"),
    [
        ("", "share", "share"),
        ("", "streams", "streams"),
        ("", "consumer", "classic"),
        ("Classic", "share", "classic"),
        ("new", "share", "unknown"),
    ],
)
def test_group_that_is_listed_without_its_type_has_that_of_its_protocol(kind: str, protocol: str, means: str) -> None:
    """F3: asked for as a classic group's, a share group's offsets are not found."""
    assert [one.kind for one in listed((kind, protocol, "Stable"))] == [means]


@pytest.mark.parametrize("states", [("Stable", "Empty"), ("Empty", "Stable")])
def test_group_that_two_brokers_list_may_have_members_if_one_says_so(states: tuple[str, str]) -> None:
    """F2: one of them is its coordinator no more."""
    assert [one.state for one in listed(*(("classic", "consumer", state) for state in states))] == ["Stable"]


def test_group_that_keeps_rebalancing_is_awaited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """F3: it costs a run a few seconds, not each recheck of a trim. Once it has told, it is waited for again."""
    monkeypatch.setattr(groups, "_REBALANCE_PATIENCE_S", 0.5)
    restless, unsettled = ListedGroup("g", "classic", "consumer", "PreparingRebalance"), set[str]()
    unknown, members = groups.MembersUnknownError("rebalancing", retriable=True), frozenset({"t"})

    def describe(answer: Any) -> tuple[int, list[Any]]:
        """Return how often kretain asks a group that answers this, and what it reports of it."""
        asked, told = list[str](), list[Any]()

        async def once(_wire: Any, some: list[ListedGroup], on_answer: groups.OnMembers, _deadline: float) -> None:
            for one in some:
                asked.append(one.name)
                on_answer(one.name, answer)

        monkeypatch.setattr(groups, "_describe_once", once)
        wire, later = made(sleep=answering(None)), time.monotonic() + 60
        asyncio.run(groups.describe_members(wire, [restless], lambda *one: told.append(one), later, unsettled))
        return len(asked), told

    asked, told = describe(unknown)
    assert (asked > 1, told) == (True, [("g", unknown)])
    assert describe(unknown) == (1, [("g", unknown)]), "it holds all the same"
    assert describe(members) == (1, [("g", members)])
    assert describe(unknown)[0] > 1


def kip_848(state: str = "Stable", regex: str | None = None, **topics: list[str]) -> Any:
    def assignment(names: list[str]) -> Any:
        return made(topic_partitions=[made(topic_name=name) for name in names])

    one = made(
        subscribed_topic_names=topics.get("subscribed", []),
        subscribed_topic_regex=regex,
        assignment=assignment(topics.get("assigned", [])),
        target_assignment=assignment(topics.get("target", [])),
    )
    return made(group_state=state, members=[one])


CLASSIC, BY_KIP_848, STREAMS = "classic", "consumer", "streams"
UNDECODABLE = made(client_id="c", member_metadata=b"\x00\x00\x00\x00\x00\x09x", member_assignment=b"")
AGAIN, NEVER = True, False
"""Unknown, and whether it is worth asking again."""


def streams(state: str, *parts: Any, members: int = 1, topology: bool = True) -> Any:
    its = made(subtopologies=[*parts] or None) if topology else None
    return made(members=[1] * members, topology=its, group_state=state)


@pytest.mark.parametrize(
    ("kind", "described", "topics"),
    [
        pytest.param(
            CLASSIC,
            made(group_state="Stable", members=[member(["a"], ["b"]), member(["c"], [])]),
            frozenset({"a", "b", "c"}),
            id="a classic member reads its subscription and its assignment",
        ),
        *(
            pytest.param(CLASSIC, made(group_state=state, members=[member(["a"], [])]), AGAIN, id=f"classic: {state}")
            for state in ("PreparingRebalance", "CompletingRebalance", "", "Unknown")
        ),
        pytest.param(CLASSIC, made(group_state="Empty", members=[]), frozenset[str](), id="none when a group is empty"),
        *(
            pytest.param(kind, made(group_state=state, members=[]), AGAIN, id=f"{kind}: {state} without members")
            for kind, state in ((CLASSIC, "Stable"), (CLASSIC, ""), (BY_KIP_848, "Reconciling"), (STREAMS, "Stable"))
        ),
        pytest.param(
            CLASSIC,
            made(group_state="Stable", members=[UNDECODABLE]),
            NEVER,
            id="a member that can't be decoded may read any topic",
        ),
        pytest.param(
            BY_KIP_848,
            kip_848(subscribed=["a"], assigned=["b"], target=["c"]),
            frozenset({"a", "b", "c"}),
            id="a member by KIP-848, or of a share group, reads subscription, assignment and target",
        ),
        pytest.param(
            BY_KIP_848,
            kip_848(regex="x.*", assigned=["b"]),
            frozenset({"b", groups.TopicRegex("x.*")}),
            id="and by an expression what it was assigned so far",
        ),
        pytest.param(BY_KIP_848, kip_848("Assigning", regex="x.*", assigned=["b"]), AGAIN, id="which may change"),
        pytest.param(
            STREAMS,
            streams("Stable", made(source_topics=["a"], repartition_source_topics=[made(name="b")])),
            frozenset({"a", "b"}),
            id="a streams group reads sources and repartition topics",
        ),
        pytest.param(STREAMS, streams("Empty", members=0, topology=False), frozenset[str](), id="none when empty"),
        pytest.param(STREAMS, streams("NotReady", topology=False), AGAIN, id="without a topology it is unknown"),
        pytest.param(STREAMS, streams("NotReady"), AGAIN, id="so it is without subtopologies"),
    ],
)
def test_members_read_what_they_subscribe_to_and_are_assigned_or_it_is_unknown(
    kind: groups.GroupKind, described: Any, topics: frozenset[Any] | bool
) -> None:
    """F3."""
    said = groups.topics_of(kind, described)
    assert (said.retriable if isinstance(said, RequestFailedError) else said) == topics


@pytest.mark.parametrize(
    ("state", "may"),
    [
        ("Stable", True),
        ("PreparingRebalance", True),
        ("", True),
        ("Assigning", True),
        ("Empty", False),
        ("Dead", False),
    ],
)
def test_only_empty_or_dead_group_has_no_members(state: str, *, may: bool) -> None:
    assert ListedGroup("g", "classic", "consumer", state).may_have_members is may


@pytest.mark.parametrize(
    ("offered", "missing"), [({0: (0, 9), 1: (0, 3)}, "Fetch"), ({0: (0, 9), 1: (0, 4)}, ""), ({1: (4, 17)}, "Produce")]
)
def test_records_are_read_only_by_a_fetch_that_leaves_aborted_ones_out(
    offered: dict[int, tuple[int, int]], missing: str
) -> None:
    """R2: by an older one an aborted record's time would be the newest."""
    assert _missing(_READ, offered) == missing


def test_zero_topic_id_is_unknown() -> None:
    assert [topic_id_text(uuid.UUID(int=number).bytes) for number in (0, 1)] == [None, "AAAAAAAAAAAAAAAAAAAAAQ"]
    topic_id = bare_facts(TopicMetadata("t", None, internal=False)).topic_id
    assert isinstance(topic_id, Unknown)
    assert topic_id.reasons[0].code == "topic-id"


@pytest.mark.parametrize(
    ("values", "config"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "5"}, TopicConfig(frozenset({"delete"}), 5)),
        (
            {"cleanup.policy": "compact, delete", "retention.ms": "-1"},
            TopicConfig(frozenset({"compact", "delete"}), -1),
        ),
        ({"cleanup.policy": "delete"}, None),
        ({"retention.ms": "5"}, None),
        ({"cleanup.policy": "delete", "retention.ms": None}, None),
        ({"cleanup.policy": None, "retention.ms": "5"}, None),
        ({"cleanup.policy": "", "retention.ms": "5"}, TopicConfig(frozenset(), 5)),
        (
            {"cleanup.policy": "delete", "retention.ms": "5", "remote.storage.enable": "true"},
            TopicConfig(frozenset({"delete"}), 5, tiered=True),
        ),
        (
            {
                "cleanup.policy": "delete",
                "retention.ms": "5",
                "remote.storage.enable": "false",
                "diskless.enable": "true",
            },
            TopicConfig(frozenset({"delete"}), 5, diskless=True),
        ),
        (
            {"cleanup.policy": "delete", "retention.ms": "5", "confluent.tier.enable": "true"},
            TopicConfig(frozenset({"delete"}), 5, tiered=True),
        ),
        (
            {"cleanup.policy": "delete", "retention.ms": "5", "redpanda.remote.write": "true"},
            TopicConfig(frozenset({"delete"}), 5, tiered=True),
        ),
        ({"cleanup.policy": "delete", "retention.ms": "5", "remote.storage.enable": None}, None),
        ({"cleanup.policy": "delete", "retention.ms": "5", "diskless.enable": None}, None),
        ({"cleanup.policy": "Compact", "retention.ms": "5"}, None),
        ({"cleanup.policy": "delete", "retention.ms": "a week"}, None),
    ],
)
def test_missing_topic_setting_is_unknown(values: dict[str, str | None], config: TopicConfig | None) -> None:
    read = _config(values)
    assert read == config if config is not None else isinstance(read, RequestFailedError)


NAME, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({NAME: "", COPY: "false"}, None),
        ({NAME: "dlq.q", COPY: "true"}, None),
        ({NAME: "dlq.q", COPY: "false"}, "its dead letters in dlq.q only point to records here"),
        ({NAME: "dlq.q", COPY: None}, "only point to records here"),
        ({NAME: "dlq.q"}, "only point to records here"),
        ({}, "its broker does not say"),
        ({NAME: None, COPY: "true"}, "its broker does not say"),
        (
            RequestFailedError("this user needs DESCRIBE_CONFIGS on the group", retriable=False),
            "needs DESCRIBE_CONFIGS",
        ),
    ],
)
def test_dead_letters_are_unknown_unless_they_are_copies_or_off(
    values: Values | RequestFailedError, said: str | None
) -> None:
    found = why(values)
    assert (found is None) if said is None else found is not None and said in found


@pytest.mark.parametrize(
    ("group", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("\U0001f4a5", 31 * 0xD83D + 0xDCA5),
        ("sink-1-tx", 1439800166),  # negative in Java: Kafka takes its absolute value
        ("polygenelubricants", 0),  # -2^31, which has none
    ],
)
def test_coordinator_partition_uses_javas_hash(group: str, java_hash: int) -> None:
    assert coordinator_partition(group, 2**31 - 1) == java_hash % (2**31 - 1)
    assert coordinator_partition(group, 50) == java_hash % 50
