"""The ledger that all share, and one suite that both stores of the ledger pass (docs/memory.md)."""

from __future__ import annotations

import csv
import io
import random
import re
import signal
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.model import EventMax, Sample
from retention_cli.memory import documents as docs
from retention_cli.memory.ages import Ages
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import PartitionMemory, pack
from retention_cli.memory.positions import Commits, LogNow, Logs
from retention_cli.observe.floors.fold import FloorFold
from retention_cli.observe.recall import Recall
from retention_cli.policy.live import Message
from retention_cli.policy.settings import GroupRules
from retention_cli.state import messages
from retention_cli.state.own_topics import STATE_TOPIC, StateTopic
from tests.support.clusters import EmbeddedKafka
from tests.support.facts import known, why
from tests.support.ledger_stores import (
    Store,
    add_samples,
    decide,
    last_documents,
    make_kretain_topics,
    memories_of,
    new_topic_id,
    plan,
    renew_state_topic,
    run,
    samples_of,
    saw,
    see,
)
from tests.support.says import held, pick, says
from tests.support.terminal import Terminal
from tests.support.world import (
    DAY,
    HOUR,
    MINUTE,
    OLD,
    Cli,
    World,
    codes,
    consumed,
    now_ms,
    reader_for,
    wait_until,
    written,
)


@pytest.fixture(scope="module", autouse=True)
def _kretain_topics(kafka: EmbeddedKafka) -> None:
    renew_state_topic(kafka.bootstrap)


@pytest.fixture
def store(kafka: EmbeddedKafka, tmp_path: Path) -> Store:
    return Store("cluster", kafka.bootstrap, tmp_path / "state")


# -- another machine -----------------------------------------------------------------------


def test_new_machine_knows_deleted_groups_and_since_when(world: World) -> None:
    """F6: a group that another pod saw still counts here. On its own this machine would trim past it."""
    topic = world.filled(OLD, {"a": 7, "gone": 3})
    first = plan(world, consumed(topic), "first")
    assert first.decisions[0].trim_to == 3
    world.delete_group(f"{topic}-gone")
    assert decide(world, consumed(topic), topic, "alone", "local").trim_to == 7
    second = plan(world, consumed(topic), "second")
    found = second.decisions[0]
    assert (found.trim_to, found.min_commit_by, codes(found)) == (3, f"group:{topic}-gone", {"F6"})
    assert pick(second, "memory", "memory_since_ms") == ("cluster", known(first.memory_since_ms))


def test_last_message_of_each_key_contains_all_earlier_ones(store: Store) -> None:
    """Compaction leaves one message a key: a fact that only an earlier one has would be lost."""
    topic_id, other = new_topic_id(), store.elsewhere("other")
    with store.opened() as (mine, my_memories), other.opened() as (theirs, their_memories):
        for number, ledger in enumerate((mine, theirs), start=1):
            add_samples(ledger, topic_id, {number: Sample(1_000, number), 32: Sample(1_000 * number, number)})
        store.save(my_memories)
        other.save(their_memories)
    last = last_documents(store.bootstrap)
    first, second = last[topic_id], last[f"{topic_id}/1"]
    assert isinstance(first, docs.TopicDocument)
    assert isinstance(second, docs.TopicDocument)
    assert (first.name, set(first.partitions), set(second.partitions)) == ("orders", {1, 2}, {32})
    assert second.partitions[32].samples == (Sample(1_000, 1), Sample(2_000, 2))


def test_idle_group_is_written_each_hour_and_counts_elsewhere_in_between(store: Store) -> None:
    """F6: 30 days from when it was last seen, by whomever, not from when it last committed.

    Seen 50 minutes after it was told of, and gone since: with an hour to remember it, it counts that much longer.
    """
    group, at = new_topic_id(), now_ms()
    for minutes in (0, 50):
        saw(store, group, at + minutes * MINUTE)
    with store.elsewhere("other").opened() as (ledger, _):
        assert ledger.groups()[group].seen_ms == at
        assert group in {name for name, *_ in ledger.gone_groups([], at + (50 + 60) * MINUTE - HOUR)}
        assert group not in {name for name, *_ in ledger.gone_groups([], at + 1 + HOUR)}
    saw(store, group, at + 2 * HOUR)
    with store.elsewhere("third").opened() as (ledger, _):
        assert ledger.groups()[group].seen_ms == at + 2 * HOUR


def test_recheck_knows_a_group_that_another_machine_has_seen_since_the_plan(store: Store) -> None:
    """F6: it may be gone by the time of the recheck."""
    topic_id, group = new_topic_id(), new_topic_id()
    with store.opened() as (ledger, _):
        ledger.begin({"orders": topic_id})
        saw(store.elsewhere("other"), group, now_ms())
        assert group not in ledger.groups()
        ledger.begin({"orders": topic_id})
        assert group in ledger.groups()


def test_memory_of_a_local_run_in_between_is_shared(store: Store) -> None:
    """One machine, two policies: the cache knows when somebody wrote to it who tells nobody."""
    topic_id, local = new_topic_id(), Store("local", store.bootstrap, store.state_dir)
    for number, place in enumerate((store, local, store), start=1):
        with place.opened() as (ledger, memories):
            add_samples(ledger, topic_id, {0: Sample(1_000 * number, number), 32 * number: Sample(1_000, 1)})
            store.save(memories)
    with store.elsewhere("other").opened() as (ledger, _):
        assert ledger.partitions_of(topic_id).keys() == {0, 32, 64, 96}
        assert len(ledger.partition("orders", topic_id, 0).samples) == 3


