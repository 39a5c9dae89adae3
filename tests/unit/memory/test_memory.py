"""What is remembered: samples of H (G3), largest times (R2), and groups that are gone (F5, F6)."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from retention_cli.core.consumers import key_of
from retention_cli.core.model import EventMax, Sample, TopicPartition
from retention_cli.decide.guards.wall_clock import written_by
from retention_cli.memory.group import GroupMemory, digest_of
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import (
    SAMPLES_AT_MOST,
    Front,
    PartitionMemory,
    pack,
    samples_below,
    seen_past,
    thinned,
    without_falls,
)
from retention_cli.memory.positions import LogNow, Logs, Position, Rows
from tests.support.facts import known
from tests.support.ledgers import saw

walks = st.lists(st.tuples(st.integers(0, 50), st.integers(-3, 10)), min_size=1, max_size=200).map(
    lambda steps: [
        Sample(sum(wait for wait, _ in steps[: n + 1]), max(0, 50 + sum(rise for _, rise in steps[: n + 1])))
        for n in range(len(steps))
    ]
)


@pytest.mark.parametrize(
    ("samples", "since"),
    [
        ([], None),
        ([(10, 5)], None),
        ([(10, 6)], 10),
        ([(10, 3), (20, 6), (30, 9)], 20),
        ([(10, 9), (20, 4), (30, 7)], 30),  # what was there at 10 went with the cut
        ([(10, 9), (20, 5)], None),
    ],
)
def test_record_is_known_since_the_first_sample_past_it_after_the_last_fall(
    samples: list[tuple[int, int]], since: int | None
) -> None:
    assert seen_past(pack([Sample(*one) for one in samples]), 5) == since


@given(walks, st.integers(0, 12_000))
def test_thinned_samples_never_claim_more_than_all_samples(samples: list[Sample], time_ms: int) -> None:
    """G3: exact lower bounds, never a guess; also where a high watermark fell."""
    fewer = thinned(samples)
    assert len(fewer) <= max(40, 1)
    assert [one.wall_ms for one in fewer] == sorted(one.wall_ms for one in fewer)
    assert (written_by(fewer, time_ms) or 0) <= (written_by(samples, time_ms) or 0)


@given(walks, st.integers(0, 12_000))
def test_samples_without_falls_give_equal_answers(samples: list[Sample], time_ms: int) -> None:
    assert written_by(without_falls(samples), time_ms) == written_by(samples, time_ms)


@given(walks, st.data())
def test_sample_claim_never_exceeds_a_later_high_watermark(samples: list[Sample], data: st.DataObject) -> None:
    """Offsets that were lost and written again are not old because their numbers are."""
    at = data.draw(st.sampled_from(samples)).wall_ms
    offset = known(written_by(samples, at))
    assert all(offset <= one.high_watermark for one in samples if one.wall_ms > at)


def sampled(*samples: Sample, **known: Any) -> PartitionMemory:
    memory = PartitionMemory(**known)
    for sample in samples:
        memory.add_sample(sample)
    return memory


def test_thinned_year_of_samples_keeps_both_ends_and_enough_between() -> None:
    hour, hours = 3_600_000, 365 * 24
    kept = sampled(*(Sample(n * hour, n * 100) for n in range(hours))).samples
    assert len(kept) <= SAMPLES_AT_MOST
    assert kept[0] == Sample(0, 0)
    for wait_days in (1, 7, 30, 90):
        then = hours - 1 - wait_days * 24
        behind = then * 100 - known(written_by(kept, then * hour))
        assert behind <= 0.2 * wait_days * 24 * 100, f"{wait_days} d: too far behind"


def test_fall_is_sampled_after_the_clock_was_set_back() -> None:
    assert written_by(sampled(Sample(100, 50), Sample(90, 20)).samples, 100) == 20


@given(walks, walks)
def test_merged_samples_claim_no_more_than_both_memories_saw(one: list[Sample], other: list[Sample]) -> None:
    merged = sampled(*one).merged(sampled(*other)).samples
    assert len(merged) <= SAMPLES_AT_MOST
    highest = max(s.high_watermark for s in (*one, *other))
    for at in (0, 100, 1_000, 5_000):
        claimed = written_by(merged, at)
        assert (claimed or 0) <= highest
        assert claimed is not None or not merged or merged[0].wall_ms > at


def test_largest_event_time_survives_a_merge_in_either_order() -> None:
    mine, theirs = PartitionMemory(newest=EventMax(5, 1)), PartitionMemory(newest=EventMax(9, 2), data_at=(3,))
    assert mine.merged(theirs).newest == theirs.merged(mine).newest == EventMax(9, 2)
    assert 3 in mine.merged(theirs).data_at
    mine.add_newest(EventMax(4, 7), "")
    assert mine.newest == EventMax(5, 1)


def test_largest_event_time_counts_only_under_the_settings_it_was_read_with() -> None:
    """M0: what brokers stamped is no event time of a topic that its producers stamp, and the other way round."""
    one, other = PartitionMemory(), PartitionMemory()
    one.add_newest(EventMax(900, 3), "timestamp, LogAppendTime")
    assert one.newest_of("CreateTime") is None
    one.add_newest(EventMax(5, 4), "CreateTime")
    assert (one.newest_of("CreateTime"), one.newest_of("timestamp, LogAppendTime")) == (EventMax(5, 4), None)
    other.add_newest(EventMax(900, 3), "timestamp, LogAppendTime")
    assert one.merged(other).newest_of("CreateTime") == EventMax(5, 4), "ours is kept"
    assert PartitionMemory().merged(one).newest_of("CreateTime") == EventMax(5, 4)


IDS = {"orders": "id-1", "clicks": "id-2"}
Commit = tuple[int, int, int | None]
Looks = tuple[dict[str, dict[int, int]], dict[str, str]]


def seen(*passes: Looks, high_watermark: int = 1_000) -> GroupMemory:
    """Return a group's memory after some passes, each of which has read every log's end."""
    memory = GroupMemory()
    for number, (commits, ids) in enumerate(passes):
        rows: Rows = {topic: [(p, offset, None) for p, offset in one.items()] for topic, one in commits.items()}
        saw(memory, rows, ids, 1000 + number, LogNow(high_watermark, 4))
        memory = GroupMemory.from_bytes(memory.as_bytes())
    return memory


NEWER = IDS | {"orders": "id-9"}
BOTH: Looks = ({"orders": {0: 5, 1: 7}}, IDS)
FIRST: Looks = ({"orders": {0: 6}}, IDS)
BEYOND: Looks = ({"orders": {0: 5_000}}, IDS)
OLD_TOPICS: Looks = ({"orders": {0: 500}}, IDS)
OUTLIVES: Looks = ({"orders": {0: 500}}, NEWER)


@pytest.mark.parametrize(
    ("passes", "gone", "refused"),
    [
        pytest.param((BOTH, FIRST), {"orders": [(1, 7, 4)]}, {}, id="a deleted commit counts (F6)"),
        pytest.param((BOTH, FIRST, ({"orders": {0: 6, 1: 8}}, IDS)), {}, {}, id="until it returns"),
        pytest.param((({"orders": {0: 5}}, IDS), ({}, NEWER)), {}, {}, id="one deleted with its topic does not"),
        pytest.param(
            *((OLD_TOPICS, OUTLIVES, OUTLIVES), {}, {("orders", 0): (500, None)}),
            id="a commit that outlives its topic is refused (F5)",
        ),
        pytest.param((OLD_TOPICS, OUTLIVES, ({"orders": {0: 3}}, NEWER)), {}, {}, id="until it changes"),
        pytest.param(
            *((OLD_TOPICS, ({"orders": {0: 500}}, {}), OUTLIVES), {}, {("orders", 0): (500, None)}),
            id="also if a pass found no such topic",
        ),
        pytest.param(
            (({"orders": {0: 40}}, IDS), BEYOND), {}, {("orders", 0): (5_000, None)}, id="one beyond the end is refused"
        ),
        pytest.param(
            (({"orders": {0: 40}}, IDS), BEYOND, ({}, IDS)), {"orders": [(0, 40, 4)]}, {}, id="and yields once deleted"
        ),
        pytest.param((BEYOND, ({}, IDS)), {}, {}, id="to nothing, if none counted before"),
    ],
)
def test_group_remembers_commits_that_counted_and_refuses_those_of_other_logs(
    passes: tuple[Looks, ...], gone: dict[str, list[Commit]], refused: dict[tuple[str, int], tuple[int, None]]
) -> None:
    """F5, F6. The epoch of what is gone is the one it was seen under."""
    found = seen(*passes).recalled(passes[-1][1], since_ms=0)
    assert (found.gone, found.refused) == (gone, refused)


def test_deleted_commits_are_forgotten_once_they_are_too_old() -> None:
    memory = seen(({"orders": {0: 5, 1: 7}, "clicks": {0: 1}}, IDS), ({"orders": {0: 6}, "clicks": {0: 1}}, IDS))
    assert (
        memory.recalled(IDS, since_ms=1000).gone,
        memory.recalled(IDS, since_ms=1001).gone,
        memory.last_commits(IDS, since_ms=0),
    ) == ({"orders": [(1, 7, 4)]}, {}, {"orders": [(1, 7, 4), (0, 6, 4)], "clicks": [(0, 1, 4)]})


@pytest.mark.parametrize(
    ("rows", "log", "refused", "stays_open"),
    [
        pytest.param([(0, 40, None)], None, [], [0], id="nobody knows the log"),
        pytest.param(
            [(0, 40, 9), (1, 41, 8), (2, 42, 7)],
            *(LogNow(100, 9, frozenset({9}), frozenset({8})), [0], [1]),
            id="the leader does not know its epoch: it comes of a leader that was elected away",
        ),
        pytest.param(
            [(0, 40, 1), (1, 41, 1), (2, 42, None)],
            *(LogNow(100, 2, ended=((0, 10), (1, 40))), [], [1]),
            id="beyond the end of its epoch: another log's, which proves nothing (F6)",
        ),
        pytest.param(
            [(0, 101, None), (1, 100, None), (2, 102, 9)],
            *(LogNow(100, 9, in_doubt=True), [0, 2], [1]),
            id="a log in doubt: whichever it is, it ends before (M4)",
        ),
    ],
)
def test_commit_that_does_not_fit_its_log_is_refused_or_stays_open(
    rows: list[Commit], log: LogNow | None, refused: list[int], stays_open: list[int]
) -> None:
    """F5. What was never seen to count is worth nothing known once it is deleted."""
    memory = saw(GroupMemory(), {"orders": rows}, IDS, 1, log)
    assert ([sorted(n for _, n in one) for one in (memory.refused, memory.open)], {n for _, n in memory.counted}) == (
        [refused, stays_open],
        {n for n, *_ in rows} - {*refused, *stays_open},
    )
    saw(memory, {}, IDS, 2)
    assert set(memory.recalled(IDS, since_ms=0).gone.get("orders", ())) >= {
        (n, offset, None) for n, offset, _ in rows if n in stays_open
    }


def test_commit_beyond_a_truncation_is_refused_and_one_below_still_counts() -> None:
    memory = seen(({"orders": {0: 900, 1: 300}}, IDS))
    places = [("orders", 0), ("orders", 1)]
    assert memory.refuse_beyond(places, Logs((place, LogNow(2_000, 5, cut=400)) for place in memory.counted))
    assert (set(memory.refused), [memory.counted[place] for place in places]) == (
        {places[0]},
        [Position(400, None, 5), Position(300, None, 4)],
    )


@given(walks, st.integers(0, 80), st.integers(0, 12_000))
def test_samples_of_a_truncated_log_claim_nothing_beyond_the_truncation(
    samples: list[Sample], cut: int, time_ms: int
) -> None:
    """M2: what lies before the cut was there as early as before."""
    kept = samples_below(samples, cut)
    assert all(one.high_watermark <= cut for one in kept)
    assert (written_by(kept, time_ms) or 0) == min(cut, written_by(samples, time_ms) or 0)


def test_truncation_forgets_what_is_remembered_beyond_it() -> None:
    memory = sampled(Sample(10, 100), newest=EventMax(5, 70), data_at=(3, 70), leader_epoch=1)
    assert memory.reach == 100
    memory.continue_at(2, 0, 20, cut=50)
    assert (memory.samples, memory.newest, memory.data_at, memory.leader_epoch, memory.changed) == (
        (Sample(10, 50),),
        None,
        (3,),
        2,
        True,
    )


def test_memory_proven_under_the_later_epoch_wins_a_merge() -> None:
    earlier = sampled(Sample(10, 100), leader_epoch=1, created=True)
    later = sampled(Sample(20, 50), leader_epoch=2, created_below=7)
    merged = earlier.merged(later)
    assert (merged.samples, merged.created, merged.created_below) == ((Sample(20, 50),), True, 7)
    assert merged.leader_epoch == later.merged(earlier).leader_epoch == 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=20))
def test_records_seen_under_create_time_never_become_broker_stamped(looks: list[tuple[bool, int]]) -> None:
    """G3: below H of any sighting of CreateTime, and of the first look after it, stamps are producers'."""
    memory, end, created = PartitionMemory(), 0, 0
    for number, (append_time, more) in enumerate(looks):
        end += more
        if not append_time or (number and not looks[number - 1][0]):
            created = end
        memory.saw_stamps(end, append_time=append_time)
        assert (end if memory.created else memory.created_below) == created


