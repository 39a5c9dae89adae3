"""Every group's commits, folded to floors (F1–F5)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Floor, Reason, TopicPartition, Unknown
from retention_cli.memory.ages import Ages
from retention_cli.memory.interface import RecalledGroup
from retention_cli.observe.floors.fold import Commit, FloorFold, Latest, TopicScope

ORDERS0 = TopicPartition("orders", 0)
THREE = {"orders": TopicScope([5, 5, 5])}


def codes(floor: object) -> list[str]:
    assert isinstance(floor, Unknown), floor
    return [reason.code for reason in floor.reasons]


def test_the_smallest_commit_of_all_groups_is_the_floor() -> None:
    fold = FloorFold({"orders": TopicScope([5])})
    for group, offset in (("b", 7), ("a", 7), ("c", 9)):
        fold.add(group, {"orders": [(0, offset, None)]})
    assert fold.floor(ORDERS0, 0, 10) == Floor(7, "group:a")


def test_a_group_without_a_commit_here_makes_the_floor_unknown_and_says_what_to_do() -> None:
    fold = FloorFold(THREE)
    fold.add("stray", {"orders": [(1, 1204, None)]})
    fold.add("billing", {"orders": [(n, 50, None) for n in range(3)]})
    floor = fold.floor(ORDERS0, 0, 2000)
    assert codes(floor) == ["F2"]
    assert isinstance(floor, Unknown)
    text = floor.reasons[0].text
    assert "stray" in text
    assert "orders-1 is 1,204" in text
    assert "kafka-consumer-groups.sh --bootstrap-server HOST:PORT --delete-offsets --group stray --topic orders" in text
    assert isinstance(fold.floor(TopicPartition("orders", 1), 0, 2000), Floor)


def test_odd_group_names_are_quoted_in_the_remedy() -> None:
    fold = FloorFold(THREE)
    fold.add("it's; rm -rf /", {"orders": [(1, 1, None)]})
    floor = fold.floor(ORDERS0, 0, 10)
    assert isinstance(floor, Unknown)
    assert """--group 'it'"'"'s; rm -rf /' --topic""" in floor.reasons[0].text


def test_a_live_member_that_has_committed_nothing_makes_the_topic_unknown() -> None:
    fold = FloorFold(THREE)
    fold.add("done", {"orders": [(n, 9, None) for n in range(3)]})
    fold.add("new", {}, reads=["orders", "elsewhere"])
    assert codes(fold.floor(ORDERS0, 0, 10)) == ["F2"]


def test_groups_that_start_at_the_end_need_no_commit() -> None:
    fold = FloorFold(THREE, latest=Latest(frozenset({"tail"})))
    fold.add("done", {"orders": [(n, 9, None) for n in range(3)]})
    fold.add("tail", {"orders": [(1, 4, None)]})
    assert fold.floor(ORDERS0, 0, 10) == Floor(9, "group:done")
    assert fold.floor(TopicPartition("orders", 1), 0, 10) == Floor(4, "group:tail")


def test_a_partition_that_is_younger_than_the_group_needs_its_commit() -> None:
    """F2: with ``auto.offset.reset.new.partitions=earliest`` (KIP-1327) the group reads it from 0."""
    ages = Ages({"orders": [(1, 0), (2, 100), (3, 200)]}, {"fresh": 200, "between": 150})
    fold = FloorFold(THREE, latest=Latest(frozenset({"old", "between", "fresh"}), ages))
    fold.add("done", {"orders": [(n, 9, None) for n in range(3)]})
    for group in ("old", "between", "fresh"):
        fold.add(group, {"orders": [(0, 9, None)]}, reads=["orders"])
    floors = [fold.floor(TopicPartition("orders", n), 0, 10) for n in range(3)]
    assert isinstance(floors[0], Floor)
    assert [str(floor).count("groups.latest does not cover") for floor in floors] == [0, 1, 2]
    assert "group old " in str(floors[1])
    assert "fresh" not in str(floors)


@pytest.mark.parametrize("stored", [-1, -2, -(2**63)])
@pytest.mark.parametrize("latest", [[], ["reset"]])
def test_a_stored_offset_below_zero_is_unknown_whatever_is_remembered(stored: int, latest: list[str]) -> None:
    """F1, F2: only the client knows where it starts. No remembered position and no ``groups.latest`` replaces it."""
    scope = TopicScope([5, 5, 5], require=("reset",))
    gone: list[dict[str, list[Commit]]] = [{}, {"orders": [(0, 10, 5)]}]
    for remembered in gone:
        fold = FloorFold({"orders": scope}, latest=Latest(frozenset(latest)))
        fold.add("done", {"orders": [(n, 10, None) for n in range(3)]})
        below_zero = {"orders": {0: stored, 7: stored}, "unmanaged": {0: stored}}
        commits = {"orders": [(1, 10, None), (2, 10, None)]}
        fold.add("reset", commits, recalled=RecalledGroup(remembered), no_position=below_zero)
        floor = fold.floor(ORDERS0, 0, 10)
        assert codes(floor) == ["F2", "F4"]
        assert isinstance(floor, Unknown)
        assert f"group reset stored offset {stored} here" in floor.reasons[0].text
        assert isinstance(fold.floor(TopicPartition("orders", 1), 0, 10), Floor)


def test_a_group_that_stored_nothing_but_offsets_below_zero_reads_the_whole_topic() -> None:
    fold = FloorFold(THREE)
    fold.add("done", {"orders": [(n, 9, None) for n in range(3)]})
    fold.add("reset", {"orders": []}, no_position={"orders": {1: -2}})
    assert [codes(fold.floor(TopicPartition("orders", n), 0, 10)) for n in range(3)] == [["F2"]] * 3


def test_a_live_member_without_a_commit_reads_anew_whatever_is_remembered() -> None:
    """F2: a group was deleted so that it reads again. Its member has started from 0 and has not committed yet."""
    for commits in ({}, {"orders": [(1, 9, None), (2, 9, None)]}):
        fold = FloorFold(THREE)
        fold.add("done", {"orders": [(n, 9, None) for n in range(3)]})
        fold.add("again", commits, ["orders"], RecalledGroup({"orders": [(0, 9, 5)]}))
        assert codes(fold.floor(ORDERS0, 0, 10)) == ["F2"]
    fold = FloorFold(THREE)
    fold.add("done", {"orders": [(n, 9, None) for n in range(3)]})
    fold.add("again", {}, ["elsewhere"], RecalledGroup({"orders": [(n, 4, 5) for n in range(3)]}))
    floor = fold.floor(ORDERS0, 0, 10)
    assert isinstance(floor, Floor)
    assert (floor.offset, floor.by) == (4, "group:again"), "without a member here it counts where it stood (F6)"


def test_no_group_at_all_is_unknown() -> None:
    assert codes(FloorFold(THREE).floor(ORDERS0, 0, 10)) == ["F4"]


def test_a_required_group_must_have_committed_on_each_partition() -> None:
    fold = FloorFold({"orders": TopicScope([5, 5], require=("billing",))})
    fold.add("other", {"orders": [(0, 9, None), (1, 9, None)]})
    fold.add("billing", {"orders": [(1, 9, None)]})
    assert codes(fold.floor(ORDERS0, 0, 10)) == ["F2", "F4"]
    assert fold.floor(TopicPartition("orders", 1), 0, 10) == Floor(9, "group:billing")


def test_a_group_that_could_not_be_read_holds_its_topics_or_all() -> None:
    two = {"orders": TopicScope([5]), "payments": TopicScope([5])}
    fold = FloorFold(two)
    fold.add("a", {"orders": [(0, 9, None)], "payments": [(0, 9, None)]})
    fold.fail("x", "time-out", ["orders"])
    assert codes(fold.floor(ORDERS0, 0, 10)) == ["F3"]
    assert isinstance(fold.floor(TopicPartition("payments", 0), 0, 10), Floor)
    fold.fail("y", "time-out", None)
    assert codes(fold.floor(TopicPartition("payments", 0), 0, 10)) == ["F3"]


def test_a_listing_that_failed_makes_everything_unknown() -> None:
    fold = FloorFold({"orders": TopicScope([5])})
    fold.add("a", {"orders": [(0, 9, None)]})
    fold.fail_all(Reason("F9", "no leader"))
    assert codes(fold.floor(ORDERS0, 0, 10)) == ["F9"]


def test_a_commit_beyond_the_end_is_a_leftover_whoever_else_is_behind() -> None:
    fold = FloorFold({"orders": TopicScope([5])})
    fold.add("a", {"orders": [(0, 3, None)]})
    fold.add("leftover", {"orders": [(0, 11, None)]})
    assert codes(fold.floor(ORDERS0, 0, 10)) == ["F5"]
    assert fold.floor(ORDERS0, 0, 11) == Floor(3, "group:a")


def test_a_commit_below_the_log_start_counts_and_says_what_was_lost() -> None:
    fold = FloorFold({"orders": TopicScope([5])})
    fold.add("slow", {"orders": [(0, 3, None)]})
    floor = fold.floor(ORDERS0, 10, 20)
    assert isinstance(floor, Floor)
    assert floor.offset == 3
    assert "7 records were gone" in floor.notes[0].text
    at_the_start = fold.floor(ORDERS0, 3, 20)
    assert isinstance(at_the_start, Floor)
    assert at_the_start.notes == ()


def test_a_commit_beyond_the_end_of_its_own_leader_epoch_is_unknown() -> None:
    fold = FloorFold({"orders": TopicScope([5])})
    fold.add("a", {"orders": [(0, 30, 3)]})
    fold.add("b", {"orders": [(0, 40, 5)]})  # the current epoch: the high watermark speaks for it
    assert fold.epochs_to_check() == [(ORDERS0, 3)]
    fold.epoch_ends_at(ORDERS0, 3, 30)
    assert fold.floor(ORDERS0, 0, 50) == Floor(30, "group:a")
    fold.epoch_ends_at(ORDERS0, 3, 29)
    assert codes(fold.floor(ORDERS0, 0, 50)) == ["F5"]


def test_the_largest_commit_of_an_epoch_is_the_one_that_is_checked() -> None:
    fold = FloorFold({"orders": TopicScope([5])})
    for group, offset in (("a", 10), ("b", 30), ("c", 20)):
        fold.add(group, {"orders": [(0, offset, 3)]})
    fold.epoch_ends_at(ORDERS0, 3, 25)
    floor = fold.floor(ORDERS0, 0, 50)
    assert isinstance(floor, Unknown)
    assert "group b" in floor.reasons[0].text


def test_an_epoch_that_could_not_be_asked_about_is_unknown() -> None:
    fold = FloorFold({"orders": TopicScope([5])})
    fold.add("a", {"orders": [(0, 30, 3)]})
    fold.epoch_ends_at(ORDERS0, 3, Unknown.because("F5", "time-out"))
    assert codes(fold.floor(ORDERS0, 0, 50)) == ["F5"]


def test_without_a_high_watermark_there_is_no_floor() -> None:
    fold = FloorFold({"orders": TopicScope([5])})
    fold.add("a", {"orders": [(0, 3, None)]})
    assert codes(fold.floor(ORDERS0, 0, Unknown.because("offsets", "?"))) == ["offsets"]


def test_a_commit_on_a_partition_that_has_come_since_does_not_hide_a_missing_one() -> None:
    fold = FloorFold(THREE)
    fold.add("a", {"orders": [(1, 9, None), (2, 9, None), (3, 9, None)]})
    assert codes(fold.floor(ORDERS0, 0, 10)) == ["F2"]


def test_many_groups_without_a_commit_are_counted_not_listed() -> None:
    fold = FloorFold(THREE)
    for number in range(50):
        fold.add(f"stray-{number:02}", {"orders": [(1, 1, None)]})
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
def test_the_order_of_groups_changes_nothing_and_the_floor_is_the_minimum(drawn: list, rng: random.Random) -> None:
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
