"""An inventory prepared for the rules that use one: encoded once, queried by every run and recheck."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self

import numpy as np

from retention_cli.core.extras import arrow
from retention_cli.core.model import Maybe, PartitionFacts, Tail, TopicPartition, Unknown
from retention_cli.disks.inventory.inventory import Inventory, InventoryFile
from retention_cli.disks.solve.borne_out import ScannedReplica
from retention_cli.disks.solve.dictionary import EncodedSegments, encoded
from retention_cli.disks.solve.oldest_first import SegmentTable
from retention_cli.disks.solve.segments import SLAB, Flags, Ints, Segments, slabs
from retention_cli.disks.solve.summed import summed
from retention_cli.disks.solve.tails import bytes_between, exact_tails, exact_topic_tails
from retention_cli.policy.settings import Settings

COLUMNS: Final = (
    "broker",
    "dir",
    "topic",
    "topic_id",
    "partition",
    "base_offset",
    "next_offset",
    "bytes",
    "log_bytes",
    "largest_timestamp",
    "active",
    "leader_epoch",
)
"""The columns that are read from an inventory's files."""
_NO_EPOCH: Final = -1


class InventoryView:
    """An inventory's answers by partition. Arguments named ``ids`` are the cluster's current topic ids.

    Args:
        inventory: the inventory, with at least :data:`COLUMNS`. Its table is not kept.
        column: returns a column once, in place of the table, so that it can go before the next one is read.
    """

    def __init__(self, inventory: Inventory, column: Callable[[str], Any] | None = None) -> None:
        column = column or inventory.table.column
        self._inventory = replace(inventory, table=None)
        self._encoded: EncodedSegments = encoded(column)
        self._log_bytes: Ints = column("log_bytes").to_numpy()
        fill_null = arrow("pyarrow.compute").fill_null
        self._epochs: Ints = fill_null(column("leader_epoch"), _NO_EPOCH).to_numpy().astype(np.int32, copy=False)
        whole = column("topic_id").unify_dictionaries().combine_chunks()
        if hasattr(whole, "chunks"):  # older pyarrow returns a chunked array of one chunk
            whole = whole.chunk(0) if whole.num_chunks else whole
        words = whole.dictionary.to_pylist() if hasattr(whole, "dictionary") else []
        self._id_numbers = {word: number for number, word in enumerate(words)}
        self._ids: Ints = np.full(len(self._log_bytes), -1, dtype=np.int32)
        if words:
            self._ids[:] = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self._held: set[tuple[TopicPartition, int]] = set()
        self._numbers = {tp: number for number, tp in enumerate(self._encoded.partitions)}

    @property
    def files(self) -> Sequence[InventoryFile]:
        """The metadata of each of the inventory's files."""
        return self._inventory.files

    @property
    def unread(self) -> Sequence[str]:
        """Why files were left out."""
        return self._inventory.unread

    def age_ms(self, now_ms: int) -> int:
        """Return the age of the oldest file (ms)."""
        return self._inventory.age_ms(now_ms)

    def check_cluster(self, cluster_id: str) -> None:
        """Check that the inventory is of this cluster.

        Raises:
            InventoryError: it is another cluster's.
        """
        self._inventory.check_cluster(cluster_id)

    def without(self, doubts: Mapping[tuple[int, str, int], str]) -> Self:
        """Return this inventory with the doubted replicas marked as incomplete, with the reasons (R6)."""
        found = copy(self)
        whole = self._inventory
        found._inventory = replace(whole, incomplete={**doubts, **whole.incomplete})  # noqa: SLF001  (our own copy)
        return found

    def replicas(self, log_starts: Mapping[TopicPartition, int]) -> Iterator[ScannedReplica]:
        """Yield a summary of each replica. Its rows must be consecutive.

        Args:
            log_starts: S of partitions, where it is known.
        """
        s, names, dirs = self._encoded.segments, self._encoded.partitions, self._encoded.dirs
        if not len(s):
            return
        begins = np.ones(len(s), dtype=np.bool_)
        begins[1:] = (s.disk[1:] != s.disk[:-1]) | (s.partition[1:] != s.partition[:-1])
        first = np.append(np.flatnonzero(begins), len(s))
        starts = np.array([log_starts.get(tp, 0) for tp in names], dtype=np.int64)
        ids = {number: word for word, number in self._id_numbers.items()}
        for some in replica_slabs(first):
            rows, at = slice(first[some.start], first[some.stop]), first[some] - first[some.start]
            here = s.take(rows)
            columns = (
                here.disk[at],
                here.partition[at],
                np.minimum.reduceat(self._ids[rows], at),
                np.maximum.reduceat(self._ids[rows], at),
                *summed(here, self._log_bytes[rows], starts[here.partition], at),
                np.maximum.reduceat(self._epochs[rows], at),
            )
            for disk, partition, low, high, *numbers in zip(*(one.tolist() for one in columns), strict=True):
                topic_id, where = ids.get(low) if low == high else None, dirs[disk]
                one = ScannedReplica(where.broker, where.path, names[partition], topic_id, *numbers)
                yield one if one.leader_epoch != _NO_EPOCH else one._replace(leader_epoch=None)

    def segment_table(self, ids: Mapping[TopicPartition, str]) -> SegmentTable:
        """Return the table that R6 walks over."""
        whole = self._inventory
        return SegmentTable(self._encoded, self._log_bytes, whole.incomplete, self._ours(ids), whole.scanned_dirs)

    def bases(
        self, leaders: Mapping[TopicPartition, int | None], ids: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Maybe[Sequence[int]]]:
        """Return the base offsets of leader replicas' segments, sorted; unknown if the inventory lacks the replica."""
        segments, of_leader = self._of_leaders(leaders, ids)
        rows = np.flatnonzero(of_leader)
        rows = rows[np.lexsort((segments.base_offset[rows], segments.partition[rows]))]
        partition, base = segments.partition[rows], segments.base_offset[rows]
        found: dict[TopicPartition, Maybe[Sequence[int]]] = {}
        for tp, leader in leaders.items():
            missing = self._missing(tp, leader)
            number = self._numbers.get(tp, -1)
            first, last = np.searchsorted(partition, [number, number + 1])
            found[tp] = missing or base[first:last].tolist()
        return found

    def tails(
        self,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        leaders: Mapping[TopicPartition, int | None],
        ids: Mapping[TopicPartition, str],
    ) -> dict[TopicPartition, dict[str, Maybe[Tail]]]:
        """Return R5's bounds for each partition, exact to the segment, by the policy's key."""
        segments, of_leader = self._of_leaders({tp: leaders.get(tp) for tp in facts}, ids)
        count = len(self._encoded.partitions)
        start, most = np.zeros(count, dtype=np.int64), np.full(count, -1, dtype=np.int64)
        topics = {name: number for number, name in enumerate(sorted({tp.topic for tp in facts}))}
        elsewhere = len(topics)
        topic, of_topic = np.full(count, elsewhere), np.full(elsewhere + 1, -1, dtype=np.int64)
        missing = unknown_logs(facts, lambda tp: self._missing(tp, leaders.get(tp)))
        for tp, one in facts.items():
            if tp in missing or isinstance(one.log_start, Unknown):
                continue
            number = self._numbers[tp]
            start[number] = one.log_start
            topic[number] = topics[tp.topic]
            most[number] = _or_none(settings[tp.topic].max_bytes)
        for name, number in topics.items():
            of_topic[number] = _or_none(settings[name].max_topic_bytes)
        each = exact_tails(segments, of_leader, start, most)
        together = exact_topic_tails(segments, of_leader, start, topic, of_topic)

        def tail(of: Ints, tp: TopicPartition) -> int:
            return int(of[self._numbers[tp]])

        return tails_by_key(settings, missing, facts, partial(tail, each), partial(tail, together))

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
        segments, of_leader = self._of_leaders({tp: leaders.get(tp) for tp in trims}, ids)
        count = len(self._encoded.partitions)
        start, end = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        for tp, (low, high) in trims.items():
            if tp in self._numbers:
                start[self._numbers[tp]], end[self._numbers[tp]] = low, high
        covered, size_bytes, cut = bytes_between(segments, of_leader, start, end)
        found = {}
        for tp, (low, high) in trims.items():
            number = self._numbers.get(tp)
            if number is not None and self._missing(tp, leaders.get(tp)) is None and covered[number] == high - low:
                found[tp] = (int(size_bytes[number]), not bool(cut[number]))
        return found

    def _missing(self, tp: TopicPartition, leader: int | None) -> Unknown | None:
        """Return why the inventory lacks a partition's leader replica, None if it has it."""
        held = tp in self._numbers and (tp, leader) in self._held
        return missing_replica(self._inventory.incomplete, tp, leader, held=held)

    def _of_leaders(
        self, leaders: Mapping[TopicPartition, int | None], ids: Mapping[TopicPartition, str]
    ) -> tuple[Segments, Flags]:
        """Return the segments sized by their log files, and a mask of leader replicas of the current topics."""
        segments = replace(self._encoded.segments, size_bytes=self._log_bytes)
        leader = np.full(len(self._encoded.partitions), -1, dtype=np.int64)
        for tp, broker in leaders.items():
            if broker is not None and tp in self._numbers:
                leader[self._numbers[tp]] = broker
        brokers = np.array([one.broker for one in self._encoded.dirs], dtype=np.int64)
        rows = self._ours(ids)
        for some in slabs(len(segments)):
            rows[some] &= leader[segments.partition[some]] == brokers[segments.disk[some]]
        held = np.unique(segments.partition[rows]).tolist()
        names = self._encoded.partitions
        self._held = {(names[number], int(leader[number])) for number in held}
        return segments, rows

    def _ours(self, ids: Mapping[TopicPartition, str]) -> Flags:
        """Return a mask of the rows whose topic id is the current topic's. A row without an id is not in it."""
        wanted = np.full(len(self._encoded.partitions), -2, dtype=np.int32)
        for tp, topic_id in ids.items():
            if tp in self._numbers:
                wanted[self._numbers[tp]] = self._id_numbers.get(topic_id, -2)
        ours: Flags = wanted[self._encoded.segments.partition] == self._ids
        return ours


