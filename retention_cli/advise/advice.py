"""Derive the advice for a topic from its facts and the demands on it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from retention_cli.advise.dangers import Danger, judge
from retention_cli.advise.demand import Demand, WantedBy, wanted
from retention_cli.advise.facts import TopicState
from retention_cli.advise.kept import AtMost, Forever, Usual, at_most, usual
from retention_cli.advise.settings import broker_properties_for, changes_for, policy_entry_for
from retention_cli.core.model import Maybe, Reason, Unknown


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for one topic.

    ``wanted_ms`` is how long data should be kept (None: forever). ``changes`` are topic settings to set;
    ``then_at_most`` is how long data is kept with them, and ``then_dangers`` are the dangers that remain or are new.
    ``broker_properties`` belong in ``server.properties``. ``policy_entry`` maps keys of kretain's policy to durations
    (ms) to set: with them, in-order records are kept for at most ``policy_at_most_ms`` plus one run of the tool (None:
    neither the entry nor the policy has R4). ``unknown`` names the facts that could not be read, and so were not
    judged.
    """

    topic: TopicState
    wanted_ms: Maybe[int | None]
    wanted_by: WantedBy
    at_most: Maybe[AtMost | Forever]
    usual: Maybe[Usual]
    dangers: Sequence[Danger]
    changes: Mapping[str, int]
    then_at_most: Maybe[AtMost | Forever]
    then_dangers: Sequence[Danger]
    broker_properties: Mapping[str, int]
    policy_entry: Mapping[str, int]
    policy_at_most_ms: int | None
    unknown: Sequence[Reason]


def advise(topic: TopicState, demand: Demand, now_ms: int) -> Advice:
    """Return the advice for one topic. ``now_ms`` is when its traffic was measured (Unix ms)."""
    dangers, unknown = judge(topic, demand, now_ms)
    changes = changes_for(topic, demand, {one.code for one in dangers})
    changed = topic.changed(changes)
    keep, by = wanted(topic, demand)
    entry = policy_entry_for(topic, demand)
    return Advice(
        topic=topic,
        wanted_ms=keep,
        wanted_by=by,
        at_most=at_most(topic, now_ms),
        usual=usual(topic),
        dangers=dangers,
        changes=changes,
        then_at_most=at_most(changed, now_ms),
        then_dangers=judge(changed, demand, now_ms)[0],
        broker_properties=broker_properties_for(changed, demand, now_ms),
        policy_entry=entry,
        policy_at_most_ms=entry.get("retention.ms", demand.policy.forced_age_ms if demand.policy is not None else None),
        unknown=_distinct([*unknown, *_unread(topic)]),
    )


def _unread(topic: TopicState) -> Iterable[Reason]:
    """Yield the reasons of every setting and measurement that is unknown, so that the advice omits none."""
    if topic.settings.tiered is True:
        yield Reason("traffic", "tiered storage: how often remote segments are looked through is not counted")
    facts = [getattr(topic.settings, field.name) for field in fields(topic.settings)]
    facts += [topic.check_interval_ms, topic.offsets_retention_ms]
    for one in topic.partitions:
        facts += [one.log_start, one.high_watermark, one.size_bytes, one.records_per_hour, one.newest]
    for fact in facts:
        if isinstance(fact, Unknown):
            yield from fact.reasons


def _distinct(reasons: Iterable[Reason]) -> list[Reason]:
    return list(dict.fromkeys(reasons))
