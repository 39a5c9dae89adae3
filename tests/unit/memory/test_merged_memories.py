"""Two memories of the same thing become one, and ages: nothing that either saw is lost (docs/memory.md)."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.core.model import EventMax, Sample, Unknown
from retention_cli.core.state_dir import StateError
from retention_cli.memory.ages import PAUSE_MS, SKEW_MS, Ages, Watched, Width, merged, watched_since
from retention_cli.memory.event_scan import EventScan, further, read_scan
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import SAMPLES_AT_MOST, Earlier, PartitionMemory, joined, pack, pending
from retention_cli.memory.positions import LogNow, Position
from retention_cli.observe.lineage import Cut, prove
from tests.support.facts import HOUR, known
from tests.support.ledgers import judge, saw
from tests.support.says import refusal

IDS = {"orders": "id-1", "payments": "id-2"}

_commits = st.dictionaries(
    st.sampled_from(["orders", "payments", "deleted"]),
    st.dictionaries(st.integers(0, 3), st.integers(0, 5), min_size=1, max_size=3),
    max_size=3,
)


END = 4
"""Where the logs end: commits beyond it are refused."""


def group(*looks: tuple[int, dict[str, dict[int, int]]], judged: bool = True) -> GroupMemory:
    memory = GroupMemory()
    for seen_ms, commits in looks:
        see(memory, seen_ms, commits, judged=judged)
    return memory


def see(
    memory: GroupMemory, seen_ms: int, commits: dict[str, dict[int, int]], end: int = END, *, judged: bool = True
) -> None:
    """Look at a group's commits, and judge those on topics that are there by logs that end there."""
    saw(
        memory,
        {topic: [(p, offset, None) for p, offset in sorted(ps.items())] for topic, ps in commits.items()},
        IDS,
        seen_ms,
    )
    if judged:
        judge(memory, lambda place: LogNow(end, 7) if place[0] in IDS else None)


def test_commit_on_a_topic_without_an_id_is_remembered_as_unjudged() -> None:
    """A deleted topic, or one that we may not describe, has no id: the group is remembered all the same (F6)."""
    memory = group((1, {"orders": {0: 2}, "deleted": {0: 3}}), (2, {"orders": {0: 3}, "deleted": {0: 3}}))
    assert (memory.live.commits(), set(memory.open), dict(memory.refused)) == (
        {("orders", 0): (3, None), ("deleted", 0): (3, None)},
        {("deleted", 0)},
        {},
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(
            group((10, {"orders": {0: 2, 1: 3}})),
            group((20, {"orders": {0: 3}})),
            {"seen_ms": 20, "gone": {("orders", 1): Position(3, None, 7, 10)}},
            id="a commit that only the earlier look saw is gone",
        ),
        pytest.param(
            group((10, {"orders": {0: 4}}), (11, {})),
            *(group((20, {"orders": {0: 2}})), {"gone": {}}),
            id="one that has returned is not",
        ),
        pytest.param(
            group((10, {"orders": {0: 3}}), (30, {})),
            group((20, {"orders": {0: 4}}), (25, {})),
            {"gone": {("orders", 0): Position(4, None, 7, 20)}},
            id="one that is gone keeps its latest sighting",
        ),
        pytest.param(
            group((10, {"orders": {0: 9, 1: 9}})),
            group((20, {"orders": {0: 9, 1: 3}}), judged=False),
            {"refused": {("orders", 0): Position(9, None)}, "open": {("orders", 1): Position(3, None)}},
            id="what either refused is refused until it changes (F5)",
        ),
        pytest.param(
            group((10, {"orders": {0: 3}})),
            group((20, {"orders": {0: 9}})),
            {"counted": {("orders", 0): Position(3, None, 7)}, "refused": {("orders", 0): Position(9, None)}},
            id="and keeps the position that counted before",
        ),
        pytest.param(
            group((10, {"orders": {0: 4}}), (30, {"orders": {0: 9}})),
            group((20, {"orders": {0: 3}})),
            {"counted": {("orders", 0): Position(3, None, 7)}, "refused": {("orders", 0): Position(9, None)}},
            id="and the lower one of two that counted before: the group may have gone back in between (F6)",
        ),
    ],
)
def test_two_looks_at_a_group_merge_to_what_both_know(
    one: GroupMemory, other: GroupMemory, expected: dict[str, object]
) -> None:
    """F6: one pod saw the commit, the other, later, no longer: together they know that it is gone."""
    both = one.merged(other)
    assert (both, {name: getattr(both, name) for name in expected}, [both.covers(one), both.covers(other)]) == (
        other.merged(one),
        expected,
        [True, True],
    )
    assert not group((20, {"orders": {0: 3}})).covers(group((10, {"orders": {0: 2, 1: 3}})))


