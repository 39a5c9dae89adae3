"""Who counts, on a real cluster: groups of every protocol, live members, transactions (F1–F5, F8)."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import new_class
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, ShareConsumer, TopicPartition  # type: ignore[attr-defined]
from kafka.admin import KafkaAdminClient
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import JoinGroupRequest, LeaveGroupRequest, OffsetFetchRequest, SyncGroupRequest
from kafka.structs import TopicPartition as Partition

from retention_cli.brokers.reader import ClusterReader
from tests.support import schemas
from tests.support.facts import known
from tests.support.leaders import from_the_start, lead_by, leaders, share_offsets
from tests.support.plain import kept_alive, meanwhile
from tests.support.says import held, json_of, pick, rows_of
from tests.support.world import (
    HOUR,
    OLD,
    World,
    ask_coordinator,
    codes,
    commit_raw,
    consumed,
    reader_for,
    wait_until,
    written,
)


def test_group_reset_to_a_negative_offset_holds_until_it_commits(world: World) -> None:
    """F1, F2: KafkaJS stores −2 to read from the start. The ledger remembers 10, and that does not count."""
    topic = world.filled(OLD, {"done": 10, "kafkajs": 10})
    assert world.decide(consumed(topic), topic).trim_to == 10
    commit_raw(world, f"{topic}-kafkajs", topic, -2)
    assert f"group {topic}-kafkajs stored offset -2 here" in held(world.decide(consumed(topic), topic), "F2")
    world.commit(f"{topic}-kafkajs", topic, 3)
    assert world.decide(consumed(topic), topic).trim_to == 3


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_live_member_without_a_commit_holds_its_topic(world: World, protocol: str) -> None:
    """F2; in every protocol it counts by its commit once there is one (F1)."""
    topic, other = (world.filled(OLD, {"done": 10}) for _ in range(2))
    group = f"{topic}-new"
    with kept_alive(world.member(group, [topic], group_protocol=protocol)):
        assert group in held(world.decide(consumed(topic), topic), "F2")
        assert pick(world.decide(consumed(other), other), "action", "trim_to") == ("trim", 10)
    # Its member gone, a group that never committed is nobody any more.
    assert pick(world.decide(consumed(topic), topic), "action", "trim_to") == ("trim", 10)
    member = world.member(group, [topic], group_protocol=protocol)
    member.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    with kept_alive(member):
        decision = world.decide(consumed(topic), topic)
    assert pick(decision, "action", "trim_to", "min_commit_by") == ("trim", 4, f"group:{group}")


def test_kip_848_regex_subscription_holds_unassigned_topics(world: World) -> None:
    """F2: the broker looks for new topics only now and then; the group reads them from the start once it has."""
    topic = world.topic("regex")
    group = f"{topic}-all"
    with kept_alive(world.member(group, [f"^{topic}.*"], group_protocol="consumer")):
        new = world.filled(OLD, {"done": 10}, name=f"{topic}-new")
        members = world.admin.describe_consumer_groups([group])[group].result(60).members
        assigned = {one.topic for member in members for one in member.assignment.topic_partitions}
        assert assigned == {topic}, "it has been assigned already: this test proves nothing"
        assert f"group {group} has a live member" in held(world.decide(consumed(new), new), "F2")


def test_share_group_counts_by_its_start_offset(world: World) -> None:
    """F1: what none of its members has acknowledged stays. A partition that it has not touched is unknown (F2)."""
    topic, other = (world.filled(OLD, {"done": 10}, stem=stem) for stem in ("share", "plain"))
    group = f"{topic}-share"
    from_the_start(world, group)
    share = ShareConsumer({"bootstrap.servers": world.bootstrap, "group.id": group})
    share.subscribe([topic])
    with kept_alive(share):
        wait_until(lambda: share_offsets(world, group) == {topic: [(0, 0, None)]}, "the first to be delivered")

        def moved() -> bool:  # what is acknowledged is written with the next acknowledgement
            world.produce(topic, OLD[:1])
            return share_offsets(world, group)[topic][0][1] > 0

        wait_until(moved, "acknowledged records to be written")
    [(_, start, _)] = share_offsets(world, group)[topic]
    end = world.produce(topic, OLD)
    world.commit(f"{topic}-done", topic, end)
    by_share = (start, f"share:{group}")
    assert pick(world.decide(consumed(topic), topic), "trim_to", "min_commit_by") == by_share
    assert world.decide(consumed(other), other).trim_to == 10
    assert pick(listed(world)[group], "type", "topics", "lag", "counts") == ("share", [topic], end - start, "counts")
    unread = json_of(world, "offsets", topic, "--unread")["topics"]
    assert {row["group"]: row["records"] for row in unread} == {f"share:{group}": end - start, f"{topic}-done": 0}
    for rules in ('{ignore: ["*-share"]}', "{share: ignore}"):
        ignored = consumed(topic).replace("version: 1", f"version: 1\ngroups: {rules}")
        assert world.decide(ignored, topic, remember=False).trim_to == end
    # Gone, it counts where it stood (F6), until it is forgotten.
    world.delete_group(group)
    wait_until(lambda: share_offsets(world, group) == {}, "the group to be gone")
    assert pick(world.decide(consumed(topic), topic), "trim_to", "min_commit_by") == by_share
    world.cli("groups", "forget", f"share:{group}", check=0)
    assert world.decide(consumed(topic), topic).trim_to == end


def listed(world: World) -> dict[str, Any]:
    return {row["group"]: row for row in json_of(world, "groups")["groups"]}


def test_share_group_that_has_read_nothing_holds_also_once_its_member_has_left(world: World) -> None:
    """The group keeps start offset -1, and its next member starts where ``share.auto.offset.reset`` says."""
    topic, other = (world.filled(OLD, {"done": 10}, stem=stem) for stem in ("share", "plain"))
    group = f"{topic}-share"
    from_the_start(world, group)
    with share_member(world, group, topic):
        [reason] = world.decide(consumed(topic), topic).reasons
        said = f"share:{group} is configured to read this partition and has no position here"
        assert (reason.code, reason.text.startswith(said)) == ("F2", True), reason
        assert world.decide(consumed(other), other).trim_to == 10
    for state in (world, World(world.bootstrap, world.state_dir / "fresh")):
        held(state.decide(consumed(topic), topic), "F2")
    left = ("Empty", "counts; holds partitions where it has no position")
    assert pick(listed(world)[group], "state", "counts") == left
    world.delete_group(group)
    wait_until(lambda: world.decide(consumed(topic), topic).trim_to == 10, "the group to be gone")


ShareGroupHeartbeatRequest: Any = new_class("ShareGroupHeartbeatRequest", (ApiMessage,), {"load_json": schemas})
ShareGroupHeartbeatResponse = new_class("ShareGroupHeartbeatResponse", (ApiMessage,), {"load_json": schemas})
StreamsGroupHeartbeatRequest: Any = new_class("StreamsGroupHeartbeatRequest", (ApiMessage,), {"load_json": schemas})
StreamsGroupHeartbeatResponse = new_class("StreamsGroupHeartbeatResponse", (ApiMessage,), {"load_json": schemas})


class Member:
    """A member of a group that heartbeats by hand; ``request`` makes a heartbeat of an epoch."""

    def __init__(self, bootstrap: str, group: str, request: Callable[[int], Any]) -> None:
        self.bootstrap, self.group, self.request = bootstrap, group, request
        self.epoch = 0

    def beat(self) -> None:
        """Send a heartbeat, and take the epoch that is answered, unless the coordinator is loading or moving."""
        response = ask_coordinator(self.bootstrap, self.group, self.request(self.epoch))
        if response.error_code not in (14, 15, 16):
            assert response.error_code == 0, (response.error_code, response.error_message)
            self.epoch = int(response.member_epoch)

    def leave(self) -> None:
        self.epoch = -1
        self.beat()


@contextmanager
def share_member(world: World, group: str, topic: str) -> Iterator[None]:
    """Join a share group until its partitions are set up, and leave it in the end, without fetching anything."""

    def request(epoch: int) -> Any:
        subscribed = [topic] if epoch == 0 else None
        return ShareGroupHeartbeatRequest(
            group_id=group, member_id="bWVtYmVyLW9mLXRlc3Q", member_epoch=epoch, subscribed_topic_names=subscribed
        )

    member = Member(world.bootstrap, group, request)

    def set_up() -> bool:
        member.beat()
        return topic in share_offsets(world, group)

    wait_until(set_up, "the share group to be set up")
    yield
    member.leave()


def test_pending_offsets_hold_their_topics_until_the_transaction_ends(world: World, tmp_path: Path) -> None:
    """F3: the stable ones are asked for (require_stable). A group's first offset on a topic is in no answer at all."""
    sink = world.topic("sink")
    lower, first, other = (world.filled(OLD, {"done": 10}, stem=stem) for stem in ("lower", "first", "other"))
    world.commit(f"{sink}-tx", lower, 8)
    world.commit(f"{sink}-tx", other, 6)
    producer = world.transaction(sink, [], end="open")
    producer.produce(sink, b"x")
    pending = [TopicPartition(lower, 0, 3), TopicPartition(first, 0, 7)]
    with closing(Consumer({"bootstrap.servers": world.bootstrap, "group.id": f"{sink}-tx"})) as member:
        producer.send_offsets_to_transaction(pending, member.consumer_group_metadata(), 30)
        producer.flush(30)
    policy = written(tmp_path / "pending.yaml", consumed("*"))
    rows = rows_of(world, "plan", "-p", str(policy), lower, first, other, "--timeout", "3s")
    for name in (lower, first):
        assert pick(rows[name], "action", "min_commit") == ("hold", None)
        assert {one["code"] for one in rows[name]["reasons"]} == {"F3"}, rows[name]
    assert "pending in a transaction" in str(rows[first]["reasons"])
    assert pick(rows[other], "action", "trim_to") == ("trim", 6), "what is known of another topic counts"
    producer.commit_transaction(30)
    assert [world.decide(consumed(name), name).trim_to for name in (lower, first)] == [3, 7]


