"""Every group's commits, folded to floors (F1–F5)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Floor, Maybe, Reason, TopicPartition, Unknown
from retention_cli.memory.ages import Ages
from retention_cli.memory.interface import RecalledGroup
from retention_cli.observe.floors.fold import Commit, FloorFold, Latest, TopicScope

ORDERS0 = TopicPartition("orders", 0)


def three(*groups: tuple[str, dict[int, int]], epoch: int | None = None, **more: Any) -> FloorFold:
    """Fold groups' commits on the three partitions of a topic."""
    fold = FloorFold({"orders": TopicScope([5, 5, 5], more.pop("require", ()))}, **more)
    for name, commits in groups:
        fold.add(name, {"orders": [(n, offset, epoch) for n, offset in commits.items()]})
    return fold


def at(fold: FloorFold, partition: int = 0, start: int = 0, end: Maybe[int] = 10) -> object:
    """Return a partition's floor, or the codes of the reasons why it is unknown."""
    found = fold.floor(TopicPartition("orders", partition), start, end)
    return found if isinstance(found, Floor) else [reason.code for reason in found.reasons]


EVERYWHERE = {0: 9, 1: 9, 2: 9}


@pytest.mark.parametrize(
    ("groups", "ends", "expected"),
    [
        pytest.param([("b", {0: 7}), ("a", {0: 7}), ("c", {0: 9})], (0, 10), Floor(7, "group:a"), id="the smallest"),
        pytest.param([], (0, 10), ["F4"], id="no group"),
        pytest.param([("stray", {1: 4}), ("done", {0: 9})], (0, 10), ["F2"], id="none here, but elsewhere"),
        pytest.param([("stray", {1: 4}), ("done", {0: 9})], (9, 9), Floor(9, "group:done"), id="empty needs none"),
        pytest.param([("a", {1: 9, 2: 9, 3: 9})], (0, 10), ["F2"], id="none here, but on a partition since created"),
        pytest.param([("a", {0: 3}), ("leftover", {0: 11})], (0, 10), ["F5"], id="beyond the end"),
        pytest.param([("a", {0: 3}), ("ahead", {0: 11})], (0, 11), Floor(3, "group:a"), id="at the end"),
        pytest.param([("a", {0: 3})], (0, Unknown.because("offsets", "?")), ["offsets"], id="no high watermark"),
    ],
)
def test_floor_is_the_smallest_valid_commit_or_unknown(
    groups: list[tuple[str, dict[int, int]]], ends: tuple[int, Maybe[int]], expected: object
) -> None:
    assert at(three(*groups), 0, *ends) == expected


def test_group_without_a_commit_here_is_named_with_the_remedy() -> None:
    fold = three(("stray", {1: 1204}), ("it's; rm -rf /", {1: 1204}), ("billing", {0: 50, 1: 50, 2: 50}))
    floor = fold.floor(ORDERS0, 0, 2000)
    assert isinstance(floor, Unknown)
    quoted, stray = (reason.text for reason in floor.reasons)
    assert "orders-1 is 1,204" in stray
    line = "kafka-consumer-groups.sh --bootstrap-server HOST:PORT --delete-offsets --group stray --topic orders"
    assert line in stray
    assert """--group 'it'"'"'s; rm -rf /' --topic""" in quoted
    assert isinstance(at(fold, 1, end=2000), Floor)


def test_live_member_that_has_committed_nothing_makes_the_topic_unknown() -> None:
    fold = three(("done", EVERYWHERE))
    fold.add("new", {}, reads=["orders", "elsewhere"])
    assert at(fold) == ["F2"]


def test_groups_that_start_at_the_end_need_no_commit() -> None:
    fold = three(("done", EVERYWHERE), ("tail", {1: 4}), latest=Latest(frozenset({"tail"})))
    assert at(fold) == Floor(9, "group:done")
    assert at(fold, 1) == Floor(4, "group:tail")


def test_partition_that_is_younger_than_the_group_needs_its_commit() -> None:
    """F2: with ``auto.offset.reset.new.partitions=earliest`` (KIP-1327) the group reads it from 0."""
    ages = Ages({"orders": [(1, 0), (2, 100), (3, 200)]}, {"fresh": 200, "between": 150})
    fold = three(("done", EVERYWHERE), latest=Latest(frozenset({"old", "between", "fresh"}), ages))
    for group in ("old", "between", "fresh"):
        fold.add(group, {"orders": [(0, 9, None)]}, reads=["orders"])
    floors = [fold.floor(TopicPartition("orders", n), 0, 10) for n in range(3)]
    assert isinstance(floors[0], Floor)
    assert [str(floor).count("groups.latest does not cover") for floor in floors] == [0, 1, 2]
    assert "group old " in str(floors[1])
    assert "fresh" not in str(floors)


@pytest.mark.parametrize("stored", [-1, -2, -(2**63)])
@pytest.mark.parametrize("latest", [[], ["reset"]])
@pytest.mark.parametrize("gone", [{}, {"orders": [(0, 10, 5)]}])
def test_stored_offset_below_zero_is_unknown_despite_a_remembered_commit(
    stored: int, latest: list[str], gone: dict[str, list[Commit]]
) -> None:
    """F1, F2: only the client knows where it starts. No remembered position and no ``groups.latest`` replaces it."""
    fold = three(("done", {0: 10, 1: 10, 2: 10}), require=("reset",), latest=Latest(frozenset(latest)))
    below_zero = {"orders": {0: stored, 7: stored}, "unmanaged": {0: stored}}
    commits = {"orders": [(1, 10, None), (2, 10, None)]}
    fold.add("reset", commits, recalled=RecalledGroup(gone), no_position=below_zero)
    assert at(fold) == ["F2", "F4"]
    assert f"group reset stored offset {stored} here" in str(fold.floor(ORDERS0, 0, 10))
    assert isinstance(at(fold, 1), Floor)


