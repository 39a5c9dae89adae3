"""Does harm to a cluster whose brokers are reached through links that can be cut, and undoes it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from kafka.admin import NewPartitions
from kafka.errors import KafkaError as PythonKafkaError
from kafka.structs import TopicPartition as KafkaTopicPartition

from tests.kafka.faults.judge import Commits, Record
from tests.kafka.faults.load import Load, admin_of
from tests.kafka.faults.runs import Fault, Round
from tests.support.clusters import EmbeddedKafka
from tests.support.world import World, now_ms, wait_until


class Link:
    """A port before a broker's own. While it is cut nothing arrives in either direction, and nobody is told."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._open = asyncio.Event()
        self._pairs: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    def lead_to(self, port: int) -> None:
        async def begin() -> None:
            self._open.set()
            await asyncio.start_server(lambda *ends: self._join(port, *ends), sock=self._socket)

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(60)

    def cut(self) -> None:
        """Hold back everything from now on, also what new connections bring."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def heal(self, *, lost: bool) -> None:
        """Let it arrive late, or lose it: then every connection ends."""
        if lost:
            asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._open.set)

    async def _drop(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        for end in self._pairs:
            end.transport.abort()

    async def _join(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        pumps = [asyncio.create_task(self._pump(*ends)) for ends in ((reader, back), (there, writer))]
        self._pumps.update(pumps)
        self._pairs |= {writer, back}
        await asyncio.wait(pumps)
        self._pumps.difference_update(pumps)
        self._pairs -= {writer, back}
        for end in (writer, back):
            end.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await source.read(1 << 16):
                await self._open.wait()
                sink.write(content)
                await sink.drain()
        sink.close()


class LinkedKafka(EmbeddedKafka):
    """A cluster whose brokers advertise their links."""

    def __init__(self, nodes: int, **more: Any) -> None:
        super().__init__(nodes, **more)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.links = [Link(self._loop) for _ in range(nodes)]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{link.port}" for link in self.links)

    def stop(self) -> None:
        super().stop()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _properties(
        self, node_id: int, port: int, secure: int | None, controls: Sequence[int], dirs: Sequence[Path]
    ) -> dict[str, str]:
        link = self.links[node_id - 1]
        link.lead_to(port)
        own = super()._properties(node_id, port, secure, controls, dirs)
        return own | {"advertised.listeners": f"PLAIN://127.0.0.1:{link.port}"}


PHOENIX, PHOENIX_READER = "phoenix", "phoenix-reader"
MOST_PARTITIONS = 6
MIB = b"\0" * (1 << 20)


class Breaker:
    def __init__(self, kafka: LinkedKafka, world: World, load: Load, volume: Path | None) -> None:
        self.kafka, self.world, self.load, self.truth = kafka, world, load, load.truth
        self.volume = volume
        self.born: dict[str, int] = {}
        self.topics: dict[str, str] = {}
        """Every topic's name by its id, those that are gone included."""
        self.growing: dict[str, int] = {}
        """How many partitions a topic may have by now."""
        self._lives = 0
        self.truth.commits[PHOENIX_READER] = Commits()

    def make(self, topic: str, partitions: int, replicas: int) -> None:
        """Make a topic, and tell the truth of it."""
        began = now_ms()
        config = {"min_insync_replicas": "2"} if replicas == 3 else {}
        self.world.topic(name=topic, partitions=partitions, replicas=replicas, **config)
        wait_until(lambda: self._id(topic) not in {None, self.truth.ids.get(topic)}, f"the id of {topic}")
        made = self.truth.ids[topic] = self._id(topic) or ""
        self.truth.partitions[topic] = partitions
        self.topics[made], self.born[made] = topic, began

    def live(self) -> None:
        """Begin another life of the phoenix; in every other one nobody reads it, and so nothing of it may go."""
        self._lives += 1
        self.make(PHOENIX, 2, 3)
        at = now_ms() - 3_600_000
        for partition in range(2):
            values = iter([f"{self._lives}/{n}".encode() for n in range(20)])
            self.world.produce_at(PHOENIX, [at] * 20, partition, lambda values=values: next(values))  # type: ignore[misc]
            log = self.truth.log(PHOENIX, partition)
            for n in range(20):
                self.truth.took(log, n, Record(f"{self._lives}/{n}".encode(), at, now_ms(), 0))
        if self._lives % 2:
            commit = self.truth.commits[PHOENIX_READER].sending({self.truth.log(PHOENIX, n): 15 for n in range(2)})
            self.world.commit(PHOENIX_READER, PHOENIX, {0: 15, 1: 15})
            commit.acknowledged = now_ms()

    def _id(self, topic: str) -> str | None:
        try:
            about = self.world.admin.describe_topics(TopicCollection([topic]))[topic].result(60)
        except KafkaException:  # a broker that has not heard of it yet
            return None
        return str(about.topic_id).replace("/", "_").replace("+", "-")  # as Kafka's own tools print it

    def begin(self, fault: Fault, one: Round) -> None:
        """Do it. What lasts is undone by :meth:`end`."""
        node = self.kafka.node(one.broker)
        rng = random.Random(one.seed + fault)
        match fault:
            case "kill":
                node.kill()
            case "restart":
                node.terminate()
            case "pause":
                node.freeze()
            case "cut":
                self.kafka.links[one.broker - 1].cut()
            case "full":
                self._fill()
            case "rewind":
                self.load.rewinding = 0.6
            case "move":
                self._move(rng)
            case "grow":
                self._grow(rng)
            case "recreate":
                with suppress(PythonKafkaError), admin_of(self.world.bootstrap) as admin:  # else heal() does it
                    admin.delete_topics([PHOENIX], timeout_ms=5_000)

    def end(self, fault: Fault, one: Round) -> None:
        """Undo it."""
        node = self.kafka.node(one.broker)
        match fault:
            case "kill" | "restart":
                self.kafka.start_node(node)
            case "pause":
                node.thaw()
            case "cut":
                self.kafka.links[one.broker - 1].heal(lost=one.lost)
            case "full":
                if self.volume is not None:
                    (self.volume / "filler").unlink(missing_ok=True)
            case "rewind":
                self.load.rewinding = 0.1

    def heal(self, faults: tuple[Fault, ...]) -> None:
        """Wait until every broker agrees that all is well, and finish what a harmed cluster could not do."""
        self.kafka.wait_until_ready()
        if "recreate" in faults:
            self.world.delete(PHOENIX)
            self.live()
        for topic, partitions in self.growing.items():
            with suppress(PythonKafkaError), admin_of(self.world.bootstrap) as admin:  # there already
                admin.create_partitions({topic: NewPartitions(partitions)}, raise_errors=False)
            self.truth.partitions[topic] = partitions
        self.growing.clear()
        for topic, partitions in self.truth.partitions.items():
            self.world.await_leaders(topic, partitions)

    def _fill(self) -> None:
        if self.volume is not None:
            with (self.volume / "filler").open("wb", buffering=0) as file, suppress(OSError):
                while file.write(MIB):
                    pass

    def _move(self, rng: random.Random) -> None:
        """Give each partition its replicas in another order, and elect the first."""
        by_topic = {topic: list(range(self.truth.partitions[topic])) for topic in ("orders", "payments", "aged")}
        places = {
            KafkaTopicPartition(topic, n): rng.sample((1, 2, 3), 3)
            for topic, partitions in by_topic.items()
            for n in partitions
        }
        with suppress(PythonKafkaError), admin_of(self.world.bootstrap) as admin:  # another fault may be on
            admin.alter_partition_reassignments(places)
            admin.elect_leaders(0, by_topic, raise_errors=False)  # 0: the preferred one

    def _grow(self, rng: random.Random) -> None:
        small = [topic for topic in ("orders", "payments") if self.truth.partitions[topic] < MOST_PARTITIONS]
        if small:
            topic = rng.choice(small)
            more = self.truth.partitions[topic] + 1
            with suppress(PythonKafkaError), admin_of(self.world.bootstrap) as admin:
                admin.create_partitions({topic: NewPartitions(more)}, timeout_ms=5_000, raise_errors=False)
                self.growing[topic] = more
