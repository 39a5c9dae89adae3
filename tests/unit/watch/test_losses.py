"""How long what a floor has yet to read has: at least, or not told (``kretain_group_seconds_to_loss``)."""

from __future__ import annotations

import pytest

from retention_cli.advise.facts import TopicSettings
from retention_cli.core.model import Decision, Floor, Maybe, PartitionFacts, Sample, TopicPartition, Unknown, Watermark
from retention_cli.disks.disk import Disk, Room
from retention_cli.forecast.disks import R6, Queue, queue_of
from retention_cli.forecast.loss import Place
from retention_cli.forecast.rates import ENDLESS, Rate, Span
from retention_cli.forecast.steady import PartitionForecast, Retained, Seen, Terms, forecast_partitions
from retention_cli.policy.settings import DiskRules, Settings
from retention_cli.watch.losses import seconds_left
from tests.support.ceilings import row
from tests.support.facts import HOUR, NOW, topic
from tests.support.forecasts import limits

TP = TopicPartition("t", 0)
HOLD, NO_RULES, NO_DISKS = Settings(), DiskRules(), R6(())
TRIM = Settings(unconsumed="trim")
FULL_SOON = Disk(1, ("/data",), Room(1_000_000, 400_000, 400_000), {TP: 1000})
"""A disk that may gain 100,000 bytes until its ceiling of half."""


def r6(bytes_per_ms: float | None) -> R6:
    rate: Maybe[Rate] = (
        Unknown.because("rate", "?") if bytes_per_ms is None else Rate(bytes_per_ms, bytes_per_ms, bytes_per_ms, HOUR)
    )
    part = PartitionForecast(rate, Span.of(1.0), ENDLESS, Retained(ENDLESS), 0.0)
    return R6([(FULL_SOON, queue_of(FULL_SOON, 50, {TP: part}, []))])


def seconds(
    brokers: TopicSettings,
    settings: Settings = HOLD,
    *,
    seen: tuple[tuple[int, int], ...] = ((HOUR // 2, 7),),
    floor: int = 7,
    trim_to: int | None = None,
    rules: DiskRules = NO_RULES,
    disks: R6 = NO_DISKS,
) -> float | None:
    """Return what is told of a log of 10 records from 5 on, of 100 bytes each, which ended there so long ago."""
    one: Decision = row(0, 5, 0, 0, 7)._replace(high_watermark=10, min_commit=floor, trim_to=trim_to)
    facts = PartitionFacts(topic("t"), 0, 5, 10, 10, Floor(floor, "group:g"), size_bytes=1000)
    here = Seen(facts, [Sample(NOW - ago, end) for ago, end in seen], Sample(NOW, 10))
    terms = Terms(0, HOUR, NOW)
    (part,) = forecast_partitions([here], brokers, settings, terms)
    return seconds_left(one, Place(here, part, brokers, settings, disks, terms), settings, rules)


BY_SIZE = limits(retention_bytes=2000, segment_bytes=0, retention_ms=10 * HOUR)
WATERMARKS = DiskRules(watermarks=(Watermark(80, 0.5, 1),))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"brokers": limits(retention_ms=HOUR)}, 1800),
        ({"brokers": limits(retention_ms=HOUR), "seen": ((2 * HOUR, 7),)}, 0),
        ({"brokers": limits(retention_ms=HOUR), "seen": ()}, None),  # nobody saw when it came
        ({"brokers": limits()}, None),  # for ever
        ({"brokers": limits(retention_ms=HOUR, cleanup_policy=frozenset({"compact"}))}, None),  # compacted alone
        ({"brokers": limits(), "floor": 4}, 0),  # it is losing records already
        ({"brokers": limits(), "trim_to": 8}, 0),  # this plan takes them
        ({"brokers": limits(), "trim_to": 7}, None),
        ({"brokers": limits(retention_ms=10 * HOUR), "settings": Settings(forced_age_ms=HOUR)}, 1800),
        ({"brokers": limits(), "settings": Settings(forced_age_ms=HOUR, forced_age_guarded=True)}, None),
        ({"brokers": limits(retention_ms=Unknown.because("x", "y")), "settings": Settings(forced_age_ms=HOUR)}, None),
        (
            {"brokers": BY_SIZE, "seen": ((2 * HOUR, 6), (HOUR, 7))},
            8400,
        ),  # room for 7 more records; 3 came an hour at most
        ({"brokers": BY_SIZE, "seen": ((HOUR // 2, 7),)}, None),  # how fast it grows is not known yet
        ({"brokers": limits(), "settings": TRIM, "disks": r6(1.0)}, 100),
        ({"brokers": limits(retention_ms=HOUR), "settings": TRIM, "disks": r6(1.0)}, 100),
        ({"brokers": limits(retention_ms=HOUR), "settings": TRIM, "disks": r6(0.01)}, 1800),
        ({"brokers": limits(retention_ms=HOUR), "settings": TRIM, "disks": r6(None)}, None),  # R6 might come first
        ({"brokers": limits(retention_ms=HOUR), "disks": r6(1.0)}, 1800),  # G2 holds it back
        ({"brokers": limits(retention_ms=HOUR), "disks": r6(None)}, 1800),
        ({"brokers": limits(retention_ms=HOUR), "settings": TRIM, "rules": WATERMARKS}, None),  # R7 may shorten it
        ({"brokers": limits(retention_ms=HOUR), "rules": WATERMARKS}, 1800),
    ],
)
def test_time_to_loss_is_a_lower_bound_or_absent(said: dict, found: float | None) -> None:
    assert seconds(**said) == found


def test_unread_partition_has_no_time_to_loss() -> None:
    one = row(0, 5, 0, 0, 7)._replace(high_watermark=10, min_commit=7)
    assert seconds_left(one, None, Settings(), DiskRules()) is None
    assert isinstance(Queue(Unknown.because("x", "y")).comes_to(0), Unknown)
