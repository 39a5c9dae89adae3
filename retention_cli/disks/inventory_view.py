"""An inventory as columns of numbers, what every run and recheck asks of it (R5, R6), and how far it is trusted (M1).

It is trusted only as far as the cluster confirms it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Final, Self

import numpy as np

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found
from retention_cli.core.extras import texts_of
from retention_cli.core.model import Code, Maybe, PartitionFacts, Tail, TopicPartition, Unknown, known
from retention_cli.core.units import format_bytes
from retention_cli.disks.disk import Disk, topic_unknown
from retention_cli.disks.inventory.format import Inventory, ScannedReplica, first_rows, replicas_at
from retention_cli.disks.water_level import (
    NO_END,
    UNDATED,
    DiskSegments,
    Flags,
    Ints,
    Segments,
    add_up,
    water_level,
    wholly_below,
)
from retention_cli.observe.lineage import EpochEnds
from retention_cli.policy.settings import Settings

READ: Final = (
    *("broker", "dir", "topic", "topic_id", "partition", "base_offset", "next_offset", "bytes", "log_bytes"),
    *("largest_timestamp", "active", "leader_epoch"),
)
"""The columns that are read from an inventory's files."""
MOST_OFFSETS: Final = 2**31
"""No segment has more offsets, as they are relative in 32 bits. Multiplied by its bytes they fit in 64 bits."""
_NO_EPOCH: Final = -1
_DENSER: Final = 2
"""Records written since the scan may be this many times as large, on average, as those before them."""
_SLACK: Final = 1 << 16
AGAIN: Final = "scan again"
_FAR: Final = 2**63 - 2