def test_commits_of_groups_with_unusual_names_count(world: World) -> None:
    topic = world.filled(OLD, name="T.o_p-i" + "c" * 230)
    groups = ("Ünïcødé 💥", "with space", "a/b:c;d$(e)", "*", "re:x")
    for group in groups:
        world.commit(group, topic, 7)
    assert pick(world.decide(consumed(topic), topic), "trim_to", "min_commit_by") == (7, "group:*")
    assert topic in world.cli("plan", topic, "--consumed-after", "1h", "--all", check=0).out
    for group in groups:
        world.delete_group(group)


def test_group_without_any_commit_is_listed_and_does_not_count(world: World) -> None:
    """Members of another protocol type: their assignment is not a consumer's, and says nothing of topics."""
    topic = world.filled(OLD, {"done": 10})
    with raw_member(world.bootstrap, f"{topic}-connect", "connect", b"\x00\x01url", b"\xff\xfe\x00"):
        kind, counts = pick(listed(world)[f"{topic}-connect"], "protocol_type", "counts")
        assert (kind, counts.partition(":")[0]) == ("connect", "listed only")
        assert world.decide(consumed(topic), topic).trim_to == 10


def test_member_with_an_unknown_subscription_may_read_any_topic_unless_commits_count_alone(world: World) -> None:
    """F3: no metadata is not "reads nothing". ``groups.by.commits`` waives it; what is no position still holds."""
    topic = world.filled(OLD, {"done": 10, "odd": 4})
    by_commits = f'{consumed(topic)}\ngroups:\n  by.commits: ["{topic}-odd"]'
    with raw_member(world.bootstrap, f"{topic}-odd", "consumer", b"", b""):
        decision = world.decide(consumed(topic), topic)
        assert f"{topic}-odd" in held(decision, "F3")
        assert "groups.by.commits" in str(decision.reasons), "the reason names the way out"
        assert (world.decide(by_commits, topic).trim_to, world.cli("groups", check=0).err) == (4, "")
    assert world.decide(consumed(topic), topic).trim_to == 4
    commit_raw(world, f"{topic}-odd", topic, -2)
    assert codes(world.decide(by_commits, topic)) == {"F2"}


