"""Clusters that we bring: the embedded Kafka, the demo on it, and the bench's synthetic one. Nothing of them stays."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ResourceType,
)

from bench.harness import POLICY
from bench.seed import Shape, seed
from bench.synthetic.start import synthetic
from kretain.embedded.cluster import free_ports
from kretain.embedded.demo import FLIGHTS, TOPICS, WEATHER
from kretain.embedded.jars import EmbeddedError
from tests.support.clusters import EmbeddedKafka
from tests.support.processes import processes_of
from tests.support.says import refusal, says
from tests.support.terminal import Terminal
from tests.support.world import World, run_cli, wait_until, written


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders of this test are made: at its end neither a folder nor a process of them is left."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr("tests.support.clusters._formatted", {})  # so each node is formatted again
    yield folder
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


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
        live = {name: entry.value for name, entry in world.settings("1", ResourceType.BROKER).items()}
        assert live.items() >= wanted.items(), "also those that we set ourselves (num.io.threads)"

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
            assert f"port {port} is in use" in refusal(EmbeddedError, kafka.start_node, node)
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
    assert "is not running" in refusal(EmbeddedError, getattr, kafka, "directory")


OWNER = """
import signal
from kretain.embedded.cluster import EmbeddedKafka
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


# -- kretain demo ------------------------------------------------------------------------------


STEPS = (
    "1. The data",
    "2. The policy",
    "3. Where consumers stand",
    "4. The plan",
    "5. Why no further?",
    "6. The rehearsal",
    "7. The trim",
    "8. What is left",
)
DEMO = [sys.executable, "-m", "kretain", "demo"]


@dataclass
class Place:
    """Where a demo runs: its temporary folders would be in ``scratch``, its user's state in ``state``."""

    folder: Path
    environ: dict[str, str]

    def check_that_nothing_stayed(self) -> None:
        wait_until(lambda: not processes_of(self.folder / "scratch"), "the end of every process", 20)
        assert list((self.folder / "scratch").iterdir()) == []
        assert not (self.folder / "state").exists(), "its audit log is its own"


def place(folder: Path) -> Place:
    """Return the environment of a user who has clusters of their own; the demo must not touch them."""
    config = written(
        folder / "config.yaml",
        "contexts: {prod: {bootstrap-server: 'prod.invalid:9092', settings: {security.protocol: SSL}}}\n"
        "default-context: prod\n",
    )
    (folder / "scratch").mkdir()
    environ = {
        **os.environ,
        "TMPDIR": str(folder / "scratch"),
        "XDG_STATE_HOME": str(folder / "state"),
        "KRETAIN_CONFIG": str(config),
        "KRETAIN_BOOTSTRAP_SERVER": "prod.invalid:9092",
        "KRETAIN_OUTPUT": "json",
        "KRETAIN_UNCONSUMED": "trim",
    }
    return Place(folder, environ)


@pytest.fixture(scope="module", autouse=True)
def piped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, subprocess.Popen[bytes]]]:
    """The demo in a pipe runs while the one in a terminal does: two on one machine are none of each other's business."""
    where = place(tmp_path_factory.mktemp("piped"))
    with (where.folder / "out").open("wb") as out, (where.folder / "err").open("wb") as err:
        process = subprocess.Popen(DEMO, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=where.environ)
    yield where, process
    process.kill()
    process.wait()


def table(text: str, command: str) -> dict[str, list[str]]:
    """Return a command's rows by partition: those of the last time that it was run."""
    shown = text.rpartition(f"$ {command}\n")[2]
    return {
        cells[0]: cells[1:]
        for cells in (re.split(r" {2,}", line.strip()) for line in shown.split("\n\n")[0].splitlines())
        if cells[0].rpartition("-")[0] in TOPICS
    }


