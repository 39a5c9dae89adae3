"""A ledger that is read and written as documents: the SQLite half of ``state: cluster``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from retention_cli.memory import documents as docs
from retention_cli.memory.ages import merged
from retention_cli.memory.interface import Commits, Last, RecalledGroup
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.ledger_file import Head, Key
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.shared_cache import SharedCache

SEEN_AGAIN_MS: Final = 3_600_000
"""An unchanged group is sent again at most once an hour, so it counts that much longer once it is gone."""


class DocumentLedger(Ledger):
    """A ledger that also knows which of its documents are still to be sent to the topic.

    Everything except opening runs in the ledger's own transactions.
    """

    slack_ms = SEEN_AGAIN_MS

    def _prepare(self, *, there: bool) -> None:
        super()._prepare(there=there)
        self._cache = SharedCache(self.db)

    def saw_group(self, name: str, commits: Commits, now_ms: int, since_ms: int) -> RecalledGroup:
        """Remember a group's commits; return its gone ones, seen at or after ``since_ms``, and its refused ones."""
        return super().saw_group(name, commits, now_ms, since_ms - self.slack_ms)

    def gone_groups(self, present: Iterable[str], since_ms: int, *, outside: bool = False) -> Iterable[Last]:
        """Return the groups not in ``present``, seen at or after ``since_ms``; with ``outside`` only those of F7."""
        return super().gone_groups(present, since_ms - self.slack_ms, outside=outside)

    def _to_tell(
        self,
        partitions: Iterable[Key],
        groups: Iterable[str],
        touched: Mapping[str, int] | None = None,
        disks: Iterable[str] = (),
    ) -> None:
        keys = {docs.topic_key(*key) for key in partitions} | {docs.group_key(name) for name in groups}
        keys |= {docs.disk_key(name) for name in disks}
        for name, seen_ms in (touched or {}).items():
            if seen_ms - self._cache.told_seen_ms(name) >= SEEN_AGAIN_MS:
                keys.add(docs.group_key(name))
        self._cache.mark(keys, self._meta("revision"))

    def _merge_in(self, document: docs.Document) -> None:
        match document:
            case docs.TopicDocument():
                for number, theirs in document.partitions.items():
                    key = (document.topic_id, number)
                    mine = self._stored_partition(key)
                    both = theirs if mine is None else mine.merged(theirs)
                    if both != mine:
                        self._put_partition(key, both)
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
                known = self._stored_disk(document.name)
                self._put_disk(document.name, document.disk if known is None else known.merged(document.disk))

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

    def _document(self, key: str) -> docs.Document | None:
        """Return the cache's document for a key, None if it has none."""
        if (name := docs.group_of(key)) is not None:
            group = self._stored_group(name)
            return None if group is None else docs.GroupDocument(name, group, self._ages.born_ms(name))
        if (disk := docs.disk_of(key)) is not None:
            looks = self._stored_disk(disk)
            return None if looks is None else docs.DiskDocument(disk, looks)
        if (named := docs.partitions_of(key)) is None:
            return None
        topic_id, numbers = named
        memories = self._stored_partitions(topic_id, numbers)
        if not memories:
            return None
        row = self.db.execute("SELECT name, seen_ms FROM topics WHERE topic_id = ?", (topic_id,)).fetchone()
        name, seen_ms = row or ("", 0)
        widths = self._ages.widths_of(topic_id) if numbers.start == 0 else ()
        return docs.TopicDocument(topic_id, name, seen_ms, memories, widths)

    # -- a copy that was planned with elsewhere ---------------------------------------------

    def take_back(self, copy: DocumentLedger, revision: int) -> None:
        """Take in what was added to a copy of this ledger, which was made at ``revision``.

        If nothing was written here since, the copy's rows replace these; else its documents are merged into them, as
        those of another operator are.

        Raises:
            StateError: either can't be used.
        """
        if not self._replaced(copy, revision):
            with self.transaction():
                self.db.execute("UPDATE meta SET value = value + 1 WHERE key = 'revision'")
                keys = []
                for key, document in copy.documents():
                    self._merge_in(document)
                    keys.append(key)
                self._cache.mark(keys, self._meta("revision"))
        with self._errors():
            self._forget_read()

    def _replaced(self, copy: DocumentLedger, revision: int) -> bool:
        """Put the copy's rows in place of these, unless there was another write since; return whether they are."""
        with self._errors():
            self.db.execute("ATTACH ? AS copy", (str(copy.path),))
            try:
                with self.transaction():
                    if self._meta("revision") != revision:
                        return False
                    tables = self.db.execute("SELECT name FROM copy.sqlite_master WHERE type = 'table'").fetchall()
                    for (name,) in tables:
                        self.db.execute(f"DELETE FROM main.{name}")  # noqa: S608
                        self.db.execute(f"INSERT INTO main.{name} SELECT * FROM copy.{name}")  # noqa: S608
                return True
            finally:
                self.db.execute("DETACH copy")

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