def test_commit_with_a_stale_leader_epoch_counts_if_the_policy_allows_it(world: World) -> None:
    """F5: ``groups.stale.epochs``. What the ledger saw with its epoch is judged by it until it moves."""
    topic = world.filled(OLD)
    group = f"{topic}-sarama"
    for _ in range(2):
        led = leaders(world, topic)[0]
        lead_by(world, topic, next(one for one in (1, 2, 3) if one != led))
        world.produce(topic, OLD)
    stale = f'{consumed(topic)}\ngroups:\n  stale.epochs: ["{group}"]'
    world.commit(group, topic, {0: 15}, epochs={0: 0})
    decision = world.decide(consumed(topic), topic)
    assert (codes(decision), "groups.stale.epochs" in str(decision.reasons)) == ({"F5"}, True)
    assert codes(world.decide(stale, topic)) == {"F5"}, "the ledger saw that commit beyond the end of its epoch"
    world.commit(group, topic, {0: 22}, epochs={0: 0})
    assert (world.decide(stale, topic).trim_to, codes(world.decide(consumed(topic), topic))) == (22, {"F5"})
    world.commit(group, topic, {0: 31}, epochs={0: 0})
    assert codes(world.decide(stale, topic)) == {"F5"}, "beyond the log's end no commit counts"


