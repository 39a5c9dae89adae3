"""Hand a cluster's memory to a plan that is made on another machine, and take back what that has added.

Or parts of a large one, to tasks that read some of its groups or topics. A part is a ledger of its own with some of the
rows. Groups are judged where all logs are known (F5), so a part of groups only notes what was read
(:attr:`.ledger_rows.LedgerRows.reads`).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from retention_cli.core.consumers import group_id
from retention_cli.core.model import Reason, Unknown
from retention_cli.core.state_dir import StateError, cluster_folder
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.ledger_file import FILE_NAME
from retention_cli.state.memories import Kind, Memories


@dataclass(frozen=True, slots=True)
class Handed:
    """A cluster's memory as a value.

    ``ledger`` is the content of its file, empty if nothing can be remembered. ``revision`` is the ledger's, ``lost``
    why it may be incomplete. ``notes`` are what opening it had to say.
    """

    kind: Kind
    ledger: bytes = b""
    revision: int = 0
    lost: Unknown | None = None
    notes: tuple[Reason, ...] = ()


def hand_over(memories: Memories, cluster_id: str) -> Handed:
    """Return a cluster's memory, with all that was saved by now. Its notes go with it.

    Raises:
        StateError: it can't be read.
    """
    memory = memories(cluster_id)
    notes, memories.notes = tuple(memories.notes), []
    if not memory.on_disk:
        return Handed(memories.kind, lost=memory.lost, notes=notes)
    with tempfile.TemporaryDirectory(prefix="kretain-ledger-") as name:
        folder = cluster_folder(Path(name), cluster_id)
        revision = memory.copy_to(folder)
        return Handed(memories.kind, (folder / FILE_NAME).read_bytes(), revision, memory.lost, notes)


class HandedMemories(Memories):
    """The memory of one cluster that was handed to this process, in a folder of its own."""

    def __init__(
        self, handed: Handed, folder: Path, clock_ms: Callable[[], int], ledger: type[Ledger] = Ledger
    ) -> None:
        super().__init__(folder, clock_ms=clock_ms)
        self._class = ledger
        self.kind = handed.kind
        self.notes = list(handed.notes)
        self._handed = handed

    def _opened(self, cluster_id: str) -> Ledger:
        handed = self._handed
        if not handed.ledger:
            return Ledger(None, lost=handed.lost)
        folder = _unpacked(handed.ledger, self._state_dir, cluster_id)
        return self._class(folder, lost=handed.lost, shared=handed.kind == "cluster")

    def added(self, cluster_id: str) -> bytes:
        """Return the content of the ledger's file, for :func:`take_back`; empty if there is none."""
        file = cluster_folder(self._state_dir, cluster_id) / FILE_NAME
        return file.read_bytes() if file.exists() else b""


def _unpacked(content: bytes, state_dir: Path, cluster_id: str) -> Path:
    """Write a ledger's file; return its folder."""
    folder = cluster_folder(state_dir, cluster_id)
    folder.mkdir(mode=0o700, parents=True)
    (folder / FILE_NAME).write_bytes(content)
    return folder


def take_back(memories: Memories, cluster_id: str, added: bytes, revision: int, now_ms: int) -> None:
    """Remember what a plan elsewhere has added to a copy of ``revision``. A failure is only noted, as by ``save``."""
    memory = memories(cluster_id)
    if not added or not memory.on_disk:
        return
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kretain-ledger-") as name,
            Ledger(_unpacked(added, Path(name), cluster_id)) as copy,
        ):
            memory.take_back(copy, revision)
    except (StateError, OSError) as error:
        memories.forgets(f"nothing was remembered of this run: {error}")
    if memory.shared:  # tells others
        memories.save(now_ms)


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
