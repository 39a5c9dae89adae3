"""A pass's ceiling makes a plan smaller, never larger (docs/watch.md, A ceiling)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Decision, TopicPartition
from retention_cli.decide.decision import unread_below
from retention_cli.plan.value import Plan
from retention_cli.trim.narrow import Ceiling, narrowed
from tests.support.ceilings import row


def plan_of(rows: list[Decision]) -> Plan:
    return Plan(0, "c", "b", "p", "d", {}, (), tuple(rows))


ROWS = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.integers(0, 40),
        st.none() | st.integers(0, 1000),
        st.none() | st.integers(0, 100),
    ),
    max_size=6,
).map(lambda found: [row(number, *one) for number, one in enumerate(found)])
CEILINGS = st.builds(Ceiling, st.none() | st.integers(1, 100), st.none() | st.integers(1, 2000))
AFTER = st.none() | st.integers(-1, 7).map(lambda number: TopicPartition("t", number))


@given(ROWS, CEILINGS, AFTER, st.booleans())
def test_ceiling_only_narrows_and_is_kept(
    rows: list[Decision], ceiling: Ceiling, after: TopicPartition | None, whole: bool
) -> None:
    plan = plan_of(rows)
    under = narrowed(plan, ceiling, after, lambda _topic: whole)
    trims = [one for one in under.plan.decisions if one.action == "trim"]
    assert [one.tp for one in under.plan.decisions] == [one.tp for one in rows]
    for was, now in zip(rows, under.plan.decisions, strict=True):
        if now.action != "trim":
            assert now.trim_to is None
            assert now.records == 0
            continue
        assert was.action == "trim"
        assert now.trim_to is not None
        assert was.trim_to is not None
        assert now.log_start is not None
        assert now.log_start < now.trim_to <= was.trim_to
        assert now.records == now.trim_to - now.log_start
        assert now.unconsumed == unread_below(now.trim_to, now.log_start, now.min_commit) <= was.unconsumed
        assert not whole or now.trim_to == was.trim_to
    if ceiling.max_records is not None:
        assert sum(one.records for one in trims) <= ceiling.max_records
    if ceiling.max_bytes is not None:
        assert all(one.size_bytes is not None for one in trims)
        assert sum(one.size_bytes or 0 for one in trims) <= ceiling.max_bytes
    assert under.later + len(trims) == sum(one.action == "trim" for one in rows)


@given(ROWS)
def test_plan_without_a_ceiling_is_unchanged(rows: list[Decision]) -> None:
    plan = plan_of(rows)
    assert narrowed(plan, Ceiling()).plan is plan


def test_ceiling_trims_rows_in_turn_over_several_passes() -> None:
    """The first rows would else take every pass's share."""
    rows = [row(number, 0, 10, 100, 10) for number in range(3)]
    after, first = None, []
    for _ in range(4):
        under = narrowed(plan_of(rows), Ceiling(10), after)
        after = under.last
        first += [one.partition for one in under.plan.decisions if one.action == "trim"]
    assert first == [0, 1, 2, 0]