def replica_slabs(first: Ints) -> Iterator[slice]:
    """Yield stretches of replicas, given the first row of each and the number of all rows, that have a slab each."""
    count, low = len(first) - 1, 0
    while low < count:
        high = max(low + 1, int(np.searchsorted(first, first[low] + SLAB, side="right")) - 1)
        yield slice(low, high)
        low = high


def _or_none(value: int | None) -> int:
    return -1 if value is None else value


def missing_replica(
    incomplete: Mapping[tuple[int, str, int], str], tp: TopicPartition, leader: int | None, *, held: bool
) -> Unknown | None:
    """Return why an inventory lacks a partition's leader replica, None if it has it.

    Args:
        incomplete: replicas (broker, topic, partition) of which something is unknown, with the reason.
        tp: the partition.
        leader: the leader's broker id, None if there is no leader.
        held: whether the inventory has any segment of that replica.
    """
    if leader is None:
        return Unknown.because("inventory", "it has no leader")
    if (why := incomplete.get((leader, tp.topic, tp.partition))) is not None:
        return Unknown.because("inventory", f"broker {leader}'s inventory: {why}")
    if not held:
        text = f"the inventory has no segments of it on broker {leader}, its leader: scan it again"
        return Unknown.because("inventory", text)
    return None


def unknown_logs(
    facts: Mapping[TopicPartition, PartitionFacts], missing: Callable[[TopicPartition], Unknown | None]
) -> dict[TopicPartition, Unknown]:
    """Return the partitions whose tails are unknown, and why: the replica is missing, or S is unknown."""
    found = {}
    for tp, one in facts.items():
        why = missing(tp) or one.log_start
        if isinstance(why, Unknown):
            found[tp] = why
    return found


