"""When R6 comes to a record: never sooner than is told, against taking the oldest bytes tick by tick."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Maybe, Sample, TopicPartition, Unknown
from retention_cli.disks.disk import Disk, Room
from retention_cli.forecast.loss import R6, Queued, queue_of
from retention_cli.forecast.rates import ENDLESS, NOTHING, Rate, Span
from retention_cli.forecast.steady import PartitionForecast, Retained
from tests.support.forecasts import HERE, LAST_LOOK, OTHER, disk, queued

UNKNOWN = Unknown.because("rate", "not measured")


def part(bytes_per_ms: float | None = 1.0, kept: Span = ENDLESS) -> PartitionForecast:
    rate: Maybe[Rate] = UNKNOWN if bytes_per_ms is None else Rate(bytes_per_ms, bytes_per_ms, bytes_per_ms, 1000)
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
    here = disk(used)
    r6 = R6([(here, queue_of(here, 50, {HERE: part(), OTHER: part()}, queue))])
    assert r6.deadline(HERE, age, LAST_LOOK) == Span(comes, math.inf)
    assert r6.deadline(OTHER, age, LAST_LOOK) == ENDLESS, "no disk with it has a ceiling"


def test_soonest_disk_decides_and_an_unknown_disk_makes_the_deadline_unknown() -> None:
    parts = {HERE: part(), OTHER: part(2.0)}
    slow, fast = disk(400), disk(400, HERE, OTHER, broker=2)
    queues = [(one, queue_of(one, 50, parts, [])) for one in (slow, fast)]
    for order in (queues, queues[::-1]):
        soonest = R6(order).deadline(HERE, Span(0, 0), LAST_LOOK)
        assert isinstance(soonest, Span)
        assert soonest.low == pytest.approx(100 / 3)
    silent = Disk(3, (), UNKNOWN, {HERE: 0})
    unmeasured = disk(400, HERE, OTHER, broker=4)
    for one, known in ((silent, parts), (unmeasured, {**parts, OTHER: part(None)})):
        r6 = R6([*queues, (one, queue_of(one, 50, known, []))])
        assert isinstance(r6.deadline(HERE, Span(0, 0), LAST_LOOK), Unknown)


def test_disk_kept_below_its_ceiling_by_other_rules_has_no_deadline() -> None:
    here = disk(400)
    r6 = R6([(here, queue_of(here, 50, {HERE: part(kept=Span(0, 150))}, []))])
    assert r6.deadline(HERE, Span(0, 0), LAST_LOOK) == ENDLESS
    idle = R6([(here, queue_of(here, 50, {HERE: part(0.0)}, []))])
    assert idle.deadline(HERE, Span(0, 0), LAST_LOOK) == ENDLESS
    waiting = part(kept=Span(0, 150))._replace(kept=Retained(Span(0, 150), "R1", (), 120))
    r6 = R6([(here, queue_of(here, 50, {HERE: waiting}, []))])
    assert r6.deadline(HERE, Span(0, 0), LAST_LOOK) == Span(100, math.inf), "until R1 begins (F10) the disk fills"
    assert queue_of(here, 50, {HERE: part()}, [queued()._replace(each=UNKNOWN)]).comes_to(LAST_LOOK) == 100
    assert Span(0, 0) == NOTHING


@dataclass
class Logs:
    """Partitions that are written to, some bytes a tick each, on one disk that R6 keeps at its ceiling."""

    rates: list[int]
    ceiling: int
    ends: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    written: list[list[int]] = field(default_factory=list)
    """Of each partition, the tick at which each byte was written."""

    def __post_init__(self) -> None:
        self.ends = [0] * len(self.rates)
        self.starts = [0] * len(self.rates)
        self.written = [[] for _ in self.rates]

    def tick(self, now: int) -> None:
        for at, rate in enumerate(self.rates):
            self.written[at] += [now] * rate
            self.ends[at] += rate
        while sum(self.ends) - sum(self.starts) > self.ceiling:
            there = [at for at in range(len(self.rates)) if self.starts[at] < self.ends[at]]
            oldest = min(there, key=lambda at: (self.written[at][self.starts[at]], at))
            self.starts[oldest] += 1


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
            for at, end in enumerate(logs.ends):
                samples[at].append(Sample(now, end))
    used = sum(logs.ends) - sum(logs.starts)
    tps = [TopicPartition("t", at) for at in range(len(rates))]
    room = Room(1000, used, used)
    sizes = {tp: logs.ends[tp.partition] - logs.starts[tp.partition] for tp in tps}
    place = Disk(1, ("/data",), room, sizes)
    parts = {tp: part(float(rates[tp.partition])) for tp in tps}
    queue = [Queued(tp, samples[tp.partition], logs.starts[tp.partition], Span.of(1.0), 0) for tp in tps]
    r6 = R6([(place, queue_of(place, ceiling / 10, parts, queue))])
    position = logs.starts[0] + (logs.ends[0] - logs.starts[0]) * share // 100
    if position == logs.ends[0]:
        return
    seen = [one.wall_ms for one in samples[0] if one.high_watermark <= position]
    due = r6.deadline(tps[0], Span(0, ticks - seen[-1] if seen else math.inf), ticks)
    assert isinstance(due, Span)
    for after in range(1, 200):
        logs.tick(ticks + after)
        if logs.starts[0] > position:
            assert due.low <= after
            return
    assert due.low > 0 or not any(rates) or used + 200 * sum(rates) > ceiling
