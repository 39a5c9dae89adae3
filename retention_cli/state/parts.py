"""Cut a large cluster's ledger into parts, for tasks that read some of its groups or topics; tell what changed there.

A part is a ledger of its own with some of the rows. Groups are judged where all logs are known (F5), so a part of
groups only notes what was read (:attr:`.ledger_rows.LedgerRows.reads`).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from retention_cli.core.consumers import group_id
from retention_cli.core.state_dir import StateError, cluster_folder
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.ledger_file import FILE_NAME
from retention_cli.state.handover import Handed
from retention_cli.state.memories import Memories


class Cutter:
    """Cuts a memory into parts, all from one revision.

    Args:
        memories: the cluster's are among them; they go on being used.
        cluster_id: the cluster's id.
    """

    def __init__(self, memories: Memories, cluster_id: str) -> None:
        self._kind = memories.kind
        self._cluster = cluster_id
        self._memory = memories(cluster_id)

    @property
    def is_outdated(self) -> bool:
        """Whether another run has written since the ledger was read: parts may be of two revisions."""
        return self._memory.others_wrote

    def groups(self, is_mine: Callable[[str], bool]) -> Handed:
        """Return the groups whose names ``is_mine`` takes, with the ages of topics and groups (F2)."""
        statements = ["INSERT INTO groups SELECT * FROM whole.groups WHERE mine(name)"]
        statements += (f"INSERT INTO {one} SELECT * FROM whole.{one}" for one in ("widths", "born"))  # noqa: S608
        return self._part(statements, lambda key: is_mine(group_id(key) or key))

    def partitions(self, topic_ids: Collection[str]) -> Handed:
        """Return the partitions of these topics."""
        ids = json.dumps(sorted(topic_ids)).replace("'", "''")
        rows = f"SELECT p.* FROM json_each('{ids}') CROSS JOIN whole.partitions p ON p.topic_id = value"  # noqa: S608
        looks = "INSERT INTO about SELECT * FROM whole.about WHERE substr(key, 1, 8) = 'watched:'"
        return self._part([f"INSERT INTO partitions {rows}", looks])

    def _part(self, statements: Iterable[str], mine: Callable[[str], bool] = bool) -> Handed:
        memory = self._memory
        if not memory.on_disk:
            return Handed(self._kind, lost=memory.lost)
        with tempfile.TemporaryDirectory(prefix="kretain-ledger-") as name:
            folder = cluster_folder(Path(name), self._cluster)
            try:
                with contextlib.closing(Ledger(folder)) as part:
                    part.db.create_function("mine", 1, mine, deterministic=True)
                    part.db.execute("ATTACH ? AS whole", (str(memory.path),))
                    with part.transaction():
                        for one in statements:
                            part.db.execute(one)
                return Handed(self._kind, (folder / FILE_NAME).read_bytes(), 0, memory.lost)
            except (sqlite3.Error, OSError) as error:
                raise StateError(f"the ledger {memory.path} can't be cut into parts: {error}") from None


def changes(ledger: Ledger, before: bytes) -> bytes:
    """Return the partitions of a part that have changed since it was handed over, for :meth:`.ledger.Ledger.take`."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("ATTACH ':memory:' AS before")
        db.deserialize(before, name="before")
        db.execute("ATTACH ? AS now", (str(ledger.path),))
        db.execute("CREATE TABLE partitions AS SELECT * FROM now.partitions EXCEPT SELECT * FROM before.partitions")
        return db.serialize()
