"""Read inventories: one table of many files, none of which is trusted before it is validated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from retention_cli.core.extras import arrow
from retention_cli.core.file_problems import parquet_problem
from retention_cli.core.files import beside, open_regular
from retention_cli.core.units import UnitError, parse_time_ms
from retention_cli.disks.inventory.format import (
    COLUMNS,
    FORMAT,
    METADATA_KEY,
    Inventory,
    InventoryError,
    InventoryFile,
    Replica,
    first_rows,
    replicas_at,
    schema,
)
from retention_cli.disks.inventory.log_dirs import LogDir
from retention_cli.policy.model import Policy

if TYPE_CHECKING:  # only an inventory needs it
    from retention_cli.disks.inventory_view import InventoryView

_DICTIONARY: Final = ("dir", "topic", "topic_id", "problem")
_DIR_KEYS: Final = [one.name for one in fields(LogDir)]
MOST_ROWS: Final = 25_000_000
"""The most rows that are read from a file. A row takes about 220 bytes of memory, and may take none in the file."""
MOST_BYTES: Final = 8 << 30
"""The most bytes that a file's pages may have, uncompressed."""
MOST_LOG_BYTES: Final = 2**32 - 1
"""No log file is larger: brokers count its bytes in 31 bits. Multiplied by its offsets they fit in 64 bits."""
MOST_SEGMENT_BYTES: Final = 1 << 35
"""No segment is larger, with all its files. The sum of all rows fits in 64 bits."""


def inventory_paths(policy: Policy) -> list[Path]:
    """Return the files and folders that ``disks.inventory`` names, relative to the policy file's folder.

    Raises:
        InventoryError: a pattern matches no file.
    """
    folder = Path(policy.source).parent
    found: list[Path] = []
    for text in policy.disks.inventory:
        path = beside(folder, text)
        if path.exists() or not any(sign in text for sign in "*?["):
            found.append(path)
            continue
        if not (matching := sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))):
            raise InventoryError(
                f"{policy.source}: disks.inventory: {text} matches no file: make one with kretain segments scan --out"
            )
        found += matching
    return found


def inventory_view(paths: Sequence[Path], *, require_all: bool = False) -> InventoryView | None:
    """Read an inventory; None if there are no files. A file that can't be read is left out, and the plan says so.

    Raises:
        InventoryError: no file can be read, or one can't and the inventory must be ``require_all``.
        MissingPartError: pyarrow is not installed.
    """
    if not paths:
        return None
    arrow()
    from retention_cli.disks.inventory_view import READ, InventoryView

    inventory = read_inventory(paths, READ)
    if require_all and inventory.unread:
        raise InventoryError(inventory.unread[0])
    view = InventoryView(inventory)
    del inventory
    arrow().default_memory_pool().release_unused()
    return view


def read_inventory(paths: Sequence[str | Path], columns: Iterable[str] | None = None) -> Inventory:
    """Read inventories: files, or folders of ``*.parquet``. With ``columns`` the table has only these.

    A file of several that can't be read, is of another format, lacks columns, or has impossible rows is left out.

    Raises:
        InventoryError: no file could be read, or there is none; two files have the same dir of a broker, or are of two
            clusters.
        MissingPartError: pyarrow is not installed.
    """
    arrow()
    every = [name for name, _, _ in COLUMNS]
    wanted = every if columns is None else [name for name in every if name in {*columns}]
    files: list[InventoryFile] = []
    tables: list[Any] = []
    problems: list[InventoryError] = []
    incomplete: dict[tuple[int, str, int], str] = {}
    found: dict[tuple[int, str, int], str] = {}
    if not (given := inventory_files(paths)):
        raise InventoryError("no inventory: name a file that `kretain segments scan --out` wrote, or a folder of them")
    for path in given:
        try:
            file, table, unknown, replicas = _read(path)
        except InventoryError as error:
            problems.append(error)
            continue
        files.append(file)
        tables.append(table.select(wanted))  # the others go at once
        incomplete |= unknown
        for broker, folder, topic, partition in replicas:
            key = (broker, topic, partition)
            if (other := found.setdefault(key, folder)) != folder:  # only the broker knows which of them counts
                incomplete[key] = f"it is in {other} and in {folder}: scan again"
    if problems and not files:
        raise problems[0]
    _check_together(files)
    table = arrow().concat_tables(tables).unify_dictionaries()
    return Inventory(tuple(files), table, incomplete, tuple(map(str, problems)))


