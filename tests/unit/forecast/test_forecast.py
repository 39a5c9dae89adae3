"""How fast a partition is written to, what comes first to its records, and when disks are full."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from hypothesis import assume, example, given, strategies as st

from retention_cli.core.model import Sample, TopicPartition, Unknown, certain
from retention_cli.disks.disk import Disk, Room
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
from retention_cli.forecast.steady import PartitionForecast, Retained, Seen, Terms
from retention_cli.forecast.value import ENDLESS, NOTHING, WINDOW_MS, Rate, Span, age_of, group_rate, rate_of
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.partition import thinned, without_repeats
from retention_cli.memory.positions import Position, Positions
from retention_cli.policy.settings import Settings
from tests.support.facts import HOUR, NOW, Log, known, why
from tests.support.forecasts import HERE, LAST_LOOK, OTHER, disk, limits, queued

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
    loss = known(time_to_loss(behind, brokers, settings, r6_ms, 300_000))  # type: ignore[arg-type]
    assert (loss.cause, loss.if_stopped_ms) == found
    assert seconds_to_loss(loss) == (found[1].low / 1000 if loss.is_measured else None)


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
    found = known(time_to_loss(unread(read=read), limits(retention_ms=DAY), None, ENDLESS))
    assert found.at_its_rate_ms == (low, high)


def test_record_older_than_the_ledger_has_no_certain_time_to_loss() -> None:
    found = known(time_to_loss(unread(Span(HOUR, math.inf)), limits(retention_ms=DAY), None, ENDLESS))
    assert (found.if_stopped_ms, found.is_measured, seconds_to_loss(found)) == (Span(0, 24 * HOUR), False, None)
    due = time_to_loss(unread(Span(3 * DAY, math.inf)), limits(retention_ms=DAY, segment_ms=0), None, ENDLESS)
    assert seconds_to_loss(due) == 0


@pytest.mark.parametrize("brokers", [limits(retention_ms=Unknown.because("x", "y")), limits(retention_bytes=5)])
def test_unknown_deadline_makes_the_loss_unknown(brokers: object) -> None:
    settings = Settings(forced_age_ms=3 * HOUR)
    found = time_to_loss(unread(bytes_per_record=UNKNOWN), brokers, settings, ENDLESS)  # type: ignore[arg-type]
    assert (isinstance(found, Unknown), seconds_to_loss(found)) == (True, None)


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
    rate = UNKNOWN if bytes_per_ms is None else steady(bytes_per_ms, 1000)
    return PartitionForecast(rate, Span.of(1.0), ENDLESS, Retained(kept), 0.0)


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
