"""Estimate R5's bounds without an inventory, from the replica sizes that brokers report (R5).

A topic's oldest records are trimmed first, found by bisecting times: the same search as R6's, with the topic in place
of a disk and its leader replicas in place of the disk's replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.extras import MissingPartError, numpy
from retention_cli.core.install import how_to_add
from retention_cli.core.model import Maybe, PartitionFacts, Tail, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.replica_sizes import NO_SEGMENT_BYTES, Sizes
from retention_cli.disks.solve.room import Disk, Room
from retention_cli.policy.settings import DiskRules, Settings

if TYPE_CHECKING:
    from retention_cli.brokers.log_offsets import Leaders

BYTES: Final = "retention.bytes"
TOPIC_BYTES: Final = "retention.topic.bytes"
_NO_SIZE: Final = Unknown.because("R5", "its size could not be read")
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
    most = {name: one.max_topic_bytes for name, one in settings.items() if one.max_topic_bytes is not None}
    of_topics = {tp: one for tp, one in facts.items() if tp.topic in most}
    together: Mapping[TopicPartition, Maybe[Tail]] = {}
    if of_topics:
        together = estimated_topic_tails(reader, of_topics, most, leading, sizes, leaders, now_ms)
    found: dict[TopicPartition, dict[str, Maybe[Tail]]] = {}
    for tp, one in facts.items():
        here = found.setdefault(tp, {})
        if tp in together:
            here[TOPIC_BYTES] = together[tp]
        if (most_bytes := settings[tp.topic].max_bytes) is not None:
            here[BYTES] = _tail(tp, one, leading.get(tp), most_bytes, sizes)
    return found


def _tail(
    tp: TopicPartition, facts: PartitionFacts, leading: Disk | None, most_bytes: int, sizes: Sizes
) -> Maybe[Tail]:
    """Return R5's bound from the size that the broker reports; unknown if it may include dead segments."""
    start, end = facts.log_start, facts.high_watermark
    if isinstance(start, Unknown):
        return start
    if isinstance(end, Unknown):
        return end
    if leading is None:
        return _NO_SIZE
    if leading.replicas[tp] <= most_bytes:  # it fits, however much of it is dead
        return Tail(start, exact=False)
    size_bytes = sizes.live_bytes(leading, tp, start)
    if isinstance(size_bytes, Unknown):
        return size_bytes
    try:
        numpy()
    except MissingPartError:
        return _no_numpy()
    from retention_cli.disks.solve.tails import estimated_tail

    return Tail(estimated_tail(start, end, size_bytes, most_bytes), exact=False)


def estimated_topic_tails(
    reader: ClusterReader,
    facts: Mapping[TopicPartition, PartitionFacts],
    most_bytes: Mapping[str, int],
    leading: Mapping[TopicPartition, Disk],
    sizes: Sizes,
    leaders: Leaders,
    now_ms: int,
) -> dict[TopicPartition, Maybe[Tail]]:
    """Return where each partition must begin so that its topic fits. One unknown partition makes its topic unknown.

    Args:
        reader: the cluster, read-only.
        facts: the facts of all partitions of these topics.
        most_bytes: how many bytes each topic may have.
        leading: the disk of each partition's leader, of the disks that could be read.
        sizes: how far replica sizes can be trusted.
        leaders: the brokers to ask.
        now_ms: the time from which all cutoffs are calculated.
    """
    parts: dict[str, list[TopicPartition]] = {}
    for tp in facts:
        parts.setdefault(tp.topic, []).append(tp)
    found: dict[TopicPartition, Maybe[Tail]] = {}
    topics: list[Disk] = []
    ends: dict[TopicPartition, tuple[int, int]] = {}
    for topic, tps in parts.items():
        known = _known(tps, facts, leading)
        if isinstance(known, Unknown):
            found |= dict.fromkeys(tps, known)
            continue
        replicas = {tp: leading[tp].replicas[tp] for tp in tps}
        if sum(replicas.values()) > most_bytes[topic]:  # else it fits, however much of it is dead
            live = _live(replicas, known, leading, sizes)
            if isinstance(live, Unknown):
                found |= dict.fromkeys(tps, live)
                continue
            topics.append(_as_disk(topic, live, most_bytes[topic]))
        ends |= known
    if topics:
        found |= _searched(reader, topics, ends, sizes, leaders, now_ms)
    return {tp: found[tp] if tp in found else Tail(ends[tp][0], exact=False) for tp in facts}


def _known(
    tps: list[TopicPartition], facts: Mapping[TopicPartition, PartitionFacts], leading: Mapping[TopicPartition, Disk]
) -> Maybe[dict[TopicPartition, tuple[int, int]]]:
    """Return S and H of a topic's partitions; unknown if S, H or the size of one of them is."""
    ends = {}
    for tp in tps:
        start, end = facts[tp].log_start, facts[tp].high_watermark
        if isinstance(start, Unknown):
            return _of_topic(tp, start)
        if isinstance(end, Unknown):
            return _of_topic(tp, end)
        if tp not in leading:
            return _of_topic(tp, _NO_SIZE)
        ends[tp] = (start, end)
    return ends


def _live(
    replicas: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, tuple[int, int]],
    leading: Mapping[TopicPartition, Disk],
    sizes: Sizes,
) -> Maybe[dict[TopicPartition, int]]:
    """Return the bytes of a topic's replicas that are not dead; unknown if those of one of them are."""
    live = {}
    for tp in replicas:
        found: Maybe[int] = NO_SEGMENT_BYTES  # the search counts only whole segments
        if tp.topic in sizes.segment_bytes:
            found = sizes.live_bytes(leading[tp], tp, ends[tp][0])
        if isinstance(found, Unknown):
            return _of_topic(tp, found)
        live[tp] = found
    return live


def _as_disk(topic: str, replicas: Mapping[TopicPartition, int], most_bytes: int) -> Disk:
    held = sum(replicas.values())
    return Disk(-1, (topic,), Room(most_bytes, held, held), replicas)


def _searched(
    reader: ClusterReader,
    topics: list[Disk],
    ends: Mapping[TopicPartition, tuple[int, int]],
    sizes: Sizes,
    leaders: Leaders,
    now_ms: int,
) -> dict[TopicPartition, Maybe[Tail]]:
    try:
        numpy()
    except MissingPartError:
        return dict.fromkeys((tp for one in topics for tp in one.replicas), _no_numpy())
    from retention_cli.disks.bisect_offsets import estimate
    from retention_cli.disks.solve.estimated import Known
    from retention_cli.disks.solve.leaving import Leaving

    # Triggers ignore guards: records that guards keep are not made up for by other partitions.
    limits: dict[TopicPartition, Maybe[Limit]] = {
        tp: Limit(ends[tp][1], "G1", "the high watermark") for one in topics for tp in one.replicas
    }
    known = Known(ends, {}, limits, sizes.segment_bytes, {}, {}, {}, [Leaving()] * len(topics))
    bounds = estimate(reader, topics, _ALL, known, leaders, now_ms).bounds
    return {tp: Tail(bounds.get(tp, ends[tp][0]), exact=False) for tp in limits}


def _of_topic(tp: TopicPartition, why: Unknown) -> Unknown:
    return Unknown.because("R5", f"{tp} of the topic is not known ({why.reasons[0].text})")


def _no_numpy() -> Unknown:
    return Unknown.because("R5", f"sizes are estimated with numpy: {how_to_add('parquet')}")
