"""Read an inventory of segments with Spark: this process reads only the files' footers, never a row."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote

import pyarrow as pa

from retention_cli.disks.inventory.doubts import DISORDER, GAP, OVERLAP
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
from retention_cli.disks.inventory.table import schema
from retention_cli.engines.spark.frames import as_frame
from retention_cli.engines.spark.inventory_runs import APART, DISORDERED, READ, RUNS, runs
from retention_cli.engines.spark.schemas import ddl
from retention_cli.engines.spark.session import last_words

REPLICA: Final = ("file", "broker", "dir", "topic", "partition")
_CHECKSUMS: Final = "parquet.page.verify-checksum.enabled"
_SEEN: Final = "it must lie, by the same path, where this process and every executor see it"


@dataclass(frozen=True, slots=True)
class SparkInventory(Scanned):
    """The segments on the disks of one cluster's brokers. A context manager: on exit it frees the frames Spark keeps.

    ``frame`` has the columns of :data:`~retention_cli.disks.inventory.table.COLUMNS`, which Spark reads again for every
    use, and ``rows`` rows. ``incomplete`` maps replicas (broker, topic, partition) of which something is unknown to the
    reason: rows may be missing, or have nulls. ``replicas`` is a frame of broker, dir, topic and partition, a row per
    replica that has any segment; ``dirs`` are the (broker, dir) that were scanned.
    """

    frame: Any
    incomplete: dict[tuple[int, str, int], str]
    replicas: Any
    dirs: frozenset[tuple[int, str]]
    rows: int

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the frames that Spark keeps."""
        self.replicas.unpersist()


def read_inventory(session: Any, paths: Sequence[str | Path]) -> SparkInventory:
    """Read inventories: files, or folders of ``*.parquet``. Spark reads their rows once, to validate them.

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


def _read(session: Any, files: Sequence[Path], footers: Sequence[Footer]) -> SparkInventory:
    from pyspark.sql.pandas.types import from_arrow_schema

    reader = session.read.schema(from_arrow_schema(schema())).option(_CHECKSUMS, "true")
    frame = reader.parquet(*(file_address(path) for path in files))
    numbers = {os.path.abspath(path): number for number, path in enumerate(files)}  # noqa: PTH100  (resolves no links)
    replicas = _replicas(_encoded(session, frame, numbers, footers)).persist()
    try:
        dirs = _checked(replicas, files, footers)
        incomplete: dict[tuple[int, str, int], str] = {}
        for one in footers:
            incomplete.update(one.incomplete)
        incomplete.update(_twice(replicas))
    except BaseException:
        replicas.unpersist()
        raise
    abouts = tuple(one.about for one in footers)
    return SparkInventory(
        abouts,
        frame,
        incomplete,
        replicas,
        dirs | Scanned(abouts).scanned_dirs,
        sum(one.rows for one in footers),
    )


def file_address(path: Path) -> str:
    """Return a file's address for Spark, with its wildcard characters escaped."""
    return "file://" + re.sub(r"([\\*?\[\]{}])", r"\\\1", os.path.abspath(path))  # noqa: PTH100


def _encoded(session: Any, frame: Any, numbers: Mapping[str, int], footers: Sequence[Footer]) -> Any:
    """Return the rows with their file's number and broker. Rows of a file whose name Spark changes are left out."""
    from pyspark.sql import functions as f

    known: dict[str, tuple[int, int]] = {}
    for one in frame.inputFiles():
        path = re.sub("^file:/+", "/", one)
        number = numbers.get(unquote(path))
        if number is not None:  # Spark spells it in two ways
            known["file:" + path] = known["file://" + path] = (number, footers[number].about.broker)
    table = pa.table(
        {
            "path": pa.array(list(known), pa.string()),
            "file": pa.array([number for number, _ in known.values()], pa.int32()),
            "file_broker": pa.array([broker for _, broker in known.values()], pa.int32()),
        }
    )
    rows = frame.select("*", f.col("_metadata.file_path").alias("path"), f.col("_metadata.row_index").alias("row"))
    return rows.join(f.broadcast(as_frame(session, table)), "path").select(*READ)


def _replicas(rows: Any) -> Any:
    """Return a row per replica: its first position, its rows, and what is wrong with it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    window = Window.partitionBy(*REPLICA).orderBy("first_row")
    before = {name: f.lag(name).over(window) for name in ("last_row", "last_base", "last_next")}
    where = f.concat(
        "topic", f.lit("-"), "partition", f.lit(" at offset "), f.format_number("first_base", 0), f.lit(" ")
    )
    apart = f.col("first_row") != before["last_row"] + 1
    wrong = (
        f.when(f.col("problem").isNotNull(), f.struct("rank", f.col("first_row").alias("row"), "problem"))
        .when(apart, _problem(APART, f.lit("")))
        .when(f.col("first_base") <= before["last_base"], _problem(DISORDERED, f.concat(where, f.lit(DISORDER))))
        .when(f.col("first_base") < before["last_next"], _problem(DISORDERED, f.concat(where, f.lit(OVERLAP))))
        .when(f.col("first_base") > before["last_next"], _problem(DISORDERED, f.concat(where, f.lit(GAP))))
    )
    return (
        rows.mapInArrow(runs, ddl(RUNS))
        .select("*", wrong.alias("wrong"))
        .groupBy(*REPLICA)
        .agg(
            f.min("first_row").alias("row"),
            f.sum(f.col("last_row") - f.col("first_row") + 1).alias("rows"),
            f.min("wrong").alias("wrong"),
        )
    )


def _problem(rank: int, text: Any) -> Any:
    from pyspark.sql import functions as f

    return f.struct(f.lit(rank).alias("rank"), f.col("first_row").alias("row"), text.alias("problem"))


def _checked(replicas: Any, files: Sequence[Path], footers: Sequence[Footer]) -> frozenset[tuple[int, str]]:
    """Return the (broker, dir) that have rows.

    Raises:
        InventoryError: a file is invalid, or Spark reads another number of rows than this process.
    """
    from pyspark.sql import functions as f

    worst = f.min(f.when(f.col("wrong").isNotNull(), f.struct("wrong", "dir", "topic", "partition")))
    found = replicas.groupBy("file").agg(
        f.sum("rows").alias("rows"), worst.alias("worst"), f.collect_set(f.struct("broker", "dir")).alias("dirs")
    )
    by_file = {row["file"]: row for row in found.collect()}
    for number, (path, footer) in enumerate(zip(files, footers, strict=True)):
        row = by_file.get(number)
        if row is not None and row["worst"] is not None:
            worst = row["worst"]
            text = worst["wrong"]["problem"] or two_places(worst["dir"], worst["topic"], worst["partition"])
            raise InventoryError(f"{path}: {text}: scan again")
        seen = 0 if row is None else row["rows"]
        if seen != footer.rows:
            raise InventoryError(f"{path} has {footer.rows:,} rows here, and {seen:,} where Spark reads it: {_SEEN}")
    return frozenset((one["broker"], one["dir"]) for row in by_file.values() for one in row["dirs"])


def _twice(replicas: Any) -> dict[tuple[int, str, int], str]:
    from pyspark.sql import functions as f

    place = f.sort_array(f.collect_list(f.struct("file", "row", "dir")))
    found = replicas.groupBy("broker", "topic", "partition").agg(place.alias("places")).where("size(places) > 1")
    rows = [
        (one["file"], one["row"], row["broker"], one["dir"], row["topic"], row["partition"])
        for row in found.collect()
        for one in row["places"]
    ]
    return twice((broker, folder, topic, partition) for _, _, broker, folder, topic, partition in sorted(rows))
