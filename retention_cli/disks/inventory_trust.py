"""Compare an inventory with the cluster: it is trusted only as far as the cluster bears it out (R6, M1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, Leaders
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import PartitionFacts, TopicPartition, Unknown, known
from retention_cli.core.units import format_bytes
from retention_cli.disks.disk import Disk
from retention_cli.disks.inventory.format import ScannedReplica
from retention_cli.observe.lineage import EpochEnds, ask_epochs

_DENSER: Final = 2
"""Records written since the scan may be this many times as large, on average, as those before them."""
_SLACK: Final = 1 << 16
AGAIN: Final = "scan again"


def unproven(
    reader: ClusterReader,
    scanned: Sequence[ScannedReplica],
    disks: Sequence[Disk],
    facts: Mapping[TopicPartition, PartitionFacts],
    leaders: Leaders,
) -> dict[tuple[int, str, int], str]:
    """Return the replicas (broker, topic, partition) whose inventory rows are not trusted, and why.

    Args:
        reader: the cluster, read-only.
        scanned: the inventory's summary of each replica.
        disks: the disks as reported by the brokers, after S and H were read.
        facts: the facts of the partitions to check; others are ignored.
        leaders: the brokers to ask.
    """
    wanted = {
        (one.tp, epoch)
        for one in scanned
        if one.tp in facts and (epoch := epoch_to_ask(one, facts[one.tp])) is not None
    }
    led = {tp: one for tp, one in leaders.items() if one.leader is not None}
    return doubts_of(scanned, disks, facts, ask_epochs(reader, wanted, led))


def doubts_of(
    scanned: Sequence[ScannedReplica],
    disks: Sequence[Disk],
    facts: Mapping[TopicPartition, PartitionFacts],
    epoch_ends: EpochEnds,
) -> dict[tuple[int, str, int], str]:
    """Return the replicas (broker, topic, partition) whose inventory rows are not trusted, and why.

    Args:
        scanned: a summary per replica.
        disks: the disks as reported by the brokers, after S and H were read.
        facts: the facts of the partitions to check; others are ignored.
        epoch_ends: where the leader epochs of scanned replicas that :func:`epoch_to_ask` returns end now.
    """
    known_disks = [one for one in disks if one.dirs and not isinstance(one.room, Unknown)]
    on = {(one.broker, path): one for one in known_disks for path in one.dirs}
    rows = {(disk.name, one.tp) for one in scanned if (disk := on.get((one.broker, one.dir))) is not None}
    present, dirs = {one.tp for one in scanned}, {(one.broker, one.dir) for one in scanned}
    doubts: dict[tuple[int, str, int], str] = {}
    for one in scanned:
        if one.tp in facts:
            disk = on.get((one.broker, one.dir))
            size_bytes = None if disk is None else disk.replicas.get(one.tp, -1)
            why = doubt(one, facts[one.tp], size_bytes) or _cut(one, facts[one.tp], epoch_ends)
            if why is not None:
                doubts.setdefault((one.broker, *one.tp), why)
    for disk in known_disks:
        for tp in disk.replicas if all((disk.broker, path) in dirs for path in disk.dirs) else ():
            if tp in facts and tp in present and (disk.name, tp) not in rows:
                doubts.setdefault((disk.broker, *tp), f"its replica did not exist yet: {AGAIN}")
    return doubts


def doubt(one: ScannedReplica, facts: PartitionFacts, size_bytes: int | None) -> str | None:
    """Return why a replica's inventory rows are not trusted, None if they are.

    Args:
        one: the replica in the inventory.
        facts: its partition's facts in the cluster.
        size_bytes: its current size as reported by its broker, -1 if it is not on that disk, None if unknown.
    """
    topic_id, end, start = known(facts.topic.topic_id), known(facts.high_watermark), known(facts.log_start)
    if one.topic_id is None:
        return f"it has no topic id, or two: whether it belongs to the topic that has the name now is unknown; {AGAIN}"
    if topic_id is None:
        return "the topic's id is not known: whether it belongs to the topic that has the name now is unknown"
    if one.topic_id != topic_id:
        return f"it was scanned before the topic was recreated: {AGAIN}"
    if one.actives != 1 or one.active_base != one.last_base:
        found = "no active segment" if not one.actives else "more than one active segment"
        if one.actives == 1:
            found = "segments behind the active one"
        return f"it has {found}, which no scan writes: {AGAIN}"
    if end is not None and one.last_base > end:
        return f"its segments reach to offset {one.last_base:,}, its log to {end:,}: it was cut, or is another; {AGAIN}"
    if start is not None and one.first_base > start and not facts.topic.tiered:  # what is remote begins earlier
        return f"its segments begin at offset {one.first_base:,}, its log at {start:,}, which no scan finds: {AGAIN}"
    if size_bytes is None:
        return None
    if size_bytes < 0:
        return f"its replica is not in {one.dir} any more: {AGAIN}"
    live_bytes = one.live_bytes + (one.active_bytes if start is None or one.end > start or one.end < 0 else 0)
    if live_bytes > size_bytes:
        said = f"its segments beyond its log start take {format_bytes(live_bytes)}"
        return f"{said}, and its broker says {format_bytes(size_bytes)} in all: {AGAIN}"
    if end is not None and one.end > one.first_base:
        span = max(end, one.end) - one.first_base
        most = _DENSER * one.log_bytes * span // (one.end - one.first_base) + _SLACK
        if size_bytes > most:
            said = f"its segments take {format_bytes(one.log_bytes)}, and its broker says {format_bytes(size_bytes)}"
            return f"{said}, which is more than was written since: {AGAIN}"
    return None


def epoch_to_ask(one: ScannedReplica, facts: PartitionFacts) -> int | None:
    """Return the leader epoch whose end verifies a scanned replica; None if there is none to ask about (M1).

    Within the epoch in which it was scanned, a log only grows.
    """
    return None if one.leader_epoch in (None, facts.leader_epoch) else one.leader_epoch


def _cut(one: ScannedReplica, facts: PartitionFacts, epoch_ends: EpochEnds) -> str | None:
    """Return why a scanned replica may be of another log than the current one, None if it is the same log (M1).

    Args:
        one: the replica in the inventory.
        facts: its partition's facts in the cluster.
        epoch_ends: where leader epochs end now.
    """
    if one.leader_epoch is None:
        if facts.leader_epoch == 0:  # this log has had only one leader epoch
            return None
        return f"it does not say under which leader epoch its log ended, and others have led since: {AGAIN}"
    if (asked := epoch_to_ask(one, facts)) is None:
        return None
    if facts.leader_epoch is not None and asked > facts.leader_epoch:
        return f"it was scanned under leader epoch {asked}, which this log never had: {AGAIN}"
    answer = epoch_ends.get((one.tp, asked))
    match answer:
        case Found(end) if end >= one.end:
            return None
        case Found(end):
            cut = f"leader epoch {asked} ends at {end:,} by now, and it was scanned up to {one.end:,}"
            return f"{cut}: the log was cut since; {AGAIN}"
        case None | RequestFailedError():
            error = "" if answer is None else f" ({answer})"
            why = f"where leader epoch {asked} ends, under which it was scanned, could not be asked{error}"
        case _:
            why = f"it was scanned under leader epoch {asked}, which its log has no record of by now: it was cut"
    return f"{why}: {AGAIN}"
