"""Decisions stored as Parquet are those that would be in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Decision, Reason
from retention_cli.plan.rows import StoredDecisions, as_parquet, decisions_in, having, most_important
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


def stored(rows: list[Decision], at_a_time: int = 5) -> StoredDecisions:
    return StoredDecisions(as_parquet(rows[first : first + at_a_time]) for first in range(0, len(rows), at_a_time))


@given(in_order, st.integers(-13, 13), st.integers(-13, 13))
def test_stored_decisions_can_be_sliced_and_iterated_again(rows: list[Decision], first: int, last: int) -> None:
    there = stored(rows)
    assert len(there) == len(rows)
    assert list(there) == list(there) == rows
    assert list(there[first:last]) == rows[first:last]


@given(in_order, st.integers(1, 6))
def test_most_important_stored_decisions_equal_those_in_memory(rows: list[Decision], count: int) -> None:
    assert most_important(stored(rows), count) == most_important(rows, count)


@given(in_order, actions)
def test_stored_decisions_filter_like_those_in_memory(rows: list[Decision], wanted: list[str]) -> None:
    for reasons in (False, True):
        assert list(having(stored(rows, 3), *wanted, reasons=reasons)) == list(having(rows, *wanted, reasons=reasons))


@given(st.lists(decisions, max_size=9), st.lists(decisions, max_size=9))
def test_totals_of_parts_add_up_to_the_total(one: list[Decision], other: list[Decision]) -> None:
    assert Totals.of(one) + Totals.of(other) == Totals.of([*one, *other])


@given(st.lists(decisions, min_size=3, max_size=3))
def test_row_limit_in_memory_is_shared_by_the_plans_of_a_fleet(rows: list[Decision]) -> None:
    """What a fleet's plans have in memory does not grow with the number of its clusters."""
    content = [as_parquet(rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("retention_cli.plan.rows.IN_MEMORY", 6)
        assert decisions_in(content) == tuple(rows)
        assert decisions_in(content, 2) == tuple(rows)
        assert isinstance(decisions_in(content, 3), StoredDecisions)
