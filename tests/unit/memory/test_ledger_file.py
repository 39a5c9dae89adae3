"""The ledger's file, damaged or older (docs/memory.md), and what a task has read with a part of it (F5, F6, M2)."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from retention_cli.audit.log import AuditLog, NamedLedger
from retention_cli.core.model import EventMax, Sample, TopicPartition, Unknown
from retention_cli.core.state_dir import StateError, cluster_folder
from retention_cli.memory.disk import DiskSample
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.ledger_file import SCHEMA_VERSION, SharedCache
from retention_cli.memory.partition import Front, PartitionMemory
from retention_cli.memory.positions import LogNow, Positions, Rows
from retention_cli.state.memories import (
    Handed,
    HandedMemories,
    Memories,
    changes,
    hand_groups,
    hand_over,
    hand_partitions,
    missing_since,
    take_back,
)
from retention_cli.trim.journal import AuditJournal
from tests.support.facts import NOW, why
from tests.support.ledgers import COMMITS, IDS, LOGS, TOPIC_IDS as SOME_IDS, filled, judge_ledger
from tests.support.plans import plan, row
from tests.support.processes import no_room
from tests.support.says import refusal


def remembered(folder: Path) -> tuple[object, ...]:
    with Ledger(folder) as ledger:
        ledger.begin(IDS)
        partitions = [ledger.partition(topic, IDS[topic], number) for topic in IDS for number in range(2)]
        return (
            [(one.samples, one.newest, one.front, one.created_below, one.leader_epoch) for one in partitions],
            sorted((name, rows) for name, _seen, rows in ledger.gone_groups((), 0)),
        )


def named(folder: Path) -> NamedLedger:
    """Return what the audit log says of this ledger."""
    with Ledger(folder) as ledger:
        return NamedLedger(ledger.ledger_id, ledger.revision)


def opening(state_dir: Path) -> tuple[str, list[str]]:
    """Open the memory of cluster c1; return why it is lost, nothing where it is there, and the notes."""
    with closing(Memories(state_dir)) as memories:
        return why(memories("c1").lost), [one.text for one in memories.notes]


def test_saved_ledger_reads_back_unchanged(tmp_path: Path) -> None:
    filled(tmp_path / "c1")
    each = ((Sample(1_000, 1_000), Sample(2_000, 2_000)), EventMax(2_000, 7), Front(5, True), 2_000, 3)
    assert remembered(tmp_path / "c1") == (
        [each] * 4,
        [
            ("g0", {topic: [(0, 10, 3), (1, 3, 2)] for topic in sorted(IDS)}),
            *((f"g{n}", {topic: [(0, 20 + n, 3), (1, 3, 2)] for topic in sorted(IDS)}) for n in (1, 2)),
        ],
    )


@pytest.mark.parametrize("seed", range(12))
def test_damaged_ledger_is_refused_or_reads_back_unchanged(tmp_path: Path, seed: int) -> None:
    """A bit that flips may be in space that nobody uses; it may never change what is remembered (F6, G3)."""
    path = filled(tmp_path / "c1")
    rng, whole, truth = random.Random(seed), path.read_bytes(), remembered(tmp_path / "c1")
    refusals = []
    for _ in range(60):
        broken = bytearray(whole)
        for _ in range(rng.choice([1, 1, 4])):
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        try:
            assert remembered(tmp_path / "c1") == truth
        except StateError as error:
            refusals.append(str(error))
    assert refusals, "nothing was ever found damaged"
    for text in refusals:
        assert re.fullmatch(".*(can't be used|newer kretain).*", text), "one line, that says which"


@pytest.fixture(scope="module")
def full_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with rows in each of its tables."""
    path = filled(tmp_path_factory.mktemp("full") / "c1")
    with Ledger(path.parent) as ledger:
        ledger.begin(IDS)
        for partitions, group in ((2, "old"), (3, "new")):
            ledger.ages({"orders": partitions}, [group], 3_000)
        ledger.disk("1:/data").add(DiskSample(5, 1, 10))
        ledger.save(3_000)
        with ledger.transaction():
            cache = SharedCache(ledger.db)
            cache.read_up_to("id", 5, 7)
            cache.mark(["group:a", "group:b"], 7)
            cache.not_read("group:b", "what", other_version=False)
            cache.saw_shared("a", 5)
    assert remembered(path.parent)
    return path


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM groups WHERE name = 'g1'",
        "DELETE FROM groups",
        "DELETE FROM partitions WHERE partition = 1",
        "UPDATE groups SET name = 'g9' WHERE name = 'g1'",
        "UPDATE groups SET seen_ms = 0",
        "UPDATE groups SET doc = (SELECT doc FROM groups WHERE name = 'g2') WHERE name = 'g1'",
        "UPDATE partitions SET topic_id = 'id-3' WHERE topic_id = 'id-1'",
        "UPDATE partitions SET doc = '{}'",
        "UPDATE partitions SET doc = replace(doc, 'created_below', 'x')",
        "UPDATE about SET value = 'c2' WHERE key = 'folder'",
        "DELETE FROM meta",
        "DELETE FROM widths",
        "DELETE FROM born",
        "DELETE FROM disks",
        "UPDATE state_topic SET next_offset = 9",
        "UPDATE state_topic SET log = 'other'",
        "DELETE FROM unsent WHERE key = 'group:a'",
        "UPDATE unread SET key = 'group:c'",
        "UPDATE shared_seen SET seen_ms = 9",
    ],
)
def test_ledger_with_a_row_missing_added_or_changed_is_refused(
    full_ledger: Path, tmp_path: Path, statement: str
) -> None:
    """What a shared one knows of its topic is sealed, too: a position further on passes over what others saw (F6)."""
    folder = shutil.copytree(full_ledger.parent, tmp_path / "c1")
    with sqlite3.connect(folder / full_ledger.name) as db:
        assert db.execute(statement).rowcount
    assert "can't be used" in refusal(StateError, remembered, folder)


