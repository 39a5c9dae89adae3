"""Partitions that were added after a group was first seen (F2): what the ledger keeps of it, from run to run."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from retention_cli.core.state_dir import StateError
from retention_cli.memory.ages import PAUSE_MS, SKEW_MS, Ages, Watched, Width, merged, watched_since
from retention_cli.memory.ledger import Ledger
from tests.support.says import refusal

IDS = {"a": "x", "b": "y"}


def look(
    ledger: Ledger, partitions: Mapping[str, int], groups: Collection[str], now_ms: int, ids: Mapping[str, str] = IDS
) -> Ages:
    ledger.begin(ids)
    ages = ledger.ages(partitions, groups, now_ms)
    for name in groups:
        ledger.saw_group(name, {"a": [(0, 5, 1)]}, now_ms, 0)
    assert ledger.ages(partitions, groups, now_ms + 1) == ages, "a recheck comes to the same"
    ledger.save(now_ms)
    return ages


DiskSample = tuple[Mapping[str, int], Collection[str]]


@pytest.mark.parametrize(
    ("looks", "covered"),
    [
        pytest.param([({"a": 2}, ["old"])], {"old": 2}, id="the topic was first seen as it is"),
        pytest.param([({"a": 2}, ["old"]), ({"a": 3}, ["old", "new"])], {"old": 2, "new": 3}, id="a partition added"),
        pytest.param(
            [({"a": 2}, ["old"]), ({"a": 3}, ["old", "mid"]), ({"a": 4, "b": 9}, ["old", "mid", "new"])],
            {"old": 2, "mid": 3, "new": 4},
            id="and another one, seen by another run, when another topic is there too",
        ),
        pytest.param(
            [({"a": 2}, ["old"]), ({"a": 3}, []), ({"a": 3}, ["old"])],
            {"old": 2},
            id="a group that could not be read while its topic grew keeps its age",
        ),
    ],
)
def test_partition_added_after_a_group_is_not_covered_by_it(
    tmp_path: Path, looks: list[DiskSample], covered: dict[str, int]
) -> None:
    """F2. Each look is another run's."""
    for number, (partitions, groups) in enumerate(looks):
        with closing(Ledger(tmp_path / "c")) as ledger:
            ages = look(ledger, partitions, groups, 1_000 * (number + 1))
    assert {name: ages.covered(name, "a", looks[-1][0]["a"]) for name in covered} == covered
    assert ages.covered("old", "b", 9) == 9, "nothing is known of it"


def test_clock_set_back_makes_no_partition_older(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "c")) as ledger:
        look(ledger, {"a": 1}, ["old"], 5_000)
        look(ledger, {"a": 2}, ["old", "new"], 9_000)
        assert look(ledger, {"a": 3}, ["old", "new"], 1_000).covered("new", "a", 3) == 2


def test_recreated_topic_and_forgotten_group_restart_their_age(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "c")) as ledger:
        look(ledger, {"a": 1}, ["old"], 1_000)
        assert look(ledger, {"a": 3}, ["old"], 2_000).covered("old", "a", 3) == 1
        assert look(ledger, {"a": 3}, ["old"], 3_000, {"a": "z"}).covered("old", "a", 3) == 3
        ledger.forget_group("old")
        assert look(ledger, {"a": 3}, ["old"], 4_000).covered("old", "a", 3) == 3


def test_earlier_sighting_by_another_process_makes_a_group_older(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "c")) as mine, closing(Ledger(tmp_path / "c")) as theirs:
        look(mine, {"a": 1}, [], 1_000)
        look(theirs, {"a": 1}, ["g"], 2_000)
        mine.begin(IDS)
        assert mine.ages({"a": 2}, ["g"], 3_000).covered("g", "a", 2) == 1
        theirs.begin(IDS)
        theirs.ages({"a": 2}, ["g", "h"], 3_500)
        theirs.saw_group("h", {}, 3_500, 0)
        look(mine, {"a": 2}, ["g"], 4_000)
        theirs.save(4_500)
    with closing(Ledger(tmp_path / "c")) as again:
        ages = look(again, {"a": 2}, ["g", "h"], 5_000)
        assert (ages.covered("g", "a", 2), ages.covered("h", "a", 2)) == (1, 2)