def test_refused_commit_survives_a_merge_with_a_fast_clock() -> None:
    """F5: the machine whose clock is ahead had looked before the commit came; the log has grown to it since."""
    fast, refusing = group((30_000, {"orders": {1: 3}})), group((10, {"orders": {0: 9, 1: 3}}))
    both, moved = fast.merged(refusing), fast.merged(refusing)
    assert both == refusing.merged(fast) == GroupMemory.from_bytes(both.as_bytes())
    assert both.gone or both.refused or both.doubted
    see(both, 20, {"orders": {0: 9, 1: 3}}, end=100)
    assert both.recalled(IDS, since_ms=0).refused == {("orders", 0): (9, None)}
    see(moved, 20, {"orders": {0: 8, 1: 3}}, judged=False)
    assert (dict(moved.open), dict(moved.refused), dict(moved.doubted)) == ({("orders", 0): Position(8, None)}, {}, {})


@pytest.mark.parametrize("ahead_ms", [30_000, 10_000_000])
def test_look_that_builds_on_another_is_later_by_any_clock(ahead_ms: int) -> None:
    """F6: the group went back to 2 after a machine with a fast clock had seen it at 4; then it was deleted."""
    fast = group((ahead_ms, {"orders": {0: 4}}))
    knowing = GroupMemory.from_bytes(fast.as_bytes())
    see(knowing, 10, {"orders": {0: 2}})
    both = fast.merged(knowing)
    # it is remembered for so much longer than by our clock: that only holds
    assert (both, both.last_commits(IDS, since_ms=0), knowing.seen_ms) == (
        knowing.merged(fast),
        {"orders": [(0, 2, 7)]},
        ahead_ms + 1,
    )


def test_position_on_a_topic_that_was_recreated_between_two_looks_counts_no_more() -> None:
    """F5: the second run did not know that the first had refused the commit, which outlived its topic."""
    before, now = group((10, {"orders": {0: 3}}), (20, {"orders": {0: 9}})), {"orders": "id-3"}
    both = before.merged(after := saw(GroupMemory(), {"orders": [(0, 9, None)]}, now, 30, LogNow(100, 7)))
    assert both == after.merged(before)
    assert (dict(before.counted), dict(after.counted), dict(both.counted), both.refused.commits()) == (
        {("orders", 0): Position(3, None, 7)},
        {("orders", 0): Position(9, None, 7)},
        {},
        {("orders", 0): (9, None)},
    )
    assert saw(both, {}, now, 40).last_commits(now, since_ms=0) == {}, "no group has read the topic (F4)"


@given(_commits, _commits, _commits)
def test_group_memories_merge_to_the_same_in_either_order(first: dict, second: dict, third: dict) -> None:
    one, other = group((10, first), (30, third)), group((20, second))
    both = one.merged(other)
    for same in (other.merged(one), both.merged(one), both.merged(other), GroupMemory.from_bytes(both.as_bytes())):
        assert same == both
    assert [both.covers(one), both.covers(other)] == [True, True]


def partition(*samples: tuple[int, int], **more: object) -> PartitionMemory:
    return PartitionMemory(pack([Sample(*one) for one in samples]), **more)  # type: ignore[arg-type]


_samples = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 500)), max_size=60).map(sorted)


@given(_samples, _samples)
def test_partition_memories_merge_to_the_same_in_either_order(first: list, second: list) -> None:
    one, other = partition(*first, newest=EventMax(5, 7)), partition(*second, newest=EventMax(5, 3))
    both = one.merged(other)
    assert (both.packed, both.newest) == (other.merged(one).packed, EventMax(5, 7))
    assert len(both.samples) <= SAMPLES_AT_MOST
    assert both.covers(both)


def test_sample_repeating_a_high_watermark_adds_nothing() -> None:
    one, other = partition((10, 100), (30, 200)), partition((20, 100), (40, 200))
    assert [one.covers(other), other.covers(one)] == [True, False]


def test_fall_within_one_millisecond_survives_a_merge() -> None:
    """G3: five records were lost and written again; nothing may say that they were there from the start."""
    one, other = partition((2, 5), (9, 5)), partition((2, 1))
    assert one.merged(other).samples == other.merged(one).samples == (Sample(2, 5), Sample(2, 1), Sample(9, 5))


