"""How fast a partition is written to, and how old a record is, by samples alone: never more than they prove."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Sample, Unknown
from retention_cli.forecast.rates import HOUR_MS, WINDOW_MS, Rate, age_of, group_rate, rate_of
from retention_cli.memory.samples import thinned, without_repeats

DAY = 24 * HOUR_MS


def test_steady_writes_give_an_exact_rate_and_varying_writes_a_range() -> None:
    found = rate_of([Sample(n * HOUR_MS, n * 3600) for n in range(8)], Sample(8 * HOUR_MS, 8 * 3600))
    assert found == (0.001, 0.001, 0.001, 8 * HOUR_MS)
    found = rate_of([Sample(0, 0), Sample(4 * HOUR_MS, 0), Sample(5 * HOUR_MS, 7200)], Sample(8 * HOUR_MS, 7200))
    assert isinstance(found, Rate)
    assert found.low == 0 < found.mean == 7200 / (8 * HOUR_MS) < found.high


@pytest.mark.parametrize(
    ("samples", "least_ms", "why"),
    [
        ([], HOUR_MS, "samples cover"),
        ([Sample(DAY, 5)], HOUR_MS, "samples cover"),
        ([Sample(DAY - HOUR_MS + 1, 5)], HOUR_MS, "samples cover"),
        ([Sample(DAY, 5)], 0, "samples cover"),
        ([Sample(0, 50)], HOUR_MS, "the log was cut"),
    ],
)
def test_rate_of_too_short_a_time_or_a_cut_log_is_unknown(samples: list[Sample], least_ms: int, why: str) -> None:
    found = rate_of(samples, Sample(DAY, 10), least_ms)
    assert isinstance(found, Unknown)
    assert why in found.reasons[0].text


@pytest.mark.parametrize(
    ("samples", "over_ms"), [([Sample(0, 0), Sample(30 * DAY, 10**6)], DAY), ([Sample(0, 0)], 31 * DAY)]
)
def test_rate_covers_the_last_week_or_longer_without_recent_samples(samples: list[Sample], over_ms: int) -> None:
    found = rate_of(samples, Sample(31 * DAY, 10**6 + 864))
    assert isinstance(found, Rate)
    assert found.over_ms == over_ms
    assert over_ms > WINDOW_MS or found.mean == 864 / DAY


@pytest.mark.parametrize(
    ("before", "now", "span"),
    [
        (Sample(0, 50), Sample(DAY, 10), None),  # it was moved back
        (Sample(0, 5), Sample(HOUR_MS - 1, 10), None),
        (Sample(0, 50), Sample(DAY, 50), (0, 0)),
    ],
)
def test_group_rate_is_unknown_after_a_rewind_or_too_soon(before: Sample, now: Sample, span: object) -> None:
    found = group_rate(before, now)
    assert (found.span if isinstance(found, Rate) else None) == span


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
