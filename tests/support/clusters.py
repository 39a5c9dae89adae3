"""Clusters of real brokers for the tests and the bench: several nodes, log dirs, a second listener, faults."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kretain.embedded import jars
from kretain.embedded.cluster import HEAP_MB, EmbeddedKafka as OneNode, Node, free_ports, new_id, properties_of
from kretain.embedded.jars import DEFAULT_VERSION, EmbeddedError
from tests.support import processes

STOP_SECONDS = 20

_formatted: dict[tuple[str, int], list[dict[str, bytes]]] = {}
"""The files that formatting wrote to a node's log dirs, by version and number of dirs."""


@dataclass(slots=True, kw_only=True)
class FaultyNode(Node):
    """A node that can be stopped in every way.

    ``ports`` are all of its ports, ``secure_port`` is the second listener's, if there is one. ``log_dirs`` are the
    folders of its partitions.
    """

    ports: Sequence[int]
    secure_port: int | None
    log_dirs: Sequence[Path]

    def refuse_taken_ports(self) -> None:
        for port in self.ports:
            try:
                socket.create_server(("127.0.0.1", port)).close()  # like the broker: TIME_WAIT is free
            except OSError as error:
                raise EmbeddedError(f"port {port} is in use ({os.strerror(error.errno or 0)})") from error

    def start(self) -> None:
        self.refuse_taken_ports()
        Node.start(self)

    def format_like(self, formatted: Sequence[Mapping[str, bytes]], cluster_id: str) -> None:
        """Write the node's configuration, and copy into its log dirs the files that the tool wrote for another node."""
        self.write_configuration()
        for folder, files in zip(self.log_dirs, formatted, strict=True):
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(
                    self._identified(content, cluster_id) if name == "meta.properties" else content
                )

    def formatted(self) -> list[dict[str, bytes]]:
        """Return the files that formatting wrote to each log dir: content by name, which may have a folder."""
        return [
            {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
            for folder in self.log_dirs
        ]

    def _identified(self, meta: bytes, cluster_id: str) -> bytes:
        """Return a log dir's ``meta.properties`` with this node's ids, and a new id for the folder."""
        ids = {"cluster.id": cluster_id, "node.id": str(self.node_id), "directory.id": new_id()}
        text = meta.decode()
        for key, value in ids.items():
            text = re.sub(rf"^{re.escape(key)}=.*$", f"{key}={value}", text, flags=re.MULTILINE)
        return text.encode()

    def terminate(self) -> None:
        """Ask the broker to shut down cleanly, and kill it if it does not."""
        self._signal(signal.SIGTERM)
        if self.process is not None:
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def freeze(self) -> None:
        """Stop the process with SIGSTOP: its port stays open, and it does not answer."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)


class EmbeddedKafka(OneNode):
    """A cluster of combined KRaft nodes.

    Args:
        nodes: the number of nodes.
        log_dirs: folders for partitions, per node; a number creates that many inside ``directory``.
        settings: broker settings, which override the product's own.
        secure_protocol: SSL, SASL_PLAINTEXT or SASL_SSL: each node gets a second listener, named
            ``SECURE`` (its settings start with ``listener.name.secure.``), see ``secure_bootstrap``.
        ports: the ports of the plaintext listeners; free ones by default.
        more: as for one node.
    """

    nodes: Sequence[FaultyNode]

    def __init__(
        self,
        nodes: int = 1,
        *,
        log_dirs: int | Sequence[Sequence[Path]] = 1,
        settings: Mapping[str, str] | None = None,
        secure_protocol: str | None = None,
        ports: Sequence[int] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.heap_mb = HEAP_MB
        """The heap of each broker (MiB); it counts when they are started."""
        self._count = nodes
        self._log_dirs = log_dirs
        self._settings = dict(settings or {})
        self._secure_protocol = secure_protocol
        self._ports = ports

    @property
    def secure_bootstrap(self) -> str:
        """The second listeners (``secure_protocol``), as ``host:port,…``."""
        return ",".join(f"127.0.0.1:{node.secure_port}" for node in self.nodes)

    def node(self, node_id: int) -> FaultyNode:
        """Return the node with this id (from 1)."""
        return self.nodes[node_id - 1]

    def make_nodes(self, java: Path, class_path: str) -> Sequence[FaultyNode]:
        free = iter(free_ports(3 * self._count))
        plain = list(self._ports) if self._ports is not None else [next(free) for _ in range(self._count)]
        controls = [next(free) for _ in range(self._count)]
        nodes = []
        for node_id, port in enumerate(plain, start=1):
            secure = next(free) if self._secure_protocol else None
            home = self.directory / f"node-{node_id}"
            dirs = (
                [home / f"data-{number}" for number in range(self._log_dirs)]
                if isinstance(self._log_dirs, int)
                else [Path(one) for one in self._log_dirs[node_id - 1]]
            )
            node = FaultyNode(
                node_id,
                port,
                home,
                self._properties(node_id, port, secure, controls, dirs),
                java,
                class_path,
                self.heap_mb,
                ports=[one for one in (port, controls[node_id - 1], secure) if one is not None],
                secure_port=secure,
                log_dirs=dirs,
            )
            nodes.append(node)
        for node in nodes:
            node.refuse_taken_ports()  # before formatting, which takes seconds
        return nodes

    def format_nodes(self) -> None:
        """Format one node with Kafka's tool, and copy the result to the others, and to clusters of the same version.

        The tool's output depends on the version (no test's settings change it); only ids are specific to a node.
        """
        like = (self.version, len(self.nodes[0].log_dirs))
        for node in self.nodes:
            if like in _formatted:
                node.format_like(_formatted[like], self.cluster_id)
            else:
                node.format(self.cluster_id)
                _formatted[like] = node.formatted()

    def _properties(
        self, node_id: int, port: int, secure: int | None, controls: Sequence[int], dirs: Sequence[Path]
    ) -> dict[str, str]:
        own = properties_of(node_id, port, controls, dirs)
        if secure is not None:
            own["listeners"] += f",SECURE://127.0.0.1:{secure}"
            own["advertised.listeners"] += f",SECURE://127.0.0.1:{secure}"
            own["listener.security.protocol.map"] += f",SECURE:{self._secure_protocol}"
        return own | self._settings


_SMALL_JAVA = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_SCRIPTS = {
    "kafka-configs.sh": "ConfigCommand",
    "kafka-consumer-groups.sh": "consumer.group.ConsumerGroupCommand",
    "kafka-dump-log.sh": "DumpLogSegments",
    "kafka-topics.sh": "TopicCommand",
    "kafka-transactions.sh": "TransactionsCommand",
}


def kafka_tool(name: str, *arguments: str, options: Sequence[str] = _SMALL_JAVA) -> list[str]:
    """Return the command line of one of Kafka's own tools, by its class in ``org.apache.kafka.tools``."""
    lib = jars.resolve("kafka-tools", DEFAULT_VERSION, print)
    return [str(jars.find_java()), *options, "-cp", f"{lib}/*", f"org.apache.kafka.tools.{name}", *arguments]


def tools_on_path(folder: Path) -> None:
    """Put ``kretain`` and Kafka's own tools into a folder, by the names of their scripts."""
    processes.on_path(folder)
    for name, main in _SCRIPTS.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(kafka_tool(main))} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
