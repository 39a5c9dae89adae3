"""The rows of a ledger's file, and the documents that they come to for others (``state: cluster``).

Everything here runs in the ledger's own transactions.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from retention_cli.memory import documents as docs
from retention_cli.memory.ages import StoredAges, merged
from retention_cli.memory.disk import DiskMemory, unpack
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger_file import LedgerFile
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.shared_cache import SharedCache

SEEN_AGAIN_MS: Final = 3_600_000
"""An unchanged group is sent again at most once an hour, so it counts that much longer once it is gone."""
Key = tuple[str, int]
"""A topic's id and a partition."""
_SELECT: Final = "SELECT topic_id, partition, checksum, doc FROM partitions"


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


class LedgerRows(LedgerFile):
    """A ledger's rows. A shared one also knows which of its documents are still to be sent to the topic."""

    def __init__(self, folder: Path | None, known_id: str | None = None, *, shared: bool = False) -> None:
        super().__init__(folder, known_id)
        self.shared = shared
        self._ages = StoredAges(self.db)
        self._cache = SharedCache(self.db)

    # -- partitions ---------------------------------------------------------------------

    def _stored_partitions(
        self, topic_id: str | None = None, numbers: range = range(2**31)
    ) -> Iterator[tuple[Key, PartitionMemory]]:
        """Yield all partitions, or a topic's, or some of these."""
        where = "" if topic_id is None else " WHERE topic_id = ? AND partition >= ? AND partition < ?"
        given = (topic_id, numbers.start, numbers.stop) if where else ()
        for key, doc in _intact(self.db.execute(_SELECT + where, given)):
            yield key, PartitionMemory.from_bytes(doc)

    def _with_theirs(self, partitions: Mapping[Key, PartitionMemory]) -> dict[Key, PartitionMemory]:
        """Return partitions merged with what the file has of them."""
        found = dict(partitions)
        for (topic_id, number), mine in partitions.items():
            for key, theirs in self._stored_partitions(topic_id, range(number, number + 1)):
                found[key] = mine.merged(theirs)
        return found

    def _put_partitions(self, documents: Iterable[tuple[Key, bytes]]) -> None:
        rows = ((*key, _checksum(key, doc), doc) for key, doc in documents)
        self.db.executemany("INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?)", rows)

    # -- groups ----------------------------------------------------------------------------

    def _stored_heads(self) -> dict[str, Head]:
        """Return each group's :class:`Head`.

        Raises:
            ValueError: a row is not what was written.
        """
        found: dict[str, Head] = {}
        rows = self.db.execute("SELECT name, checksum, doc_checksum, seen_ms, digest, plain, open FROM groups")
        for name, noted, *values in rows:
            if noted != _checksum_of(name, *values):
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
            (name, _checksum_of(name, *values), *values, document),
        )

    def _touch_group(self, name: str, seen_ms: int) -> None:
        """Note that a group was seen, if that is later than stored."""
        row = self.db.execute(
            "SELECT doc_checksum, seen_ms, digest, plain, open FROM groups WHERE name = ?", (name,)
        ).fetchone()
        if row is not None and row[1] < seen_ms:
            changed = (seen_ms, _checksum_of(name, row[0], seen_ms, *row[2:]), name)
            self.db.execute("UPDATE groups SET seen_ms = ?, checksum = ? WHERE name = ?", changed)

    # -- disks ------------------------------------------------------------------------------

    def _stored_disk(self, name: str) -> DiskMemory | None:
        row = self.db.execute("SELECT looks FROM disks WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        unpack(row[0])  # raises for what is broken
        return DiskMemory(row[0])

    def _put_disk(self, name: str, one: DiskMemory) -> None:
        self.db.execute("INSERT OR REPLACE INTO disks VALUES (?, ?)", (name, one.packed))

    def _is_stale(self, disk: str, before_ms: int) -> bool:
        looks = (self._stored_disk(disk) or DiskMemory()).looks
        return not looks or looks[-1].wall_ms < before_ms

    # -- documents --------------------------------------------------------------------------

    def documents(self) -> Iterator[tuple[str, docs.Document]]:
        """Yield all that is remembered, by key."""
        with self._errors():
            for key in sorted(self._all_keys()):
                if (document := self._document(key)) is not None:
                    yield key, document

    def _all_keys(self) -> set[str]:
        groups = self.db.execute("SELECT name FROM groups")
        partitions = self.db.execute("SELECT topic_id, partition FROM partitions")
        disks = self.db.execute("SELECT name FROM disks")
        keys = {docs.group_key(name) for (name,) in groups} | {docs.disk_key(name) for (name,) in disks}
        return keys | {docs.topic_key(*key) for key in partitions}

    def _document(self, key: str) -> docs.Document | None:
        """Return the document for a key, None if there is none."""
        if (name := docs.group_of(key)) is not None:
            group = self._stored_group(name)
            return None if group is None else docs.GroupDocument(name, group, self._ages.born_ms(name))
        if (disk := docs.disk_of(key)) is not None:
            looks = self._stored_disk(disk)
            return None if looks is None else docs.DiskDocument(disk, looks)
        if (named := docs.partitions_of(key)) is None:
            return None
        topic_id, numbers = named
        memories = {number: one for (_, number), one in self._stored_partitions(topic_id, numbers)}
        if not memories:
            return None
        row = self.db.execute("SELECT name, seen_ms FROM topics WHERE topic_id = ?", (topic_id,)).fetchone()
        name, seen_ms = row or ("", 0)
        widths = self._ages.widths_of(topic_id) if numbers.start == 0 else ()
        return docs.TopicDocument(topic_id, name, seen_ms, memories, widths)

    def _merge_in(self, document: docs.Document) -> None:
        match document:
            case docs.TopicDocument():
                numbers = range(min(document.partitions, default=0), max(document.partitions, default=-1) + 1)
                known = dict(self._stored_partitions(document.topic_id, numbers))
                for number, theirs in document.partitions.items():
                    mine = known.get(key := (document.topic_id, number))
                    both = theirs if mine is None else mine.merged(theirs)
                    if both != mine:
                        self._put_partitions([(key, both.as_bytes())])
                self.db.execute(
                    "INSERT INTO topics VALUES (?, ?, ?) ON CONFLICT (topic_id) "
                    "DO UPDATE SET seen_ms = max(seen_ms, excluded.seen_ms)",
                    (document.topic_id, document.name, document.seen_ms),
                )
                self._ages.merge_widths(document.topic_id, document.widths)
            case docs.GroupDocument():
                stored = self._stored_group(document.name)
                self._ages.merge_born(document.name, document.born_ms, known=stored is not None)
                group = document.group if stored is None else stored.merged(document.group)
                self._put_group(document.name, Head.of(group), group.as_bytes())
                self._cache.told(document.name, document.group.seen_ms)
            case docs.DiskDocument():
                disk = self._stored_disk(document.name) or DiskMemory()
                self._put_disk(document.name, disk.merged(document.disk))
            case docs.ClockDocument():
                pass

    def _forget_up_to(self, key: str, stamp_ms: int) -> None:
        """Forget what a tombstone of this time (Unix ms) deletes, except what was seen since."""
        if (name := docs.group_of(key)) is not None:
            gone = self.db.execute("DELETE FROM groups WHERE name = ? AND seen_ms <= ?", (name, stamp_ms)).rowcount
            self._ages.forget((), [name] if gone else ())
        elif (disk := docs.disk_of(key)) is not None:
            if self._is_stale(disk, stamp_ms):
                self.db.execute("DELETE FROM disks WHERE name = ?", (disk,))
        elif (named := docs.partitions_of(key)) is not None:
            topic_id, numbers = named
            self.db.execute(
                "DELETE FROM partitions WHERE topic_id = ? AND partition >= ? AND partition < ? AND topic_id NOT IN "
                "(SELECT topic_id FROM topics WHERE seen_ms > ?)",
                (topic_id, numbers.start, numbers.stop, stamp_ms),
            )
            self.db.execute(
                "DELETE FROM topics WHERE topic_id = ? AND topic_id NOT IN (SELECT topic_id FROM partitions)",
                (topic_id,),
            )

    def _mark(self, keys: Iterable[str], touched: Mapping[str, int] | None = None) -> None:
        """Note which documents have changed, if there are others to send them to. Part of each transaction.

        ``touched`` are groups that were seen again, unchanged, and when (Unix ms): not all of these need be sent.
        """
        if self.shared:
            seen = (touched or {}).items()
            again = [name for name, seen_ms in seen if seen_ms - self._cache.told_seen_ms(name) >= SEEN_AGAIN_MS]
            self._cache.mark([*keys, *map(docs.group_key, again)], self._meta("revision"))


def covers(theirs: docs.Document, mine: docs.Document) -> bool:
    """Return whether their document has all that ours has."""
    if isinstance(theirs, docs.TopicDocument) and isinstance(mine, docs.TopicDocument):
        nothing = PartitionMemory()
        known = all(theirs.partitions.get(n, nothing).covers(one) for n, one in mine.partitions.items())
        return known and merged(mine.widths, theirs.widths) == [*theirs.widths]
    if isinstance(theirs, docs.GroupDocument) and isinstance(mine, docs.GroupDocument):
        known = theirs.group.covers(mine.group) and theirs.born_ms <= mine.born_ms
        return known and mine.group.seen_ms - theirs.group.seen_ms < SEEN_AGAIN_MS
    if isinstance(theirs, docs.DiskDocument) and isinstance(mine, docs.DiskDocument):
        return theirs.disk.covers(mine.disk)
    return False


def partitions_in(changes: bytes) -> dict[Key, bytes]:
    """Return the partitions' documents in a file of SQLite's (:func:`retention_cli.state.parts.changes`).

    Raises:
        ValueError: a row is not what was written.
    """
    try:
        with closing(sqlite3.connect(":memory:")) as db:
            db.deserialize(changes)
            return dict(_intact(db.execute(_SELECT)))
    except sqlite3.Error as error:
        raise ValueError(str(error)) from None


def _intact(rows: Iterable[tuple[str, int, int, bytes]]) -> Iterator[tuple[Key, bytes]]:
    """Yield the documents of rows of ``partitions``.

    Raises:
        ValueError: a row is not what was written.
    """
    for topic_id, partition, noted, doc in rows:
        if noted != _checksum((topic_id, partition), doc):
            what = f"partition {partition} of topic id {topic_id}"
            raise ValueError(f"what it remembers of {what} is not what was written")
        yield (topic_id, partition), doc


def _checksum(key: Key, doc: bytes) -> int:
    return zlib.crc32(doc, zlib.crc32(f"{key[0]}/{key[1]}".encode()))


def _checksum_of(*values: object) -> int:
    """Return a checksum over a row's values: the repr of text, numbers, bytes and None."""
    return zlib.crc32(repr(values).encode("utf-8", "surrogatepass"))