# -- a kill, a lost topic ----------------------------------------------------------------------


def test_next_run_sends_what_a_killed_run_did_not(store: Store) -> None:
    """The cache notes in one transaction what it learns and what it has to tell; by which clock, it can't prove (G3)."""
    topic_id, began = new_topic_id(), now_ms()
    with store.script(f"""
ledger.begin({{"orders": {topic_id!r}}})
ledger.partition("orders", {topic_id!r}, 0).add_sample(Sample(1_000, 10))
ledger._publish = lambda: os.kill(os.getpid(), signal.SIGKILL)
store.save(memories)
""") as process:
        assert process.wait(60) == -signal.SIGKILL
    assert samples_of(store.elsewhere("other"), topic_id) == ()
    with store.opened() as (_, memories):
        store.save(memories)
    (sample,) = samples_of(store.elsewhere("other"), topic_id)
    assert sample.high_watermark == 10
    assert sample.wall_ms >= began


def gone_at(place: Store, ids: dict[str, str], *listed: str) -> tuple[str, dict[str, list[int]]]:
    """Return why every floor is unknown, and where a group counts: its first partition of each topic."""
    with place.opened() as (ledger, memories):
        ledger.begin(ids)
        fold = FloorFold({})
        Recall(ledger, GroupRules(), now_ms(), now_ms).add_gone(fold, listed)
        memories.save(now_ms())
        return str(fold.failed), {topic: [*min(rows)[:2]] for _, some in fold.gone for topic, rows in some.items()}


def test_group_with_more_commits_than_a_message_holds_is_unknown_elsewhere_until_seen(fresh_store: Store) -> None:
    """A machine that did not see all of them must not trim past it once it is gone (F6)."""
    chance, ids, store = random.Random(1), {"orders": new_topic_id(), "payments": new_topic_id()}, fresh_store
    few = {"orders": [(0, 5, 3)], "payments": [(1, 2, 3)]}
    many = {"orders": [(partition, chance.randrange(1 << 40), 3) for partition in range(250_000)]}

    def saw_huge(ledger: Ledger, commits: Commits) -> None:
        ledger.begin(ids)
        ledger.saw_group("huge", commits, now_ms(), 0)

    older, never, late = (store.elsewhere(name) for name in ("older", "never", "late"))
    with older.opened() as (ledger, memories):
        saw_huge(ledger, few)
        memories.save(now_ms())
    with store.opened() as (ledger, memories):
        saw_huge(ledger, {**many, "payments": [(0, 7, 3)]})
        memories.save(now_ms())
        saw_huge(ledger, many)
        add_samples(ledger, ids["orders"], {0: Sample(1_000, 10)})
        memories.save(now_ms())
        says(str([one.text for one in memories.notes]), "group huge has more commits than a message holds")
    assert samples_of(never, ids["orders"]) == (Sample(1_000, 10),), "all else is shared"
    assert gone_at(store, ids) == ("set()", {"orders": [0, many["orders"][0][1]], "payments": [0, 7]})
    for place in (older, older, Store("local", store.bootstrap, older.state_dir), older, never, late):
        why, there = gone_at(place, ids)
        says(why, "saw the last commits of group huge", "did not fit into a message", "groups forget")
        assert there["payments"] == [0, 7], "what a look does not show is shared, too"
        assert gone_at(place, ids, "huge") == ("set()", {}), "this look shows the rest"
    with never.opened() as (ledger, memories):
        ledger.begin(ids)
        Recall(ledger, GroupRules(), now_ms(), now_ms).saw("huge", {"payments": [(0, 9, 3)]}, ["orders"])
        memories.save(now_ms())
    for place in (never, store):
        why, there = gone_at(place, ids)
        says(why, "saw the last commits of group huge")
        assert there["payments"] == [0, 9], "a look that could not read all of it shares what it read"
    with older.opened() as (ledger, memories):
        saw_huge(ledger, {"orders": [(0, 9, 3)]})
        memories.save(now_ms())
    for place in (older, late):
        assert gone_at(place, ids) == ("set()", {"orders": [0, 9], "payments": [0, 9]})
    with older.opened() as (ledger, memories):
        assert ledger.forget_group("huge")
    assert [gone_at(place, ids) for place in (never, late)] == [("set()", {})] * 2


def test_large_group_that_two_machines_saw_does_not_end_the_sharing(fresh_store: Store) -> None:
    """What one of them saw before the other is gone to it: that does not fit into a message either (F6)."""
    chance, ids, store = random.Random(1), {"orders": new_topic_id()}, fresh_store
    early, never = store.elsewhere("early"), store.elsewhere("never")
    for place in (early, store):
        with place.opened() as (ledger, memories):
            ledger.begin(ids)
            many = {"orders": [(partition, chance.randrange(1 << 40), 3) for partition in range(250_000)]}
            ledger.saw_group("huge", many, now_ms(), 0)
            memories.save(now_ms())
    with early.opened() as (ledger, memories):
        add_samples(ledger, ids["orders"], {0: Sample(1_000, 10)})
        memories.save(now_ms())
        says(str([one.text for one in memories.notes]), "group huge has more commits than a message holds")
        assert not memories.unsaved
    assert samples_of(never, ids["orders"]) == (Sample(1_000, 10),), "all else is shared"
    for place in (early, never):
        says(
            gone_at(place, ids)[0], "saw the last commits of group huge", "did not fit into a message", "groups forget"
        )
    with early.opened() as (ledger, memories):
        assert ledger.forget_group("huge"), "it would hold the other tests' topics"


