"""Reading inventories back: one table of many files, with everything in them doubted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from retention_cli.columns import arrow
from retention_cli.segments.table import COLUMNS, FORMAT, METADATA_KEY, schema
from retention_cli.units import UnitError, parse_time_ms

_DICTIONARY: Final = ("dir", "topic", "topic_id", "problem")


class InventoryError(Exception):
    """An inventory that can't be used; the text names the file, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class InventoryFile:
    """One file. ``dirs`` are what it says of each log dir, as in docs/segments.md; ``device`` is one of the keys."""

    path: str
    broker: int
    cluster_id: str | None
    scanned_at_ms: int
    dirs: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """What lies on the disks of brokers of one cluster.

    ``table`` is a pyarrow Table of the columns in :data:`~retention_cli.segments.table.COLUMNS`; ``dir``, ``topic``,
    ``topic_id`` and ``problem`` are dictionaries. Within a dir, topic and partition its rows stand together, in the
    order of base offsets. ``incomplete`` are replicas (broker, topic, partition) of which something is unknown, with
    why: rows may be missing, or hold nulls.
    """

    files: tuple[InventoryFile, ...]
    table: Any
    incomplete: dict[tuple[int, str, int], str]

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, None where no file says one."""
        return next((one.cluster_id for one in self.files if one.cluster_id is not None), None)

    @property
    def brokers(self) -> frozenset[int]:
        """Which brokers' disks are in it."""
        return frozenset(one.broker for one in self.files)

    def age_ms(self, now_ms: int) -> int:
        """Return how old its oldest file is. Negative: it was made on a machine whose clock is ahead of ours."""
        return now_ms - min(one.scanned_at_ms for one in self.files)


def read_inventory(paths: Sequence[str | Path], columns: Iterable[str] | None = None) -> Inventory:
    """Read inventories: files, or folders of ``*.parquet``. With ``columns`` the table has these alone.

    Raises:
        InventoryError: a file can't be read, is of another format, lacks columns, holds impossible or double rows; two
            files hold the same dir of a broker, or are of two clusters; or there is no file.
        MissingPartError: pyarrow is not installed.
    """
    arrow()
    files = list(_files(paths))
    if not files:
        raise InventoryError("no inventory: name a file that `kretain segments scan --out` wrote, or a folder of them")
    wanted = None if columns is None else {*columns}
    read = [_read(path) for path in files]
    abouts = [about for about, _, _ in read]
    _agree(abouts)
    incomplete: dict[tuple[int, str, int], str] = {}
    for _, _, mine in read:
        incomplete.update(mine)
    incomplete.update(_twice([table for _, table, _ in read]))
    tables = [
        table if wanted is None else table.select([n for n, _, _ in COLUMNS if n in wanted]) for _, table, _ in read
    ]
    table = arrow().concat_tables(tables).unify_dictionaries()
    return Inventory(tuple(abouts), table, incomplete)


def _files(paths: Sequence[str | Path]) -> Iterable[Path]:
    for given in paths:
        path = Path(given)
        yield from sorted(path.glob("*.parquet")) if path.is_dir() else (path,)


def _read(path: Path) -> tuple[InventoryFile, Any, dict[tuple[int, str, int], str]]:
    pa = arrow()
    parquet = arrow("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path, read_dictionary=list(_DICTIONARY)) as file:
            about, incomplete = _about(path, (file.metadata.metadata or {}).get(METADATA_KEY))
            _check_columns(path, file.schema_arrow)
            table = file.read([name for name, _, _ in COLUMNS])
    except OSError as error:
        raise InventoryError(f"{path} can't be read: {error.strerror or error}") from None
    except pa.ArrowException as error:
        raise InventoryError(f"{path} is no Parquet file that can be read: {' '.join(str(error).split())}") from None
    _doubt(path, about, table)
    return about, table, incomplete


def _check_columns(path: Path, found: Any) -> None:
    types = arrow().types
    have = {field.name: field.type for field in found}
    for field in schema():
        if field.name not in have:
            raise InventoryError(f"{path} lacks the column {field.name}: scan again")
        kind = have[field.name]
        if (kind.value_type if types.is_dictionary(kind) else kind) != field.type:
            raise InventoryError(f"{path}: the column {field.name} is {kind}, not {field.type}: scan again")


def _about(path: Path, said: bytes | None) -> tuple[InventoryFile, dict[tuple[int, str, int], str]]:
    """Read what a file says of itself."""
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
            tuple(dict(one) for one in value["dirs"]),
        )
        incomplete = {
            (about.broker, str(one["topic"]), int(one["partition"])): str(one["problem"]) for one in value["incomplete"]
        }
    except (ValueError, KeyError, TypeError, AttributeError, UnitError) as error:
        raise InventoryError(f"{path}: what it says of itself can't be read ({error!r}): scan again") from None
    if what != FORMAT:
        raise InventoryError(f"{path} is of the format {what!r}, this kretain reads {FORMAT}: scan again")
    return about, incomplete