@pytest.mark.long
def test_demo_in_a_terminal_stops_at_no_and_keeps_the_broker_with_keep(
    tmp_path: Path,
) -> None:
    where = place(tmp_path)
    with Terminal([*DEMO, "--keep"], columns=80, environ=where.environ) as terminal:
        for step in range(6):  # between the seven steps up to the question
            terminal.read_until(f"{step + 1}. ", 200)
            assert f"{step + 2}. " not in terminal.text.rpartition("$ ")[2]
            terminal.read_until("Press Enter", 60)
            terminal.type("\n")
        terminal.read_until("[y/N]", 60)
        terminal.type("n\n")
        terminal.read_until("Press Enter", 60)
        terminal.type("\n")
        text = terminal.read_until("plan weather --older-than 3d")
        says(text, "You answered no", "7. The trim", never=["records trimmed"])
        prose = [line for line in text.splitlines() if "─" not in line]
        assert [line for line in prose if len(line) > 80 and not re.match(r"export |/", line)] == []

        (address,) = re.findall(r"The broker stays up at (\S+) until Ctrl-C", text)
        world = World(address, tmp_path)
        ends = {topic: [world.ends(topic, number) for number in range(count)] for topic, count in TOPICS.items()}
        assert {start for pairs in ends.values() for start, _end in pairs} == {0}
        totals = {topic: sum(end for _start, end in pairs) for topic, pairs in ends.items()}
        assert (totals["flights"], totals["weather"]) == (FLIGHTS, WEATHER)

        plan = subprocess.run(
            [sys.executable, "-m", "kretain", "plan", "--detailed-exitcode"],
            env={**os.environ, **dict(re.findall(r"export (KRETAIN_\w+)=(\S+)", text))},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (plan.returncode, plan.stderr) == (3, ""), "what it says to type works, and there is all to trim"

        terminal.type("\x03")
        assert terminal.wait() == 0
        assert terminal.text.rstrip().endswith("kretain: stopping the broker")
    where.check_that_nothing_stayed()


def test_demo_in_a_pipe_runs_every_step_without_asking(piped: tuple[Place, subprocess.Popen[bytes]]) -> None:
    where, process = piped
    code, out, err = process.wait(200), *((where.folder / name).read_text() for name in ("out", "err"))
    assert code == 0, err
    where.check_that_nothing_stayed()
    assert [line for line in out.splitlines() if line in STEPS] == list(STEPS)
    says(" ".join(out.split()), "Without a terminal kretain cannot ask.", never=["\x1b"])

    planned = table(out.partition("5. Why")[0], "kretain plan")
    trimmed = table(out, "kretain trim --yes")
    assert len(planned) == sum(TOPICS.values())
    going = {name: row for name, row in planned.items() if row[0] == "trim"}
    assert {name for name in planned if name not in going} == {"weather-2"}, "the partition of unknown floor"
    done = {name: ["trimmed", row[1].removeprefix("0 → ")] for name, row in going.items()}
    assert {name: trimmed[name][:2] for name in going} == done
    assert trimmed["weather-2"][0] == "held"
    records = sum(int(row[2].replace(",", "")) for row in going.values())
    assert f"\n{records:,} records trimmed, about" in out

    after = out.partition("8. What is left")[2]
    assert {name: row[0] for name, row in table(after, "kretain plan").items()} == {"weather-2": "hold"}
    says(after, f"No changes. {len(going)} partitions up to date, 1 on hold.", "\n1 run of cluster ")

    assert all(line.startswith("kretain: ") for line in err.splitlines()), "progress, and nothing else"
    assert "starting 1 Kafka node" in err


# -- the synthetic cluster of the bench --------------------------------------------------------


SHAPE = Shape(topics=5, groups=4, topics_a_group=3, empty_share=0.25, prefix="synthetic")
UNLIKE = ("topic_id", "bytes", "bytes_exact", "cluster", "policy", "created_at", "run", "lock", "since")


def alike(value: Any) -> Any:
    """Return a document without what differs between any two clusters."""
    if isinstance(value, dict):
        return {key: alike(one) for key, one in value.items() if key not in UNLIKE}
    return [alike(one) for one in value] if isinstance(value, list) else value


def told(bootstrap: str, folder: Path) -> list[Any]:
    """Return what plans before and after a trim say, and the trim; a second plan finds what the first remembered."""
    folder.mkdir()
    policy = written(folder / "policy.yaml", POLICY.replace("bench-*", f"{SHAPE.prefix}-*"))
    common = ("-b", bootstrap, "-p", str(policy), "--state-dir", str(folder / "state"), "-o", "json")
    return [
        alike(json.loads(run_cli(*one, *common, check=0).out))
        for one in (("plan",), ("plan",), ("trim", "--yes"), ("plan",))
    ]


def test_synthetic_cluster_answers_like_a_real_one(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Plans, a trim and the plan after it are the same, commits beyond the end of empty partitions included."""
    seed(kafka.bootstrap, SHAPE, print)
    real = told(kafka.bootstrap, tmp_path / "real")
    with synthetic(SHAPE) as served:
        assert told(served.bootstrap, tmp_path / "made") == real
    assert {"trim", "keep"} <= {row["action"] for row in real[0]["partitions"]}
