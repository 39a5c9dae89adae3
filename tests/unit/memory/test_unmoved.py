"""Since when a group stands still, at least: a bound that no look of anybody's contradicts (docs/memory.md)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.memory.group import GroupMemory, digest_of
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import LogNow, Positions
from tests.support.groups import judge

IDS = {"orders": "id-1", "clicks": "id-2"}
ANEW = IDS | {"orders": "id-9"}
Commits = dict[str, list[tuple[int, int, int | None]]]


def look(memory: GroupMemory, commits: Commits, now_ms: int, ids: dict[str, str] = IDS, end: int = 100) -> None:
    """Update a memory as a ledger does: only where anything has changed."""
    if (digest := digest_of(commits, ids)) != memory.digest:
        memory.update(Positions.of(commits), ids, digest, now_ms)
        judge(memory, lambda _place: LogNow(end, 4))
    else:
        memory.seen_ms = now_ms


AT_5: Commits = {"orders": [(0, 5, 4), (1, 7, 4)]}


@pytest.mark.parametrize(
    ("commits", "ids", "stood"),
    [
        (AT_5, IDS, 10),
        ({"orders": [(0, 5, 9), (1, 7, None)]}, IDS, 10),  # the same offsets, committed anew
        ({"orders": [(0, 5, 4)]}, IDS, 10),  # what is gone has not moved
        ({}, IDS, 10),
        ({"orders": [(0, 6, 4), (1, 7, 4)]}, IDS, 20),
        ({"orders": [(0, 5, 4), (1, 6, 4)]}, IDS, 20),
        ({**AT_5, "clicks": [(0, 1, 4)]}, IDS, 20),
        (AT_5, ANEW, 20),  # in another log of that name
        ({}, ANEW, 10),
    ],
)
@pytest.mark.parametrize("end", [100, 6])
def test_group_moves_only_with_a_changed_offset_or_topic_id(
    commits: Commits, ids: dict[str, str], stood: int, end: int
) -> None:
    """Whether or not a commit counts: with a log that ends at 6, the one at 7 is refused (F5)."""
    memory = GroupMemory()
    look(memory, AT_5, 10, end=end)
    look(memory, commits, 20, ids, end)
    assert memory.stood_ms == stood
    look(memory, commits, 30, ids, end)
    assert GroupMemory.from_bytes(memory.as_bytes()).stood_ms == stood


def test_group_with_a_returned_commit_has_moved() -> None:
    memory = GroupMemory()
    for now_ms, commits in ((10, AT_5), (20, Commits()), (30, AT_5)):
        look(memory, commits, now_ms)
    assert memory.stood_ms == 30


def test_clock_set_back_makes_no_look_earlier_than_the_previous_one() -> None:
    memory = GroupMemory()
    look(memory, AT_5, 1_000)
    look(memory, {"orders": [(0, 6, 4), (1, 7, 4)]}, 10)
    assert memory.stood_ms == memory.seen_ms == 1_001


_looks = st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=8)


@given(_looks, st.booleans())
def test_merged_standing_time_of_two_machines_is_contradicted_by_no_look(
    looks: list[tuple[bool, int]], apart: bool
) -> None:
    """Whether they remember apart, or take over the other's memory before each look."""
    memories = {False: GroupMemory(), True: GroupMemory()}
    for number, (machine, offset) in enumerate(looks):
        mine, other = memories[machine], memories[not machine]
        if not apart and other.seen_ms:
            mine = mine.merged(other) if mine.seen_ms else replace(other)
        look(mine, {"orders": [(0, offset, 4)]}, 10 * (number + 1))
        memories[machine] = mine
    seen = [one for one in memories.values() if one.seen_ms]
    both = seen[0].merged(seen[-1])
    assert both == seen[-1].merged(seen[0])
    assert both.merged(both).stood_ms == both.stood_ms
    since = [offset for number, (_machine, offset) in enumerate(looks) if 10 * (number + 1) >= both.stood_ms]
    assert set(since) == {looks[-1][1]}
    if len(seen) == 1:  # and it is the first such look
        before = [offset for number, (_machine, offset) in enumerate(looks) if 10 * (number + 1) < both.stood_ms]
        assert before[-1:] != [looks[-1][1]]


def test_ledger_reports_since_when_a_group_is_unmoved(tmp_path: Path) -> None:
    with Ledger(tmp_path / "c1") as ledger:
        ledger.begin(IDS)
        ledger.saw_group("billing", AT_5, 10, 0)
        ledger.save(10)
        ledger.saw_group("billing", AT_5, 100_000, 0)
        ledger.save(100_000)
        assert ledger.unmoved_since("billing", AT_5) == ledger.unmoved_since("billing", None) == 10
        assert ledger.unmoved_since("billing", {"orders": [(0, 6, 4), (1, 7, 4)]}) is None
        assert ledger.unmoved_since("audit", AT_5) is None
        assert [seen_ms for _name, seen_ms, _rows in ledger.gone_groups((), 0)] == [100_000]
