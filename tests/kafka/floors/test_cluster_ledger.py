"""What only the shared ledger has to stand: other machines, foreign messages, a topic that is gone (docs/memory.md)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kretain.embedded import EmbeddedKafka
from retention_cli.core.model import Sample
from retention_cli.memory import documents as docs
from retention_cli.state.own_topics import STATE_TOPIC
from tests.support.ledger_stores import (
    Store,
    decide,
    last_documents,
    make_kretain_topics,
    new_topic_id,
    plan,
    renew_state_topic,
    samples_of,
    see,
)
from tests.support.world import HOUR, World, codes, consumed, now_ms

OLD = [30 * HOUR] * 10


@pytest.fixture(scope="module", autouse=True)
def _kretain_topics(kafka: EmbeddedKafka) -> None:
    renew_state_topic(kafka.bootstrap)


@pytest.fixture
def store(kafka: EmbeddedKafka, tmp_path: Path) -> Store:
    return Store("cluster", kafka.bootstrap, tmp_path / "state")


# -- another machine -----------------------------------------------------------------------


def test_new_machine_knows_deleted_groups(world: World) -> None:
    """F6: a group that another pod saw still counts here. On its own this machine would trim past it."""
    topic = world.filled(OLD, {"a": 7, "gone": 3})
    assert decide(world, consumed(topic), topic, "first").trim_to == 3
    world.delete_group(f"{topic}-gone")
    assert decide(world, consumed(topic), topic, "alone", "local").trim_to == 7
    found = decide(world, consumed(topic), topic, "second")
    assert (found.trim_to, found.min_commit_by) == (3, f"group:{topic}-gone")
    assert codes(found) == {"F6"}


def test_plan_shows_that_its_memory_is_shared_and_since_when(world: World) -> None:
    topic = world.filled(OLD)
    first, second = (plan(world, consumed(topic), machine) for machine in ("first", "second"))
    assert (first.memory, second.memory) == ("cluster", "cluster")
    assert first.memory_since_ms == second.memory_since_ms is not None


def test_local_memory_is_shared_when_state_becomes_cluster(store: Store) -> None:
    topic_id, group = new_topic_id(), new_topic_id()
    with Store("local", store.bootstrap, store.state_dir).opened() as (ledger, memories):
        ledger.begin({"orders": topic_id})
        ledger.partition("orders", topic_id, 0).add_sample(Sample(1_000, 10))
        see(ledger, group, {"orders": {0: 5}}, now_ms())
        store.save(memories)
    with store.opened() as (_, memories):
        store.save(memories)
    with store.elsewhere("other").opened() as (ledger, _):
        assert ledger.partitions_of(topic_id)[0].samples == (Sample(1_000, 10),)
        assert group in ledger.groups()


def test_last_message_of_each_key_contains_all_earlier_ones(store: Store) -> None:
    """Compaction leaves one message a key: a fact that only an earlier one has would be lost."""
    topic_id, other = new_topic_id(), store.elsewhere("other")
    with store.opened() as (mine, my_memories), other.opened() as (theirs, their_memories):
        for number, ledger in enumerate((mine, theirs), start=1):
            ledger.begin({"orders": topic_id})
            ledger.partition("orders", topic_id, number).add_sample(Sample(1_000, number))
            ledger.partition("orders", topic_id, 32).add_sample(Sample(1_000 * number, number))
        store.save(my_memories)
        other.save(their_memories)
    last = last_documents(store.bootstrap)
    first, second = last[topic_id], last[f"{topic_id}/1"]
    assert isinstance(first, docs.TopicDocument)
    assert isinstance(second, docs.TopicDocument)
    assert (first.name, set(first.partitions), set(second.partitions)) == ("orders", {1, 2}, {32})
    assert second.partitions[32].samples == (Sample(1_000, 1), Sample(2_000, 2))


@pytest.mark.parametrize("looked", [False, True])
def test_recheck_reads_what_others_wrote_since_the_plan(store: Store, *, looked: bool) -> None:
    """F6: its process may have waited for a person's answer, while a group was seen elsewhere and then deleted.

    So may a second recheck, whose process ``looked`` before and has not saved that yet.
    """
    topic_id, group, other = new_topic_id(), new_topic_id(), store.elsewhere("other")
    with store.opened() as (mine, _):
        mine.begin({"orders": topic_id})
        if looked:
            see(mine, f"{group}-own", {"orders": {0: 7}}, now_ms())
        with other.opened() as (theirs, memories):
            theirs.begin({"orders": topic_id})
            see(theirs, group, {"orders": {0: 5}}, now_ms())
            other.save(memories)
        assert group not in {name for name, *_ in mine.gone_groups([], 0)}
        mine.begin({"orders": topic_id})
        assert {group, *([f"{group}-own"] if looked else [])} <= {name for name, *_ in mine.gone_groups([], 0)}
        assert mine.lost is None


def test_idle_group_is_written_again_before_it_would_expire(store: Store) -> None:
    """F6: 30 days from when it was last seen, by whomever, not from when it last committed."""
    group, at = new_topic_id(), now_ms()
    for hours in (0, 2):
        with store.opened() as (ledger, memories):
            see(ledger, group, {"orders": {0: 5}}, at + hours * HOUR)
            memories.save(at + hours * HOUR)
    with store.elsewhere("other").opened() as (ledger, _):
        assert ledger.groups()[group].seen_ms == at + 2 * HOUR


def test_idle_group_counts_elsewhere_within_the_hour_between_writes(store: Store) -> None:
    """F6: seen 50 minutes after it was told of, and gone since, with an hour to remember it."""
    group, at, minute = new_topic_id(), now_ms(), 60_000
    for minutes in (0, 50):
        with store.opened() as (ledger, memories):
            see(ledger, group, {"orders": {0: 5}}, at + minutes * minute)
            memories.save(at + minutes * minute)
    with store.elsewhere("other").opened() as (ledger, _):
        assert ledger.groups()[group].seen_ms == at
        assert group in {name for name, *_ in ledger.gone_groups([], at + (50 + 60) * minute - HOUR)}
        assert group not in {name for name, *_ in ledger.gone_groups([], at + 1 + HOUR)}


def test_memory_of_a_local_run_in_between_is_shared(store: Store) -> None:
    """One machine, two policies: the cache knows when somebody wrote to it who tells nobody."""
    topic_id, local = new_topic_id(), Store("local", store.bootstrap, store.state_dir)
    for number, place in enumerate((store, local, store), start=1):
        with place.opened() as (ledger, memories):
            ledger.begin({"orders": topic_id})
            ledger.partition("orders", topic_id, 0).add_sample(Sample(1_000 * number, number))
            ledger.partition("orders", topic_id, 32 * number).add_sample(Sample(1_000, 1))
            store.save(memories)
    with store.elsewhere("other").opened() as (ledger, _):
        assert ledger.partitions_of(topic_id).keys() == {0, 32, 64, 96}
        assert len(ledger.partition("orders", topic_id, 0).samples) == 3


# -- a kill, a lost topic ----------------------------------------------------------------------


def test_next_run_sends_what_a_killed_run_did_not(store: Store) -> None:
    """The cache notes in one transaction what it learns and what it has to tell."""
    topic_id = new_topic_id()
    body = f"""
