"""What is remembered: samples of H (RULES.md G3), largest times (R2), and groups that are gone (F5, F6)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from retention_cli.group_memory import GroupMemory, digest_of
from retention_cli.guards.wall_clock import written_by
from retention_cli.memory import SAMPLES_AT_MOST, PartitionMemory, thinned, without_falls
from retention_cli.model import EventMax, Sample

walks = st.lists(st.tuples(st.integers(0, 50), st.integers(-3, 10)), min_size=1, max_size=200).map(
    lambda steps: [
        Sample(sum(wait for wait, _ in steps[: n + 1]), max(0, 50 + sum(rise for _, rise in steps[: n + 1])))
        for n in range(len(steps))
    ]
)


@given(walks, st.integers(0, 12_000))
def test_thinning_never_claims_more_than_all_samples_do(samples: list[Sample], time_ms: int) -> None:
    """RULES.md G3: exact lower bounds, never a guess; also where a high watermark fell."""
    fewer = thinned(samples)
    assert len(fewer) <= max(40, 1)
    assert [one.wall_ms for one in fewer] == sorted(one.wall_ms for one in fewer)
    assert (written_by(fewer, time_ms) or 0) <= (written_by(samples, time_ms) or 0)


@given(walks, st.integers(0, 12_000))
def test_without_falls_says_exactly_the_same(samples: list[Sample], time_ms: int) -> None:
    assert written_by(without_falls(samples), time_ms) == written_by(samples, time_ms)


@given(walks, st.data())
def test_what_one_sample_says_no_later_fall_may_contradict(samples: list[Sample], data: st.DataObject) -> None:
    """Offsets that were lost and written again are not old because their numbers are."""
    at = data.draw(st.sampled_from(samples)).wall_ms
    known = written_by(samples, at)
    assert known is not None
    assert all(known <= one.high_watermark for one in samples if one.wall_ms > at)


def test_a_year_of_samples_keeps_the_oldest_the_newest_and_enough_between() -> None:
    memory = PartitionMemory()
    hour = 3_600_000
    for n in range(365 * 24):
        memory.add_sample(Sample(n * hour, n * 100))
    kept = memory.samples
    assert len(kept) <= SAMPLES_AT_MOST
    assert kept[0] == Sample(0, 0)
    now = (365 * 24 - 1) * hour
    for wait_days in (1, 7, 30, 90):
        known = written_by(kept, now - wait_days * 24 * hour)
        truth = (now - wait_days * 24 * hour) // hour * 100
        assert known is not None
        assert truth - known <= 0.2 * wait_days * 24 * 100, f"{wait_days} d: too far behind"


def test_an_idle_partition_adds_nothing() -> None:
    memory = PartitionMemory()
    for at in range(1000):
        memory.add_sample(Sample(at, 7))
    assert memory.samples == (Sample(0, 7),)


def test_a_clock_that_was_set_back_still_notes_a_fall() -> None:
    memory = PartitionMemory()
    memory.add_sample(Sample(100, 50))
    memory.add_sample(Sample(90, 20))
    assert written_by(memory.samples, 100) == 20


@given(walks, walks)
def test_two_memories_merge_to_one_that_claims_no_more_than_both_saw(one: list[Sample], other: list[Sample]) -> None:
    mine, theirs = PartitionMemory(), PartitionMemory()
    for sample in one:
        mine.add_sample(sample)
    for sample in other:
        theirs.add_sample(sample)
    merged = mine.merged(theirs)
    everything = sorted({*one, *other})
    assert len(merged.samples) <= SAMPLES_AT_MOST
    for at in (0, 100, 1_000, 5_000):
        assert (written_by(merged.samples, at) or 0) <= max((s.high_watermark for s in everything), default=0)
        if merged.samples and merged.samples[0].wall_ms <= at:
            assert written_by(merged.samples, at) is not None


def test_the_largest_time_is_kept_whoever_saw_it() -> None:
    mine, theirs = PartitionMemory(newest=EventMax(5, 1)), PartitionMemory(newest=EventMax(9, 2), data_at=(3,))
    assert mine.merged(theirs).newest == theirs.merged(mine).newest == EventMax(9, 2)
    assert 3 in mine.merged(theirs).data_at
    mine.add_newest(EventMax(4, 7))
    assert mine.newest == EventMax(5, 1)


IDS = {"orders": "id-1", "clicks": "id-2"}


def seen(*passes: tuple[dict[str, dict[int, int]], dict[str, str]]) -> GroupMemory:
    memory = GroupMemory()
    for number, (commits, ids) in enumerate(passes):
        rows = {topic: [(p, offset, None) for p, offset in one.items()] for topic, one in commits.items()}
        memory.update(rows, ids, digest_of(rows, ids), 1000 + number)
        memory = GroupMemory.from_bytes(memory.as_bytes())
    return memory


def test_a_commit_that_is_gone_is_remembered_until_it_is_back_or_too_old() -> None:
    """RULES.md F6: a partition's commit that was there before and is gone."""
    memory = seen(({"orders": {0: 5, 1: 7}}, IDS), ({"orders": {0: 6}}, IDS))
    assert memory.recalled(IDS, since_ms=0).gone == {"orders": [(1, 7, None)]}
    assert memory.recalled(IDS, since_ms=1000).gone == {"orders": [(1, 7, None)]}
    assert memory.recalled(IDS, since_ms=1001).gone == {}
    back = seen(({"orders": {0: 5, 1: 7}}, IDS), ({"orders": {0: 6}}, IDS), ({"orders": {0: 6, 1: 8}}, IDS))
    assert back.recalled(IDS, since_ms=0).gone == {}