def test_segment_bytes_count_below_where_records_ended_when_they_were_lowered_in_both_memories() -> None:
    """R5: one process may have seen the change, and another one not."""
    first, second = (PartitionMemory(leader_epoch=one) for one in (1, 2))
    assert (
        [first.saw_segment_bytes(400, 0, 50), first.saw_segment_bytes(100, 0, 80)],
        [second.saw_segment_bytes(200, 0, 90), second.saw_segment_bytes(100, 0, 95)],
    ) == ([400, 400], [200, 200])
    both = first.merged(second)
    assert both.segments == second.merged(first).segments == PartitionMemory.from_bytes(both.as_bytes()).segments
    assert [both.saw_segment_bytes(100, start, 120) for start in (79, 80, 94, 95)] == [400, 200, 200, 100]


def test_commit_digest_depends_on_commits_and_topic_ids_but_not_their_order() -> None:
    rng = random.Random(1)
    rows = {f"t{n}": [(p, rng.randrange(1000), None) for p in range(5)] for n in range(5)}
    ids = {name: f"id-{name}" for name in rows}
    assert digest_of(rows, ids) == digest_of(dict(reversed(rows.items())), ids)
    assert digest_of(rows, ids) != digest_of(rows, ids | {"t3": "another"})
    assert digest_of(rows, ids) != digest_of({**rows, "t0": [*rows["t0"][:-1], (4, -1, None)]}, ids)


