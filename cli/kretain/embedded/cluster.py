"""A real Kafka of one node on this machine, for the demo; the tests make clusters of it (tests/support/clusters.py)."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from kretain.embedded import reaper
from kretain.embedded.jars import DEFAULT_VERSION, LOGGING_VERSION, EmbeddedError, Progress, find_java, resolve
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


JVM_OPTIONS: tuple[str, ...] = ("-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
FORMAT_SECONDS = 60

_EXCEPTION = re.compile(r'^(Exception in thread "\S+" )?[\w.$]+(Exception|Error)\b')
_ERROR = re.compile(r"\bERROR\b|\bError:")
_PORTS = range(20_000, 32_000)


@dataclass(slots=True)
class Node:
    """A combined broker and controller (KRaft) on loopback.

    ``port`` is the plaintext listener's port. The output of its last process begins at byte ``log_began`` of the log.
    """

    node_id: int
    port: int
    home: Path
    properties: Mapping[str, str]
    java: Path
    class_path: str
    heap_mb: int
    process: subprocess.Popen[bytes] | None = field(default=None)
    log_began: int = field(default=0)

    @property
    def address(self) -> str:
        """The plaintext listener, as host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process id while the node runs, else None."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    @property
    def log_file(self) -> Path:
        """The broker's own log."""
        return self.home / "broker.log"

    def write_configuration(self) -> Path:
        """Create the node's folder and its properties file; return the file's path."""
        self.home.mkdir(parents=True, exist_ok=True)
        config = self.home / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()), encoding="utf-8")
        return config

    def format(self, cluster_id: str) -> None:
        """Write the node's configuration and format its log dirs, with Kafka's own tool.

        Raises:
            EmbeddedError: the storage tool failed; the text has its last line.
        """
        config = self.write_configuration()
        formatting = self._java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config), heap_mb=128)
        try:
            code = formatting.wait(FORMAT_SECONDS)
        except subprocess.TimeoutExpired:
            formatting.kill()
            formatting.wait()
            code = -1
        if code != 0:
            raise EmbeddedError(f"node {self.node_id} could not be formatted: {self.failure_line()}")

    def start(self) -> None:
        """Start the broker's process; the cluster waits until it is ready."""
        self.process = self._java("kafka.Kafka", str(self.home / "server.properties"), heap_mb=self.heap_mb)

    def kill(self) -> None:
        """Kill the process with SIGKILL, like a power failure."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def failure_line(self) -> str:
        """Return the line that best explains why this node's last process died: its first exception."""
        try:
            with self.log_file.open(encoding="utf-8", errors="replace") as log:
                log.seek(self.log_began)
                lines = [line.strip() for line in log if line.strip()]
        except OSError:
            return "it left no log"
        signs = (line for sign in (_EXCEPTION, _ERROR) for line in lines if sign.search(line))
        return next(signs, lines[-1] if lines else "it printed nothing")

    def _java(self, main: str, *arguments: str, heap_mb: int) -> subprocess.Popen[bytes]:
        command = [
            str(self.java),
            *(f"-Xmx{heap_mb}m", *JVM_OPTIONS),
            *(f"-Djava.io.tmpdir={self.home}", "-Djava.awt.headless=true"),
            *("-cp", self.class_path, main, *arguments),
        ]
        with self.log_file.open("ab") as log:
            self.log_began = log.tell()
            try:
                # A session of its own: a Ctrl-C in the terminal reaches only this process, which then stops the broker.
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.home,
                    start_new_session=True,
                    env={k: value for k, value in os.environ.items() if not k.startswith(("KAFKA_", "JAVA_TOOL"))},
                )
            except OSError as error:
                raise EmbeddedError(f"{command[0]} could not be started: {error}") from error


class EmbeddedKafka:
    """A broker that is its own controller. A context manager: leaving it stops what it started.

    Args:
        version: the version of Apache Kafka, as published to Maven.
        progress: called with one line before each slow step.

    Raises:
        EmbeddedError: no Java, no network on first use, a broker that died.
    """

    def __init__(self, *, version: str = DEFAULT_VERSION, progress: Progress = lambda _line: None) -> None:
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
        waiting = running
        while waiting:
            for node in waiting:
                if node.pid is None:
                    raise EmbeddedError(f"Kafka node {node.node_id} ended while starting: {node.failure_line()}")
            waiting = [node for node in waiting if _brokers_seen_by(node.address) < len(running)]
            if waiting and time.monotonic() > deadline:
                late = ", ".join(str(node.node_id) for node in waiting)
                raise EmbeddedError(
                    f"Kafka was not ready after {seconds:.0f} s (node {late}): {waiting[0].failure_line()}"
                )

    def class_path(self) -> str:
        """Return a broker's class path. Log4j, which prints a broker's errors, comes first: all of one release."""
        logging = resolve("log4j-slf4j-impl", LOGGING_VERSION, self._progress, group="org.apache.logging.log4j")
        return f"{logging}/*{os.pathsep}{resolve('kafka_2.13', self.version, self._progress)}/*"

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


def new_id() -> str:
    """Return a new id in Kafka's format, 16 bytes in base64. It does not begin with "-", which looks like an option."""
    return "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def free_ports(count: int) -> list[int]:
    """Return currently free ports of loopback, all different.

    They are below the ports for outgoing connections (32768 and up on Linux), which could take one before a broker
    starts.
    """
    ports: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(ports) == count:
            break
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    if len(ports) < count:
        raise EmbeddedError(f"no {count} ports of 127.0.0.1 between {_PORTS[0]} and {_PORTS[-1]} are free")
    return ports


def _brokers_seen_by(address: str) -> int:
    """Return how many brokers the node at ``address`` reports, 0 if it does not answer yet."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({**ConnectionSettings(address).for_librdkafka(), "socket.timeout.ms": 2000})
    try:
        return len(client.list_topics(timeout=2).brokers)
    except KafkaException:
        return 0
