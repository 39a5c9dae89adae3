"""Open and save each cluster's memory, and note what fails (docs/memory.md)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from retention_cli.audit.log import AuditLog, NamedLedger
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import Reason, Unknown
from retention_cli.core.state_dir import StateError, cluster_folder
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
        from retention_cli.state.cluster_ledger import NotSharedError

        for memory in self._open.values():
            if memory.on_disk:
                try:
                    memory.save(now_ms)
                except NotSharedError as error:
                    self.forgets(f"this run is remembered only on this machine: {error}")
                except StateError as error:
                    self.forgets(f"nothing was remembered of this run: {error}")
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
            self.forgets(f"nothing is remembered of this run: {error}")
            return Ledger(None)

    def _ledger(self, folder: Path) -> Ledger:
        known = _last_known(folder)
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
    if ledger.began_anew:
        text = f"the ledger {ledger.path} that the last trim used is missing: what it remembered no longer counts"
    elif ledger.ledger_id == known.ledger_id and ledger.revision < known.revision:
        text = f"the ledger {ledger.path} is older than the last trim: what was remembered since then is missing"
    else:
        return []
    return [Reason("ledger", text)]


def _last_known(folder: Path) -> NamedLedger | None:
    try:
        return AuditLog(folder).last_ledger()
    except StateError:  # a plan continues without it; a trim reports the error
        return None