def test_ledger_of_another_cluster_is_refused(tmp_path: Path) -> None:
    shutil.copytree(filled(tmp_path / "c1").parent, tmp_path / "c2")
    assert "it is the ledger of another cluster (c1)" in refusal(StateError, remembered, tmp_path / "c2")


def test_empty_file_in_place_of_a_known_ledger_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "c1")
    known = named(tmp_path / "c1")
    path.write_bytes(b"")
    assert "it is not the previous ledger" in refusal(StateError, Ledger, tmp_path / "c1", known)
    shutil.rmtree(tmp_path / "c1")
    with Ledger(tmp_path / "c1", known) as ledger:  # moved away: that is how one starts over
        assert (ledger.was_reset, ledger.replaces) == (True, known.ledger_id)
        assert "is missing: what it remembered no longer counts" in missing_since(ledger, known)[0].text
    with Ledger(tmp_path / "c1", known) as ledger:
        assert (ledger.was_reset, missing_since(ledger, known)) == (False, [])


def test_ledger_not_named_by_the_audit_log_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "c1")
    assert "the audit log names" in refusal(StateError, Ledger, tmp_path / "c1", NamedLedger("f" * 32, 1))


def test_ledger_restored_from_before_the_last_trim_is_noted(tmp_path: Path) -> None:
    filled(tmp_path / "c1")
    now = named(tmp_path / "c1")
    with Ledger(tmp_path / "c1", now) as ledger:
        assert missing_since(ledger, now) == []
        assert "is older than the last trim" in missing_since(ledger, now._replace(revision=now.revision + 1))[0].text


def test_file_replacing_the_ledger_named_by_the_audit_log_counts_as_lost_memory(tmp_path: Path) -> None:
    """Whatever takes its place, an empty file, another's, is lost memory: everything that went by it holds."""
    path = filled(tmp_path / "c1")
    with closing(Memories(tmp_path)) as memories:
        AuditJournal(AuditLog(tmp_path / "c1"), "r1", lambda: 0).begin(plan(row()), None, memories.named("c1"))
        assert memories.notes == []
    for bad in (b"", path.read_bytes()[:100], b"SQLite format 3\0"):
        path.write_bytes(bad)
        assert "restore it, or move it away" in opening(tmp_path)[0]
    path.unlink()  # moved away: that is how one starts over
    lost, notes = opening(tmp_path)
    assert (lost, "is missing" in notes[0]) == ("", True)
    path.write_bytes(b"")
    (tmp_path / "c1" / "audit.jsonl").unlink()  # nothing says that there was one: a run may have died at its first step
    assert opening(tmp_path)[0] == ""


