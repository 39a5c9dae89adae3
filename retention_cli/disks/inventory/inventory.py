"""Read inventories: one table of many files, none of which is trusted before it is validated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from retention_cli.core.extras import arrow
from retention_cli.core.file_problems import parquet_problem
from retention_cli.core.files import open_regular
from retention_cli.core.units import UnitError, parse_time_ms
from retention_cli.disks.inventory import doubts
from retention_cli.disks.inventory.errors import InventoryError
from retention_cli.disks.inventory.table import COLUMNS, FORMAT, LATER, METADATA_KEY, schema

_DICTIONARY: Final = ("dir", "topic", "topic_id", "problem")
_DIR_NUMBERS: Final = (
    *("total_bytes", "usable_bytes", "topics", "partitions", "segments", "bytes", "log_bytes", "pending_bytes"),
    *("future_bytes", "stray_bytes", "ignored", "unread"),
)
"""The figures of each log dir in a file's metadata."""
MOST_ROWS: Final = 25_000_000
"""The most rows that are read from a file. A row takes about 110 bytes of memory, and may take none in the file."""
MOST_BYTES: Final = 8 << 30
"""The most bytes that a file's pages may have, uncompressed."""


@dataclass(frozen=True, slots=True)
class InventoryFile:
    """One file of an inventory. ``dirs`` has the figures of each log dir, by the keys in docs/segments.md."""

    path: str
    broker: int
    cluster_id: str | None
    scanned_at_ms: int
    dirs: tuple[dict[str, Any], ...]


_Read = tuple[InventoryFile, Any, dict[tuple[int, str, int], str]]
"""A file: what it says of itself, its table, and the replicas that its scan could not read, with the reasons."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """The files of one cluster's inventory, independent of how their rows are read."""

    files: tuple[InventoryFile, ...]

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, None if no file has one."""
        return next((one.cluster_id for one in self.files if one.cluster_id is not None), None)

    @property
    def brokers(self) -> frozenset[int]:
        """The brokers whose disks were scanned."""
        return frozenset(one.broker for one in self.files)

    @property
    def scanned_dirs(self) -> frozenset[tuple[int, str]]:
        """Every (broker, log dir) that was scanned, including those without segments."""
        return frozenset((file.broker, str(one.get("path"))) for file in self.files for one in file.dirs)

    def age_ms(self, now_ms: int) -> int:
        """Return the age of the oldest file (ms); negative if it was written by a machine whose clock is ahead."""
        return now_ms - min(one.scanned_at_ms for one in self.files)

    def check_cluster(self, cluster_id: str) -> None:
        """Check that the inventory is of this cluster.

        Raises:
            InventoryError: it is another cluster's.
        """
        if self.cluster_id not in (None, cluster_id):
            raise InventoryError(f"the inventory is of cluster {self.cluster_id}, this is {cluster_id}")


@dataclass(frozen=True, slots=True)
class Inventory(Scanned):
    """The segments on the disks of brokers of one cluster.

    ``table`` is a pyarrow Table of the columns in :data:`~retention_cli.disks.inventory.table.COLUMNS`; ``dir``,
    ``topic``, ``topic_id`` and ``problem`` are dictionaries. The rows of a dir, topic and partition are consecutive,
    in the order of base offsets. ``incomplete`` maps replicas (broker, topic, partition) of which something is unknown
    to the reason: rows may be missing, or contain nulls. ``unread`` says why files were left out: their brokers' disks
    are as if they had not been scanned.
    """

    table: Any
    incomplete: dict[tuple[int, str, int], str]
    unread: tuple[str, ...] = ()


def read_inventory(paths: Sequence[str | Path], columns: Iterable[str] | None = None) -> Inventory:
    """Read inventories: files, or folders of ``*.parquet``. With ``columns`` the table has only these.

    A file of several that can't be read, is of another format, lacks columns, or has impossible rows is left out.

    Raises:
        InventoryError: no file could be read, or there is none; two files have the same dir of a broker, or are of two
            clusters.
        MissingPartError: pyarrow is not installed.
    """
    arrow()
    wanted = {*columns} if columns is not None else {name for name, _, _ in COLUMNS}
    whose = {"broker", "dir", "topic", "partition"}
    read, unread = _readable(files_of(paths), [name for name, _, _ in COLUMNS if name in wanted | whose])
    abouts = [about for about, _, _ in read]
    agree(abouts)
    incomplete: dict[tuple[int, str, int], str] = {}
    for _, _, mine in read:
        incomplete.update(mine)
    incomplete.update(twice(_by_broker([table for _, table, _ in read])))
    table = arrow().concat_tables([table for _, table, _ in read]).unify_dictionaries()
    table = table.select([name for name, _, _ in COLUMNS if name in wanted])
    return Inventory(tuple(abouts), table, incomplete, unread)


def _readable(files: Sequence[Path], columns: Sequence[str]) -> tuple[list[_Read], tuple[str, ...]]:
    """Return these columns of what could be read, and why the other files could not.

    Raises:
        InventoryError: that is nothing.
    """
    found: list[_Read] = []
    problems: list[InventoryError] = []
    for path in files:
        try:
            about, table, incomplete = _read(path)
            found.append((about, table.select(columns), incomplete))  # the others go at once
        except InventoryError as error:
            problems.append(error)
    if problems and not found:
        raise problems[0]
    return found, tuple(map(str, problems))


def files_of(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files, those of folders sorted by name.

    Raises:
        InventoryError: there is no file.
    """
    files: list[Path] = []
    for given in paths:
        path = Path(given)
        files += sorted(path.glob("*.parquet")) if path.is_dir() else (path,)
    if not files:
        raise InventoryError("no inventory: name a file that `kretain segments scan --out` wrote, or a folder of them")
    return files


