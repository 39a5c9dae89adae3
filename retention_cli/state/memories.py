"""Open and save each cluster's memory, and note what fails (docs/memory.md).

And hand it to a plan that is made on another machine, and take back what that has added; or parts of a large one, to
tasks that read some of its groups or topics. A part is a ledger of its own with some of the rows. Groups are judged
where all logs are known (F5), so a part of groups only notes what was read (:attr:`.ledger_rows.LedgerRows.reads`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from retention_cli.audit.log import AuditLog, NamedLedger
from retention_cli.core.clock import SYSTEM
from retention_cli.core.consumers import group_id
from retention_cli.core.model import Reason, Unknown
from retention_cli.core.state_dir import NotSharedError, StateError, cluster_folder
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.ledger_file import FILE_NAME

if TYPE_CHECKING:
    from retention_cli.brokers.reader import ClusterReader
    from retention_cli.state.own_topics import StateTopic


Kind = Literal["local", "cluster"]
"""Where memories are kept: on this machine, or in the shared topic (the policy's ``state``)."""


class Memories:
    """Each cluster's memory, opened once. A ledger that exists but can't be read is lost, not new.

    ``notes`` say what could not be remembered, or recalled.

    Args:
        state_dir: the folder of ledgers, and of the caches of shared ones.
        topic: the shared topic; None: memories are this machine's own.
        will_save: whether what is seen will be saved.
        clock_ms: returns our wall clock (Unix ms), for what is sent to the topic.
    """

    def __init__(
        self,
        state_dir: Path,
        topic: StateTopic | None = None,
        *,
        will_save: bool = True,
        clock_ms: Callable[[], int] = SYSTEM.wall_ms,
    ) -> None:
        self.kind: Kind = "local" if topic is None else "cluster"
        self.notes: list[Reason] = []
        self.unsaved: Reason | None = None  # why others, or a later run, do not know what this one has seen
        self._state_dir = state_dir
        self._topic = topic
        self._will_save = will_save
        self._clock_ms = clock_ms
        self._open: dict[str, Ledger] = {}

    def __call__(self, cluster_id: str) -> Ledger:
        """Return a cluster's memory."""
        if cluster_id not in self._open:
            self._open[cluster_id] = self._opened(cluster_id)
            self._collect_notes()
        return self._open[cluster_id]

    def ledger(self, cluster_id: str) -> Ledger:
        """Return a cluster's ledger, to show it or to forget.

        Raises:
            StateError: it can't be opened.
        """
        memory = self(cluster_id)
        if memory.on_disk:
            return memory
        reasons = self.notes if memory.lost is None else memory.lost.reasons
        raise StateError("; ".join(reason.text for reason in reasons))

    def named(self, cluster_id: str) -> NamedLedger | None:
        """Return a cluster's ledger for the audit log, None if it has none."""
        memory = self(cluster_id)
        return NamedLedger(memory.ledger_id, memory.revision) if memory.on_disk else None

    def save(self, now_ms: int) -> None:
        """Write what was added. A failure is only noted: the plan is as good without it."""
        for memory in self._open.values():
            if memory.on_disk:
                try:
                    memory.save(now_ms)
                except NotSharedError as error:
                    self.forgets(f"this run is remembered only on this machine: {error}")
                except StateError as error:
                    self.forgets(f"this run was not remembered: {error}")
        self._collect_notes()

    def close(self) -> None:
        """Close all ledgers."""
        for memory in self._open.values():
            memory.close()
        self._open = {}

    def _opened(self, cluster_id: str) -> Ledger:
        try:
            folder = cluster_folder(self._state_dir, cluster_id)
            there = os.path.lexists(folder / FILE_NAME)
        except (StateError, OSError) as error:
            return Ledger(None, lost=Unknown.because("ledger", str(error)))
        try:
            return self._ledger(folder)
        except StateError as error:
            if there or self.kind == "cluster":  # others remember more than this machine does
                return Ledger(None, lost=Unknown.because("ledger", str(error)))
            self.forgets(f"this run is not remembered: {error}")
            return Ledger(None)

    def _ledger(self, folder: Path) -> Ledger:
        known = None
        with contextlib.suppress(StateError):  # a plan continues without it; a trim reports the error
            known = AuditLog(folder).last_ledger()
        if self._topic is None:
            ledger = Ledger(folder, known)
            self.notes += [] if known is None else missing_since(ledger, known)
            return ledger
        from retention_cli.state.cluster_ledger import ClusterLedger

        return ClusterLedger(folder, self._topic, self._clock_ms, known, will_save=self._will_save)

    def forgets(self, text: str) -> None:
        """Note why what was seen is not remembered."""
        self.unsaved = Reason("ledger", text)
        self.notes.append(self.unsaved)

    def _collect_notes(self) -> None:
        for memory in self._open.values():
            self.notes += memory.notes
            memory.notes = []


def memories_of(state_dir: Path, reader: ClusterReader, kind: Kind, *, will_save: bool = True) -> Memories:
    """Return the ledgers of clusters, unopened; ``kind`` is the policy's ``state``."""
    if kind == "local":
        return Memories(state_dir, will_save=will_save)
    from retention_cli.state.own_topics import StateTopic

    return Memories(state_dir, StateTopic(reader), will_save=will_save)


def missing_since(ledger: Ledger, known: NamedLedger) -> list[Reason]:
    """Return a reason if this machine's own ledger lacks something that the last trim's, ``known``, had.

    What the cache of a shared ledger lacks is in the topic.
    """
    if ledger.was_reset:
        text = f"the ledger {ledger.path} that the last trim used is missing: what it remembered no longer counts"
    elif ledger.ledger_id == known.ledger_id and ledger.revision < known.revision:
        text = f"the ledger {ledger.path} is older than the last trim: what was remembered since then is missing"
    else:
        return []
    return [Reason("ledger", text)]


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
    return Handed(memories.kind, *memory.content(), memory.lost, notes)


class HandedMemories(Memories):
    """The memory of one cluster that was handed to this process, in a folder of its own."""

    def __init__(self, handed: Handed, folder: Path, ledger: type[Ledger] = Ledger) -> None:
        super().__init__(folder)
        self._class = ledger
        self.kind = handed.kind
        self.notes = list(handed.notes)
        self._handed = handed

    def _opened(self, cluster_id: str) -> Ledger:
        handed = self._handed
        if not handed.ledger:
            return Ledger(None, lost=handed.lost)
        return self._class(
            _unpacked(handed.ledger, self._state_dir, cluster_id), lost=handed.lost, shared=handed.kind == "cluster"
        )

    def added(self, cluster_id: str) -> bytes:
        """Return the content of the ledger's file, for :func:`take_back`; empty if there is none."""
        file = cluster_folder(self._state_dir, cluster_id) / FILE_NAME
        return file.read_bytes() if file.exists() else b""


def _unpacked(content: bytes, state_dir: Path, cluster_id: str) -> Path:
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
        memories.forgets(f"this run was not remembered: {error}")
    if memory.shared:  # tells others
        memories.save(now_ms)


def hand_groups(memories: Memories, cluster_id: str, is_mine: Callable[[str], bool]) -> Handed:
    """Return the groups whose names ``is_mine`` takes, with the ages of topics and groups (F2).

    Parts are all of one revision if :attr:`.ledger.Ledger.others_wrote` is false after the last one.
    """
    statements = [
        "INSERT INTO groups SELECT * FROM whole.groups WHERE mine(name)",
        *(f"INSERT INTO {one} SELECT * FROM whole.{one}" for one in ("widths", "born")),  # noqa: S608
        # The part has no partitions, by which a ledger knows how many a topic had that has not grown (F2).
        (
            "INSERT INTO widths SELECT topic_id, max(partition) + 1, 0 FROM whole.partitions "
            "WHERE topic_id NOT IN (SELECT topic_id FROM whole.widths) GROUP BY topic_id"
        ),
    ]
    return _part(memories, cluster_id, statements, lambda key: is_mine(group_id(key) or key))


def hand_partitions(memories: Memories, cluster_id: str, topic_ids: Collection[str]) -> Handed:
    """Return the partitions of these topics."""
    ids = json.dumps(sorted(topic_ids)).replace("'", "''")
    rows = f"SELECT p.* FROM json_each('{ids}') CROSS JOIN whole.partitions p ON p.topic_id = value"  # noqa: S608
    watches = "INSERT INTO about SELECT * FROM whole.about WHERE substr(key, 1, 8) = 'watched:'"
    return _part(memories, cluster_id, [f"INSERT INTO partitions {rows}", watches])


def _part(memories: Memories, cluster_id: str, statements: Iterable[str], mine: Callable[[str], bool] = bool) -> Handed:
    memory = memories(cluster_id)
    if not memory.on_disk:
        return Handed(memories.kind, lost=memory.lost)
    with tempfile.TemporaryDirectory(prefix="kretain-ledger-") as name:
        folder = cluster_folder(Path(name), cluster_id)
        try:
            with contextlib.closing(Ledger(folder)) as part:
                part.db.create_function("mine", 1, mine, deterministic=True)
                part.db.execute("ATTACH ? AS whole", (str(memory.path),))
                with part.transaction():
                    for one in statements:
                        part.db.execute(one)
            return Handed(memories.kind, (folder / FILE_NAME).read_bytes(), 0, memory.lost)
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
