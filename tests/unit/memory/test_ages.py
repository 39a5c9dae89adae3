"""Partitions that were added after a group was first seen (F2): what the ledger keeps of it, from run to run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.memory import documents as docs
from retention_cli.memory.ages import Ages, Width, merged
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.state import messages

IDS = {"a": "x", "b": "y"}


def look(
    ledger: Ledger, partitions: Mapping[str, int], groups: Collection[str], now_ms: int, ids: Mapping[str, str] = IDS
) -> Ages:
    """Look at topics and groups in one run, and save."""
    ledger.begin(ids)
    ages = ledger.ages(partitions, groups, now_ms)
    for name in groups:
        ledger.saw_group(name, {"a": [(0, 5, 1)]}, now_ms, 0)
    assert ledger.ages(partitions, groups, now_ms + 1) == ages, "a recheck comes to the same"
    ledger.save(now_ms)
    return ages


Look = tuple[Mapping[str, int], Collection[str]]


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
    tmp_path: Path, looks: list[Look], covered: dict[str, int]
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
    assert merged(one, other) == merged(other, one)
    assert merged(merged(one, other), third) == merged(one, merged(other, third))
    assert merged(one, one) == merged(one, [])


def test_later_first_look_at_a_topic_does_not_contradict_an_earlier_one() -> None:
    assert merged([(2, 0), (3, 100)], [(3, 0), (5, 200)]) == [(2, 0), (3, 100), (5, 200)]


def test_topic_and_group_documents_carry_ages() -> None:
    written = messages.Written(5, 1)
    topic = docs.TopicDocument("x" * 22, "a", 7, {}, ((2, 0), (3, 100)))
    group = docs.GroupDocument("g", GroupMemory(seen_ms=9, stood_ms=9), 100)
    for key, one in (("x" * 22, topic), ("group:g", group)):
        assert messages.decode(key, messages.encode(one, written)) == (one, written)
