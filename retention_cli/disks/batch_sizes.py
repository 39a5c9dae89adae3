"""R5 without an inventory, from the sizes of the batches in logs: read from the brokers once per command (R5).

Brokers report replica sizes cheaply. So only the logs of partitions and topics above their limits are read, completely.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from retention_cli.brokers.batch_runs import RunsWanted
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.wire.runs import Runs
from retention_cli.core.model import Maybe, PartitionFacts, Tail, TopicPartition, Unknown, known
from retention_cli.core.progress import Progress, silent
from retention_cli.disks.measure import DiskState
from retention_cli.disks.topic_tails import BYTES, TOPIC_BYTES, estimated_tails
from retention_cli.policy.settings import Settings

RUNS_A_LOG: Final = 1_024
"""Batches are merged into about this many runs per log: a bound is exact to a thousandth of the log, or to a batch."""

BY: Final = "the batches in its log"
_MIB: Final = 1 << 20
PHASE: Final = "MiB of batches"

Failed = RequestFailedError
Wanted = Mapping[TopicPartition, RunsWanted]
ReadRuns = Callable[
    [ClusterReader, Wanted, Leaders, Callable[[int], None]], Mapping[TopicPartition, Runs | RequestFailedError]
]
"""Reads the wanted logs, in this process or in Spark; returns each partition's runs, or the error."""


def read_here(
    reader: ClusterReader, wanted: Wanted, leaders: Leaders, on_bytes: Callable[[int], None]
) -> Mapping[TopicPartition, Runs | RequestFailedError]:
    """Read in this process; see :meth:`ClusterReader.batch_runs`."""
    return reader.batch_runs(wanted, leaders, on_bytes)


@dataclass(frozen=True, slots=True)
class _Kept:
    topic_id: str
    leader_epoch: int
    end: int
    runs: Runs

    def is_of(self, topic_id: str, leader_epoch: int, end: int) -> bool:
        return (self.topic_id, self.leader_epoch) == (topic_id, leader_epoch) and self.end <= end


