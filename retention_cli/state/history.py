"""Past runs, from the audit logs: of all clusters to look at, of one for its limits."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from retention_cli.guards.limits import Amount
from retention_cli.plan import timestamp
from retention_cli.state.audit import FILE_NAME, AuditLog, Run
from retention_cli.state.folder import StateError, cluster_folder

DAY_MS: Final = 86_400_000


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


def past_day(state_dir: Path, cluster_id: str, now_ms: int) -> Amount:
    """Return what was trimmed in the last 24 hours, as the audit log has it.

    Raises:
        StateError: the log can't be read.
    """
    return AuditLog(cluster_folder(state_dir, cluster_id)).trimmed_since(timestamp(now_ms - DAY_MS))
