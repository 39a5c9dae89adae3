"""Since when groups have been watched: pauses, clocks, other operators, and a ledger that keeps it (F10)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.state_dir import StateError
from retention_cli.memory.ages import PAUSE_MS, SKEW_MS, Watched, watched_since
from retention_cli.memory.ledger import Ledger

HOUR = 3_600_000
T = 1_700_000_000_000
ALL = ("", ())


def looked(folder: Path, *times: int, scope: str = "", ignored: tuple[str, ...] = ()) -> None:
    """Look at all groups at these times, each with a ledger of its own."""
    for at in times:
        with Ledger(folder) as ledger:
            ledger.begin({})
            ledger.saw_all(scope, ignored, at)
            ledger.save(at)


def since(folder: Path, now_ms: int, scope: str = "", ignored: tuple[str, ...] = ()) -> int | None:
    with Ledger(folder) as ledger:
        return ledger.watched_since(scope, ignored, now_ms)


@pytest.mark.parametrize(
    ("times", "now", "expected"),
    [
        ((), 0, None),
        ((0,), 0, 0),
        ((0, 20 * HOUR, 40 * HOUR), 60 * HOUR, 0),
        ((0, HOUR // 2), HOUR, 0),
        ((0,), PAUSE_MS, 0),
        ((0,), PAUSE_MS + 1, None),
        ((0, PAUSE_MS + 1), PAUSE_MS + 2, PAUSE_MS + 1),
        ((0, 20 * HOUR), 20 * HOUR - SKEW_MS, 0),
        ((0, 20 * HOUR), 20 * HOUR - SKEW_MS - 1, None),
        ((1000 * HOUR, 0), HOUR, 0),
    ],
    ids=["never", "now", "daily", "twice an hour", "a pause", "too long", "again", "skew", "set back", "set right"],
)
def test_watch_lasts_from_the_first_look_without_a_long_pause(
    tmp_path: Path, times: Sequence[int], now: int, expected: int | None
) -> None:
    looked(tmp_path, *(T + one for one in times))
    assert since(tmp_path, T + now) == (None if expected is None else T + expected)


@pytest.mark.parametrize(
    ("seen", "asked", "counts"),
    [
        (("", ()), ("", ("a*",)), True),
        (("", ("a*",)), ("", ("a*", "b")), True),
        (("", ("a*",)), ("", ()), False),
        (("", ("a*", "b")), ("", ("a*",)), False),
        (("team-a.", ()), ("team-b.", ()), False),
        (("team-a.", ()), ("", ()), False),
        (("team-a.", ()), ("team-a.", ()), True),
    ],
)
def test_looks_count_for_policies_that_see_no_more_groups(
    tmp_path: Path, seen: tuple[str, tuple[str, ...]], asked: tuple[str, tuple[str, ...]], counts: bool
) -> None:
    looked(tmp_path, T, scope=seen[0], ignored=seen[1])
    assert since(tmp_path, T + HOUR, *asked) == (T if counts else None)


def test_looks_of_two_runs_at_once_are_one_watch(tmp_path: Path) -> None:
    """The first to look may be the last to save: its older look does not say that a clock was set back."""
    looked(tmp_path, T)
    with Ledger(tmp_path) as slow, Ledger(tmp_path) as fast:
        for ledger, at in ((slow, T + 2 * HOUR), (fast, T + 4 * HOUR)):
            ledger.begin({})
            ledger.saw_all(*ALL, at)
        fast.save(T + 4 * HOUR)
        slow.save(T + 4 * HOUR)
    assert since(tmp_path, T + 5 * HOUR) == T
    assert since(tmp_path, T + 4 * HOUR + PAUSE_MS) == T


def test_ledger_without_a_file_watches_for_as_long_as_it_is_open() -> None:
    with Ledger(None) as ledger:
        for at in (T, T + 2 * HOUR):
            ledger.begin({})
            ledger.saw_all(*ALL, at)
        assert ledger.watched_since(*ALL, T + 3 * HOUR) == T


def test_watch_that_was_made_longer_by_hand_is_damage(tmp_path: Path) -> None:
    looked(tmp_path, T)
    with sqlite3.connect(tmp_path / "ledger.sqlite") as db:
        db.execute("UPDATE about SET value = replace(value, ?, ?) WHERE key LIKE 'watched:%'", (str(T), str(T - HOUR)))
    with pytest.raises(StateError, match="damaged"):
        Ledger(tmp_path)


def test_copy_that_was_planned_with_elsewhere_brings_its_look_back(tmp_path: Path) -> None:
    looked(tmp_path / "here", T)
    with Ledger(tmp_path / "here") as here:
        revision = here.copy_to(tmp_path / "there" / "here")
        looked(tmp_path / "there" / "here", T + 30 * HOUR)
        looked(tmp_path / "here", T + 2 * HOUR)
        with Ledger(tmp_path / "there" / "here") as copy:
            here.take_back(copy, revision)
    assert since(tmp_path / "here", T + 30 * HOUR + PAUSE_MS) == T


WATCHES = st.builds(
    lambda first, more: Watched("", (), first, first + more), st.integers(0, 400 * HOUR), st.integers(0, 400 * HOUR)
)


@given(WATCHES, WATCHES, st.integers(0, 900 * HOUR))
def test_two_watches_are_one_in_any_order_and_never_longer_than_both_together(
    one: Watched, other: Watched, now_ms: int
) -> None:
    both = one.merged(other)
    assert both == other.merged(one)
    assert both.merged(one) == both
    assert both.last_ms == max(one.last_ms, other.last_ms)
    assert both.since_ms in (one.since_ms, other.since_ms)
    apart = max(one.since_ms, other.since_ms) - min(one.last_ms, other.last_ms) > PAUSE_MS
    assert (both.since_ms == min(one.since_ms, other.since_ms)) or apart
    since_ms = watched_since([both], "", (), now_ms)
    assert since_ms is None or since_ms <= now_ms + SKEW_MS