def test_refused_commit_is_shared_also_where_too_much_of_a_large_group_is_gone(fresh_store: Store) -> None:
    """F5: a machine that has not seen it beyond H would count it once the log has grown past it."""
    ids, chance = {name: new_topic_id() for name in ("orders", "payments")}, random.Random(1)
    many = [(partition, chance.randrange(1 << 40), 3) for partition in range(250_000)]
    with fresh_store.opened() as (ledger, memories):
        for orders in (many, []):
            ledger.begin(ids)
            ledger.saw_group("huge", {"orders": orders, "payments": [(0, 900, 3)]}, now_ms(), 0)
            ledger.judge(lambda: Logs([(("payments", 0), LogNow(100, 3))]), {"payments"}, ())
            memories.save(now_ms())
        assert len(ledger.group("huge").gone) == len(many)
    with fresh_store.elsewhere("never").opened() as (ledger, _):
        assert ledger.lacks_commits_of("huge")
        assert ledger.group("huge").refused.commits() == {("payments", 0): (900, 3)}
        assert ledger.forget_group("huge"), "it would hold the other tests' topics"


def test_group_with_commits_on_more_topics_than_a_message_can_name_does_not_end_the_sharing(fresh_store: Store) -> None:
    """F6: machines that have not seen it hold once it is gone, and all else is shared."""
    ids = {f"orders-{number}": new_topic_id() for number in range(70_000)} | {"orders": new_topic_id()}
    with fresh_store.opened() as (ledger, memories):
        ledger.begin(ids)
        ledger.saw_group("huge", {name: [(0, 5, 3)] for name in ids}, now_ms(), 0)
        ledger.partition("orders", ids["orders"], 0).add_sample(Sample(1_000, 10))
        memories.save(now_ms())
        assert not memories.unsaved
    never = fresh_store.elsewhere("never")
    assert samples_of(never, ids["orders"]) == (Sample(1_000, 10),)
    with never.opened() as (ledger, _):
        assert ledger.lacks_commits_of("huge")
        assert ledger.forget_group("huge"), "it would hold the other tests' topics"


def test_missing_state_topic_holds_and_loses_nothing(world: World) -> None:
    """Unknown means hold; what a machine saw meanwhile, and all that it knew, is told once the topic is there again."""
    topic = world.filled(OLD, {"a": 7, "gone": 3})
    assert decide(world, consumed(topic), topic, "first").trim_to == 3
    world.delete_group(f"{topic}-gone")
    world.delete(STATE_TOPIC)
    why = "topic _kretain_state does not exist, or this user may not read it: kretain cluster init creates it"
    try:
        for machine in ("first", "second"):
            assert why in held(decide(world, consumed(topic), topic, machine), "F6")
    finally:
        make_kretain_topics(world.bootstrap)
    assert [decide(world, consumed(topic), topic, machine).trim_to for machine in ("first", "third")] == [3, 3]


def test_state_topic_from_which_messages_were_deleted_holds_until_it_is_made_anew(world: World) -> None:
    """They were of a group that is gone by now (F6): a machine that has not read them must not trim past it."""
    topic = world.filled(OLD, {"a": 7})
    assert decide(world, consumed(topic), topic, "early").trim_to == 7
    world.commit(f"{topic}-gone", topic, 3)
    assert decide(world, consumed(topic), topic, "knows").trim_to == 3
    world.delete_group(f"{topic}-gone")
    world.configure(STATE_TOPIC, {"cleanup.policy": "delete"})
    world.delete_records(STATE_TOPIC, world.ends(STATE_TOPIC)[1])
    world.configure(STATE_TOPIC, {"cleanup.policy": "compact"})
    for machine in ("early", "knows", "late"):
        says(held(decide(world, consumed(topic), topic, machine), "F6"), "were deleted, not compacted: delete it (")
    renew_state_topic(world.bootstrap)
    assert [decide(world, consumed(topic), topic, machine).trim_to for machine in ("knows", "early", "late")] == [3] * 3


@pytest.fixture
def fresh_store(kafka: EmbeddedKafka, tmp_path: Path) -> Store:
    renew_state_topic(kafka.bootstrap)
    return Store("cluster", kafka.bootstrap, tmp_path / "state")


