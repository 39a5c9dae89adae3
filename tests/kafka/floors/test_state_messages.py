"""Messages in the state topic that nobody here wrote: broken, newer, from a wrong clock (docs/memory.md)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kretain.embedded import EmbeddedKafka
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.model import Sample
from retention_cli.memory import documents as docs
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.samples import pack
from retention_cli.state import messages
from retention_cli.state.own_topics import STATE_TOPIC
from tests.support.ledger_stores import Store, decide, memories_of, new_topic_id, plan, renew_state_topic, see
from tests.support.world import HOUR, World, consumed, now_ms, reader_for

OLD = [30 * HOUR] * 10


@pytest.fixture
def store(kafka: EmbeddedKafka, tmp_path: Path) -> Store:
    renew_state_topic(kafka.bootstrap)
    return Store("cluster", kafka.bootstrap, tmp_path / "state")


@pytest.fixture
def writer(kafka: EmbeddedKafka, store: Store) -> Iterator[ClusterWriter]:
    with reader_for(kafka.bootstrap) as reader, ClusterWriter(reader.settings, {STATE_TOPIC}, 30) as made:
        yield made


def message(document: docs.Document, at_ms: int | None = None) -> bytes:
    return messages.encode(document, messages.Written(now_ms() if at_ms is None else at_ms, 0))


def test_unreadable_group_message_holds_when_it_is_the_only_one(
    world: World, store: Store, writer: ClusterWriter
) -> None:
    """It may have stood anywhere: every floor is unknown until it is forgotten, or seen again."""
    topic = world.filled(OLD, {"a": 7})
    at = writer.append(STATE_TOPIC, b"group:" + topic.encode(), b"rubbish")
    try:
        made = plan(world, consumed(topic), "first")
        place = f"_kretain_state-0 offset {at.offset:,}"
        assert next(note.text for note in made.notes if place in note.text).endswith("; ignored")
        for _ in range(2):  # the second look doesn't read the message again, and knows
            held = decide(world, consumed(topic), topic, "first")
            assert held.action == "hold"
            told = [reason.text for reason in held.reasons if reason.code == "F6"]
            assert place in told[0]
            assert told[0].endswith(f"if it won't come back: kretain groups forget -b HOST:PORT {topic}")
    finally:
        with store.opened() as (ledger, _):
            assert ledger.forget_group(topic)
    assert decide(world, consumed(topic), topic, "first").trim_to == 7


def test_unreadable_message_is_replaced_when_more_is_known(store: Store, writer: ClusterWriter) -> None:
    group = new_topic_id()
    with store.opened() as (ledger, memories):
        see(ledger, group, {"orders": {0: 5}}, now_ms())
        store.save(memories)
    writer.append(
        STATE_TOPIC,
        b"group:" + group.encode(),
        zlib.compress(b'{"at_ms":1,"since_ms":0,"version":4}\n{"name":"another"}'),
    )
    with store.opened() as (ledger, memories):
        assert ledger.lost is None
        assert len(memories.notes) == 1
        assert ledger.groups()[group].live.commits() == {("orders", 0): (5, None)}
        memories.save(now_ms())
    with store.elsewhere("other").opened() as (ledger, _):
        assert ledger.groups()[group].live.commits() == {("orders", 0): (5, None)}


@pytest.mark.parametrize("value", [b"", b"rubbish", zlib.compress(b"[1]"), zlib.compress(b'{"v":3,"at":1,"since":0}')])
def test_unreadable_topic_message_is_named_and_only_lowers_bounds(
    store: Store, writer: ClusterWriter, value: bytes
) -> None:
    """Samples and event times that are missing make less go, not more: nothing else needs to be held."""
    topic_id = new_topic_id()
    at = writer.append(STATE_TOPIC, topic_id.encode(), value)
    with store.opened() as (ledger, memories):
        assert ledger.lost is None
        assert ledger.partitions_of(topic_id) == {}
        named = [note.text for note in memories.notes if f"offset {at.offset:,}, key {topic_id}: " in note.text]
        assert len(named) == 1


def test_message_of_a_newer_version_holds_and_is_not_overwritten(store: Store, writer: ClusterWriter) -> None:
    topic_id = new_topic_id()
    with store.opened() as (ledger, memories):
        ledger.begin({"orders": topic_id})
        ledger.partition("orders", topic_id, 0).add_sample(Sample(1_000, 10))
        store.save(memories)
    newer = zlib.compress(b'{"at_ms":1,"since_ms":0,"version":5}\n{"what":"who knows"}')
    writer.append(STATE_TOPIC, topic_id.encode(), newer)
    try:
        with store.opened() as (ledger, memories):
            assert ledger.lost is not None
            assert "a newer kretain wrote it (version 5, this one knows 4)" in ledger.lost.reasons[0].text
            ledger.partition("orders", topic_id, 0).add_sample(Sample(2_000, 20))
            memories.save(now_ms())
            assert "remembered only on this machine" in memories.notes[-1].text
    finally:
        writer.append(STATE_TOPIC, topic_id.encode(), None)


def test_times_from_a_machine_with_a_wrong_clock_are_ignored(store: Store, writer: ClusterWriter) -> None:
    """G3: a clock that is behind would make records look older than they are; the brokers' stamp tells."""
    topic_id, at = new_topic_id(), now_ms() - 10 * 60_000
    wrong = PartitionMemory(pack([Sample(at, 500)]), data_at=(3,))
    appended = writer.append(
        STATE_TOPIC, topic_id.encode(), message(docs.TopicDocument(topic_id, "t", at, {0: wrong}), at)
    )
    with store.opened() as (ledger, memories):
        one = ledger.partitions_of(topic_id)[0]
        assert one.samples == ()
        assert one.data_at == (3,)
        said = next(note.text for note in memories.notes if f"offset {appended.offset:,}:" in note.text)
        assert "the clock of the machine that wrote it is 60" in said
        assert "behind the brokers'" in said


def test_machine_with_a_wrong_clock_gets_a_note(store: Store) -> None:
    topic_id = new_topic_id()
    with store.opened(clock_ms=lambda: now_ms() + 10 * 60_000) as (ledger, memories):
        ledger.begin({"orders": topic_id})
        ledger.partition("orders", topic_id, 0).add_sample(Sample(1_000, 10))
        memories.save(now_ms())
        assert "this machine's clock is 5" in memories.notes[-1].text
        assert "ahead of the brokers'" in memories.notes[-1].text


def test_group_seen_after_it_was_forgotten_is_remembered(store: Store, writer: ClusterWriter) -> None:
    """F6: a group that comes back counts again, also where the word of its end comes late."""
    group, seen = new_topic_id(), now_ms() + 30_000
    with store.opened() as (ledger, memories):
        see(ledger, group, {"orders": {0: 5}}, seen)
        store.save(memories)
    writer.append(STATE_TOPIC, b"group:" + group.encode(), None)
    with store.opened() as (ledger, memories):
        assert ledger.groups()[group].seen_ms == seen
        store.save(memories)
    with store.elsewhere("other").opened() as (ledger, _):
        assert group in ledger.groups()


def test_unusable_cache_of_a_shared_memory_counts_as_lost(store: Store) -> None:
    """A new local ledger begins with nothing; a shared one never does."""
    store.file.parent.mkdir(parents=True)
    store.file.write_bytes(b"this is no database, whatever its name says" * 100)
    with reader_for(store.bootstrap) as reader:
        memory = memories_of(store.state_dir, "cluster", reader)("the-cluster")
    assert not memory.on_disk
    assert memory.lost is not None