def _check_size(path: Path, metadata: Any) -> None:
    """Check a file's size before it is read: equal rows take next to nothing in it, and all of their memory here."""
    size = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
    if metadata.num_rows > MOST_ROWS:
        raise InventoryError(f"{path} has {metadata.num_rows:,} rows, and at most {MOST_ROWS:,} are read: scan again")
    if size > MOST_BYTES:
        raise InventoryError(f"{path} has {size >> 20:,} MiB uncompressed, and at most {MOST_BYTES >> 20:,} are read")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InventoryError(f"{path} can't be read: {parquet_problem(error)}") from None
    except (arrow().ArrowException, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise InventoryError(f"{path} is no Parquet file that can be read: {parquet_problem(error)}") from None


def _read(path: Path) -> _Read:
    parquet = arrow("pyarrow.parquet")
    with _reading(path), open_regular(path) as opened:
        metadata = parquet.read_metadata(opened)
        about, incomplete, written = _about(path, (metadata.metadata or {}).get(METADATA_KEY))
        _check_columns(path, metadata.schema.to_arrow_schema())
        _check_size(path, metadata)
        if written not in (None, metadata.num_rows):
            raise InventoryError(f"{path} has {metadata.num_rows:,} rows, and its scan wrote {written:,}: scan again")
        opened.seek(0)
        with parquet.ParquetFile(opened, read_dictionary=list(_DICTIONARY), page_checksum_verification=True) as file:
            have = {*file.schema_arrow.names}
            table = file.read([name for name, _, _ in COLUMNS if name in have])
        for name in sorted(LATER - have):
            kind = schema().field(name)
            table = table.append_column(kind, arrow().nulls(len(table), kind.type))
    doubt(path, about, table)
    return about, table, incomplete


def _check_columns(path: Path, found: Any) -> None:
    types = arrow().types
    have = {field.name: field.type for field in found}
    for field in schema():
        if field.name not in have:
            if field.name in LATER:
                continue
            raise InventoryError(f"{path} lacks the column {field.name}: scan again")
        kind = have[field.name]
        if (kind.value_type if types.is_dictionary(kind) else kind) != field.type:
            raise InventoryError(f"{path}: the column {field.name} is {kind}, not {field.type}: scan again")


def _about(path: Path, said: bytes | None) -> tuple[InventoryFile, dict[tuple[int, str, int], str], int | None]:
    """Parse a file's metadata; return also its incomplete replicas, and its number of segments (None: not stated)."""
    if said is None:
        raise InventoryError(f"{path} is no inventory of segments: `kretain segments scan --out` writes one")
    try:
        value = json.loads(said)
        what = value["format"]
        cluster = value["cluster"]["id"]
        about = InventoryFile(
            str(path),
            int(value["broker"]),
            None if cluster is None else str(cluster),
            parse_time_ms(value["scanned_at"]),
            tuple(map(_dir, value["dirs"])),
        )
        incomplete = {
            (about.broker, str(one["topic"]), int(one["partition"])): str(one["problem"]) for one in value["incomplete"]
        }
        totals = value.get("totals")
        written = None if totals is None else int(totals["segments"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, UnitError):
        raise InventoryError(f"{path}: what it says of itself can't be read: scan again") from None
    if what != FORMAT:
        raise InventoryError(f"{path} is of the format {what!r}, this kretain reads {FORMAT}: scan again")
    return about, incomplete, written


def _dir(said: Any) -> dict[str, Any]:
    """Return what a file says of a log dir.

    Raises:
        KeyError, TypeError, ValueError: it lacks a figure, or has another kind of value.
    """
    found = dict(said)
    if not (isinstance(found["path"], str) and isinstance(found["device"], str)):
        raise TypeError
    if not all(type(found[key]) is int and 0 <= found[key] < 2**63 for key in _DIR_NUMBERS):
        raise ValueError
    return found


def agree(files: Sequence[InventoryFile]) -> None:
    """Check that files are of one cluster, and that no two have the same dir of a broker.

    Raises:
        InventoryError: they don't belong together.
    """
    clusters = {one.cluster_id: one.path for one in files if one.cluster_id is not None}
    if len(clusters) > 1:
        (first, one), (second, other), *_ = sorted(clusters.items())
        raise InventoryError(f"{one} and {other} are of two clusters ({first} and {second})")
    seen: dict[tuple[int, str], str] = {}
    for file in files:
        for folder in file.dirs:
            place = (file.broker, str(folder.get("path")))
            if place in seen:
                raise InventoryError(f"{seen[place]} and {file.path} both hold {place[1]} of broker {file.broker}")
            seen[place] = file.path


def doubt(path: Path | str, about: InventoryFile, table: Any) -> None:
    """Check that a file has no rows that a scan never writes.

    Raises:
        InventoryError: it has; the text names the first one.
    """
    if (lacking := doubts.lacking(table)) is not None:
        raise InventoryError(f"{path}: {lacking.text}: scan again")
    starts: Any = None
    if (wrong := doubts.wrong(table, about.broker)) is None:
        starts = doubts.starts(table)
        wrong = doubts.disordered(table, starts)
    if wrong is not None:
        raise InventoryError(f"{path}: {doubts.row_name(table, wrong.row)} {wrong.text}: scan again")
    seen: set[tuple[str, str, int]] = set()
    for replica in _replicas(table, starts):
        if replica in seen:
            raise InventoryError(f"{path}: {two_places(*replica)}: scan again")
        seen.add(replica)


def two_places(folder: str, topic: str, partition: int) -> str:
    """Return the error text for a replica whose rows are not consecutive."""
    return f"{topic}-{partition} in {folder} stands in two places"


def _replicas(table: Any, starts: Any) -> Iterable[tuple[str, str, int]]:
    """Return (dir, topic, partition) of the rows that begin a replica."""
    few = table.select(["dir", "topic", "partition"]).take(arrow().array(starts))
    return zip(few["dir"].to_pylist(), few["topic"].to_pylist(), few["partition"].to_pylist(), strict=True)


def _by_broker(tables: Sequence[Any]) -> Iterable[tuple[int, str, str, int]]:
    """Yield (broker, dir, topic, partition) of all replicas."""
    for table in tables:
        if len(table):
            broker = int(table["broker"][0].as_py())
            for folder, topic, partition in _replicas(table, doubts.starts(table)):
                yield broker, folder, topic, partition


def twice(replicas: Iterable[tuple[int, str, str, int]]) -> dict[tuple[int, str, int], str]:
    """Return replicas that are in two dirs of a broker, with the reason: only the broker knows which one counts.

    Args:
        replicas: (broker, dir, topic, partition), in the order of files and rows.
    """
    seen: dict[tuple[int, str, int], str] = {}
    found: dict[tuple[int, str, int], str] = {}
    for broker, folder, topic, partition in replicas:
        key = (broker, topic, partition)
        if seen.setdefault(key, folder) != folder:
            found[key] = f"it is in {seen[key]} and in {folder}: scan again"
    return found


def by_topic(inventory: Inventory) -> list[dict[str, Any]]:
    """Return a row per topic (topic, replicas, segments, bytes, log_bytes), the largest first."""
    table = inventory.table.select(["broker", "dir", "topic", "partition", "bytes", "log_bytes"])
    replicas = table.group_by(["topic", "broker", "dir", "partition"]).aggregate(
        [("bytes", "sum"), ("log_bytes", "sum"), ("bytes", "count")]
    )
    found = replicas.group_by("topic").aggregate(
        [("bytes_sum", "sum"), ("log_bytes_sum", "sum"), ("bytes_count", "sum"), ("partition", "count")]
    )
    rows = [
        {
            "topic": row["topic"],
            "replicas": row["partition_count"],
            "segments": row["bytes_count_sum"],
            "bytes": row["bytes_sum_sum"],
            "log_bytes": row["log_bytes_sum_sum"],
        }
        for row in found.to_pylist()
    ]
    return sorted(rows, key=lambda row: (-row["bytes"], row["topic"]))


def by_dir(inventory: Inventory) -> list[dict[str, Any]]:
    """Return a row per log dir: broker, dir, when it was scanned, and the scan's figures."""
    return [
        {"broker": file.broker, "dir": folder["path"], "scanned_at_ms": file.scanned_at_ms}
        | {key: value for key, value in folder.items() if key != "path"}
        for file in inventory.files
        for folder in file.dirs
    ]
