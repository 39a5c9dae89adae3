"""An archive of a broker's parsed classes (AppCDS): with it a JVM starts in two thirds of the time."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from kretain.embedded import jars
from kretain.embedded.java import Java

KEPT = 3
"""How many archives of other versions, Javas and environments are kept; each takes about 50 MB."""


def archive_of(class_path: str, java: Java) -> Path:
    """Return the path of the archive for these jars and this Java. A JVM that can't use it runs without it."""
    told = f"{java.executable.resolve()}\0{class_path}".encode()
    return jars.cache_dir() / "classes" / f"kafka-{hashlib.sha256(told).hexdigest()[:16]}.jsa"


def options(class_path: str, java: Java) -> list[str]:
    """Return the JVM options that use the archive, if it exists."""
    archive = archive_of(class_path, java)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive.exists() else []


def options_to_make(part: Path) -> list[str]:
    """Return the JVM options that write an archive when the broker shuts down cleanly."""
    return [f"-XX:ArchiveClassesAtExit={part}", "-Xlog:cds=off"]


def keep(part: Path, archive: Path) -> None:
    """Move a finished archive to its path, and remove the oldest other ones."""
    if part.exists():
        part.replace(archive)
    others = sorted(archive.parent.glob("*.jsa"), key=os.path.getmtime)
    for old in others[:-KEPT]:
        old.unlink(missing_ok=True)