def scan(end: int, newest_ms: int, restarts: int = 0, source: str = "header:at") -> bytes:
    made = EventScan(source, 0, 0, restarts=restarts)
    made.add(end - 1, newest_ms)
    return made.as_bytes()


def test_further_scan_wins_a_merge_with_the_largest_time_of_both() -> None:
    """R2: the largest time ever held may be known to the scan that is behind."""
    near, far = scan(100, 9_000), scan(200, 5_000)
    both = further(near, far)
    found = known(read_scan(both))
    assert (found.end, found.newest) == (200, EventMax(9_000, 99))
    assert both == further(far, near) == partition(scan=near).merged(partition(scan=far)).scan


OLD, ANEW, MINE = scan(200, 5_000), scan(100, 6_000, restarts=1), scan(100, 5_000)


@pytest.mark.parametrize(
    ("one", "other", "winner"),
    [
        pytest.param(OLD, ANEW, ANEW, id="a scan that was restarted"),
        pytest.param(ANEW, OLD, ANEW, id="in either order"),
        pytest.param(MINE, scan(200, 5_000, source="json:/at"), MINE, id="ours, over one of another source"),
        pytest.param(MINE, b"broken", MINE, id="ours, over a broken one"),
        pytest.param(MINE, None, MINE, id="ours, over none"),
        pytest.param(b"broken", MINE, MINE, id="theirs, over a broken one"),
        pytest.param(None, MINE, MINE, id="theirs, over none"),
    ],
)
def test_restarted_scan_wins_and_another_sources_or_a_broken_one_does_not(
    one: bytes | None, other: bytes | None, winner: bytes
) -> None:
    assert further(one, other) == winner


def test_scan_with_text_in_place_of_a_number_is_rejected() -> None:
    good = zlib.decompress(scan(6, 1_000))
    assert known(read_scan(zlib.compress(good))).as_bytes() == scan(6, 1_000)
    assert read_scan(zlib.compress(good.replace(b'"end":6', b'"end":"6"'))) is None


# -- what is still to be asked of memories that another one took the place of (F5, M2) --


_some = st.lists(
    st.builds(Earlier, st.integers(0, 3), st.integers(0, 3), st.integers(0, 9), st.booleans()),
    max_size=7,
)


@given(_some, _some)
def test_earlier_logs_merge_to_the_same_in_either_order_and_stay_bounded(
    some: list[Earlier], others: list[Earlier]
) -> None:
    both = joined([*some, *others])
    assert both == joined([*others, *some]) == joined(both)
    assert len(both) <= 8
    memory = PartitionMemory(earlier=both)
    assert PartitionMemory.from_bytes(memory.as_bytes()) == memory
    settled = [one for one in both if one.settled]
    assert not [one for one in pending(both) if any(other.settles(one) for other in settled)]


@given(_some)
def test_unanswered_question_about_an_earlier_log_survives_a_merge(some: list[Earlier]) -> None:
    """Each is settled, or asked about as it is, or by a lower epoch and up to a larger offset."""
    both = joined(some)
    for one in pending(some):
        assert any(other.settles(one) for other in some) or any(
            o.proving_epoch <= one.proving_epoch and o.reach >= one.reach and o.leader_epoch >= one.leader_epoch
            for o in pending(both)
        )


def memory(epoch: int, *marks: int) -> PartitionMemory:
    found = PartitionMemory()
    found.continue_at(epoch, 0, 0, last_epoch=epoch)
    for number, mark in enumerate(marks):
        found.add_sample(Sample(number, mark))
    return found


def test_memory_derived_from_an_earlier_one_asks_nothing_of_it() -> None:
    earlier, later = memory(0, 12), memory(0, 12)
    assert prove(later, 1, 0, 18, {0: Found(12)}, 5) is None
    assert (pending(later.merged(earlier).earlier), later.covers(earlier)) == ([], True)
    earlier.add_sample(Sample(9, 15))  # which the later one never knew of
    assert (pending(later.merged(earlier).earlier), later.covers(earlier), later.merged(earlier)) == (
        [Earlier(0, 0, 15)],
        False,
        earlier.merged(later),
    )


