"""A real MirrorMaker 2, which copies from one embedded cluster to another."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kretain.embedded import jars
from kretain.embedded.java import find_java

VERSION = "4.3.0"
"""Kafka's 4.4.0 has no connect-mirror in the registry: this one copies between clusters of any version."""
SETTINGS = """
clusters = primary, dr
primary.bootstrap.servers = {primary}
dr.bootstrap.servers = {dr}
primary->dr.enabled = true
primary->dr.topics = {topics}
dr->primary.enabled = false
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.partitions = 1
status.storage.partitions = 1
dr.offset.flush.interval.ms = 1000
refresh.topics.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
"""


@contextmanager
def mirror_maker(folder: Path, primary: str, dr: str, topics: str) -> Iterator[subprocess.Popen[bytes]]:
    """Copy topics from ``primary`` to ``dr``; give the process."""
    java = find_java()
    lib = jars.resolve("connect-mirror", VERSION, print)
    runtime = jars.resolve("connect-runtime", VERSION, print)
    (folder / "mm2.properties").write_text(SETTINGS.format(primary=primary, dr=dr, topics=topics))
    command = [str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{lib}/*:{runtime}/*"]
    command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(folder / "mm2.properties")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
