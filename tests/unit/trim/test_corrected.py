"""What the audit log is told in the end of batches whose results were unknown when they were recorded."""

from __future__ import annotations

from typing import cast

import pytest

from retention_cli.core.model import TopicPartition
from retention_cli.trim.report import OutcomeName, TrimRow, row_of
from retention_cli.trim.state import State


def told(partition: int, outcome: str, start: int | None = None) -> TrimRow:
    return row_of(TopicPartition("orders", partition), cast(OutcomeName, outcome), 8, start)


@pytest.mark.parametrize(
    ("batches", "final", "corrected"),
    [
        # It was found done by a later recheck.
        ([["unverified"]], ["trimmed"], {1: ["trimmed"]}),
        ([["unverified", "trimmed"]], ["trimmed", "trimmed"], {1: ["trimmed", "trimmed"]}),
        # The last request has the result: an earlier one is settled by it.
        ([["unverified"], ["unverified"]], ["trimmed"], {2: ["trimmed"]}),
        ([["unverified"], ["trimmed"]], ["trimmed"], {}),
        ([["unverified"], ["failed"]], ["trimmed"], {}),
        # Nothing more is known, or nothing that counts.
        ([["unverified"]], ["unverified"], {}),
        ([["unverified"]], ["held"], {}),
        ([["unverified"]], ["failed"], {}),
        ([["failed"]], ["failed"], {}),
    ],
)
def test_correction_reports_only_later_confirmed_deletes(
    batches: list[list[str]], final: list[str], corrected: dict[int, list[str]]
) -> None:
    state = State({}, {})
    for number, outcomes in enumerate(batches, 1):
        state.recorded(number, [told(n, one) for n, one in enumerate(outcomes)])
    for n, outcome in enumerate(final):
        state.rows[TopicPartition("orders", n)] = told(n, outcome, 8 if outcome == "trimmed" else None)
    found = state.corrected()
    assert {number: [row.outcome for row in rows] for number, rows in found.items()} == corrected
