"""A partition on a real cluster, and the same in memory: steps for both, and their answers compared after each."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any, Final, Protocol

from confluent_kafka import Producer

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.deleter import Answered, Deleter, Outcome
from retention_cli.brokers.log_offsets import Found, Spec
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range
from retention_cli.core.model import TopicPartition
from tests.simulation.clients import Hub, SimClock, SimDeleter
from tests.simulation.kafka import Group, SimKafka
from tests.simulation.reader import SimReader
from tests.support.world import HOUR, World, now_ms, wait_until

MINUTE: Final = 60_000


AGES_MS: Final = (30 * MINUTE, 3 * HOUR, 48 * HOUR, 100 * HOUR)


STEPS: Final = (
    "produce",
    "produce",
    "produce",
    "transaction",
    "end",
    "trim",
    "trim",
    "commit",
    "forget",
    "batch",
    "batch",
)


SLACK_MS: Final = 10_000


_numbers = itertools.count(1)


Told = dict[str, Any]


class Both:
    """One partition on a real cluster, and the same in memory."""

    def __init__(self, world: World, reader: ClusterReader, tp: TopicPartition, partitions: int) -> None:
        self.world, self.tp = world, tp
        self.group = f"contract-{next(_numbers)}"
        self.base_ms = now_ms() - MINUTE
        self.kafka = SimKafka()
        self.kafka.now_ms = now_ms()
        self.place = (tp.topic, tp.partition)
        hub = Hub()
        self.kafka.create(tp.topic, partitions)
        self.readers: tuple[ClusterReader, ClusterReader] = (
            reader,
            SimReader(self.kafka, hub, SimClock(self.kafka, hub)),
        )
        self.deleters: tuple[Deleter, Deleter] = (
            Deleter.for_reader(reader),
            SimDeleter(self.kafka, hub, lambda _tp, _offset: lambda: None),
        )
        self.open: list[tuple[Producer, int]] = []
        self.alone = self.producer()

    def producer(self) -> Producer:
        """Return a client that puts each record into a batch of its own."""
        return Producer({"bootstrap.servers": self.world.bootstrap, "batch.num.messages": 1, "linger.ms": 0})

    # -- steps ---------------------------------------------------------------------------

    def produce(self, chance: random.Random) -> None:
        for _ in range(chance.randrange(1, 4)):
            stamp = self.base_ms - chance.choice(AGES_MS)
            self.alone.produce(self.tp.topic, b"x", partition=self.tp.partition, timestamp=stamp)
            assert self.alone.flush(30) == 0
            self.kafka.append(self.place, stamp=stamp)

    def transaction(self, chance: random.Random) -> None:
        if len(self.open) == 2:
            return
        stamp = self.base_ms - chance.choice(AGES_MS)
        producer = self.world.transaction(self.tp.topic, [stamp], end="open", partition=self.tp.partition)
        txn = self.kafka.begin_transaction(self.place)
        assert txn is not None
        self.kafka.append(self.place, stamp=stamp, txn=txn)
        self.open.append((producer, txn))

    def end(self, chance: random.Random) -> None:
        if not self.open:
            return
        producer, txn = self.open.pop(chance.randrange(len(self.open)))
        committed = chance.random() < 0.5
        self.kafka.now_ms = now_ms()
        if committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        self.kafka.end_transaction(self.place, txn, "committed" if committed else "aborted")
        end = self.kafka.topics[self.tp.topic].partitions[self.tp.partition].high_watermark
        wait_until(lambda: self._real_end() >= end, "the transaction's marker")

    def _real_end(self) -> int:
        """Return H as it is now: a coordinator writes markers behind its answer."""
        tp, reader = self.tp, self.readers[0]
        leaders = {tp: reader.metadata([tp.topic]).topics[tp.topic].partitions[tp.partition]}
        answer = reader.list_offsets([{tp: "latest"}], leaders)[0][tp]
        return answer.offset if isinstance(answer, Found) else -1

    def trim(self, chance: random.Random) -> None:
        """Trim to below S, up to L, or to beyond H, which is refused.

        Never into an open transaction: there a real L falls to the base of the batch that S cuts. Nobody who obeys G1
        gets there.
        """
        log = self.kafka.topics[self.tp.topic].partitions[self.tp.partition]
        offset = log.high_watermark + 1 if chance.random() < 0.2 else chance.randrange(0, log.last_stable + 1)
        found: list[Outcome] = []
        for reader, deleter in zip(self.readers, self.deleters, strict=True):
            leader = reader.metadata([self.tp.topic]).topics[self.tp.topic].partitions[self.tp.partition].leader
            assert leader is not None
            deleter.delete(
                {leader: {self.tp: offset}},
                lambda _tp, outcome: found.append(outcome),
                timeout_s=30,
                good_until=reader.clock.since_boot() + 30,
            )
        real, simulated = (
            ("done", one.log_start) if isinstance(one, Answered) else ("refused", one.code) for one in found
        )
        assert real == simulated, f"DeleteRecords to {offset}"

    def commit(self, chance: random.Random) -> None:
        offset = chance.randrange(0, 30)  # beyond H, too: nobody checks it
        epoch = chance.choice((None, 0, 4))
        epochs = None if epoch is None else {self.tp.partition: epoch}
        self.world.commit(self.group, self.tp.topic, {self.tp.partition: offset}, epochs)
        self.kafka.groups.setdefault(self.group, Group(self.group)).commits[self.place] = (offset, epoch)

    def forget(self, _chance: random.Random) -> None:
        if self.group in self.kafka.groups and self.place in self.kafka.groups[self.group].commits:
            self.world.admin.delete_consumer_groups([self.group])[self.group].result(30)
            del self.kafka.groups[self.group]

    def batch(self, chance: random.Random) -> None:
        """Several records in one batch, with stamps in any order."""
        stamps = [self.base_ms - chance.choice(AGES_MS) for _ in range(chance.randrange(2, 6))]
        self.world.produce_at(self.tp.topic, stamps, self.tp.partition, compression=chance.choice(("none", "gzip")))
        for stamp in stamps:
            self.kafka.append(self.place, stamp=stamp)

    # -- answers ---------------------------------------------------------------------------

    def compare(self, after: str) -> None:
        real, simulated = (self._answers(one) for one in self.readers)
        assert real.keys() == simulated.keys()
        for what, one in real.items():
            other = simulated[what]
            if isinstance(one, Found) and isinstance(other, Found):
                apart = abs((one.timestamp or 0) - (other.timestamp or 0))  # a marker carries its broker's time
                assert one.offset == other.offset, f"{what} {after}"
                assert apart < SLACK_MS, f"{what} {after}"
            else:
                assert one == other, f"{what} {after}"

    def _answers(self, reader: ClusterReader) -> Told:
        tp = self.tp
        leaders = {tp: reader.metadata([tp.topic]).topics[tp.topic].partitions[tp.partition]}
        epoch = leaders[tp].leader_epoch
        times = {self.base_ms - age + more for age in AGES_MS for more in (-1, 0, 1)} | {self.base_ms - 1}
        specs: list[Spec] = ["earliest", "latest", "last-stable", "max-timestamp", *sorted(times)]
        answers = reader.list_offsets([{tp: one} for one in specs], leaders)
        told: Told = {f"ListOffsets {spec}": one[tp] for spec, one in zip(specs, answers, strict=True)}
        ends = reader.epoch_ends([(tp, number) for number in range(epoch + 4)], leaders)
        told |= {f"epoch {number}": one for (_tp, number), one in ends.items()}
        start, stable = told["ListOffsets earliest"], told["ListOffsets last-stable"]
        assert isinstance(start, Found)
        assert isinstance(stable, Found)
        read: list[tuple[int, int, int]] = []
        span = Range(start.offset, stable.offset)
        failed = reader.read_ranges(
            {tp: span},
            reader.clock.monotonic() + 30,
            lambda _tp, one: read.append((one.offset(), *one.timestamp())),
        )
        told["records"] = (read, failed[tp] is None)
        told["commits"] = self._commits(reader)
        return told

    def _commits(self, reader: ClusterReader) -> object:
        found: list[GroupCommits | CommitsUnknown] = []
        reader.read_commits([self.group], found.append)
        (one,) = found
        assert isinstance(one, GroupCommits)
        return {topic: sorted(rows) for topic, rows in one.topics.items()}


def all_led(reader: ClusterReader, topic: str) -> bool:
    """Return whether each leader knows that it leads: of a new topic, brokers learn in turn."""
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for number, one in reader.metadata([topic]).topics[topic].partitions.items():
        if one.leader is None:
            return False
        by_leader.setdefault(one.leader, {})[TopicPartition(topic, number)] = 0
    found: list[Outcome] = []
    good_until = reader.clock.since_boot() + 30
    Deleter.for_reader(reader).delete(
        by_leader, lambda _tp, outcome: found.append(outcome), timeout_s=30, good_until=good_until
    )
    return all(isinstance(one, Answered) for one in found)


class Compared(Protocol):
    """Both clusters. Each step is a method that takes the random source."""

    def compare(self, after: str) -> None:
        """Fail where their answers differ; ``after`` names the steps so far."""
        ...


def walk(both: Compared, steps: Sequence[str], count: int, seed: int) -> None:
    """Take so many of the steps, by a seed, and compare after each."""
    chance, taken = random.Random(seed), list[str]()
    for _ in range(count):
        taken.append(chance.choice(steps))
        getattr(both, taken[-1])(chance)
        both.compare(f"(seed {seed}: {' '.join(taken)})")
