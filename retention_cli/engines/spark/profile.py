"""``kretain profile`` over Spark: tasks read chunks of partitions, the client merges them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Final

import pyarrow as pa

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.record_columns import STOPPED
from retention_cli.brokers.records import Ended, Range
from retention_cli.core.extras import MissingPartError
from retention_cli.core.grouping import in_batches
from retention_cli.core.model import TopicPartition
from retention_cli.engines.spark.shipping import (
    ConnectionRef,
    Row,
    Sender,
    as_they_end,
    reader_of,
    run_tasks,
)
from retention_cli.profile.hours import STEPS_AT_MOST, PartitionHours, from_bytes, to_bytes
from retention_cli.profile.reading import Profile, TopicHours, read_into

PARTITIONS_A_SLICE: Final = 1_000
Ranges = dict[TopicPartition, Range]

OFFSETS_A_SLICE: Final = STEPS_AT_MOST
"""At most this many offsets per task: some seconds of reading. No chunk is larger than a profile's front can hold, so
that chunks of hours merge exactly."""
Leaders = Mapping[TopicPartition, int | None]
SLICES_A_JOB: Final = 64
JOBS_AT_ONCE: Final = 4
"""Several, so that no core waits for a job's last task."""

CHUNKS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("reached", pa.int64()),
        ("error", pa.string()),
        ("out_of_range", pa.bool_()),
        ("hours", pa.binary()),
    ]
)
"""One row per chunk of a partition read for a profile (:class:`retention_cli.brokers.records.Ended`)."""


@dataclass(slots=True)
class _Partition:
    """One partition in progress: its chunks in order, how many are merged, and results that arrived out of order."""

    chunks: Sequence[Range]
    hours: PartitionHours
    merged: int = 0
    waiting: dict[Range, tuple[Ended, PartitionHours]] = field(default_factory=dict)
    ended: Ended | None = None

    def take(self, chunk: Range, how: Ended, hours: PartitionHours) -> None:
        """Add the result of a chunk, and merge all results that are now contiguous.

        After a chunk that was not read to its end nothing is merged: a profile has no gaps.
        """
        self.waiting[chunk] = how, hours
        while self.ended is None and self.chunks[self.merged] in self.waiting:
            chunk = self.chunks[self.merged]
            how, hours = self.waiting.pop(chunk)
            self.hours = self.hours.merged(hours)
            self.merged += 1
            if how.error is not None or how.offset < chunk.end or self.merged == len(self.chunks):
                self.ended = how


@dataclass(slots=True)
class SparkReading:
    """Reads a profile's ranges over Spark (:data:`retention_cli.profile.reading.Read`).

    Args:
        sender: sends to the tasks of an open session.
        reader: the client's own reader of the cluster.
        most: how many offsets a task reads at most.
    """

    sender: Sender
    reader: ClusterReader
    most: int = OFFSETS_A_SLICE
    _unmerged: dict[TopicPartition, dict[Range, tuple[Ended, PartitionHours]]] = field(default_factory=dict)

    def __call__(
        self,
        profile: Profile,
        todo: Mapping[TopicPartition, Range],
        on_read: Callable[[int], None],
        stop: Callable[[], bool],
    ) -> Mapping[TopicPartition, Ended]:
        """Read ranges into the profile's hours; return how each partition ended.

        Raises:
            SparkError: Spark could not run it.
            BrokerError: the client itself got no answer.
        """
        cut, leaders = cut_records(self.reader, todo, self.most)
        partitions = {
            tp: _Partition(some, profile.topics[tp.topic].partitions[tp.partition]) for tp, some in cut.items()
        }
        for tp, one in partitions.items():  # chunks that an earlier round read, before records were deleted
            for chunk, (how, hours) in self._unmerged.pop(tp, {}).items():
                if chunk in one.chunks:
                    one.take(chunk, how, hours)
        left = {
            tp: [chunk for chunk in one.chunks[one.merged :] if chunk not in one.waiting]
            for tp, one in partitions.items()
        }
        topics = {name: replace(one, partitions={}) for name, one in profile.topics.items()}
        slices = [(one, {tp.topic: topics[tp.topic] for tp in one}) for one in packed(left, leaders, self.most)]
        where = (profile.cluster_id, self.sender.connection(self.reader.settings), self.reader.timeout_s)
        jobs = [
            partial(
                run_tasks,
                self.sender.session,
                partial(_rows, where, some),
                CHUNKS,
                len(some),
                "Spark could not read the records",
            )
            for some in in_batches(slices, SLICES_A_JOB)
        ]
        with closing(as_they_end(self.sender.session, jobs, JOBS_AT_ONCE, stop)) as done:
            for job in done:
                if job.exception() is not None and stop():
                    break  # a Ctrl-C reaches the tasks on this machine, too
                for row in job.result():
                    tp, chunk = TopicPartition(row["topic"], row["partition"]), Range(row["start"], row["end"])
                    error = None if row["error"] is None else RequestFailedError(row["error"], retriable=True)
                    how = Ended(row["reached"], error, row["out_of_range"])
                    partitions[tp].take(chunk, how, from_bytes(bytes(row["hours"])))
                    on_read(how.offset - chunk.start)
        ended = {tp: Ended(one.start) for tp, one in todo.items()}
        for tp, one in partitions.items():
            profile.topics[tp.topic].partitions[tp.partition] = one.hours
            ended[tp] = one.ended or Ended(one.hours.end, STOPPED)
            if ended[tp].out_of_range:
                self._unmerged[tp] = one.waiting
        return ended


