"""Read the bytes of batches in logs over Spark, for R5: tasks read pieces of logs, the client joins their runs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from retention_cli.brokers.batch_runs import RunsWanted
from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range
from retention_cli.brokers.wire.runs import Runs
from retention_cli.core.model import TopicPartition
from retention_cli.engines.spark.connections import ConnectionRef, Readers
from retention_cli.engines.spark.fact_rows import Row
from retention_cli.engines.spark.record_slices import OFFSETS_A_SLICE, cut_records, packed
from retention_cli.engines.spark.schemas import BATCH_RUNS
from retention_cli.engines.spark.slice_jobs import read_slices

_COLUMNS: Final = ("base_offset", "next_offset", "size_bytes", "largest_timestamp")

Piece = tuple[RunsWanted, PartitionMetadata]


@dataclass(frozen=True, slots=True)
class SparkRuns:
    """Reads logs over Spark (:data:`retention_cli.disks.batch_sizes.ReadRuns`).

    Args:
        session: an open session.
        connection: where tasks find the cluster's settings.
        most: how many offsets a task reads at most.
    """

    session: Any
    connection: ConnectionRef
    most: int = OFFSETS_A_SLICE

    def __call__(
        self,
        reader: ClusterReader,
        wanted: Mapping[TopicPartition, RunsWanted],
        leaders: Leaders,
        on_bytes: Callable[[int], None],
    ) -> Mapping[TopicPartition, Runs | RequestFailedError]:
        """Read logs; return each partition's runs, or why the log could not be read to the end.

        Raises:
            SparkError: Spark could not run it.
            BrokerError: the client itself got no answer.
        """
        cut = cut_records(reader, {tp: Range(one.start, one.end) for tp, one in wanted.items()}, self.most)
        slices: list[Mapping[TopicPartition, Piece]] = [
            {tp: (_piece(wanted[tp], one), leaders[tp]) for tp, one in some.items()} for some in packed(cut, self.most)
        ]
        cluster = (reader.metadata(()).cluster_id, self.connection, reader.timeout_s)
        read: dict[tuple[TopicPartition, int], Runs | RequestFailedError] = {}
        for row in read_slices(self.session, cluster, slices, _rows, BATCH_RUNS):
            runs = _runs_of(row)
            read[TopicPartition(row["topic"], row["partition"]), row["start"]] = runs
            if isinstance(runs, Runs):
                on_bytes(sum(runs.size_bytes))
        return {tp: _together(read[tp, one.start] for one in cut.pieces.get(tp, ())) for tp in wanted}


def _rows(readers: Readers, pieces: Mapping[TopicPartition, Piece]) -> Iterator[Row]:
    """Read a slice in a task; yield rows of ``schemas.BATCH_RUNS``, one per piece."""
    wanted = {tp: one for tp, (one, _) in pieces.items()}
    leaders = {tp: leader for tp, (_, leader) in pieces.items()}
    read: Mapping[TopicPartition, Runs | RequestFailedError]
    try:
        read = readers.only().batch_runs(wanted, leaders, lambda _: None)
    except BrokerError as error:
        read = dict.fromkeys(wanted, RequestFailedError(str(error), retriable=True))
    for tp, one in wanted.items():
        row: Row = {"topic": tp.topic, "partition": tp.partition, "start": one.start}
        runs = read[tp]
        if isinstance(runs, RequestFailedError):
            yield row | {"error": str(runs)}
        else:
            yield row | {"moved": runs.moved} | {name: getattr(runs, name).tolist() for name in _COLUMNS}


def _piece(wanted: RunsWanted, piece: Range) -> RunsWanted:
    return RunsWanted(piece.start, piece.end, wanted.run_bytes, begin=piece.start == wanted.start)


def _runs_of(row: Row) -> Runs | RequestFailedError:
    if row["error"] is not None:
        return RequestFailedError(row["error"], retriable=True)
    return Runs(**{name: array("q", row[name]) for name in _COLUMNS}, moved=row["moved"])


def _together(pieces: Iterator[Runs | RequestFailedError]) -> Runs | RequestFailedError:
    found = Runs()
    for one in pieces:
        if isinstance(one, RequestFailedError):
            return one
        found.follow(one)
    return found
