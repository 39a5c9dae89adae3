"""Forecasts: how fast partitions grow, what comes first to their records, what is kept in steady state, and what it costs."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import assume, example, given, strategies as st

from kretain.render.forecast import money_json, price
from retention_cli.advise.facts import TopicSettings
from retention_cli.audit.log import Run, one_by_one
from retention_cli.core.model import Maybe, PartitionFacts, Reason, Sample, TopicPartition, Unknown, certain
from retention_cli.core.units import parse_time_ms
from retention_cli.disks.disk import Disk, Room
from retention_cli.forecast.cost import GIB, MONTH_MS, added, by_consumer, by_label, stayed, topic_bill, total_of
from retention_cli.forecast.loss import (
    Growing,
    Place,
    Queued,
    Unread,
    full_in,
    queue_of,
    r6_deadline,
    seconds_to_loss,
    time_to_loss,
)
from retention_cli.forecast.steady import (
    Flow,
    PartitionForecast,
    Retained,
    Seen,
    Standing,
    Terms,
    brokers_keep,
    bytes_per_record,
    forecast_partitions,
    forecast_topic,
    policy_keeps,
)
from retention_cli.forecast.value import (
    ENDLESS,
    NOTHING,
    WINDOW_MS,
    Bill,
    Bills,
    Rate,
    Span,
    TopicBill,
    age_of,
    group_rate,
    rate_of,
)
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.partition import thinned, without_repeats
from retention_cli.memory.positions import Position, Positions
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import parse_policy
from retention_cli.policy.settings import Prices, Settings
from tests.support.audit_logs import AT, BEGUN, batch, result
from tests.support.facts import HOUR, NOW, Log, known, topic, why
from tests.support.forecasts import HERE, LAST_LOOK, OTHER, disk, limits, queued
from tests.support.says import raised

DAY = 24 * HOUR


def test_steady_writes_give_an_exact_rate_and_varying_writes_a_range() -> None:
    steady = rate_of([Sample(n * HOUR, n * 3600) for n in range(8)], Sample(8 * HOUR, 8 * 3600))
    assert steady == (0.001, 0.001, 0.001, 8 * HOUR)
    found = known(rate_of([Sample(0, 0), Sample(4 * HOUR, 0), Sample(5 * HOUR, 7200)], Sample(8 * HOUR, 7200)))
    assert found.low == 0 < found.mean == 7200 / (8 * HOUR) < found.high


@pytest.mark.parametrize(
    ("samples", "least_ms", "said"),
    [
        ([], HOUR, "samples cover"),
        ([Sample(DAY, 5)], HOUR, "samples cover"),
        ([Sample(DAY - HOUR + 1, 5)], HOUR, "samples cover"),
        ([Sample(DAY, 5)], 0, "samples cover"),
        ([Sample(0, 50)], HOUR, "the log was cut"),
    ],
)
def test_rate_of_too_short_a_time_or_a_cut_log_is_unknown(samples: list[Sample], least_ms: int, said: str) -> None:
    assert said in why(rate_of(samples, Sample(DAY, 10), least_ms))


@pytest.mark.parametrize(
    ("samples", "over_ms"), [([Sample(0, 0), Sample(30 * DAY, 10**6)], DAY), ([Sample(0, 0)], 31 * DAY)]
)
def test_rate_covers_the_last_week_or_longer_without_recent_samples(samples: list[Sample], over_ms: int) -> None:
    found = known(rate_of(samples, Sample(31 * DAY, 10**6 + 864)))
    assert found.over_ms == over_ms
    assert over_ms > WINDOW_MS or found.mean == 864 / DAY


@pytest.mark.parametrize(
    ("before", "now", "span"),
    [
        (Sample(0, 50), Sample(DAY, 10), None),  # it was moved back
        (Sample(0, 5), Sample(HOUR - 1, 10), None),
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
    written = list(accumulate(gaps, initial=1))[1:]
    now_ms = written[-1] + data.draw(st.integers(0, 50_000))
    samples = without_repeats(
        [Sample(at, sum(one <= at for one in written)) for at in sorted(now_ms * look // 100 for look in looks)]
    )
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


LOG = Log(start=3, stamps=[NOW - 5 * HOUR + number for number in range(30)])
FACTS = LOG.facts(Settings(forced_age_ms=6 * HOUR, unconsumed="trim"))
PART = PartitionForecast(Rate(0.1, 0.2, 0.3, HOUR), Span(10, 20), ENDLESS, Retained(ENDLESS), 0.0)


def place() -> Place:
    samples = (Sample(NOW - 9 * HOUR, 5), Sample(NOW - 3 * HOUR, 20), Sample(NOW - HOUR, 30))
    here = Seen(FACTS, samples, Sample(NOW, LOG.end))
    queue = queue_of(disk(400, FACTS.tp), 50.0, {FACTS.tp: PART}, [queued(FACTS.tp, (50, 30))])
    settings = Settings(forced_age_ms=6 * HOUR, unconsumed="trim")
    return Place(here, PART, limits(retention_ms=12 * HOUR), settings, [queue], Terms(60_000, HOUR, NOW))


def before(hours: int, offset: int) -> GroupMemory:
    tp = FACTS.tp
    return GroupMemory(
        NOW - hours * HOUR,
        ids={tp.topic: str(FACTS.topic.topic_id)},
        counted=Positions.at({(tp.topic, tp.partition): Position(offset, None)}),
    )


@given(
    st.lists(
        st.tuples(
            st.integers(0, LOG.end + 3),
            st.none() | st.builds(before, st.integers(0, 3), st.integers(0, LOG.end)),
        ),
        min_size=2,
        max_size=40,
    )
)
def test_cached_time_to_loss_is_never_reused_for_another_group(asked: list[tuple[int, GroupMemory | None]]) -> None:
    one = place()
    assert [one.left(*each) for each in asked] == [place().left(*each) for each in asked]
    assert len({one.left(at, None)[0].age_ms for at in (1, 10, 25, LOG.end)}) == 4, "it tells offsets apart"


AN_HOUR_OR_TWO = Span(HOUR, 2 * HOUR)
UNKNOWN = Unknown.because("rate", "not measured")


def steady(speed: float, over_ms: int = HOUR) -> Rate:
    return Rate(speed, speed, speed, over_ms)


def unread(age: Span = AN_HOUR_OR_TWO, lag: int = 100, **more: object) -> Unread:
    facts = {"lost": 0, "written": steady(1.0), "read": UNKNOWN, "bytes_per_record": Span(10, 10), **more}
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
    found = known(time_to_loss(unread(), brokers, settings, ENDLESS))  # type: ignore[arg-type]
    assert (found.cause, found.if_stopped_ms) == (cause, (low, high))


@pytest.mark.parametrize(
    ("behind", "settings", "brokers", "r6_ms", "found", "seconds"),
    [
        # a full disk takes unread records only where the policy allows it
        (unread(), Settings(), limits(), Span(5000, math.inf), ("retention.ms", ENDLESS), math.inf),
        (unread(), Settings(unconsumed="trim"), limits(), Span(5000, math.inf), ("R6", Span(5000, math.inf)), 5),
        # what is due by the policy waits for its next trim, and by brokers does not
        (unread(), Settings(forced_age_ms=3 * HOUR), limits(), ENDLESS, ("R4", Span(HOUR, 2 * HOUR + 300_000)), 3600),
        (
            unread(),
            None,
            limits(retention_ms=3 * HOUR, segment_ms=0),
            ENDLESS,
            *(("retention.ms", Span(HOUR, 2 * HOUR)), 3600),
        ),
        (unread(Span(9, math.inf)), Settings(forced_age_ms=9), limits(), ENDLESS, ("R4", Span(0, 300_000)), 0),
        (unread(lost=1), None, limits(), ENDLESS, ("gone", Span(0, 0)), 0),
        # how old a record is that is older than the ledger is not measured, but that it is due may be certain
        (
            unread(Span(HOUR, math.inf)),
            None,
            limits(retention_ms=DAY),
            ENDLESS,
            *(("retention.ms", Span(0, DAY)), None),
        ),
        (
            unread(Span(3 * DAY, math.inf)),
            None,
            limits(retention_ms=DAY, segment_ms=0),
            ENDLESS,
            *(("retention.ms", Span(0, 0)), 0),
        ),
    ],
)
def test_loss_waits_for_the_trim_that_takes_the_record_and_is_told_where_it_is_measured(
    behind: Unread,
    settings: Settings | None,
    brokers: object,
    r6_ms: Span,
    found: tuple[str, Span],
    seconds: float | None,
) -> None:
    loss = known(time_to_loss(behind, brokers, settings, r6_ms, 300_000))  # type: ignore[arg-type]
    assert ((loss.cause, loss.if_stopped_ms), seconds_to_loss(loss)) == (found, seconds)
    assert loss.is_measured == (seconds is not None)


@pytest.mark.parametrize(
    ("read", "low", "high"),
    [
        (steady(0.0), 22 * HOUR, 24 * HOUR),
        (steady(0.5), 44 * HOUR, 48 * HOUR),
        (Rate(0.5, 0.7, 1.0, HOUR), 44 * HOUR, math.inf),
        (Rate(1.0, 1.0, 2.0, HOUR), math.inf, math.inf),
    ],
)
def test_group_that_keeps_reading_has_a_longer_time_to_loss(read: Rate, low: float, high: float) -> None:
    assert known(time_to_loss(unread(read=read), limits(retention_ms=DAY), None, ENDLESS)).at_its_rate_ms == (low, high)


@pytest.mark.parametrize("brokers", [limits(retention_ms=Unknown.because("x", "y")), limits(retention_bytes=5)])
def test_unknown_deadline_makes_the_loss_unknown(brokers: object) -> None:
    settings = Settings(forced_age_ms=3 * HOUR)
    found = time_to_loss(unread(bytes_per_record=UNKNOWN), brokers, settings, ENDLESS)  # type: ignore[arg-type]
    assert (isinstance(found, Unknown), seconds_to_loss(found)) == (True, None)


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
    behind = unread(span, lag, written=steady(written), read=steady(read), bytes_per_record=Span(1, 1))
    found = known(time_to_loss(behind, limits(), Settings(forced_age_ms=retention), ENDLESS))

    def lost_at(speed: int) -> float:
        end, position = lag, 0
        for now in range(20_000):
            if position < end - retention * written:  # records behind that are older than the retention
                return now
            end, position = end + written, min(end + written, position + speed)
        return math.inf

    assert found.if_stopped_ms.low <= lost_at(0) <= found.if_stopped_ms.high + 1
    spans = known(found.at_its_rate_ms)
    assert spans.low <= lost_at(read) + 1
    assert lost_at(read) <= spans.high + 1 + 1e-9 or math.isinf(spans.high)  # 1 / (1 - 2/3) is a little less than 3
    assert (read < written) or math.isinf(spans.low) or spans.low == 0


ONE, ENDLESSLY = Growing(100, Span.of(1.0), Span.of(150.0)), Growing(0, Span.of(1.0), ENDLESS)


@pytest.mark.parametrize(
    ("room", "replicas", "times"),
    [
        pytest.param(50, [ONE], (50, 50), id="a replica grows up to its kept size"),
        pytest.param(51, [ONE], (math.inf, math.inf), id="and no further"),
        pytest.param(100, [ONE, ENDLESSLY], (50, 50), id="another one grows on"),
        pytest.param(101, [ONE, ENDLESSLY], (51, 51), id="by itself then"),
        pytest.param(
            *(10, [Growing(100, Span.of(1.0), Span.of(40.0)), ENDLESSLY], (10, 70)),
            id="a shrinking replica delays only the latest time",
        ),
        pytest.param(10, [Growing(5, NOTHING, ENDLESS)], (math.inf, math.inf), id="an idle disk never fills"),
    ],
)
def test_disk_is_full_once_its_replicas_have_grown_so_far(
    room: int, replicas: list[Growing], times: tuple[float, float]
) -> None:
    assert full_in(room, replicas) == times
    assert full_in(0, replicas).low == 0, "a full disk is full now"


REPLICA = st.builds(
    lambda size, rates, kept, endless: Growing(
        size, Span(*sorted(map(float, rates))), ENDLESS if endless else Span(*sorted(map(float, kept)))
    ),
    st.integers(0, 100),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.integers(0, 200), st.integers(0, 200)),
    st.booleans(),
)


@given(replicas=st.lists(REPLICA, max_size=12), room=st.integers(1, 800), where=st.floats(0, 1))
def test_disk_fills_within_the_forecast_at_any_growth(replicas: list[Growing], room: int, where: float) -> None:
    found = full_in(room, replicas)
    assert found.low <= found.high
    sizes = [float(one.size_bytes) for one in replicas]
    most = sum(sizes) + room

    def within(span: Span) -> float:
        return span.low if math.isinf(span.low) else span.low + where * (span.high - span.low)

    full = math.inf
    for now in range(1, 1000):
        sizes = [
            min(size + within(one.per_ms), max(size, within(one.retained_bytes)))
            for size, one in zip(sizes, replicas, strict=True)
        ]
        if sum(sizes) >= most - 1e-6:
            full = now
            break
    assert found.low <= full + 1e-3
    if math.isfinite(found.high) and all(one.size_bytes <= one.retained_bytes.low for one in replicas):
        assert full <= found.high + 1


def part(bytes_per_ms: float | None = 1.0, kept: Span = ENDLESS) -> PartitionForecast:
    return PartitionForecast(
        UNKNOWN if bytes_per_ms is None else steady(bytes_per_ms, 1000), Span.of(1.0), ENDLESS, Retained(kept), 0.0
    )


@pytest.mark.parametrize(
    ("used", "queue", "age", "comes"),
    [
        (400, [queued()], Span(10, 10), 100),  # the disk gains a byte a ms, and may gain 100
        (400, [queued(HERE, (50, 30))], Span(10, 49), 130),  # 30 bytes are older: they go first
        (400, [queued(HERE, (50, 30))], Span(10, 50), 130),
        (400, [queued(HERE, (50, 30))], Span(10, 51), 100),  # perhaps not
        (400, [queued(HERE, (50, 30))], Span(10, math.inf), 100),
        (400, [queued(HERE, (50, 30), start=20)], Span(10, 10), 110),  # 20 of them are gone
        (400, [queued(HERE, (50, 30), start=40)], Span(10, 10), 100),
        (400, [queued(HERE, (50, 30), segment=25)], Span(10, 10), 105),  # an active segment may stay
        (400, [queued(HERE, (50, 30)), queued(OTHER, (60, 7))], Span(10, 10), 130),  # that one is on another disk
        (400, [queued(HERE, (90, 10), (50, 30), (20, 60))], Span(10, 30), 130),
        (400, [queued(HERE, (90, 10), (50, 30), (20, 60))], Span(10, 10), 160),
        (600, [queued()], Span(10, 10), 0),  # above its ceiling: it may be this one's turn
        (600, [queued(HERE, (50, 99))], Span(10, 10), 0),
        (600, [queued(HERE, (50, 130))], Span(10, 10), 30),  # what is older covers it, and 30 ms more
    ],
)
def test_r6_takes_older_records_first(used: int, queue: list[Queued], age: Span, comes: float) -> None:
    there = queue_of(disk(used), 50, {HERE: part(), OTHER: part()}, queue)
    assert r6_deadline([there], age, LAST_LOOK) == Span(comes, math.inf)
    assert r6_deadline([], age, LAST_LOOK) == ENDLESS, "no disk with it has a ceiling"


def test_soonest_disk_decides_and_an_unknown_disk_makes_the_deadline_unknown() -> None:
    parts = {HERE: part(), OTHER: part(2.0)}
    slow, fast = disk(400), disk(400, HERE, OTHER, broker=2)
    queues = [queue_of(one, 50, parts, []) for one in (slow, fast)]
    for order in (queues, queues[::-1]):
        assert known(r6_deadline(order, Span(0, 0), LAST_LOOK)).low == pytest.approx(100 / 3)
    silent, unmeasured = Disk(3, (), UNKNOWN, {HERE: 0}), disk(400, HERE, OTHER, broker=4)
    for one, forecasts in ((silent, parts), (unmeasured, {**parts, OTHER: part(None)})):
        assert isinstance(r6_deadline([*queues, queue_of(one, 50, forecasts, [])], Span(0, 0), LAST_LOOK), Unknown)


def test_disk_kept_below_its_ceiling_by_other_rules_has_no_deadline() -> None:
    here = disk(400)
    waiting = part()._replace(retained=Retained(Span(0, 150), "R1", (), 120))  # until R1 begins (F10) the disk fills
    for one, due in ((part(kept=Span(0, 150)), ENDLESS), (part(0.0), ENDLESS), (waiting, Span(100, math.inf))):
        assert r6_deadline([queue_of(here, 50, {HERE: one}, [])], NOTHING, LAST_LOOK) == due
    assert certain(queue_of(here, 50, {HERE: part()}, [queued()._replace(each=UNKNOWN)]))(LAST_LOOK) == 100


class Logs:
    """Partitions that are written to, some bytes a tick each, on one disk that R6 keeps at its ceiling."""

    def __init__(self, rates: list[int], ceiling: int) -> None:
        self.rates, self.ceiling = rates, ceiling
        self.starts = [0] * len(rates)
        self.written: list[list[int]] = [[] for _ in rates]  # of each partition, when each byte was written

    @property
    def ends(self) -> list[int]:
        return [len(one) for one in self.written]

    def tick(self, now: int) -> None:
        for at, rate in enumerate(self.rates):
            self.written[at] += [now] * rate
        while sum(self.ends) - sum(self.starts) > self.ceiling:
            there = [at for at, start in enumerate(self.starts) if start < len(self.written[at])]
            self.starts[min(there, key=lambda at: (self.written[at][self.starts[at]], at))] += 1


@given(
    rates=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    ceiling=st.integers(1, 120),
    ticks=st.integers(2, 30),
    looks=st.sets(st.integers(1, 29), max_size=6),
    share=st.integers(0, 99),
)
def test_r6_never_takes_a_record_sooner_than_forecast(
    rates: list[int], ceiling: int, ticks: int, looks: set[int], share: int
) -> None:
    logs = Logs(rates, ceiling)
    samples: list[list[Sample]] = [[] for _ in rates]
    for now in range(1, ticks + 1):
        logs.tick(now)
        if now in looks:
            for seen, end in zip(samples, logs.ends, strict=True):
                seen.append(Sample(now, end))
    tps = [TopicPartition("t", at) for at in range(len(rates))]
    sizes = {tp: logs.ends[tp.partition] - logs.starts[tp.partition] for tp in tps}
    used = sum(sizes.values())
    place = Disk(1, ("/data",), Room(1000, used, used), sizes)
    parts = {tp: part(float(rates[tp.partition])) for tp in tps}
    queue = [Queued(tp, samples[tp.partition], logs.starts[tp.partition], Span.of(1.0), 0) for tp in tps]
    due_at = queue_of(place, ceiling / 10, parts, queue)
    position = logs.starts[0] + (logs.ends[0] - logs.starts[0]) * share // 100
    if position == logs.ends[0]:
        return
    looked = [one.wall_ms for one in samples[0] if one.high_watermark <= position]
    due = known(r6_deadline([due_at], Span(0, ticks - looked[-1] if looked else math.inf), ticks))
    for after in range(1, 200):
        logs.tick(ticks + after)
        if logs.starts[0] > position:
            assert due.low <= after
            return
    assert due.low > 0 or not any(rates) or used + 200 * sum(rates) > ceiling


# -- what is kept in steady state: a simulated log with brokers and trims never leaves what was foretold --


NEVER_READ = Unknown.because("F4", "no group")


def rate(low: float, high: float | None = None) -> Rate:
    high = low if high is None else high
    return Rate(low, (low + high) / 2, high, HOUR)


A_HUNDRED = Span(100, 100)


def flow(low: float = 1.0, high: float | None = None, each: Maybe[Span] = A_HUNDRED, records: int = 0) -> Flow:
    return Flow(records, rate(low, high), each)


def kept(settings: Settings, brokers: Maybe[Span] = ENDLESS, lag: Maybe[int] = 0, **more: object) -> Maybe[Retained]:
    return policy_keeps(flow(), Standing(settings, lag=lag, **more), brokers, 1000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "of", "expected"),
    [
        (limits(retention_ms=10 * HOUR), flow(), (10 * HOUR, 11 * HOUR)),
        (limits(retention_ms=10 * HOUR, check_interval_ms=500), flow(2.0), (20 * HOUR, 22 * HOUR + 1000)),
        (limits(retention_ms=10 * HOUR, segment_bytes=1000), flow(), (10 * HOUR, 10 * HOUR + 10)),
        (limits(retention_bytes=5000, segment_bytes=1000), flow(), (50, 60)),
        (limits(retention_bytes=5000, segment_bytes=1000), flow(each=Span(50, 100)), (50, 120)),
        (limits(retention_ms=10 * HOUR), flow(0.0), (0, 0)),
        (limits(), flow(0.0, records=7), (7, 7)),
        (limits(), flow(), (math.inf, math.inf)),
        (limits(), flow(0.0, 1.0, records=7), (7, math.inf)),
        (limits(cleanup_policy=frozenset()), flow(), (math.inf, math.inf)),
        (limits(retention_ms=UNKNOWN), flow(), UNKNOWN),
        (limits(retention_bytes=5), flow(each=NEVER_READ), NEVER_READ),
        (limits(cleanup_policy=frozenset({"compact"})), flow(), None),
    ],
)
def test_brokers_keep_by_time_and_size_in_whole_segments_or_it_is_unknown(
    given: TopicSettings, of: Flow, expected: object
) -> None:
    found = brokers_keep(of, given)
    assert isinstance(found, Unknown) if expected is None else found == expected


@pytest.mark.parametrize(
    ("settings", "lag", "low", "high", "by"),
    [
        (Settings(consumed_after_ms=5000), 0, 5000, 6000, "R1"),
        (Settings(consumed_after_ms=5000), 9000, 9000, 10_000, "R1"),
        (Settings(consumed_after_ms=5000), NEVER_READ, math.inf, math.inf, "brokers"),
        (Settings(consumed_after_ms=5000, forced_age_ms=7000), NEVER_READ, 7000, 8000, "R4"),
        (Settings(consumed_after_ms=5000, forced_age_ms=7000), 9000, 7000, 8000, "R4"),
        (Settings(forced_age_ms=7000, forced_age_guarded=True), 9000, 9000, 10_000, "R4"),
        (Settings(event_time_ms=7000), 9000, 9000, 10_000, "R2"),
        (Settings(event_time_ms=7000, unconsumed="trim"), 9000, 7000, 8000, "R2"),
        (Settings(forced_age_ms=7000, min_wallclock_ms=20_000), 0, 20_000, 21_000, "R4"),
        (Settings(max_bytes=4000), 0, 40, 1040, "R5"),
        (Settings(max_bytes=4000), NEVER_READ, math.inf, math.inf, "brokers"),
        (Settings(min_timestamp_ms=1), 9000, 9000, math.inf, "brokers"),
        (Settings(), 0, math.inf, math.inf, "brokers"),
    ],
)
def test_forecast_keeps_what_the_first_rule_leaves(
    settings: Settings, lag: Maybe[int], low: float, high: float, by: str
) -> None:
    found = known(kept(settings, lag=lag))
    assert (found.records, found.by, bool(found.notes)) == ((low, high), by, isinstance(lag, Unknown))


OLD, SLOW, HOLD = Unknown.because("G9", "an old stamp"), Reason("G2", "group:dead reads slowly"), Reason("G7", "hold")

WAITS = (70, Reason("F10", "R1 holds until then"))


@pytest.mark.parametrize(
    ("settings", "brokers", "more", "expected"),
    [
        # never more than brokers keep
        (Settings(consumed_after_ms=5000), Span(100, 200), {}, Retained(Span(100, 200), "brokers")),
        # a consumer that falls behind holds without end
        (
            Settings(consumed_after_ms=5000),
            ENDLESS,
            {"lag": 9000, "falls_behind": SLOW},
            Retained(Span(9000, math.inf), "brokers", (SLOW,)),
        ),
        (Settings(forced_age_ms=1), Span(5, 6), {"untouched": HOLD}, Retained(Span(5, 6), "brokers", (HOLD,))),
        (Settings(forced_age_ms=1), NEVER_READ, {"untouched": HOLD}, None),
        (Settings(forced_age_ms=1), Span(5, 6), {"stopped": {"R4": OLD}}, Retained(Span(5, 6), "brokers", OLD.reasons)),
        # R1 waits at first (F10): what it keeps later is said, with when that is
        (Settings(consumed_after_ms=5000), ENDLESS, {"waits": WAITS}, Retained(Span(5000, 6000), "R1", WAITS[1:], 70)),
        (Settings(forced_age_ms=5000), ENDLESS, {"waits": WAITS}, Retained(Span(5000, 6000), "R4")),
        # where what brokers keep is unknown, a rule is enough
        (Settings(), NEVER_READ, {}, None),
        (Settings(forced_age_ms=7000), NEVER_READ, {}, Retained(Span(7000, 8000), "R4")),
    ],
)
def test_forecast_keeps_what_guards_hold_up_to_the_brokers_limit(
    settings: Settings, brokers: Maybe[Span], more: dict, expected: Retained | None
) -> None:
    found = kept(settings, brokers, **more)
    assert (None if isinstance(found, Unknown) else found) == expected


@pytest.mark.parametrize(("watched_ms", "waits_ms"), [(0, 2 * HOUR), (HOUR, HOUR), (2 * HOUR, 0), (None, 2 * HOUR)])
def test_rule_that_waits_for_groups_to_be_watched_is_forecast_from_then_on(
    watched_ms: int | None, waits_ms: int
) -> None:
    settings = Settings(consumed_after_ms=1, watch_first_ms=2 * HOUR)
    facts = Log(0, [NOW - 9 * HOUR] * 10, floor=10).facts(settings)
    facts = facts._replace(watched_since_ms=None if watched_ms is None else NOW - watched_ms)
    seen = Seen(facts, [Sample(NOW - 5 * HOUR, 5)], Sample(NOW, 10))
    [found] = forecast_partitions([seen], limits(), settings, Terms(0, HOUR, NOW))
    kept = known(found.retained)
    assert (kept.by, kept.waits_ms, [one.code for one in kept.notes]) == ("R1", waits_ms, ["F10"] if waits_ms else [])


@pytest.mark.parametrize(
    ("size", "start", "segment", "each"),
    [
        (1000, 0, 100, (100, 100)),
        (1000, 5, 100, (180, 200)),
        (1000, 5, 10_000, (100, 200)),
        (1000, 10, 100, None),
        (NEVER_READ, 0, 100, None),
    ],
)
def test_dead_bytes_before_the_log_start_widen_the_bytes_per_record(
    size: Maybe[int], start: int, segment: int, each: tuple[int, int] | None
) -> None:
    found = bytes_per_record(PartitionFacts(topic("t"), 0, start, 10, 10, NEVER_READ, size_bytes=size), segment)
    assert (None if isinstance(found, Unknown) else found) == each


def trimmed_to(ages: list[int], rules: tuple[int | None, int | None, int | None], read: int) -> int:
    """Where R4 and R1 trim to, of records of these ages, if the first ones were ``read``; min.wallclock lowers it."""
    by_age, consumed, settled = (None if rule is None else sum(one > rule for one in ages) for rule in rules)
    return min(max(by_age or 0, min(read, consumed or 0)), len(ages) if settled is None else settled)


@given(
    per_tick=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    kept=st.tuples(
        *(st.none() | st.integers(1, 60), st.none() | st.integers(1, 120), st.integers(1, 20), st.integers(1, 40))
    ),
    rules=st.tuples(*(st.none() | st.integers(1, 60) for _ in range(3))),
    lag=st.integers(0, 80),
    every=st.integers(1, 15),
    data=st.data(),
)
def test_simulated_log_stays_within_the_forecast_size(
    per_tick: tuple[int, int],
    kept: tuple[int | None, int | None, int, int],
    rules: tuple[int | None, int | None, int | None],
    lag: int,
    every: int,
    data: st.DataObject,
) -> None:
    """A tick is a ms, a record a byte. Brokers drop whole segments at each tick, the policy trims every so often."""
    low, high = sorted(per_tick)
    (retention, size, roll, segment), (age, consumed, wallclock) = kept, rules
    brokers = limits(
        retention_ms=retention, retention_bytes=size, segment_ms=roll, segment_bytes=segment, check_interval_ms=1
    )
    settings = Settings(consumed_after_ms=consumed, forced_age_ms=age, min_wallclock_ms=wallclock)
    of = Flow(0, rate(low, high), Span(1, 1))
    alone = known(brokers_keep(of, brokers))
    foretold = known(policy_keeps(of, Standing(settings, lag=lag), alone, every))
    records: list[int] = []  # when each was written
    bases = [0]
    begun = start = by_brokers = 0
    for now in range(400):
        for _ in range(data.draw(st.integers(low, high)) if now % 20 == 0 else (low if now % 2 else high)):
            if len(records) - bases[-1] >= segment or (len(records) > bases[-1] and now - begun >= roll):
                bases.append(len(records))
            if len(records) == bases[-1]:
                begun = now
            records.append(now)
        end = len(records)
        for base, after in list(zip(bases, [*bases[1:], end], strict=True)):
            if after <= by_brokers or base == after:
                continue
            expired = retention is not None and now - records[after - 1] > retention
            if not expired and not (size is not None and end - after >= size):
                break
            if after == end:  # brokers roll the active segment, too, once its newest record has expired
                bases.append(end)
            by_brokers = after
        start = max(start, by_brokers)
        if now % every == 0:
            start = max(start, trimmed_to([now - one for one in records], rules, max(0, end - lag)))
        if now > 250:  # a segment, a retention and a trim after the beginning
            slack = 2 * high + 1  # a tick's records come at once
            if low > 0 and alone.bounded:
                assert alone.low - slack <= end - by_brokers <= alone.high + slack
            if low > 0 and foretold.records.bounded:
                assert foretold.records.low - slack <= end - start <= foretold.records.high + slack


# -- what a forecast comes to in money: by hand, and what is unknown never counts as nothing --


THEN = parse_time_ms(AT)
LOST = Unknown.because("size", "not read")


def ran(rule: str | None = None, outcome: str = "trimmed", **row: Any) -> list[Run]:
    """A run that trimmed 100 bytes of one partition at AT."""
    one = batch(1, 0)
    one["partitions"] = [{**one["partitions"][0], "topic_id": "id", "rule": rule, **row}]
    return [*one_by_one([BEGUN, one, result(1, {0: outcome})])]


@pytest.mark.parametrize(
    ("runs", "retention", "digest", "bytes_for"),
    [
        (ran(), None, "d", 5 * DAY),  # brokers would have kept it
        (ran(), 2 * DAY, "d", 2 * DAY + HOUR),  # by whole segments
        (ran("consumed"), 2 * DAY, "d", DAY + HOUR),  # it was a day old
        (ran("consumed"), 2 * DAY, "other", 2 * DAY + HOUR),  # by another policy: nothing is known of its age
        (ran("consumed"), 2 * DAY, None, 2 * DAY + HOUR),
        (ran("forced-age"), 2 * DAY, "d", 0),
        (ran("size"), 2 * DAY, "d", 2 * DAY + HOUR),
        (ran(), LOST, "d", None),
        (ran(bytes=None), None, "d", None),
        (ran(outcome="unverified"), None, "d", 0),
        (ran(topic_id="former"), None, "d", 0),
        (ran(topic="other"), None, "d", 0),
        ([], LOST, "d", 0),
    ],
)
def test_trimmed_bytes_count_until_brokers_would_have_deleted_them(
    runs: list[Run], retention: Maybe[int] | None, digest: str | None, bytes_for: int | None
) -> None:
    settings = {"t": Settings(consumed_after_ms=DAY, forced_age_ms=9 * DAY)}
    [found] = stayed(
        runs, {"t": "id"}, {"t": limits(retention_ms=retention)}, settings, digest, THEN + 5 * DAY
    ).values()
    assert (None if isinstance(found, Unknown) else found) == (None if bytes_for is None else 100 * bytes_for)


def test_trim_in_the_future_of_a_clock_set_back_has_saved_nothing() -> None:
    assert stayed(ran(), {"t": "id"}, {"t": limits()}, {"t": Settings()}, "d", THEN - DAY) == {"t": 0}


def test_savings_of_a_topic_whose_id_is_unknown_are_unknown() -> None:
    unknown = Unknown.because("metadata", "not read")
    assert stayed(ran(), {"t": unknown}, {"t": limits()}, {"t": Settings()}, "d", THEN + DAY) == {"t": unknown}


def test_topic_is_priced_with_what_its_slow_consumer_keeps() -> None:
    """A GiB an hour, of which R1 keeps two hours; its consumer is ten behind, and brokers would keep a hundred."""
    log = Log(0, [NOW] * 20, floor=10)
    settings = Settings(consumed_after_ms=2 * HOUR)
    seen = Seen(log.facts(settings)._replace(size_bytes=20 * GIB), [Sample(NOW - 10 * HOUR, 10)], Sample(NOW, 20))
    parts = forecast_partitions(
        [seen], limits(retention_ms=100 * HOUR, segment_ms=0), settings, Terms(0, HOUR, NOW, priced=True)
    )
    one = forecast_topic("t", [seen], parts)
    found = topic_bill(one, [(seen, parts[0])], {"team": "a"}, 0.5, GIB * MONTH_MS * 3.0)
    assert found.bill == Bill(Span.of(10.0), Span(0.0, 1.5), Span.of(45.0), Span.of(4.0))
    assert found.by_consumer == {"group:a": Span.of(4.0)}
    assert isinstance(topic_bill(one, [(seen, parts[0])], {}, LOST, LOST).bill.saves, Unknown)


def bill(now: Maybe[Span]) -> Bill:
    return Bill(now, now, now, now)


BILLS = Bills(
    Prices(0.1, currency="EUR"),
    [
        TopicBill("a", {"team": "x"}, bill(Span(1, 2)), {"group:g": Span(1, 2)}),
        TopicBill("b", {"team": "x", "tier": "1"}, bill(LOST), {"group:g": LOST, "group:h": Span(5, 5)}),
        TopicBill("c", {}, bill(Span(4, 4)), {}),
    ],
)


def test_sums_with_an_unknown_part_have_no_upper_bound() -> None:
    assert total_of(one.bill for one in BILLS.topics) == bill(Span(5, math.inf))
    assert total_of(()) == Bill(NOTHING, NOTHING, NOTHING, NOTHING), "of no topic"
    assert by_label(BILLS) == {"team=x": (2, bill(Span(1, math.inf))), "tier=1": (1, bill(Span(0, math.inf)))}
    assert by_consumer(BILLS) == [("group:h", Span(5, 5)), ("group:g", Span(1, math.inf))]
    found = known(money_json(BILLS))
    assert (found["cost_now_low"], found["cost_now_high"], found["currency"]) == (5, None, "EUR")
    assert found["consumers"][0] == {"consumer": "group:h", "cost_unread_month_low": 5, "cost_unread_month_high": 5}


@given(st.lists(st.one_of(st.just(LOST), st.just(ENDLESS), st.builds(Span.of, st.floats(0, 1e9))), max_size=6))
def test_a_sum_is_exact_or_says_that_it_is_not(amounts: list[Maybe[Span]]) -> None:
    found = added(amounts)
    known = [one for one in amounts if isinstance(one, Span) and one.bounded]
    assert (found.low, found.bounded) == (sum(one.low for one in known), len(known) == len(amounts))


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (NOTHING, "0.00"),
        (LOST, "?"),
        (Span(0, math.inf), "?"),
        (ENDLESS, "without limit"),
        (Span(2, math.inf), "≥ 2.00"),
        (Span(0, 1234.5), "≤ 1,234.50"),
        (Span(0.0001, 0.001), "0.01"),
        (Span(1.2, 1.4), "1.20–1.40"),
        (Span(1.2001, 1.2002), "1.20"),
    ],
)
def test_money_has_two_decimals_and_is_never_nothing_by_rounding(span: Maybe[Span], text: str) -> None:
    assert price(span) == text


TOPICS = "topics:\n  - {match: '*', labels: {team: all}}\n  - {match: t, labels: {owner: me}}\n"


def test_price_and_labels_of_the_last_entry_that_has_some_are_read() -> None:
    policy = parse_policy(
        f"version: 1\ncost: {{per.gib.month: 1, replication: excluded, currency: €}}\n{TOPICS}", "p", "d"
    )
    assert policy.prices == Prices(1.0, per_replica=True, currency="€")
    assert (policy.labels_of("t"), policy.labels_of("u")) == ({"owner": "me"}, {"team": "all"})
    assert parse_policy(f"version: 1\n{TOPICS}", "p", "d").prices is None
    assert parse_policy(f"version: 1\ncost: {{per.gib.month: 0}}\n{TOPICS}", "p", "d").prices == Prices(0.0)


@pytest.mark.parametrize(
    ("cost", "labels", "problem"),
    [
        ("{}", "{a: b}", "per.gib.month"),
        ("{per.gib.month: cheap}", "{a: b}", "'cheap' is not a price"),
        ("{per.gib.month: -1}", "{a: b}", "-1 is not a price"),
        ("{per.gib.month: .nan}", "{a: b}", "is not a price"),
        ("{per.gib.month: 1, replication: yes}", "{a: b}", "is not included or excluded"),
        ("{per.gib.month: 1, currency: 'a b'}", "{a: b}", "is not a currency"),
        ("{per.gib.month: 1, curency: a}", "{a: b}", "did you mean currency?"),
        ("{per.gib.month: 1}", "[a]", "is not a mapping"),
        ("{per.gib.month: 1}", "{a: 7}", "7 is not a label"),
        ("{per.gib.month: 1}", '{a: "x\\e[2J"}', "is not a label"),
    ],
)
def test_wrong_price_or_label_is_a_problem_with_its_line(cost: str, labels: str, problem: str) -> None:
    text = f"version: 1\ncost: {cost}\ntopics:\n  - {{match: t, labels: {labels}}}\n"
    [line] = raised(PolicyError, parse_policy, text, "p", "d").lines
    assert problem in line
    assert line.startswith(("p:2", "p:4"))
