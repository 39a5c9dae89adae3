"""Decisions that lie in a file are those that would lie in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Decision, Reason
from retention_cli.plan.spill import SpilledDecisions
from retention_cli.plan.value import Totals

numbers = st.none() | st.integers(0, 2**62)
decisions = st.builds(
    Decision,
    topic=st.text(min_size=1, max_size=20),
    topic_id=st.none() | st.text(max_size=22),
    partition=st.integers(0, 2**31 - 1),
    action=st.sampled_from(["trim", "keep", "hold", "skip"]),
    log_start=numbers,
    high_watermark=numbers,
    last_stable_offset=numbers,
    min_commit=numbers,
    min_commit_by=st.none() | st.text(max_size=9),
    trim_to=numbers,
    records=st.integers(0, 2**62),
    size_bytes=numbers,
    unconsumed=st.integers(0, 2**62),
    rule=st.sampled_from([None, "consumed", "disk-usage"]),
    limited_by=st.sampled_from([None, "G1", "G9"]),
    reasons=st.lists(st.builds(Reason, st.text(max_size=5), st.text(max_size=30)), max_size=3).map(tuple),
    size_exact=st.booleans(),
    leader_epoch=st.none() | st.integers(-1, 2**31 - 1),
)


@given(st.lists(decisions, max_size=12), st.integers(-13, 13), st.integers(-13, 13))
def test_they_are_a_sequence_like_any_other(rows: list[Decision], first: int, last: int) -> None:
    kept = SpilledDecisions(iter(rows))
    assert len(kept) == len(rows)
    assert list(kept) == rows
    assert list(kept) == rows, "they can be gone through again"
    assert list(kept[first:last]) == rows[first:last]
    assert list(kept[::-1]) == rows[::-1]
    if -len(rows) <= first < len(rows):
        assert kept[first] == rows[first]
    else:
        with pytest.raises(IndexError):
            kept[first]


@given(st.lists(decisions, max_size=9), st.lists(decisions, max_size=9))
def test_totals_of_parts_add_up(one: list[Decision], other: list[Decision]) -> None:
    assert Totals.of(one) + Totals.of(other) == Totals.of([*one, *other])


def test_the_file_goes_with_the_last_who_has_it() -> None:
    kept = SpilledDecisions(())
    path = kept.path
    assert path.exists()
    del kept
    assert not path.exists()
