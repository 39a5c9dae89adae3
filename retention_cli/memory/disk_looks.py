"""Read what a ledger remembers of disks, without changing the file: for pages that need no cluster."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from retention_cli.core.file_problems import sqlite_problem
from retention_cli.core.state_dir import StateError, open_file
from retention_cli.memory.disk import Look, unpack
from retention_cli.memory.ledger_file import FILE_NAME, SCHEMA_VERSION


def disk_looks(folder: Path) -> dict[str, tuple[Look, ...]]:
    """Return the looks at each disk's usage, by its key in the ledger; empty if there is no ledger.

    Raises:
        StateError: it can't be read, or was written by another version.
    """
    path = folder / FILE_NAME
    if not os.path.lexists(path):
        return {}
    try:
        os.close(open_file(path, os.O_RDONLY))  # refuses links and what is no file
        db = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=5.0)
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != SCHEMA_VERSION:
                raise StateError(f"the ledger {path} has schema {version}, and this kretain reads {SCHEMA_VERSION}")
            rows = db.execute("SELECT name, looks FROM disks ORDER BY name").fetchall()
        finally:
            db.close()
        return {str(name): unpack(bytes(looks)) for name, looks in rows if ":unexplained" not in str(name)}
    except (OSError, sqlite3.Error, ValueError, TypeError) as error:
        raise StateError(f"the ledger {path} can't be read: {sqlite_problem(error)}") from None
