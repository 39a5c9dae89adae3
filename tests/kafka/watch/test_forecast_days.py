"""Days made seconds on a real cluster: what was foretold, again and again, against what then happened.

FORECAST_MINUTES is how long (2; an hour for docs/forecast.md). A day is ten seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from kretain.embedded import EmbeddedKafka
from retention_cli.core.model import Unknown
from retention_cli.forecast.value import Forecast, Span
from tests.conftest import QUICK
from tests.support.forecasting import A_SECOND, foretell, written_to
from tests.support.world import World, reader_for

MINUTES = float(os.environ.get("FORECAST_MINUTES", "2"))
EVERY_S = 2.0
"""How often the policy trims."""
ROUND_S = 60.0
"""So often a forecast is made, and a group stops on each topic."""
SLACK = 1.5 * A_SECOND
"""Records that are written between two looks at a log."""
LATE_S = 4.0
"""How much later than it may a trim or a broker's check be, and be seen."""


@dataclass
class Told:
    """A forecast, when it was made (monotonic), and the groups that stopped then: topic to group."""

    at: float
    made: Forecast
    stopped: dict[str, tuple[str, int]]
    lost: dict[str, float] = field(default_factory=dict)


@dataclass
class Compared:
    """How often something was compared, and the furthest off (in what ``unit`` says)."""

    unit: str
    count: int = 0
    off: float = 0.0
    inside: int = 0
    width: list[float] = field(default_factory=list)

    def add(self, low: float, value: float, high: float) -> float:
        """Count a comparison; return by how much the value lies outside."""
        off = max(low - value, value - high, 0.0)
        self.count += 1
        self.inside += off == 0
        self.off = max(self.off, off)
        self.width.append(high - low)
        return off

    def __str__(self) -> str:
        width = sorted(self.width)[len(self.width) // 2] if self.width else 0.0
        said = f"{self.count:,} looks, {self.inside:,} within the range"
        return f"{said}, the furthest {self.off:,.1f} {self.unit} outside; a range is {width:,.1f} {self.unit} wide"


@contextmanager
def own_cluster() -> Iterator[World]:
    """A cluster of its own: other tests' topics would grow on the disk whose end is foretold."""
    with EmbeddedKafka(1, settings=QUICK) as cluster:
        yield World(cluster.bootstrap, cluster.directory / "state")


def used_bytes(world: World) -> int:
    with reader_for(world.bootstrap) as reader:
        (dirs,) = reader.log_dirs(reader.brokers()).values()
    assert not isinstance(dirs, Exception)
    return sum(replica.size_bytes for one in dirs for replica in one.replicas)


def span_of(value: object) -> Span:
    assert isinstance(value, Span), value
    return value


def check_disk(disk: Compared, told: list[Told], full_at: float) -> None:
    """Hold each forecast of the disk against when it was full."""
    for one in told:
        if one.at < full_at:
            span = span_of(one.made.disks[0].policy)
            off = disk.add(span.low / 1000, full_at - one.at, span.high / 1000)
            assert off <= LATE_S + 0.1 * (full_at - one.at), f"full after {full_at - one.at} s: {span}"


def report(names: dict[str, str], kept: dict[str, Compared], lost: dict[str, Compared], lines: list[str]) -> None:
    """Print how well forecasts held."""
    lines += [f"kept by {names[name]}: {one}" for name, one in kept.items()]
    lines += [f"lost to {names[name]}: {one}" for name, one in lost.items()]
    sys.stdout.write("\n".join(lines) + "\n")


@pytest.mark.long
@pytest.mark.timeout(int(120 * MINUTES + 600))
def test_forecast_of_days_compressed_to_seconds_holds() -> None:
    """What is kept by R1, R4, the brokers' time and size; when groups that stop lose data; when the disk is full."""
    with own_cluster() as world:
        consumed, aged = (world.topic(name, segment_bytes=str(1 << 20)) for name in ("consumed", "aged"))
        timed = world.topic("timed", retention_ms="10000", segment_ms="3000")
        sized = world.topic("sized", retention_bytes=str(2 << 20), segment_bytes=str(1 << 20))
        endless = world.topic("endless")
        topics = (consumed, aged, timed, sized, endless)
        full_bytes = int(used_bytes(world) + (12 << 20) + 0.7 * MINUTES * 60 * A_SECOND * 1100)
        policy = f"""
version: 1
disks: {{capacity: {full_bytes}}}
topics:
  - match: {consumed}
    retention.commitoffset.enable: true
    retention.commitoffset.ms: 5s
  - match: {aged}
    retention.ms: 8s
  - match: [{timed}, {sized}, {endless}]
    retention.commitoffset.enable: true
    retention.commitoffset.ms: 1h
    log.retention.min.timestamp: 0
"""
        kept = {name: Compared("records") for name in (consumed, aged, timed, sized)}
        lost = {name: Compared("s") for name in (aged, timed, sized)}
        disk = Compared("s")
        told: list[Told] = []
        full_at: float | None = None

        def look(since_trim_s: float) -> None:
            """Hold each log against the last forecast, and see which stopped groups have lost data."""
            late = A_SECOND * max(0.0, since_trim_s - EVERY_S)
            last = {one.name: one for one in told[-1].made.topics}
            for name, compared in kept.items():
                start, end = world.ends(name)
                for foretold in (last[name].policy, *([] if name in (consumed, aged) else [last[name].alone])):
                    span = span_of(foretold.records)
                    off = compared.add(span.low, end - start, span.high)
                    assert off <= SLACK + late, f"{name} has {end - start} records, {span} were foretold"
                for one in told:
                    if name in one.stopped and name not in one.lost and start > one.stopped[name][1]:
                        one.lost[name] = time.monotonic() - one.at

        with written_to(world, *topics, jitter=0.25):
            begun = trimmed = time.monotonic()
            while (now := time.monotonic()) - begun < 60 * MINUTES:
                world.commit("reader", consumed, max(0, world.ends(consumed)[1] - 2 * A_SECOND))
                if now - begun > 30 and (not told or now - told[-1].at > ROUND_S):
                    stopped = {name: (f"stopped-{len(told)}-{name}", world.ends(name)[1]) for name in lost}
                    for name, (group, offset) in stopped.items():
                        world.commit(group, name, offset)
                    told.append(Told(time.monotonic(), foretell(world, policy, least_ms=8000), stopped))
                if told:
                    look(time.monotonic() - trimmed)
                world.trim(world.plan(policy), policy)
                trimmed = time.monotonic()
                if told:
                    look(0.0)
                if full_at is None and used_bytes(world) >= full_bytes:
                    full_at = time.monotonic()
                time.sleep(max(0.0, EVERY_S - (time.monotonic() - now)))
        for one in told:
            losses = {group.group: group.loss for group in one.made.groups}
            for name, (group, _offset) in one.stopped.items():
                loss = losses[group]
                assert not isinstance(loss, Unknown), loss
                assert loss.cause == {aged: "R4", timed: "retention.ms", sized: "retention.bytes"}[name]
                low, high = (ms / 1000 for ms in loss.if_stopped_ms)
                if name not in one.lost:
                    assert time.monotonic() - one.at < high + LATE_S, f"{group} has lost nothing: {loss}"
                    continue
                assert lost[name].add(low, one.lost[name], high) <= LATE_S, (
                    f"{group} lost after {one.lost[name]}: {loss}"
                )
        assert full_at is not None, "the disk was to be full by now"
        check_disk(disk, told, full_at)
        names = {consumed: "R1", aged: "R4", timed: "the brokers' time", sized: "the brokers' size"}
        report(names, kept, lost, [f"{MINUTES:g} minutes, {len(told)} forecasts", f"the disk's end: {disk}"])