def tails_by_key(
    settings: Mapping[str, Settings],
    missing: Mapping[TopicPartition, Unknown],
    tps: Iterable[TopicPartition],
    each: Callable[[TopicPartition], int],
    together: Callable[[TopicPartition], int],
) -> dict[TopicPartition, dict[str, Maybe[Tail]]]:
    """Return R5's bounds for each partition, by the policy's key. A missing partition makes its topic's unknown.

    Args:
        settings: the settings by topic.
        missing: the partitions whose tails are unknown (:func:`unknown_logs`).
        tps: all partitions, in order.
        each: returns where a partition's own tail begins.
        together: returns where a partition's tail begins so that its topic fits.
    """
    broken: dict[str, Unknown] = {}
    for tp, why in missing.items():
        text = f"{tp} of the topic is not known ({why.reasons[0].text})"
        broken.setdefault(tp.topic, Unknown.because("R5", text))
    found: dict[TopicPartition, dict[str, Maybe[Tail]]] = {}
    for tp in tps:
        here = found.setdefault(tp, {})
        if settings[tp.topic].max_bytes is not None:
            here["retention.bytes"] = missing.get(tp) or Tail(each(tp), exact=True)
        if settings[tp.topic].max_topic_bytes is not None:
            here["retention.topic.bytes"] = broken.get(tp.topic) or Tail(together(tp), exact=True)
    return found
