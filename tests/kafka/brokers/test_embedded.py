"""The embedded Kafka itself: what was asked for is what runs, and whatever ends us, nothing of it stays."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]

from kretain.embedded import EmbeddedError
from kretain.embedded.node import free_ports
from tests.support.clusters import EmbeddedKafka
from tests.support.processes import processes_of
from tests.support.says import refusal
from tests.support.world import World, wait_until


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders of this test are made: at its end neither a folder nor a process of them is left."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


def settings_of(world: World, broker: str = "1") -> dict[str, str | None]:
    return {name: entry.value for name, entry in world.settings(broker, ResourceType.BROKER).items()}


def test_embedded_kafka_is_as_asked_restarts_a_killed_node_and_keeps_folders_it_did_not_make(
    scratch: Path, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    dirs = [tmp_path / name for name in ("disk-a", "disk-b", "disk-c")]
    # A killed broker is let in again when its session has ended.
    wanted = {"broker.session.timeout.ms": "3000", "num.io.threads": "3", "log.roll.jitter.ms": "77"}
    with EmbeddedKafka(1, log_dirs=[dirs], ports=[port], settings=wanted) as kafka:
        assert kafka.bootstrap == f"127.0.0.1:{port}"
        world = World(kafka.bootstrap, scratch)
        assert settings_of(world).items() >= wanted.items(), "also those that we set ourselves (num.io.threads)"

        topic = world.filled(2, None, 6)
        assert all(list(folder.glob(f"{topic}-*")) for folder in dirs), "partitions are spread over all log dirs"

        node = kafka.node(1)
        first = node.pid
        node.kill()
        assert kafka.node(1).pid is None
        with socket.socket() as other:  # while it is down somebody else takes its port
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port))
            other.listen()
            with pytest.raises(EmbeddedError, match=f"port {port} is in use"):
                kafka.start_node(node)
        kafka.start_node(node)
        kafka.wait_until_ready()
        assert kafka.node(1).pid not in (None, first)
        assert [world.ends(topic, partition)[1] for partition in range(6)] == [2] * 6
    assert all(list(folder.glob(f"{topic}-*")) for folder in dirs)


@pytest.mark.parametrize("nodes", [1, 3])
def test_port_in_use_is_named_and_nothing_starts(scratch: Path, nodes: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        steps: list[str] = []
        kafka = EmbeddedKafka(nodes, ports=[*free_ports(nodes - 1), port], progress=steps.append)
        with pytest.raises(EmbeddedError, match=rf"^port {port} is in use \(Address already in use\)"), kafka:
            pass
    assert steps == [], "it was seen before anything that takes time"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num.io.threads": "-1"}, r"node 1 could not be formatted: .*num\.io\.threads"),
        # Formatting does not see this one; the broker itself does.
        ({"metric.reporters": "org.example.NoSuchReporter"}, r"Kafka node 1 ended while starting: .*NoSuchReporter"),
    ],
    ids=["seen by formatting", "seen by the broker"],
)
def test_rejected_setting_is_reported_in_kafkas_words(scratch: Path, settings: dict[str, str], said: str) -> None:
    with pytest.raises(EmbeddedError, match=said), EmbeddedKafka(1, settings=settings):
        pass


def test_exception_in_the_with_block_stops_the_brokers_and_propagates(scratch: Path) -> None:
    kafka = EmbeddedKafka(1)

    def work() -> None:
        with kafka:
            assert kafka.node(1).pid is not None
            assert len(processes_of(scratch)) == 2, "the broker and its reaper"
            raise ZeroDivisionError

    refusal(ZeroDivisionError, work)
    assert (kafka.node(1).pid, processes_of(scratch)) == (None, [])
    kafka.stop()  # harmless when repeated
    with pytest.raises(EmbeddedError, match="is not running"):
        _ = kafka.directory


OWNER = """
import signal
from kretain.embedded import EmbeddedKafka
with EmbeddedKafka(progress=lambda line: print(line, flush=True)) as kafka:
    print("up", flush=True)
    signal.pause()
"""


@pytest.fixture
def owner(scratch: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        yield process
        process.kill()
    wait_until(lambda: not processes_of(scratch), "the end of its brokers", 20)


@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL])
@pytest.mark.parametrize("when", [pytest.param("starting", marks=pytest.mark.long), "up"])
def test_brokers_stop_however_their_owner_ends(
    scratch: Path, owner: subprocess.Popen[str], when: str, how: signal.Signals
) -> None:
    """Ctrl-C at any moment, and SIGKILL, after which only the reaper is left to do it: folder and all."""
    assert owner.stdout is not None
    assert any(line.startswith(when) for line in owner.stdout), "it never got there"
    if when == "starting":
        wait_until(lambda: len(processes_of(scratch)) > 1, "a Java of it")
    else:
        assert len(processes_of(scratch)) == 2, "the broker and its reaper"
    owner.send_signal(how)
    assert owner.wait(60) == -how
    wait_until(lambda: not processes_of(scratch), "the end of its brokers", 20)
    wait_until(lambda: not list(scratch.iterdir()), "the end of its folder", 20)
