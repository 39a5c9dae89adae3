"""One node of an embedded cluster: its files and its process."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import re
import socket
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kretain.embedded.java import EmbeddedError

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
        return next(signs, lines[-1] if lines else "it said nothing")

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
