"""The rows of a ledger's file, and the documents that they become for others (``state: cluster``).

Everything here runs in the ledger's own transactions.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from retention_cli.core.consumers import outlives_topics
from retention_cli.core.model import TopicPartition
from retention_cli.memory import documents as docs
from retention_cli.memory.ages import AGAIN_MS, STORED, StoredAges, Watched, watched_since
from retention_cli.memory.disk import DiskMemory, unpack
from retention_cli.memory.group import GroupMemory, RecalledGroup, digest_of
from retention_cli.memory.ledger_file import LedgerFile, SharedCache
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.positions import NOTHING, Commits, Last, LogsOf, Positions

SEEN_AGAIN_MS: Final = 3_600_000
"""An unchanged group is sent again at most once an hour, so it counts that much longer once it is gone."""
Key = tuple[str, int]
"""A topic's id and a partition."""
_SELECT: Final = "SELECT topic_id, partition, checksum, doc FROM partitions"


class Head(NamedTuple):
    """A group's row without its document: when it was last seen (Unix ms), and the digest of its commits.

    ``plain``: there is nothing to recall while its commits don't change. ``open`` are the topics with a commit that was
    not judged yet.
    """

    seen_ms: int
    digest: bytes
    plain: bool
    open: frozenset[str]

    @classmethod
    def of(cls, group: GroupMemory) -> Head:
        """Return the head of a group's row."""
        plain = not (group.gone or group.refused or group.doubted)
        return cls(group.seen_ms, group.digest, plain, frozenset(group.open.topics()))


