"""A topic's facts, from its metadata and its live settings."""

from __future__ import annotations

from dataclasses import replace

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.metadata import TopicMetadata
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.core.model import Reason, TopicFacts, TopicPartition, Unknown
from retention_cli.decide.guards import untouchable
from retention_cli.policy.settings import Settings


def bare_facts(topic: TopicMetadata) -> TopicFacts:
    """Return what metadata alone tells; the settings are unknown."""
    not_read = Unknown.because("G5", "the topic's settings were not read")
    no_id = Unknown.because(
        "topic-id", "the cluster gives no topic id, so a recreated topic can't be told: brokers before 2.8?"
    )
    return TopicFacts(topic.name, topic.topic_id or no_id, topic.internal, not_read, not_read)


def configured(topic: TopicFacts, config: TopicConfig | RequestFailedError | None) -> TopicFacts:
    """Add the live settings; None where they were not asked for."""
    if config is None:
        return topic
    if isinstance(config, RequestFailedError):
        unknown = Unknown.because("G5", f"the topic's settings could not be read: {config}")
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


def change_between(tp: TopicPartition, before: TopicMetadata, after: TopicMetadata | None) -> Reason | None:
    """Return what two metadata reads say differently of a partition, None where they agree."""
    if after is None:
        return Reason("metadata", "the topic was deleted while it was read")
    if before.topic_id != after.topic_id:
        return Reason("metadata", "the topic was deleted and recreated while it was read")
    if tp.partition not in after.partitions:
        return Reason("metadata", "the partition vanished while it was read")
    one, other = before.partitions[tp.partition], after.partitions[tp.partition]
    if (one.leader, one.leader_epoch) != (other.leader, other.leader_epoch):
        return Reason("metadata", "the leader changed each time that the partition was read: run again")
    return None