def test_message_compacted_away_before_it_is_read_counts_as_the_later_one_of_its_key(
    fresh_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one is behind the end that was asked for: a machine without a cache would know of no such group (F6)."""
    world, eager = World(fresh_store.bootstrap, Path()), {"segment.ms": "100", "max.compaction.lag.ms": "100"}
    world.configure(STATE_TOPIC, {**eager, "min.cleanable.dirty.ratio": "0.01"})
    saw(fresh_store, "gone", now_ms())
    read = StateTopic.read

    def read_late(topic: StateTopic, start: int, end: int) -> list[Message]:
        monkeypatch.setattr(StateTopic, "read", read)
        saw(fresh_store, "gone", now_ms() + 2 * HOUR)

        def compacted() -> bool:
            saw(fresh_store, new_topic_id(), now_ms())
            return all(one.offset() >= end for one in world.messages(STATE_TOPIC))

        wait_until(compacted, "the cleaner", 60)
        return topic.read(start, end)

    monkeypatch.setattr(StateTopic, "read", read_late)
    with fresh_store.elsewhere("late").opened() as (ledger, _):
        assert "gone" in ledger.groups()
    renew_state_topic(fresh_store.bootstrap)


@pytest.fixture
def writer(kafka: EmbeddedKafka, fresh_store: Store) -> Iterator[ClusterWriter]:
    with reader_for(kafka.bootstrap) as reader, ClusterWriter(reader.settings, {STATE_TOPIC}, 30) as made:
        yield made


def test_unreadable_group_message_holds_when_it_is_the_only_one(
    world: World, fresh_store: Store, writer: ClusterWriter
) -> None:
    """It may have stood anywhere: every floor is unknown until it is forgotten, or seen again."""
    topic = world.filled(OLD, {"a": 7})
    at = writer.append(STATE_TOPIC, b"group:" + topic.encode(), b"rubbish")
    place = f"_kretain_state-0 offset {at.offset:,}"
    try:
        made = plan(world, consumed(topic), "first")
        assert next(note.text for note in made.notes if place in note.text).endswith("; ignored")
        for _ in range(2):  # the second look doesn't read the message again, and knows
            why = held(decide(world, consumed(topic), topic, "first"), "F6")
            assert place in why
            assert why.endswith(f"if it won't come back: kretain groups forget -b HOST:PORT {topic}")
    finally:
        with fresh_store.opened() as (ledger, _):
            assert ledger.forget_group(topic)
    assert decide(world, consumed(topic), topic, "first").trim_to == 7


def test_unreadable_message_is_replaced_when_more_is_known(fresh_store: Store, writer: ClusterWriter) -> None:
    group = new_topic_id()
    saw(fresh_store, group, now_ms())
    unreadable = zlib.compress(b'{"at_ms":1,"since_ms":0,"version":4}\n{"name":"another"}')
    writer.append(STATE_TOPIC, b"group:" + group.encode(), unreadable)
    with fresh_store.opened() as (ledger, memories):
        assert (ledger.lost, len(memories.notes)) == (None, 1)
        assert ledger.groups()[group].live.commits() == {("orders", 0): (5, None)}
        memories.save(now_ms())
    with fresh_store.elsewhere("other").opened() as (ledger, _):
        assert ledger.groups()[group].live.commits() == {("orders", 0): (5, None)}


def test_unreadable_topic_message_is_named_and_only_lowers_bounds(fresh_store: Store, writer: ClusterWriter) -> None:
    """Samples and event times that are missing make less go, not more: nothing else needs to be held."""
    odd = (b"", b"rubbish", zlib.compress(b"[1]"), zlib.compress(b'{"v":3,"at":1,"since":0}'))
    ids = [new_topic_id() for _ in odd]
    offsets = {one: writer.append(STATE_TOPIC, one.encode(), value).offset for one, value in zip(ids, odd, strict=True)}
    with fresh_store.opened() as (ledger, memories):
        for topic_id, offset in offsets.items():
            assert (ledger.lost, ledger.partitions_of(topic_id)) == (None, {})
            assert sum(f"offset {offset:,}, key {topic_id}: " in note.text for note in memories.notes) == 1


@pytest.mark.parametrize(("version", "what"), [(5, "a newer kretain"), (3, "an older kretain")])
def test_message_of_another_version_holds_and_is_not_overwritten(
    fresh_store: Store, writer: ClusterWriter, version: int, what: str
) -> None:
    topic_id = new_topic_id()
    with fresh_store.opened() as (ledger, memories):
        add_samples(ledger, topic_id, {0: Sample(1_000, 10)})
        fresh_store.save(memories)
    other = zlib.compress(b'{"at_ms":1,"since_ms":0,"version":%d}\n{"what":"who knows"}' % version)
    writer.append(STATE_TOPIC, topic_id.encode(), other)
    try:
        with fresh_store.opened() as (ledger, memories):
            assert f"{what} wrote it (version {version}, this one knows 4)" in why(ledger.lost)
            ledger.partition("orders", topic_id, 0).add_sample(Sample(2_000, 20))
            memories.save(now_ms())
            assert "remembered only on this machine" in memories.notes[-1].text
    finally:
        writer.append(STATE_TOPIC, topic_id.encode(), None)


@pytest.mark.parametrize("key", ["group:gone", new_topic_id()], ids=["group", "topic"])
def test_topic_made_anew_ends_the_hold_for_a_message_of_an_older_version(
    fresh_store: Store, writer: ClusterWriter, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """That is what the reason says to do. The new topic has no message of this key, which would show that it is gone."""
    monkeypatch.setattr("retention_cli.state.cluster_ledger._MESSAGES_AT_ONCE", 1)
    older = zlib.compress(b'{"at_ms":1,"since_ms":0,"version":3}\n{"what":"who knows"}')
    group, clock = new_topic_id(), messages.encode(None, messages.Written(now_ms(), 0))
    for name, value in ((key, older), (messages.CLOCK_KEY, clock), (messages.CLOCK_KEY, clock)):
        writer.append(STATE_TOPIC, name.encode(), value)
    for place in (fresh_store, fresh_store, fresh_store.elsewhere("other")):
        with place.opened() as (ledger, memories):
            says(why(ledger.lost), "an older kretain wrote it", "delete its topic")
            see(ledger, group, {"orders": {0: 5}}, now_ms())
            memories.save(now_ms())
    renew_state_topic(fresh_store.bootstrap)
    with fresh_store.opened() as (ledger, memories):
        assert ledger.lost is None
        fresh_store.save(memories)
    with fresh_store.elsewhere("another").opened() as (ledger, _):
        assert group in ledger.groups()


def test_message_of_another_version_is_not_overwritten_where_the_topic_was_read_in_part(
    fresh_store: Store, writer: ClusterWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6: read from its start again, after an election, it says nothing of what stands where reading failed."""
    monkeypatch.setattr("retention_cli.state.cluster_ledger._MESSAGES_AT_ONCE", 1)
    older, key = zlib.compress(b'{"at_ms":1,"since_ms":0,"version":3}\n{"what":"who knows"}'), "group:orders"
    clock = messages.encode(None, messages.Written(now_ms(), 0))
    for name, value in ((messages.CLOCK_KEY, clock), (key, older)):
        writer.append(STATE_TOPIC, name.encode(), value)
    honest = StateTopic.read

    def read(self: StateTopic, start: int, end: int) -> list[Message]:
        if start:
            raise BrokerError("no answer")
        return honest(self, start, end)

    with fresh_store.opened() as (ledger, memories):
        ledger.begin({})
        with ledger.transaction():
            ledger.db.execute("UPDATE state_topic SET log = 'an earlier leader epoch'")
        monkeypatch.setattr(StateTopic, "read", read)
        ledger.begin({})
        see(ledger, "orders", {"orders": {0: 5}}, now_ms())
        memories.save(now_ms())
        assert memories.unsaved
    monkeypatch.setattr(StateTopic, "read", honest)
    with fresh_store.elsewhere("other").opened() as (ledger, _):
        says(why(ledger.lost), "an older kretain wrote it")
    renew_state_topic(fresh_store.bootstrap)


def test_times_from_a_machine_with_a_wrong_clock_are_ignored(fresh_store: Store, writer: ClusterWriter) -> None:
    """G3: a clock that is behind would make records look older than they are; the brokers' stamp counts."""
    topic_id, at = new_topic_id(), now_ms() - 10 * MINUTE
    document = docs.TopicDocument(topic_id, "t", at, {0: PartitionMemory(pack([Sample(at, 500)]), data_at=(3,))})
    appended = writer.append(STATE_TOPIC, topic_id.encode(), messages.encode(document, messages.Written(at, 0)))
    at_ms = known(appended.broker_ms)
    with fresh_store.opened() as (ledger, memories):
        assert pick(ledger.partitions_of(topic_id)[0], "samples", "data_at") == ((Sample(at_ms, 500),), (3,))
        said = next(note.text for note in memories.notes if f"offset {appended.offset:,}:" in note.text)
        assert re.search("the clock of the machine that wrote it is 60.*behind the brokers'", said)


def test_commit_that_a_machine_with_a_clock_behind_saw_last_counts_elsewhere(fresh_store: Store) -> None:
    """F6: it counts for 30 days from when it was seen; by that machine's clock these are long over."""
    group, ids = new_topic_id(), {"orders": new_topic_id(), "payments": new_topic_id()}
    with fresh_store.opened(clock_ms=lambda: now_ms() - 40 * DAY) as (ledger, memories):
        ledger.begin(ids)
        see(ledger, group, {"orders": {0: 5}, "payments": {0: 3}}, now_ms() - 40 * DAY)
        see(ledger, group, {"orders": {0: 5}}, now_ms() - 40 * DAY)
        memories.save(now_ms() - 40 * DAY)
    with fresh_store.elsewhere("other").opened() as (ledger, _):
        ledger.begin(ids)
        (found,) = (rows for name, _, rows in ledger.gone_groups([], now_ms() - 30 * DAY) if name == group)
        assert {topic: rows[0][:2] for topic, rows in found.items()} == {"orders": (0, 5), "payments": (0, 3)}


@pytest.mark.parametrize("off_ms", [-40 * DAY, 40 * DAY])
def test_times_from_before_a_clock_was_corrected_are_ignored(fresh_store: Store, off_ms: int) -> None:
    """G3, F6: nor does the machine itself take them for right, or pass them on, once its clock is right again."""
    topic_id, group, began = new_topic_id(), new_topic_id(), now_ms()
    with fresh_store.opened(clock_ms=lambda: now_ms() + off_ms) as (ledger, memories):
        add_samples(ledger, topic_id, {0: Sample(now_ms() + off_ms, 10)})
        see(ledger, group, {"orders": {0: 5}}, now_ms() + off_ms)
        memories.save(now_ms() + off_ms)
    with fresh_store.opened() as (ledger, memories):
        add_samples(ledger, topic_id, {0: Sample(now_ms(), 20)})
        fresh_store.save(memories)
    for place in (fresh_store, fresh_store.elsewhere("other")):
        samples = samples_of(place, topic_id)
        assert [one.high_watermark for one in samples] == [10, 20]
        assert began <= samples[0].wall_ms <= samples[1].wall_ms <= now_ms()
        with place.opened() as (ledger, _):
            assert group in {name for name, *_ in ledger.gone_groups([], began - HOUR)}


@pytest.mark.parametrize("lost", ["_send", "_sync"], ids=["not sent", "not read back"])
def test_times_that_no_broker_has_checked_are_not_passed_on(fresh_store: Store, lost: str) -> None:
    """G3, F10: of what a killed run learned, what others know already keeps its times."""
    topic_id, began = new_topic_id(), now_ms()
    with fresh_store.opened() as (ledger, memories):
        add_samples(ledger, topic_id, {0: Sample(began - HOUR, 5)})
        fresh_store.save(memories)
    kill = f"ledger.{lost} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
    with fresh_store.script(f"""
ledger.begin({{"orders": {topic_id!r}}})
behind = int(time.time() * 1000) - 40 * 86_400_000
ledger._clock_ms = lambda: behind
ledger.partition("orders", {topic_id!r}, 0).add_sample(Sample(behind, 10))
ledger.saw_all("", (), behind, behind)
from retention_cli.memory.disk import DiskSample
ledger.disk("1:/data").add(DiskSample(behind, 50, 100))
{kill}
memories.save(behind)
""") as process:
        assert process.wait(60) == -signal.SIGKILL
    for _ in range(2):
        with fresh_store.opened() as (ledger, memories):
            add_samples(ledger, topic_id, {0: Sample(now_ms(), 20)})
            memories.save(now_ms())
    for place in (fresh_store, fresh_store.elsewhere("other")):
        samples = samples_of(place, topic_id)
        assert [one.high_watermark for one in samples] == [5, 10, 20]
        assert began - HOUR == samples[0].wall_ms
        assert began <= samples[1].wall_ms <= samples[2].wall_ms <= now_ms()
        with place.opened() as (ledger, _):
            assert ledger.watched_since("", (), now_ms()) is None
            assert ledger.disk("1:/data").samples == ()


def test_looks_from_before_a_clock_was_corrected_are_no_watch(fresh_store: Store) -> None:
    """F10: the first look was a moment ago, and not a day, by whichever machine."""
    with fresh_store.opened(clock_ms=lambda: now_ms() - DAY) as (ledger, memories):
        ledger.begin({})
        ledger.saw_all("", (), now_ms() - DAY, now_ms() - DAY)
        memories.save(now_ms() - DAY)
    began = now_ms()
    for place in (fresh_store, fresh_store.elsewhere("other")):
        with place.opened() as (ledger, memories):
            ledger.begin({})
            ledger.saw_all("", (), now_ms(), now_ms())
            assert known(ledger.watched_since("", (), now_ms())) >= began
            memories.save(now_ms())


@pytest.mark.parametrize("off_ms", [-DAY, DAY])
@pytest.mark.parametrize("sent", [True, False], ids=["sent", "not sent"])
def test_partition_is_younger_than_a_group_whichever_clock_is_wrong(
    fresh_store: Store, off_ms: int, *, sent: bool
) -> None:
    """F2: the group was seen, the partition was added, and two machines that run at once note one of them each.

    If a machine could not send its own, its clock may be right by the time that it does.
    """
    ids, group = {"grown": new_topic_id(), "orders": new_topic_id()}, new_topic_id()

    def look(ledger: Ledger, orders: int, at_ms: int, *groups: str, grown: int = 2) -> Ages:
        ledger.begin(ids)
        found = ledger.ages({"grown": grown, "orders": orders}, groups, at_ms)
        for topic, count in (("grown", grown), ("orders", orders)):
            ledger.partition(topic, ids[topic], count - 1).add_sample(Sample(at_ms, orders))
        for one in groups:
            see(ledger, one, {"orders": {0: 5}}, at_ms)
        return found

    other = fresh_store.elsewhere("other")
    with fresh_store.opened() as (right, right_memories):
        for grown in (1, 2):
            look(right, 1, now_ms() - 9 * DAY, grown=grown)
            fresh_store.save(right_memories)
        with other.opened(clock_ms=lambda: now_ms() + off_ms) as (wrong, wrong_memories):
            at_ms = now_ms() - HOUR
            if off_ms < 0:
                look(right, 1, at_ms, group)
                look(wrong, 2, at_ms + MINUTE + off_ms, group)
            else:
                look(wrong, 1, at_ms + off_ms, group)
                look(right, 2, at_ms + MINUTE, group)
            with pytest.MonkeyPatch.context() as patch:
                if not sent:
                    patch.setattr(StateTopic, "append", lambda _, some: [BrokerError("not now")] * len(some))
                wrong_memories.save(now_ms() + off_ms)
            right_memories.save(now_ms())
    for place in (other, fresh_store, fresh_store.elsewhere("third")):
        with place.opened() as (ledger, memories):
            assert look(ledger, 2, now_ms(), group).covered(group, "orders", 2) == 1
            memories.save(now_ms())


def test_group_that_was_not_sent_counts_from_when_it_may_have_been_seen(fresh_store: Store) -> None:
    """F6: the clock of then may have been 40 days behind. It counts for no longer than that."""
    group, began = new_topic_id(), now_ms()
    with fresh_store.opened(clock_ms=lambda: now_ms() - 40 * DAY) as (ledger, memories):
        ledger.begin({"orders": new_topic_id()})
        see(ledger, group, {"orders": {0: 5}}, now_ms() - 40 * DAY)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StateTopic, "append", lambda _, some: [BrokerError("not now")] * len(some))
            memories.save(now_ms() - 40 * DAY)
            times = set()
            for _ in range(2):
                with fresh_store.opened() as (later, _):
                    times.add(later.groups()[group].seen_ms)
    assert len(times) == 1
    assert began <= times.pop() <= now_ms()


