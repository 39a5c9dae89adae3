"""An inventory, ready for the rules that want one: numbered once, asked by every run and recheck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from retention_cli.core.model import Maybe, PartitionFacts, Tail, TopicPartition, Unknown
from retention_cli.disks.inventory.inventory import Inventory
from retention_cli.disks.solve.dictionary import EncodedSegments, encoded
from retention_cli.disks.solve.oldest_first import SegmentTable
from retention_cli.disks.solve.segments import Flags, Ints, Segments
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
)
"""What is read of an inventory's files."""


class InventoryView:
    """What an inventory says, by partition. ``ids`` are always the topic ids that the cluster has now.

    Args:
        inventory: with :data:`COLUMNS` at least.
    """

    by: ClassVar = "the inventory"

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        table = inventory.table
        self._encoded: EncodedSegments = encoded(table.column)
        self._log_bytes: Ints = table.column("log_bytes").to_numpy()
        whole = table.column("topic_id").unify_dictionaries().combine_chunks()
        if hasattr(whole, "chunks"):  # older pyarrow gives a chunked array of one
            whole = whole.chunk(0) if whole.num_chunks else whole
        words = whole.dictionary.to_pylist() if hasattr(whole, "dictionary") else []
        self._id_numbers = {word: number for number, word in enumerate(words)}
        self._ids: Ints = (
            whole.indices.fill_null(-1).to_numpy(zero_copy_only=False) if words else np.full(len(table), -1)
        )
        brokers = np.array([one.broker for one in self._encoded.dirs], dtype=np.int64)
        self._brokers: Ints = brokers[self._encoded.segments.disk] if len(brokers) else np.empty(0, dtype=np.int64)
        self._held: set[tuple[TopicPartition, int]] = set()
        self._numbers = {tp: number for number, tp in enumerate(self._encoded.partitions)}

    def age_ms(self, now_ms: int) -> int:
        """Return how old its oldest file is."""
        return self._inventory.age_ms(now_ms)

    def check_cluster(self, cluster_id: str) -> None:
        """Refuse to speak of another cluster.

        Raises:
            InventoryError: it is another's.
        """
        self._inventory.check_cluster(cluster_id)

    def segment_table(self, ids: Mapping[TopicPartition, str]) -> SegmentTable:
        """Return what R6 walks over."""
        return SegmentTable(self._encoded, self._log_bytes, self._inventory.incomplete, self._ours(ids))

    def bases(
        self, leaders: Mapping[TopicPartition, int | None], ids: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Maybe[Sequence[int]]]:
        """Return the base offsets of leader replicas' segments, sorted; unknown where the inventory lacks them."""
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
        """Return R5's bounds, exact to the segment, by the policy's key."""
        segments, of_leader = self._of_leaders({tp: leaders.get(tp) for tp in facts}, ids)
        count = len(self._encoded.partitions)
        start, most = np.zeros(count, dtype=np.int64), np.full(count, -1, dtype=np.int64)
        topics = {name: number for number, name in enumerate(sorted({tp.topic for tp in facts}))}
        elsewhere = len(topics)
        topic, of_topic = np.full(count, elsewhere), np.full(elsewhere + 1, -1, dtype=np.int64)
        missing: dict[TopicPartition, Unknown] = {}
        for tp, one in facts.items():
            unknown = self._missing(tp, leaders.get(tp))
            if unknown is None and isinstance(one.log_start, Unknown):
                unknown = one.log_start
            if unknown is not None or isinstance(one.log_start, Unknown):
                missing[tp] = unknown or Unknown.because("R5", "its log start is not known")
                continue
            number = self._numbers[tp]
            start[number] = one.log_start
            topic[number] = topics[tp.topic]
            most[number] = _or_none(settings[tp.topic].max_bytes)
        for name, number in topics.items():
            of_topic[number] = _or_none(settings[name].max_topic_bytes)
        each = exact_tails(segments, of_leader, start, most)
        together = exact_topic_tails(segments, of_leader, start, topic, of_topic)
        broken: dict[str, Unknown] = {}
        for tp, why in missing.items():
            text = f"{tp} of the topic is not known ({why.reasons[0].text})"
            broken.setdefault(tp.topic, Unknown.because("R5", text))
        found: dict[TopicPartition, dict[str, Maybe[Tail]]] = {}
        for tp in facts:
            here = found.setdefault(tp, {})
            place = self._numbers.get(tp, -1)
            if settings[tp.topic].max_bytes is not None:
                here["retention.bytes"] = missing.get(tp) or Tail(int(each[place]), exact=True, by=self.by)
            if settings[tp.topic].max_topic_bytes is not None:
                here["retention.topic.bytes"] = broken.get(tp.topic) or Tail(
                    int(together[place]), exact=True, by=self.by
                )
        return found

    def log_bytes(
        self,
        trims: Mapping[TopicPartition, tuple[int, int]],
        leaders: Mapping[TopicPartition, int | None],
        ids: Mapping[TopicPartition, str],
    ) -> dict[TopicPartition, tuple[int, bool]]:
        """Return what lies between two offsets of the leaders' logs, in bytes, and whether that is to the byte.

        It is where both are a segment's ends; else a segment's bytes go by its offsets. What was written after the
        scan, or is not in the inventory for another reason, is not in the result.
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
        """Return why the inventory does not tell of a partition's leader replica, None where it does."""
        if leader is None:
            return Unknown.because("inventory", "it has no leader")
        if (why := self._inventory.incomplete.get((leader, tp.topic, tp.partition))) is not None:
            return Unknown.because("inventory", f"broker {leader}'s inventory: {why}")
        if tp not in self._numbers or (tp, leader) not in self._held:
            text = f"the inventory has no segments of it on broker {leader}, its leader: scan there anew"
            return Unknown.because("inventory", text)
        return None

    def _of_leaders(
        self, leaders: Mapping[TopicPartition, int | None], ids: Mapping[TopicPartition, str]
    ) -> tuple[Segments, Flags]:
        """Return the segments by their records' bytes, and which rows are of leader replicas of today's topics."""
        segments = replace(self._encoded.segments, size_bytes=self._log_bytes)
        leader = np.full(len(self._encoded.partitions), -1, dtype=np.int64)
        for tp, broker in leaders.items():
            if broker is not None and tp in self._numbers:
                leader[self._numbers[tp]] = broker
        rows: Flags = (leader[segments.partition] == self._brokers) & self._ours(ids)
        held = np.unique(segments.partition[rows]).tolist()
        names = self._encoded.partitions
        self._held = {(names[number], int(leader[number])) for number in held}
        return segments, rows

    def _ours(self, ids: Mapping[TopicPartition, str]) -> Flags:
        """Return which rows are of the topic that has the name now, by its id. One without an id is not."""
        wanted = np.full(len(self._encoded.partitions), -2, dtype=np.int64)
        for tp, topic_id in ids.items():
            if tp in self._numbers:
                wanted[self._numbers[tp]] = self._id_numbers.get(topic_id, -2)
        ours: Flags = wanted[self._encoded.segments.partition] == self._ids
        return ours


def _or_none(value: int | None) -> int:
    return -1 if value is None else value
