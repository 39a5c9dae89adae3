"""A real remote storage for tests: Kafka's own LocalTieredStorage, out of the test jar that its project publishes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kretain.embedded import jars

VERSION: Final = "4.3.0"
"""The newest whose test jar of Kafka's storage is published: brokers with tiered storage are of this version."""


def storage_jar() -> Path:
    """Return the test jar of Kafka's storage, downloaded once."""
    folder = jars.cache_dir() / "jars" / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    with jars.locked(folder / ".lock"):
        context = jars.maven(folder)
        return context.create_dependency(f"org.apache.kafka:kafka-storage:jar:test:{VERSION}").artifact.resolve()


def settings(jar: Path, remote: Path) -> dict[str, str]:
    """Return a single broker's settings for remote storage in a folder."""
    remote.mkdir(parents=True, exist_ok=True)
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jar),
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(remote),
        "remote.log.metadata.manager.listener.name": "PLAIN",
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
    }
