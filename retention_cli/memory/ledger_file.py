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
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from retention_cli.core.file_problems import sqlite_problem
from retention_cli.core.state_dir import StateError, make_folder, open_file

FILE_NAME: Final = "ledger.sqlite"
SCHEMA_VERSION: Final = 9
APPLICATION_ID: Final = 0x6B726574
"""SQLite's mark of the program that owns the file: "kret"."""
_BUSY_S: Final = 30.0
_CLOSE_S: Final = 5.0
SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (topic_id TEXT PRIMARY KEY, name TEXT NOT NULL, seen_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE partitions (
    topic_id TEXT NOT NULL, partition INTEGER NOT NULL, checksum INTEGER NOT NULL, doc BLOB NOT NULL,
    PRIMARY KEY (topic_id, partition));
CREATE TABLE groups (
    name TEXT PRIMARY KEY, checksum INTEGER NOT NULL, doc_checksum INTEGER NOT NULL, seen_ms INTEGER NOT NULL,
    digest BLOB NOT NULL, plain INTEGER NOT NULL, open TEXT NOT NULL, doc BLOB NOT NULL);
CREATE TABLE disks (name TEXT PRIMARY KEY, looks BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE widths (
    topic_id TEXT NOT NULL, partitions INTEGER NOT NULL, seen_ms INTEGER NOT NULL,
    PRIMARY KEY (topic_id, partitions)) WITHOUT ROWID;
CREATE TABLE born (name TEXT PRIMARY KEY, seen_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE state_topic (log TEXT NOT NULL, next_offset INTEGER NOT NULL, revision INTEGER);
CREATE TABLE unsent (key TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE unread (key TEXT PRIMARY KEY, text TEXT NOT NULL, newer INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE shared_seen (name TEXT PRIMARY KEY, seen_ms INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('revision', 0), ('since_ms', 0), ('topics_ms', 0), ('seal', 0);
"""
"""The last four tables are of a shared ledger alone (:class:`SharedCache`)."""

_SEALED: Final = (
    ("key || ' ' || value", "about", "key"),
    ("key || ' ' || value", "meta WHERE key <> 'seal'", "key"),
    ("topic_id || ' ' || name || ' ' || seen_ms", "topics", "topic_id"),
    ("topic_id || '/' || partition || ' ' || checksum", "partitions", "topic_id, partition"),
    ("name || ' ' || checksum", "groups", "name"),
    ("name || ' ' || hex(looks)", "disks", "name"),
    ("topic_id || '/' || partitions || ' ' || seen_ms", "widths", "topic_id, partitions"),
    ("name || ' ' || seen_ms", "born", "name"),
    ("log || ' ' || next_offset || ' ' || coalesce(revision, '')", "state_topic", "log"),
    ("key || ' ' || revision", "unsent", "key"),
    ("key || ' ' || text || ' ' || newer", "unread", "key"),
    ("name || ' ' || seen_ms", "shared_seen", "name"),
)
_ROWS_AT_A_TIME: Final = 5_000


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
        self.was_reset = False
        self._revision = 0
        self._known_id = known_id
        with self._errors():
            there = self.on_disk and os.path.lexists(self.path)
            if self.on_disk:  # created if it is missing, for this user only; no links
                make_folder(self.path.parent)
                os.close(open_file(self.path, os.O_RDWR | os.O_CREAT))
            self.db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self.db.execute("PRAGMA synchronous=FULL")
            self._prepare(there=there)

    def close(self) -> None:
        """Close the file, once no other thread uses it: SQLite would crash.

        Wait for a thread that still works for an interrupted caller, but not for long: then the file is closed with
        the process.
        """
        if self._used.acquire(timeout=_CLOSE_S):
            try:
                self.db.close()
            finally:
                self._used.release()

    def content(self) -> tuple[bytes, int]:
        """Return what the file holds now, and its revision: an earlier one if another process writes meanwhile.

        Raises:
            StateError: it can't be read.
        """
        with self._errors():
            revision = self._meta("revision")
            return self.db.serialize(), revision

    def _prepare(self, *, there: bool) -> None:
        version = self._pragma("user_version")
        if version > SCHEMA_VERSION:
            raise StateError(
                f"{self.path} was written by a newer kretain (schema {version}, this one knows {SCHEMA_VERSION}): "
                f"use that version, or another --state-dir"
            )
        if version == 0:
            if there and (self._known_id is not None or self.db.execute("SELECT 1 FROM sqlite_master").fetchone()):
                raise sqlite3.DatabaseError("it is not the previous ledger: it is empty, or another program's")
            with self.transaction():
                if self._pragma("user_version") == 0:  # no other process was faster
                    for statement in SCHEMA.split(";"):
                        self.db.execute(statement)
                    about = {"id": uuid.uuid4().hex, "folder": self.path.parent.name}
                    if self._known_id is not None:
                        about["replaces"] = self._known_id
                    self.db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())
                    self.db.execute(f"PRAGMA application_id={APPLICATION_ID}")
                    self.db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                    self.was_reset = True
        elif version < SCHEMA_VERSION:
            raise StateError(f"{self.path} was written by a kretain before its first release: move it away")
        self.db.execute("BEGIN")  # one snapshot: others may write meanwhile
        try:
            self._check()
        finally:
            self.db.execute("COMMIT")

    def _check(self) -> None:
        """Check that the file is intact, and is this cluster's ledger.

        Raises:
            sqlite3.DatabaseError: it is not.
        """
        if (found := self.db.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
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
                f"it is not the previous ledger (the audit log names {self._known_id}, this is {self.ledger_id})"
            )

    def _sealed(self) -> int:
        """Return a checksum over all rows: a missing row, an extra one, or a changed key changes it.

        Of a row with a checksum it covers the key and that checksum, which is verified when the row is read.
        """
        total = 0
        for what, table, keys in _SEALED:
            found = self.db.execute(f"SELECT {what} FROM {table} ORDER BY {keys}")  # noqa: S608
            while rows := found.fetchmany(_ROWS_AT_A_TIME):  # never all of them: they may be large
                lines = "".join(f"{table} {one}\n" for (one,) in rows)
                total = zlib.crc32(lines.encode("utf-8", "surrogatepass"), total)
        return total

    def _pragma(self, name: str) -> int:
        return int(self.db.execute(f"PRAGMA {name}").fetchone()[0])

    def _bump(self) -> None:
        self.db.execute("UPDATE meta SET value = value + 1 WHERE key = 'revision'")
        self._revision = self._meta("revision")

    def _meta(self, key: str) -> int:
        if (row := self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()) is None:
            raise sqlite3.DatabaseError(f"it has no {key}")
        return int(row[0])

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write in one transaction, and seal what was written. If it fails, the revision stays unchanged.

        Else the next revision, which is then another kretain's, would look like our own, and never be read (F6).
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
        """Use the file, one thread at a time; raise any failure as a :class:`StateError`."""
        try:
            with self._used:
                yield
        except (sqlite3.Error, OSError, ValueError, KeyError, TypeError) as error:
            full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            what = "make room on its disk" if full else "restore it, or move it away to start over without that"
            why = "it remembers groups that are gone and when records were written"
            raise StateError(f"the ledger {self.path} can't be used: {sqlite_problem(error)}; {why}: {what}") from None


class Unread(NamedTuple):
    """A key whose last message can't be read: where it is, why, and whether another version wrote it."""

    text: str
    other_version: bool


class SharedCache:
    """How far a cache of the topic ``_kretain_state`` has read it, and what is still to be sent.

    These are the cache's tables, in the ledger's file and in its transactions.

    ``revision`` is the ledger's. If it changed without us, a kretain with ``state: local`` has written to the ledger,
    and the topic is read from its start.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    # -- how far the topic was read ---------------------------------------------------

    def position(self, log: str, end: int, revision: int) -> int | None:
        """Return the next offset to read, None if the topic must be read from its start."""
        row = self._row()
        return None if row is None or row[0] != log or row[1] > end or row[2] != revision else row[1]

    def is_current(self, revision: int) -> bool:
        """Return whether the ledger has all up to the position, and no change that this cache does not know."""
        row = self._row()
        return row is not None and row[2] == revision

    def read_up_to(self, log: str, next_offset: int, revision: int | None) -> None:
        """Note how far the topic was read. Without a revision, it must be read from its start the next time."""
        self.db.execute("DELETE FROM state_topic")
        self.db.execute("INSERT INTO state_topic VALUES (?, ?, ?)", (log, next_offset, revision))

    def pass_over(self, offsets: Collection[int]) -> None:
        """Skip our own messages, if no others are between them."""
        row = self._row()
        if row is not None and offsets and sorted(offsets) == list(range(row[1], row[1] + len(offsets))):
            self.db.execute("UPDATE state_topic SET next_offset = ?", (row[1] + len(offsets),))

    def _row(self) -> tuple[str, int, int | None] | None:
        row: tuple[str, int, int | None] | None = self.db.execute("SELECT * FROM state_topic").fetchone()
        return row

    # -- what is still to be sent ----------------------------------------------------------

    def mark(self, keys: Iterable[str], revision: int, first: int | None = None) -> None:
        """Note keys whose documents must be sent; the ledger has just changed to this revision.

        ``first`` is noted instead for those that were not waiting to be sent.
        """
        self.db.executemany(
            "INSERT INTO unsent VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET revision = ?",
            ((key, revision if first is None else first, revision) for key in keys),
        )
        self.db.execute("UPDATE state_topic SET revision = ? WHERE revision = ?", (revision, revision - 1))

    def unsent(self) -> dict[str, int]:
        """Return the keys to send, each with the revision in which it last changed; 0: only the topic lacks it."""
        return dict(self.db.execute("SELECT key, revision FROM unsent ORDER BY key"))

    def sent(self, key: str, revision: int | None = None) -> None:
        """Note that the topic has the ledger's document of a key, unless that has changed since ``revision``."""
        self.db.execute("DELETE FROM unsent WHERE key = ? AND revision <= coalesce(?, revision)", (key, revision))

    def saw_shared(self, name: str, seen_ms: int) -> None:
        """Note when a group was last seen (Unix ms) according to the topic."""
        self.db.execute("INSERT OR REPLACE INTO shared_seen VALUES (?, ?)", (name, seen_ms))

    def shared_seen_ms(self, name: str) -> int:
        """Return when a group was last seen (Unix ms) according to the topic, 0 if it does not say."""
        row = self.db.execute("SELECT seen_ms FROM shared_seen WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row is not None else 0

    # -- what could not be read --------------------------------------------------------

    def unread(self) -> dict[str, Unread]:
        """Return the keys whose last message can't be read."""
        return {key: Unread(text, bool(other)) for key, text, other in self.db.execute("SELECT * FROM unread")}

    def not_read(self, key: str, text: str, *, other_version: bool) -> None:
        """Note that a key's message can't be read."""
        self.db.execute("INSERT OR REPLACE INTO unread VALUES (?, ?, ?)", (key, text, other_version))

    def read(self, key: str) -> None:
        """Note that a key's last message can be read, or is ours."""
        self.db.execute("DELETE FROM unread WHERE key = ?", (key,))

    def forget_other_versions(self) -> None:
        """Forget the messages of other versions: the topic is read from its start, and may not have them any more."""
        self.db.execute("DELETE FROM unread WHERE newer")