def test_commit_by_name_is_found_under_any_topic_id(world: World) -> None:
    """F5: a late commit of an older log, by a client that names topics. OffsetFetch 10 does not tell it apart."""
    topic = world.filled(OLD, {"first": 10})
    group = f"{topic}-late"
    world.renew(topic)
    world.produce(topic, OLD)
    commit_raw(world, group, topic, 9)
    with reader_for(world.bootstrap) as reader:
        told = known(reader.metadata([topic]).topics[topic].topic_id)
    Group = OffsetFetchRequest.OffsetFetchRequestGroup  # noqa: N806  (a class)
    topic_id = UUID(bytes=urlsafe_b64decode(f"{told}=="))
    wanted = [Group.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])]
    request = OffsetFetchRequest(version=10, groups=[Group(group_id=group, topics=wanted)], require_stable=True)
    [found] = ask_coordinator(world.bootstrap, group, request).groups[0].topics
    assert [one.committed_offset for one in found.partitions] == [9]


def test_group_that_starts_by_duration_keeps_what_is_younger(world: World) -> None:
    """F2: without a commit it starts two hours back when it comes. A live member started at an unknown moment."""
    topic = world.filled(
        [30 * HOUR] * 3 + [5 * HOUR] * 3 + [90 * 60_000] * 4, {"done": 10, "daily": {1: 0}}, partitions=2
    )
    group = f"{topic}-daily"
    policy = f"{consumed(topic)}\ngroups:\n  start: {{{group}: 2h}}"
    assert codes(world.decide(consumed(topic), topic)) == {"F2"}
    assert pick(world.decide(policy, topic), "trim_to", "min_commit_by") == (6, f"group:{group}")
    assert world.decide(policy.replace("2h", "6h"), topic).trim_to == 3
    assert world.decide(policy.replace("2h", "1h"), topic).trim_to == 10, "all of it is older"
    with kept_alive(world.member(group, [topic], group_protocol="classic")):
        why = held(world.decide(policy, topic), "F2")
    assert "when it started, and so how far back it reads, is unknown" in why


@contextmanager
def raw_member(bootstrap: str, group: str, kind: str, metadata: bytes, assigned: bytes) -> Iterator[None]:
    """Join a group with a protocol type and bytes of one's own, as a Connect worker does."""
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="default", metadata=metadata)]
    about: dict[str, Any] = {"group_id": group, "group_instance_id": None, "protocol_type": kind}
    times = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
    member, code = "", 79
    while code in (79, 14, 15, 16):  # a member id is given first; coordinators may still be loading
        joined = ask_coordinator(
            bootstrap, group, JoinGroupRequest(member_id=member, protocols=protocols, **times, **about)
        )
        member, code = joined.member_id or member, joined.error_code
    assert code == 0, code
    given = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=assigned)]
    about |= {"generation_id": joined.generation_id, "protocol_name": "default"}
    sync = SyncGroupRequest(member_id=member, assignments=given, **about)
    assert ask_coordinator(bootstrap, group, sync).error_code == 0
    try:
        yield
    finally:
        gone = LeaveGroupRequest.MemberIdentity(member_id=member, group_instance_id=None, reason=None)
        ask_coordinator(bootstrap, group, LeaveGroupRequest(group_id=group, members=[gone]))


def test_live_streams_group_holds_its_sources_and_counts_by_commits(world: World) -> None:
    topic, other = (world.filled(OLD, {"done": 10}, stem=stem) for stem in ("source", "other"))
    with streams_member(world.bootstrap, f"{topic}-streams", topic):
        wait_until(lambda: codes(world.decide(consumed(topic), topic)) == {"F2"}, "the streams group's hold")
        assert f"{topic}-streams" in world.decide(consumed(topic), topic).reasons[0].text
        assert world.decide(consumed(other), other).trim_to == 10
        assert listed(world)[f"{topic}-streams"]["type"] == "streams"
    wait_until(lambda: world.decide(consumed(topic), topic).trim_to == 10, "the streams group's end")