def test_memory_that_a_new_topic_lacks_keeps_its_times_until_it_is_sent(fresh_store: Store) -> None:
    """G3, F10: a command that only reads the memory may come first, and a pass may read a partition again."""
    topic_id, at = new_topic_id(), now_ms() - DAY
    with Store("local", fresh_store.bootstrap, fresh_store.state_dir).opened() as (ledger, memories):
        add_samples(ledger, topic_id, {0: Sample(at, 5)})
        ledger.saw_all("", (), at, at)
        memories.save(now_ms())
    for _ in range(2):
        with fresh_store.opened() as (ledger, memories):
            for _ in range(2):
                ledger.begin({"orders": topic_id})
                assert ledger.partition("orders", topic_id, 0).samples == (Sample(at, 5),)
                assert ledger.watched_since("", (), now_ms()) == at
    with fresh_store.opened() as (ledger, memories):
        fresh_store.save(memories)
    assert samples_of(fresh_store.elsewhere("other"), topic_id) == (Sample(at, 5),)


def test_machine_with_a_wrong_clock_gets_a_note(fresh_store: Store) -> None:
    with fresh_store.opened(clock_ms=lambda: now_ms() + 10 * MINUTE) as (ledger, memories):
        add_samples(ledger, new_topic_id(), {0: Sample(1_000, 10)})
        memories.save(now_ms())
        assert re.search("this machine's clock is 5.*ahead of the brokers'", memories.notes[-1].text)


