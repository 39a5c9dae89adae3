"""G6: a plan past a limit is refused; so is one whose bytes can't be told where bytes are limited."""

from __future__ import annotations

import pytest

from retention_cli.decide.guards.limits import Amount, over_limits, total
from retention_cli.policy.settings import Limits

NONE = Amount()


@pytest.mark.parametrize(
    ("run", "past", "managed", "limits", "broken"),
    [
        (Amount(100, 10), NONE, 1000, Limits(), 0),
        (Amount(100, 10), NONE, 1000, Limits(max_records=100), 0),
        (Amount(101, 10), NONE, 1000, Limits(max_records=100), 1),
        (Amount(60, 10), Amount(41, 0), 1000, Limits(max_records=100), 1),
        (Amount(60, 10), Amount(40, 0), 1000, Limits(max_records=100), 0),
        (Amount(1, 10), NONE, 1000, Limits(max_bytes=10), 0),
        (Amount(1, 11), NONE, 1000, Limits(max_bytes=10), 1),
        (Amount(1, 5), Amount(1, 6), 1000, Limits(max_bytes=10), 1),
        (Amount(1, None), NONE, 1000, Limits(max_bytes=10), 1),
        (Amount(1, 1), Amount(1, None), 1000, Limits(max_bytes=10), 1),
        (Amount(1, None), NONE, 1000, Limits(max_records=10), 0),
        (Amount(500, 1), NONE, 1000, Limits(max_percent=50), 0),
        (Amount(501, 1), NONE, 1000, Limits(max_percent=50), 1),
        (Amount(1, 1), NONE, 0, Limits(max_percent=50), 1),
        (Amount(1, 1), NONE, 10, Limits(max_percent=0), 1),
        (Amount(0, 0), Amount(500, 0), 10, Limits(max_records=1, max_percent=0), 0),  # nothing to trim breaks nothing
        (Amount(999, 999), NONE, 1000, Limits(max_records=1, max_bytes=1, max_percent=1), 3),
    ],
)
def test_run_above_a_limit_is_refused_and_one_at_the_limit_passes(
    run: Amount, past: Amount, managed: int, limits: Limits, broken: int
) -> None:
    reasons = over_limits(run, past, managed, limits)
    assert len(reasons) == broken
    assert all(reason.code == "G6" for reason in reasons)


def test_unknown_size_makes_the_sum_unknown() -> None:
    assert total([Amount(1, 2), Amount(3, None), Amount(4, 5)]) == Amount(8, None)
