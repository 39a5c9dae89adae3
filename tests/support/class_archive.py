"""An archive of a broker's parsed classes (AppCDS): with it a JVM starts in two thirds of the time."""

from __future__ import annotations

import hashlib

from kretain.embedded import EmbeddedKafka, jars, node
from kretain.embedded.java import find_java


def use_archived_classes() -> None:
    """Have this process's brokers start from one archive; the first call on a machine makes it."""
    content = f"{find_java().resolve()}\0{EmbeddedKafka().class_path()}".encode()
    archive = jars.cache_dir() / "classes" / f"kafka-{hashlib.sha256(content).hexdigest()[:16]}.jsa"
    archive.parent.mkdir(parents=True, exist_ok=True)
    options = node.JVM_OPTIONS
    with jars.locked(archive.with_suffix(".lock")):
        if not archive.exists():
            part = archive.with_suffix(".part")
            node.JVM_OPTIONS = (*options, f"-XX:ArchiveClassesAtExit={part}", "-Xlog:cds=off")
            with EmbeddedKafka() as kafka:
                kafka.node(1).terminate()
            part.replace(archive)
    node.JVM_OPTIONS = (*options, f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off")
