"""Time to forced loss: what comes first, and never later than it really would."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from retention_cli.core.model import Maybe, Unknown
from retention_cli.forecast.loss import Unread, seconds_to_loss, time_to_loss
from retention_cli.forecast.rates import ENDLESS, Rate, Span
from retention_cli.forecast.value import Loss
from retention_cli.policy.settings import Settings
from tests.support.forecasts import HOUR, limits

DAY = 24 * HOUR
MEASURED = Rate(1.0, 1.0, 1.0, HOUR)


AN_HOUR_OR_TWO = Span(HOUR, 2 * HOUR)
NOT_SEEN = Unknown.because("rate", "not measured")


def unread(age: Span = AN_HOUR_OR_TWO, lag: int = 100, **more: object) -> Unread:
    facts = {"lost": 0, "written": MEASURED, "read": NOT_SEEN, "bytes_per_record": Span(10, 10), **more}
    return Unread(age, lag, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "brokers", "cause", "low", "high"),
    [
        (None, limits(), "retention.ms", math.inf, math.inf),
        (None, limits(retention_ms=DAY), "retention.ms", 22 * HOUR, 24 * HOUR),
        (Settings(forced_age_ms=3 * HOUR), limits(retention_ms=DAY), "R4", HOUR, 2 * HOUR),
        (Settings(forced_age_ms=90_000), limits(retention_ms=DAY), "R4", 0, 0),
        (Settings(forced_age_ms=3 * HOUR, forced_age_guarded=True), limits(), "retention.ms", math.inf, math.inf),
        (Settings(consumed_after_ms=1, event_time_ms=1, max_bytes=1), limits(), "retention.ms", math.inf, math.inf),
        (Settings(event_time_ms=3 * HOUR, unconsumed="trim"), limits(), "R2", HOUR, 2 * HOUR),
        (Settings(max_bytes=5000, unconsumed="trim"), limits(), "R5", 400, 400),
        (None, limits(retention_bytes=5000, segment_bytes=1000), "retention.bytes", 400, 500),
        (Settings(forced_age_ms=1, hold="legal"), limits(), "retention.ms", math.inf, math.inf),
        (None, limits(cleanup_policy=frozenset({"compact"}), retention_ms=1), "retention.ms", math.inf, math.inf),
    ],
)
def test_earliest_deadline_decides_the_time_to_loss(
    settings: Settings | None, brokers: object, cause: str, low: float, high: float
) -> None:
    found = time_to_loss(unread(), brokers, settings, ENDLESS)  # type: ignore[arg-type]
    assert isinstance(found, Loss)
    assert (found.cause, found.if_stopped_ms) == (cause, (low, high))


@pytest.mark.parametrize(
    ("behind", "settings", "brokers", "r6_ms", "found"),
    [
        # a full disk takes unread records only where the policy allows it
        (unread(), Settings(), limits(), Span(5000, math.inf), ("retention.ms", ENDLESS)),
        (unread(), Settings(unconsumed="trim"), limits(), Span(5000, math.inf), ("R6", Span(5000, math.inf))),
        # what is due by the policy waits for its next trim, and by brokers does not
        (unread(), Settings(forced_age_ms=3 * HOUR), limits(), ENDLESS, ("R4", Span(HOUR, 2 * HOUR + 300_000))),
        (
            unread(),
            None,
            limits(retention_ms=3 * HOUR, segment_ms=0),
            ENDLESS,
            ("retention.ms", Span(HOUR, 2 * HOUR)),
        ),
        (unread(Span(9, math.inf)), Settings(forced_age_ms=9), limits(), ENDLESS, ("R4", Span(0, 300_000))),
        (unread(lost=1), None, limits(), ENDLESS, ("gone", Span(0, 0))),
    ],
)
def test_loss_waits_for_the_trim_that_takes_the_record(
    behind: Unread, settings: Settings | None, brokers: object, r6_ms: Span, found: tuple[str, Span]
) -> None:
    loss = time_to_loss(behind, brokers, settings, r6_ms, 300_000)  # type: ignore[arg-type]
    assert isinstance(loss, Loss)
    assert (loss.cause, loss.if_stopped_ms) == found
    assert seconds_to_loss(loss) == (found[1].low / 1000 if loss.sure else None)


@pytest.mark.parametrize(
    ("read", "low", "high"),
    [
        (Rate(0.0, 0.0, 0.0, HOUR), 22 * HOUR, 24 * HOUR),
        (Rate(0.5, 0.5, 0.5, HOUR), 44 * HOUR, 48 * HOUR),
        (Rate(0.5, 0.7, 1.0, HOUR), 44 * HOUR, math.inf),
        (Rate(1.0, 1.0, 2.0, HOUR), math.inf, math.inf),
    ],
)
def test_group_that_keeps_reading_has_a_longer_time_to_loss(read: Rate, low: float, high: float) -> None:
    found = time_to_loss(unread(read=read), limits(retention_ms=DAY), None, ENDLESS)
    assert isinstance(found, Loss)
    assert found.at_its_rate_ms == (low, high)


def test_record_older_than_the_ledger_has_no_certain_time_to_loss() -> None:
    found = time_to_loss(unread(Span(HOUR, math.inf)), limits(retention_ms=DAY), None, ENDLESS)
    assert isinstance(found, Loss)
    assert found.if_stopped_ms == Span(0, 24 * HOUR)
    assert not found.sure
    assert seconds_to_loss(found) is None
    due = time_to_loss(unread(Span(3 * DAY, math.inf)), limits(retention_ms=DAY, segment_ms=0), None, ENDLESS)
    assert seconds_to_loss(due) == 0


@pytest.mark.parametrize("brokers", [limits(retention_ms=Unknown.because("x", "y")), limits(retention_bytes=5)])
def test_unknown_deadline_makes_the_loss_unknown(brokers: object) -> None:
    settings = Settings(forced_age_ms=3 * HOUR)
    found = time_to_loss(unread(bytes_per_record=Unknown.because("x", "y")), brokers, settings, ENDLESS)  # type: ignore[arg-type]
    assert isinstance(found, Unknown)
    assert seconds_to_loss(found) is None


def test_time_to_loss_is_infinite_without_a_limit() -> None:
    assert seconds_to_loss(time_to_loss(unread(), limits(), None, ENDLESS)) == math.inf


@given(
    age=st.integers(0, 200),
    doubt=st.tuples(st.integers(0, 50), st.integers(0, 50)),
    retention=st.integers(1, 200),
    written=st.integers(1, 5),
    read=st.integers(0, 5),
)
@example(age=0, doubt=(0, 0), retention=1, written=3, read=2)
def test_simulated_group_loses_records_within_the_forecast_span(
    age: int, doubt: tuple[int, int], retention: int, written: int, read: int
) -> None:
    """R4 runs at every tick; a group some records behind reads on, or stops."""
    assume(age != retention)  # due at this very tick, or just not
    lag = age * written  # in steady writes that is how far behind its oldest unread record is
    span = Span(max(0, age - doubt[0]), age + doubt[1])

    def measured(speed: int) -> Rate:
        return Rate(speed, speed, speed, HOUR)

    it = Unread(span, lag, 0, written=measured(written), read=measured(read), bytes_per_record=Span(1, 1))
    found = time_to_loss(it, limits(), Settings(forced_age_ms=retention), ENDLESS)
    assert isinstance(found, Loss)

    def lost_at(speed: int) -> float:
        end, position = lag, 0
        for now in range(20_000):
            if position < end - retention * written:  # records behind that are older than the retention
                return now
            end, position = end + written, min(end + written, position + speed)
        return math.inf

    assert found.if_stopped_ms.low <= lost_at(0) <= found.if_stopped_ms.high + 1
    spans: Maybe[Span] = found.at_its_rate_ms
    assert not isinstance(spans, Unknown)
    assert spans.low <= lost_at(read) + 1
    assert lost_at(read) <= spans.high + 1 + 1e-9 or math.isinf(spans.high)  # 1 / (1 - 2/3) is a little less than 3
    assert (read < written) or math.isinf(spans.low) or spans.low == 0
