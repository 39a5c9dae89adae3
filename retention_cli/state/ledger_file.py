"""The ledger's SQLite file: its tables, and what stands in their rows. What it means is the ledger's to know."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from retention_cli.disk_memory import LOOK_BYTES, DiskMemory
from retention_cli.group_memory import GroupMemory
from retention_cli.memory import SAMPLE_BYTES, PartitionMemory
from retention_cli.model import EventMax
from retention_cli.replica_memory import ROW_BYTES
from retention_cli.state.folder import StateError, make_folder

FILE_NAME: Final = "ledger.sqlite"
SCHEMA_VERSION: Final = 2
_BUSY_S: Final = 30.0
_SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (topic_id TEXT PRIMARY KEY, name TEXT NOT NULL, seen_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE partitions (
    topic_id TEXT NOT NULL, partition INTEGER NOT NULL, samples BLOB NOT NULL,
    newest_ms INTEGER, newest_offset INTEGER, data_at TEXT NOT NULL, scan BLOB, replicas BLOB,
    PRIMARY KEY (topic_id, partition));
CREATE TABLE groups (
    name TEXT PRIMARY KEY, seen_ms INTEGER NOT NULL, digest BLOB NOT NULL, plain INTEGER NOT NULL,
    doc BLOB NOT NULL);
CREATE TABLE disks (name TEXT PRIMARY KEY, looks BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('revision', 0), ('since_ms', 0), ('topics_ms', 0);
"""

Key = tuple[str, int]
"""A topic's id and a partition."""


class LedgerFile:
    """An open ledger file: its rows, in transactions that are whole or never were.

    Raises:
        StateError: it can't be opened, is no ledger, or was written by a newer kretain.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.path = folder / FILE_NAME
        with self._errors():
            self._db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA synchronous=FULL")
            self._prepare()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def _prepare(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            with self._transaction():
                if self._db.execute("PRAGMA user_version").fetchone()[0] == 0:  # nobody was quicker
                    for statement in _SCHEMA.strip().split(";"):
                        if statement.strip():
                            self._db.execute(statement)
                    self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        elif version < SCHEMA_VERSION:
            with self._transaction():
                if self._db.execute("PRAGMA user_version").fetchone()[0] == 1:
                    self._db.execute("ALTER TABLE partitions ADD COLUMN replicas BLOB")
                    self._db.execute("CREATE TABLE disks (name TEXT PRIMARY KEY, looks BLOB NOT NULL) WITHOUT ROWID")
                    self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        elif version > SCHEMA_VERSION:
            raise StateError(
                f"{self.path} was written by a newer kretain (schema {version}, this one knows {SCHEMA_VERSION}): "
                f"use that one, or another --state-dir"
            )

    def _stored_partition(self, key: Key) -> PartitionMemory | None:
        row = self._db.execute(SELECT + " WHERE topic_id = ? AND partition = ?", key).fetchone()
        return None if row is None else partition_of(row[2:])

    def _stored_partitions(self, topic_id: str, numbers: range) -> dict[int, PartitionMemory]:
        where = " WHERE topic_id = ? AND partition >= ? AND partition < ?"
        rows = self._db.execute(SELECT + where, (topic_id, numbers.start, numbers.stop))
        return {row[1]: partition_of(row[2:]) for row in rows}

    def _stored_group(self, name: str) -> GroupMemory | None:
        row = self._db.execute("SELECT seen_ms, doc FROM groups WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        group = GroupMemory.from_bytes(row[1])
        group.seen_ms = row[0]
        return group

    def _put_partition(self, key: Key, one: PartitionMemory) -> None:
        self._db.execute("INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*key, *_values(one)))

    def _put_group(self, name: str, one: GroupMemory) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?, ?)",
            (name, one.seen_ms, one.digest, not (one.gone or one.leftovers), one.as_bytes()),
        )

    def _stored_disk(self, name: str) -> DiskMemory | None:
        row = self._db.execute("SELECT looks FROM disks WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        if not isinstance(row[0], bytes) or len(row[0]) % LOOK_BYTES:
            raise ValueError("the looks at a disk are broken")
        return DiskMemory(row[0])

    def _put_disk(self, name: str, one: DiskMemory) -> None:
        self._db.execute("INSERT OR REPLACE INTO disks VALUES (?, ?)", (name, one.packed))

    def _bump(self) -> None:
        self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'revision'")
        self._revision = self._meta("revision")

    def _meta(self, key: str) -> int:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise sqlite3.DatabaseError(f"it has no {key}")
        return int(row[0])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError) as error:
            raise StateError(
                f"the ledger {self.path} can't be used: {error}; it remembers groups that are gone and when records "
                f"were written: restore it, or move it away to begin anew without that"
            ) from None


KEYS: Final = "SELECT topic_id, partition FROM partitions"
SELECT: Final = "SELECT topic_id, partition, samples, newest_ms, newest_offset, data_at, scan, replicas FROM partitions"


def partition_of(values: Iterable[object]) -> PartitionMemory:
    """Return what a row of :data:`SELECT` says, its first two columns left out.

    Raises:
        ValueError: it is broken.
    """
    samples, newest_ms, newest_offset, data_at, scan, replicas = values
    if not isinstance(samples, bytes) or len(samples) % SAMPLE_BYTES or not isinstance(data_at, str):
        raise ValueError("a partition's samples are broken")
    newest = None
    if isinstance(newest_ms, int):
        newest = EventMax(newest_ms, newest_offset if isinstance(newest_offset, int) else None)
    found = tuple(int(one) for one in data_at.split(",")) if data_at else ()
    seen = replicas if isinstance(replicas, bytes) else b""
    if len(seen) % ROW_BYTES:
        raise ValueError("a partition's replicas are broken")
    return PartitionMemory(samples, newest, found, scan if isinstance(scan, bytes) else None, seen)


def _values(one: PartitionMemory) -> tuple[object, ...]:
    newest = one.newest
    head = (None, None) if newest is None else (newest.time_ms, newest.offset)
    return (one.packed, *head, ",".join(map(str, one.data_at)), one.scan, one.replicas or None)