def test_group_seen_after_it_was_forgotten_is_remembered(fresh_store: Store, writer: ClusterWriter) -> None:
    """F6: a group that comes back counts again, also where the word of its end comes late."""
    group, seen = new_topic_id(), now_ms() + 30_000
    with fresh_store.opened() as (ledger, memories):
        see(ledger, group, {"orders": {0: 5}}, seen)
        fresh_store.save(memories)
    writer.append(STATE_TOPIC, b"group:" + group.encode(), None)
    with fresh_store.opened() as (ledger, memories):
        assert ledger.groups()[group].seen_ms == seen
        fresh_store.save(memories)
    with fresh_store.elsewhere("other").opened() as (ledger, _):
        assert group in ledger.groups()


def test_unusable_cache_of_a_shared_memory_counts_as_lost(fresh_store: Store) -> None:
    """A new local ledger begins with nothing; a shared one never does."""
    fresh_store.file.parent.mkdir(parents=True)
    fresh_store.file.write_bytes(b"this is no database, whatever its name says" * 100)
    with reader_for(fresh_store.bootstrap) as reader:
        memory = memories_of(fresh_store.state_dir, "cluster", reader)("the-cluster")
    assert (memory.on_disk, memory.lost is None) == (False, False)


@pytest.fixture(params=["local", "cluster"])
def shop(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> tuple[World, str, str]:
    """A topic of two partitions with a group that is there and one that is gone, remembered by a plan."""
    topic = world.filled(
        OLD, {"there": {0: 7, 1: 8}, "gone": {0: 3, 1: 4}}, 2, stem="shop", message_timestamp_type="CreateTime"
    )
    policy = written(
        tmp_path / "policy.yaml", f"state: {request.param}\n{consumed(topic)}\n    retention.max.eventtime.ms: 7d\n"
    )
    run(world, "plan", "-p", str(policy), check=0)
    world.delete_group(f"{topic}-gone")
    return world, topic, str(policy)


Shop = tuple[World, str, str]


def test_ledger_show_lists_what_is_remembered_of_a_topic_until_another_has_its_name(shop: Shop) -> None:
    world, topic, policy = shop
    stamps = [stamp for _, stamp in world.records(topic)]
    base = ("ledger", "show", topic, "-p", policy)
    shown = run(world, *base, "-o", "json", check=0).json()
    assert pick(shown, "format", "state") == ("kretain.ledger/v1", yaml.safe_load(Path(policy).read_text())["state"])
    first, second = shown["partitions"]
    assert (first["partition"], second["partition"], first["max_event_time"]) == (0, 1, max(stamps))
    assert pick(first, "samples", "newest_high_watermark", "oldest_high_watermark") == (1, 10, 10)
    assert [pick(seen, "group", "offset", "gone") for seen in first["groups"]] == [
        (f"{topic}-gone", 3, False),
        (f"{topic}-there", 7, False),
    ]
    assert yaml.safe_load(run(world, *base, "-o", "yaml", check=0).out) == shown
    rows = list(csv.DictReader(io.StringIO(run(world, *base, "-o", "csv", check=0).out)))
    assert rows[1]["groups"] == f"{topic}-gone 4; {topic}-there 8"
    says(run(world, *base, check=0).out, f"{topic}-0", f"{topic}-gone 3, {topic}-there 7")
    world.delete(topic)
    assert f"{topic}-1" in run(world, *base, check=0).out
    world.topic(name=topic)
    assert f"the ledger has nothing about topic {topic}" in run(world, *base, check=1).err


def test_groups_forget_removes_a_deleted_group_from_decisions(shop: Shop) -> None:
    """F6: until kretain groups forget."""
    world, topic, policy = shop

    def floors() -> list[int]:
        made = run(world, "plan", "-p", policy, "-o", "json", check=0).json()
        return [row["min_commit"] for row in made["partitions"]]

    def forget(*words: str, check: int = 0) -> Cli:
        return run(world, "groups", "forget", *words, "-p", policy, check=check)

    listed = run(world, "groups", "-p", policy, "--group", f"{topic}-*", "-o", "json", check=0).json()["groups"]
    gone = next(row for row in listed if row["group"] == f"{topic}-gone")
    assert pick(gone, "topics", "partitions", "lag") == ([topic], 2, 13)
    assert (gone["state"][:13], gone["counts"][:15]) == ("gone since 20", "counts until 20")
    both = forget(f"{topic}-gone", f"{topic}-never", check=1).err
    assert f"kretain remembers no group {topic}-never; nothing was forgotten" in both
    assert floors() == [3, 4]
    assert forget(f"{topic}-gone", "--dry-run").out == f"Would be forgotten: {topic}-gone, on 2 partitions of {topic}\n"
    command = [sys.executable, "-m", "kretain", "groups", "forget", f"{topic}-gone", "-p", policy]
    terminal = Terminal([*command, "-b", world.bootstrap, "--state-dir", str(world.state_dir)])
    shown = terminal.end(("[y/N]", "n\r"), code=6)
    assert f"Forget {topic}-gone, on 2 partitions of {topic}?" in " ".join(shown.split())
    assert floors() == [3, 4]
    # Shared options may stand before the subcommand too.
    assert run(world, "groups", "-p", policy, "forget", f"{topic}-gone", check=0).out == f"Forgotten: {topic}-gone\n"
    assert floors() == [7, 8]
    assert f"group {topic}-there still exists, and counts at its committed offsets" in forget(f"{topic}-there").err
    assert floors() == [7, 8]


def test_ledger_prune_forgets_old_deleted_groups_and_counts_them(shop: Shop) -> None:
    world, topic, policy = shop

    def prune(older_than: str, *more: str) -> str:
        return run(world, "ledger", "prune", "--older-than", older_than, *more, "-p", policy, check=0).out

    assert prune("1h") == "Forgotten: 0 topics and 0 groups.\n"
    dry = prune("0s", "--dry-run")
    assert dry.startswith("Would be forgotten: ")
    assert prune("0s") == dry.replace("Would be forgotten", "Forgotten"), (
        "the dry run forgot nothing, and told the same"
    )
    shown = run(world, "ledger", "show", topic, "-p", policy, "-o", "json", check=0).json()["partitions"]
    assert [pick(row, "samples", "groups") for row in shown] == [(1, []), (1, [])], "the topic is there, the groups go"
    world.delete(topic)
    assert "Forgotten: 1 topic and " in prune("0s")
    run(world, "ledger", "show", topic, "-p", policy, check=1)


@pytest.fixture(params=["local", "cluster"])
def either(request: pytest.FixtureRequest, kafka: EmbeddedKafka, tmp_path: Path) -> Store:
    if request.param == "cluster":
        renew_state_topic(kafka.bootstrap)
    return Store(request.param, kafka.bootstrap, tmp_path / "state")


def test_processes_saving_repeatedly_lose_nothing(either: Store) -> None:
    """A race between processes: of the same document, each with facts that only it has."""
    topic_id = new_topic_id()
    body = f"""
number = int(sys.argv[1])
for turn in range(6):
    ledger.begin({{"orders": {topic_id!r}}})
    ledger.partition("orders", {topic_id!r}, number).add_sample(Sample(1_000 + turn, turn))
    ledger.partition("orders", {topic_id!r}, 0).add_newest(EventMax(100 * turn + number, number), "CreateTime")
    store.save(memories)
"""
    with ExitStack() as stack:
        running = [stack.enter_context(either.elsewhere(f"pod-{n}").script(body, str(n))) for n in (1, 2, 3)]
        assert [one.wait(60) for one in running] == [0, 0, 0]
    with either.elsewhere("late").opened() as (ledger, _):
        found = ledger.partitions_of(topic_id)
        assert found[0].newest == EventMax(503, 3)
        for number in (1, 2, 3):
            assert found[number].samples == tuple(Sample(1_000 + turn, turn) for turn in range(6))


def test_kill_during_a_save_leaves_all_earlier_saves_readable(either: Store) -> None:
    """Kill −9: what a save has returned from is there, and nothing is half there."""
    topic_id = new_topic_id()
    body = f"""
turn = len(ledger.partition("orders", {topic_id!r}, 0).samples)
while True:
    turn += 1
    sample = Sample(int(time.time() * 1000), turn)
    ledger.begin({{"orders": {topic_id!r}}})
    for number in range(200):
        ledger.partition("orders", {topic_id!r}, number).add_sample(sample)
    store.save(memories)
    print(turn, flush=True)
"""
    for lines in (1, 2):
        with either.script(body) as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(lines)]
            time.sleep(0.004 * lines)  # somewhere in the next save
            process.kill()
            said += process.stdout.readlines()
        with either.opened() as (ledger, memories):
            assert memories.notes == []
            found = ledger.partitions_of(topic_id)
            last = {one.samples[-1] for one in found.values()}
            assert (len(found), len(last)) == (200, 1), "a save is one transaction"
            assert last.pop().high_watermark >= int(said[-1])
            either.save(memories)
    assert len(samples_of(either.elsewhere("new-pod"), topic_id, 199)) == len(found[199].samples)


