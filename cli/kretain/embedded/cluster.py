"""A real Kafka of one node on this machine, for the demo; the tests make clusters of it (tests/support/clusters.py)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from kretain.embedded import jars, reaper
from kretain.embedded.java import EmbeddedError, find_java
from kretain.embedded.node import Node, free_ports, new_id
from retention_cli.brokers.security.settings import ConnectionSettings

READY_SECONDS = 120
HEAP_MB = 512
"""The heap of a broker."""

_DEFAULTS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",  # the default of 128 MiB is a quarter of such a broker's heap
    "num.io.threads": "4",
    "num.network.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "10",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "3",
    "unstable.api.versions.enable": "false",
}


class EmbeddedKafka:
    """A broker that is its own controller. A context manager: leaving it stops what it started.

    Args:
        version: the version of Apache Kafka, as published to Maven.
        progress: called with one line before each slow step.

    Raises:
        EmbeddedError: no Java, no network on first use, a broker that died.
    """

    def __init__(self, *, version: str = jars.DEFAULT_VERSION, progress: jars.Progress = lambda _line: None) -> None:
        self.version = version
        self.nodes: Sequence[Node] = ()
        self.cluster_id = new_id()
        self._progress = progress
        self._scratch: Path | None = None
        self._reaper: subprocess.Popen[bytes] | None = None

    @property
    def directory(self) -> Path:
        """The folder for all files. It is removed with the cluster, including any other files in it."""
        if self._scratch is None:
            raise EmbeddedError("this Kafka is not running: it has no folder")
        return self._scratch

    @property
    def bootstrap(self) -> str:
        """The plaintext listeners, as ``host:port,…``."""
        return ",".join(node.address for node in self.nodes)

    def __enter__(self) -> Self:
        """Start all nodes and return when each of them sees all others."""
        java = find_java()
        class_path = self.class_path()
        try:
            self._scratch = Path(tempfile.mkdtemp(prefix="kretain-kafka-"))
            self.nodes = self.make_nodes(java, class_path)
            self._reaper = subprocess.Popen(
                [sys.executable, reaper.__file__, str(self._scratch)], stdin=subprocess.PIPE, start_new_session=True
            )
            several = "s" if len(self.nodes) > 1 else ""
            self._progress(f"starting {len(self.nodes)} Kafka node{several} ({self.version}) …")
            self.format_nodes()
            for node in self.nodes:
                self.start_node(node)
            self.wait_until_ready()
        except BaseException:  # including Ctrl-C: no process or file may remain
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill every node and remove the temporary folder. May be called repeatedly."""
        for node in self.nodes:
            with contextlib.suppress(OSError):
                node.kill()  # the data is removed, too: no need to shut down cleanly
        if self._reaper is not None:
            self._reaper.communicate()  # it ends once its pipe is closed
            self._reaper = None
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def start_node(self, node: Node) -> None:
        """Start a node's process (again, after a kill); wait with :meth:`wait_until_ready`."""
        node.start()
        if node.pid is not None and self._reaper is not None and self._reaper.stdin is not None:
            self._reaper.stdin.write(f"{node.pid} {reaper.start_time(node.pid)}\n".encode())
            self._reaper.stdin.flush()

    def wait_until_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until every running node reports all running nodes.

        Raises:
            EmbeddedError: a node died, or this took longer than ``seconds``.
        """
        deadline = time.monotonic() + seconds
        running = [node for node in self.nodes if node.process is not None]
        waiting = list(running)
        while waiting:
            for node in list(waiting):
                if node.pid is None:
                    raise EmbeddedError(f"Kafka node {node.node_id} ended while starting: {node.failure_line()}")
                if _brokers_seen_by(node.address) >= len(running):
                    waiting.remove(node)
            if waiting and time.monotonic() > deadline:
                late = ", ".join(str(node.node_id) for node in waiting)
                raise EmbeddedError(
                    f"Kafka was not ready after {seconds:.0f} s (node {late}): {waiting[0].failure_line()}"
                )

    def class_path(self) -> str:
        """Return a broker's class path. Log4j, which prints a broker's errors, comes first: all of one release."""
        logging = jars.resolve(
            "log4j-slf4j-impl", jars.LOGGING_VERSION, self._progress, group="org.apache.logging.log4j"
        )
        return f"{logging}/*{os.pathsep}{jars.resolve('kafka_2.13', self.version, self._progress)}/*"

    def make_nodes(self, java: Path, class_path: str) -> Sequence[Node]:
        """Return the nodes to start, with their ports and settings."""
        port, control = free_ports(2)
        home = self.directory / "node-1"
        return [Node(1, port, home, properties_of(1, port, [control], [home / "data"]), java, class_path, HEAP_MB)]

    def format_nodes(self) -> None:
        """Format the nodes' log dirs."""
        for node in self.nodes:
            node.format(self.cluster_id)


def properties_of(node_id: int, port: int, controls: Sequence[int], dirs: Sequence[Path]) -> dict[str, str]:
    """Return a node's settings; ``controls`` are the ports of all nodes' controllers, by node id from 1 on."""
    copies = str(min(3, len(controls)))
    return {
        **_DEFAULTS,
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{one}@127.0.0.1:{at}" for one, at in enumerate(controls, start=1)),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAIN",
        "listeners": f"PLAIN://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controls[node_id - 1]}",
        "advertised.listeners": f"PLAIN://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": ",".join(map(str, dirs)),
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": "1",
        "default.replication.factor": copies,
    }


def _brokers_seen_by(address: str) -> int:
    """Return how many brokers the node at ``address`` reports, 0 if it does not answer yet."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({**ConnectionSettings(address).for_librdkafka(), "socket.timeout.ms": 2000})
    try:
        return len(client.list_topics(timeout=2).brokers)
    except KafkaException:
        return 0
