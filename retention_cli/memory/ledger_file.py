"""The ledger's SQLite file: its tables and their rows.

A damaged ledger must not forget a group silently (F6). So rows have checksums, a seal covers the number of rows and
their checksums, and SQLite's own check is made when the file is opened.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import uuid
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from retention_cli.core.file_problems import sqlite_problem
from retention_cli.core.state_dir import StateError, make_folder, open_file
from retention_cli.memory.ages import TABLES
from retention_cli.memory.disk import LOOK_BYTES, DiskMemory
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.partition_rows import (
    INSERT,
    SELECT,
    checksum,
    checksum_of_lines,
    partition_of,
    row_of,
    values_of,
)

FILE_NAME: Final = "ledger.sqlite"
SCHEMA_VERSION: Final = 6
APPLICATION_ID: Final = 0x6B726574
"""SQLite's mark of the program that owns the file: "kret"."""
_BUSY_S: Final = 30.0
_CLOSE_S: Final = 5.0
PARTITION_COLUMNS: Final = """
    topic_id TEXT NOT NULL, partition INTEGER NOT NULL, checksum INTEGER NOT NULL, leader_epoch INTEGER,
    last_epoch INTEGER, earlier BLOB, log_start INTEGER NOT NULL, samples BLOB NOT NULL, newest_ms INTEGER,
    newest_offset INTEGER, data_at TEXT NOT NULL, created INTEGER NOT NULL, created_below INTEGER NOT NULL,
    front INTEGER, front_append INTEGER, scan BLOB, replicas BLOB, newest_under TEXT,
    PRIMARY KEY (topic_id, partition)"""