def test_truncation_of_the_earlier_log_is_looked_up_and_later_samples_stay() -> None:
    """M2: of commits that were seen to count under the later epoch nothing follows."""
    both = memory(1, 18).merged(memory(0, 12))
    assert isinstance(prove(both, 1, 0, 18, {}, 5), Unknown), "nobody asked (M4)"
    assert isinstance(prove(both, 1, 0, 18, {0: RequestFailedError("no", retriable=True)}, 5), Unknown)
    assert prove(both, 1, 0, 18, {0: Found(6)}, 5) == Cut(6, 0, until=0)
    assert (both.high_watermark, pending(both.earlier)) == (18, [])
    assert prove(both, 1, 0, 18, {}, 6) is None, "it is asked once"


@pytest.mark.parametrize(
    ("earlier", "epoch", "answers", "cut"),
    [
        pytest.param({0: 12, 2: 14}, 5, {0: Found(6), 2: Found(9)}, Cut(6, 0, until=2), id="of two earlier ones"),
        pytest.param({0: 12}, 6, {0: Found(12), 5: Found(15)}, Cut(15, 5), id="its own, of all commits"),
        pytest.param({0: 12}, 6, {0: NotFound(), 5: Found(15)}, Cut(0, 5), id="an epoch that is not known any more"),
    ],
)
def test_lowest_of_several_truncations_counts_for_all_affected_epochs(
    earlier: dict[int, int], epoch: int, answers: dict[int, Answer], cut: Cut
) -> None:
    both = memory(5, 18)
    for before, mark in earlier.items():
        both = both.merged(memory(before, mark))
    assert prove(both, epoch, 0, 18, answers, 5) == cut


def test_high_watermark_that_fell_between_two_looks_is_asked_up_to_the_higher_one() -> None:
    """The lower look may be the earlier one: its time is only known not to be too early (G3). None missed a cut (M2)."""
    farther, later = (partition(one, leader_epoch=3, last_epoch=2) for one in ((1_000, 12), (2_000, 6)))
    both = later.merged(farther)
    assert both == farther.merged(later)
    assert both.merged(farther) == both.merged(later) == both
    assert (both.high_watermark, pending(both.earlier)) == (6, [Earlier(2, 3, 12)])
    later.add_sample(Sample(3_000, 12))
    assert not later.merged(farther).earlier


# -- partitions that were added after a group was first seen (F2): what the ledger keeps of it, from run to run --


A_AND_B = {"a": "x", "b": "y"}


def look(
    ledger: Ledger,
    partitions: Mapping[str, int],
    groups: Collection[str],
    now_ms: int,
    ids: Mapping[str, str] = A_AND_B,
) -> Ages:
    ledger.begin(ids)
    ages = ledger.ages(partitions, groups, now_ms)
    for name in groups:
        ledger.saw_group(name, {"a": [(0, 5, 1)]}, now_ms, 0)
    assert ledger.ages(partitions, groups, now_ms + 1) == ages, "a recheck comes to the same"
    ledger.save(now_ms)
    return ages


@pytest.mark.parametrize(
    ("looks", "covered"),
    [
        pytest.param([({"a": 2}, ["old"])], {"old": 2}, id="the topic was first seen as it is"),
        pytest.param([({"a": 2}, ["old"]), ({"a": 3}, ["old", "new"])], {"old": 2, "new": 3}, id="a partition added"),
        pytest.param(
            [({"a": 1}, ["old"], 5_000), ({"a": 2}, ["old", "new"], 9_000), ({"a": 3}, ["old", "new"], 1_000)],
            {"old": 1, "new": 2},
            id="a clock that is set back makes none older",
        ),
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
    tmp_path: Path, looks: list[tuple[Any, ...]], covered: dict[str, int]
) -> None:
    """F2. Each look is another run's, a second after the last one unless it says when."""
    for number, (partitions, groups, *at_ms) in enumerate(looks, start=1):
        with closing(Ledger(tmp_path / "c")) as ledger:
            ages = look(ledger, partitions, groups, *(at_ms or [1_000 * number]))
    assert {name: ages.covered(name, "a", looks[-1][0]["a"]) for name in covered} == covered
    assert ages.covered("old", "b", 9) == 9, "nothing is known of it"


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
        mine.begin(A_AND_B)
        assert mine.ages({"a": 2}, ["g"], 3_000).covered("g", "a", 2) == 1
        theirs.begin(A_AND_B)
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


# -- since when groups have been watched: pauses, clocks, other operators, and a ledger that keeps it (F10) --


T = 1_700_000_000_000


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
        assert ledger.watched_since("", (), T + 3 * HOUR) == T


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
