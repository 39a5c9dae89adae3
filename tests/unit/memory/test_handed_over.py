"""What a task has read with a part of a ledger is remembered as what this process has read itself (F5, F6, M2)."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from retention_cli.core.model import Sample, TopicPartition, Unknown
from retention_cli.core.state_dir import cluster_folder
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import LogNow, Positions
from retention_cli.state.memories import Cutter, Handed, HandedMemories, Memories, changes, hand_over, take_back
from tests.support.groups import COMMITS, IDS, LOGS, Rows, judge_ledger

NAMES = ("g", "h", "i")
GROUPS = st.dictionaries(st.sampled_from(NAMES), COMMITS, min_size=1)
LOOKS = st.lists(st.tuples(st.none() | GROUPS, IDS, LOGS), min_size=2, max_size=5)
"""None: all groups stand where they stood."""
A, B = "id-a", "id-b"


def judged(ledger: Ledger, logs: dict[tuple[str, int], LogNow], now_ms: int) -> dict[str, GroupMemory]:
    cuts = [TopicPartition(*place) for place, log in logs.items() if log.cut is not None]
    judge_ledger(ledger, logs.get, {topic for topic, _ in logs}, cuts)
    ledger.save(now_ms)
    return ledger.groups()


def opened(handed: Handed, folder: Path) -> Ledger:
    return HandedMemories(handed, folder, lambda: 0)("c")


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
            cutter = Cutter(memories[1], "c")
            for share in range(2):
                mine = {group for group in NAMES if NAMES.index(group) % 2 == share}
                task = opened(cutter.groups(mine.__contains__), folder / f"{number}-{share}")
                task.begin(ids)
                task.reads = []
                for group, commits in groups.items():
                    if group in mine:
                        here = alone.saw_group(group, commits, now_ms, since_ms)
                        assert task.saw_group(group, commits, now_ms, since_ms) == here
                assert {group for group, _ in task.reads or ()} == groups.keys() & mine
                for group, read in task.reads or ():
                    client.saw_read(group, None if read is None else GroupMemory.from_bytes(read.as_bytes()), now_ms)
                task.close()
            assert judged(client, logs, now_ms) == judged(alone, logs, now_ms)
        for kept in memories:
            kept.close()


def test_commit_deleted_before_a_task_reads_again_is_remembered(memories: Memories, tmp_path: Path) -> None:
    """F6: coordinators have moved, and a task has seen a commit that its second reading does not."""
    cutter, ledger = Cutter(memories, "c"), memories.ledger("c")
    task = opened(cutter.groups(bool), tmp_path / "groups")
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
    for topic, topic_id in (("a", A), ("b", B)):
        for number in range(2):
            one = ledger.partition(topic, topic_id, number)
            one.continue_at(4, 0, 1)
            one.add_sample(Sample(1, 10))
    for group in ("g", "h"):
        ledger.saw_group(group, {"a": [(0, 3, 4)]}, 5, 0)
    ledger.ages({"a": 2}, ["g", "h"], 5)
    judge_ledger(ledger, lambda _place: LogNow(10, 4), {"a"}, [])
    ledger.save(5)
    return found


def test_memory_part_contains_only_its_own_rows(memories: Memories, tmp_path: Path) -> None:
    cutter = Cutter(memories, "c")
    groups = opened(cutter.groups(lambda name: name == "g"), tmp_path / "groups")
    assert list(groups.groups()) == ["g"]
    assert not groups.partitions_of(A)
    partitions = opened(cutter.partitions([B, "no-such-id"]), tmp_path / "partitions")
    assert not partitions.groups()
    assert not partitions.partitions_of(A)
    assert [one.high_watermark for one in partitions.partitions_of(B).values()] == [10, 10]


def test_memory_part_of_a_lost_ledger_is_lost(tmp_path: Path) -> None:
    """F6: a ledger that is lost is not a new one."""
    found = Memories(tmp_path)
    found._open["c"] = Ledger(None, lost=Unknown.because("ledger", "it is damaged"))  # noqa: SLF001
    for handed in (Cutter(found, "c").groups(bool), Cutter(found, "c").partitions([A])):
        assert opened(handed, tmp_path).lost == Unknown.because("ledger", "it is damaged")


def test_changes_in_a_memory_part_are_merged_into_the_ledger(memories: Memories, tmp_path: Path) -> None:
    handed = Cutter(memories, "c").partitions([A])
    part = opened(handed, tmp_path / "part")
    part.begin({"a": A})
    assert not rows_of(changes(part, handed.ledger))
    part.partition("a", A, 1).add_sample(Sample(9, 20))
    part.save(9)
    found = changes(part, handed.ledger)
    assert rows_of(found) == [(A, 1)]
    ledger = memories.ledger("c")
    with ledger.sparing():
        ledger.take(found)
        ledger.save(9)
    with Ledger(cluster_folder(tmp_path / "state", "c")) as again:
        assert [one.high_watermark for one in again.partitions_of(A).values()] == [10, 20]


def test_memory_part_merges_with_later_writes_of_another_run(memories: Memories, tmp_path: Path) -> None:
    """Their look at a partition, and at a group, may be the later one (M2, F6)."""
    cutter = Cutter(memories, "c")
    handed = cutter.partitions([A])
    part = opened(handed, tmp_path / "part")
    part.begin({"a": A})
    part.partition("a", A, 0).add_sample(Sample(9, 12))
    part.save(9)
    before = cutter.is_outdated
    with Ledger(cluster_folder(tmp_path / "state", "c")) as other:
        other.begin({"a": A, "b": B})
        other.partition("a", A, 0).add_sample(Sample(20, 30))
        other.saw_group("g", {"a": [(0, 2, 4)]}, 20, 0)
        judge_ledger(other, lambda _place: LogNow(30, 4), {"a"}, [])
        other.save(20)
    assert (before, cutter.is_outdated) == (False, True)
    ledger = memories.ledger("c")
    with ledger.sparing():
        ledger.saw_read("g", GroupMemory(9, b"moved", open=Positions.of({"a": [(0, 5, 4)]})), 8)
        ledger.take(changes(part, handed.ledger))
        judge_ledger(ledger, lambda _place: LogNow(12, 4), {"a"}, [])
        ledger.save(21)
    with Ledger(cluster_folder(tmp_path / "state", "c")) as again:
        assert [one.wall_ms for one in again.partitions_of(A)[0].samples] == [1, 9, 20]
        assert again.group("g").live.commits() == {("a", 0): (2, 4)}
        assert again.group("g").seen_ms == 20


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[: len(raw) // 2], lambda raw: raw.replace(A.encode(), b"id-x"), bytes]
)
def test_damaged_memory_part_is_refused(memories: Memories, tmp_path: Path, damage: object) -> None:
    handed = Cutter(memories, "c").partitions([A])
    part = opened(handed, tmp_path / "part")
    part.begin({"a": A})
    part.partition("a", A, 1).add_sample(Sample(9, 20))
    part.save(9)
    assert callable(damage)
    with pytest.raises(
        ValueError, match=r"not a database|malformed|not what was written|differs from what was written"
    ):
        memories.ledger("c").take(damage(changes(part, handed.ledger)) if damage is not bytes else b"nothing")
    assert not memories.ledger("c").save(9)


def test_ages_noted_by_tasks_are_merged_to_the_earliest(memories: Memories, tmp_path: Path) -> None:
    """F2: of two times the earlier one counts, as one call of one process would have noted them."""
    ledger = memories.ledger("c")
    for share, now_ms in (("g", 70), ("new", 60)):
        part = opened(Cutter(memories, "c").groups(share.__eq__), tmp_path / share)
        part.begin({"a": A})
        part.ages({"a": 3}, [share], now_ms)
        ledger.take_ages(*part.noted_ages())
    ledger.save(80)
    known = ledger.ages({"a": 3}, ["g", "h", "new"], 90)
    assert known.widths == {"a": [(2, 0), (3, 60)]}
    assert known.born == {"new": 60}


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
NOW = 1_800_000_000_000


def see(ledger: Any, group: str, offset: int, now_ms: int = NOW) -> None:
    ledger.begin(OF_T)
    ledger.saw_group(group, {"t": [(0, offset, None)]}, now_ms, 0)
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
def plan_elsewhere(tmp_path: Path) -> Callable[[Handed], bytes]:
    """Look at group ``new`` with a memory that was handed over; return what comes back."""

    def plan(handed: Handed) -> bytes:
        memories = HandedMemories(handed, tmp_path / "there", lambda: NOW)
        see(memories(CLUSTER), "new", 7)
        memories.close()
        return memories.added(CLUSTER)

    return plan


def test_groups_seen_by_a_plan_elsewhere_are_remembered_beside_known_ones(
    here: Memories, plan_elsewhere: Callable[[Handed], bytes], tmp_path: Path
) -> None:
    see(here(CLUSTER), "old", 3)
    handed = hand_over(here, CLUSTER)
    take_back(here, CLUSTER, plan_elsewhere(handed), handed.revision, NOW)
    assert (seen(tmp_path / "here"), here.notes) == ({"old": 3, "new": 7}, [])
    see(here(CLUSTER), "later", 9)
    assert seen(tmp_path / "here") == {"old": 3, "new": 7, "later": 9}


def test_unsaved_sighting_does_not_replace_a_later_one_from_elsewhere(
    here: Memories, plan_elsewhere: Callable[[Handed], bytes], tmp_path: Path
) -> None:
    """The group was set back since: were it gone by then, a trim would go by where it stood before (F6)."""
    see(here(CLUSTER), "old", 3)
    here(CLUSTER).begin(OF_T)
    here(CLUSTER).saw_group("new", {"t": [(0, 9, None)]}, NOW - 1, 0)  # the disk was full
    handed = hand_over(here, CLUSTER)
    take_back(here, CLUSTER, plan_elsewhere(handed), handed.revision, NOW)
    here.save(NOW)
    assert (seen(tmp_path / "here"), here.notes) == ({"old": 3, "new": 7}, [])


def test_writes_of_another_run_during_a_handover_are_kept(
    here: Memories, plan_elsewhere: Callable[[Handed], bytes], tmp_path: Path
) -> None:
    see(here(CLUSTER), "old", 3)
    handed = hand_over(here, CLUSTER)
    other = Memories(tmp_path / "here")
    see(other(CLUSTER), "meanwhile", 5)
    other.close()
    take_back(here, CLUSTER, plan_elsewhere(handed), handed.revision, NOW)
    assert (seen(tmp_path / "here"), here.notes) == ({"old": 3, "meanwhile": 5, "new": 7}, [])


@pytest.mark.parametrize(
    "damage",
    [lambda raw: raw[: len(raw) // 2], lambda _raw: b"no ledger", lambda raw: raw.replace(b"new", b"now")],
    ids=["cut short", "another file", "another name"],
)
def test_ledger_returned_damaged_changes_nothing_and_is_noted(
    here: Memories, plan_elsewhere: Callable[[Handed], bytes], tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    see(here(CLUSTER), "old", 3)
    handed = hand_over(here, CLUSTER)
    take_back(here, CLUSTER, damage(plan_elsewhere(handed)), handed.revision, NOW)
    assert seen(tmp_path / "here") == {"old": 3}
    [note] = here.notes
    assert "this run was not remembered" in note.text


def test_lost_memory_is_handed_over_as_lost(tmp_path: Path) -> None:
    folder = cluster_folder(tmp_path / "here", CLUSTER)
    folder.mkdir(parents=True, mode=0o700)
    (tmp_path / "here").chmod(0o700)
    (folder / "ledger.sqlite").write_bytes(b"no ledger")
    found = HandedMemories(hand_over(Memories(tmp_path / "here"), CLUSTER), tmp_path / "there", lambda: NOW)(CLUSTER)
    assert not found.on_disk
    assert isinstance(found.lost, Unknown)


def test_ledger_notes_are_handed_over_and_shown_once(here: Memories) -> None:
    here(CLUSTER)
    here.forgets("this run is not remembered: no room")
    assert [one.text for one in hand_over(here, CLUSTER).notes] == ["this run is not remembered: no room"]
    assert here.notes == []
