"""A trim whose evidence can't be completed still reports what it deleted."""

from __future__ import annotations

from typing import Any

import pytest

from retention_cli.core.state_dir import StateError
from retention_cli.trim.batches import Trimmer
from tests.support.plans import KEEP, plan


@pytest.mark.parametrize(
    ("problem", "interrupted", "said", "stopped_by"),
    [
        (StateError("the evidence can't be written"), False, "the evidence can't be written", False),
        (KeyboardInterrupt(), True, "interrupted before the results were written as evidence", False),
        (ValueError("odd"), False, "odd", True),
    ],
)
def test_trim_whose_results_cannot_be_written_as_evidence_is_reported(
    problem: BaseException, interrupted: bool, said: str | None, stopped_by: bool
) -> None:
    """The deletes are done by then: an exception in place of the report would hide them."""

    class Unreachable:
        rechecks = 1

        def results(self, _results: Any) -> None:
            raise problem

    report = Trimmer(plan(KEEP), None, "run", recorder=Unreachable()).trim()  # type: ignore[arg-type]
    assert [row.outcome for row in report.rows] == ["unchanged"]
    assert (report.interrupted, report.audit_problem) == (interrupted, said)
    assert (report.stopped_by is problem) == stopped_by
