"""A real Kafka of 1 to N nodes on this machine, for the demo, the tests and the bench."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kretain.embedded import jars, reaper
from kretain.embedded.errors import EmbeddedError
from kretain.embedded.java import find_java
from kretain.embedded.node import Node, free_ports, new_id
from retention_cli.brokers.security.settings import ConnectionSettings

READY_SECONDS = 120

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


_formatted: dict[tuple[object, ...], list[dict[str, bytes]]] = {}
"""The files that formatting wrote to a node's log dirs, by version, number of dirs and settings."""


def _silent(_line: str) -> None:
    """Discard progress."""


class EmbeddedKafka:
    """A cluster of combined KRaft nodes. A context manager: leaving it stops what it started.

    Args:
        nodes: the number of nodes.
        version: the version of Apache Kafka, as published to Maven.
        log_dirs: folders for partitions, per node; a number creates that many inside ``directory``.
        settings: broker settings, which override the defaults here.
        secure_protocol: SSL, SASL_PLAINTEXT or SASL_SSL: each node gets a second listener, named
            ``SECURE`` (its settings start with ``listener.name.secure.``), see ``secure_bootstrap``.
        ports: the ports of the plaintext listeners; free ones by default.
        directory: the folder for all files; by default a temporary one, removed at the end.
        progress: called with one line before each slow step.

    Raises:
        EmbeddedError: no Java, no network on first use, a port taken, a broker that died.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        version: str = jars.DEFAULT_VERSION,
        log_dirs: int | Sequence[Sequence[Path]] = 1,
        settings: Mapping[str, str] | None = None,
        secure_protocol: str | None = None,
        ports: Sequence[int] | None = None,
        directory: Path | None = None,
        progress: jars.Progress = _silent,
    ) -> None:
        if ports is not None and len(ports) != nodes:
            raise EmbeddedError(f"{nodes} nodes need {nodes} ports, not {len(ports)}")
        self.version = version
        self.nodes: list[Node] = []
        self._count = nodes
        self._log_dirs = log_dirs
        self._settings = dict(settings or {})
        self._secure_protocol = secure_protocol
        self._ports = ports
        self.heap_mb = 512
        """The heap of each broker (MiB); it counts when they are started."""
        self._directory = directory
        self._progress = progress
        self._scratch: Path | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        self.cluster_id = new_id()

    @property
    def directory(self) -> Path:
        """The folder for all files. A temporary one is removed with the cluster, including any other files in it."""
        folder = self._directory or self._scratch
        if folder is None:
            raise EmbeddedError("this Kafka is not running: it has no folder")
        return folder

    @property
    def bootstrap(self) -> str:
        """The plaintext listeners, as ``host:port,…``."""
        return ",".join(node.address for node in self.nodes)

    @property
    def secure_bootstrap(self) -> str:
        """The second listeners (``secure_protocol``), as ``host:port,…``."""
        return ",".join(f"127.0.0.1:{node.secure_port}" for node in self.nodes)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start all nodes and return when each of them sees all others."""
        java = find_java()
        class_path = self.class_path()
        try:
            self._prepare(java, class_path)
            for node in self.nodes:
                node.refuse_taken_ports()  # before formatting, which takes seconds
            self._progress(f"starting {self._count} Kafka node{'s' if self._count > 1 else ''} ({self.version}) …")
            self._format()
            for node in self.nodes:
                self.start_node(node)
            self.wait_until_ready()
        except BaseException:  # including Ctrl-C: no process or file may remain
            self.stop()
            raise
        return self

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

    def node(self, node_id: int) -> Node:
        """Return the node with this id (from 1)."""
        return self.nodes[node_id - 1]

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

    def _format(self) -> None:
        """Format one node with Kafka's tool, and copy the result to the others, and to clusters with the same settings.

        The tool's output depends on the version and the settings; only ids are specific to a node.
        """
        like = (self.version, len(self.nodes[0].log_dirs), tuple(sorted(self._settings.items())))
        for node in self.nodes:
            if like in _formatted:
                node.format_like(_formatted[like], self.cluster_id)
            else:
                node.format(self.cluster_id)
                _formatted[like] = node.formatted()

    def _prepare(self, java: Path, class_path: str) -> None:
        self.nodes.clear()  # from an earlier start
        if self._directory is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="kretain-kafka-"))
        root = self.directory
        kinds = 3 if self._secure_protocol else 2
        free = free_ports(self._count * kinds)
        plain = list(self._ports) if self._ports is not None else free[: self._count]
        control = free[self._count : 2 * self._count]
        secure: list[int | None] = list(free[2 * self._count :]) if self._secure_protocol else [None] * self._count
        voters = ",".join(f"{i + 1}@127.0.0.1:{port}" for i, port in enumerate(control))
        for i in range(self._count):
            home = root / f"node-{i + 1}"
            dirs = (
                [home / f"data-{d}" for d in range(self._log_dirs)]
                if isinstance(self._log_dirs, int)
                else [Path(d) for d in self._log_dirs[i]]
            )
            properties = self._properties(i + 1, plain[i], control[i], secure[i], voters, dirs)
            ports = plain[i], control[i], secure[i]
            self.nodes.append(Node(i + 1, *ports, home, dirs, properties, java, class_path, self.heap_mb))
        self._reaper = subprocess.Popen(
            [sys.executable, reaper.__file__, *([str(self._scratch)] if self._scratch is not None else [])],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def _properties(
        self, node_id: int, port: int, control: int, secure: int | None, voters: str, dirs: Sequence[Path]
    ) -> dict[str, str]:
        copies = str(min(3, self._count))
        listeners = f"PLAIN://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}"
        advertised = f"PLAIN://127.0.0.1:{port}"
        protocols = "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT"
        if secure is not None:
            listeners += f",SECURE://127.0.0.1:{secure}"
            advertised += f",SECURE://127.0.0.1:{secure}"
            protocols += f",SECURE:{self._secure_protocol}"
        return {
            **_DEFAULTS,
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            "listeners": listeners,
            "advertised.listeners": advertised,
            "listener.security.protocol.map": protocols,
            "log.dirs": ",".join(str(d) for d in dirs),
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": "1",
            "default.replication.factor": copies,
            **self._settings,
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
