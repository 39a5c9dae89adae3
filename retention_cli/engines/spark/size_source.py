"""The data source ``kretain.sizes``: replicas in brokers' log dirs, and how full volumes are (docs/spark.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.log_dirs import LogDirState
from retention_cli.core.model import Maybe, Reason, Unknown, known
from retention_cli.engines.spark.connections import check_cluster
from retention_cli.engines.spark.fact_rows import Row, unknown_rows
from retention_cli.engines.spark.frames import batches_of
from retention_cli.engines.spark.schemas import SIZES
from retention_cli.engines.spark.source_options import Slice, SlicedReader, SlicedSource


@dataclass
class _BrokerSlice(Slice):
    broker: int
    alive: bool


class SizesReader(SlicedReader):
    """Asks each broker for its log dirs, one task per broker. Rows as ``schemas.SIZES``."""

    pushed_columns = ("broker", "topic", "partition")

    def partitions(self) -> Sequence[InputPartition]:
        """Make a slice for each broker that exists, or should exist because replicas are assigned to it.

        Raises:
            BrokerError: no broker answered.
        """
        with self.options.reader() as reader:
            metadata = reader.metadata()
        assigned = {
            broker for topic in metadata.topics.values() for one in topic.partitions.values() for broker in one.replicas
        }
        return [
            _BrokerSlice(metadata.cluster_id, broker, broker in metadata.brokers)
            for broker in sorted(metadata.brokers | assigned)
            if self.pushed.allows("broker", broker)
        ]

    def read_slice(self, one: _BrokerSlice) -> Iterator[pa.RecordBatch]:
        """Read one broker's dirs. If that fails, yield a row without a dir, whose ``unknown`` has the reason."""
        if not one.alive:
            found: Sequence[LogDirState] | BrokerError = BrokerError(
                "the broker has replicas assigned, and is not among the cluster's live brokers: is it down?"
            )
        else:
            found = self._ask(one.cluster, one.broker)
        place = {"cluster": one.cluster, "broker": one.broker}
        yield from batches_of((place | row for row in self._rows(found)), SIZES)

    def _ask(self, cluster: str, broker: int) -> Sequence[LogDirState] | BrokerError:
        reader = self.options.reader()  # a missing or invalid file fails the frame, it is not a broker's error
        try:
            with reader:
                check_cluster(reader, cluster)
                return reader.log_dirs([broker])[broker]
        except BrokerError as error:
            return error

    def _rows(self, found: Sequence[LogDirState] | BrokerError) -> Iterator[Row]:
        if isinstance(found, BrokerError):
            yield {"unknown": _unknown(dict.fromkeys(_KNOWN_OF_A_DIR, Unknown.because("disk", str(found))))}
            return
        for folder in found:
            yield from self._rows_of(folder)

    def _rows_of(self, folder: LogDirState) -> Iterator[Row]:
        volume: dict[str, Maybe[int]] = {"total_bytes": folder.total_bytes, "usable_bytes": folder.usable_bytes}
        about = {"log_dir": folder.path} | {name: known(value) for name, value in volume.items()}
        empty = True
        for one in folder.replicas:
            if not self._wanted(one.tp.topic, one.tp.partition):
                continue
            empty = False
            lag: Maybe[int] = _NO_LAG if one.offset_lag is None else one.offset_lag
            yield about | {
                "topic": one.tp.topic,
                "partition": one.tp.partition,
                "bytes": one.size_bytes,
                "offset_lag": one.offset_lag,
                "is_future": one.future,
                "unknown": _unknown({"offset_lag": lag, **volume}),
            }
        if folder.error is not None:
            lost = Unknown.because("disk", f"log dir {folder.path}: {folder.error}: what lies there is not known")
            yield about | {"unknown": _unknown(dict.fromkeys(_KNOWN_OF_A_DIR, lost))}
        elif empty:
            yield about | {"unknown": _unknown(volume)}

    def _wanted(self, topic: str, partition: int) -> bool:
        pushed = self.pushed
        return self.options.takes(topic) and pushed.allows("topic", topic) and pushed.allows("partition", partition)


_KNOWN_OF_A_DIR: Final = ("bytes", "total_bytes", "usable_bytes")
_NO_LAG: Final = Unknown((Reason("disk", "the broker does not know it"),))


def _unknown(values: dict[str, Maybe[int]]) -> list[Row]:
    return [row for name, value in values.items() if isinstance(value, Unknown) for row in unknown_rows(name, value)]


class SizesSource(SlicedSource):
    """``kretain.sizes``."""

    format_name = "kretain.sizes"
    columns = SIZES
    slices = SizesReader