@pytest.mark.parametrize(
    ("version", "why"),
    [(SCHEMA_VERSION - 1, "before its first release"), (99, "written by a newer kretain (schema 99")],
)
def test_ledger_of_another_version_is_refused_and_left_unchanged(tmp_path: Path, version: int, why: str) -> None:
    """An older one was never released, a newer one can't be understood: what it remembers is unknown, not new (F6)."""
    path = filled(tmp_path / "c1")
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version={version}")
    before = path.read_bytes()
    for _ in range(2):
        assert why in refusal(StateError, Ledger, tmp_path / "c1")
        assert opening(tmp_path)[0]
    assert path.read_bytes() == before


def test_large_ledger_is_sealed_in_little_memory(tmp_path: Path) -> None:
    filled(tmp_path / "c1")
    with Ledger(tmp_path / "c1") as ledger, ledger.transaction():
        ledger.db.executemany(
            "INSERT INTO partitions VALUES (?, ?, ?, ?)",
            (("A" * 22, number, 2**31 + number, b"{}") for number in range(60_000)),
        )
    tracemalloc.start()
    with Ledger(tmp_path / "c1"):  # compares the seal
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000, "all of it is 2 MB, and was there three times"


CLOSED_WHILE_USED = """
import sys, threading
from pathlib import Path
from retention_cli.memory.disk import DiskSample
from retention_cli.memory.ledger import Ledger

ledger = Ledger(Path(sys.argv[1]))
COUNT = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000000) SELECT count(*) FROM c"
began, told = threading.Event(), []

def use():
    with ledger.transaction():
        ledger.db.set_progress_handler(began.set, 1000)  # it is called while SQLite counts
        told.extend(ledger.db.execute(COUNT).fetchone())

thread = threading.Thread(target=use)
thread.start()
began.wait()
ledger.close()
print(told)
thread.join()
"""


def test_ledger_close_waits_until_no_thread_uses_it(tmp_path: Path) -> None:
    """Who was interrupted closes it, whatever still works for him: SQLite would end the process with a SIGSEGV."""
    done = subprocess.run(
        [sys.executable, "-c", CLOSED_WHILE_USED, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "[1000000]\n"), done.stderr


# -- two processes on one ledger: a look knows what others have saved, also while it has not saved its own (F6) --


ONE, UP_TO_1000 = {"a": "x"}, LogNow(1_000, 1)


def look(
    ledger: Ledger, groups: Mapping[str, int], now_ms: int, log: LogNow | None = UP_TO_1000, *, save: bool = False
) -> dict[str, Rows]:
    """Look at the commits of these groups on one partition; return the groups that are gone, and where they count.

    The commits are judged by this log, unless it is not read.
    """
    ledger.begin(ONE)
    for name, offset in groups.items():
        ledger.saw_group(name, {"a": [(0, offset, 1)]}, now_ms, 0)
    gone = {name: rows for name, _seen_ms, rows in ledger.gone_groups(groups, 0)}
    if log is not None:
        judge_ledger(ledger, lambda _place: log, ("a",), [])
    if save:
        ledger.save(now_ms)
    return gone


@pytest.mark.parametrize("rechecks", [0, 1, 2])
def test_recheck_counts_groups_that_another_run_saw_since_the_last_one(tmp_path: Path, rechecks: int) -> None:
    """It is gone by now, and counts where it stood; so does a group that another run has seen go back."""
    with closing(Ledger(tmp_path / "c")) as mine, closing(Ledger(tmp_path / "c")) as theirs:
        look(mine, {"g": 500}, 1_000, save=True)
        for number in range(rechecks):
            look(mine, {"g": 501 + number}, 100_000 + number)
        look(theirs, {"g": 100, "h": 50}, 200_000, save=True)
        assert look(mine, {}, 300_000) == {"g": {"a": [(0, 100, 1)]}, "h": {"a": [(0, 50, 1)]}}


def saw_newest(ledger: Ledger, newest: EventMax) -> PartitionMemory:
    memory = ledger.partition("a", "x", 0)
    memory.newest, memory.changed = newest, True
    return memory


def test_unsaved_changes_are_merged_and_saved_with_those_of_another_run(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "c")) as mine, closing(Ledger(tmp_path / "c")) as theirs:
        look(mine, {"g": 500, "old": 7}, 1_000, save=True)
        look(mine, {"g": 501, "old": 7, "new": 3}, 100_000)
        one = saw_newest(mine, EventMax(5_000, 12))
        look(theirs, {"h": 50}, 200_000)
        saw_newest(theirs, EventMax(9_000, 40))
        theirs.forget_group("old")
        theirs.save(200_000)
        assert look(mine, {"g": 501, "new": 3}, 300_000) == {"h": {"a": [(0, 50, 1)]}}
        assert mine.partition("a", "x", 0) is one
        assert one.newest == EventMax(9_000, 40)
        mine.save(300_000)
    with Ledger(tmp_path / "c") as again:
        again.begin(ONE)
        assert (
            {name: group.counted["a", 0].offset for name, group in again.groups().items()},
            again.partition("a", "x", 0).newest,
        ) == ({"g": 501, "new": 3, "h": 50}, EventMax(9_000, 40))


