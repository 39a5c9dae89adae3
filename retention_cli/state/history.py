"""Past runs of all clusters, from their audit logs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from retention_cli.state.audit import FILE_NAME, AuditLog, Run
from retention_cli.state.folder import StateError


def read_history(state_dir: Path) -> list[Run]:
    """Return all runs that the state directory knows, the oldest first.

    Raises:
        StateError: an audit log can't be read.
    """
    runs: list[Run] = []
    for log in sorted(state_dir.glob(f"*/{FILE_NAME}")):
        runs.extend(AuditLog(log.parent).runs().values())
    return sorted(runs, key=lambda run: (run.begun["at"], run.run))


def find_run(runs: Sequence[Run], name: str) -> Run:
    """Return the run of that name.

    Raises:
        StateError: there is none.
    """
    for run in runs:
        if run.run == name:
            return run
    near = difflib.get_close_matches(name, [run.run for run in runs], n=1)
    hint = f"did you mean {near[0]}?" if near else "kretain history lists them"
    raise StateError(f"there is no run {name!r} in the audit log; {hint}")