def _rows(
    where: tuple[str, ConnectionRef, float], slices: Sequence[tuple[Ranges, Mapping[str, TopicHours]]], number: int
) -> Iterator[Row]:
    """Yield a slice's rows of :data:`CHUNKS`, in a task: one per chunk, read or not."""
    ranges, topics = slices[number]
    hours = {tp: PartitionHours.begin(topics[tp.topic].frame, one.start, piece=True) for tp, one in ranges.items()}
    try:
        with reader_of(*where) as reader:
            ended = read_into(reader, topics, hours, ranges)
    except (BrokerError, MissingPartError) as error:
        failed = RequestFailedError(str(error), retriable=True)
        ended = {tp: Ended(one.end, failed) for tp, one in hours.items()}
    for tp, how in ended.items():
        hours[tp].reached(how.offset)
        yield {
            "topic": tp.topic,
            "partition": tp.partition,
            "start": ranges[tp].start,
            "end": ranges[tp].end,
            "reached": how.offset,
            "error": None if how.error is None else str(how.error),
            "out_of_range": how.out_of_range,
            "hours": to_bytes(hours[tp]),
        }


def cut_records(
    reader: ClusterReader, ranges: Mapping[TopicPartition, Range], most: int
) -> tuple[dict[TopicPartition, list[Range]], Leaders]:
    """Return the chunks of ranges in offset order, each of ``most`` offsets, and the partitions' leaders.

    An empty range has no chunk.

    Raises:
        BrokerError: no broker answered.
    """
    wanted = {tp: one for tp, one in ranges.items() if one.start < one.end}
    partitions = reader.metadata({tp.topic for tp in wanted}).partitions_of()
    long = [tp for tp, one in wanted.items() if one.end - one.start > most and tp in partitions]
    answers = reader.list_offsets([dict.fromkeys(long, "last-stable")], partitions)[0] if long else {}
    stable = {tp: answer.offset for tp, answer in answers.items() if isinstance(answer, Found)}
    return (
        {tp: list(chunks(one, stable.get(tp), most)) for tp, one in wanted.items()},
        {tp: one.leader for tp, one in partitions.items()},
    )


def chunks(span: Range, stable: int | None, most: int) -> Iterator[Range]:
    """Cut a range at multiples of ``most``, so that chunks are the same wherever the range begins.

    ``stable`` is the last stable offset, None if unknown: nothing is cut at or after it. To a reader that begins
    after the start of an open transaction, a broker returns nothing, not even that this is the end.
    """
    start = span.start
    for cut in range((start // most + 1) * most, min(span.end, 0 if stable is None else stable), most):
        yield Range(start, cut)
        start = cut
    yield Range(start, span.end)


def packed(cut: Mapping[TopicPartition, Sequence[Range]], leaders: Leaders, most: int) -> list[Ranges]:
    """Return slices of chunks: of one leader, at most one chunk per partition, ``most`` offsets unless one has more.

    The first chunks of all partitions come before the second ones: retention deletes the first ones first.
    """
    found: list[Ranges] = []
    current: dict[int | None, tuple[Ranges, int]] = {}
    order = [(number, tp, one) for tp, some in cut.items() for number, one in enumerate(some)]
    for _, tp, one in sorted(order, key=itemgetter(0)):
        broker, size = leaders.get(tp), one.end - one.start
        ranges, offsets = current.get(broker, ({}, most))
        if offsets + size > most or tp in ranges or len(ranges) >= PARTITIONS_A_SLICE:
            ranges, offsets = {}, 0
            found.append(ranges)
        ranges[tp] = one
        current[broker] = ranges, offsets + size
    return found
