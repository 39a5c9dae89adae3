"""A cluster's memory that a plan on another machine uses, and what it adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from retention_cli.core.model import Unknown
from retention_cli.core.state_dir import cluster_folder
from retention_cli.memory.ledger import Ledger
from retention_cli.state.memories import Handed, HandedMemories, Memories, hand_over, take_back

CLUSTER = "cluster"
IDS = {"t": "id-of-t"}
NOW = 1_800_000_000_000


def see(ledger: Any, group: str, offset: int, now_ms: int = NOW) -> None:
    """Look at a group, as a pass does, and save."""
    ledger.begin(IDS)
    ledger.saw_group(group, {"t": [(0, offset, None)]}, now_ms, 0)
    ledger.save(now_ms)


def seen(state_dir: Path) -> dict[str, int]:
    """Return the offset on t-0 of each group that is remembered."""
    with closing(Ledger(cluster_folder(state_dir, CLUSTER))) as ledger:
        ledger.begin(IDS)
        found = ledger.gone_groups((), 0)
        return {name: rows["t"][0][1] for name, _seen_ms, rows in found}


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
    here(CLUSTER).begin(IDS)
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
    assert "nothing was remembered of this run" in note.text


def test_lost_memory_is_handed_over_as_lost(tmp_path: Path) -> None:
    folder = cluster_folder(tmp_path / "here", CLUSTER)
    folder.mkdir(parents=True, mode=0o700)
    (tmp_path / "here").chmod(0o700)
    (folder / "ledger.sqlite").write_bytes(b"no ledger")
    memories = Memories(tmp_path / "here")
    handed = hand_over(memories, CLUSTER)
    found = HandedMemories(handed, tmp_path / "there", lambda: NOW)(CLUSTER)
    assert not found.on_disk
    assert isinstance(found.lost, Unknown)


def test_ledger_notes_are_handed_over_and_shown_once(here: Memories) -> None:
    here(CLUSTER)
    here.forgets("nothing is remembered of this run: no room")
    handed = hand_over(here, CLUSTER)
    assert [one.text for one in handed.notes] == ["nothing is remembered of this run: no room"]
    assert here.notes == []
