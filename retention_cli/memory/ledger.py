"""The ledger in SQLite: the memory of one cluster, safe with concurrent processes and kills (docs/memory.md).

It is read as needed and written once, by :meth:`Ledger.save`; what another process wrote meanwhile is merged with ours.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from retention_cli.core.model import Reason, Unknown
from retention_cli.memory import documents as docs
from retention_cli.memory.ages import Ages
from retention_cli.memory.disk import DiskMemory, DiskSample, unpack
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger_file import FILE_NAME
from retention_cli.memory.ledger_rows import Head, Key, LedgerRows, partitions_in
from retention_cli.memory.partition import PartitionMemory

if TYPE_CHECKING:
    from retention_cli.audit.log import NamedLedger

_SEEN_AGAIN_MS: Final = 60_000
"""An unchanged group is noted as seen again at most once a minute."""
_TOPICS_AGAIN_MS: Final = 3_600_000
"""Topics are noted as seen again at most once an hour."""


class Ledger(LedgerRows):
    """One cluster's memory. A context manager; nothing is written before :meth:`save`.

    ``lost`` says why it may be incomplete: what depends on it is unknown, and held. ``notes`` say what it skipped.
    Without a folder it begins empty, and is never saved: what is recalled is what this process has seen.

    Raises:
        StateError: it can't be opened, is no ledger, or was written by a newer kretain.
    """

    def __init__(
        self,
        folder: Path | None,
        known: NamedLedger | None = None,
        *,
        lost: Unknown | None = None,
        shared: bool = False,
    ) -> None:
        self.lost = lost
        self.notes: list[Reason] = []
        self._disks: dict[str, DiskMemory] = {}
        self._sparing = False
        self._topics_ms = 0
        self._partitions: dict[Key, PartitionMemory] = {}
        self._loaded: set[str] = set()  # topic ids of which all partitions are in memory
        self._taken: dict[Key, bytes] = {}
        self._names: dict[str, str] = {}
        self._seen: set[str] = set()
        super().__init__(folder, None if known is None else known.ledger_id, shared=shared)
        with self._errors():
            self._forget_read()

    @property
    def revision(self) -> int:
        """How often the ledger has been written."""
        with self._errors():
            return self._meta("revision")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def others_wrote(self) -> bool:
        """Whether another process has written the file since :meth:`begin`."""
        with self._errors():
            return self._outdated or self._meta("revision") != self._revision

    @property
    def since_ms(self) -> int | None:
        """When the ledger was begun (Unix ms), None if nothing was saved yet."""
        with self._errors():
            return int(self._meta("since_ms")) or None

    def begin(self, topic_ids: Mapping[str, str]) -> None:
        """Set the cluster's current topic ids, and read what others have written since the last pass."""
        self._ids, self._present = topic_ids, set()
        with self._errors():
            self.db.execute("BEGIN")  # one snapshot: another run notes a cut for groups and partitions together
            try:
                if self._outdated or self._meta("revision") != self._revision:
                    if self._unsaved():
                        self._join_others()
                    else:
                        self._forget_read()
                if not self._loaded and not self._sparing:
                    self._load()
            finally:
                self.db.execute("COMMIT")

    @contextmanager
    def sparing(self) -> Iterator[None]:
        """Read what is asked for alone, for as long as the context is open, and drop at its end what was not changed.

        Otherwise all partitions of the cluster are read at once and kept.
        """
        self._sparing = True
        try:
            yield
        finally:
            self._sparing = False
            self._partitions = {key: one for key, one in self._partitions.items() if one.changed}
            self._loaded = set()

    def partition(self, topic: str, topic_id: str, partition: int) -> PartitionMemory:
        """Return a partition's memory, to read and to add to. The first call reads all of them."""
        self._names[topic_id] = topic
        if topic_id not in self._loaded:
            self._load(topic_id)
        return self._partitions.setdefault((topic_id, partition), PartitionMemory())

    def ages(self, partitions: Mapping[str, int], groups: Collection[str], now_ms: int) -> Ages:
        """Note how many partitions topics have, and which groups there are; return which are younger (F2)."""
        topics = {name: (self._ids[name], count) for name, count in partitions.items() if name in self._ids}
        with self._errors():
            return self._ages.note(topics, groups, self._heads, now_ms)

    def saw_topics(self, names: Mapping[str, str]) -> None:
        """Note that topics were seen, by id, even if nothing is asked for or added of any partition."""
        self._names |= names
        self._seen |= names.keys()

    def take(self, changes: bytes) -> None:
        """Take in the partitions of a part of this ledger that have changed there (:mod:`.state.memories`).

        Raises:
            ValueError: it is not what was written there.
        """
        self._taken |= partitions_in(changes)

    def noted_ages(self) -> tuple[dict[tuple[str, int], int], dict[str, int]]:
        """Return what :meth:`ages` has noted and is not saved: by topic id and number of partitions, and by group."""
        return self._ages.new_widths, self._ages.new_groups

    def take_ages(self, widths: Mapping[tuple[str, int], int], groups: Mapping[str, int]) -> None:
        """Take in what a part of this ledger has noted (:meth:`noted_ages`); of two times the earlier one counts."""
        for key, seen_ms in widths.items():
            self._ages.new_widths[key] = min(seen_ms, self._ages.new_widths.get(key, seen_ms))
        self._ages.new_groups |= groups

    def disk(self, name: str) -> DiskMemory:
        """Return a disk's memory, to read and to add to."""
        if name not in self._disks:
            with self._errors():
                self._disks[name] = self._stored_disk(name)
        return self._disks[name]

    def disk_samples(self) -> dict[str, tuple[DiskSample, ...]]:
        """Return the looks at each disk's usage, by its key."""
        with self._errors():
            rows = self.db.execute("SELECT name, looks FROM disks ORDER BY name").fetchall()
            return {name: unpack(packed) for name, packed in rows if ":unexplained" not in name}

    def topics(self) -> dict[str, tuple[str, int]]:
        """Return every topic id, with its name and when it was last seen (Unix ms)."""
        with self._errors():
            rows = self.db.execute("SELECT topic_id, name, seen_ms FROM topics ORDER BY name, topic_id").fetchall()
        return {topic_id: (name, seen_ms) for topic_id, name, seen_ms in rows}

    def partitions_of(self, topic_id: str) -> dict[int, PartitionMemory]:
        """Return the memories of a topic id's partitions, by number."""
        if topic_id not in self._loaded:
            self._load(topic_id)
        return {p: one for (tid, p), one in sorted(self._partitions.items()) if tid == topic_id}

    # -- writing -----------------------------------------------------------------------

    def save(self, now_ms: int) -> list[str]:
        """Write what was added, merged with what others wrote meanwhile; return the topic ids and groups written.

        Raises:
            StateError: it can't be written.
        """
        touched = {
            name: seen for name, seen in self._touched.items() if seen - self._heads[name].seen_ms >= _SEEN_AGAIN_MS
        }
        disks = {name: one for name, one in self._disks.items() if one.changed}
        if not self._unsaved() and not touched and now_ms - self._topics_ms < _TOPICS_AGAIN_MS:
            return []
        with self.transaction():
            # What we read and did not change is outdated, too: from here on every write is merged.
            self._outdated = self._outdated or self._meta("revision") != self._revision
            if self._outdated:
                self._expand_taken()
            changed = {key: one for key, one in self._partitions.items() if one.changed}
            partitions, groups, judged = changed, self._groups, self._judged
            if self._outdated:
                partitions, groups, judged = self._with_theirs(changed), self._merged_groups(), {}
                for name, disk in disks.items():
                    disk.packed = disk.merged(self._stored_disk(name)).packed
            self._write(partitions, groups, judged, touched, disks, now_ms)
        for key, one in changed.items():  # only now: a failed write must change nothing
            one.become(partitions[key])
            one.changed = False
        self._heads |= {name: Head.of(group) for name, group in groups.items()}  # merging may have added to them
        self._ages.new_widths, self._ages.new_groups = {}, {}
        for disk in disks.values():
            disk.changed = False
        for name, seen in touched.items():
            head = self._heads[name]
            self._heads[name] = head._replace(seen_ms=max(seen, head.seen_ms))
        written = [*sorted({topic_id for topic_id, _ in (*changed, *self._taken)}), *groups, *judged]
        self._groups, self._judged, self._taken = {}, {}, {}
        self._touched, self._watches = {}, {}
        return written

    def forget_group(self, name: str) -> bool:
        """Forget a group at once (``kretain groups forget``); return whether it was remembered."""
        with self.transaction():
            gone = self.db.execute("DELETE FROM groups WHERE name = ?", (name,)).rowcount > 0
            self._ages.forget((), [name])
            self._bump()
            self._mark([docs.GROUP + name] if gone else ())
        self._drop(name)
        return gone

    def prune(self, before_ms: int, keep: Collection[str] = ()) -> tuple[int, int]:
        """Forget what :meth:`seen_before` returns; return how many topic ids and groups."""
        with self.transaction():
            topics, groups = self.seen_before(before_ms, keep)
            keys = {docs.topic_key(*key) for one in topics for key, _ in self._stored_partitions(one)}
            stale = [name for (name,) in self.db.execute("SELECT name FROM disks") if self._is_stale(name, before_ms)]
            for where, gone in (
                ("partitions WHERE topic_id", topics),
                ("topics WHERE topic_id", topics),
                ("groups WHERE name", groups),
                ("disks WHERE name", stale),
            ):
                self.db.executemany(f"DELETE FROM {where} = ?", ((one,) for one in gone))  # noqa: S608
            self._ages.forget(topics, groups)
            self._bump()
            self._mark(keys.union((docs.GROUP + one for one in groups), (docs.DISK + one for one in stale)))
        with self._errors():
            self._forget_read()
        return len(topics), len(groups)

    def seen_before(self, before_ms: int, keep: Collection[str]) -> tuple[list[str], list[str]]:
        """Return the topic ids, but those in ``keep``, and the groups that were last seen before a moment (Unix ms)."""
        topics = self.db.execute("SELECT topic_id FROM topics WHERE seen_ms < ?", (before_ms,))
        groups = self.db.execute("SELECT name FROM groups WHERE seen_ms < ?", (before_ms,))
        return [one for (one,) in topics if one not in keep], [one for (one,) in groups]

    # -- a copy that was planned with elsewhere ---------------------------------------------

    def take_back(self, copy: Ledger, revision: int) -> None:
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
                self._mark(keys)
        with self._errors():
            if self._unsaved():
                self._join_others()
            else:
                self._forget_read()

    def _replaced(self, copy: Ledger, revision: int) -> bool:
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

    # -- what was read ----------------------------------------------------------------------

    def _unsaved(self) -> bool:
        waiting = self._groups, self._judged, self._taken, self._watches, *self.noted_ages()
        return (
            any(waiting)
            or any(one.changed for one in self._disks.values())
            or any(one.changed for one in self._partitions.values())
        )

    def _forget_read(self) -> None:
        """Drop what was read, and start from what the file has now."""
        self._partitions, self._loaded, self._disks, self._touched = {}, set(), {}, {}
        self._taken, self._watches = {}, {}
        self._revision, self._outdated = self._meta("revision"), False
        self._topics_ms = self._meta("topics_ms")
        self._heads = self._stored_heads()

    def _join_others(self) -> None:
        """Merge what the file has now with what was not saved yet: a recheck must know what others saw since (F6)."""
        self._expand_taken()
        self._groups, self._judged = self._merged_groups(), {}
        self._heads = self._stored_heads()
        born = self._ages.new_groups.items()  # what another process has written meanwhile, it has seen earlier
        self._ages.new_groups = {name: seen_ms for name, seen_ms in born if name not in self._heads}
        self._heads |= {name: Head.of(group) for name, group in self._groups.items()}
        self._touched = {name: seen for name, seen in self._touched.items() if name in self._heads}
        for name, disk in self._disks.items():
            disk.packed = disk.merged(self._stored_disk(name)).packed
        topic_ids = self._loaded | {topic_id for topic_id, _ in self._partitions}
        for key, theirs in self._stored_partitions():
            if key[0] in topic_ids:
                mine = self._partitions.setdefault(key, theirs)
                mine.become(mine.merged(theirs) if mine.changed else theirs)
        self._revision, self._outdated = self._meta("revision"), False

    # -- the file ------------------------------------------------------------------------

    def _load(self, topic_id: str | None = None) -> None:
        """Read a topic's partitions, and the first time all topics': one pass over the file beats many queries."""
        with self._errors():
            everything = not self._loaded and not self._sparing
            self._loaded.update((topic_id,) if topic_id else (), self._ids.values() if everything else ())
            for key, one in self._stored_partitions(None if everything else topic_id):
                if key[0] in self._loaded:
                    self._partitions.setdefault(key, one)

    def _expand_taken(self) -> None:
        for key, doc in self._taken.items():
            one = self._partitions[key] = PartitionMemory.from_bytes(doc)
            one.changed = True
        self._taken = {}

    def _merged_groups(self) -> dict[str, GroupMemory]:
        """Return groups to write, merged with what another process has written since we read."""
        return {
            name: group if (stored := self._stored_group(name)) is None else group.merged(stored)
            for name, group in {name: self.group(name) for name in (*self._groups, *self._judged)}.items()
        }

    def _write(
        self,
        changed: Mapping[Key, PartitionMemory],
        groups: Mapping[str, GroupMemory],
        judged: Mapping[str, bytes],
        touched: Mapping[str, int],
        disks: Mapping[str, DiskMemory],
        now_ms: int,
    ) -> None:
        grown = self._ages.write()
        self._put_partitions(self._taken.items())
        self._put_partitions((key, one.as_bytes()) for key, one in changed.items())
        for name, disk in disks.items():
            self._put_disk(name, disk)
        ids = {topic_id for topic_id, _partition in changed} | self._loaded | self._seen
        self.db.executemany(
            "INSERT INTO topics VALUES (?, ?, ?) ON CONFLICT (topic_id) DO UPDATE SET seen_ms = excluded.seen_ms",
            ((topic_id, self._names[topic_id], now_ms) for topic_id in ids if topic_id in self._names),
        )
        for name, group in groups.items():
            self._put_group(name, Head.of(group), group.as_bytes())
        for name, document in judged.items():
            self._put_group(name, self._heads[name], document)
        for name, seen in touched.items():
            self._touch_group(name, seen)
        for watch, replaces in self._watches.values():
            self._put_watch(watch, replaces=replaces)
        self.db.execute("UPDATE meta SET value = ? WHERE key = 'since_ms' AND value = 0", (now_ms,))
        self.db.execute("UPDATE meta SET value = ? WHERE key = 'topics_ms'", (now_ms,))
        self._topics_ms = now_ms
        self._bump()
        keys = {docs.topic_key(*key) for key in (*changed, *self._taken)} | grown
        keys.update(docs.GROUP + one for one in (*groups, *judged))
        self._mark(
            keys.union((docs.DISK + one for one in disks), (docs.WATCHED + one for one in self._watches)), touched
        )


def stored_disk_samples(folder: Path) -> dict[str, tuple[DiskSample, ...]]:
    """Return what :meth:`Ledger.disk_samples` has of a cluster; empty if there is no ledger, and none is made.

    Raises:
        StateError: it can't be used.
    """
    if not os.path.lexists(folder / FILE_NAME):
        return {}
    with Ledger(folder) as ledger:
        return ledger.disk_samples()
