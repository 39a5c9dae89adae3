"""Groups folded by many tasks, cut and added up, are groups folded by one (F1–F6): whoever reads what, and in what order."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.core.model import Reason, TopicPartition, Unknown
from retention_cli.engines.spark.parts import CLIENT, Source, Sum, cut
from retention_cli.engines.spark.places import Places
from retention_cli.engines.spark.values import from_bytes, to_bytes
from retention_cli.memory.ages import Ages
from retention_cli.observe.floors.fold import FloorFold, TopicScope
from retention_cli.observe.floors.latest import Latest

EPOCHS = {"orders": {0: 4, 1: 4, 2: 4}, "payments": {0: 2, 3: 2}}
REQUIRE = {"payments": ("g1", "g2")}
PLACES = Places.of(
    ClusterMetadata(
        "c",
        frozenset({1, 2}),
        {
            name: TopicMetadata(name, f"id-{name}", False, {n: PartitionMetadata(1 + n % 2, e) for n, e in by.items()})
            for name, by in EPOCHS.items()
        },
    ),
    EPOCHS,
)
SCOPES = PLACES.scopes(EPOCHS, REQUIRE)
EVERYWHERE = np.arange(len(PLACES))
ONE_TASK = np.zeros(len(PLACES), np.int32)
SOURCES = [CLIENT, Source(1, 1, 0), Source(1, 1, 1)]

epochs = st.sampled_from([None, 1, 2, 4, 9])
commits = st.dictionaries(st.integers(0, 4), st.tuples(st.integers(0, 9) | st.just(2**63 - 1), epochs), max_size=5)
by_topic = st.dictionaries(st.sampled_from(["orders", "payments", "elsewhere"]), commits, max_size=3)


@st.composite
def groups(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Draw what the source of each of some groups says of it."""
    kinds = st.sampled_from(["reads", "reads", "reads", "gone", "fails", "fails somewhere"])
    flags = st.sampled_from(["", "", "recalls", "refuses"])
    some = st.tuples(kinds, by_topic, by_topic, flags, st.booleans())
    return [(f"g{number}", *one) for number, one in enumerate(draw(st.lists(some, max_size=6)))]


def rows(drawn: Any) -> dict[str, list[tuple[int, int, int | None]]]:
    return {topic: [(number, offset, epoch) for number, (offset, epoch) in by.items()] for topic, by in drawn.items()}


def tell(fold: FloorFold, group: tuple[Any, ...]) -> None:
    name, kind, now, before, more, live = group
    if kind == "gone":
        fold.add_gone(name, rows(now), "on Monday")
    elif kind == "fails":
        fold.fail(name, "time-out", None)
    elif kind == "fails somewhere":
        fold.fail(name, "time-out", now.keys())
    else:
        if more == "refuses":
            fold.refuse(name, {(topic, number): one for topic, by in now.items() for number, one in by.items()})
        if more == "recalls":
            fold.recall(name, rows(before), "before")
        fold.add(name, rows(now), ["orders"] if live else [])


def floors(fold: FloorFold, tps: list[TopicPartition]) -> list[Any]:
    """All that is asked of a fold, with the answers of leaders on epochs, and cuts."""
    asked = [(tp, epoch) for tp, epoch in fold.epochs_to_check() if tp in tps]
    for number, (tp, epoch) in enumerate(asked):
        fold.epoch_ends_at(tp, epoch, (None, 3, 7)[number % 3])
    for tp in tps[::3]:
        fold.cut_at(tp, 5, 1)
    for tp in tps[1::3]:
        fold.cut_untold(tp)
    return [asked, *(fold.floor(tp, start, end) for tp in tps for start, end in ((0, 6), (2, 20), (4, 4)))]


@given(groups(), st.integers(1, 3), st.integers(1, 3), st.randoms(use_true_random=False), st.booleans())
def test_folds_that_are_cut_and_added_up_are_one_fold(
    drawn: list[tuple[Any, ...]], folds: int, tasks: int, rng: random.Random, doubtful: bool
) -> None:
    latest = Latest(frozenset({"g0", "g1"}), Ages({"orders": [(1, 0), (3, 7)]}, {"g1": 7}))
    task_of = np.array([rng.randrange(tasks) for _ in range(len(PLACES))], np.int32)
    arrived: dict[int, list[Any]] = {task: [] for task in range(tasks)}
    order = [*drawn]
    rng.shuffle(order)
    for number in range(folds):
        part = FloorFold(SCOPES, latest)
        for group in order[number::folds]:
            tell(part, group)
        if doubtful and number == 0:
            part.fail_all(Reason("F8", "listed in part"))
        for task, one in cut(part, PLACES, task_of, SOURCES[number]):
            arrived[task].append(from_bytes(to_bytes(one)))
    for task in range(tasks):
        whole = FloorFold(SCOPES, latest)
        for group in drawn:
            tell(whole, group)
        if doubtful:
            whole.fail_all(Reason("F8", "listed in part"))
        positions = np.flatnonzero(task_of == task)
        rng.shuffle(arrived[task])
        total = Sum(PLACES, positions, arrived[task], SOURCES[:folds])
        for some in np.array_split(positions, 2):
            tps = PLACES.tps(some)
            assert floors(total.fold(some, SCOPES), tps) == floors(whole, tps)


