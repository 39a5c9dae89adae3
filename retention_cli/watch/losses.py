"""How long until what a consumer has not read goes: by R4, R6, or the brokers themselves (docs/metrics.md).

It is the forecast's answer for the consumers that set floors (:mod:`retention_cli.forecast.loss`), and its rates and
disks are the forecast's, too. What might come first and is unknown makes it unknown.
"""

from __future__ import annotations

import math

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.codes import Code
from retention_cli.core.consumers import floor_by
from retention_cli.core.model import Decision
from retention_cli.forecast.loss import Place, seconds_to_loss
from retention_cli.forecast.rates import HOUR_MS
from retention_cli.forecast.reading import forecasts_of, limits_of, r6_of, seen_in
from retention_cli.forecast.steady import Terms, guarded
from retention_cli.plan.make import PlanInputs
from retention_cli.policy.settings import DiskRules, Settings
from retention_cli.state.memories import Memories
from retention_cli.watch.measured import LossOf, unread_in


def losses(
    reader: ClusterReader, inputs: PlanInputs, memories: Memories, rules: DiskRules, every_ms: int, now_ms: int
) -> LossOf:
    """Return the function that says how long a partition's floor has. Nothing is known if brokers don't answer.

    Args:
        reader: reads topics' live limits.
        inputs: what the plan was made of.
        memories: the ledgers, with the samples that ages and rates go by.
        rules: the policy's for disks.
        every_ms: how often the policy trims (ms).
        now_ms: now (Unix ms).
    """
    observation = inputs.observation
    settings = observation.settings
    behind = {one.tp for one in inputs.decisions if unread_in(one)}
    full = rules.percent is not None and any(not guarded(Code.R6, settings[tp.topic]) for tp in behind)
    there = {floor_by(name) for name in inputs.groups}
    try:
        limits = limits_of(reader, sorted(settings if full else {tp.topic for tp in behind}))
    except BrokerError:
        return lambda _one: None
    seen = seen_in(observation, memories, {}, there, now_ms, None if full else behind)
    terms = Terms(every_ms, HOUR_MS, now_ms)
    parts = forecasts_of(seen, limits, settings, terms)
    r6 = r6_of([(disk, rules.percent) for disk in inputs.disks if full], seen, settings, parts, limits)
    places = {
        one.facts.tp: Place(one, parts[one.facts.tp], limits[topic], settings[topic], r6, terms)
        for topic, rows in seen.items()
        for one in rows
        if one.facts.tp in behind
    }
    return lambda one: seconds_left(one, places.get(one.tp), settings[one.topic], rules)


def seconds_left(one: Decision, place: Place | None, settings: Settings, rules: DiskRules) -> float | None:
    """Return how long a floor has; None if that is not known, or for ever."""
    if place is None or one.min_commit is None:
        return None
    if one.trim_to is not None and one.trim_to > one.min_commit:  # the plan takes it
        return 0.0
    if rules.watermarks and not guarded(Code.R2, settings):  # R7 may shorten any age, and what it adds is not held
        return None
    left = seconds_to_loss(place.left(one.min_commit, None)[1])
    return None if left is None or math.isinf(left) else left
