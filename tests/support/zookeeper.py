"""A real ZooKeeper server, from among PySpark's own jars."""

from __future__ import annotations

import importlib.util
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from kretain.embedded.java import find_java

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
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    (folder / "data").mkdir(parents=True)
    (folder / "zoo.cfg").write_text(SETTINGS.format(folder=folder))
    command = [str(find_java()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while (port := listening(process.pid)) is None:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "ZooKeeper does not listen"
            time.sleep(0.05)
        yield f"127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def listening(pid: int) -> int | None:
    """Return the port on which a process listens, as the kernel knows it."""
    found = psutil.Process(pid).net_connections("tcp")
    return next((one.laddr.port for one in found if one.status == psutil.CONN_LISTEN), None)