def test_group_that_stored_only_offsets_below_zero_reads_the_complete_topic() -> None:
    fold = three(("done", EVERYWHERE))
    fold.add("reset", {"orders": []}, no_position={"orders": {1: -2}})
    assert [at(fold, n) for n in range(3)] == [["F2"]] * 3


def test_live_member_without_a_commit_is_unknown_despite_a_remembered_commit() -> None:
    """F2: a group was deleted so that it reads again. Its member has started from 0 and has not committed yet."""
    for commits in ({}, {"orders": [(1, 9, None), (2, 9, None)]}):
        fold = three(("done", EVERYWHERE))
        fold.add("again", commits, ["orders"], RecalledGroup({"orders": [(0, 9, 5)]}))
        assert at(fold) == ["F2"]
    fold = three(("done", EVERYWHERE))
    fold.add("again", {}, ["elsewhere"], RecalledGroup({"orders": [(n, 4, 5) for n in range(3)]}))
    floor = fold.floor(ORDERS0, 0, 10)
    assert isinstance(floor, Floor)
    assert (floor.offset, floor.by) == (4, "group:again"), "without a member here it counts where it stood (F6)"


def test_required_group_must_have_committed_on_each_partition() -> None:
    fold = three(("other", EVERYWHERE), ("billing", {1: 9, 2: 9}), require=("billing",))
    assert at(fold) == ["F2", "F4"]
    assert at(fold, 1) == Floor(9, "group:billing")


def test_group_that_could_not_be_read_holds_its_topics_or_all() -> None:
    fold = three(("a", EVERYWHERE))
    fold.fail("x", "time-out", ["payments"])
    assert isinstance(at(fold), Floor)
    fold.fail("x", "time-out", ["orders"])
    assert at(fold) == ["F3"]
    everywhere = three(("a", EVERYWHERE))
    everywhere.fail("y", "time-out", None)
    assert at(everywhere) == ["F3"]
    everywhere.fail_all(Reason("F9", "no leader"))
    assert at(everywhere) == ["F3", "F9"]


def test_commit_below_the_log_start_counts_and_names_the_lost_records() -> None:
    fold = three(("slow", {0: 3}))
    floor = fold.floor(ORDERS0, 10, 20)
    assert isinstance(floor, Floor)
    assert floor.offset == 3
    assert "7 records were gone" in floor.notes[0].text
    assert at(fold, start=3) == Floor(3, "group:slow")


@pytest.mark.parametrize(
    ("end", "expected"), [(30, Floor(10, "group:a")), (25, ["F5"]), (Unknown.because("F5", "time-out"), ["F5"])]
)
def test_largest_commit_of_an_epoch_must_lie_before_its_end(end: Maybe[int], expected: object) -> None:
    fold = three(("a", {0: 10}), ("b", {0: 30}), ("c", {0: 20}), epoch=3)
    fold.add("current", {"orders": [(0, 40, 5)]})  # the high watermark speaks for it
    assert fold.epochs_to_check() == [(ORDERS0, 3)]
    fold.epoch_ends_at(ORDERS0, 3, end)
    assert at(fold, end=50) == expected
    assert ("group b" in str(fold.floor(ORDERS0, 0, 50))) == (end == 25)


def test_many_groups_without_a_commit_are_counted_not_listed() -> None:
    fold = three(*((f"stray-{number:02}", {1: 1}) for number in range(50)))
    floor = fold.floor(ORDERS0, 0, 10)
    assert isinstance(floor, Unknown)
    assert len(floor.reasons) == 4
    assert "47 more" in floor.reasons[3].text


rows = st.dictionaries(st.integers(0, 3), st.integers(0, 20), max_size=4)
groups = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(["orders", "payments"]), rows, max_size=2), st.booleans(), st.booleans()),
    max_size=6,
)


@given(groups, st.randoms(use_true_random=False))
def test_floor_is_the_minimum_in_any_order_of_groups(drawn: list, rng: random.Random) -> None:
    scopes = {"orders": TopicScope([1, 1, 1]), "payments": TopicScope([1, 1])}

    def folded(order: list[int]) -> FloorFold:
        fold = FloorFold(scopes)
        for number in order:
            commits, failed, live = drawn[number]
            if failed:
                fold.fail(f"g{number}", "time-out", commits.keys())
            else:
                as_rows = {topic: [(n, offset, None) for n, offset in by.items()] for topic, by in commits.items()}
                fold.add(f"g{number}", as_rows, ["orders"] if live else [])
        return fold

    order = list(range(len(drawn)))
    first = folded(order)
    rng.shuffle(order)
    second = folded(order)
    for topic, scope in scopes.items():
        for partition in range(len(scope.leader_epochs)):
            tp = TopicPartition(topic, partition)
            floor = first.floor(tp, 0, 20)
            assert floor == second.floor(tp, 0, 20)
            here = [c[topic][partition] for c, failed, _ in drawn if not failed and partition in c.get(topic, {})]
            readers = [c for c, failed, live in drawn if not failed and (c.get(topic) or (live and topic == "orders"))]
            doubtful = any(failed and topic in c for c, failed, _ in drawn) or len(here) < len(readers) or not here
            if doubtful:
                assert isinstance(floor, Unknown)
            else:
                assert isinstance(floor, Floor)
                assert floor.offset == min(here)