widths = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=4)


@given(widths, widths, widths)
def test_width_histories_merge_to_the_same_in_any_order(
    one: list[Width], other: list[Width], third: list[Width]
) -> None:
    assert (merged(one, other), merged(merged(one, other), third), merged(one, one)) == (
        merged(other, one),
        merged(one, merged(other, third)),
        merged(one, []),
    )


def test_later_first_look_at_a_topic_does_not_contradict_an_earlier_one() -> None:
    assert merged([(2, 0), (3, 100)], [(3, 0), (5, 200)]) == [(2, 0), (3, 100), (5, 200)]


# -- since when groups have been watched: pauses, clocks, other operators, and a ledger that keeps it (F10) --


HOUR = 3_600_000
T = 1_700_000_000_000
ALL = ("", ())


def look_at_all(ledger: Ledger, at: int, scope: str = "", ignored: tuple[str, ...] = ()) -> None:
    ledger.begin({})
    ledger.saw_all(scope, ignored, at, at)


def looked(folder: Path, *times: int, scope: str = "", ignored: tuple[str, ...] = ()) -> None:
    for at in times:
        with Ledger(folder) as ledger:
            look_at_all(ledger, at, scope, ignored)
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
        look_at_all(slow, T + 2 * HOUR)
        look_at_all(fast, T + 4 * HOUR)
        fast.save(T + 4 * HOUR)
        slow.save(T + 4 * HOUR)
    assert (since(tmp_path, T + 5 * HOUR), since(tmp_path, T + 4 * HOUR + PAUSE_MS)) == (T, T)


def test_ledger_without_a_file_watches_for_as_long_as_it_is_open() -> None:
    with Ledger(None) as ledger:
        look_at_all(ledger, T)
        look_at_all(ledger, T + 2 * HOUR)
        assert ledger.watched_since(*ALL, T + 3 * HOUR) == T


def test_watch_that_was_made_longer_by_hand_is_damage(tmp_path: Path) -> None:
    looked(tmp_path, T)
    with sqlite3.connect(tmp_path / "ledger.sqlite") as db:
        db.execute("UPDATE about SET value = replace(value, ?, ?) WHERE key LIKE 'watched:%'", (str(T), str(T - HOUR)))
    assert "damaged" in refusal(StateError, Ledger, tmp_path)


def test_copy_that_was_planned_with_elsewhere_brings_its_look_back(tmp_path: Path) -> None:
    folder, copied = tmp_path / "here", tmp_path / "there" / "here"
    copied.mkdir(mode=0o700, parents=True)
    looked(folder, T)
    with Ledger(folder) as here:
        content, revision = here.content()
        (copied / "ledger.sqlite").write_bytes(content)
        looked(copied, T + 30 * HOUR)
        looked(folder, T + 2 * HOUR)
        with Ledger(copied) as copy:
            here.take_back(copy, revision)
    assert since(folder, T + 30 * HOUR + PAUSE_MS) == T


WATCHES = st.builds(
    lambda first, more: Watched("", (), first, first + more), st.integers(0, 400 * HOUR), st.integers(0, 400 * HOUR)
)


@given(WATCHES, WATCHES, st.integers(0, 900 * HOUR))
@example(Watched("", (), 0, HOUR), Watched("", (), 2 * PAUSE_MS, 3 * PAUSE_MS), 3 * PAUSE_MS)
def test_two_watches_are_one_in_any_order_and_never_longer_than_both_together(
    one: Watched, other: Watched, now_ms: int
) -> None:
    both = one.merged(other)
    assert both == other.merged(one) == both.merged(one)
    assert both.last_ms == max(one.last_ms, other.last_ms)
    apart = max(one.since_ms, other.since_ms) - min(one.last_ms, other.last_ms) > PAUSE_MS
    assert both.since_ms in ((one.since_ms, other.since_ms) if apart else (min(one.since_ms, other.since_ms),))
    since_ms = watched_since([both], "", (), now_ms)
    assert since_ms is None or since_ms <= now_ms + SKEW_MS
