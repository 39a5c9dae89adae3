"""What brokers answer in sentinels and error codes ends in ``brokers/``: −1 is never an offset, an error never "none"."""

from __future__ import annotations

import asyncio
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from retention_cli.brokers import commits, groups
from retention_cli.brokers.commits import CommitsUnknown, GroupCommits, coordinator_partition, outcome_of, why
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.groups import ListedGroup
from retention_cli.brokers.metadata import TopicConfig, TopicMetadata, Values, _config, topic_id_text
from retention_cli.brokers.wire.answers import decode
from retention_cli.brokers.wire.connections import error_named
from retention_cli.core.model import Unknown
from retention_cli.observe.cluster import bare_facts
from tests.support.answers import batched
from tests.support.facts import known


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


@pytest.mark.parametrize("code", [14, 15, 16, 24, 30, 88, -1])
def test_group_error_is_not_an_empty_answer(code: int) -> None:
    """F3, F9: loading, not available, not coordinator, not authorized, unstable, anything."""
    found = outcome(error_code=code)
    assert (type(found), found.topics) == (CommitsUnknown, None), "it may stand anywhere"


def test_deleted_group_has_no_commits() -> None:
    assert outcome(error_code=69) == GroupCommits("a", {})


def test_error_of_one_partition_affects_only_its_topic() -> None:
    """F3: what was read of the other topics still counts."""
    found = outcome(t=[(0, 5, 0, 0)], u=[(0, 5, 0, 88), (1, 7, 0, 0)], v=[(0, -2, 0, 0)])
    assert (type(found), found.topics, found.retriable) == (CommitsUnknown, frozenset({"u"}), True)
    assert found.read == GroupCommits("a", {"t": [(0, 5, 0)], "v": []}, {"v": {0: -2}})
    assert found.text.startswith("u-0: ")


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
    assert found == [CommitsUnknown("s", "its coordinator was not named", None)]


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


CLASSIC, BY_KIP_848, STREAMS = groups.classic_topics, groups.subscribed_topics, groups.streams_topics
UNDECODABLE = made(client_id="c", member_metadata=b"\x00\x00\x00\x00\x00\x09x", member_assignment=b"")
AGAIN, NEVER = True, False
"""Unknown, and whether it is worth asking again."""


def streams(state: str, *parts: Any, members: int = 1, topology: bool = True) -> Any:
    its = made(subtopologies=[*parts] or None) if topology else None
    return made(members=[1] * members, topology=its, group_state=state)


@pytest.mark.parametrize(
    ("read", "described", "topics"),
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
        pytest.param(CLASSIC, made(group_state="", members=[]), frozenset[str](), id="without members nothing is read"),
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
    read: Any, described: Any, topics: frozenset[Any] | bool
) -> None:
    """F3."""
    said = read(described)
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
