"""Estimate R5's bounds without an inventory, from the replica sizes that brokers report (R5).

A topic's oldest records are trimmed first: the same search as R6's, with the topic in place of a disk and its leader
replicas in place of the disk's replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Maybe, PartitionFacts, Tail, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.disk import Disk, Leaving, Room
from retention_cli.disks.replica_sizes import NO_SEGMENT_BYTES, Sizes
from retention_cli.policy.settings import DiskRules, Settings

if TYPE_CHECKING:
    from retention_cli.brokers.log_offsets import Leaders

_NO_SIZE: Final = Unknown.because(Code.R5, "its size could not be read")
_ALL: Final = DiskRules(percent=100.0, shared=True)
"""The rules for a topic in place of a disk: this topic alone may use all of its room."""


def estimated_tails(
    reader: ClusterReader,
    facts: Mapping[TopicPartition, PartitionFacts],
    settings: Mapping[str, Settings],
    leading: Mapping[TopicPartition, Disk],
    sizes: Sizes,
    leaders: Leaders,
    now_ms: int,
) -> dict[TopicPartition, dict[str, Maybe[Tail]]]:
    """Return R5's bounds for each partition, by the policy's key.

    Args:
        reader: the cluster, read-only.
        facts: the facts of all partitions of topics with a size limit.
        settings: the settings by topic.
        leading: the disk of each partition's leader, of the disks that could be read.
        sizes: how far replica sizes can be trusted.
        leaders: the brokers to ask.
        now_ms: the time from which all cutoffs are calculated.
    """
    logs = {tp: _log(one, leading.get(tp), tp) for tp, one in facts.items()}
    found: dict[TopicPartition, dict[str, Maybe[Tail]]] = {tp: {} for tp in facts}
    large: list[Disk] = []
    for topic, tps in by_key((tp.topic, tp) for tp in facts).items():
        most, together = settings[topic].max_bytes, settings[topic].max_topic_bytes
        if together is not None:
            held = _topic(topic, {tp: logs[tp] for tp in tps}, together, leading, sizes)
            if isinstance(held, Disk):
                large.append(held)
            for tp in tps:
                found[tp]["retention.topic.bytes"] = held if isinstance(held, Unknown) else _all_of(logs[tp])
        if most is not None:
            for tp in tps:
                found[tp]["retention.bytes"] = _tail(tp, logs[tp], leading, most, sizes)
    for tp, tail in _searched(reader, large, logs, sizes, leaders, now_ms).items() if large else ():
        found[tp]["retention.topic.bytes"] = tail
    return found


_Log = tuple[int, int, int]
"""S and H of a partition, and the bytes of its leader's replica."""


def _log(facts: PartitionFacts, leading: Disk | None, tp: TopicPartition) -> Maybe[_Log]:
    if isinstance(facts.log_start, Unknown):
        return facts.log_start
    if isinstance(facts.high_watermark, Unknown):
        return facts.high_watermark
    return _NO_SIZE if leading is None else (facts.log_start, facts.high_watermark, leading.replicas[tp])


def _all_of(log: Maybe[_Log]) -> Maybe[Tail]:
    """Return the tail that has all of a log."""
    return log if isinstance(log, Unknown) else Tail(log[0], exact=False)


def _tail(
    tp: TopicPartition, log: Maybe[_Log], leading: Mapping[TopicPartition, Disk], most_bytes: int, sizes: Sizes
) -> Maybe[Tail]:
    """Return R5's bound, assuming records of equal size; unknown if the size may include dead segments."""
    if isinstance(log, Unknown) or log[2] <= most_bytes:  # it fits, however much of it is dead
        return _all_of(log)
    start, end, _ = log
    size_bytes = sizes.live_bytes(leading[tp], tp, start)
    if isinstance(size_bytes, Unknown):
        return size_bytes
    return Tail(estimated_tail(start, end, size_bytes, most_bytes), exact=False)


def estimated_tail(log_start: int, high_watermark: int, size_bytes: int, most_bytes: int) -> int:
    """Return the smallest offset whose tail fits into ``most_bytes``, assuming records of equal size.

    It is from S to H, and S if everything fits. ``size_bytes`` must not include dead bytes.
    """
    if size_bytes <= most_bytes:
        return log_start
    return high_watermark - most_bytes * (high_watermark - log_start) // size_bytes


def _topic(
    topic: str,
    logs: Mapping[TopicPartition, Maybe[_Log]],
    most_bytes: int,
    leading: Mapping[TopicPartition, Disk],
    sizes: Sizes,
) -> Maybe[Disk | None]:
    """Return a topic above its limit as a disk, with the bytes that are not dead; None if all of it fits.

    One unknown partition makes its topic unknown.
    """
    starts, replicas = {}, {}
    for tp, log in logs.items():
        if isinstance(log, Unknown):
            return _of_topic(tp, log)
        starts[tp], _, replicas[tp] = log
    if sum(replicas.values()) <= most_bytes:  # however much of it is dead
        return None
    for tp, start in starts.items():
        # the search counts only whole segments
        live = sizes.live_bytes(leading[tp], tp, start) if topic in sizes.segment_bytes else NO_SEGMENT_BYTES
        if isinstance(live, Unknown):
            return _of_topic(tp, live)
        replicas[tp] = live
    held = sum(replicas.values())
    return Disk(-1, (topic,), Room(most_bytes, held, held), replicas)


def _searched(
    reader: ClusterReader,
    topics: list[Disk],
    logs: Mapping[TopicPartition, Maybe[_Log]],
    sizes: Sizes,
    leaders: Leaders,
    now_ms: int,
) -> dict[TopicPartition, Maybe[Tail]]:
    """Return where each partition of these topics must begin so that its topic fits."""
    ends = {tp: log[:2] for one in topics for tp in one.replicas if not isinstance(log := logs[tp], Unknown)}
    from retention_cli.disks.estimate import Known, estimate

    # Triggers ignore guards: records that guards keep are not made up for by other partitions.
    limits: dict[TopicPartition, Maybe[Limit]] = {
        tp: Limit(end, Code.G1, "the high watermark") for tp, (_, end) in ends.items()
    }
    known = Known(ends, {}, limits, sizes.segment_bytes, {}, {}, {}, [Leaving()] * len(topics))
    bounds = estimate(reader, topics, _ALL, known, leaders, now_ms).bounds
    return {tp: Tail(bounds.get(tp, start), exact=False) for tp, (start, _) in ends.items()}


def _of_topic(tp: TopicPartition, why: Unknown) -> Unknown:
    return Unknown.because(Code.R5, f"{tp} of the topic is not known ({why.reasons[0].text})")
