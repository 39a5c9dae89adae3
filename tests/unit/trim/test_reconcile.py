"""A planned row meets a fresh decision: the narrower of the two holds (docs/plan.md, Saved plans)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Decision, Maybe, Reason, Unknown
from retention_cli.plan.target import Target
from retention_cli.trim.reconcile import Held, Unchanged, reconcile
from tests.support.plans import HOLD, KEEP, row


@pytest.mark.parametrize(
    ("planned", "fresh", "outcome"),
    [
        (row(), row(), 50),
        (row(), row(trim_to=40), 40),  # the facts narrow
        (row(), row(trim_to=70), 50),  # the plan narrows
        (row(trim_to=20), row(trim_to=50), 20),  # an edit by hand narrows
        (row(trim_to=99), row(trim_to=50), 50),  # … and never widens
        (row(), None, Held),
        (row(), row(topic_id="id-2"), Held),
        (row(), row(topic_id=None), Held),
        (row(), row(min_commit=59), Held),  # a group went back
        (row(), row(min_commit=61, trim_to=50), 50),
        (row(), row(min_commit=None, min_commit_by=None), Held),  # known then, unknown now
        (row(min_commit=None, unconsumed=50), row(min_commit=None, unconsumed=50), 50),  # unknown then too: R4
        (row(min_commit=None, unconsumed=50), row(min_commit=10), 50),
        (row(), HOLD, Held),
        (row(), row(action="skip", trim_to=None, reasons=(Reason("G5", "compact"),)), Held),
        (row(), KEEP, Unchanged),
        (row(), row(log_start=50, trim_to=60), Unchanged),  # another trim was quicker
        (row(), row(log_start=60, trim_to=70), Unchanged),
        (row(min_commit=30, unconsumed=20), row(min_commit=30, unconsumed=20), 50),  # as shown
        (row(min_commit=30, unconsumed=10), row(min_commit=30, unconsumed=20), Held),  # more unread than shown
        (row(min_commit=30, unconsumed=20), row(min_commit=40), 50),
        (row(unconsumed=0, min_commit=None), row(min_commit=None), Held),  # an edit hid what nobody has read
    ],
)
def test_reconcile_only_narrows(planned: Decision, fresh: Decision | None, outcome: object) -> None:
    result = reconcile(planned, fresh)
    if isinstance(outcome, int):
        assert isinstance(result, Target)
        assert result.offset == outcome
    else:
        assert type(result) is outcome
        if isinstance(result, Held):
            assert result.reasons


@pytest.mark.parametrize(
    ("planned", "now", "epoch_end", "said"),
    [
        (3, 3, None, None),
        (3, 4, 100, None),
        (3, 4, 50, None),  # the epoch ended where the trim does
        (3, 4, 49, "cut back to 49"),
        (3, 4, None, "of which this log has nothing"),
        (4, 3, 100, "of which this log has nothing"),
        (3, 4, Unknown.because("M4", "no answer"), "is unknown: no answer"),
        (None, 4, 100, "does not say in which leader epoch"),
        (3, None, 100, "does not say in which leader epoch"),
    ],
)
def test_plan_of_another_log_holds(
    planned: int | None, now: int | None, epoch_end: Maybe[int | None], said: str | None
) -> None:
    """M1, M2, M4: offsets are names, and a log that loses its tail gives them to other records."""
    result = reconcile(row(leader_epoch=planned), row(leader_epoch=now), epoch_end)
    if said is None:
        assert isinstance(result, Target)
    else:
        assert isinstance(result, Held)
        assert said in result.reasons[0].text


offsets = st.integers(0, 100)


@given(
    planned_to=offsets,
    planned_commit=st.none() | offsets,
    planned_unread=offsets,
    fresh_to=offsets,
    fresh_commit=st.none() | offsets,
    start=offsets,
    same=st.booleans(),
)
def test_edited_plan_never_enlarges_a_trim(
    planned_to: int,
    planned_commit: int | None,
    planned_unread: int,
    fresh_to: int,
    fresh_commit: int | None,
    start: int,
    *,
    same: bool,
) -> None:
    planned = row(trim_to=planned_to, min_commit=planned_commit, unconsumed=planned_unread)
    fresh = row(trim_to=fresh_to, min_commit=fresh_commit, log_start=start, topic_id="id-1" if same else "id-2")
    result = reconcile(planned, fresh)
    if isinstance(result, Target):
        assert same
        assert start < result.offset <= min(planned_to, fresh_to)
        assert planned_commit is None or (fresh_commit is not None and fresh_commit >= planned_commit)
        unread = result.offset - (start if fresh_commit is None else min(max(start, fresh_commit), result.offset))
        assert unread <= planned_unread


def test_target_has_its_records_and_their_share_of_bytes() -> None:
    target = reconcile(row(trim_to=20), row())
    assert isinstance(target, Target)
    assert (target.records, target.size_bytes) == (20, 200)
    assert replace(target, decision=row(size_bytes=None)).size_bytes is None
