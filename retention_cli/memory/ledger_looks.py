"""A ledger's looks at plain partitions: from rows to rows, in a temporary table of SQLite's until they are saved.

A first plan of a large cluster has a new row for each partition, and a later one for each that has grown. Neither is an
object, and none of them is in this process's memory (:mod:`.plain_look`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from retention_cli.memory.ledger_file import PARTITION_COLUMNS, Key
from retention_cli.memory.ledger_groups import LedgerGroups
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.partition_rows import INSERT, SELECT, partition_of, row_of, values_in
from retention_cli.memory.plain_look import PlainLook, looked

_CREATE: Final = f"CREATE TEMP TABLE looks ({PARTITION_COLUMNS}) WITHOUT ROWID"
_OF_LOOKS: Final = SELECT.replace("FROM partitions", "FROM temp.looks")
_BETWEEN: Final = " WHERE topic_id = ? AND partition BETWEEN ? AND ?"


class LedgerLooks(LedgerGroups):
    """A ledger's looks that are not written yet. ``_looked_at`` are the topic ids of which there are any."""

    def __init__(self, folder: Path, known_id: str | None = None) -> None:
        self._looked_at: set[str] = set()
        super().__init__(folder, known_id)

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
                changed.append(row_of(topic_id, look.partition, after))
        if changed:
            if not self._looked_at:
                self._drop_looks()
                self.db.execute(_CREATE)
            self._looked_at.add(topic_id)
            self.db.executemany(INSERT.replace("INTO partitions", "INTO temp.looks"), changed)
        return epochs

    def _looks(self, topic_id: str | None = None) -> Iterator[tuple[Key, PartitionMemory]]:
        """Yield what comes of the looks, at one topic's partitions or at all."""
        if not self._looked_at or (topic_id is not None and topic_id not in self._looked_at):
            return
        where, named = ("", ()) if topic_id is None else (" WHERE topic_id = ?", (topic_id,))
        for row in self.db.execute(_OF_LOOKS + where, named):
            if row[0] in self._looked_at:
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

    def _drop_looks(self) -> None:
        self.db.execute("DROP TABLE IF EXISTS temp.looks")

    def _write_looks(self) -> None:
        """Write the looks; part of a transaction."""
        if self._looked_at:
            self.db.execute("INSERT OR REPLACE INTO main.partitions SELECT * FROM temp.looks")
