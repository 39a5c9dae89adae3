"""``kretain profile`` over Spark: tasks read pieces of partitions, the client merges what they found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.record_columns import STOPPED, Ended
from retention_cli.brokers.records import Range
from retention_cli.core.model import TopicPartition
from retention_cli.engines.spark.connections import ConnectionRef, Readers
from retention_cli.engines.spark.fact_rows import Row
from retention_cli.engines.spark.record_slices import OFFSETS_A_SLICE, Cut, Ranges, cut_records, packed
from retention_cli.engines.spark.schemas import PIECES
from retention_cli.engines.spark.slice_jobs import Task, read_slices
from retention_cli.profile.hours import PartitionHours
from retention_cli.profile.pieces import from_bytes, to_bytes
from retention_cli.profile.reading import Profile, TopicHours, read_into


@dataclass(slots=True)
class _Partition:
    """One partition on its way: its pieces in order, how many are merged, and those that came before their turn."""

    pieces: Sequence[Range]
    hours: PartitionHours
    merged: int = 0
    waiting: dict[Range, tuple[Ended, PartitionHours]] = field(default_factory=dict)
    ended: Ended | None = None

    def take(self, piece: Range, how: Ended, hours: PartitionHours) -> None:
        """Take what was found in a piece, and merge what now follows on each other.

        Behind a piece that was not read to its end nothing is merged: what is in a profile has no holes.
        """
        self.waiting[piece] = how, hours
        while self.ended is None and self.pieces[self.merged] in self.waiting:
            piece = self.pieces[self.merged]
            how, hours = self.waiting.pop(piece)
            self.hours = self.hours.merged(hours)
            self.merged += 1
            if how.error is not None or how.offset < piece.end or self.merged == len(self.pieces):
                self.ended = how


class SparkReading:
    """Reads a profile's ranges over Spark, as :data:`retention_cli.profile.reading.Read`.

    Args:
        session: an open one.
        reader: the client's own, of the same cluster.
        connection: where tasks find the cluster's settings.
        most: how many offsets a task reads.
    """

    def __init__(
        self, session: Any, reader: ClusterReader, connection: ConnectionRef, most: int = OFFSETS_A_SLICE
    ) -> None:
        self._session = session
        self._reader = reader
        self._connection = connection
        self._most = most
        self._kept: dict[TopicPartition, dict[Range, tuple[Ended, PartitionHours]]] = {}

    def __call__(
        self,
        profile: Profile,
        todo: Mapping[TopicPartition, Range],
        on_read: Callable[[int], None],
        stop: Callable[[], bool],
    ) -> Mapping[TopicPartition, Ended]:
        """Read ranges into the profile's hours; return how each partition ended.

        Raises:
            SparkError: Spark could not carry it out.
            BrokerError: the client itself was not answered.
        """
        cut = cut_records(self._reader, todo, self._most)
        partitions = {
            tp: _Partition(some, profile.topics[tp.topic].partitions[tp.partition]) for tp, some in cut.pieces.items()
        }
        for tp, one in partitions.items():  # what a round before this one has read, behind what went meanwhile
            for piece, (how, hours) in self._kept.pop(tp, {}).items():
                if piece in one.pieces:
                    one.take(piece, how, hours)
        left = {
            tp: [piece for piece in one.pieces[one.merged :] if piece not in one.waiting]
            for tp, one in partitions.items()
        }
        slices = packed(Cut(left, cut.leaders), self._most)

        def take(row: Row) -> None:
            tp, piece = TopicPartition(row["topic"], row["partition"]), Range(row["start"], row["end"])
            error = None if row["error"] is None else RequestFailedError(row["error"], retriable=True)
            how = Ended(row["reached"], error, row["out_of_range"])
            partitions[tp].take(piece, how, from_bytes(bytes(row["hours"])))
            on_read(how.offset - piece.start)

        self._run(slices, profile, take, stop)
        ended = {tp: Ended(one.start) for tp, one in todo.items()}
        for tp, one in partitions.items():
            profile.topics[tp.topic].partitions[tp.partition] = one.hours
            ended[tp] = one.ended or Ended(one.hours.end, STOPPED)
            if ended[tp].out_of_range:
                self._kept[tp] = one.waiting
        return ended

    def _run(
        self, slices: Sequence[Ranges], profile: Profile, take: Callable[[Row], None], stop: Callable[[], bool]
    ) -> None:
        """Have all slices read, some jobs at a time, and take the rows as they come, until somebody stops it."""

        def task_of(some: Sequence[Ranges]) -> Task:
            names = {tp.topic for one in some for tp in one}
            topics = {name: replace(profile.topics[name], partitions={}) for name in names}
            return piece_reader(some, topics, profile.cluster_id, self._connection, self._reader.timeout_s)

        for row in read_slices(self._session, slices, task_of, PIECES, stop):
            take(row)


def piece_reader(
    slices: Sequence[Ranges],
    topics: Mapping[str, TopicHours],
    cluster: str,
    connection: ConnectionRef,
    timeout_s: float,
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the task for ``mapInArrow``: numbers of slices to rows of ``schemas.PIECES``, one a piece, read or not."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        with Readers({cluster: (connection, timeout_s)}) as readers:
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                yield from _read(readers, cluster, topics, slices[number])

    return run


def _read(readers: Readers, cluster: str, topics: Mapping[str, TopicHours], ranges: Ranges) -> Iterator[pa.RecordBatch]:
    hours = {tp: PartitionHours.begin(topics[tp.topic].frame, one.start, piece=True) for tp, one in ranges.items()}
    try:
        ended = read_into(readers.get(cluster), topics, hours, ranges)
    except BrokerError as error:
        failed = RequestFailedError(str(error), retriable=True)
        ended = {tp: Ended(one.end, failed) for tp, one in hours.items()}
    for tp, how in ended.items():
        hours[tp].reached(how.offset)
        row = {
            "topic": tp.topic,
            "partition": tp.partition,
            "start": ranges[tp].start,
            "end": ranges[tp].end,
            "reached": how.offset,
            "error": None if how.error is None else str(how.error),
            "out_of_range": how.out_of_range,
            "hours": to_bytes(hours[tp]),
        }
        yield pa.RecordBatch.from_pylist([row], schema=PIECES)
