"""The data source ``kretain.records``: every data record's offset, times and size, for scans (docs/spark.md)."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from retention_cli.brokers.errors import BrokerError, SettingsError
from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.record_columns import Columns, Ended
from retention_cli.brokers.records import Range
from retention_cli.core.clock import SYSTEM
from retention_cli.core.extras import numpy
from retention_cli.core.model import TopicPartition
from retention_cli.core.units import parse_time_ms
from retention_cli.engines.spark.record_slices import OFFSETS_A_SLICE, Ranges, cut_records, packed
from retention_cli.engines.spark.schemas import RECORDS
from retention_cli.engines.spark.source_options import Options, Slice, SlicedReader, SlicedSource
from retention_cli.memory.event_scan import read_time
from retention_cli.policy.settings import event_source
from retention_cli.profile.reading import Wanted, choose, locate, starts_now

_OWN: Final = ("event.time", "from.offset", "to.offset", "from.time", "to.time", "slice.offsets", "gone")


@dataclass
class _RecordSlice(Slice):
    ranges: Ranges


class RecordsError(BrokerError):
    """Requested records could not be read completely: what was read is not a valid answer."""


class RecordsReader(SlicedReader):
    """Reads committed data records from log start to log end, as of planning. Rows as ``schemas.RECORDS``.

    A slice that can't be read to its end fails, so that a frame is never partial.
    """

    pushed_columns = ("topic", "partition", "offset", "timestamp")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        own = options.own
        self._source = event_source(own["event.time"]) if "event.time" in own else None
        self._from_offset, self._to_offset = (_number(own, name) for name in ("from.offset", "to.offset"))
        self._most = _number(own, "slice.offsets") or OFFSETS_A_SLICE
        if own.get("gone", "fail") not in ("fail", "skip"):
            raise SettingsError(f"option gone: {own['gone']!r} is not fail or skip")
        self._skips_gone = own.get("gone") == "skip"
        times = (own.get(name) for name in ("from.time", "to.time"))
        self._from_ms, self._to_ms = (None if one is None else parse_time_ms(one) for one in times)

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the wanted records into slices of one leader each, and of a bounded number of offsets.

        Raises:
            SettingsError: neither an option nor a filter names a topic.
            NothingMatchesError: the option names topics that do not exist.
            BrokerError: a partition's ends can't be read, or no broker answered.
        """
        low, _ = self.pushed.bounds("timestamp")
        earliest = [one for one in (self._from_ms, low) if one is not None]
        wanted = Wanted((), SYSTEM.wall_ms(), from_ms=max(0, *earliest, 0) if earliest else None)
        with self.options.reader() as reader:
            metadata = reader.metadata()
            found = locate(reader, metadata, self._names(metadata), wanted)
            for one in found.unread:
                if self.pushed.allows("partition", one.tp.partition):
                    raise RecordsError(f"{one.tp} can't be read: {one.text}")
            ranges = {
                tp: self._within(one)
                for tp, one in found.ranges.items()
                if self.pushed.allows("partition", tp.partition)
            }
            cut = cut_records(reader, ranges, self._most)
        return [_RecordSlice(metadata.cluster_id, one) for one in packed(cut, self._most)]

    def read_slice(self, one: _RecordSlice) -> Iterator[pa.RecordBatch]:
        """Yield a slice's records as they arrive.

        Raises:
            RecordsError: not all of the records could be read.
        """
        topics = {tp.topic for tp in one.ranges}
        times = {} if self._source is None else dict.fromkeys(topics, partial(read_time, self._source, 0))
        if self._source is not None and self._source.kind == "timestamp":
            times = {}
        with self.options.reader_at(one.cluster) as reader:
            todo = one.ranges
            while todo:
                ended = yield from self._batches(one.cluster, reader.stream_columns(todo, event_time=times))
                todo = self._left(reader, one.ranges, ended)

    def _left(self, reader: ClusterReader, ranges: Ranges, ended: Mapping[TopicPartition, Ended]) -> Ranges:
        """Return the ranges left after records that were deleted before they could be read, if they may be skipped.

        Raises:
            RecordsError: a range was not read to its end for another reason, or records must not be skipped.
        """
        gone = {tp: how for tp, how in ended.items() if how.out_of_range and self._skips_gone}
        starts = starts_now(reader, gone) if gone else {}
        left = {}
        for tp, how in ended.items():
            start = starts.get(tp)
            if isinstance(start, Found) and start.offset > how.offset:  # else the log was replaced, or cut short
                left[tp] = Range(min(start.offset, ranges[tp].end), ranges[tp].end)
            elif how.error is not None:
                raise RecordsError(_why(tp, ranges[tp], how))
        return {tp: one for tp, one in left.items() if one.start < one.end}

    def _names(self, metadata: ClusterMetadata) -> list[str]:
        """Return the topics to read: internal ones only if named in full."""
        pushed = self.pushed.values.get("topic")
        if self.options.topics:
            return [name for name in choose(metadata, self.options.topics) if self.pushed.allows("topic", name)]
        if pushed is None:
            raise SettingsError(
                "kretain.records reads every record of its topics: name them, by the option topics or a filter on topic"
            )
        return sorted(pushed & metadata.topics.keys())

    def _within(self, span: Range) -> Range:
        low, end = self.pushed.bounds("offset")
        starts = [one for one in (self._from_offset, low) if one is not None]
        ends = [one for one in (self._to_offset, end) if one is not None]
        return Range(max(span.start, *starts), min(span.end, *ends)) if starts or ends else span

    def _batches(
        self, cluster: str, stream: Generator[tuple[TopicPartition, Columns], None, dict[TopicPartition, Ended]]
    ) -> Generator[pa.RecordBatch, None, dict[TopicPartition, Ended]]:
        while True:
            try:
                tp, columns = next(stream)
            except StopIteration as done:
                return dict(done.value)
            yield self._batch(cluster, tp, columns)

    def _batch(self, cluster: str, tp: TopicPartition, columns: Columns) -> pa.RecordBatch:
        np = numpy()
        times = columns.event_times
        if times is None:
            times = np.full(len(columns.offsets), -1, np.int64) if self._source is None else columns.timestamps
        offsets, stamps, sizes, tombstones = columns[:4]
        if self._from_ms is not None or self._to_ms is not None:
            kept = stamps >= max(0, self._from_ms or 0)
            if self._to_ms is not None:
                kept &= stamps < self._to_ms
            offsets, stamps, sizes, tombstones, times = (
                one[kept] for one in (offsets, stamps, sizes, tombstones, times)
            )
        count = len(offsets)
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(cluster, pa.string()), count),
                pa.repeat(pa.scalar(tp.topic, pa.string()), count),
                pa.repeat(pa.scalar(tp.partition, pa.int32()), count),
                pa.array(offsets),
                pa.array(stamps, mask=stamps < 0),
                pa.array(times, mask=times < 0),
                pa.array(sizes),
                pa.array(tombstones),
            ],
            schema=RECORDS,
        )


def _number(own: Mapping[str, str], name: str) -> int | None:
    if name not in own:
        return None
    if not own[name].isdecimal():
        raise SettingsError(f"option {name}: {own[name]!r} is no number of offsets")
    return int(own[name])


def _why(tp: TopicPartition, span: Range, how: Ended) -> str:
    whole = f"{tp}: of the records from offset {span.start:,} to {span.end:,}"
    if how.out_of_range:
        return (
            f"{whole} those from {how.offset:,} on were deleted before they could be read (by retention or a trim): "
            "read again, from.time or from.offset set to what stays meanwhile, or with the option gone: skip"
        )
    return f"{whole} only those before {how.offset:,} could be read: {how.error}; read again, with a longer timeout"


class RecordsSource(SlicedSource):
    """``kretain.records``."""

    format_name = "kretain.records"
    columns = RECORDS
    slices = RecordsReader
    own = _OWN
