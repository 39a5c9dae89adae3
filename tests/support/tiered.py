"""A real remote storage for tests: Kafka's own LocalTieredStorage, out of the test jar that its project publishes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from kretain.embedded import jars
from kretain.embedded.java import find_java

VERSION: Final = "4.3.0"
"""The newest whose test jar of Kafka's storage is published: brokers with tiered storage are of this version."""
_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="kretain" module="tests"/>
<dependencies><dependency org="org.apache.kafka" name="kafka-storage" rev="{version}" transitive="false">
<artifact name="kafka-storage" type="jar" ext="jar" m:classifier="test"/>
</dependency></dependencies></ivy-module>
"""


def storage_jar(scratch: Path) -> Path:
    """Return the test jar of Kafka's storage, downloaded once."""
    root = jars.cache_dir() / "jars"
    target = root / f"kafka-storage-test-{VERSION}"
    jar = target / f"kafka-storage-{VERSION}-test.jar"
    if jar.is_file():
        return jar
    root.mkdir(parents=True, exist_ok=True)
    file = scratch / "ivy.xml"
    file.write_text(_IVY.format(version=VERSION))
    settings = os.environ.get(jars.SETTINGS_VARIABLE)
    command = [
        *(str(find_java().executable), "-jar", str(jars.ivy_jar()), *(("-settings", settings) if settings else ())),
        *("-cache", str(root / ".ivy"), "-ivy", str(file)),
        *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    with jars.locked(root / ".lock"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert jar.is_file(), done.stdout + done.stderr
    return jar


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
