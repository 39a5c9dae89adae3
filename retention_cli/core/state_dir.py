"""Where a cluster's state lies: ``STATE_DIR/CLUSTER_ID``."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote


class StateError(Exception):
    """State that can't be read or written. Nothing is trimmed without it."""


def default_state_dir() -> Path:
    """Return ``$XDG_STATE_HOME/kretain``, else ``~/.local/state/kretain``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "kretain"


def cluster_folder(state_dir: Path, cluster_id: str) -> Path:
    """Return the folder of one cluster's state; ids that are odd as file names are quoted."""
    name = quote(cluster_id, safe="-_")
    if not name.strip("."):
        raise StateError(f"the cluster's id {cluster_id!r} can't name a folder")
    return state_dir / name


def make_folder(folder: Path) -> None:
    """Make the folder, for us alone.

    Raises:
        StateError: it can't be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StateError(
            f"the state directory {folder} can't be made: {error.strerror}; choose one with --state-dir"
        ) from None
