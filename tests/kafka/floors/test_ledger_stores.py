"""One suite that both stores of the ledger pass: SQLite alone, and the topic that all share (docs/memory.md)."""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from retention_cli.core.model import EventMax, Sample
from retention_cli.state.memories import Kind
from tests.support.clusters import EmbeddedKafka
from tests.support.ledger_stores import CLUSTER, Store, memories_of, new_topic_id, renew_state_topic, samples_of, see
from tests.support.world import DAY, now_ms, reader_for


@pytest.fixture(scope="module")
def topics(kafka: EmbeddedKafka) -> None:
    renew_state_topic(kafka.bootstrap)


@pytest.fixture(params=["local", "cluster"])
def store(request: pytest.FixtureRequest, kafka: EmbeddedKafka, topics: None, tmp_path: Path) -> Store:
    kind: Kind = request.param
    return Store(kind, kafka.bootstrap, tmp_path / "state")


def test_processes_saving_repeatedly_lose_nothing(store: Store) -> None:
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
        running = [stack.enter_context(store.elsewhere(f"pod-{n}").script(body, str(n))) for n in (1, 2, 3)]
        assert [one.wait(60) for one in running] == [0, 0, 0]
    with store.elsewhere("late").opened() as (ledger, _):
        found = ledger.partitions_of(topic_id)
        assert found[0].newest == EventMax(503, 3)
        for number in (1, 2, 3):
            assert found[number].samples == tuple(Sample(1_000 + turn, turn) for turn in range(6))


def test_kill_during_a_save_leaves_all_earlier_saves_readable(store: Store) -> None:
    """Kill −9: what a save has returned from is there, and nothing is half there."""
    topic_id = new_topic_id()
    body = f"""
turn = len(ledger.partition("orders", {topic_id!r}, 0).samples)
while True:
    turn += 1
    ledger.begin({{"orders": {topic_id!r}}})
    for number in range(200):
        ledger.partition("orders", {topic_id!r}, number).add_sample(Sample(turn, turn))
    store.save(memories)
    print(turn, flush=True)
"""
    for lines in (1, 2):
        with store.script(body) as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(lines)]
            time.sleep(0.004 * lines)  # somewhere in the next save
            process.kill()
            said += process.stdout.readlines()
        saved = int(said[-1])
        with store.opened() as (ledger, memories):
            assert memories.notes == []
            found = ledger.partitions_of(topic_id)
            last = {one.samples[-1] for one in found.values()}
            assert len(found) == 200
            assert len(last) == 1, "a save is one transaction"
            assert last.pop().high_watermark >= saved
            store.save(memories)
    assert len(samples_of(store.elsewhere("new-pod"), topic_id, 199)) == len(found[199].samples)


def test_ledger_of_a_newer_version_is_refused_unchanged(store: Store) -> None:
    """What can't be understood is not new: everything that depends on it is unknown, and held."""
    with store.opened() as (_, memories):
        store.save(memories)
    with sqlite3.connect(store.file) as db:
        db.execute("PRAGMA user_version = 99")
    before = store.file.read_bytes()
    with reader_for(store.bootstrap) as reader:
        memories = memories_of(store.state_dir, store.kind, reader)
        lost = memories(CLUSTER).lost
        memories.save(now_ms())
        memories.close()
    assert lost is not None
    assert "written by a newer kretain (schema 99" in lost.reasons[0].text
    assert store.file.read_bytes() == before


def test_prune_forgets_what_is_old_and_no_longer_exists(store: Store) -> None:
    old, there, new = new_topic_id(), new_topic_id(), new_topic_id()
    stem = new_topic_id()
    long_ago = now_ms() - 40 * DAY
    with store.opened() as (ledger, memories):
        for topic_id in (old, there):
            ledger.begin({"orders": topic_id})
            ledger.partition("orders", topic_id, 33).add_sample(Sample(long_ago, 10))
        see(ledger, f"{stem}-old", {"orders": {0: 5}}, long_ago)
        memories.save(long_ago)
        ledger.begin({"orders": new})
    with store.opened() as (ledger, memories):
        ledger.partition("payments", new, 0).add_sample(Sample(now_ms(), 10))
        see(ledger, f"{stem}-new", {"orders": {0: 5}}, now_ms())
        store.save(memories)
    with store.elsewhere("other").opened():  # it knows of them too, until it hears otherwise
        pass
    with store.opened() as (ledger, _):
        topics, groups = ledger.prune(now_ms() - 30 * DAY, keep={there})
        assert (topics, groups) == (1, 1)
    for place in (store, store.elsewhere("other"), store.elsewhere("late")):
        with place.opened() as (ledger, _):
            assert ledger.partitions_of(old) == {}
            assert ledger.partitions_of(there).keys() == {33}
            assert ledger.partitions_of(new).keys() == {0}
            assert {name for name in ledger.groups() if name.startswith(stem)} == {f"{stem}-new"}