@pytest.mark.parametrize(("start", "kept"), [(9, False), (10, True), (12, True)])
def test_front_record_is_forgotten_once_the_log_start_moves_back(start: int, kept: bool) -> None:
    """M3: records stand before it again, and nobody has looked at them."""
    memory = PartitionMemory(leader_epoch=3, log_start=10, front=Front(10, append_time=True))
    memory.continue_at(3, start, 1_000)
    assert (memory.front is not None, memory.log_start) == (kept, start)


def orders_at(
    group: GroupMemory, offset: int, ids: dict[str, str], log: LogNow | None = None, *, outlives: bool | None = None
) -> bool:
    """Let a consumer outside Kafka stand at an offset of orders-0; return whether that is refused.

    ``outlives``: whether its position outlives the topic; None: it names no topic.
    """
    rows: Rows = {"orders": [(0, offset, None)]}
    saw(group, rows, ids, 1_000, log, named={True: rows, False: None, None: ()}[outlives])
    return ("orders", 0) in group.refused


@pytest.mark.parametrize("outlives", [False, True])
def test_external_position_on_a_recreated_topic_is_refused_until_it_changes(outlives: bool) -> None:
    """F5, F7: it has read on to 9 before its topic was deleted; a file or ZooKeeper says so of the new one."""
    group = GroupMemory()
    assert [
        orders_at(group, offset, {"orders": topic_id}, outlives=outlives)
        for offset, topic_id in ((5, "old"), (9, "new"), (9, "new"), (10, "new"))
    ] == [False, outlives, outlives, False]


