"""What the tests of the ledger's two stores share: opening them as commands do, in this process or in another."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.model import Decision, Sample
from retention_cli.memory import documents as docs
from retention_cli.memory.ledger import Ledger
from retention_cli.plan.value import Plan
from retention_cli.state import messages
from retention_cli.state.memories import Kind, Memories
from retention_cli.state.own_topics import OWN_TOPICS, STATE_TOPIC, StateTopic, initialize, read_stored, topic_ranges
from tests.support.world import Cli, World, now_ms, reader_for

CLUSTER = "the-cluster"
"""The tests' facts are made up, so they need no cluster of that id: the folder's name alone comes from it."""


def memories_of(state_dir: Path, kind: Kind, reader: ClusterReader, clock_ms: Callable[[], int] = now_ms) -> Memories:
    return Memories(state_dir, StateTopic(reader) if kind == "cluster" else None, clock_ms=clock_ms)


def new_topic_id() -> str:
    return "t" + uuid.uuid4().hex[:21]


@dataclass
class Store:
    """A ledger's place: a state directory on some machine, and the brokers."""

    kind: Kind
    bootstrap: str
    state_dir: Path

    @property
    def file(self) -> Path:
        return self.state_dir / CLUSTER / "ledger.sqlite"

    def elsewhere(self, name: str) -> Store:
        """What another machine has: its own disk, unless the kind is local; then another process has the same."""
        return Store(self.kind, self.bootstrap, self.state_dir if self.kind == "local" else self.state_dir / name)

    @contextmanager
    def opened(self, clock_ms: Callable[[], int] = now_ms) -> Iterator[tuple[Ledger, Memories]]:
        with (
            reader_for(self.bootstrap) as reader,
            closing(memories_of(self.state_dir, self.kind, reader, clock_ms)) as memories,
        ):
            memory = memories(CLUSTER)
            assert memory.on_disk, memories.notes or memory.lost
            yield memory, memories

    def save(self, memories: Memories) -> None:
        memories.save(now_ms())
        assert memories.notes == []

    def script(self, body: str, *arguments: str) -> subprocess.Popen[str]:
        """Start another process that has ``store``, ``ledger`` and ``memories`` at hand."""
        lines = "\n".join("    " + line for line in body.strip().splitlines())
        program = (
            "import os, signal, sys, time\n"
            "from pathlib import Path\n"
            "from retention_cli.core.model import EventMax, Sample\n"
            "from tests.support.ledger_stores import Store\n"
            f"store = Store({self.kind!r}, {self.bootstrap!r}, Path({str(self.state_dir)!r}))\n"
            f"with store.opened() as (ledger, memories):\n{lines}\n"
        )
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )


def samples_of(store: Store, topic_id: str, partition: int = 0) -> tuple[Sample, ...]:
    with store.opened() as (ledger, _):
        return ledger.partition("any", topic_id, partition).samples


def see(ledger: Ledger, group: str, commits: dict[str, dict[int, int]], at_ms: int) -> None:
    rows = {topic: [(p, offset, None) for p, offset in sorted(ps.items())] for topic, ps in commits.items()}
    ledger.saw_group(group, rows, at_ms, 0)


def add_samples(ledger: Ledger, topic_id: str, samples: Mapping[int, Sample]) -> None:
    """Look at topic orders: a sample of each of these partitions."""
    ledger.begin({"orders": topic_id})
    for number, sample in samples.items():
        ledger.partition("orders", topic_id, number).add_sample(sample)


def saw(store: Store, group: str, at_ms: int) -> None:
    """Look, at some time, at a group that has read five records, and save that."""
    with store.opened() as (ledger, memories):
        see(ledger, group, {"orders": {0: 5}}, at_ms)
        memories.save(at_ms)


def last_documents(bootstrap: str) -> dict[str, docs.Document | None]:
    """Return the last word on each key of the state topic: what is left of it once it has been compacted."""
    with reader_for(bootstrap) as reader:
        found: dict[str, docs.Document | None] = {}
        for one in read_stored(reader, topic_ranges(reader, STATE_TOPIC)[1]):
            key = (one.key or b"").decode()
            found[key] = None if one.value is None else messages.decode(key, one.value)[0]
        return found


def make_kretain_topics(bootstrap: str) -> None:
    with reader_for(bootstrap) as reader, ClusterWriter(reader.settings, OWN_TOPICS, 30) as writer:
        assert {one.outcome for one in initialize(reader, writer)} <= {"made", "there"}


def renew_state_topic(bootstrap: str) -> None:
    """Begin with an empty one: what other tests left in it is not ours."""
    world = World(bootstrap, Path())
    if STATE_TOPIC in world.admin.list_topics(timeout=60).topics:
        world.delete(STATE_TOPIC)
    make_kretain_topics(bootstrap)


def plan(world: World, policy: str, machine: str, kind: Kind = "cluster") -> Plan:
    """Plan on a machine that has its own disk."""
    where = world.state_dir / machine
    return world.plan(f"state: {kind}\n{policy}", memories_by=lambda reader: memories_of(where, kind, reader))


def decide(world: World, policy: str, topic: str, machine: str, kind: Kind = "cluster") -> Decision:
    return next(one for one in plan(world, policy, machine, kind).decisions if one.tp == (topic, 0))


def run(world: World, *arguments: str, check: int) -> Cli:
    """Run a command in this process: the same code as the real command's, without the start of an interpreter."""
    from typer.testing import CliRunner

    from kretain.app import app

    done = CliRunner().invoke(app, [*arguments, "-b", world.bootstrap, "--state-dir", str(world.state_dir)])
    assert done.exit_code == check, f"exit {done.exit_code}, not {check}:\n{done.stdout}\n{done.stderr}"
    return Cli(done.exit_code, done.stdout, done.stderr)