def inventory_files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files of an inventory, those of folders sorted by name."""
    return [file for one in map(Path, paths) for file in (sorted(one.glob("*.parquet")) if one.is_dir() else [one])]


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InventoryError(f"{path} can't be read: {parquet_problem(error)}") from None
    except (arrow().ArrowException, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise InventoryError(f"{path} is not a Parquet file that kretain can read: {parquet_problem(error)}") from None


def _read(path: Path) -> tuple[InventoryFile, Any, dict[tuple[int, str, int], str], set[Replica]]:
    """Return a file: its head, its table, what is incomplete in it and why, and its replicas."""
    parquet = arrow("pyarrow.parquet")
    with _reading(path), open_regular(path) as opened:
        metadata = parquet.read_metadata(opened)
        about, incomplete, written = _about(path, (metadata.metadata or {}).get(METADATA_KEY))
        _check_columns(path, metadata.schema.to_arrow_schema())
        # Before it is read: equal rows take next to nothing in the file, and all of their memory here.
        rows = metadata.num_rows
        size = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
        if rows > MOST_ROWS:
            raise InventoryError(f"{path} has {rows:,} rows, and at most {MOST_ROWS:,} are read: scan again")
        if size > MOST_BYTES:
            most, mib = MOST_BYTES >> 20, size >> 20
            raise InventoryError(f"{path} has {mib:,} MiB uncompressed, and at most {most:,} are read")
        if written not in (None, rows):
            raise InventoryError(f"{path} has {rows:,} rows, and its scan wrote {written:,}: scan again")
        opened.seek(0)
        with parquet.ParquetFile(opened, read_dictionary=list(_DICTIONARY), page_checksum_verification=True) as file:
            table = file.read([name for name, _, _ in COLUMNS])
    return about, table, incomplete, check_rows(path, about, table)


def _check_columns(path: Path, found: Any) -> None:
    types = arrow().types
    have = {field.name: field.type for field in found}
    for field in schema():
        if (kind := have.get(field.name)) is None:
            raise InventoryError(f"{path} lacks the column {field.name}: scan again")
        if (kind.value_type if types.is_dictionary(kind) else kind) != field.type:
            raise InventoryError(f"{path}: the column {field.name} is {kind}, not {field.type}: scan again")


def _about(path: Path, metadata: bytes | None) -> tuple[InventoryFile, dict[tuple[int, str, int], str], int | None]:
    """Parse a file's metadata; return also its incomplete replicas, and its number of segments (None: not stated)."""
    if metadata is None:
        raise InventoryError(f"{path} is not an inventory of segments: `kretain segments scan --out` writes one")
    try:
        value = json.loads(metadata)
        what, dirs = value["format"], [{name: one[name] for name in _DIR_KEYS} for one in value["dirs"]]
        cluster = value["cluster"]["id"]
        about = InventoryFile(
            str(path),
            int(value["broker"]),
            None if cluster is None else str(cluster),
            parse_time_ms(value["scanned_at"]),
            TypeAdapter(tuple[LogDir, ...]).validate_python(dirs),
        )
        incomplete = {
            (about.broker, str(one["topic"]), int(one["partition"])): str(one["problem"]) for one in value["incomplete"]
        }
        totals = value.get("totals")
        written = None if totals is None else int(totals["segments"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, UnitError):
        raise InventoryError(f"{path}: its metadata can't be read: scan again") from None
    if what != FORMAT:
        raise InventoryError(f"{path} is of the format {what!r}, this kretain reads {FORMAT}: scan again")
    return about, incomplete, written


def _check_together(files: Sequence[InventoryFile]) -> None:
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
            place = (file.broker, folder.path)
            if place in seen:
                raise InventoryError(f"{seen[place]} and {file.path} both hold {place[1]} of broker {file.broker}")
            seen[place] = file.path


def check_rows(path: Path | str, about: InventoryFile, table: Any) -> set[Replica]:
    """Return a file's replicas. Check that it has no rows that a scan never writes.

    Raises:
        InventoryError: it has; the text names the first one.
    """
    for name, _, null in COLUMNS:
        if not null and table[name].null_count:
            raise InventoryError(f"{path}: {table[name].null_count:,} rows have no {name}: scan again")
    for bad, what in _flaws(table, about.broker) if len(table) else ():
        if bad.any():
            [row] = table.slice(int(bad.argmax()), 1).select(["topic", "partition", "base_offset"]).to_pylist()
            name = f"{row['topic']}-{row['partition']} at offset {row['base_offset']:,}"
            raise InventoryError(f"{path}: {name} {what}: scan again")
    replicas: set[Replica] = set()
    scanned = {one.path for one in about.dirs}
    for replica in replicas_at(table, first_rows(table)):
        _, folder, topic, partition = replica
        if replica in replicas:
            raise InventoryError(f"{path}: {topic}-{partition} in {folder} appears twice: scan again")
        if folder not in scanned:  # it might be in another file, too, and count twice
            raise InventoryError(f"{path}: {topic}-{partition} is in {folder}, which was not scanned: scan again")
        replicas.add(replica)
    return replicas


def _flaws(table: Any, broker: int) -> Iterator[tuple[Any, str]]:
    """Yield a mask of impossible rows for each flaw: those of a row alone, then those against the row before it."""
    import numpy as np

    names = ("broker", "partition", "base_offset", "bytes", "log_bytes")
    whose, partition, base, size, log = (table[name].to_numpy() for name in names)
    closed = ~table["active"].to_numpy(zero_copy_only=False)
    pc = arrow("pyarrow.compute")
    following = pc.fill_null(table["next_offset"], -1).to_numpy()
    known = pc.is_valid(table["next_offset"]).to_numpy(zero_copy_only=False)
    yield whose != broker, f"is of another broker than {broker}"
    yield partition < 0, "has a negative partition"
    yield base < 0, "has a negative base offset"
    yield known & (following < base), "ends before it begins"
    yield (size < 0) | (log < 0), "has a negative size"
    yield closed & (size < log), "takes less than its own log file"
    yield (log > MOST_LOG_BYTES) | (size > MOST_SEGMENT_BYTES), "is larger than any segment"
    inside = np.ones(len(table), dtype=bool)  # rows that follow a row of the same replica
    inside[first_rows(table)] = False
    before, ends, ended = (np.roll(one, 1) for one in (base, following, known))
    yield inside & (base <= before), "is listed twice or out of order"
    yield inside & ended & (ends > base), "begins before the one before it ends"
    yield inside & ended & (ends < base), "begins after a gap"


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
        {"broker": file.broker, "dir": folder.path, "scanned_at_ms": file.scanned_at_ms}
        | {key: value for key, value in asdict(folder).items() if key != "path"}
        for file in inventory.files
        for folder in file.dirs
    ]
