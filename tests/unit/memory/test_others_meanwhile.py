"""Two processes on one ledger: a look knows what others have saved, also while it has not saved its own (F6)."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from retention_cli.core.model import EventMax
from retention_cli.core.state_dir import StateError
from retention_cli.memory.interface import Rows
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import LogNow
from tests.support.groups import judge_ledger

IDS = {"a": "x"}


def look(ledger: Ledger, groups: Mapping[str, int], now_ms: int, *, save: bool = False) -> dict[str, Rows]:
    """Look at the commits of these groups on one partition; return the groups that are gone, and where they count."""
    ledger.begin(IDS)
    for name, offset in groups.items():
        ledger.saw_group(name, {"a": [(0, offset, 1)]}, now_ms, 0)
    gone = {name: rows for name, _seen_ms, rows in ledger.gone_groups(groups, 0)}
    judge_ledger(ledger, lambda _place: LogNow(1_000, 1), ("a",), [])
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


def test_unsaved_changes_are_merged_and_saved_with_those_of_another_run(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "c")) as mine, closing(Ledger(tmp_path / "c")) as theirs:
        look(mine, {"g": 500, "old": 7}, 1_000, save=True)
        look(mine, {"g": 501, "old": 7, "new": 3}, 100_000)
        one = mine.partition("a", "x", 0)
        one.newest, one.changed = EventMax(5_000, 12), True
        look(theirs, {"h": 50}, 200_000)
        other = theirs.partition("a", "x", 0)
        other.newest, other.changed = EventMax(9_000, 40), True
        theirs.forget_group("old")
        theirs.save(200_000)
        assert look(mine, {"g": 501, "new": 3}, 300_000) == {"h": {"a": [(0, 50, 1)]}}
        assert mine.partition("a", "x", 0) is one
        assert one.newest == EventMax(9_000, 40)
        mine.save(300_000)
    with Ledger(tmp_path / "c") as again:
        again.begin(IDS)
        counted = {name: group.counted["a", 0].offset for name, group in again.groups().items()}
        assert counted == {"g": 501, "new": 3, "h": 50}
        assert again.partition("a", "x", 0).newest == EventMax(9_000, 40)


def test_commit_seen_by_another_run_is_not_judged_by_logs_read_before(tmp_path: Path) -> None:
    """They would seem to lie beyond a log that has grown since: refused, and forgotten once the group is gone (F6)."""
    with closing(Ledger(tmp_path / "c")) as mine, closing(Ledger(tmp_path / "c")) as theirs:
        mine.begin(IDS)
        mine.saw_group("g", {"a": [(0, 5, 1)]}, 1_000, 0)
        mine.save(1_000)
        mine.begin(IDS)
        mine.saw_group("g", {"a": [(0, 5, 1)]}, 100_000, 0)
        theirs.begin(IDS)
        theirs.saw_group("g", {"a": [(0, 400, 1)]}, 200_000, 0)
        theirs.save(200_000)
        judge_ledger(mine, lambda _place: LogNow(300, 1), ("a",), [])
        mine.save(300_000)
    with Ledger(tmp_path / "c") as again:
        again.begin(IDS)
        assert [(one.open["a", 0].offset, len(one.refused)) for one in again.groups().values()] == [(400, 0)]


@contextmanager
def no_room(file: Path) -> Iterator[None]:
    """Let no file grow beyond the size of this one: writing is fine then until it is committed."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_save_of_another_run_after_our_failed_save_is_noticed(tmp_path: Path) -> None:
    """The revision that could not be written is theirs now: it must not be taken for the one that we know (F6)."""
    many = {f"m{number}": 500 for number in range(200)}
    with closing(Ledger(tmp_path / "c")) as mine, closing(Ledger(tmp_path / "c")) as theirs:
        look(mine, {"g": 500}, 1_000, save=True)
        look(mine, {"g": 501, **many}, 100_000)
        before = mine.revision
        with no_room(mine.path), pytest.raises(StateError, match="disk"):
            mine.save(100_000)
        assert mine.revision == before
        look(theirs, {"g": 100, "h": 50}, 200_000, save=True)
        assert mine.others_wrote
        assert look(mine, many, 300_000) == {"g": {"a": [(0, 100, 1)]}, "h": {"a": [(0, 50, 1)]}}
        mine.save(300_000)
    with Ledger(tmp_path / "c") as again:
        assert look(again, many, 400_000) == {"g": {"a": [(0, 100, 1)]}, "h": {"a": [(0, 50, 1)]}}


@pytest.mark.parametrize("name", ["g", "\x01file:f"])
def test_group_seen_twice_before_a_save_keeps_the_later_sighting(tmp_path: Path, name: str) -> None:
    """F6: its look was interrupted, the next one found it unchanged. Gone by now, it counts from when it was seen last."""
    commits: Rows = {"a": [(0, 500, 1)]}
    with closing(Ledger(tmp_path / "c")) as mine:
        for now_ms in (1_000, 100_000):
            mine.begin(IDS)
            mine.saw_group(name, commits, now_ms, 0)
        judge_ledger(mine, lambda _place: LogNow(1_000, 1), ("a",), [])
        mine.save(100_000)
        mine.begin(IDS)
        assert [(one, seen_ms) for one, seen_ms, _ in mine.gone_groups((), 50_000)] == [(name, 100_000)]
