"""Read an inventory of segments with Spark: this process reads only the files' footers, never a row."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from retention_cli.disks.inventory.inventory import (
    Footer,
    InventoryError,
    Scanned,
    agree,
    files_of,
    read_footer,
    twice,
    two_places,
)
from retention_cli.disks.solve.segments import Ints
from retention_cli.engines.spark.inventory_checks import CHECKED, FLAW, PLACE, TWICE, checker, join_checks
from retention_cli.engines.spark.inventory_runs import OTHER_FILE, ROWS_A_BATCH, ROWS_A_TASK, pieces, scanner
from retention_cli.engines.spark.parcels import PARCELS, joined
from retention_cli.engines.spark.schemas import ddl
from retention_cli.engines.spark.session import last_words
from retention_cli.engines.spark.shuffle_keys import keys
from retention_cli.engines.spark.slabs import SLABS

ROWS_A_SLAB: Final = 500_000
"""About how many segments a task has in memory at a time."""
_JOINING: Final = 4
"""How many tasks join what is known of files."""
_SEEN: Final = "it must lie, by the same path, where this process and every executor see it"


@dataclass(frozen=True, slots=True)
class SparkInventory(Scanned):
    """The segments on the disks of one cluster's brokers. A context manager: on exit it frees the frames Spark keeps.

    ``slabs`` is a frame of :data:`~retention_cli.engines.spark.slabs.SLABS` that Spark keeps, shuffled by slab: each
    has all replicas of its partitions, and one of ``keys``. ``rows`` is the number of segments. ``incomplete`` maps
    replicas (broker, topic, partition) of which something is unknown to the reason: rows may be missing, or have nulls.
    ``dirs`` are the (broker, dir) that were scanned.
    """

    slabs: Any
    keys: Ints
    incomplete: dict[tuple[int, str, int], str]
    dirs: frozenset[tuple[int, str]]
    rows: int

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the frames that Spark keeps."""
        self.slabs.unpersist()


def read_inventory(session: Any, paths: Sequence[str | Path]) -> SparkInventory:
    """Read inventories: files, or folders of ``*.parquet``. Spark reads their rows once, and validates them.

    Raises:
        InventoryError: as :func:`retention_cli.disks.inventory.inventory.read_inventory`; or Spark can't read them, or
            reads other files than this process does.
    """
    files = files_of(paths)
    footers = [read_footer(path) for path in files]
    agree([one.about for one in footers])
    try:
        return _read(session, files, footers)
    except InventoryError:
        raise
    except Exception as error:  # noqa: BLE001  (PySpark's own, Py4J's, gRPC's: all mean the same here)
        raise InventoryError(f"Spark can't read the inventory: {last_words(error)}; {_SEEN}") from None


def place_of(path: Path) -> str:
    """Return where tasks read a file: links are not resolved, as they may differ from machine to machine."""
    return os.path.abspath(path)  # noqa: PTH100


def _read(session: Any, files: Sequence[Path], footers: Sequence[Footer]) -> SparkInventory:
    tasks = pieces([place_of(path) for path in files], footers, ROWS_A_TASK)
    rows = sum(one.rows for one in footers)
    slab_keys = keys(max(1, -(-rows // ROWS_A_SLAB)))
    numbers = session.range(0, len(tasks), 1, max(1, len(tasks)))
    scan = scanner(tasks, ROWS_A_BATCH, ROWS_A_TASK, slab_keys)
    slabs = numbers.mapInArrow(scan, ddl(SLABS)).repartition(len(slab_keys), "key").persist()
    try:
        dirs, again = _checked(slabs, files, footers)
    except BaseException:
        slabs.unpersist()
        raise
    incomplete: dict[tuple[int, str, int], str] = {}
    for one in footers:
        incomplete.update(one.incomplete)
    incomplete.update(again)
    abouts = tuple(one.about for one in footers)
    return SparkInventory(abouts, slabs, slab_keys, incomplete, dirs | Scanned(abouts).scanned_dirs, rows)


def _checked(
    slabs: Any, files: Sequence[Path], footers: Sequence[Footer]
) -> tuple[frozenset[tuple[int, str]], dict[tuple[int, str, int], str]]:
    """Return the (broker, dir) that have rows, and the replicas that are in two dirs of a broker, with the reason.

    Raises:
        InventoryError: a file is invalid, or Spark reads another one than this process.
    """
    groups = keys(min(_JOINING, len(files)))
    parts = slabs.select("key", "runs").mapInArrow(checker(groups), ddl(PARCELS))
    kinds: dict[int, list[Any]] = {PLACE: [], FLAW: [], TWICE: []}
    for row in joined(parts, len(groups), join_checks, CHECKED).to_pylist():
        kinds[row["kind"]].append(row)
    seen: dict[int, int] = {}
    for row in kinds[PLACE]:
        seen[row["file"]] = seen.get(row["file"], 0) + row["rows"]
    first = {row["file"]: row for row in sorted(kinds[FLAW], key=lambda row: (row["rank"], row["row"]), reverse=True)}
    for number, (path, footer) in enumerate(zip(files, footers, strict=True)):
        if (flaw := first.get(number)) is not None:
            text = flaw["problem"] or two_places(flaw["dir"], flaw["topic"], flaw["partition"])
            if flaw["rank"] == OTHER_FILE:
                raise InventoryError(f"{path} {text}: {_SEEN}")
            raise InventoryError(f"{path}: {text}: scan again")
        if (rows := seen.get(number, 0)) != footer.rows:
            raise InventoryError(f"{path} has {footer.rows:,} rows here, and {rows:,} where Spark reads it: {_SEEN}")
    places = sorted(kinds[TWICE], key=lambda row: (row["file"], row["row"]))
    again = twice((row["broker"], row["dir"], row["topic"], row["partition"]) for row in places)
    return frozenset((row["broker"], row["dir"]) for row in kinds[PLACE]), again