def test_commit_seen_by_another_run_is_not_judged_by_logs_read_before(tmp_path: Path) -> None:
    """They would seem to lie beyond a log that has grown since: refused, and forgotten once the group is gone (F6)."""
    with closing(Ledger(tmp_path / "c")) as mine, closing(Ledger(tmp_path / "c")) as theirs:
        look(mine, {"g": 5}, 1_000, None, save=True)
        look(mine, {"g": 5}, 100_000, None)
        look(theirs, {"g": 400}, 200_000, None, save=True)
        judge_ledger(mine, lambda _place: LogNow(300, 1), ("a",), [])
        mine.save(300_000)
    with Ledger(tmp_path / "c") as again:
        again.begin(ONE)
        assert [(one.open["a", 0].offset, len(one.refused)) for one in again.groups().values()] == [(400, 0)]


def test_save_of_another_run_after_our_failed_save_is_noticed(tmp_path: Path) -> None:
    """The revision that could not be written is theirs now: it must not be taken for the one that we know (F6)."""
    many = {f"m{number}": 500 for number in range(200)}
    gone = {"g": {"a": [(0, 100, 1)]}, "h": {"a": [(0, 50, 1)]}}
    with closing(Ledger(tmp_path / "c")) as mine, closing(Ledger(tmp_path / "c")) as theirs:
        look(mine, {"g": 500}, 1_000, save=True)
        look(mine, {"g": 501, **many}, 100_000)
        before = mine.revision
        with no_room(mine.path.stat().st_size):  # writing is fine then until it is committed
            assert "disk" in refusal(StateError, mine.save, 100_000)
        assert mine.revision == before
        look(theirs, {"g": 100, "h": 50}, 200_000, save=True)
        assert mine.others_wrote
        assert look(mine, many, 300_000, save=True) == gone
    with Ledger(tmp_path / "c") as again:
        assert look(again, many, 400_000) == gone


@pytest.mark.parametrize("name", ["g", "\x01file:f"])
def test_group_seen_twice_before_a_save_keeps_the_later_sighting(tmp_path: Path, name: str) -> None:
    """F6: its look was interrupted, the next one found it unchanged. Gone by now, it counts from when it was seen last."""
    with closing(Ledger(tmp_path / "c")) as mine:
        look(mine, {name: 500}, 1_000, None)
        look(mine, {name: 500}, 100_000, save=True)
        mine.begin(ONE)
        assert [(one, seen_ms) for one, seen_ms, _ in mine.gone_groups((), 50_000)] == [(name, 100_000)]


NAMES = ("g", "h", "i")
GROUPS = st.dictionaries(st.sampled_from(NAMES), COMMITS, min_size=1)
LOOKS = st.lists(st.tuples(st.none() | GROUPS, SOME_IDS, LOGS), min_size=2, max_size=5)
"""None: all groups stand where they stood."""
A, B = "id-a", "id-b"


