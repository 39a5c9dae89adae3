"""Jars of servers that tests run beside Kafka, resolved by the Ivy in PySpark's wheel, and a real ZooKeeper of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kretain.embedded import jars
from kretain.embedded.java import find_java
from tests.support.processes import beside, locked, port_of
from tests.support.spark.clusters import spark_home


def resolved(group: str, artifact: str, version: str) -> Path:
    """Return a folder with the jars of an artifact and of all that it needs, downloaded once."""
    root = jars.cache_dir() / "jars"
    root.mkdir(parents=True, exist_ok=True)
    target = root / f"{artifact}-{version}"
    (ivy,) = (spark_home() / "jars").glob("ivy-*.jar")
    with locked(root / ".lock"):
        if not target.is_dir():
            part = root / f".{target.name}.part"
            command = [
                *(str(find_java()), "-jar", str(ivy), "-cache", str(root / ".ivy")),
                *(
                    "-dependency",
                    group,
                    artifact,
                    version,
                    "-confs",
                    "default",
                    "-types",
                    "jar",
                    "bundle",
                    "maven-plugin",
                ),
                *("-retrieve", f"{part}/[artifact]-[revision](-[classifier]).[ext]"),
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            assert (part / f"{artifact}-{version}.jar").is_file(), done.stdout + done.stderr
            assert "FAILED DOWNLOADS" not in done.stdout, done.stdout
            part.rename(target)
    return target


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
