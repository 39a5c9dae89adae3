"""Put together in the client what tasks have written: each cluster's rows once, whole and in order."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention_cli.engines.spark.schemas import CHUNK
from retention_cli.engines.spark.session import SparkError

_ROWS: Final = 4_000
"""So many rows of each part are in memory at a time."""
_PARTS_AT_ONCE: Final = 64
_NAME: Final = re.compile(r"[0-9a-f]{32}\.parquet")


def received(written: Any, folder: Path) -> dict[str, list[Path]]:
    """Return each cluster's files, in no order. This makes Spark read, decide and write.

    Args:
        written: a frame of ``schemas.WRITTEN`` that Spark keeps.
        folder: the client's, in which tasks have written the files if they saw it.

    Raises:
        SparkError: Spark hands back what no task of ours writes.
    """
    found: dict[str, list[Path]] = {}
    missing: set[str] = set()
    for row in written.select("cluster", "file").collect():
        files = found.setdefault(row["cluster"], [])
        if row["file"] is None:
            missing.add(row["cluster"])
        elif _NAME.fullmatch(row["file"]) is None:
            raise SparkError("a task hands back the name of a file that it can't have written")
        else:
            files.append(folder / row["file"])
    for cluster in sorted(missing):  # a cluster at a time: together they may be more than fits
        rows = written.where((written.cluster == cluster) & written.content.isNotNull()).select("content")
        for row in rows.toLocalIterator() if len(missing) == 1 else rows.collect():
            file = folder / f"{uuid.uuid4().hex}.parquet"
            file.write_bytes(row["content"])
            found[cluster].append(file)
    return found


def in_order(files: Sequence[Path], count: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Yield the rows of all files as tables, by position; each file's rows are in order.

    Args:
        files: Parquet of ``schemas.CHUNK``.
        count: how many rows there must be: one of each position.
        columns: those that are wanted.

    Raises:
        SparkError: a row is missing, or there twice.
    """
    expected = 0
    for table in _merged([_batches(one, columns) for one in _few(files)]):
        at = table.column("at").to_numpy()
        if not np.array_equal(at, np.arange(expected, expected + len(at))):
            raise SparkError("what the tasks have written is not whole: rows are missing, or there twice; run again")
        expected += len(at)
        yield table
    if expected != count:
        raise SparkError(f"what the tasks have written is not whole: {expected:,} rows of {count:,}; run again")


def _few(files: Sequence[Path]) -> list[Path]:
    """Return at most as many files as may be open at a time: of more, some are merged into others before."""
    few = [*files]
    while len(few) > _PARTS_AT_ONCE:
        some, few = few[:_PARTS_AT_ONCE], few[_PARTS_AT_ONCE:]
        few.append(some[0].with_name(f"{uuid.uuid4().hex}.parquet"))
        with pq.ParquetWriter(few[-1], CHUNK, compression="lz4", write_page_checksum=True) as merged:
            for table in _merged([_batches(one, None) for one in some]):
                merged.write_table(table)
        for one in some:
            one.unlink()
    return few


def _batches(file: Path, columns: Sequence[str] | None) -> Iterator[Any]:
    with pq.ParquetFile(file, page_checksum_verification=True) as open_file:
        for batch in open_file.iter_batches(_ROWS, columns=columns, use_threads=False):
            if batch.num_rows:
                yield pa.Table.from_batches([batch])


def _merged(parts: Sequence[Iterator[Any]]) -> Iterator[Any]:
    """Yield the rows of all parts in order: always those up to which every part has been read."""
    waiting: dict[int, Any] = {}
    for number, part in enumerate(parts):
        if (first := next(part, None)) is not None:
            waiting[number] = first
    while waiting:
        ends = {number: table.column("at").to_numpy() for number, table in waiting.items()}
        until = min(int(at[-1]) for at in ends.values())
        some = []
        for number, at in ends.items():
            taken = int(np.searchsorted(at, until, side="right"))
            some.append(waiting[number].slice(0, taken))
            if taken < len(at):
                waiting[number] = waiting[number].slice(taken)
            elif (more := next(parts[number], None)) is not None:
                waiting[number] = more
            else:
                del waiting[number]
        table = pa.concat_tables(some)
        yield table if len(some) == 1 else table.take(np.argsort(table.column("at").to_numpy(), kind="stable"))
