"""How far a cache of the topic ``_kretain_state`` has read it, and what is still to be sent."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from typing import NamedTuple


class Unread(NamedTuple):
    """A key whose last message can't be read: its place and why, and whether a newer kretain wrote it."""

    text: str
    newer: bool


class SharedCache:
    """The cache's tables, in the ledger's file and in its transactions.

    ``revision`` is the ledger's. If it changed without us, a kretain with ``state: local`` has written to the ledger,
    and the topic is read from its start.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    # -- how far the topic was read ---------------------------------------------------

    def position(self, topic_id: str, end: int, revision: int) -> int | None:
        """Return the next offset to read, None if the topic must be read from its start."""
        row = self._row()
        if row is None or row[0] != topic_id or row[1] > end or row[2] != revision:
            return None
        return row[1]

    def is_current(self, revision: int) -> bool:
        """Return whether the ledger has all up to the position, and no change that this cache does not know."""
        row = self._row()
        return row is not None and row[2] == revision

    def read_up_to(self, topic_id: str, next_offset: int, revision: int | None) -> None:
        """Note how far the topic was read. Without a revision, it must be read from its start the next time."""
        self.db.execute("DELETE FROM state_topic")
        self.db.execute("INSERT INTO state_topic VALUES (?, ?, ?)", (topic_id, next_offset, revision))

    def pass_over(self, offsets: Collection[int]) -> None:
        """Skip our own messages, if no others are between them."""
        row = self._row()
        if row is not None and offsets and sorted(offsets) == list(range(row[1], row[1] + len(offsets))):
            self.db.execute("UPDATE state_topic SET next_offset = ?", (row[1] + len(offsets),))

    def _row(self) -> tuple[str, int, int | None] | None:
        row: tuple[str, int, int | None] | None = self.db.execute("SELECT * FROM state_topic").fetchone()
        return row

    # -- what is still to be sent ----------------------------------------------------------

    def mark(self, keys: Iterable[str], revision: int) -> None:
        """Note keys whose documents must be sent; the ledger has just changed to this revision."""
        self.db.executemany("INSERT OR REPLACE INTO unsent VALUES (?, ?)", ((key, revision) for key in keys))
        self.db.execute("UPDATE state_topic SET revision = ? WHERE revision = ?", (revision, revision - 1))

    def unsent(self) -> dict[str, int]:
        """Return the keys to send, each with the revision in which it last changed."""
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
        return {key: Unread(text, bool(newer)) for key, text, newer in self.db.execute("SELECT * FROM unread")}

    def not_read(self, key: str, text: str, *, newer: bool) -> None:
        """Note that a key's message can't be read."""
        self.db.execute("INSERT OR REPLACE INTO unread VALUES (?, ?, ?)", (key, text, newer))

    def read(self, key: str) -> None:
        """Note that a key's last message can be read, or is ours."""
        self.db.execute("DELETE FROM unread WHERE key = ?", (key,))
