"""Write a run's evidence as it goes on: each recheck before the requests based on it, the results at its end."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from retention_cli import __version__
from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.store import Store
from retention_cli.core.extras import MissingPartError
from retention_cli.core.garbage import collection_paused
from retention_cli.core.state_dir import StateError
from retention_cli.evidence.format import (
    FORMAT,
    RESULTS_NAME,
    content_of,
    digest_of,
    facts_name,
    facts_table,
    results_table,
)
from retention_cli.evidence.value import Commits, Result, Row
from retention_cli.observe.request import Observation
from retention_cli.policy.urls import NONE

FOLDER: Final = "evidence"
OnFile = Callable[[str, int, str], None]
"""Called with a file's location, rows and SHA-256, once it is on disk."""


class Recorder:
    """Writes the files of one run. Each call returns once its file is durable and the audit log names it.

    Args:
        store: where evidence of this cluster is kept.
        head: what each file's head is to say.
        on_file: records a file in the audit log.
    """

    def __init__(self, store: Store, head: dict[str, Any], on_file: OnFile) -> None:
        self._store = store
        self._head = head | {"format": FORMAT, "kretain": __version__}
        self._on_file = on_file
        self.rechecks = 0

    @collection_paused()
    def facts(self, rows: Sequence[Row], seen: Observation) -> None:
        """Write what a recheck read and decided; no request based on it may be sent before.

        Raises:
            StateError: it can't be written; then nothing may be deleted.
        """
        self.rechecks += 1
        self._write(facts_name(self.rechecks), facts_table(self._head, rows, Commits.of(rows, seen)))

    @collection_paused()
    def results(self, results: Sequence[Result]) -> None:
        """Write the outcome for each partition.

        Raises:
            StateError: it can't be written.
        """
        self._write(RESULTS_NAME, results_table(self._head, results))

    def _write(self, name: str, table: Any) -> None:
        content = content_of(table)
        path = f"{self._head['run']}/{name}"
        try:
            self._store.write(path, content)
        except ArchiveError as error:
            raise StateError(f"the evidence {error}; nothing more is trimmed") from None
        self._on_file(self._store.shown(path), len(table), digest_of(content))


def recorder_for(url: str | None, folder: Path, head: dict[str, Any], on_file: OnFile) -> Recorder | None:
    """Return what writes a run's evidence; None if the policy wants none, or does not set it and pyarrow is missing.

    Args:
        url: the policy's ``evidence``; None: next to the audit log.
        folder: the cluster's folder in the state directory.
        head: what each file's head is to say: the ``run``, its ``cluster``, and whether sizes are by an ``inventory``.
        on_file: see :class:`Recorder`.

    Raises:
        StateError: the policy's URL can't be used; nothing may be deleted.
    """
    if url == NONE or (url is None and importlib.util.find_spec("pyarrow") is None):
        return None
    try:
        store = Store(str(folder / FOLDER) if url is None else _below(url, folder.name))
    except (ArchiveError, MissingPartError) as error:
        raise StateError(f"evidence: {error}; nothing is trimmed") from None
    return Recorder(store, head, on_file)


def _below(url: str, name: str) -> str:
    """Return the URL of a folder below another, whose query stays at the end."""
    place, mark, query = url.partition("?")
    return f"{place.rstrip('/')}/{name}{mark}{query}"