class InventoryView:
    """An inventory's answers by partition. Arguments named ``ids`` are the cluster's current topic ids.

    ``segments.disk`` numbers the log dirs in ``dirs``, ``segments.partition`` the partitions in ``partitions``; both
    are sorted.

    Args:
        inventory: the inventory, with at least the columns in :data:`READ`. Its table is not kept.
    """

    def __init__(self, inventory: Inventory) -> None:
        table = inventory.table
        self.inventory = replace(inventory, table=None)
        self._first = first_rows(table)
        replicas = replicas_at(table, self._first)
        self.dirs = sorted({(broker, path) for broker, path, _, _ in replicas})
        self.partitions = sorted({TopicPartition(topic, number) for _, _, topic, number in replicas})
        self._numbers = {tp: number for number, tp in enumerate(self.partitions)}
        dirs = {one: number for number, one in enumerate(self.dirs)}
        disk = [dirs[broker, path] for broker, path, _, _ in replicas]
        partition = [self._numbers[TopicPartition(topic, number)] for _, _, topic, number in replicas]
        rows = np.diff(self._first, append=len(table))
        self.segments = Segments(
            np.repeat(np.array(disk, dtype=np.int32), rows),
            np.repeat(np.array(partition, dtype=np.int32), rows),
            _numbers(table["base_offset"]),
            _numbers(table["next_offset"], NO_END),
            _numbers(table["bytes"]),
            _numbers(table["largest_timestamp"], UNDATED),
            table["active"].to_numpy(),
        )
        self._log_bytes = _numbers(table["log_bytes"])
        self._epochs = _numbers(table["leader_epoch"], _NO_EPOCH)
        ids, self._ids = texts_of(table["topic_id"])
        self._id_numbers = {topic_id: number for number, topic_id in enumerate(ids)}

    def without(self, doubts: Mapping[tuple[int, str, int], str]) -> Self:
        """Return this inventory with the doubted replicas marked as incomplete, with the reasons (R6)."""
        found = copy(self)
        found.inventory = replace(self.inventory, incomplete={**doubts, **self.inventory.incomplete})
        return found

    def broken(self) -> dict[TopicPartition, Unknown]:
        """Return why R6 can't judge partitions: something about one of their replicas is unknown."""
        return {
            TopicPartition(topic, partition): Unknown.because(Code.R6, f"broker {broker}'s inventory: {why}")
            for (broker, topic, partition), why in self.inventory.incomplete.items()
        }

    def replicas(self, log_starts: Mapping[TopicPartition, int]) -> Iterator[ScannedReplica]:
        """Yield a summary of each replica.

        Args:
            log_starts: S of partitions, where it is known.
        """
        s, at, log_bytes = self.segments, self._first, self._log_bytes
        ids = {number: topic_id for topic_id, number in self._id_numbers.items()}
        live = ~s.active & (s.next_offset > self._by_number(log_starts)[s.partition])
        indexes = np.maximum(s.size_bytes - log_bytes, 0)
        columns = (
            s.disk[at],
            s.partition[at],
            np.minimum.reduceat(self._ids, at),
            np.maximum.reduceat(self._ids, at),
            np.add.reduceat(s.active.astype(np.int64), at),
            np.maximum.reduceat(np.where(s.active, s.base_offset, -1), at),
            np.minimum.reduceat(s.base_offset, at),
            np.maximum.reduceat(s.base_offset, at),
            np.maximum.reduceat(np.where(s.next_offset == NO_END, -1, s.next_offset), at),
            np.add.reduceat(log_bytes, at),
            np.add.reduceat(np.where(live, log_bytes, 0), at),
            np.add.reduceat(np.where(s.active, np.minimum(log_bytes, s.size_bytes), 0), at),  # preallocated
            np.add.reduceat(indexes, at),
            np.add.reduceat(np.where(s.active | live, 0, indexes), at),
            np.maximum.reduceat(self._epochs, at),
        )
        for disk, partition, low, high, *numbers in zip(*(one.tolist() for one in columns), strict=True):
            topic_id, (broker, path) = ids.get(low) if low == high else None, self.dirs[disk]
            one = ScannedReplica(broker, path, self.partitions[partition], topic_id, *numbers)
            yield one if one.leader_epoch != _NO_EPOCH else one._replace(leader_epoch=None)

    def on_disks(
        self, disks: Sequence[Disk], log_starts: Mapping[TopicPartition, int], ids: Mapping[TopicPartition, str]
    ) -> DiskSegments:
        """Return the segments that R6 walks over. Another topic's leftovers, by its id, have no end: they free nothing.

        Args:
            disks: all disks that could be read.
            log_starts: S of partitions, where it is known.
            ids: the topic ids.
        """
        numbers = {(disk.broker, path): n for n, disk in enumerate(disks) for path in disk.dirs}
        disk_of = np.array([numbers.get(one, len(disks)) for one in self.dirs], dtype=np.int32)
        ours, segments = self._ours(ids), self.segments
        following = np.where(ours, segments.next_offset, NO_END)
        segments = replace(segments, disk=disk_of[segments.disk], next_offset=following)
        below = wholly_below(segments, self._by_number(log_starts))
        dead = self._dead_bytes(segments, below, disks)
        # segments completely below every bound are counted already
        segments = replace(segments, size_bytes=np.where(below, 0, segments.size_bytes))
        scanned = {(file.broker, one.path) for file in self.inventory.files for one in file.dirs}  # also empty ones
        return DiskSegments(segments, self.partitions, dead, {*scanned, *self.dirs})

    def _dead_bytes(self, segments: Segments, dead: Flags, disks: Sequence[Disk]) -> Ints:
        """Return, by disk number, how many bytes of dead segments are likely still there.

        A broker sweeps them within minutes, so those of an old inventory no longer exist. A replica whose current size
        is that of its live segments has none left.
        """
        total = np.zeros(len(disks) + 1, dtype=np.int64)
        at = self._first
        sums = [np.add.reduceat(np.where(which, self._log_bytes, 0), at).tolist() for which in (dead, ~dead)]
        replicas = zip(segments.disk[at].tolist(), segments.partition[at].tolist(), *sums, strict=True)
        for disk, partition, gone, live in replicas:
            if gone and disk < len(disks):
                total[disk] += min(gone, max(0, disks[disk].replicas.get(self.partitions[partition], 0) - live))
        return total

    def bases(
        self, leaders: Mapping[TopicPartition, int | None], ids: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Maybe[Sequence[int]]]:
        """Return the base offsets of leader replicas' segments, sorted; unknown if the inventory lacks the replica."""
        own, missing = self._of_leaders(leaders, ids)
        order = np.lexsort((own.base_offset, own.partition))
        partition, base = own.partition[order], own.base_offset[order]
        found: dict[TopicPartition, Maybe[Sequence[int]]] = {}
        for tp in leaders:
            number = self._numbers.get(tp, -1)
            first, last = np.searchsorted(partition, [number, number + 1])
            found[tp] = missing.get(tp) or base[first:last].tolist()
        return found

    def tails(
        self,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        leaders: Mapping[TopicPartition, int | None],
        ids: Mapping[TopicPartition, str],
    ) -> dict[TopicPartition, dict[str, Maybe[Tail]]]:
        """Return R5's bounds for each partition, exact to the segment, by the policy's key.

        A missing partition makes its topic's bound unknown.
        """
        own, missing = self._of_leaders({tp: leaders.get(tp) for tp in facts}, ids)
        missing = {tp: why for tp, one in facts.items() if isinstance(why := missing.get(tp) or one.log_start, Unknown)}
        broken = {tp.topic: topic_unknown(tp, why) for tp, why in reversed(missing.items())}  # the first one counts
        start = self._by_number({tp: known(one.log_start) for tp, one in facts.items() if tp not in missing})
        most = self._by_number({tp: settings[tp.topic].max_bytes for tp in facts if tp not in missing}, -1)
        topics = {name: number for number, name in enumerate(sorted({tp.topic for tp in facts}))}
        topic = self._by_number({tp: topics[tp.topic] for tp in facts if tp not in missing}, len(topics))
        allowed = [settings[name].max_topic_bytes for name in topics]
        of_topic = np.array([*(-1 if one is None else one for one in allowed), -1])
        each, together = exact_tails(own, start, most), exact_topic_tails(own, start, topic, of_topic)
        for number in undated(own, start, topic, together):
            tp = self.partitions[number]
            why = Unknown.because(Code.R5, f"how old its records from {together[number]:,} on are is not known")
            broken.setdefault(tp.topic, topic_unknown(tp, why))
        found: dict[TopicPartition, dict[str, Maybe[Tail]]] = {tp: {} for tp in facts}
        for tp, here in found.items():
            number = self._numbers.get(tp, -1)
            if settings[tp.topic].max_bytes is not None:
                here["retention.bytes"] = missing.get(tp) or Tail(int(each[number]), exact=True)
            if settings[tp.topic].max_topic_bytes is not None:
                here["retention.topic.bytes"] = broken.get(tp.topic) or Tail(int(together[number]), exact=True)
        return found

    def log_bytes(
        self,
        trims: Mapping[TopicPartition, tuple[int, int]],
        leaders: Mapping[TopicPartition, int | None],
        ids: Mapping[TopicPartition, str],
    ) -> dict[TopicPartition, tuple[int, bool]]:
        """Return the bytes between two offsets of the leaders' logs, and whether that is exact.

        It is exact if both offsets are segment boundaries; otherwise a segment's bytes are split in proportion to its
        offsets. Partitions with offsets that are not in the inventory, such as newer ones, are left out.
        """
        own, missing = self._of_leaders({tp: leaders.get(tp) for tp in trims}, ids)
        start, end = (self._by_number({tp: one[n] for tp, one in trims.items()}) for n in (0, 1))
        covered, size_bytes, cut = bytes_between(own, start, end)
        return {
            tp: (int(size_bytes[number]), not bool(cut[number]))
            for tp, (low, high) in trims.items()
            if (number := self._numbers.get(tp)) is not None and tp not in missing and covered[number] == high - low
        }

    def _by_number(self, values: Mapping[TopicPartition, int | None], otherwise: int = 0) -> Ints:
        """Return a value per partition number, ``otherwise`` for partitions without one."""
        found = np.full(len(self.partitions), otherwise, dtype=np.int64)
        for tp, value in values.items():
            if tp in self._numbers and value is not None:
                found[self._numbers[tp]] = value
        return found

    def _of_leaders(
        self, leaders: Mapping[TopicPartition, int | None], ids: Mapping[TopicPartition, str]
    ) -> tuple[Segments, dict[TopicPartition, Unknown]]:
        """Return the leader replicas' segments, sized by their log files; and why replicas are missing.

        Segments of other topics than the current ones, by their ids, are left out.
        """
        leader = self._by_number(leaders, -1)
        brokers = np.array([broker for broker, _ in self.dirs], dtype=np.int64)
        s = self.segments
        own = replace(s, size_bytes=self._log_bytes).take(self._ours(ids) & (leader[s.partition] == brokers[s.disk]))
        held = {self.partitions[number] for number in np.unique(own.partition).tolist()}
        return own, {tp: why for tp, one in leaders.items() if (why := self._missing(tp, one, held=tp in held))}

    def _missing(self, tp: TopicPartition, leader: int | None, *, held: bool) -> Unknown | None:
        if leader is None:
            return Unknown.because("inventory", "it has no leader")
        if (why := self.inventory.incomplete.get((leader, *tp))) is not None:
            return Unknown.because("inventory", f"broker {leader}'s inventory: {why}")
        text = f"the inventory has no segments of it on broker {leader}, its leader: scan it again"
        return None if held else Unknown.because("inventory", text)

    def _ours(self, ids: Mapping[TopicPartition, str]) -> Flags:
        """Return a mask of the rows whose topic id is the current topic's. A row without an id is not in it."""
        wanted = self._by_number({tp: self._id_numbers.get(topic_id) for tp, topic_id in ids.items()}, -2)
        ours: Flags = wanted[self.segments.partition] == self._ids
        return ours


