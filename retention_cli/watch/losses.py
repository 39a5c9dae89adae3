"""How long until what a consumer has not read goes: by R4, R6, or the brokers themselves (docs/watch.md, Metrics).

It is the forecast's answer for the consumers that set floors (:mod:`retention_cli.forecast.loss`), and its rates and
disks are the forecast's, too. What might come first and is unknown makes it unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import floor_by
from retention_cli.core.model import Decision, TopicPartition, Unknown
from retention_cli.forecast.disks import R6, queue_of
from retention_cli.forecast.loss import Unread, seconds_to_loss, time_to_loss
from retention_cli.forecast.make import PartitionForecast, Seen, Terms, forecast_partitions
from retention_cli.forecast.observed import Limits, limits_of, queued_in, seen_in
from retention_cli.forecast.rates import HOUR_MS, age_of, rate_of
from retention_cli.forecast.span import Span
from retention_cli.forecast.steady import bytes_per_record, guarded
from retention_cli.memory.stores import Memories
from retention_cli.plan.make import Whole
from retention_cli.policy.settings import DiskRules, Settings
from retention_cli.watch.measured import LossOf, unread_in

LEAST_MS = HOUR_MS
"""The least time that a rate is measured over."""


def losses(
    reader: ClusterReader, whole: Whole, memories: Memories, rules: DiskRules, every_ms: int, now_ms: int
) -> LossOf:
    """Return the function that says how long a partition's floor has. Nothing is known if brokers don't answer.

    Args:
        reader: reads topics' live limits.
        whole: what the plan was made of.
        memories: the ledgers, with the samples that ages and rates go by.
        rules: the policy's for disks.
        every_ms: how often the policy trims (ms).
        now_ms: now (Unix ms).
    """
    observation = whole.observation
    settings = observation.settings
    behind = {one.tp for one in whole.decisions if unread_in(one)}
    full = rules.percent is not None and any(not guarded("R6", settings[tp.topic]) for tp in behind)
    there = {floor_by(name) for name in whole.groups}
    try:
        limits = limits_of(reader, sorted(settings if full else {tp.topic for tp in behind}))
    except BrokerError:
        return lambda _one: None
    seen = seen_in(observation, memories, {}, there, now_ms, None if full else behind)
    r6 = R6(())
    if full and rules.percent is not None:
        terms = Terms(every_ms, LEAST_MS, now_ms)
        parts = _parts(seen, limits, settings, terms)
        queued = list(queued_in(seen, settings, parts, limits))
        r6 = R6((disk, queue_of(disk, rules.percent, parts, queued)) for disk in whole.disks)
    places = {one.facts.tp: one for rows in seen.values() for one in rows if one.facts.tp in behind}
    return lambda one: seconds_left(one, places.get(one.tp), limits, settings[one.topic], rules, r6)


def _parts(
    seen: Mapping[str, Sequence[Seen]], limits: Limits, settings: Mapping[str, Settings], terms: Terms
) -> dict[TopicPartition, PartitionForecast]:
    found: dict[TopicPartition, PartitionForecast] = {}
    for name, rows in seen.items():
        parts = forecast_partitions(rows, limits[name], settings[name], terms)
        found |= {one.facts.tp: part for one, part in zip(rows, parts, strict=True)}
    return found


def seconds_left(
    one: Decision, here: Seen | None, limits: Limits, settings: Settings, rules: DiskRules, r6: R6
) -> float | None:
    """Return how long a floor has; None if that is not known, or for ever."""
    if here is None or one.min_commit is None or one.log_start is None:
        return None
    if one.trim_to is not None and one.trim_to > one.min_commit:  # the plan takes it
        return 0.0
    if rules.watermarks and not guarded("R2", settings):  # R7 may shorten any age, and what it adds is not held
        return None
    age = _age(here, one.min_commit)
    due = r6.deadline(one.tp, age, here.now.wall_ms)
    left = seconds_to_loss(time_to_loss(_unread(here, one, age, limits), limits[one.topic], settings, due))
    return None if left is None or math.isinf(left) else left


def _age(here: Seen, offset: int) -> Span:
    return age_of(() if isinstance(here.samples, Unknown) else here.samples, here.now, offset)


def _unread(here: Seen, one: Decision, age: Span, limits: Limits) -> Unread:
    assert one.min_commit is not None and one.log_start is not None and one.high_watermark is not None  # noqa: S101, PT018  (checked)
    return Unread(
        age_ms=age,
        lag=max(0, here.now.high_watermark - one.min_commit),
        lost=max(0, one.log_start - one.min_commit),
        written=here.samples if isinstance(here.samples, Unknown) else rate_of(here.samples, here.now, LEAST_MS),
        bytes_per_record=bytes_per_record(
            here.facts.size_bytes, one.log_start, one.high_watermark, limits[one.topic].segment_bytes
        ),
    )