ledger.begin({{"orders": {topic_id!r}}})
ledger.partition("orders", {topic_id!r}, 0).add_sample(Sample(1_000, 10))
ledger._publish = lambda: os.kill(os.getpid(), signal.SIGKILL)
store.save(memories)
"""
    with store.script(body) as process:
        assert process.wait(60) == -signal.SIGKILL
    assert samples_of(store.elsewhere("other"), topic_id) == ()
    with store.opened() as (_, memories):
        store.save(memories)
    assert samples_of(store.elsewhere("other"), topic_id) == (Sample(1_000, 10),)


def test_missing_state_topic_holds_and_loses_nothing(world: World) -> None:
    """Unknown means hold; what a machine saw meanwhile, and all that it knew, is told once the topic is there again."""
    topic = world.filled(OLD, {"a": 7, "gone": 3})
    assert decide(world, consumed(topic), topic, "first").trim_to == 3
    world.delete_group(f"{topic}-gone")
    world.delete(STATE_TOPIC)
    try:
        for machine in ("first", "second"):
            held = decide(world, consumed(topic), topic, machine)
            assert held.action == "hold"
            text = " ".join(reason.text for reason in held.reasons if reason.code == "F6")
            assert (
                "topic _kretain_state does not exist, or this user may not read it: kretain cluster init creates it"
                in text
            )
    finally:
        make_kretain_topics(world.bootstrap)
    assert decide(world, consumed(topic), topic, "first").trim_to == 3
    assert decide(world, consumed(topic), topic, "third").trim_to == 3