class LedgerRows(LedgerFile):
    """A ledger's rows. A shared one also knows which of its documents are still to be sent to the topic.

    Groups that changed are in ``_groups``, and from judging on in ``_judged``, as stored.
    """

    reads: list[tuple[str, GroupMemory | None]] | None = None
    """A list of one's own to note here what groups are read as, in order: all open; None: as is remembered."""

    def __init__(self, folder: Path | None, known_id: str | None = None, *, shared: bool = False) -> None:
        self._ids: Mapping[str, str] = {}
        self._groups: dict[str, GroupMemory] = {}
        self._judged: dict[str, bytes] = {}
        self._touched: dict[str, int] = {}
        self._present: set[str] = set()
        self._watches: dict[str, tuple[Watched, bool]] = {}
        self._heads: dict[str, Head] = {}
        self._outdated = False  # what was read is not what the file has
        super().__init__(folder, known_id)
        self.shared = shared
        self._slack_ms = SEEN_AGAIN_MS if shared else 0  # by so much a group may have been seen later (F6)
        self._ages = StoredAges(self.db)
        self._cache = SharedCache(self.db)

    # -- partitions ---------------------------------------------------------------------

    def _stored_partitions(
        self, topic_id: str | None = None, numbers: range = range(2**31)
    ) -> Iterator[tuple[Key, PartitionMemory]]:
        where = "" if topic_id is None else " WHERE topic_id = ? AND partition >= ? AND partition < ?"
        given = (topic_id, numbers.start, numbers.stop) if where else ()
        for key, doc in _intact(self.db.execute(_SELECT + where, given)):
            yield key, PartitionMemory.from_bytes(doc)

    def _with_theirs(self, partitions: Mapping[Key, PartitionMemory]) -> dict[Key, PartitionMemory]:
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
                raise ValueError(f"its data on group {name!r} is not what was written")
            _doc, seen_ms, digest, plain, topics = values
            found[name] = Head(seen_ms, digest, bool(plain), frozenset(topics.split("\n") if topics else ()))
        return found

    def _stored_group(self, name: str) -> GroupMemory | None:
        row = self.db.execute("SELECT seen_ms, doc_checksum, doc FROM groups WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        if zlib.crc32(row[2]) != row[1]:
            raise ValueError(f"its data on group {name!r} is not what was written")
        group = GroupMemory.from_bytes(row[2])
        group.seen_ms = row[0]
        return group

    def _put_group(self, name: str, head: Head, document: bytes) -> None:
        values = (zlib.crc32(document), head.seen_ms, head.digest, int(head.plain), "\n".join(sorted(head.open)))
        self.db.execute(
            "INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (name, _checksum_of(name, *values), *values, document),
        )

    def _touch_group(self, name: str, seen_ms: int) -> None:
        row = self.db.execute(
            "SELECT doc_checksum, seen_ms, digest, plain, open FROM groups WHERE name = ?", (name,)
        ).fetchone()
        if row is not None and row[1] < seen_ms:
            changed = (seen_ms, _checksum_of(name, row[0], seen_ms, *row[2:]), name)
            self.db.execute("UPDATE groups SET seen_ms = ?, checksum = ? WHERE name = ?", changed)

    # -- disks ------------------------------------------------------------------------------

    def _stored_disk(self, name: str) -> DiskMemory:
        row = self.db.execute("SELECT looks FROM disks WHERE name = ?", (name,)).fetchone() or (b"",)
        unpack(row[0])  # raises for what is broken
        return DiskMemory(row[0])

    def _put_disk(self, name: str, one: DiskMemory) -> None:
        self.db.execute("INSERT OR REPLACE INTO disks VALUES (?, ?)", (name, one.packed))

    def _is_stale(self, disk: str, before_ms: int) -> bool:
        samples = self._stored_disk(disk).samples
        return not samples or samples[-1].wall_ms < before_ms

    # -- since when groups are watched --------------------------------------------------------

    def watched_since(self, scope: str, ignored: Collection[str], now_ms: int) -> int | None:
        """Return since when the groups of a scope have been watched (F10, Unix ms); None if they are not."""
        with self._errors():
            known = {**self._stored_watches(), **{key: one for key, (one, _) in self._watches.items()}}
        return watched_since(known.values(), scope, ignored, now_ms)

    def saw_all(self, scope: str, ignored: tuple[str, ...], began_ms: int, done_ms: int) -> None:
        """Note that all groups of a scope were read, but for the ignored ones, between two times (F10, Unix ms).

        When they were listed is not known any closer: a watch begins with the later one, and lasts to the earlier.
        """
        since_ms = self.watched_since(scope, ignored, done_ms)
        one = Watched(scope, ignored, done_ms if since_ms is None else since_ms, began_ms)
        with self._errors():
            before = self._stored_watches().get(one.key)
        current = before is not None and before.is_current(done_ms)
        if before is None or not current or before.since_ms > one.since_ms or began_ms - before.last_ms >= AGAIN_MS:
            self._watches[one.key] = one, before is not None and not current

    def _stored_watches(self) -> dict[str, Watched]:
        rows = self.db.execute("SELECT key, value FROM about WHERE substr(key, 1, 8) = 'watched:'")
        return {docs.name_in(key, docs.WATCHED) or "": STORED.validate_json(value, strict=True) for key, value in rows}

    def _put_watch(self, one: Watched, *, replaces: bool = False) -> None:
        before = None if replaces else self._stored_watches().get(one.key)
        text = STORED.dump_json(one if before is None else one.merged(before)).decode()
        self.db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (docs.WATCHED + one.key, text))

    # -- settings that kretain has raised (retention_cli/protect) -----------------------------

    def raised(self) -> dict[str, str]:
        """Return the records of raised settings, by key."""
        with self._errors():
            rows = self.db.execute("SELECT key, value FROM about WHERE substr(key, 1, 7) = 'raised:'").fetchall()
        return {key.removeprefix("raised:"): value for key, value in rows}

    def note_raised(self, key: str, text: str) -> None:
        """Write the record of a raised setting at once.

        Raises:
            StateError: it can't be written.
        """
        with self.transaction():
            self.db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (f"raised:{key}", text))
            self._bump()

    # -- groups, as they are read and judged -----------------------------------------------

    def saw_group(
        self, name: str, commits: Commits, now_ms: int, since_ms: int, *, partly: bool = False
    ) -> RecalledGroup:
        """Remember a group's commits; return its gone ones, seen at or after ``since_ms``, and its refused ones.

        ``partly``: others could not be read. If they are not remembered either (:meth:`lacks_commits_of`), they still
        are not.
        """
        since_ms -= self._slack_ms
        head = self._heads.get(name)
        lacks = partly and head is not None and self.lacks_commits_of(name)
        digest = b"" if lacks else digest_of(commits, self._ids)
        now = None if head is not None and head.digest == digest and not lacks else Positions.of(commits)
        if self.reads is not None:
            self.reads.append((name, None if now is None else GroupMemory(now_ms, digest, open=now)))
        if head is not None and now is None:
            self.saw_again(name, now_ms)
            return RecalledGroup() if head.plain else self.group(name).recalled(self._ids, since_ms)
        group = self.group(name)
        group.update(now or NOTHING, self._ids, digest, now_ms, named=commits if outlives_topics(name) else None)
        self._see(name, group)
        return group.recalled(self._ids, since_ms)

    def unmoved_since(self, name: str, commits: Commits | None) -> int | None:
        """Return the first look that found a consumer's commits where they are, None if no look did."""
        head = self._heads.get(name)
        if head is None or (commits is not None and head.digest != digest_of(commits, self._ids)):
            return None
        return self.group(name).stood_ms

    def gone_groups(self, present: Iterable[str], since_ms: int, *, outside: bool = False) -> Iterable[Last]:
        """Return the groups not in ``present``, seen at or after ``since_ms``; with ``outside`` only those of F7."""
        since_ms -= self._slack_ms
        here = frozenset(present)
        for name, head in sorted(self._heads.items()):
            if name not in here and head.seen_ms >= since_ms and (outlives_topics(name) or not outside):
                yield name, head.seen_ms, self.group(name).last_commits(self._ids, since_ms)

    def judge(self, logs_of: LogsOf, topics: Collection[str], cuts: Collection[TopicPartition]) -> None:
        """Judge the commits of the groups that exist by what this pass has read of their logs (F5)."""
        wanted = [one for one in self._heads.items() if cuts or not one[1].open.isdisjoint(topics)]
        if not wanted:
            return
        logs = logs_of()
        for name, head in wanted:
            group = self.group(name)
            if unseen := bool(cuts) and outlives_topics(name) and name not in self._present:
                group.cut_unseen({tp.topic for tp in cuts})
            # If another run has seen it since, its commits may be later than the logs that this pass has read.
            mine = (unseen or name in self._present) and group.seen_ms == head.seen_ms
            unread = not (name in self._present or outlives_topics(name)) and group.refuse_unread(logs)
            if group.refuse_beyond(cuts, logs) | (mine and group.judge(logs)) | unseen | unread:
                self._drop(name)
                self._heads[name], self._judged[name] = Head.of(group), group.as_bytes()

    def remembers_group(self, name: str) -> bool:
        """Return whether anything is remembered of a group."""
        return name in self._heads

    def lacks_commits_of(self, name: str) -> bool:
        """Return whether another machine saw a remembered group last, and its commits fit into no message."""
        return not self._heads[name].digest

    def groups(self) -> dict[str, GroupMemory]:
        """Return the memory of every group, by name."""
        return {name: self.group(name) for name in sorted(self._heads)}

    def saw_read(self, name: str, read: GroupMemory | None, listed_ms: int) -> None:
        """Remember what a part of this ledger has in :attr:`reads` (:mod:`retention_cli.state.memories`).

        Others may have written since: what they have read is merged by when that was, as their commits may be later.

        Args:
            name: the group's key.
            read: its commits, None if they are those that are remembered.
            listed_ms: the groups were listed later than that (Unix ms).
        """
        if read is None:
            self.saw_again(name, listed_ms)
            return
        apart = self._outdated or self._meta("revision") != self._revision
        group = GroupMemory() if apart and name not in self._groups and name not in self._judged else self.group(name)
        group.update(read.open, self._ids, read.digest, read.seen_ms, named=() if outlives_topics(name) else None)
        self._see(name, group)

    def saw_again(self, name: str, now_ms: int) -> None:
        """Note that a group was seen, unchanged."""
        self._touched[name] = now_ms
        self._present.add(name)

    def _see(self, name: str, group: GroupMemory) -> None:
        self._present.add(name)
        self._drop(name)
        self._heads[name], self._groups[name] = Head.of(group), group

    def _drop(self, name: str) -> None:
        for some in (self._heads, self._groups, self._judged):
            some.pop(name, None)

    def group(self, name: str) -> GroupMemory:
        """Return a group's memory, empty if it was never seen."""
        if (waiting := self._groups.get(name)) is not None:
            return waiting
        with self._errors():
            if (judged := self._judged.get(name)) is not None:
                return GroupMemory.from_bytes(judged)
            there = self._stored_group(name)
            if there is None and name in self._heads:
                raise ValueError(f"its data on group {name!r} is missing")
            return there or GroupMemory()

    # -- documents --------------------------------------------------------------------------

    def documents(self) -> Iterator[tuple[str, docs.Document]]:
        """Yield all that is remembered, by key."""
        with self._errors():
            for key in sorted(self._all_keys()):
                if (document := self._document(key)) is not None:
                    yield key, document

    def _all_keys(self) -> set[str]:
        return {
            *(docs.GROUP + name for (name,) in self.db.execute("SELECT name FROM groups")),
            *(docs.DISK + name for (name,) in self.db.execute("SELECT name FROM disks")),
            *(docs.WATCHED + name for name in self._stored_watches()),
            *(docs.topic_key(*key) for key in self.db.execute("SELECT topic_id, partition FROM partitions")),
        }

    def _document(self, key: str) -> docs.Document | None:
        if (name := docs.name_in(key, docs.GROUP)) is not None:
            group = self._stored_group(name)
            return None if group is None else docs.GroupDocument(name, group, self._ages.born_ms(name))
        if (disk := docs.name_in(key, docs.DISK)) is not None:
            memory = self._stored_disk(disk)
            return docs.DiskDocument(disk, memory) if memory.packed else None
        if (watched := docs.name_in(key, docs.WATCHED)) is not None:
            return self._stored_watches().get(watched)
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
                self._cache.saw_shared(document.name, document.group.seen_ms)
            case docs.DiskDocument():
                self._put_disk(document.name, self._stored_disk(document.name).merged(document.disk))
            case Watched():
                self._put_watch(document)

    def _mark(self, keys: Iterable[str], touched: Mapping[str, int] | None = None) -> None:
        """Note which documents have changed, if there are others to send them to. Part of each transaction.

        ``touched`` are groups that were seen again, unchanged, and when (Unix ms): not all of these need be sent.
        """
        if self.shared:
            seen = (touched or {}).items()
            again = [name for name, seen_ms in seen if seen_ms - self._cache.shared_seen_ms(name) >= SEEN_AGAIN_MS]
            self._cache.mark([*keys, *(docs.GROUP + one for one in again)], self._meta("revision"))


def partitions_in(changes: bytes) -> dict[Key, bytes]:
    """Return the partitions' documents in a file of SQLite's (:func:`retention_cli.state.memories.changes`).

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
            raise ValueError(f"its data on partition {partition} of topic id {topic_id} differs from what was written")
        yield (topic_id, partition), doc


def _checksum(key: Key, doc: bytes) -> int:
    return zlib.crc32(doc, zlib.crc32(f"{key[0]}/{key[1]}".encode()))


def _checksum_of(*values: object) -> int:
    """Return a checksum over a row's values: the repr of text, numbers, bytes and None."""
    return zlib.crc32(repr(values).encode("utf-8", "surrogatepass"))
