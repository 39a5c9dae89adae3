"""Producers and consumers that read, commit, rewind and vanish, all at once; and harm to the brokers, through links."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from kafka.admin import KafkaAdminClient, NewPartitions
from kafka.errors import KafkaError, KafkaError as PythonKafkaError
from kafka.structs import TopicPartition as KafkaTopicPartition

from tests.kafka.faults.judge import Commits, Log, Record, Truth
from tests.kafka.faults.runs import Fault, Round
from tests.support.clusters import EmbeddedKafka
from tests.support.doors import Door
from tests.support.world import HOUR, QUIET, World, now_ms, wait_until

READER, REWINDER, VANISHER, EXACTLY = "reader", "rewinder", "vanisher", "exactly-once"
TICK_S: Final = 0.1


class Load:
    """The threads. What a client reports while brokers are harmed is expected: it tries again. All else fails the test."""

    def __init__(self, bootstrap: str, truth: Truth, seed: str) -> None:
        self.truth = truth
        self.rewinding = 0.1
        """How likely the rewinder goes back at one of its steps."""
        self.seen = threading.Event()
        """Set once kretain has seen every group: who was never seen can't be remembered (F6)."""
        self._bootstrap = bootstrap
        self._seed = seed
        self._done = threading.Event()
        self._failed: list[BaseException] = []
        for group in (READER, REWINDER, VANISHER, EXACTLY):
            truth.commits[group] = Commits()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Let all of it happen meanwhile."""
        work = (self._produce, self._transact, self._read, self._rewind, self._vanish)
        threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in work]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._done.set()
            for thread in threads:
                thread.join(60)
        self.check()

    def check(self) -> None:
        if self._failed:
            raise self._failed[0]

    def _run(self, work: Callable[[random.Random], None]) -> None:
        try:
            work(random.Random(f"{self._seed}/{work.__name__}"))
        except BaseException as error:
            self._failed.append(error)

    # -- producers -------------------------------------------------------------

    def _producer(self, **more: Any) -> Producer:
        config = {"acks": "all", "enable.idempotence": True, "linger.ms": 5, "logger": QUIET}
        return Producer({"bootstrap.servers": self._bootstrap, **config, "message.timeout.ms": 90_000, **more})

    def _append(
        self,
        producer: Producer,
        topic: str,
        partition: int,
        rng: random.Random,
        age_ms: int,
        pending: list[Record] | None,
    ) -> None:
        sent = now_ms()
        record = Record(rng.randbytes(100), sent - age_ms, sent, sent if pending is None else None)
        log = self.truth.log(topic, partition)
        if pending is not None:
            pending.append(record)

        def delivered(error: Any, message: Any) -> None:
            # Of a batch that was sent again and was there already, the broker may not say where.
            if error is None and message.offset() is not None:
                self.truth.took(log, message.offset(), record)

        producer.produce(topic, record.value, partition=partition, timestamp=record.stamp, on_delivery=delivered)

    def _produce(self, rng: random.Random) -> None:
        """Stamped now, but for what stands for an import of old data: that is only protected by when it was written."""
        producer = self._producer()
        ages = {"orders": 0, "lone": 0, "frozen": 30 * HOUR, "aged": 30 * HOUR}
        while not self._done.wait(TICK_S):
            try:
                for topic, age_ms in ages.items():
                    for partition in range(self.truth.partitions[topic]):
                        for _ in range(rng.randint(0, 1 if topic == "frozen" else 4)):
                            self._append(producer, topic, partition, rng, age_ms, None)
                producer.poll(0)
            except (BufferError, KafkaException):  # full, or a partition that it has not heard of
                producer.poll(0.5)
        producer.flush(5)

    def _transact(self, rng: random.Random) -> None:
        """Some transactions stay open for a while, some are aborted, some commit a group's positions."""
        group = Consumer({"bootstrap.servers": self._bootstrap, "group.id": EXACTLY, "logger": QUIET})
        member = group.consumer_group_metadata()  # of no member; asked for later, a client in trouble may not answer
        group.close()
        pending: list[Record] = []
        while not self._done.is_set():
            producer = self._producer(**{"transactional.id": "payments", "transaction.timeout.ms": 120_000})
            try:
                for record in pending:  # of one that failed: a new producer of this name ends it
                    record.ended = record.ended or now_ms()
                pending.clear()
                producer.init_transactions(30)
                while not self._done.wait(TICK_S):
                    self._transaction(producer, member, pending, rng)
                    pending.clear()
            except KafkaException:
                self._done.wait(0.5)

    def _transaction(self, producer: Producer, member: Any, pending: list[Record], rng: random.Random) -> None:
        partitions = range(self.truth.partitions["payments"])
        producer.begin_transaction()
        for _ in range(rng.randint(1, 20)):
            self._append(producer, "payments", rng.choice(partitions), rng, 0, pending)
        producer.flush(30)
        if rng.random() < 0.2:
            self._done.wait(rng.uniform(0, 2))  # open meanwhile
        ends = {self.truth.log("payments", n): n for n in partitions}
        offsets = {log: max(0, self.truth.end(log) - rng.randint(0, 10)) for log in ends}
        committing = rng.random() < 0.8
        if committing:
            wanted = [TopicPartition("payments", ends[log], offset) for log, offset in offsets.items()]
            producer.send_offsets_to_transaction(wanted, member, 30)
        ended = now_ms()
        for record in pending:
            record.ended = ended
        if not committing:
            producer.abort_transaction(30)
            return
        commit = self.truth.commits[EXACTLY].sending(offsets)
        producer.commit_transaction(30)
        commit.acknowledged = now_ms()

    # -- consumers ---------------------------------------------------------------

    def _read(self, _rng: random.Random) -> None:
        """A member of its group: reads what it is given, and commits where it is."""
        config = {"session.timeout.ms": 6_000, "topic.metadata.refresh.interval.ms": 2_000}
        with closing(self._client(READER, **config, **{"auto.offset.reset": "earliest"})) as consumer:
            consumer.subscribe(["orders", "payments", "lone", "frozen"])
            while not self._done.is_set():
                read: dict[Log, int] = {}
                first = consumer.poll(0.2)  # a consume() that waits was once seen not to come back
                for message in [] if first is None else [first, *consumer.consume(1_000, timeout=0)]:
                    if message.error() is None:
                        log = self.truth.log(message.topic() or "", message.partition() or 0)
                        read[log] = (message.offset() or 0) + 1
                if read:
                    self._commit(consumer, READER, read)

    def _commit(self, client: Consumer, group: str, offsets: Mapping[Log, int]) -> bool:
        """Commit; what becomes of it stays unknown where a coordinator is gone, or a member has lost the partition."""
        topics = {one: topic for topic, one in self.truth.ids.items()}
        wanted = [TopicPartition(topics[log[0]], log[1], offset) for log, offset in offsets.items()]  # type: ignore[call-overload]
        commit = self.truth.commits[group].sending(offsets)
        with suppress(KafkaException):
            if all(one.error is None for one in client.commit(offsets=wanted, asynchronous=False) or ()):
                commit.acknowledged = now_ms()
        return commit.acknowledged is not None

    def _client(self, group: str, **more: Any) -> Consumer:
        """A client, which joins no group by itself. The admin client of librdkafka 2.16 may abort the process where brokers go."""
        config = {"group.id": group, "enable.auto.commit": False, "logger": QUIET, **more}
        return Consumer({"bootstrap.servers": self._bootstrap, **config})

    def _stand(self, *topics: str) -> dict[Log, int]:
        """Where the reader stands; at the front of what it has not begun."""
        stood = self.truth.commits[READER].last()
        logs = [self.truth.log(topic, n) for topic in topics for n in range(self.truth.partitions[topic])]
        return {log: stood.get(log, 0) for log in logs}

    def _rewind(self, rng: random.Random) -> None:
        """Follows the reader, and goes back again and again."""
        client = self._client(REWINDER, **{"socket.timeout.ms": 5_000})
        mine: dict[Log, int] = {}
        while not self._done.wait(0.2):
            back = rng.random() < self.rewinding
            for log, offset in self._stand("orders", "lone").items():
                near = max(0, offset - rng.randint(0, 20))
                mine[log] = max(0, mine.get(log, 0) - rng.randint(1, 300)) if back else near
            self._commit(client, REWINDER, mine)
        client.close()

    def _vanish(self, rng: random.Random) -> None:
        """Is deleted now and then, and comes back further on: it never goes back, so that a memory of it is no later (F6)."""
        client = self._client(VANISHER, **{"socket.timeout.ms": 5_000})
        mine: dict[Log, int] = {}
        while not self._done.wait(rng.uniform(0.2, 1.0)):
            for log, offset in self._stand("orders").items():
                mine[log] = max(mine.get(log, 0), offset - rng.randint(0, 40))
            if self._commit(client, VANISHER, mine) and self.seen.is_set() and rng.random() < 0.5:
                self._done.wait(rng.uniform(0.0, 1.0))
                with suppress(KafkaError), admin_of(self._bootstrap) as admin:
                    admin.delete_groups([VANISHER])
                self._done.wait(rng.uniform(0.0, 3.0))
        client.close()


def admin_of(bootstrap: str) -> closing[KafkaAdminClient]:
    """An admin client that fails with an error where brokers go."""
    return closing(KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=5_000))


# -- harm --------------------------------------------------------------------------------------


class LinkedKafka(EmbeddedKafka):
    """A cluster whose brokers advertise links, which can be cut."""

    def __init__(self, nodes: int, **more: Any) -> None:
        super().__init__(nodes, **more)
        self.links = [Door() for _ in range(nodes)]

    @property
    def bootstrap(self) -> str:
        return ",".join(link.address for link in self.links)

    def stop(self) -> None:
        super().stop()
        for link in self.links:
            link.close()

    def _properties(
        self, node_id: int, port: int, secure: int | None, controls: Sequence[int], dirs: Sequence[Path]
    ) -> dict[str, str]:
        link = self.links[node_id - 1]
        link.leads_to = f"127.0.0.1:{port}"
        link.start()
        own = super()._properties(node_id, port, secure, controls, dirs)
        return own | {"advertised.listeners": f"PLAIN://{link.address}"}


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
        """Create the phoenix again. Every second time it has no reader, so nothing in it may be trimmed."""
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
