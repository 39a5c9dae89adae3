"""The same observe and decide, spread over a Spark cluster (DESIGN.md, One way through it)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any


def register(session: Any) -> None:
    """Make ``kretain.*`` formats known to a session, and send kretain's code to its executors: for notebooks."""
    from retention_cli.spark.session import ship_code
    from retention_cli.spark.sources import SOURCES

    ship_code(session, Path(tempfile.mkdtemp(prefix="kretain-spark-")))
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for source in SOURCES:
        session.dataSource.register(source)


__all__ = ["register"]