def judged(ledger: Ledger, logs: dict[tuple[str, int], LogNow], now_ms: int) -> dict[str, GroupMemory]:
    judge_ledger(
        ledger,
        logs.get,
        {topic for topic, _ in logs},
        [TopicPartition(*place) for place, log in logs.items() if log.cut is not None],
    )
    ledger.save(now_ms)
    return ledger.groups()


def opened(handed: Handed, folder: Path) -> Ledger:
    return HandedMemories(handed, folder)("c")


@given(looks=LOOKS)
def test_memory_of_tasks_and_client_equals_that_of_one_process(
    looks: list[tuple[dict[str, Rows] | None, dict[str, str], dict[tuple[str, int], LogNow]]],
) -> None:
    groups: dict[str, Rows] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        memories = [Memories(folder / one) for one in ("alone", "client")]
        alone, client = (one.ledger("c") for one in memories)
        for number, (moved, ids, logs) in enumerate(looks):
            groups = groups if moved is None else moved
            now_ms, since_ms = 1_000 * (number + 1), 1_500
            for one in (alone, client):
                one.begin(ids)
            for share in range(2):
                mine = {group for group in NAMES if NAMES.index(group) % 2 == share}
                task = opened(hand_groups(memories[1], "c", mine.__contains__), folder / f"{number}-{share}")
                task.begin(ids)
                task.reads = []
                for group, commits in groups.items():
                    if group in mine:
                        assert task.saw_group(group, commits, now_ms, since_ms) == alone.saw_group(
                            group, commits, now_ms, since_ms
                        )
                assert {group for group, _ in task.reads or ()} == groups.keys() & mine
                for group, read in task.reads or ():
                    client.saw_read(group, None if read is None else GroupMemory.from_bytes(read.as_bytes()), now_ms)
                task.close()
            assert judged(client, logs, now_ms) == judged(alone, logs, now_ms)
        for kept in memories:
            kept.close()


def test_commit_deleted_before_a_task_reads_again_is_remembered(memories: Memories, tmp_path: Path) -> None:
    """F6: coordinators have moved, and a task has seen a commit that its second reading does not."""
    ledger = memories.ledger("c")
    task = opened(hand_groups(memories, "c", bool), tmp_path / "groups")
    task.begin({"a": A})
    task.reads = []
    task.saw_group("g", {"a": [(0, 3, 4), (1, 7, 4)]}, 10, 0)
    task.saw_group("g", {"a": [(0, 3, 4)]}, 20, 0)
    for group, read in task.reads:
        ledger.saw_read(group, read, 10)
    judge_ledger(ledger, lambda _place: LogNow(10, 4), {"a"}, [])
    ledger.save(20)
    assert ledger.group("g").recalled({"a": A}, 0).gone == {"a": [(1, 7, None)]}


@pytest.fixture
def memories(tmp_path: Path) -> Memories:
    found = Memories(tmp_path / "state")
    ledger = found.ledger("c")
    ledger.begin({"a": A, "b": B})
    for topic, topic_id, number in (("a", A, 0), ("a", A, 1), ("b", B, 0), ("b", B, 1)):
        one = ledger.partition(topic, topic_id, number)
        one.continue_at(4, 0, 1)
        one.add_sample(Sample(1, 10))
    for group in ("g", "h"):
        ledger.saw_group(group, {"a": [(0, 3, 4)]}, 5, 0)
    ledger.ages({"a": 2}, ["g", "h"], 5)
    judge_ledger(ledger, lambda _place: LogNow(10, 4), {"a"}, [])
    ledger.save(5)
    return found


@pytest.fixture
def handed(memories: Memories) -> Handed:
    """What a task that plans topic ``a`` is given of it."""
    return hand_partitions(memories, "c", [A])


@pytest.fixture
def part(handed: Handed, tmp_path: Path) -> Ledger:
    found = opened(handed, tmp_path / "part")
    found.begin({"a": A})
    return found


def add_sample(part: Ledger, partition: int, sample: Sample) -> None:
    part.partition("a", A, partition).add_sample(sample)
    part.save(sample.wall_ms)


