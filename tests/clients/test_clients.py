"""Where a client's group really goes on, beside the floor that kretain has for it: never above.

Each client is a small program that carries out one command and ends: it reads and commits some records, tells at which
offset it goes on, resets its group, or commits in a transaction. So every command is a restart. ``docs/clients.md`` has
the results; ``WRITE_CLIENTS=1`` rewrites it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from kretain.embedded import jars
from tests.conftest import QUICK
from tests.support.clusters import EmbeddedKafka
from tests.support.leaders import move_leader
from tests.support.world import HOUR, World, consumed

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parents[1] / "docs" / "clients.md"
PYTHON: Final = ("confluent-kafka", "kafka-python", "aiokafka")
GO: Final = ("sarama", "sarama 1.41", "kafka-go", "franz-go")
NODE: Final = ("kafkajs", "platformatic")
JAVA: Final = ("java-classic", "java-consumer", "java-share", "streams")
WITHOUT_TRANSACTIONS: Final = ("sarama", "sarama 1.41", "kafka-go", "platformatic", "java-share")
"""Clients without offsets in transactions, or (Sarama) without any in a transaction that has no record."""
LAGGING: Final = "java-share"
"""What a share group has acknowledged moves its start offset a while later."""
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.share.max.delivery.count.limit": "25",  # looking counts as a delivery: after the last one a record is archived
}
STEPS: Final = (
    "reads 4 records and commits",
    "after an election reads 2 more",
    "after a second election reads 2 more",
    "commits in a transaction",
    "is reset to the start",
    "is reset to the end; 3 records come",
    "a partition is added; on that one",
    "the topic is recreated, and its member is back",
)
OLD: Final = 30 * HOUR


@dataclass(slots=True)
class Row:
    """What came of one step: where the client goes on, and what kretain makes of it."""

    step: str
    goes_on: int | None
    floor: int | None
    held_by: str


@dataclass(slots=True)
class Client:
    name: str
    command: list[str]
    group: str
    bootstrap: str
    rows: list[Row] = field(default_factory=list)

    def run(self, topic: str, *words: str) -> Any:
        """Carry out one command, in a process of its own; return its answer."""
        done = subprocess.run(
            [*self.command, self.bootstrap, self.group, topic, *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{self.name} {words}: {done.stderr[-2000:]}"
        return json.loads(done.stdout.strip().splitlines()[-1])


def _ran(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-1000:]}{done.stderr[-2000:]}"


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The command lines of all clients, installed and built from this folder by their own tools."""
    built = tmp_path_factory.mktemp("clients")
    for tool in ("go", "npm", "node", "javac"):
        assert shutil.which(tool), f"{tool} is needed for these tests"
    found = {name: [sys.executable, str(HERE / "python_client.py"), name] for name in PYTHON}
    _ran(["go", "build", "-o", str(built / "new"), "."], HERE / "go")
    _ran(["go", "build", "-modfile", "sarama-1.41.mod", "-o", str(built / "old"), "."], HERE / "go")
    found |= {name: [str(built / "new"), name] for name in GO}
    found["sarama 1.41"] = [str(built / "old"), "sarama"]
    shutil.copytree(HERE / "node", built / "node", ignore=shutil.ignore_patterns("node_modules"))
    _ran(["npm", "ci", "--no-audit", "--no-fund"], built / "node")
    found |= {name: ["node", str(built / "node" / "client.mjs"), name] for name in NODE}
    java = jars.find_java()
    lib = jars.resolve("kafka-streams", jars.DEFAULT_VERSION, print)
    _ran(["javac", "-nowarn", "-d", str(built / "java"), "-cp", f"{lib}/*", str(HERE / "java" / "Client.java")], HERE)
    start = [str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={built}"]
    found |= {name: [*start, "-cp", f"{built / 'java'}:{lib}/*", "Client", name] for name in JAVA}
    return found


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(3, settings={**QUICK, **SETTINGS}) as kafka:
        yield kafka


def compare(world: World, client: Client, topic: str, step: str, partition: int = 0) -> Row:
    """Ask kretain for the floor, then the client where it goes on: the floor must not be above that."""
    time.sleep(0.5)  # a share group's state and a transaction's marker are written soon after
    decision = world.decide(consumed(topic), topic, partition)
    end = world.ends(topic, partition)[1]
    words = ["where", "2"] if client.name in ("streams", "java-share") and partition else ["where"]
    goes_on = client.run(topic, *words).get(str(partition))
    floor = None if decision.action == "hold" else decision.min_commit
    row = Row(step, goes_on, floor, ", ".join(sorted({one.code for one in decision.reasons})) if floor is None else "")
    client.rows.append(row)
    really = end if goes_on is None else goes_on
    assert floor is None or floor <= really, f"{client.name}, {step}: {decision} and it goes on at {really}"
    return row


@pytest.mark.parametrize("name", [*PYTHON, *GO, *NODE, *JAVA])
def test_floor_is_never_above_where_a_restarted_client_resumes(
    three: EmbeddedKafka, programs: dict[str, list[str]], tmp_path: Path, name: str
) -> None:
    world = World(three.bootstrap, tmp_path / "state")
    topic = world.filled([OLD] * 10, stem="clients", replicas=2)
    client = Client(name, programs[name], f"{topic}-group", three.bootstrap)
    world.commit(f"{topic}-done", topic, 10)

    def produced(count: int) -> None:
        world.commit(f"{topic}-done", topic, world.produce(topic, [OLD] * count))

    assert client.run(topic, "read", "4") == {"read": 4}
    row = compare(world, client, topic, "reads 4 records and commits")
    assert row.goes_on == 4
    assert row.floor == 4 or name == LAGGING, row

    for turn in ("an election", "a second election"):
        move_leader(world, topic)
        produced(2)
        assert client.run(topic, "read", "2") == {"read": 2}
        row = compare(world, client, topic, f"after {turn} reads 2 more")
    assert row.goes_on == 8

    if name not in WITHOUT_TRANSACTIONS:
        client.run(topic, "transact", "6" if name != "franz-go" else "2")
        compare(world, client, topic, "commits in a transaction")

    client.run(topic, "reset", "start")
    assert compare(world, client, topic, "is reset to the start").goes_on == 0
    client.run(topic, "reset", "end")
    produced(3)
    compare(world, client, topic, "is reset to the end; 3 records come")

    world.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    world.await_leaders(topic, 2)
    world.produce(topic, [OLD] * 3, 1)
    world.commit(f"{topic}-done", topic, {0: world.ends(topic)[1], 1: 3})
    compare(world, client, topic, "a partition is added; on that one", 1)

    world.admin.delete_topics([topic])[topic].result(30)
    time.sleep(1)
    assert world.topic(name=topic, replicas=2) == topic
    world.produce(topic, [OLD] * 10)
    world.commit(f"{topic}-done", topic, 10)
    back_again(world, client, topic)
    check_page(client)


def back_again(world: World, client: Client, topic: str) -> None:
    """A recreated topic starts over (M1): a group that is away counts again once it has a member, or commits."""
    held: set[str] = set()
    with subprocess.Popen(
        [*client.command, client.bootstrap, client.group, topic, "where"], stdout=subprocess.PIPE, text=True
    ) as running:
        while running.poll() is None:
            decision = world.decide(consumed(topic), topic, remember=False)
            held |= {one.code for one in decision.reasons} if decision.action == "hold" else set()
        answer = json.loads(running.communicate()[0].strip().splitlines()[-1])
    assert answer == {"0": 0}, "it starts over"
    assert held & {"F2", "F3"}, f"{client.name}: its member has no commit, and did not count"
    codes = ", ".join(sorted(held & {"F2", "F3"}))
    client.rows.append(Row("the topic is recreated, and its member is back", 0, None, codes))


def _line(client: Client) -> str:
    """Return the client's line of the page: where it went on and the floor, for each step."""
    cells = dict.fromkeys(STEPS, "")
    for row in client.rows:
        goes_on = "end" if row.goes_on is None else str(row.goes_on)
        floor = f"unknown ({row.held_by})" if row.floor is None else str(row.floor)
        if client.name == LAGGING and row.floor is not None:
            floor = f"≤ {goes_on}"
        cells[row.step] = f"{goes_on}, {floor}"
    return f"| {client.name} | {' | '.join(cells.values())} |"


def check_page(client: Client) -> None:
    """Compare the client's line in docs/clients.md with this run, but for which of several reasons it was."""
    text = PAGE.read_text(encoding="utf-8")
    made, found = _line(client), re.search(rf"^\| {re.escape(client.name)} \|.*$", text, re.MULTILINE)
    if os.environ.get("WRITE_CLIENTS"):
        lined = text.replace(found[0], made) if found else text.replace("\n<!-- end", f"\n{made}\n<!-- end")
        PAGE.write_text(lined, encoding="utf-8")
        return
    codes = re.compile(r"unknown \([^)]*\)")
    assert found is not None, f"docs/clients.md has no line for {client.name}"
    assert codes.sub("unknown", found[0]) == codes.sub("unknown", made)
