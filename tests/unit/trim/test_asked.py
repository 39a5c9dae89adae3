"""What a trim is asked for, and which limits that exceeds (G6)."""

from __future__ import annotations

import pytest

from kretain.render.trim import question
from retention_cli.decide.guards.limits import Amount
from retention_cli.policy.settings import Limits
from retention_cli.trim.asked import asked_for, exceeded
from tests.unit.plan.test_plan import EVERY

GOING = [one for one in EVERY.decisions if one.action == "trim"]


def test_a_few_partitions_are_the_first_ones_that_trim() -> None:
    assert asked_for(EVERY, None) is EVERY
    first = asked_for(EVERY, 1)
    assert list(first.decisions) == GOING[:1]
    assert first.totals.records == GOING[0].records
    assert asked_for(EVERY, 1_000).totals.trim == len(GOING)


@pytest.mark.parametrize(
    ("limits", "past", "codes"),
    [
        (Limits(), Amount(), []),
        (Limits(max_records=GOING[0].records), Amount(), []),
        (Limits(max_records=GOING[0].records), Amount(1, 1), ["G6"]),
        (Limits(max_records=GOING[0].records - 1), Amount(), ["G6"]),
        (Limits(max_percent=100), Amount(), []),
        (Limits(max_percent=0.001), Amount(), ["G6"]),
    ],
)
def test_limits_are_those_of_what_is_asked_for(limits: Limits, past: Amount, codes: list[str]) -> None:
    assert [one.code for one in exceeded(EVERY, asked_for(EVERY, 1), past, limits)] == codes


def test_the_question_says_how_much_where_and_who_has_yet_to_read_it() -> None:
    text = question(asked_for(EVERY, 1))
    assert f"from 1 partition of {GOING[0].topic} in cluster {EVERY.cluster_id} ({EVERY.bootstrap})?" in text
    assert text.endswith("This can't be undone.")
    assert ("NOT been read by" in text) == bool(GOING[0].unconsumed)
