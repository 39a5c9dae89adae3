"""Decisions that stay in a file are those that would be in memory, and answer everything alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Decision, Reason
from retention_cli.plan.columns import row_as_json
from retention_cli.plan.kept import KeptDecisions, KeptRows, decisions_table
from retention_cli.plan.rows import by_topic, having, most_important, rows_as_json
from retention_cli.plan.value import Totals

numbers = st.none() | st.integers(0, 3) | st.integers(0, 2**62)
names = st.sampled_from(["group:a", "group:G1", "file:a", "G1"])
decisions = st.builds(
    Decision,
    topic=st.sampled_from("abc") | st.text(min_size=1, max_size=20),
    topic_id=st.none() | st.text(max_size=22),
    partition=st.integers(0, 2**31 - 1),
    action=st.sampled_from(["trim", "keep", "hold", "skip"]),
    log_start=numbers,
    high_watermark=numbers,
    last_stable_offset=numbers,
    min_commit=numbers,
    min_commit_by=st.none() | names | st.text(max_size=9),
    trim_to=numbers,
    records=st.integers(0, 2**62),
    size_bytes=numbers,
    unconsumed=st.integers(0, 2**62),
    rule=st.sampled_from([None, "consumed", "disk-usage"]),
    limited_by=st.sampled_from([None, "G1", "G2", "G9"]),
    reasons=st.lists(
        st.builds(Reason, st.sampled_from(["F5", "G2"]) | st.text(max_size=5), st.text(max_size=30)), max_size=3
    ).map(tuple),
    size_exact=st.booleans(),
    leader_epoch=st.none() | st.integers(-1, 2**31 - 1),
)


in_order = st.lists(decisions, max_size=12, unique_by=lambda one: one.tp).map(  # as in a plan
    lambda rows: sorted(rows, key=lambda one: one.tp)
)
actions = st.lists(st.sampled_from(["trim", "keep", "hold", "skip"]), min_size=1, unique=True)


def kept(rows: list[Decision], at_a_time: int = 5) -> KeptDecisions:
    found = KeptRows()
    with found.writing() as write:
        for first in range(0, len(rows), at_a_time):
            write(decisions_table(rows[first : first + at_a_time]))
    return KeptDecisions(found)


@given(st.lists(decisions, max_size=12), st.integers(-13, 13), st.integers(-13, 13))
def test_they_are_a_sequence_like_any_other(rows: list[Decision], first: int, last: int) -> None:
    there = kept(rows)
    assert len(there) == len(rows)
    assert list(there) == rows
    assert list(there) == rows, "they can be gone through again"
    assert list(there[first:last]) == rows[first:last]
    assert list(there[::-1]) == rows[::-1]
    if -len(rows) <= first < len(rows):
        assert there[first] == rows[first]
    else:
        with pytest.raises(IndexError):
            there[first]


@given(in_order, actions, st.integers(1, 5))
def test_they_answer_as_decisions_in_memory_do(rows: list[Decision], wanted: list[str], count: int) -> None:
    """What is printed of a plan is the same, wherever its rows are: reasons, the rows that matter most, topics."""
    there = kept(rows, 3)
    for reasons in (False, True):
        assert list(having(there, *wanted, reasons=reasons)) == list(having(rows, *wanted, reasons=reasons))
    assert most_important(there, count) == most_important(rows, count)
    assert list(by_topic(there)) == list(by_topic(rows))
    assert list(rows_as_json(there)) == list(map(row_as_json, rows))


@given(in_order)
def test_they_are_counted_as_they_are_written(rows: list[Decision]) -> None:
    found = kept(rows, 3).kept
    assert found.totals == Totals.of(rows)
    losing = [one for one in rows if one.action == "trim" and one.unconsumed]
    assert list(found.losing()) == [(*one.tp, one.log_start, one.trim_to) for one in losing]


@given(st.lists(decisions, max_size=9), st.lists(decisions, max_size=9))
def test_totals_of_parts_add_up(one: list[Decision], other: list[Decision]) -> None:
    assert Totals.of(one) + Totals.of(other) == Totals.of([*one, *other])


@given(st.lists(decisions, min_size=3, max_size=3))
def test_of_several_plans_each_has_its_share_of_the_rows_in_memory(rows: list[Decision]) -> None:
    """What a fleet's plans have in memory does not grow with the number of its clusters."""
    there = kept(rows).kept
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("retention_cli.plan.kept.IN_MEMORY", 6)
        assert there.decisions() == tuple(rows)
        assert there.decisions(2) == tuple(rows)
        assert isinstance(there.decisions(3), KeptDecisions)


def test_the_file_goes_with_the_last_who_has_it() -> None:
    there = kept([])
    path = there.kept.path
    assert path.exists()
    del there
    assert not path.exists()