@pytest.mark.parametrize("recreated", [False, True])
def test_refused_commit_counts_no_more_once_its_epoch_is_read(recreated: bool) -> None:
    """F5: it holds until the commit changes, also if ``groups.stale.epochs`` stops naming its group meanwhile."""
    ids = {"orders": "new"}
    group, log = GroupMemory(), LogNow(6, 0)
    saw(group, {"orders": [(0, 10, None)]}, {"orders": "old"} if recreated else ids, 1, None if recreated else log)
    saw(group, {"orders": [(0, 10, 0)]}, ids, 2, LogNow(24, 0))
    assert ("orders", 0) in group.refused
    later = GroupMemory()
    saw(later, {"orders": [(0, 10, 0)]}, ids, 3, LogNow(24, 0))
    assert ("orders", 0) in group.merged(later).refused
    saw(group, {"orders": [(0, 11, 0)]}, ids, 4, LogNow(24, 0))
    assert ("orders", 0) in group.counted


@pytest.mark.parametrize("log", [LogNow(7, 0), None])
def test_commit_that_one_operator_refused_and_another_saw_anew_counts_once_its_group_is_gone(
    log: LogNow | None,
) -> None:
    """F5, F6: until then it may be the leftover that the first one saw, which had no epoch."""
    ids, mine, theirs = {"orders": "new"}, GroupMemory(), GroupMemory()
    saw(mine, {"orders": [(0, 3, None)]}, {"orders": "old"}, 1)
    saw(mine, {"orders": [(0, 3, None)]}, ids, 2, LogNow(7, 0))
    saw(theirs, {"orders": [(0, 3, 0)]}, ids, 3, log)
    for both in (once := mine.merged(theirs), theirs.merged(mine), once.merged(mine)):
        assert ("orders", 0) in both.refused
        assert both.last_commits(ids, 0) == {"orders": [(0, 3, None if log is None else 0)]}


