"""One suite that both stores of the ledger pass: SQLite alone, and the topic that all share (docs/memory.md)."""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kretain.embedded import EmbeddedKafka
from retention_cli.core.model import EventMax, Sample
from retention_cli.memory.event_scan import EventScan
from retention_cli.memory.positions import LogNow, Position
from retention_cli.state.memories import Kind
from tests.support.groups import judge_ledger
from tests.support.ledger_stores import CLUSTER, Store, memories_of, new_topic_id, renew_state_topic, samples_of, see
from tests.support.world import now_ms, reader_for

DAY = 86_400_000


@pytest.fixture(scope="module")
def topics(kafka: EmbeddedKafka) -> None:
    renew_state_topic(kafka.bootstrap)


@pytest.fixture(params=["local", "cluster"])
def store(request: pytest.FixtureRequest, kafka: EmbeddedKafka, topics: None, tmp_path: Path) -> Store:
    kind: Kind = request.param
    return Store(kind, kafka.bootstrap, tmp_path / "state")


def test_partition_memory_survives_a_reopen(store: Store) -> None:
    """Samples (G3), the newest event time (R2), where data stands (look-ups), how far records were read (R2)."""
    topic_id = new_topic_id()
    scan = EventScan("header:at", 0, 0)
    scan.add(7, 1_234)
    with store.opened() as (ledger, memories):
        ledger.begin({"orders": topic_id})
        one = ledger.partition("orders", topic_id, 40)
        one.add_sample(Sample(1_000, 10))
        one.add_sample(Sample(2_000, 25))
        one.add_newest(EventMax(5_000, 9), "CreateTime")
        one.add_data(9)
        one.note(scan=scan.as_bytes())
        ledger.partition("orders", topic_id, 0).add_sample(Sample(1_000, 3))
        store.save(memories)
    for place in (store, store.elsewhere("new-pod")):
        with place.opened() as (ledger, _):
            one = ledger.partition("orders", topic_id, 40)
            assert one.samples == (Sample(1_000, 10), Sample(2_000, 25))
            assert one.newest == EventMax(5_000, 9)
            assert one.data_at == (9,)
            assert one.scan == scan.as_bytes()
            assert ledger.partition("orders", topic_id, 0).samples == (Sample(1_000, 3),)
            assert ledger.topics()[topic_id][0] == "orders"
            assert ledger.since_ms is not None


def test_deleted_group_is_remembered_with_its_last_commits(store: Store) -> None:
    """F6, and what F5 refused; a commit that vanished alone is gone too."""
    orders, stem = new_topic_id(), new_topic_id()
    gone, shrunk = f"{stem}-gone", f"{stem}-shrunk"
    at = now_ms()
    with store.opened() as (ledger, memories):
        ledger.begin({"orders": orders})
        see(ledger, gone, {"orders": {0: 5, 1: 7}}, at)
        see(ledger, shrunk, {"orders": {0: 5, 1: 99}}, at)
        judge_ledger(ledger, lambda _place: LogNow(50, 3), ("orders",), ())
        store.save(memories)
    with store.elsewhere("new-pod").opened() as (ledger, memories):
        ledger.begin({"orders": orders})
        known = ledger.saw_group(shrunk, {"orders": [(1, 99, None)]}, at + 1, at - 1)
        assert known.gone == {"orders": [(0, 5, 3)]}
        assert known.refused == {("orders", 1): (99, None)}
        found = {name: (seen, rows) for name, seen, rows in ledger.gone_groups([shrunk], at - 1)}
        assert found[gone] == (at, {"orders": [(0, 5, 3), (1, 7, 3)]})
        assert not [name for name, *_ in ledger.gone_groups([shrunk], at + 2 * 3_600_000) if name.startswith(stem)]
        store.save(memories)
    with store.opened() as (ledger, _):
        assert ledger.groups()[shrunk].gone == {("orders", 0): Position(5, None, 3, at)}


@pytest.mark.parametrize("anew", [False, True])
def test_unchanged_memory_does_not_overwrite_what_others_wrote(store: Store, *, anew: bool) -> None:
    """Of two processes on one file, one reads a fact, the other changes it, the first one writes twice."""
    topic_id, other = new_topic_id(), store.elsewhere("other")
    with store.opened() as (ledger, memories):
        ledger.begin({"orders": topic_id})
        ledger.partition("orders", topic_id, 0).add_newest(EventMax(3, 3), "CreateTime")
        store.save(memories)
    with store.opened() as (mine, my_memories):
        mine.begin({"orders": topic_id})
        mine.partition("orders", topic_id, 0).add_newest(EventMax(1, 1), "CreateTime")
        mine.partition("orders", topic_id, 1).add_sample(Sample(1_000, 1))
        with other.opened() as (theirs, their_memories):
            theirs.begin({"orders": topic_id})
            theirs.partition("orders", topic_id, 0).add_newest(EventMax(9_000, 9), "CreateTime")
            other.save(their_memories)
        store.save(my_memories)
        if anew:  # another pass of the same process: it knows what was written meanwhile
            mine.begin({"orders": topic_id})
            assert mine.partition("orders", topic_id, 0).newest == EventMax(9_000, 9)
        mine.partition("orders", topic_id, 0).add_newest(EventMax(101, 1), "CreateTime")
        store.save(my_memories)
    for place in (store, store.elsewhere("late")):
        with place.opened() as (ledger, _):
            assert ledger.partitions_of(topic_id)[0].newest == EventMax(9_000, 9)


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
