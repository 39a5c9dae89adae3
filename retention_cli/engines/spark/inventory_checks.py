"""Compare an inventory's runs with each other, in tasks that have all runs of some partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from retention_cli.disks.inventory import doubts
from retention_cli.disks.solve.dictionary import words
from retention_cli.disks.solve.segments import NO_END, Flags, Ints
from retention_cli.engines.spark.parcels import Task, begins, cut, from_bytes, opened, parcels, rows_of, whole

FLAWED: Final = pa.schema([("file", pa.int32()), ("row", pa.int64()), ("rank", pa.int32()), ("problem", pa.string())])
"""What is wrong with a row, in the place of runs; ``rank`` is that of a ``Flaw`` (``disks/inventory/doubts.py``)."""

PLACE, FLAW, TWICE = range(3)
"""Kinds of rows."""
CHECKED: Final = pa.schema(
    [
        ("kind", pa.int8()),
        ("file", pa.int32()),
        ("broker", pa.int32()),
        ("dir", pa.string()),
        ("rows", pa.int64()),
        ("row", pa.int64()),
        ("rank", pa.int32()),
        ("problem", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
    ]
)
"""A place is a dir in a file, with its number of rows. A flaw is the first one found in a file; its ``problem`` is null
if a replica stands in two places. Twice is a replica in several dirs of its broker, with its first row's number."""

REPLICA: Final = ("file", "broker", "dir", "topic", "partition")
_NUMBERS: Final = ("file", "broker", "partition", "first_row", "last_row", "first_base", "last_base", "last_next")


def checker(keys: Ints) -> Task:
    """Return a task from all runs of some partitions (``slabs.SLABS``) to what they come to (:data:`CHECKED`), by file.

    Args:
        keys: the keys of groups of files.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if (table := whole(batches)) is not None:
            tables = [from_bytes(one.as_buffer()) for one in table["runs"]]
            flawed = [one for one in tables if "problem" in one.column_names]
            rows = [rows_of(CHECKED, len(one), kind=[FLAW] * len(one), **_columns(one)) for one in flawed]
            if runs := [one for one in tables if "problem" not in one.column_names]:
                rows += _compared(pa.concat_tables(runs))
            found = pa.concat_tables(rows)
            yield parcels(cut(found, found["file"].to_numpy() % len(keys), keys))

    return run


def join_checks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of :data:`CHECKED` as one parcel, each place once, from those of several slabs."""
    if (table := whole(batches)) is not None:
        found = opened(table["payload"])
        kind = found["kind"].to_numpy()
        places = found.filter(pa.array(kind == PLACE)).group_by(["file", "broker", "dir"]).aggregate([("rows", "sum")])
        names = ["file", "broker", "dir", "rows"]
        rows = dict(zip(names, (places[name] for name in (*names[:3], "rows_sum")), strict=True))
        joined = rows_of(CHECKED, len(places), kind=np.full(len(places), PLACE), **rows)
        yield parcels([(0, pa.concat_tables([joined, found.filter(pa.array(kind != PLACE))]))])


def _columns(table: Any) -> dict[str, Any]:
    return {name: table[name] for name in table.column_names}


def _compared(table: Any) -> Iterator[Any]:
    topics, topic = words(table["topic"])
    paths, path = words(table["dir"])
    columns = {name: table[name].to_numpy() for name in _NUMBERS} | {"dir": path, "topic": topic}
    order = np.lexsort([columns[name] for name in ("first_row", *reversed(REPLICA))])
    runs = {name: column[order] for name, column in columns.items()}
    after = ~begins(*(runs[name] for name in REPLICA))
    folders, names = pa.array(paths, pa.string()), pa.array(topics, pa.string())

    def rows(kind: int, some: Ints, **more: Any) -> Any:
        numbers = {name: runs[name][some] for name in ("file", "broker", "partition")}
        texts = {"dir": folders.take(pa.array(runs["dir"][some])), "topic": names.take(pa.array(runs["topic"][some]))}
        return rows_of(CHECKED, len(some), kind=np.full(len(some), kind), **numbers, **texts, **more)

    places = np.flatnonzero(begins(*(runs[name] for name in ("file", "broker", "dir"))))
    yield rows(PLACE, places, rows=np.add.reduceat(runs["last_row"] - runs["first_row"] + 1, places))
    for file in np.unique(runs["file"][after]).tolist():
        some = np.flatnonzero(after & (runs["file"] == file))
        if (found := _first_flaw(runs, some[np.argsort(runs["first_row"][some])])) is not None:
            flaw, run = found
            text = None
            if flaw.rank != doubts.APART:
                name = f"{topics[runs['topic'][run]]}-{runs['partition'][run]}"
                text = f"{name} at offset {int(runs['first_base'][run]):,} {flaw.text}"
            yield rows(FLAW, np.array([run]), row=[flaw.row], rank=[flaw.rank], problem=pa.array([text], pa.string()))
    replicas = np.flatnonzero(~after)
    again = replicas[_repeated(*(runs[name][replicas] for name in ("broker", "topic", "partition")))]
    yield rows(TWICE, again, row=runs["first_row"][again])


def _first_flaw(runs: Mapping[str, Ints], some: Ints) -> tuple[doubts.Flaw, int] | None:
    """Return the first flaw among runs that follow another run of their replica, by row, and the run that has it."""
    row, before = runs["first_row"][some], some - 1
    adjacent = row == runs["last_row"][before] + 1
    few = some[adjacent]
    ends, bases = runs["last_next"][few - 1], runs["last_base"][few - 1]
    flaw = doubts.out_of_order(row[adjacent], runs["first_base"][few], bases, ends, ends != NO_END)
    if flaw is None and not adjacent.all():
        flaw = doubts.Flaw(doubts.APART, int(row[np.argmin(adjacent)]), "")
    return None if flaw is None else (flaw, int(some[np.searchsorted(row, flaw.row)]))


def _repeated(broker: Ints, topic: Ints, partition: Ints) -> Flags:
    """Return a mask of the replicas that are there more than once: in several dirs of their broker."""
    key = np.stack((broker, topic, partition), axis=1).astype(np.int64)
    _, inverse, count = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    repeated: Flags = count[inverse.reshape(-1)] > 1
    return repeated