@pytest.mark.parametrize("first", ["", "gone", "live"])
def test_a_commit_of_the_largest_number_is_a_commit(first: str) -> None:
    """F5: brokers take any offset. Whoever else has committed, or counts though it is gone: it lies beyond the log."""
    tp, largest = TopicPartition("orders", 0), {"orders": [(n, 2**63 - 1, None) for n in range(3)]}
    others, theirs = FloorFold(SCOPES), FloorFold(SCOPES)
    if first:
        tell(
            others,
            ("g1", "reads" if first == "live" else "gone", {"orders": dict.fromkeys(range(3), (5, 4))}, {}, "", False),
        )
    theirs.add("g2", largest)
    parts = [
        one for fold, who in ((others, CLIENT), (theirs, SOURCES[1])) for _, one in cut(fold, PLACES, ONE_TASK, who)
    ]
    for added in (parts, parts[::-1]):
        floor = Sum(PLACES, EVERYWHERE, added, SOURCES[:2]).fold(EVERYWHERE, SCOPES).floor(tp, 0, 9)
        assert isinstance(floor, Unknown)
        assert [reason.code for reason in floor.reasons] == ["F5"]
    others.add("g2", largest)
    assert others.floor(tp, 0, 9) == floor


@pytest.mark.parametrize(("log_start", "high_watermark"), [(0, 9), (3, 3)])
def test_a_source_without_groups_says_so_to_every_task(log_start: int, high_watermark: int) -> None:
    """F4: no group at all is an answer, and no answer isn't."""
    parts = dict(cut(FloorFold(SCOPES), PLACES, np.array([0, 0, 1, 1, 1], np.int32), CLIENT))
    assert parts.keys() == {0, 1}
    fold = Sum(PLACES, EVERYWHERE, [parts[0]], [CLIENT]).fold(EVERYWHERE, SCOPES)
    for tp in PLACES.tps(EVERYWHERE):
        assert fold.floor(tp, log_start, high_watermark) == FloorFold(SCOPES).floor(tp, log_start, high_watermark)


@given(groups(), st.integers(1, 3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_parts_that_get_lost_never_raise_a_floor(
    drawn: list[tuple[Any, ...]], folds: int, tasks: int, rng: random.Random
) -> None:
    """F3: whatever is lost, and whatever arrives twice."""
    task_of = np.array([rng.randrange(tasks) for _ in range(len(PLACES))], np.int32)
    arrived: dict[int, list[Any]] = {}
    for number in range(folds):
        part = FloorFold(SCOPES)
        for group in drawn[number::folds]:
            tell(part, group)
        for task, one in cut(part, PLACES, task_of, SOURCES[number]):
            arrived.setdefault(task, []).append(one)
    for task, parts in arrived.items():
        positions = np.flatnonzero(task_of == task)
        tps = PLACES.tps(positions)
        left = [one for one in parts for _ in range(rng.choice([0, 1, 1, 2]))]
        whole, found = (
            floors(Sum(PLACES, positions, some, SOURCES[:folds]).fold(positions, SCOPES), tps) for some in (parts, left)
        )
        if {one.source for one in left} == {*SOURCES[:folds]}:
            known = [[None if isinstance(one, Unknown) else one for one in some] for some in (found, whole)]
            assert known[0] == known[1]  # reasons may count a group twice
        else:
            with_records = [one for at, one in enumerate(found[1:]) if at % 3 != 2]  # see floors
            assert all(isinstance(one, Unknown) for one in with_records)


@pytest.mark.parametrize(
    ("lost", "text"),
    [
        (CLIENT, "positions of deleted groups and of consumers outside Kafka were read, but Spark lost them"),
        (Source(1, 2, 0), "commits of groups that broker 2 coordinates were read, but Spark lost them"),
        (Source(2, -1, 0), "commits of groups without a coordinator were read, but Spark lost them"),
    ],
)
def test_a_lost_part_is_named(lost: Source, text: str) -> None:
    """F3: even if it was empty, and though what another reading of the same groups found is there."""
    fold = FloorFold(SCOPES)
    fold.add("g1", {"orders": [(n, 5, None) for n in range(3)]})
    parts = [one for source in (SOURCES[1], lost._replace(reading=9)) for _, one in cut(fold, PLACES, ONE_TASK, source)]
    floor = (
        Sum(PLACES, EVERYWHERE, parts, [SOURCES[1], lost])
        .fold(EVERYWHERE, SCOPES)
        .floor(TopicPartition("orders", 0), 0, 9)
    )
    assert isinstance(floor, Unknown)
    assert [(one.code, one.text[: len(text)]) for one in floor.reasons] == [("F3", text)]


def test_a_topic_whose_partitions_have_gaps_keeps_its_numbers() -> None:
    """As where a user may describe a topic while partitions are made."""
    assert [str(tp) for tp in PLACES.tps(np.arange(5))] == [
        "orders-0",
        "orders-1",
        "orders-2",
        "payments-0",
        "payments-3",
    ]
    assert [PLACES.position("payments", number) for number in range(5)] == [3, None, None, 4, None]
    assert PLACES.position("zebra", 0) is PLACES.position("aardvark", 0) is None
    assert SCOPES["payments"] == TopicScope([2, -1, -1, 2], ("g1", "g2"))
