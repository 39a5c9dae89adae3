"""One partition in depth: its facts, each rule's bound, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Code, Decision, PartitionFacts, TopicPartition, Unknown, known
from retention_cli.core.progress import Progress
from retention_cli.core.units import format_bytes, format_duration, format_time
from retention_cli.decide.decision import Weighed, weigh
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import Request
from retention_cli.plan.make import decide_all, disk_run, with_live
from retention_cli.policy.selection import NothingMatchesError, Selection, check_matches
from retention_cli.policy.settings import Settings
from retention_cli.state.memories import Memories

if TYPE_CHECKING:  # importing these imports numpy, which only an inventory needs
    from retention_cli.disks.inventory_view import InventoryView


@dataclass(frozen=True, slots=True)
class Explained:
    """A partition's facts and settings, each trigger's bound, and the decision."""

    facts: PartitionFacts
    settings: Settings
    weighed: Sequence[Weighed]
    decision: Decision
    now_ms: int


def explain(
    reader: ClusterReader,
    selection: Selection,
    topic: str,
    partition: int | None,
    now_ms: int,
    memories: Memories,
    progress: Progress,
    inventory: InventoryView | None,
) -> list[Explained]:
    """Observe and decide one topic's partitions, or one of them.

    If there are disk rules, everything that the policy manages is decided, as in a plan.

    Raises:
        NothingMatchesError: the cluster has no such topic or partition, or the policy doesn't match it.
        BrokerError: the cluster's metadata could not be read.
    """
    selection = with_live(reader, selection)
    disks = disk_run(selection.policy, inventory)
    request = Request(
        (selection if disks is None else replace(selection, topics=())).settings_for,
        selection.policy.groups,
        now_ms,
        memories,
        only=None if partition is None or disks is not None else {TopicPartition(topic, partition)},
        disks=disks,
    )
    observation = observe(reader, request, progress)
    check_matches(selection, observation.topics_seen)
    if not (chosen := [tp for tp in observation.facts if tp.topic == topic and partition in (None, tp.partition)]):
        raise NothingMatchesError(f"topic {topic} has no partition {partition}")
    decisions = {one.tp: one for one in decide_all(reader, observation, now_ms, disks)}
    settings = observation.settings[topic]
    facts = [observation.facts[tp] for tp in chosen]
    return [Explained(one, settings, weigh(one, settings, now_ms), decisions[one.tp], now_ms) for one in facts]


def cutoff_ms(one: Explained, code: str) -> int | None:
    """Return the time (Unix ms) that records must be older than for a rule to trim them, None if it has none."""
    settings = one.settings
    match code:
        case Code.R1 if settings.consumed_after_ms is not None:
            return one.now_ms - settings.consumed_after_ms
        case Code.R2 if settings.event_time_ms is not None:
            newest = known(one.facts.newest)
            return None if newest is None else newest.time_ms - settings.event_time_ms
        case Code.R3:
            return settings.min_timestamp_ms
        case Code.R4 if settings.forced_age_ms is not None:
            return one.now_ms - settings.forced_age_ms
    return None


def why(one: Explained) -> str:
    """Return a sentence or two on what happens to the partition and why."""
    decision = one.decision
    if decision.action in ("trim", "keep"):
        return _why_trim(one) if decision.action == "trim" else _why_keep(one)
    texts = "; ".join(reason.text.removeprefix("on hold: ") for reason in decision.reasons)
    return f"{'Never trimmed' if decision.action == 'skip' else 'On hold'}: {texts}."


def _why_trim(one: Explained) -> str:
    decision = one.decision
    about = "" if decision.size_exact else "about "
    size = "" if decision.size_bytes is None else f" ({about}{format_bytes(decision.size_bytes)})"
    text = f"{decision.records:,} records{size} may be trimmed, up to offset {decision.trim_to:,}: {_rule(one)}."
    if decision.limited_by is not None:
        text += f" {decision.limited_by} limits the offset."
    if decision.unconsumed:
        text += f" {decision.unconsumed:,} of them have not been read by every consumer that counts."
    return text


def _rule(one: Explained) -> str:
    settings, decision = one.settings, one.decision
    match decision.rule:
        case "consumed":
            after = format_duration(settings.consumed_after_ms or 0)
            where = "furthest behind" if decision.trim_to == decision.min_commit else f"at {decision.min_commit:,}"
            read = f"every consumer that counts has read them ({decision.min_commit_by} is {where})"
            return f"{read}, and they are older than {after}"
        case "event-time":
            newest = known(one.facts.newest)
            stamp = "" if newest is None else f", {format_time(newest.time_ms)}"
            after = format_duration(settings.event_time_ms or 0)
            return f"they are more than {after} older, in event time, than the newest record ever seen{stamp}"
        case "min-timestamp":
            return f"they are stamped before {format_time(settings.min_timestamp_ms or 0)}, the minimum timestamp"
        case "forced-age":
            return f"they are older than {format_duration(settings.forced_age_ms or 0)}, the forced age"
        case "size" | "disk-usage":
            return decision.reasons[0].text
        case _:
            return f"rule {decision.rule}"


def _why_keep(one: Explained) -> str:
    facts, settings = one.facts, one.settings
    if facts.empty:
        return "The partition is empty."
    if not one.weighed:
        return "No rule is on for this topic."
    if one.decision.reasons:
        return "Nothing to trim: " + "; ".join(reason.text for reason in one.decision.reasons) + "."
    floor = facts.floor
    if not isinstance(floor, Unknown) and not isinstance(facts.log_start, Unknown) and floor.offset <= facts.log_start:
        return f"Nothing to trim: {floor.by} has not read past the log start, {facts.log_start:,}."
    young = []
    if ages := [age for age in (settings.consumed_after_ms, settings.forced_age_ms) if age is not None]:
        young.append(f"is younger than {format_duration(min(ages))}")
    if settings.event_time_ms is not None:
        young.append(f"is within {format_duration(settings.event_time_ms)} of the newest event time")
    if settings.min_timestamp_ms is not None:
        young.append(f"is not stamped before {format_time(settings.min_timestamp_ms)}")
    return f"Nothing to trim: the first record {' and '.join(young)}."
