"""A ledger's looks at plain partitions: from rows to rows, in a temporary table of SQLite's until they are saved.

A first plan of a large cluster has a new row for each partition, and a later one for each that has grown. Neither is an
object, and none of them is in this process's memory (:mod:`.plain_look`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from retention_cli.memory.ledger_file import PARTITION_COLUMNS, Key
from retention_cli.memory.ledger_groups import LedgerGroups
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.partition_rows import INSERT_PLAIN, SELECT, partition_of, plain_rows, values_in
from retention_cli.memory.plain_look import PlainLook, looked

_CREATE: Final = f"CREATE TEMP TABLE looks ({PARTITION_COLUMNS}) WITHOUT ROWID"
_OF_LOOKS: Final = SELECT.replace("FROM partitions", "FROM temp.looks")
_INSERT: Final = INSERT_PLAIN.replace("INTO partitions", "INTO temp.looks")
_ROWS_AT_A_TIME: Final = 5_000
_BETWEEN: Final = " WHERE topic_id = ? AND partition BETWEEN ? AND ?"


class LedgerLooks(LedgerGroups):
    """A ledger's partitions: those that were read, and looks that are not written yet.

    ``_partitions`` are objects, all of the topic ids in ``_loaded``. ``_looked_at`` are the topic ids with looks; of a
    partition there is a look or an object. ``_outdated``: what was read is not what the file has.
    """

    def __init__(self, folder: Path, known_id: str | None = None) -> None:
        self._partitions: dict[Key, PartitionMemory] = {}
        self._loaded: set[str] = set()
        self._outdated = False
        self._names: dict[str, str] = {}
        self._seen: set[str] = set()
        self._looked_at: set[str] = set()
        super().__init__(folder, known_id)

    def stored_rows(self, topic_ids: Collection[str]) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield what is stored of these topics' partitions, some rows at a time: key, checksum and values.

        The rows are those that were written (:func:`~.partition_rows.partition_of`). None of it is kept.
        """
        found: sqlite3.Cursor | None = None
        while True:
            with self._errors():
                found = found or self.db.execute(SELECT)
                rows = found.fetchmany(_ROWS_AT_A_TIME)
                wanted = [row for row in rows if row[0] in topic_ids]
                for row in wanted:
                    values_in(row)
            if not rows:
                return
            yield wanted

    def saw_logs(
        self, topic: str, topic_id: str, looks: Sequence[PlainLook], wall_ms: int, *, created: bool | None
    ) -> list[int | None]:
        """Remember looks at plain logs of a topic, in the order of their numbers (:mod:`.plain_look`).

        Args:
            topic: the topic's name.
            topic_id: its id.
            looks: the logs; no leader epoch was asked about.
            wall_ms: our wall clock, not before any H was read (Unix ms).
            created: whether the topic is CreateTime now, None if that is unknown.

        Returns:
            The leader epoch of each log's last record. None where :meth:`partition` must be asked: nothing is
            remembered yet of the look.
        """
        known = bool(self._partitions) and any((topic_id, one.partition) in self._partitions for one in looks)
        if not looks or known or topic_id in self._loaded:
            return [None] * len(looks)
        epochs: list[int | None] = [None] * len(looks)
        there = topic_id in self._looked_at
        with self._errors():
            self.db.execute("BEGIN")  # one snapshot: of what others have written since, their look may be the later one
            try:
                if not self._outdated and self._meta("revision") == self._revision:
                    epochs = self._look(topic_id, looks, wall_ms, created=created)
                self.db.execute("COMMIT")
            except BaseException as error:
                self.db.rollback()  # a no-op where SQLite has done it itself
                if not there:
                    self._looked_at.discard(topic_id)
                if not isinstance(error, sqlite3.OperationalError):
                    raise
                return [None] * len(looks)  # the disk of temporary files is full: it is not the ledger that is broken
        self.saw_topics({topic_id: topic})
        return epochs

    def saw_topics(self, names: Mapping[str, str]) -> None:
        """Note that topics were seen, by id, even if nothing is asked for or added of any partition."""
        self._names |= names
        self._seen |= names.keys()

    def _look(
        self, topic_id: str, looks: Sequence[PlainLook], wall_ms: int, *, created: bool | None
    ) -> list[int | None]:
        """Note looks at a topic's partitions, in order; return the last record's epoch, None: ``PartitionMemory`` must.

        Part of a snapshot in which the file is as it was when it was read.
        """
        between = (topic_id, looks[0].partition, looks[-1].partition)
        if topic_id in self._looked_at and self.db.execute(_OF_LOOKS + _BETWEEN, between).fetchone() is not None:
            return [None] * len(looks)
        stored = {row[1]: values_in(row) for row in self.db.execute(SELECT + _BETWEEN, between)}
        epochs: list[int | None] = []
        changed = []
        for look in looks:
            before = stored.get(look.partition)
            after = looked(before, look, wall_ms, created=created)
            if after is None:
                epochs.append(None)
                continue
            epochs.append(after[1])
            if before is None or after != before:
                changed.append((look.partition, after))
        if changed:
            if not self._looked_at:
                self.db.execute("DROP TABLE IF EXISTS temp.looks")
                self.db.execute(_CREATE)
            self._looked_at.add(topic_id)
            self.db.executemany(_INSERT, plain_rows(topic_id, changed))
        return epochs

    def _looks(self, topic_id: str | None = None) -> Iterator[tuple[Key, PartitionMemory]]:
        """Yield what comes of the looks, at one topic's partitions or at all."""
        if not self._looked_at or (topic_id is not None and topic_id not in self._looked_at):
            return
        where, named = ("", ()) if topic_id is None else (" WHERE topic_id = ?", (topic_id,))
        for row in self.db.execute(_OF_LOOKS + where, named):
            one = partition_of(row)
            one.changed = True
            yield (row[0], row[1]), one

    def _looked_keys(self) -> Iterator[Key]:
        if self._looked_at:
            yield from self.db.execute("SELECT topic_id, partition FROM temp.looks")

    def _forget_looks(self, topic_id: str | None = None) -> None:
        """Drop the looks at one topic's partitions, or at all."""
        if topic_id is None:
            self._looked_at = set()
        elif topic_id in self._looked_at:
            self._looked_at.remove(topic_id)
            self.db.execute("DELETE FROM temp.looks WHERE topic_id = ?", (topic_id,))

    def _write_looks(self) -> None:
        """Write the looks; part of a transaction."""
        if self._looked_at:
            self.db.execute("INSERT OR REPLACE INTO main.partitions SELECT * FROM temp.looks")
