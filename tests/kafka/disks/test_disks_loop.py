"""R6 as people use it: brokers on small volumes, producers without a pause, two machines that trim, and trouble."""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from kretain.embedded import EmbeddedError, EmbeddedKafka
from tests.support.volumes import MIB, RECORD, scan_all, volume
from tests.support.world import HOUR, World, now_ms, reader_for, wait_until

MINUTES = float(os.environ.get("LOOP_MINUTES", "10"))
ROOM_MIB = 128
CEILING = 60
EVERY_S = 30
SETTINGS = {
    "log.retention.check.interval.ms": "3000",
    "log.initial.task.delay.ms": "1000",
    "log.segment.delete.delay.ms": "2000",
    "log.index.size.max.bytes": "65536",
    "min.insync.replicas": "1",
}
TOPIC = {"segment_bytes": str(MIB), "file_delete_delay_ms": "2000"}


@dataclass
class Loop:
    """The cluster, what goes on in it, and how full its volumes were."""

    kafka: EmbeddedKafka
    world: World
    root: Path
    volumes: list[Path]
    over: threading.Event = field(default_factory=threading.Event)
    used: list[list[float]] = field(default_factory=list)
    exits: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    moves: list[int] = field(default_factory=list)

    def percent(self) -> list[float]:
        rooms = [os.statvfs(one) for one in self.volumes]
        return [100 * (1 - one.f_bavail / one.f_blocks) for one in rooms]

    def sample(self) -> None:
        """Look at the volumes themselves, twice a second."""
        while not self.over.wait(0.5):
            self.used.append(self.percent())

    def lowest(self) -> float:
        """The lowest that the fullest volume was, once one had been full.

        A trim for one disk takes segments of all replicas: another disk may well be below its ceiling. A replica that
        moves away takes its bytes with it.
        """
        quiet = {n for begin in self.moves for n in range(begin, begin + 60)}
        found, full = 100.0, False
        for n, row in enumerate(self.used):
            full = (full or max(row) > CEILING - 2) and n not in quiet
            found = min(found, max(row)) if full else found
        return found

    def produce(self, topic: str) -> None:
        """Write about a quarter of a MiB a second to one of the topic's partitions after the other."""
        chance = random.Random(topic)
        for number in itertools.count():
            if self.over.is_set():
                return
            stamps = [now_ms() + n for n in range(26)]
            try:
                self.world.produce_at(topic, stamps, partition=number % 2, value=lambda: chance.randbytes(RECORD))
            except Exception as error:  # a broker restarts
                self.busy.append(repr(error))
            self.over.wait(1)

    def trim(self, machine: str, policy: Path, scan: bool) -> None:
        """Trim every half minute, from a machine of its own: one scans before each trim, the other never does."""
        world = World(self.world.bootstrap, self.root / machine)
        options = ["-p", str(policy), "--yes", "--wait", "--wait-at-most", "20s", "-o", "json"]
        for number in itertools.count():
            began = time.monotonic()
            more = []
            if scan:
                more = ["--inventory", str(scan_all(self.kafka, self.root / f"inventory-{number}", None))]
            done = world.cli("trim", *options, *more)
            self.exits[done.code] += 1
            (self.root / f"{machine}-{number}.txt").write_text(f"{began:.0f} {done.code}\n{done.err}\n{done.out}")
            if done.code not in (0, 5) or "Traceback" in done.err:
                self.wrong.append(f"{machine}: exit {done.code}: {done.err[-500:]}")
            if self.over.wait(max(0.0, EVERY_S - (time.monotonic() - began))):
                return

    def trouble(self) -> None:
        """Topics come and go, a broker restarts, a replica moves."""
        for number in itertools.count():
            if self.over.wait(20):
                return
            try:
                self._make_trouble(number)
            except Exception as error:  # what a client says while brokers restart
                self.busy.append(f"trouble {number}: {error!r}")

    def _make_trouble(self, number: int) -> None:
        match number % 4:
            case 0 | 2:
                name = self.world.topic("passing", replicas=3, **TOPIC)  # type: ignore[arg-type]
                first = now_ms() - HOUR // 2
                stamps = [first + n for n in range(3 * MIB // RECORD)]
                self.world.produce_at(name, stamps, value=lambda: os.urandom(RECORD), batch=50)
                self.over.wait(10)
                self.world.delete(name)
            case 1:
                node = self.kafka.nodes[number // 4 % 3]
                node.kill()
                self.over.wait(3)
                for _ in range(5):
                    try:
                        self.kafka.start_node(node)
                        self.kafka.wait_until_ready()
                        break
                    except EmbeddedError as error:  # a controller was elected while it started
                        self.busy.append(repr(error))
            case _:
                to = [[1, 2], [2, 3], [3, 1]][number // 4 % 3]
                admin = KafkaAdminClient(bootstrap_servers=self.world.bootstrap)
                try:
                    [moving] = [name for name in admin.list_topics() if name.startswith("pairs")]
                    self.moves.append(len(self.used))
                    admin.alter_partition_reassignments({TopicPartition(moving, 0): to})
                finally:
                    admin.close()


@contextmanager
def loop(root: Path) -> Iterator[Loop]:
    with ExitStack() as stack:
        volumes = [stack.enter_context(volume(root / f"volume-{n}", ROOM_MIB)) for n in range(3)]
        dirs = [[one / "logs"] for one in volumes]
        kafka = stack.enter_context(EmbeddedKafka(3, log_dirs=dirs, settings=SETTINGS))
        yield Loop(kafka, World(kafka.bootstrap, root / "state"), root, volumes)


@pytest.mark.long
@pytest.mark.timeout(60 * MINUTES + 300)
def test_disk_loop_never_overflows_nor_trims_below_the_ceiling(tmp_path: Path) -> None:
    """R6, for LOOP_MINUTES: never above 95 %, nor two segments a partition below the ceiling; what is unread stays."""
    with loop(tmp_path) as one:
        world = one.world
        unread = world.topic("unread", replicas=3, **TOPIC)  # type: ignore[arg-type]
        world.produce_at(unread, [now_ms() - HOUR] * (4 * MIB // RECORD), value=lambda: os.urandom(RECORD), batch=50)
        world.commit("slow", unread, 0)
        threes = world.topic("threes", partitions=2, replicas=3, **TOPIC)  # type: ignore[arg-type]
        pairs = world.topic("pairs", partitions=2, replicas=2, **TOPIC)  # type: ignore[arg-type]
        policy = tmp_path / "policy.yaml"
        # Two volumes with the same replicas are as full as each other, to the byte: kretain asks whether they are one.
        devices = ", ".join(f'["{node.node_id}:{node.log_dirs[0]}"]' for node in one.kafka.nodes)
        ceiling = f"log.retention.disk.usage.percent: {CEILING}"
        policy.write_text(
            f"version: 1\ndisks: {{{ceiling}, shared: true, devices: [{devices}]}}\ntopics:\n"
            f"  - {{match: '{unread}'}}\n  - {{match: ['threes*', 'pairs*', 'passing*'], unconsumed: trim}}\n"
        )
        work = [
            threading.Thread(target=one.sample),
            *(threading.Thread(target=one.produce, args=(topic,)) for topic in (threes, pairs)),
            threading.Thread(target=one.trim, args=("scans", policy, True)),
            threading.Thread(target=one.trim, args=("estimates", policy, False)),
            threading.Thread(target=one.trouble),
        ]
        for thread in work:
            thread.start()
        one.over.wait(60 * MINUTES)
        one.over.set()
        for thread in work:
            thread.join(120)
        assert one.wrong == []
        assert len(one.used) > 60 * MINUTES, "volumes were looked at"
        highest, lowest = max(max(row) for row in one.used), one.lowest()
        # Two segments a partition may go: 2 of threes, 2 of pairs and one that passes, which its owner deletes besides.
        spare = 100 * (2 * 5 + 3) / ROOM_MIB
        met = f"volumes from {lowest:.1f} to {highest:.1f} %; exits {dict(one.exits)}; clients met {Counter(one.busy)}"
        sys.stdout.write(met)
        (tmp_path / "used.txt").write_text("\n".join(" ".join(f"{n:.1f}" for n in row) for row in one.used))
        assert CEILING - spare < lowest, met
        assert highest < 95, met
        assert one.exits[0] + one.exits[5] >= 2 * MINUTES, one.exits
        assert world.ends(unread) == (0, 4 * MIB // RECORD), "nobody has read it"
        with reader_for(world.bootstrap) as reader:
            wait_until(lambda: {*reader.metadata().brokers} == {1, 2, 3}, "all brokers")
