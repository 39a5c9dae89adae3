"""For notebooks: ``from retention_cli.spark import register``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

_FOLDERS: Final[list[tempfile.TemporaryDirectory[str]]] = []
"""The folders of code sent to executors. Kept until this process ends: executors may fetch it at any time."""


def register(session: Any) -> None:
    """Register the ``kretain.*`` formats with a session, and send kretain's code to its executors: for notebooks."""
    from retention_cli.engines.spark.session import ship_code
    from retention_cli.engines.spark.sources import SOURCES

    folder = tempfile.TemporaryDirectory(prefix="kretain-spark-", ignore_cleanup_errors=True)
    _FOLDERS.append(folder)
    ship_code(session, Path(folder.name))
    for source in SOURCES:
        session.dataSource.register(source)


__all__ = ["register"]