def test_memory_part_contains_only_its_own_rows(memories: Memories, tmp_path: Path) -> None:
    groups = opened(hand_groups(memories, "c", lambda name: name == "g"), tmp_path / "groups")
    assert (list(groups.groups()), dict(groups.partitions_of(A))) == (["g"], {})
    partitions = opened(hand_partitions(memories, "c", [B, "no-such-id"]), tmp_path / "partitions")
    assert (
        dict(partitions.groups()),
        dict(partitions.partitions_of(A)),
        [one.high_watermark for one in partitions.partitions_of(B).values()],
    ) == ({}, {}, [10, 10])


def test_memory_part_of_a_lost_ledger_is_lost(tmp_path: Path) -> None:
    """F6: a ledger that is lost is not a new one."""
    found = Memories(tmp_path)
    found._open["c"] = Ledger(None, lost=Unknown.because("ledger", "it is damaged"))  # noqa: SLF001
    for handed in (hand_groups(found, "c", bool), hand_partitions(found, "c", [A]), hand_over(found, "c")):
        part = opened(handed, tmp_path)
        assert (part.on_disk, part.lost) == (False, Unknown.because("ledger", "it is damaged"))


def test_changes_in_a_memory_part_are_merged_into_the_ledger(
    memories: Memories, handed: Handed, part: Ledger, tmp_path: Path
) -> None:
    assert not rows_of(changes(part, handed.ledger))
    add_sample(part, 1, Sample(9, 20))
    found = changes(part, handed.ledger)
    assert rows_of(found) == [(A, 1)]
    ledger = memories.ledger("c")
    with ledger.sparing():
        ledger.take(found)
        ledger.save(9)
    with Ledger(cluster_folder(tmp_path / "state", "c")) as again:
        assert [one.high_watermark for one in again.partitions_of(A).values()] == [10, 20]


def test_memory_part_merges_with_later_writes_of_another_run(
    memories: Memories, handed: Handed, part: Ledger, tmp_path: Path
) -> None:
    """Their look at a partition, and at a group, may be the later one (M2, F6)."""
    ledger, folder = memories.ledger("c"), cluster_folder(tmp_path / "state", "c")
    add_sample(part, 0, Sample(9, 12))
    before = ledger.others_wrote
    with Ledger(folder) as other:
        other.begin({"a": A, "b": B})
        other.saw_group("g", {"a": [(0, 2, 4)]}, 20, 0)
        judge_ledger(other, lambda _place: LogNow(30, 4), {"a"}, [])
        add_sample(other, 0, Sample(20, 30))
    assert (before, ledger.others_wrote) == (False, True)
    with ledger.sparing():
        ledger.saw_read("g", GroupMemory(9, b"moved", open=Positions.of({"a": [(0, 5, 4)]})), 8)
        ledger.take(changes(part, handed.ledger))
        judge_ledger(ledger, lambda _place: LogNow(12, 4), {"a"}, [])
        ledger.save(21)
    with Ledger(folder) as again:
        assert (
            [one.wall_ms for one in again.partitions_of(A)[0].samples],
            again.group("g").live.commits(),
            again.group("g").seen_ms,
        ) == ([1, 9, 20], {("a", 0): (2, 4)}, 20)


