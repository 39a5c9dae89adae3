"""A topic's facts, from its metadata and live settings, and the facts of a partition that was not read."""

from __future__ import annotations

from dataclasses import replace

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found
from retention_cli.brokers.metadata import PartitionMetadata, TopicMetadata
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.core.codes import Code
from retention_cli.core.model import Maybe, PartitionFacts, Reason, TopicFacts, TopicPartition, Unknown
from retention_cli.decide.guards import untouchable
from retention_cli.policy.settings import Settings


def bare_facts(topic: TopicMetadata) -> TopicFacts:
    """Return a topic's facts from metadata alone; the settings are unknown."""
    not_read = Unknown.because(Code.G5, "the topic's settings were not read")
    no_id = Unknown.because(
        "topic-id", "the cluster gives no topic id, so a recreated topic can't be recognized: brokers before 2.8?"
    )
    return TopicFacts(topic.name, topic.topic_id or no_id, topic.internal, not_read, not_read)


def configured(topic: TopicFacts, config: TopicConfig | RequestFailedError | None) -> TopicFacts:
    """Return the facts with the live settings; ``config`` is None if they were not read."""
    if config is None:
        return topic
    if isinstance(config, RequestFailedError):
        unknown = Unknown.because(Code.G5, f"the topic's settings could not be read: {config}")
        return replace(topic, cleanup_policy=unknown, retention_ms=unknown, timestamp_type=unknown)
    kind = config.timestamp_type or Unknown.because("topic-settings", "the broker names no message.timestamp.type")
    return replace(
        topic,
        cleanup_policy=config.cleanup_policy,
        retention_ms=config.retention_ms,
        timestamp_type=kind,
        tiered=config.tiered,
    )


def never_touched(topic: TopicFacts, settings: Settings) -> bool:
    """Return whether there is nothing to decide about the topic (G5), as far as its facts are known."""
    return isinstance(untouchable(topic, settings), Reason)


def end_of(name: str, answer: Answer) -> Maybe[int]:
    """Return the offset in a leader's answer, unknown if there is none. ``name`` is for the reason's text."""
    if isinstance(answer, Found):
        return answer.offset
    error = answer if isinstance(answer, RequestFailedError) else "the broker names none"
    return Unknown.because("offsets", f"the {name} could not be read: {error}")


def ends_unknown(facts: PartitionFacts, why: Unknown) -> PartitionFacts:
    """Return the facts of a partition that can't be decided: its log's ends are unknown."""
    return facts._replace(log_start=why, high_watermark=why, last_stable_offset=why)


def unread_facts(topic: TopicFacts, partition: int, place: PartitionMetadata, why: Unknown) -> PartitionFacts:
    """Return a partition's facts from metadata alone; ``why`` is the reason that all others are unknown."""
    return PartitionFacts(
        topic=topic,
        partition=partition,
        log_start=why,
        high_watermark=why,
        last_stable_offset=why,
        floor=why,
        size_bytes=why,
        has_leader=place.leader is not None,
        leader_epoch=place.leader_epoch,
    )


def change_between(
    tp: TopicPartition, topic_id: str | None, before: PartitionMetadata, after: TopicMetadata | None
) -> Reason | None:
    """Return how two metadata reads of a partition differ, None if they agree (M1).

    Args:
        tp: the partition.
        topic_id: its topic's id in the first read.
        before: its leader and leader epoch in the first read.
        after: its topic in the second read, None if it was deleted.
    """
    if after is None:
        return Reason("metadata", "the topic was deleted while it was read")
    if topic_id != after.topic_id:
        return Reason("metadata", "the topic was deleted and recreated while it was read")
    now = after.partitions.get(tp.partition)
    if now is None:
        return Reason("metadata", "the partition vanished while it was read")
    if (before.leader, before.leader_epoch) != (now.leader, now.leader_epoch):
        return Reason("metadata", "the leader changed each time that the partition was read: run again")
    return None