def _numbers(column: Any, instead: int | None = None) -> Ints:
    numbers: Ints = (column if instead is None else column.fill_null(instead)).to_numpy()
    return numbers


# -- sizes (R5), over the segments of leader replicas ------------------------------------------------------------------


def exact_tails(segments: Segments, start: Ints, most_bytes: Ints) -> Ints:
    """Return, per partition, the smallest offset whose tail fits, exact to the segment.

    A segment's bytes are freed with its last record, so the result is where a segment ends, or ``start`` if everything
    fits. This is :func:`exact_topic_tails` with each partition as a topic of its own, by offsets instead of times.

    Args:
        segments: the segments of leader replicas.
        start: each partition's log start offset. Segments completely below it are dead, and not counted.
        most_bytes: how many bytes each partition may have, negative for any number.
    """
    by_offset = replace(segments, largest_timestamp=segments.base_offset)
    return exact_topic_tails(by_offset, start, np.arange(len(start)), most_bytes)


def exact_topic_tails(segments: Segments, start: Ints, topic: Ints, most_bytes: Ints) -> Ints:
    """Return, per partition, where it must begin so that its topic fits: the topic's oldest segments are trimmed first.

    This is R6's walk with a topic in place of a disk: over leader replicas' segments by (running maximum timestamp,
    partition, offset), until the topic has no more bytes than it may. The active segment always stays: it frees
    nothing, however large it is. Triggers ignore guards: records that guards keep are not made up for by other
    partitions.

    Args:
        segments: the segments of leader replicas.
        start: each partition's log start offset.
        topic: each partition's topic, by number.
        most_bytes: how many bytes each topic may have, negative for any number.
    """
    of_topic, most = np.asarray(topic)[segments.partition], np.asarray(most_bytes, dtype=np.int64)
    excess = np.where(most < 0, 0, add_up(segments.size_bytes, of_topic, len(most)) - most)
    return water_level(replace(segments, disk=of_topic), start, np.full(len(start), _FAR), excess).bound


