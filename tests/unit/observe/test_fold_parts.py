"""Folds of some groups, cut by topics and added up, equal one fold of all groups (F1–F6), in any order."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Reason, TopicPartition, Unknown
from retention_cli.memory.ages import Ages
from retention_cli.memory.interface import RecalledGroup
from retention_cli.observe.floors.fold import FloorFold, Latest, TopicScope

SCOPES = {"orders": TopicScope([4, 4, 4]), "payments": TopicScope([2, -1, -1, 2], ("g1", "g2"))}

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
        refused = {(topic, number): one for topic, by in now.items() for number, one in by.items()}
        recalled = RecalledGroup(rows(before) if more == "recalls" else {}, refused if more == "refuses" else {})
        fold.add(name, rows(now), ["orders"] if live else [], recalled)


def floors(fold: FloorFold, tps: list[TopicPartition]) -> list[Any]:
    """All that is asked of a fold, with the answers of leaders on epochs, and cuts."""
    asked = [(tp, epoch) for tp, epoch in fold.epochs_to_check() if tp in tps]
    for number, (tp, epoch) in enumerate(asked):
        fold.epoch_ends_at(tp, epoch, (None, 3, 7)[number % 3])
    for tp in tps[::3]:
        fold.cut_at(tp, 5, 1)
    for tp in tps[1::3]:
        fold.cut_unknown(tp)
    return [asked, *(fold.floor(tp, start, end) for tp in tps for start, end in ((0, 6), (2, 20), (4, 4)))]


@given(groups(), st.integers(1, 3), st.randoms(use_true_random=False), st.booleans())
def test_partial_folds_add_up_to_the_complete_fold(
    drawn: list[tuple[Any, ...]], shares: int, rng: random.Random, doubtful: bool
) -> None:
    latest = Latest(frozenset({"g0", "g1"}), Ages({"orders": [(1, 0), (3, 7)]}, {"g1": 7}))
    order = [*drawn]
    rng.shuffle(order)
    folds = []
    for number in range(shares):
        fold = FloorFold(SCOPES, latest)
        for group in order[number::shares]:
            tell(fold, group)
        if doubtful and number == 0:
            fold.fail_all(Reason("F8", "listed in part"))
        folds.append(fold)
    for topic, scope in SCOPES.items():
        whole = FloorFold(SCOPES, latest)
        for group in drawn:
            tell(whole, group)
        if doubtful:
            whole.fail_all(Reason("F8", "listed in part"))
        total = FloorFold({topic: scope})
        for fold in rng.sample(folds, shares):
            total.take(fold.part({topic, "elsewhere"}))
        tps = [TopicPartition(topic, number) for number in range(len(scope.leader_epochs))]
        assert floors(total, tps) == floors(whole, tps)


@pytest.mark.parametrize("first", ["", "gone", "live"])
def test_commit_at_the_largest_offset_never_raises_the_floor(first: str) -> None:
    """F5: brokers take any offset. Whoever else has committed, or counts though it is gone: it lies beyond the log."""
    tp, largest = TopicPartition("orders", 0), {"orders": [(n, 2**63 - 1, None) for n in range(3)]}
    others, theirs = FloorFold(SCOPES), FloorFold(SCOPES)
    if first:
        commits = {"orders": dict.fromkeys(range(3), (5, 4))}
        tell(others, ("g1", "reads" if first == "live" else "gone", commits, {}, "", False))
    theirs.add("g2", largest)
    total = FloorFold({"orders": SCOPES["orders"]})
    for one in (others, theirs):
        total.take(one.part({"orders"}))
    floor = total.floor(tp, 0, 6)
    assert isinstance(floor, Unknown) or (first and floor.offset <= 5)