@dataclass(slots=True)
class BatchSizes:
    """The runs of batches read in one command. A recheck reuses the plan's: records written since are all kept.

    After an election a log is read again: it may have lost its tail (M1).

    Args:
        read: how batches are read.
    """

    read: ReadRuns = read_here
    unread: Sequence[str] = ()
    _kept: dict[TopicPartition, _Kept] = field(default_factory=dict)

    def tails(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        leaders: Leaders,
        sizes: Mapping[TopicPartition, int],
        progress: Progress = silent,
    ) -> dict[TopicPartition, dict[str, Maybe[Tail]]]:
        """Return R5's bounds for each partition, by the policy's key.

        Args:
            reader: the cluster, read-only.
            facts: the facts of all partitions of topics with a size limit.
            settings: the settings by topic.
            leaders: the brokers to read from.
            sizes: the sizes of the leaders' replicas that the brokers reported, where known.
            progress: called with how many MiB have been read.
        """
        large = {
            tp
            for tp in facts
            if (most := settings[tp.topic].max_bytes) is not None and (tp not in sizes or sizes[tp] > most)
        }
        large_topics = _large_topics(facts.keys(), settings, sizes)
        runs = self._runs(
            reader,
            {tp: one for tp, one in facts.items() if tp in large or tp.topic in large_topics},
            leaders,
            sizes,
            progress,
        )
        found: dict[TopicPartition, dict[str, Maybe[Tail]]] = {}
        if runs:
            from retention_cli.disks.solve.batch_view import batch_view

            ids = {tp: topic_id for tp in runs if (topic_id := known(facts[tp].topic.topic_id)) is not None}
            leading = {tp: leaders[tp].leader for tp in runs}
            found = batch_view(runs, leading, ids).tails({tp: facts[tp] for tp in runs}, settings, leading, ids)
        for tp, one in facts.items():
            here = found.setdefault(tp, {})
            whole = one.log_start if isinstance(one.log_start, Unknown) else Tail(one.log_start, exact=True, by=BY)
            if settings[tp.topic].max_bytes is not None and tp not in large:  # it fits, however much of it is dead
                here[BYTES] = whole
            if settings[tp.topic].max_topic_bytes is not None and tp.topic not in large_topics:
                here[TOPIC_BYTES] = whole
        return found

    def _runs(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        leaders: Leaders,
        sizes: Mapping[TopicPartition, int],
        progress: Progress,
    ) -> dict[TopicPartition, Maybe[Runs]]:
        """Return the runs of each log, or why they are unknown. Logs that were read before are not read again."""
        found: dict[TopicPartition, Maybe[Runs]] = {}
        wanted: dict[TopicPartition, RunsWanted] = {}
        for tp, one in facts.items():
            start, end, topic_id = one.log_start, one.high_watermark, known(one.topic.topic_id)
            if isinstance(start, Unknown):
                found[tp] = start
            elif isinstance(end, Unknown):
                found[tp] = end
            elif topic_id is None:
                found[tp] = Unknown.because("R5", "its topic's id is not known")
            elif (kept := self._kept.get(tp)) is not None and kept.is_of(topic_id, leaders[tp].leader_epoch, end):
                found[tp] = kept.runs
            else:
                wanted[tp] = RunsWanted(start, end, max(1, sizes.get(tp, 0) // RUNS_A_LOG))
        if not wanted:
            return found
        expected, came = sum(sizes.get(tp, 0) for tp in wanted), 0

        def on_bytes(count: int) -> None:
            nonlocal came
            came += count
            progress(PHASE, came // _MIB, max(came, expected) // _MIB)

        progress(PHASE, 0, expected // _MIB)
        for tp, read in self.read(reader, wanted, leaders, on_bytes).items():
            if isinstance(read, RequestFailedError):
                found[tp] = Unknown.because("R5", f"what lies in its log could not be read: {read}")
                continue
            found[tp] = read
            topic_id = known(facts[tp].topic.topic_id)
            if topic_id is not None:
                self._kept[tp] = _Kept(topic_id, leaders[tp].leader_epoch, wanted[tp].end, read)
        return found


def _large_topics(
    tps: Collection[TopicPartition], settings: Mapping[str, Settings], sizes: Mapping[TopicPartition, int]
) -> set[str]:
    """Return the topics that are above their limit, or may be because a size is unknown."""
    held: dict[str, int | None] = {}
    for tp in tps:
        before, size = held.get(tp.topic, 0), sizes.get(tp)
        held[tp.topic] = None if before is None or size is None else before + size
    return {
        name
        for name, size in held.items()
        if (most := settings[name].max_topic_bytes) is not None and (size is None or size > most)
    }


def tails_without_inventory(
    reader: ClusterReader,
    state: DiskState,
    facts: Mapping[TopicPartition, PartitionFacts],
    settings: Mapping[str, Settings],
    leaders: Leaders,
    batches: BatchSizes | None,
    now_ms: int,
    progress: Progress,
) -> dict[TopicPartition, dict[str, Maybe[Tail]]]:
    """Return R5's bounds for each partition, by the policy's key: from logs, or estimated from replica sizes.

    Args:
        reader: the cluster, read-only.
        state: the disks, as read in this run.
        facts: the facts of all partitions of topics with a size limit.
        settings: the settings by topic.
        leaders: the brokers to read from.
        batches: reads logs; None: bounds are estimated from replica sizes.
        now_ms: the time from which all cutoffs are calculated.
        progress: called with how many MiB have been read.
    """
    leading = state.leading_disks(facts.keys())
    if batches is None:
        return estimated_tails(reader, facts, settings, leading, state.sizes, leaders, now_ms)
    sizes = {tp: disk.replicas[tp] for tp, disk in leading.items()}
    return batches.tails(reader, facts, settings, leaders, sizes, progress)
