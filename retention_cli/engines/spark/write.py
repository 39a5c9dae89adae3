"""Tasks write their part of the plan as Parquet: where the client's folder is theirs, too, into it, else into a row.

A task that is tried again writes another file. The client reads those files alone that Spark hands back to it, each
from the one attempt that counts.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from retention_cli.engines.spark.decided import decided_batch
from retention_cli.engines.spark.fact_tasks import Reading, Slice
from retention_cli.engines.spark.frames import ArrowTask
from retention_cli.engines.spark.schemas import CHUNK, TOLD, WRITTEN

SIGN: Final = "kretain-is-here"
"""A file in the client's folder, by whose content a task knows that it sees that very folder."""


@dataclass(frozen=True, slots=True)
class Outbox:
    """The client's folder, where tasks see it: on this machine, or on a file system that all share."""

    folder: str
    sign: str

    @classmethod
    def at(cls, folder: Path) -> Outbox:
        """Put up the sign in a folder of the client's."""
        sign = uuid.uuid4().hex
        (folder / SIGN).write_text(sign)
        return cls(str(folder), sign)

    def is_here(self) -> bool:
        """Return whether this task sees the folder."""
        try:
            return (Path(self.folder) / SIGN).read_text() == self.sign
        except OSError:
            return False

    def write(self, cluster: str, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        """Write a part of a cluster's plan, rows of ``schemas.CHUNK`` by position; return a row of ``WRITTEN``."""
        name = f"{uuid.uuid4().hex}.parquet"
        here = self.is_here()
        sink: Any = io.BytesIO() if not here else Path(self.folder) / name
        rows = 0
        with pq.ParquetWriter(sink, CHUNK, compression="lz4", write_page_checksum=True) as file:
            for batch in batches:
                file.write_batch(batch)
                rows += batch.num_rows
        row = {"cluster": cluster, "rows": rows, "file": name if here else None}
        return pa.RecordBatch.from_pylist([{**row, "content": None if here else sink.getvalue()}], schema=WRITTEN)


def plan_writer(read: Reading, outbox: Outbox) -> ArrowTask:
    """Return the task that reads, decides and writes: from rows of ``schemas.READ`` to rows of ``schemas.WRITTEN``."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for piece, slices in read(batches):
            yield outbox.write(piece.cluster, map(chunk_of, slices))

    return run


def chunk_of(one: Slice) -> pa.RecordBatch:
    """Return a slice's decisions, and what is remembered of it, as a batch of ``schemas.CHUNK``."""
    decided = decided_batch(one.facts, one.job.settings, one.job.now_ms)
    told = [pa.array(one.told[field.name], field.type) for field in TOLD]
    return pa.RecordBatch.from_arrays([*decided.columns, *told], schema=CHUNK)