@pytest.mark.parametrize(
    "damage",
    [lambda raw: raw[: len(raw) // 2], lambda raw: raw.replace(A.encode(), b"id-x"), lambda _raw: b"nothing"],
    ids=["cut short", "another id", "another file"],
)
def test_damaged_memory_part_is_refused(
    memories: Memories, handed: Handed, part: Ledger, damage: Callable[[bytes], bytes]
) -> None:
    add_sample(part, 1, Sample(9, 20))
    assert re.search(
        "not a database|malformed|not what was written|differs from what was written",
        refusal(ValueError, memories.ledger("c").take, damage(changes(part, handed.ledger))),
    )
    assert not memories.ledger("c").save(9)


def test_ages_noted_by_tasks_are_merged_to_the_earliest(memories: Memories, tmp_path: Path) -> None:
    """F2: of two times the earlier one counts, as one call of one process would have noted them."""
    ledger = memories.ledger("c")
    for share, now_ms in (("g", 70), ("new", 60)):
        task = opened(hand_groups(memories, "c", share.__eq__), tmp_path / share)
        task.begin({"a": A})
        task.ages({"a": 3}, [share], now_ms)
        ledger.take_ages(*task.noted_ages())
    ledger.save(80)
    known = ledger.ages({"a": 3}, ["g", "h", "new"], 90)
    assert (known.widths, known.born) == ({"a": [(2, 0), (3, 60)]}, {"new": 60})


def rows_of(content: bytes) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(content)
        return db.execute("SELECT topic_id, partition FROM partitions").fetchall()


def test_last_commit_of_a_partition_listed_twice_counts() -> None:
    assert Positions.of({"a": [(1, 5, None), (0, 7, 2), (1, 2**62, 3)]}).commits() == {
        ("a", 0): (7, 2),
        ("a", 1): (2**62, 3),
    }


# -- a cluster's memory that a plan on another machine uses, and what it adds --


CLUSTER = "cluster"
OF_T = {"t": "id-of-t"}


def see(ledger: Any, group: str, offset: int, now_ms: int = NOW, *, save: bool = True) -> None:
    ledger.begin(OF_T)
    ledger.saw_group(group, {"t": [(0, offset, None)]}, now_ms, 0)
    if save:
        ledger.save(now_ms)


def seen(state_dir: Path) -> dict[str, int]:
    """Return the offset on t-0 of each group that is remembered."""
    with closing(Ledger(cluster_folder(state_dir, CLUSTER))) as ledger:
        ledger.begin(OF_T)
        return {name: rows["t"][0][1] for name, _seen_ms, rows in ledger.gone_groups((), 0)}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Memories]:
    memories = Memories(tmp_path / "here")
    yield memories
    memories.close()


@pytest.fixture
def plan_elsewhere(here: Memories, tmp_path: Path) -> Callable[..., None]:
    """Hand the memory of group ``old`` to a plan that sees group ``new``, and take back what it adds."""

    def plan(meanwhile: Callable[[], object] = tuple, damage: Callable[[bytes], bytes] = bytes) -> None:
        handed = hand_over(here, CLUSTER)
        memories = HandedMemories(handed, tmp_path / "there")
        see(memories(CLUSTER), "new", 7)
        memories.close()
        meanwhile()
        take_back(here, CLUSTER, damage(memories.added(CLUSTER)), handed.revision, NOW)

    see(here(CLUSTER), "old", 3)
    return plan


def test_unsaved_sighting_does_not_replace_a_later_one_from_elsewhere(
    here: Memories, plan_elsewhere: Callable[..., None], tmp_path: Path
) -> None:
    """The group was set back since: were it gone by then, a trim would go by where it stood before (F6)."""
    see(here(CLUSTER), "new", 9, NOW - 1, save=False)  # the disk was full
    plan_elsewhere()
    here.save(NOW)
    assert (seen(tmp_path / "here"), here.notes) == ({"old": 3, "new": 7}, [])


def test_groups_seen_by_a_plan_elsewhere_are_remembered_beside_those_of_other_runs(
    here: Memories, plan_elsewhere: Callable[..., None], tmp_path: Path
) -> None:
    def meanwhile() -> None:
        with closing(Memories(tmp_path / "here")) as other:
            see(other(CLUSTER), "meanwhile", 5)

    plan_elsewhere(meanwhile)
    assert (seen(tmp_path / "here"), here.notes) == ({"old": 3, "meanwhile": 5, "new": 7}, [])
    see(here(CLUSTER), "later", 9)
    assert seen(tmp_path / "here") == {"old": 3, "meanwhile": 5, "new": 7, "later": 9}


@pytest.mark.parametrize(
    "damage",
    [lambda raw: raw[: len(raw) // 2], lambda _raw: b"no ledger", lambda raw: raw.replace(b"new", b"now")],
    ids=["cut short", "another file", "another name"],
)
def test_ledger_returned_damaged_changes_nothing_and_is_noted(
    here: Memories, plan_elsewhere: Callable[..., None], tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    plan_elsewhere(damage=damage)
    assert (seen(tmp_path / "here"), ["this run was not remembered" in note.text for note in here.notes]) == (
        {"old": 3},
        [True],
    )


def test_ledger_notes_are_handed_over_and_shown_once(here: Memories) -> None:
    here(CLUSTER)
    here.forgets("this run is not remembered: no room")
    assert ([one.text for one in hand_over(here, CLUSTER).notes], here.notes) == (
        ["this run is not remembered: no room"],
        [],
    )