def undated(segments: Segments, start: Ints, topic: Ints, bound: Ints) -> list[int]:
    """Return the partitions where a segment without a time ended the walk, while others' younger segments went.

    Args:
        segments: the segments of leader replicas.
        start: each partition's log start offset.
        topic: each partition's topic, by number.
        bound: where each partition must begin (:func:`exact_topic_tails`).
    """
    partition, times = segments.partition, segments.largest_timestamp
    of = np.asarray(topic)[partition]
    gone = wholly_below(segments, bound) & ~wholly_below(segments, start)
    own, level = np.full(len(start), UNDATED), np.full(int(np.max(topic, initial=0)) + 1, UNDATED)
    np.maximum.at(own, partition[gone], times[gone])
    np.maximum.at(level, of[gone], times[gone])
    ends = (segments.base_offset <= bound[partition]) & (bound[partition] < segments.next_offset) & ~segments.active
    found: list[int] = np.unique(partition[ends & (times < 0) & (level[of] > own[partition])]).tolist()
    return found


def bytes_between(segments: Segments, start: Ints, end: Ints) -> tuple[Ints, Ints, Flags]:
    """Return, per partition, how many offsets of a range are in segments, their bytes, and whether a segment is cut.

    A segment that is partly in the range counts in proportion to its offsets. One whose end is unknown does not count.

    Args:
        segments: the segments of leader replicas.
        start: each partition's first offset of the range.
        end: each partition's end of the range (exclusive).
    """
    base, following, partition = segments.base_offset, segments.next_offset, segments.partition
    rows = np.flatnonzero((following > start[partition]) & (base < end[partition]) & (following - base <= MOST_OFFSETS))
    base, following, partition = base[rows], following[rows], partition[rows]
    held = np.minimum(following, end[partition]) - np.maximum(base, start[partition])
    complete = held == following - base
    size = segments.size_bytes[rows].astype(np.int64)
    size = np.where(complete, size, size * held // np.maximum(following - base, 1))
    cut = np.zeros(len(start), dtype=np.bool_)
    cut[partition[~complete]] = True
    return add_up(held, partition, len(start)), add_up(size, partition, len(start)), cut


# -- how far it is trusted, given the cluster (R6, M1) ---------------------------------------------------------------


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
        return f"it has no topic id, or two, so it may belong to an older topic of this name; {AGAIN}"
    if topic_id is None:
        return "the topic's id is not known, so it may belong to an older topic of this name"
    if one.topic_id != topic_id:
        return f"it was scanned before the topic was recreated: {AGAIN}"
    if one.actives != 1 or one.active_base != one.last_base:
        count = "more than one" if one.actives else "no"
        found = "segments behind the active one" if one.actives == 1 else f"{count} active segment"
        return f"it has {found}, which a scan never writes: {AGAIN}"
    if end is not None and one.last_base > end:
        return f"its segments reach offset {one.last_base:,}, its log only {end:,}: it was cut or replaced; {AGAIN}"
    if start is not None and one.first_base > start and not facts.topic.tiered:  # what is remote begins earlier
        return f"its segments begin at offset {one.first_base:,}, but its log at {start:,}: {AGAIN}"
    return None if size_bytes is None else _other_size(one, start, end, size_bytes)


def _other_size(one: ScannedReplica, start: int | None, end: int | None, size_bytes: int) -> str | None:
    """Return why a replica's current size can't be that of the scanned one, None if it can."""
    if size_bytes < 0:
        return f"its replica is no longer in {one.dir}: {AGAIN}"
    live_bytes = one.live_bytes + (one.active_bytes if start is None or one.end > start or one.end < 0 else 0)
    if live_bytes > size_bytes:
        takes = f"its segments beyond its log start take {format_bytes(live_bytes)}"
        return f"{takes}, and its broker says {format_bytes(size_bytes)} in all: {AGAIN}"
    if end is not None and one.end > one.first_base:
        span = max(end, one.end) - one.first_base
        most = _DENSER * one.log_bytes * span // (one.end - one.first_base) + _SLACK
        if size_bytes > most:
            takes = f"its segments take {format_bytes(one.log_bytes)}, and its broker says {format_bytes(size_bytes)}"
            return f"{takes}, which is more than was written since: {AGAIN}"
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
    if (epoch := epoch_to_ask(one, facts)) is None:
        return None
    if facts.leader_epoch is not None and epoch > facts.leader_epoch:
        return f"it was scanned under leader epoch {epoch}, which this log never had: {AGAIN}"
    answer = epoch_ends.get((one.tp, epoch))
    match answer:
        case Found(end) if end >= one.end:
            return None
        case Found(end):
            cut = f"leader epoch {epoch} now ends at {end:,}, but the scan reached {one.end:,}"
            return f"{cut}: the log was cut since; {AGAIN}"
        case None | RequestFailedError():
            error = "" if answer is None else f" ({answer})"
            why = f"kretain could not ask where leader epoch {epoch} of the scan ends{error}"
        case _:
            why = f"it was scanned under leader epoch {epoch}, which its log no longer has: the log was cut"
    return f"{why}: {AGAIN}"