SCHEMA: Final = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (topic_id TEXT PRIMARY KEY, name TEXT NOT NULL, seen_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE partitions ({PARTITION_COLUMNS});
CREATE TABLE groups (
    name TEXT PRIMARY KEY, checksum INTEGER NOT NULL, doc_checksum INTEGER NOT NULL, seen_ms INTEGER NOT NULL,
    digest BLOB NOT NULL, plain INTEGER NOT NULL, open TEXT NOT NULL, doc BLOB NOT NULL);
CREATE TABLE disks (name TEXT PRIMARY KEY, looks BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('revision', 0), ('since_ms', 0), ('topics_ms', 0), ('seal', 0);
"""  # noqa: S608

_SEALED: Final = (
    ("key || ' ' || value", "about", "key"),
    ("key || ' ' || value", "meta WHERE key <> 'seal'", "key"),
    ("topic_id || ' ' || name || ' ' || seen_ms", "topics", "topic_id"),
    ("topic_id || '/' || partition || ' ' || checksum", "partitions", "topic_id, partition"),
    ("name || ' ' || checksum", "groups", "name"),
    ("name || ' ' || hex(looks)", "disks", "name"),
)
_SEALED_IF_USED: Final = (
    ("topic_id || '/' || partitions || ' ' || seen_ms", "widths", "topic_id, partitions"),
    ("name || ' ' || seen_ms", "born", "name"),
    ("topic_id || ' ' || next_offset || ' ' || coalesce(revision, '')", "state_topic", "topic_id"),
    ("key || ' ' || revision", "unsent", "key"),
    ("key || ' ' || text || ' ' || coalesce(newer, '')", "unread", "key"),
    ("name || ' ' || seen_ms", "told", "name"),
)
"""Tables that only newer ledgers have, and those of a shared one (:mod:`retention_cli.memory.shared_cache`)."""

_LINES_AT_A_TIME: Final = 5_000

Key = tuple[str, int]
"""A topic's id and a partition."""


class Head(NamedTuple):
    """A group's row without its document: when it was last seen (Unix ms), and the digest of its commits.

    ``plain``: there is nothing to recall of it. ``open`` are the topics with a commit that was not judged yet.
    """

    seen_ms: int
    digest: bytes
    plain: bool
    open: frozenset[str]

    @classmethod
    def of(cls, group: GroupMemory) -> Head:
        """Return what a group's row says of it."""
        return cls(group.seen_ms, group.digest, group.plain, group.open_topics)


class LedgerFile:
    """An open ledger file: its rows, written in atomic transactions.

    ``ledger_id`` is its id, which never changes; ``replaces`` is that of the ledger it replaced, if the audit log has
    one. Without a folder it is in this process's memory (``on_disk`` is false), and ends with it.

    Raises:
        StateError: it can't be opened, is damaged, is no ledger or another cluster's, or a newer kretain wrote it.
    """

    def __init__(self, folder: Path | None, known_id: str | None = None) -> None:
        self.path = Path(":memory:") if folder is None else folder / FILE_NAME
        self.on_disk = folder is not None
        self._used = threading.RLock()
        self.began_anew = False
        self._revision = 0
        self._known_id = known_id
        with self._errors():
            there = self.on_disk and self._made_file()
            self.db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self.db.execute("PRAGMA synchronous=FULL")
            self._prepare(there=there)

    def close(self) -> None:
        """Close the file, once no other thread uses it: SQLite would crash.

        What still works in a thread for somebody who was interrupted is waited for, but not for long: then the file is
        closed with the process.
        """
        if self._used.acquire(timeout=_CLOSE_S):
            try:
                self.db.close()
            finally:
                self._used.release()

    def copy_to(self, folder: Path) -> int:
        """Copy the file into another folder of the same name, that of this cluster; return the copy's revision.

        Raises:
            StateError: it can't be read, or the copy not be written.
        """
        with self._errors():
            make_folder(folder)
            with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as copy:
                self.db.backup(copy)
                return int(copy.execute("SELECT value FROM meta WHERE key = 'revision'").fetchone()[0])

    def _made_file(self) -> bool:
        """Create the file if it is missing, for this user only, and refuse links; return whether it was there."""
        make_folder(self.path.parent)
        there = os.path.lexists(self.path)
        os.close(open_file(self.path, os.O_RDWR | os.O_CREAT))
        return there

    def _prepare(self, *, there: bool) -> None:
        version = self._pragma("user_version")
        if version > SCHEMA_VERSION:
            raise StateError(
                f"{self.path} was written by a newer kretain (schema {version}, this one knows {SCHEMA_VERSION}): "
                f"use that one, or another --state-dir"
            )
        if version == 0:
            if there and (self._known_id is not None or self._has_tables()):
                raise sqlite3.DatabaseError("it is not the ledger that was there: it is empty, or another program's")
            with self.transaction():
                if self._pragma("user_version") == 0:  # no other process was faster
                    self._execute_all(SCHEMA + TABLES)
                    self._introduce()
                    self.began_anew = True
        elif version < SCHEMA_VERSION:
            raise StateError(f"{self.path} was written by a kretain before its first release: move it away")
        self.db.execute("BEGIN")  # one snapshot: others may write meanwhile
        try:
            self._check()
        finally:
            self.db.execute("COMMIT")

    def _introduce(self) -> None:
        about = [("id", uuid.uuid4().hex), ("folder", self.path.parent.name)]
        if self._known_id is not None:
            about.append(("replaces", self._known_id))
        self.db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about)
        self.db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        self.db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def _check(self) -> None:
        """Check that the file is intact, and is this cluster's ledger.

        Raises:
            sqlite3.DatabaseError: it is not.
        """
        found = self.db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(f"it is damaged: {found}")
        if self._pragma("application_id") != APPLICATION_ID:
            raise sqlite3.DatabaseError("it is another program's")
        if self._meta("seal") != self._sealed():
            raise sqlite3.DatabaseError("it is damaged: rows are missing, or are not those that were written")
        about = dict(self.db.execute("SELECT key, value FROM about"))
        self.ledger_id: str = about["id"]
        self.replaces: str | None = about.get("replaces")
        if about["folder"] != self.path.parent.name:
            raise sqlite3.DatabaseError(f"it is the ledger of another cluster ({about['folder']})")
        if self._known_id not in (None, self.ledger_id, self.replaces):
            raise sqlite3.DatabaseError(
                f"it is not the ledger that was there (the audit log names {self._known_id}, this is {self.ledger_id})"
            )

    def _sealed(self) -> int:
        """Return a checksum over all rows: a missing row, an extra one, or a changed key changes it.

        Of a row with a checksum it covers the key and that checksum, which is verified when the row is read.
        """
        total = 0
        there = {name for (name,) in self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for what, table, keys in (*_SEALED, *(one for one in _SEALED_IF_USED if one[1] in there)):
            count = self.db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            if count or (what, table, keys) in _SEALED:  # they may be created, empty, outside our transactions
                rows = f"SELECT {what} FROM {table} ORDER BY {keys}"  # noqa: S608
                total = checksum_of_lines((total, table, count), partial(self._lines, rows))
        return total

    def _lines(self, query: str) -> Iterator[list[str]]:
        found = self.db.execute(query)
        while rows := found.fetchmany(_LINES_AT_A_TIME):
            if some := [one for (one,) in rows if one is not None]:
                yield some

    def _has_tables(self) -> bool:
        return bool(self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])

    def _pragma(self, name: str) -> int:
        return int(self.db.execute(f"PRAGMA {name}").fetchone()[0])

    def _execute_all(self, statements: str) -> None:
        for statement in statements.strip().split(";"):
            if statement.strip():
                self.db.execute(statement)

    # -- partitions ---------------------------------------------------------------------

    def _stored_partition(self, key: Key) -> PartitionMemory | None:
        row = self.db.execute(SELECT + " WHERE topic_id = ? AND partition = ?", key).fetchone()
        return None if row is None else partition_of(row)

    def _stored_partitions(self, topic_id: str, numbers: range) -> dict[int, PartitionMemory]:
        where = " WHERE topic_id = ? AND partition >= ? AND partition < ?"
        rows = self.db.execute(SELECT + where, (topic_id, numbers.start, numbers.stop))
        return {row[1]: partition_of(row) for row in rows}

    def _put_partition(self, key: Key, one: PartitionMemory) -> None:
        self.db.execute(INSERT, row_of(*key, values_of(one)))

    # -- groups ----------------------------------------------------------------------------

    def _stored_heads(self) -> dict[str, Head]:
        """Return each group's :class:`Head`.

        Raises:
            ValueError: a row is not what was written.
        """
        found: dict[str, Head] = {}
        rows = self.db.execute("SELECT name, checksum, doc_checksum, seen_ms, digest, plain, open FROM groups")
        for name, noted, *values in rows:
            if noted != checksum(name, *values):
                raise ValueError(f"what it says of group {name!r} is not what was written")
            _doc, seen_ms, digest, plain, topics = values
            found[name] = Head(seen_ms, digest, bool(plain), frozenset(topics.split("\n") if topics else ()))
        return found

    def _stored_group(self, name: str) -> GroupMemory | None:
        row = self.db.execute("SELECT seen_ms, doc_checksum, doc FROM groups WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        if zlib.crc32(row[2]) != row[1]:
            raise ValueError(f"what it remembers of group {name!r} is not what was written")
        group = GroupMemory.from_bytes(row[2])
        group.seen_ms = row[0]
        return group

    def _put_group(self, name: str, head: Head, document: bytes) -> None:
        topics = "\n".join(sorted(head.open))
        values = (zlib.crc32(document), head.seen_ms, head.digest, int(head.plain), topics)
        self.db.execute(
            "INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (name, checksum(name, *values), *values, document),
        )

    def _touch_group(self, name: str, seen_ms: int) -> None:
        """Note that a group was seen, if that is later than stored."""
        row = self.db.execute(
            "SELECT doc_checksum, seen_ms, digest, plain, open FROM groups WHERE name = ?", (name,)
        ).fetchone()
        if row is not None and row[1] < seen_ms:
            values = (row[0], seen_ms, *row[2:])
            changed = (seen_ms, checksum(name, *values), name)
            self.db.execute("UPDATE groups SET seen_ms = ?, checksum = ? WHERE name = ?", changed)

    # -- disks, and the rest ----------------------------------------------------------------

    def _stored_disk(self, name: str) -> DiskMemory | None:
        row = self.db.execute("SELECT looks FROM disks WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        if not isinstance(row[0], bytes) or len(row[0]) % LOOK_BYTES:
            raise ValueError("the looks at a disk are broken")
        return DiskMemory(row[0])

    def _put_disk(self, name: str, one: DiskMemory) -> None:
        self.db.execute("INSERT OR REPLACE INTO disks VALUES (?, ?)", (name, one.packed))

    def _bump(self) -> None:
        self.db.execute("UPDATE meta SET value = value + 1 WHERE key = 'revision'")
        self._revision = self._meta("revision")

    def _meta(self, key: str) -> int:
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise sqlite3.DatabaseError(f"it has no {key}")
        return int(row[0])

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write in one transaction, and seal what was written. One that fails leaves the revision as it was.

        Else the next revision, which is somebody else's then, would be taken for our own, and never read (F6).
        """
        with self._errors():
            revision = self._revision
            self.db.execute("BEGIN IMMEDIATE")
            try:
                before = self.db.total_changes
                yield
                if self.db.total_changes != before:
                    self.db.execute("UPDATE meta SET value = ? WHERE key = 'seal'", (self._sealed(),))
                self.db.execute("COMMIT")
            except BaseException:
                self._revision = revision
                self.db.rollback()  # a no-op where SQLite has done it itself, as on a full disk
                raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Use the file: one thread at a time, and whatever fails is a :class:`StateError`."""
        try:
            with self._used:
                yield
        except (sqlite3.Error, OSError, ValueError, KeyError, TypeError) as error:
            full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            what = "make room on its disk" if full else "restore it, or move it away to start over without that"
            told = "it remembers groups that are gone and when records were written"
            raise StateError(f"the ledger {self.path} can't be used: {sqlite_problem(error)}; {told}: {what}") from None