def _agree(files: Sequence[InventoryFile]) -> None:
    """Refuse files that don't belong together."""
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


def _doubt(path: Path, about: InventoryFile, table: Any) -> None:
    """Refuse rows that no scan writes."""
    import numpy as np

    pc = arrow("pyarrow.compute")
    for name, _, null in COLUMNS:
        if not null and table[name].null_count:
            raise InventoryError(f"{path}: {table[name].null_count:,} rows have no {name}: scan again")
    if not len(table):
        return
    numbers = {
        name: table[name].to_numpy() for name in ("broker", "partition", "base_offset", "bytes", "log_bytes", "mtime")
    }
    base = numbers["base_offset"]
    following = pc.fill_null(table["next_offset"], -1).to_numpy()
    known = pc.is_valid(table["next_offset"]).to_numpy(zero_copy_only=False)
    for wrong, what in (
        (numbers["broker"] != about.broker, f"is of another broker than {about.broker}"),
        (numbers["partition"] < 0, "has a negative partition"),
        (base < 0, "has a negative base offset"),
        (known & (following < base), "ends before it begins"),
        ((numbers["bytes"] < 0) | (numbers["log_bytes"] < 0), "has a negative size"),
    ):
        if wrong.any():
            raise InventoryError(f"{path}: {_row(table, int(np.argmax(wrong)))} {what}: scan again")
    starts = _starts(table)
    inside = np.ones(len(base), dtype=bool)
    inside[starts] = False
    same = np.flatnonzero(inside)  # rows that have one of the same replica before them
    if (bad := same[base[same] <= base[same - 1]]).size:
        raise InventoryError(f"{path}: {_row(table, int(bad[0]))} is there twice or out of order: scan again")
    if (bad := same[known[same - 1] & (following[same - 1] > base[same])]).size:
        raise InventoryError(f"{path}: {_row(table, int(bad[0]))} begins before the one before it ends: scan again")
    seen: set[tuple[str, str, int]] = set()
    for replica in _replicas(table, starts):
        if replica in seen:
            raise InventoryError(f"{path}: {replica[1]}-{replica[2]} in {replica[0]} stands in two places: scan again")
        seen.add(replica)


def _starts(table: Any) -> Any:
    """Return the numbers of the rows that begin another dir, topic or partition."""
    import numpy as np

    changed = np.zeros(len(table), dtype=bool)
    if len(table):
        changed[0] = True
    for name in ("dir", "topic"):
        codes = table[name].unify_dictionaries().combine_chunks()
        codes = codes.chunk(0) if hasattr(codes, "num_chunks") else codes
        numbers = codes.indices.to_numpy()
        changed[1:] |= numbers[1:] != numbers[:-1]
    partitions = table["partition"].to_numpy()
    changed[1:] |= partitions[1:] != partitions[:-1]
    return np.flatnonzero(changed)


def _replicas(table: Any, starts: Any) -> Iterable[tuple[str, str, int]]:
    """Return dir, topic and partition of the rows that begin one."""
    few = table.select(["dir", "topic", "partition"]).take(arrow().array(starts))
    return zip(few["dir"].to_pylist(), few["topic"].to_pylist(), few["partition"].to_pylist(), strict=True)


def _twice(tables: Sequence[Any]) -> dict[tuple[int, str, int], str]:
    """Return replicas that lie in two dirs of a broker: which of them counts, the broker knows."""
    seen: dict[tuple[int, str, int], str] = {}
    found: dict[tuple[int, str, int], str] = {}
    for table in tables:
        if not len(table):
            continue
        broker = int(table["broker"][0].as_py())
        for folder, topic, partition in _replicas(table, _starts(table)):
            key = (broker, topic, partition)
            if seen.setdefault(key, folder) != folder:
                found[key] = f"it is in {seen[key]} and in {folder}: scan again"
    return found


def _row(table: Any, number: int) -> str:
    """Name a row for people."""
    cells = {name: table[name][number].as_py() for name in ("topic", "partition", "base_offset")}
    return f"{cells['topic']}-{cells['partition']} at offset {cells['base_offset']:,}"


def by_topic(inventory: Inventory) -> list[dict[str, Any]]:
    """Return topic, replicas, segments, bytes and log_bytes of each topic, the largest first."""
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
    """Return broker, dir, when it was scanned, and what its scan said of it, a row per log dir."""
    return [
        {"broker": file.broker, "dir": folder["path"], "scanned_at_ms": file.scanned_at_ms}
        | {key: value for key, value in folder.items() if key != "path"}
        for file in inventory.files
        for folder in file.dirs
    ]
