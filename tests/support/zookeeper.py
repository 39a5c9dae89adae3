"""A real ZooKeeper server, from among PySpark's own jars."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kretain.embedded.java import find_java
from tests.support.processes import beside, port_of
from tests.support.spark.clusters import spark_home

SETTINGS = """
tickTime=500
dataDir={folder}/data
clientPort=0
clientPortAddress=127.0.0.1
admin.enableServer=false
"""


@contextmanager
def zookeeper(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a server on a port that it chooses itself; give its address, and its process to kill."""
    (folder / "data").mkdir(parents=True)
    (folder / "zoo.cfg").write_text(SETTINGS.format(folder=folder))
    command = [str(find_java()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{spark_home()}/jars/*"]
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")]
    with beside(command, folder) as process:
        yield f"127.0.0.1:{port_of(process, folder)}", process
