"""The settings of a topic that a broker of Kafka 4.3 answers, with their types: read from one, not written by hand."""

from __future__ import annotations

from typing import Final

TOPIC_DEFAULTS: Final[dict[str, tuple[str, int]]] = {
    "compression.type": ("producer", 2),
    "remote.log.delete.on.disable": ("false", 1),
    "leader.replication.throttled.replicas": ("", 7),
    "remote.storage.enable": ("false", 1),
    "min.insync.replicas": ("1", 3),
    "segment.jitter.ms": ("0", 5),
    "remote.log.copy.disable": ("false", 1),
    "local.retention.ms": ("-2", 5),
    "cleanup.policy": ("delete", 7),
    "flush.ms": ("9223372036854775807", 5),
    "follower.replication.throttled.replicas": ("", 7),
    "compression.lz4.level": ("9", 3),
    "segment.bytes": ("1073741824", 3),
    "retention.ms": ("604800000", 5),
    "compression.gzip.level": ("-1", 3),
    "flush.messages": ("9223372036854775807", 5),
    "compression.zstd.level": ("3", 3),
    "max.compaction.lag.ms": ("9223372036854775807", 5),
    "file.delete.delay.ms": ("60000", 5),
    "max.message.bytes": ("1048588", 3),
    "min.compaction.lag.ms": ("0", 5),
    "message.timestamp.type": ("CreateTime", 2),
    "local.retention.bytes": ("-2", 5),
    "preallocate": ("false", 1),
    "index.interval.bytes": ("4096", 3),
    "min.cleanable.dirty.ratio": ("0.5", 6),
    "unclean.leader.election.enable": ("false", 1),
    "retention.bytes": ("-1", 5),
    "delete.retention.ms": ("86400000", 5),
    "message.timestamp.after.max.ms": ("3600000", 5),
    "message.timestamp.before.max.ms": ("9223372036854775807", 5),
    "segment.ms": ("604800000", 5),
    "segment.index.bytes": ("10485760", 3),
}