def test_position_on_a_missing_topic_is_refused_once_the_topic_is_created() -> None:
    """F5, F7: ZooKeeper keeps nodes of topics that are long gone."""
    group = GroupMemory()
    orders_at(group, 7, {})
    assert orders_at(group, 7, {"orders": "new"})
    assert group.last_commits({"orders": "new"}, 0) == {}


def test_truncation_while_a_source_is_unread_refuses_its_next_position() -> None:
    """M2, F7: where it stood before still counts, should it be gone by then (F6)."""
    ids, group = {"orders": "id"}, GroupMemory()
    orders_at(group, 900, ids, LogNow(1_000, 1))
    group.cut_unseen({"orders"})
    assert group.last_commits(ids, 0) == {"orders": [(0, 900, 1)]}
    again = GroupMemory.from_bytes(group.as_bytes())
    assert [orders_at(again, offset, ids) for offset in (950, 960)] == [True, False]


OUTSIDE = key_of("zookeeper", "g")


def pass_over(folder: Path, commits: Rows | None, log: LogNow | None, topic_id: str = "A", cut: bool = False) -> None:
    """One pass that reads these positions of a consumer outside Kafka (None: it can't be read), and this log of t-0."""
    with Ledger(folder) as ledger:
        ledger.begin({"t": topic_id})
        if commits is not None:
            ledger.saw_group(OUTSIDE, commits, 1_000, 0)
        if log is not None:
            ledger.judge(lambda: Logs([(("t", 0), log)]), {"t"}, [TopicPartition("t", 0)] if cut else [])
        ledger.save(1_000)


STANDS: Rows = {"t": [(0, 500, None)]}


