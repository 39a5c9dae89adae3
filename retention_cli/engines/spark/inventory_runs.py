"""Read an inventory's files in tasks: as runs of segments, by slab.

A run is a sequence of adjacent rows in one batch, of one replica and one topic id. Errors within a run are found here;
runs are compared with each other by :mod:`retention_cli.engines.spark.inventory_checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_cli.disks.inventory import doubts
from retention_cli.disks.inventory.inventory import Footer, footer_digest
from retention_cli.disks.inventory.table import LATER, schema
from retention_cli.disks.solve.inventory_view import COLUMNS
from retention_cli.disks.solve.segments import NO_END, UNDATED, Ints
from retention_cli.engines.spark.inventory_checks import FLAWED
from retention_cli.engines.spark.packed import Run
from retention_cli.engines.spark.parcels import Task, begins, rows_of, slab_numbers, to_bytes
from retention_cli.engines.spark.slabs import RUNS, SLABS, Slab
from retention_cli.engines.spark.worker import settle

ROWS_A_TASK: Final = 500_000
ROWS_A_BATCH: Final = 65_536
OTHER_FILE: Final = -1
"""The rank of a file that is not the one that the client sees."""
_READ: Final = (*COLUMNS, "mtime")
_WORDS: Final = ("dir", "topic", "topic_id")


class Piece(NamedTuple):
    """Row groups of a file, from ``first`` to before ``end``; ``row`` is the number of the first row.

    ``file`` is the file's number, ``broker`` its broker, ``rows`` and ``digest`` are as in its footer.
    """

    file: int
    path: str
    broker: int
    rows: int
    digest: bytes
    first: int
    end: int
    row: int


def pieces(paths: Sequence[str], footers: Sequence[Footer], rows_a_task: int) -> list[list[Piece]]:
    """Return the pieces of each task: small files together, large ones cut between row groups."""
    tasks: list[list[Piece]] = []
    room = 0
    for number, (path, footer) in enumerate(zip(paths, footers, strict=True)):
        row = first = 0
        while first < len(footer.groups):
            if room <= 0:
                tasks.append([])
                room = rows_a_task
            end = first + 1
            taken = footer.groups[first]
            while end < len(footer.groups) and taken + footer.groups[end] <= room:
                taken += footer.groups[end]
                end += 1
            tasks[-1].append(Piece(number, path, footer.about.broker, footer.rows, footer.digest, first, end, row))
            first, row, room = end, row + taken, room - taken
    return tasks


def scanner(tasks: Sequence[Sequence[Piece]], rows_a_batch: int, rows_at_once: int, keys: Ints) -> Task:
    """Return a task for ``mapInArrow``: from task numbers to the runs in their pieces, by slab (``slabs.SLABS``).

    In the place of a batch with wrong rows, whose runs are left out, is one of them (``inventory_checks.FLAWED``).

    Args:
        tasks: the pieces that each task reads.
        rows_a_batch: how many rows are read at a time.
        rows_at_once: how many rows are collected before they are cut into slabs.
        keys: the slabs' keys.
    """

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        waiting: list[tuple[Any, Run]] = []
        rows = 0
        for piece in (one for batch in batches for number in batch.column(0).to_pylist() for one in tasks[number]):
            for found in _scan(piece, rows_a_batch):
                if isinstance(found, doubts.Flaw):
                    flaw = {"file": [piece.file], "row": [found.row], "rank": [found.rank]}
                    table = rows_of(FLAWED, 1, **flaw, problem=[found.text])
                    yield pa.RecordBatch.from_pylist([{"key": int(keys[0]), "runs": to_bytes(table)}], schema=SLABS)
                    continue
                waiting.append(found)
                rows += len(found[1].active)
                if rows >= rows_at_once:
                    yield from _by_slab(waiting, keys)
                    waiting, rows = [], 0
        yield from _by_slab(waiting, keys)

    return scan


def _by_slab(some: Sequence[tuple[Any, Run]], keys: Ints) -> Iterator[pa.RecordBatch]:
    if some:
        runs = pa.concat_tables([table for table, _ in some])
        segments = Run(*(np.concatenate(columns) for columns in zip(*(run for _, run in some), strict=True)))
        counts = runs["last_row"].to_numpy() - runs["first_row"].to_numpy() + 1
        group = slab_numbers(runs["topic"], runs["partition"].to_numpy(), len(keys))
        yield from Slab(runs, segments, counts).cut(group, keys).to_batches()


def _scan(piece: Piece, rows_a_batch: int) -> Iterator[tuple[Any, Run] | doubts.Flaw]:
    """Yield the runs in each batch of a piece (``slabs.RUNS``) and their segments, or what is wrong with it."""
    with (
        pa.OSFile(piece.path) as opened,
        pq.ParquetFile(opened, read_dictionary=[*_WORDS], page_checksum_verification=True) as file,
    ):
        if file.metadata.num_rows != piece.rows:
            there = f"has {piece.rows:,} rows here, and {file.metadata.num_rows:,} where Spark reads it"
            yield doubts.Flaw(OTHER_FILE, 0, there)
            return
        if footer_digest(opened) != piece.digest:
            yield doubts.Flaw(OTHER_FILE, 0, "is another file where Spark reads it")
            return
        have = {*file.schema_arrow.names}
        row = piece.row
        for batch in file.iter_batches(
            rows_a_batch, [*range(piece.first, piece.end)], [one for one in _READ if one in have], use_threads=False
        ):
            if batch.num_rows:
                table = pa.Table.from_batches([batch])
                for name in sorted(LATER - have):
                    kind = schema().field(name)
                    table = table.append_column(kind, pa.nulls(len(table), kind.type))
                yield _runs(piece, row, table)
            row += batch.num_rows


def _runs(piece: Piece, row: int, table: Any) -> tuple[Any, Run] | doubts.Flaw:
    """Return the runs in a batch and their segments, or the first flaw in it; ``row`` is the first row's number."""
    if (found := doubts.lacking(table)) is not None:
        return found._replace(row=row + found.row)
    starts: Any = None
    if (found := doubts.wrong(table, piece.broker)) is None:
        starts = doubts.starts(table)
        found = doubts.disordered(table, starts)
    if found is not None:
        return found._replace(row=row + found.row, text=f"{doubts.row_name(table, found.row)} {found.text}")
    named = table["topic_id"].combine_chunks()
    named = named.chunk(0) if isinstance(named, pa.ChunkedArray) else named
    other = begins(named.indices.fill_null(-1).to_numpy(zero_copy_only=False))
    other[starts] = True
    starts = np.flatnonzero(other)
    ends = np.append(starts[1:], len(table)) - 1
    run = Run(
        table["base_offset"].to_numpy(),
        pc.fill_null(table["next_offset"], NO_END).to_numpy(),
        table["bytes"].to_numpy(),
        table["log_bytes"].to_numpy(),
        pc.fill_null(table["largest_timestamp"], UNDATED).to_numpy(),
        table["active"].to_numpy(zero_copy_only=False),
    )
    epochs = np.maximum.reduceat(pc.fill_null(table["leader_epoch"], -1).to_numpy(), starts)
    few = table.select(["broker", "partition", *_WORDS]).take(pa.array(starts))
    runs = rows_of(
        RUNS,
        len(starts),
        file=np.full(len(starts), piece.file),
        **{name: few[name] for name in few.column_names},
        leader_epoch=pa.array(epochs, pa.int32(), mask=epochs < 0),
        first_row=row + starts,
        last_row=row + ends,
        first_base=run.base_offset[starts],
        last_base=run.base_offset[ends],
        last_next=run.next_offset[ends],
    )
    return runs, run