@contextmanager
def streams_member(bootstrap: str, group: str, source: str) -> Iterator[None]:
    """Join a streams group (KIP-1071) with a topology of one source topic, and heartbeat until done."""
    lists = ("source_topic_regex", "state_changelog_topics", "repartition_sink_topics", "repartition_source_topics")
    empty: dict[str, list[str]] = {name: [] for name in (*lists, "copartition_groups")}
    Topology = StreamsGroupHeartbeatRequest.Topology  # noqa: N806  (a class)
    sub = Topology.Subtopology(subtopology_id="0", source_topics=[source], **empty)

    def request(epoch: int) -> Any:
        joining: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "topology": Topology(epoch=0, subtopologies=[sub]),
            "process_id": "p1",
            **{name: [] for name in ("active_tasks", "standby_tasks", "warmup_tasks", "client_tags")},
        }
        return StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id="member-of-the-test-0001",
            member_epoch=epoch,
            endpoint_information_epoch=0,
            **(joining if epoch == 0 else {**dict.fromkeys(joining), "rebalance_timeout_ms": -1}),
        )

    member = Member(bootstrap, group, request)
    with meanwhile(member.beat):
        yield
    member.leave()


@pytest.mark.parametrize("remedy", ["offsets", "group"])
def test_refused_commit_is_no_position_after_its_deletion(world: World, remedy: str) -> None:
    """F5, F6: it lay beyond the end of the log, which has grown past it since; of that nobody has read a record."""
    topic = world.filled(OLD, {"g": 90})
    group = f"{topic}-g"
    [reason] = plan_row(world, topic)["reasons"]
    assert (reason["code"], "delete its offsets" in reason["text"]) == ("F5", True)
    if remedy == "offsets":
        with closing(KafkaAdminClient(bootstrap_servers=world.bootstrap)) as admin:
            admin.delete_group_offsets(group, [Partition(topic, 0)])
    else:
        world.delete_group(group)
    [reason] = plan_row(world, topic)["reasons"]
    assert reason["code"] == "F4", "the remedy is not told again"
    world.produce(topic, [30 * HOUR] * 100)
    [done] = json_of(world, "trim", topic, "--consumed-after", "1h", "--yes")["partitions"]
    assert (done["outcome"], world.ends(topic)) == ("held", (0, 110))
    # What others have read still goes, and what the group reads from now on counts.
    for reader, offset in ((f"{topic}-other", 40), (group, 20)):
        world.commit(reader, topic, offset)
        assert plan_row(world, topic)["trim_to"] == offset


@pytest.mark.parametrize(("offset", "epoch"), [(90, None), (90, 99), (7, 99)])
def test_commit_is_reported_once_and_equal_facts_give_equal_plans(world: World, offset: int, epoch: int | None) -> None:
    """Beyond the end, in an epoch that this log never had, or both: one reason, also once it is remembered (F5)."""
    topic = world.filled(OLD)
    world.commit(f"{topic}-g", topic, {0: offset}, epochs=None if epoch is None else {0: epoch})
    first, *again = (plan_row(world, topic) for _ in range(3))
    assert [reason["code"] for reason in first["reasons"]] == ["F5"], first
    assert again == [first, first]


def test_metadata_without_topic_ids_makes_no_commit_a_leftover(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of before 2.8 in a rolling upgrade names no topic ids: the topic was not recreated by that (F5)."""
    topic = world.filled(OLD, {"g": 8})
    assert world.decide(consumed(topic), topic).trim_to == 8
    honest = ClusterReader.metadata

    def without_ids(self: ClusterReader, *names: Any) -> Any:
        told = honest(self, *names)
        return replace(told, topics={name: replace(one, topic_id=None) for name, one in told.topics.items()})

    with monkeypatch.context() as patched:
        patched.setattr(ClusterReader, "metadata", without_ids)
        world.decide(consumed(topic), topic)
    for _again in range(2):
        assert pick(world.decide(consumed(topic), topic), "trim_to", "reasons") == (8, ())


def plan_row(world: World, topic: str) -> dict[str, Any]:
    return rows_of(world, "plan", topic, "--consumed-after", "1h")[topic]  # type: ignore[no-any-return]


def test_plan_says_where_no_group_has_committed(world: World) -> None:
    """G2: what else a confirmation counts is in ``tests/unit/plan``."""
    lonely = world.filled(OLD)
    plan = world.plan(f"version: 1\ntopics: [{{match: {lonely}, retention.ms: 1h}}]")
    assert (*pick(plan.decisions[0], "unconsumed", "reasons"), plan.unconsumed_by) == (10, (), {})
    assert [note.text for note in plan.notes if "none has committed on these partitions" in note.text]
