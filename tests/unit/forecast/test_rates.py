"""How fast a partition is written to, and how old a record is, by samples alone: never more than they prove."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Sample, Unknown
from retention_cli.forecast.rates import HOUR_MS, WINDOW_MS, age_of, group_rate, rate_of
from retention_cli.memory.samples import thinned, without_repeats

DAY = 24 * HOUR_MS


def test_steady_writes_have_one_rate() -> None:
    found = rate_of([Sample(n * HOUR_MS, n * 3600) for n in range(8)], Sample(8 * HOUR_MS, 8 * 3600))
    assert not isinstance(found, Unknown)
    assert (found.low, found.mean, found.high, found.over_ms) == (0.001, 0.001, 0.001, 8 * HOUR_MS)


def test_varying_rate_is_a_range() -> None:
    samples = [Sample(0, 0), Sample(4 * HOUR_MS, 0), Sample(5 * HOUR_MS, 7200)]
    found = rate_of(samples, Sample(8 * HOUR_MS, 7200))
    assert not isinstance(found, Unknown)
    assert found.low == 0 < found.mean < found.high
    assert found.mean == 7200 / (8 * HOUR_MS)


@pytest.mark.parametrize(
    ("samples", "least_ms"),
    [([], HOUR_MS), ([Sample(DAY, 5)], HOUR_MS), ([Sample(DAY - HOUR_MS + 1, 5)], HOUR_MS), ([Sample(DAY, 5)], 0)],
)
def test_too_short_a_time_is_unknown(samples: list[Sample], least_ms: int) -> None:
    found = rate_of(samples, Sample(DAY, 10), least_ms)
    assert isinstance(found, Unknown)
    assert "samples cover" in found.reasons[0].text


def test_a_log_that_was_cut_has_no_rate() -> None:
    assert isinstance(rate_of([Sample(0, 50)], Sample(DAY, 10)), Unknown)


def test_only_the_last_week_counts_unless_nobody_looked() -> None:
    long_ago, lately = Sample(0, 0), Sample(30 * DAY, 10**6)
    now = Sample(31 * DAY, 10**6 + 864)
    week = rate_of([long_ago, lately], now)
    assert not isinstance(week, Unknown)
    assert week.mean == 864 / DAY
    after_a_pause = rate_of([long_ago], now)
    assert not isinstance(after_a_pause, Unknown)
    assert after_a_pause.over_ms == 31 * DAY > WINDOW_MS


def test_a_group_that_was_moved_back_has_no_rate() -> None:
    assert isinstance(group_rate(Sample(0, 50), Sample(DAY, 10)), Unknown)
    assert isinstance(group_rate(Sample(0, 5), Sample(HOUR_MS - 1, 10)), Unknown)
    found = group_rate(Sample(0, 50), Sample(DAY, 50))
    assert not isinstance(found, Unknown)
    assert found.span == (0, 0)


@given(
    gaps=st.lists(st.integers(0, 50_000), min_size=1, max_size=60),
    looks=st.sets(st.integers(0, 99), max_size=99),
    data=st.data(),
)
def test_true_age_and_mean_rate_lie_within_their_bounds(gaps: list[int], looks: set[int], data: st.DataObject) -> None:
    """Records are written at some times, the ledger looks at others, drops repeats and thins."""
    written: list[int] = []
    for gap in gaps:
        written.append(gap + (written[-1] if written else 1))
    now_ms = written[-1] + data.draw(st.integers(0, 50_000))
    seen: list[Sample] = [
        Sample(at, sum(one <= at for one in written)) for at in sorted(now_ms * look // 100 for look in looks)
    ]
    samples = without_repeats(seen)
    thin: bool = data.draw(st.booleans())
    if samples and thin:
        samples = thinned(samples)
    now = Sample(now_ms, len(written))
    offset = data.draw(st.integers(0, len(written)))
    span = age_of(samples, now, offset)
    if offset == len(written):
        assert span == (0, 0)
    else:
        assert span.low <= now_ms - written[offset] <= span.high
        assert (span.high == math.inf) == all(one.high_watermark > offset for one in samples)
    rate = rate_of(samples, now, 1000)
    if not isinstance(rate, Unknown):
        begun = sum(one <= now_ms - rate.over_ms for one in written)
        assert rate.mean == pytest.approx((len(written) - begun) / rate.over_ms)
        assert rate.low <= rate.mean <= rate.high