@pytest.mark.parametrize(
    ("passes", "offset"),
    [
        pytest.param(
            [(STANDS, None), (None, LogNow(100, 5, cut=100, cut_until=3), "A", True), (STANDS, LogNow(1_000, 5))],
            500,
            id="nobody had judged it before a truncation, and the log has grown beyond it again",
        ),
        pytest.param(
            [({"t": []}, None), ({"t": [(0, 50, None)]}, LogNow(1_000, 0), "B")],
            50,
            id="the first one on a topic that was recreated: ZooKeeper named the old one",
        ),
    ],
)
def test_outside_position_that_may_be_of_an_earlier_log_is_refused(
    tmp_path: Path, passes: list[Any], offset: int
) -> None:
    """F5, F7."""
    for one in passes:
        pass_over(tmp_path / "c", *one)
    with Ledger(tmp_path / "c") as ledger:
        group = ledger.group(OUTSIDE)
    assert (dict(group.refused), dict(group.counted)) == ({("t", 0): Position(offset, None)}, {})


# -- since when a group stands still, at least: a bound that no look of anybody's contradicts (docs/memory.md) --


ANEW = IDS | {"orders": "id-9"}


def look(memory: GroupMemory, commits: Rows, now_ms: int, ids: dict[str, str] = IDS, end: int = 100) -> None:
    """Update a memory as a ledger does: only where anything has changed."""
    if digest_of(commits, ids) != memory.digest:
        saw(memory, commits, ids, now_ms, LogNow(end, 4))
    else:
        memory.seen_ms = now_ms


AT_5: Rows = {"orders": [(0, 5, 4), (1, 7, 4)]}


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
    commits: Rows, ids: dict[str, str], stood: int, end: int
) -> None:
    """Whether or not a commit counts: with a log that ends at 6, the one at 7 is refused (F5)."""
    memory = GroupMemory()
    look(memory, AT_5, 10, end=end)
    look(memory, commits, 20, ids, end)
    assert memory.stood_ms == stood
    look(memory, commits, 30, ids, end)
    assert GroupMemory.from_bytes(memory.as_bytes()).stood_ms == stood


@pytest.mark.parametrize(
    ("looks", "stood"),
    [
        pytest.param([(10, AT_5), (20, {}), (30, AT_5)], 30, id="a commit that returned has moved"),
        pytest.param([(1_000, AT_5), (10, {"orders": [(0, 6, 4), (1, 7, 4)]})], 1_001, id="a clock set back"),
    ],
)
def test_group_stands_since_its_last_move_and_no_look_is_earlier_than_the_one_before(
    looks: list[tuple[int, Rows]], stood: int
) -> None:
    memory = GroupMemory()
    for now_ms, commits in looks:
        look(memory, commits, now_ms)
    assert memory.stood_ms == memory.seen_ms == stood


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
    assert (both, both.merged(both).stood_ms) == (seen[-1].merged(seen[0]), both.stood_ms)
    since = [offset for number, (_machine, offset) in enumerate(looks) if 10 * (number + 1) >= both.stood_ms]
    assert set(since) == {looks[-1][1]}
    if len(seen) == 1:  # and it is the first such look
        before = [offset for number, (_machine, offset) in enumerate(looks) if 10 * (number + 1) < both.stood_ms]
        assert before[-1:] != [looks[-1][1]]


def test_ledger_reports_since_when_a_group_is_unmoved(tmp_path: Path) -> None:
    with Ledger(tmp_path / "c1") as ledger:
        ledger.begin(IDS)
        for now_ms in (10, 100_000):
            ledger.saw_group("billing", AT_5, now_ms, 0)
            ledger.save(now_ms)
        moved: Rows = {"orders": [(0, 6, 4), (1, 7, 4)]}
        asked = (("billing", AT_5), ("billing", None), ("billing", moved), ("audit", AT_5))
        assert (
            [ledger.unmoved_since(*one) for one in asked],
            [seen_ms for _name, seen_ms, _rows in ledger.gone_groups((), 0)],
        ) == ([10, 10, None, None], [100_000])