def test_prune_forgets_what_is_old_and_no_longer_exists(either: Store) -> None:
    old, there, new, stem = (new_topic_id() for _ in range(4))
    long_ago = now_ms() - 40 * DAY
    with either.opened() as (ledger, memories):
        for topic_id in (old, there):
            add_samples(ledger, topic_id, {33: Sample(long_ago, 10)})
        see(ledger, f"{stem}-old", {"orders": {0: 5}}, long_ago)
        memories.save(long_ago)
        ledger.begin({"orders": new})
    with either.opened() as (ledger, memories):
        ledger.partition("payments", new, 0).add_sample(Sample(now_ms(), 10))
        see(ledger, f"{stem}-new", {"orders": {0: 5}}, now_ms())
        either.save(memories)
    with either.elsewhere("other").opened():  # it knows of them too, until it hears otherwise
        pass
    with either.opened() as (ledger, _):
        assert ledger.prune(now_ms() - 30 * DAY, keep={there}) == (1, 1)
    for place in (either, either.elsewhere("other"), either.elsewhere("late")):
        with place.opened() as (ledger, _):
            assert [set(ledger.partitions_of(topic_id)) for topic_id in (old, there, new)] == [set(), {33}, {0}]
            assert {name for name in ledger.groups() if name.startswith(stem)} == {f"{stem}-new"}
