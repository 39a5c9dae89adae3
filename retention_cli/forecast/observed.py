"""What was observed, as forecasts need it: partitions with the ledger's samples, and what brokers keep."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from retention_cli.advise.reading import read_settings
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import floor_by
from retention_cli.core.model import Maybe, PartitionFacts, Sample, TopicPartition, Unknown
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards import frozen, untouchable
from retention_cli.forecast.disks import Queued
from retention_cli.forecast.make import PartitionForecast, Seen
from retention_cli.forecast.steady import BrokerLimits, guarded
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.stores import Memories
from retention_cli.observe.request import Observation
from retention_cli.policy.settings import Settings

Limits = Mapping[str, BrokerLimits]


def limits_of(reader: ClusterReader, names: Sequence[str]) -> Limits:
    """Return topics' live limits, as their brokers use them; unknown of a topic that is gone by now.

    Raises:
        BrokerError: the cluster's metadata could not be read.
    """
    metadata = reader.metadata(names)
    there = [name for name in names if name in metadata.topics]
    found: dict[str, BrokerLimits] = {}
    for name, (one, check_ms) in read_settings(reader, metadata, there).items():
        policy = one.cleanup_policy
        found[name] = BrokerLimits(
            deletes=policy if isinstance(policy, Unknown) else "delete" in policy,
            compacts=policy if isinstance(policy, Unknown) else "compact" in policy,
            retention_ms=one.retention_ms,
            retention_bytes=one.retention_bytes,
            segment_ms=one.segment_ms,
            segment_bytes=one.segment_bytes,
            check_ms=check_ms,
        )
    gone = Unknown.because("metadata", "the topic was deleted meanwhile")
    return found | dict.fromkeys(set(names) - set(there), BrokerLimits(gone, gone, gone, gone, gone, gone, gone))


def seen_in(
    observation: Observation,
    memories: Memories,
    before: Mapping[str, GroupMemory],
    there: Collection[str],
    now_ms: int,
    only: Collection[TopicPartition] | None = None,
) -> dict[str, list[Seen]]:
    """Return the partitions by topic, with the samples that were proven to be of their logs (M2).

    Args:
        observation: what was read.
        memories: the ledgers.
        before: where groups stood before, by name (:func:`groups_before`).
        there: the consumers that exist, as a floor names them: others are gone, and still count (F6).
        now_ms: now (Unix ms).
        only: these partitions alone; None: all.
    """
    memory = memories(observation.cluster_id)
    by = {floor_by(name): name for name in before}
    at_ms = observation.ends_read_ms or now_ms
    found: dict[str, list[Seen]] = {}
    for tp in observation.facts if only is None else only:
        facts = observation.facts[tp]
        end, topic_id = facts.high_watermark, facts.topic.topic_id
        samples: Maybe[Sequence[Sample]]
        if isinstance(end, Unknown) or isinstance(topic_id, Unknown):
            missing = end if isinstance(end, Unknown) else topic_id
            assert isinstance(missing, Unknown)  # noqa: S101  (for the type checker)
            samples, now = missing, Sample(at_ms, 0)
        elif memory.lost is not None or tp in observation.doubts:
            doubt = Unknown.because("ledger", "whether what is remembered is of this log is unknown")
            samples, now = memory.lost or doubt, Sample(at_ms, end)
        else:
            samples, now = memory.partition(tp.topic, topic_id, tp.partition).samples, Sample(at_ms, end)
        stood, gone = None, False
        if not isinstance(facts.floor, Unknown):
            name = by.get(facts.floor.by)
            stood = None if name is None else stood_at(before[name], facts)
            gone = facts.floor.by.startswith("group:") and facts.floor.by not in there
        found.setdefault(tp.topic, []).append(Seen(facts, samples, now, stood, gone))
    return found


def stood_at(group: GroupMemory, facts: PartitionFacts) -> Sample | None:
    """Return where a group stood when it was last seen, if that was in this topic and counted (F5)."""
    position = group.counted.get((facts.topic.name, facts.partition))
    if position is None or group.ids.get(facts.topic.name) != facts.topic.topic_id:
        return None
    return Sample(group.seen_ms, position.offset)


def groups_before(memories: Memories, cluster_id: str) -> Mapping[str, GroupMemory]:
    """Return where groups stood when the ledger last saw them; empty if it can't be told."""
    try:
        return memories.ledger(cluster_id).groups()
    except StateError:  # lost, or none could be made: observing says so where it matters
        return {}


def queued_in(
    seen: Mapping[str, Sequence[Seen]],
    settings: Mapping[str, Settings],
    parts: Mapping[TopicPartition, PartitionForecast],
    limits: Limits,
) -> Iterator[Queued]:
    """Yield the partitions whose unread records R6 may take, and takes when their turn comes."""
    for topic, rows in seen.items():
        chosen = settings[topic]
        for one in rows:
            facts = one.facts
            if guarded("R6", chosen) or frozen(chosen) is not None or untouchable(facts.topic, chosen) is not None:
                continue
            if (facts.topic.tiered and not chosen.trim_tiered) or isinstance(facts.log_start, Unknown):
                continue
            samples = () if isinstance(one.samples, Unknown) else one.samples
            each = parts[facts.tp].each
            yield Queued(facts.tp, samples, facts.log_start, each, limits[topic].segment_bytes)