def test_a_group_that_is_gone_counts_with_all_it_had() -> None:
    memory = seen(({"orders": {0: 5, 1: 7}, "clicks": {0: 1}}, IDS), ({"orders": {0: 6}, "clicks": {0: 1}}, IDS))
    assert memory.last_commits(IDS, since_ms=0) == {"orders": [(1, 7, None), (0, 6, None)], "clicks": [(0, 1, None)]}


def test_what_was_deleted_with_its_topic_is_no_ones() -> None:
    newer = IDS | {"orders": "id-9"}
    memory = seen(({"orders": {0: 5}}, IDS), ({}, newer))
    assert memory.recalled(newer, since_ms=0).gone == {}
    assert memory.last_commits(newer, since_ms=0) == {}


def test_a_commit_that_outlived_its_topic_is_a_leftover_until_it_changes() -> None:
    """RULES.md F5: one that the ledger saw under another topic id, until it changes."""
    newer = IDS | {"orders": "id-9"}
    memory = seen(({"orders": {0: 500}}, IDS), ({"orders": {0: 500}}, newer), ({"orders": {0: 500}}, newer))
    assert memory.recalled(newer, since_ms=0).leftovers == {("orders", 0): 500}
    moved = seen(({"orders": {0: 500}}, IDS), ({"orders": {0: 500}}, newer), ({"orders": {0: 3}}, newer))
    assert moved.recalled(newer, since_ms=0).leftovers == {}


def test_the_digest_is_the_same_for_the_same_commits_in_any_order_and_no_other() -> None:
    rng = random.Random(1)
    rows = {f"t{n}": [(p, rng.randrange(1000), None) for p in range(5)] for n in range(5)}
    ids = {name: f"id-{name}" for name in rows}
    shuffled = dict(reversed(rows.items()))
    assert digest_of(rows, ids) == digest_of(shuffled, ids)
    assert digest_of(rows, ids) != digest_of(rows, ids | {"t3": "another"})
    assert digest_of(rows, ids) != digest_of({**rows, "t0": [*rows["t0"][:-1], (4, -1, None)]}, ids)
