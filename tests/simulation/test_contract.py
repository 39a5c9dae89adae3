"""The simulated Kafka held against real brokers: the same random sequences on both, and every answer compared."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final, Literal

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as Position
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.deleter import Answered, Deleter, Outcome
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.groups import GroupKind, ListedGroup, MembersRead
from retention_cli.brokers.log_offsets import Found, Spec
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range
from retention_cli.core.model import TopicPartition
from tests.simulation.clients import SimClock, SimDeleter
from tests.simulation.kafka import Group, Partition, SimKafka
from tests.simulation.reader import SimReader
from tests.support.clusters import EmbeddedKafka
from tests.support.facts import known
from tests.support.leaders import SETTINGS, move_leader
from tests.support.world import HOUR, MINUTE, QUIET, World, commit_raw, end_transaction, now_ms, reader_for, wait_until

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
        self.kafka.create(tp.topic, partitions)
        self.readers: tuple[ClusterReader, ClusterReader] = (
            reader,
            SimReader(self.kafka, SimClock(self.kafka)),
        )
        self.deleters: tuple[Deleter, Deleter] = (
            Deleter(reader),
            SimDeleter(self.kafka, lambda _tp, _offset: lambda: None),
        )
        self.open: dict[int, Producer] = {}
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
            self.kafka.append(self.tp, stamp=stamp)

    def transaction(self, chance: random.Random) -> None:
        if len(self.open) == 2:
            return
        stamp = self.base_ms - chance.choice(AGES_MS)
        producer = self.world.transaction(self.tp.topic, [stamp], end="open", partition=self.tp.partition)
        txn = self.kafka.begin_transaction(self.tp)
        self.kafka.append(self.tp, stamp=stamp, txn=txn)
        self.open[txn] = producer

    def end(self, chance: random.Random) -> None:
        if not self.open:
            return
        txn = chance.choice([*self.open])
        committed = chance.random() < 0.5
        self.kafka.now_ms = now_ms()
        end_transaction(self.open.pop(txn), commit=committed)
        self.kafka.end_transaction(self.tp, txn, "committed" if committed else "aborted")
        end = self.log.high_watermark
        wait_until(lambda: self._real_end() >= end, "the transaction's marker")

    @property
    def log(self) -> Partition:
        return self.kafka.partition(self.tp)

    def _partition(self, reader: ClusterReader) -> PartitionMetadata:
        return reader.metadata([self.tp.topic]).topics[self.tp.topic].partitions[self.tp.partition]

    def _real_end(self) -> int:
        """Return H as it is now: a coordinator writes markers behind its answer."""
        reader = self.readers[0]
        answer = reader.list_offsets([{self.tp: "latest"}], {self.tp: self._partition(reader)})[0][self.tp]
        return answer.offset if isinstance(answer, Found) else -1

    def trim(self, chance: random.Random) -> None:
        """Trim to below S, up to L, or to beyond H, which is refused.

        Never into an open transaction: there a real L falls to the base of the batch that S cuts. Nobody who obeys G1
        gets there.
        """
        log = self.log
        offset = log.high_watermark + 1 if chance.random() < 0.2 else chance.randrange(0, log.last_stable + 1)
        found: list[Outcome] = []
        for reader, deleter in zip(self.readers, self.deleters, strict=True):
            deleter.delete(
                {known(self._partition(reader).leader): {self.tp: offset}},
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
        self.kafka.groups.setdefault(self.group, Group(self.group)).commits[self.tp] = (offset, epoch)

    def forget(self, _chance: random.Random) -> None:
        if self.group in self.kafka.groups and self.tp in self.kafka.groups[self.group].commits:
            self.world.admin.delete_consumer_groups([self.group])[self.group].result(30)
            del self.kafka.groups[self.group]

    def batch(self, chance: random.Random) -> None:
        """Several records in one batch, with stamps in any order."""
        stamps = [self.base_ms - chance.choice(AGES_MS) for _ in range(chance.randrange(2, 6))]
        self.world.produce_at(self.tp.topic, stamps, self.tp.partition, compression=chance.choice(("none", "gzip")))
        for stamp in stamps:
            self.kafka.append(self.tp, stamp=stamp)

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
        leaders = {tp: self._partition(reader)}
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
        failed = reader.read_ranges(
            {tp: Range(start.offset, stable.offset)},
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
    Deleter(reader).delete(by_leader, lambda _tp, outcome: found.append(outcome), timeout_s=30, good_until=good_until)
    return all(isinstance(one, Answered) for one in found)


def await_led(reader: ClusterReader, topic: str) -> None:
    wait_until(lambda: all_led(reader, topic), f"leaders of {topic} that know that they lead")


def walk(both: Both | BothGroups, steps: Sequence[str], count: int, seed: int) -> None:
    """Take so many of the steps, by a seed, and compare after each; abort what is open in the end."""
    chance, taken = random.Random(seed), list[str]()
    try:
        for _ in range(count):
            taken.append(chance.choice(steps))
            getattr(both, taken[-1])(chance)
            both.compare(f"(seed {seed}: {' '.join(taken)})")
    finally:
        for producer in both.open.values():
            producer.abort_transaction(30)


STEPS_A_SEQUENCE: Final = 12


@pytest.fixture(autouse=True)
def _one_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real log of a few records is one segment."""
    monkeypatch.setattr("tests.simulation.kafka.SEGMENT_RECORDS", 1_000_000)


@pytest.mark.thorough
@pytest.mark.parametrize("first", [0, *(pytest.param(one, marks=pytest.mark.long) for one in range(1_000, 1_200, 8))])
def test_simulated_kafka_answers_like_a_real_one(world: World, kafka: EmbeddedKafka, first: int) -> None:
    topic = world.topic("contract", partitions=8)
    with reader_for(kafka.bootstrap) as reader:
        await_led(reader, topic)
        for number in range(8):
            walk(Both(world, reader, TopicPartition(topic, number), 8), STEPS, STEPS_A_SEQUENCE, first + number)


MORE_STEPS: Final = (*STEPS, "elect", "elect", "elect", "recreate")


class BothOfThree(Both):
    """A topic of one partition and two replicas on three real brokers, and the same in memory."""

    def __init__(self, world: World, reader: ClusterReader) -> None:
        self.name = world.topic("moved", replicas=2)
        super().__init__(world, reader, TopicPartition(self.name, 0), 1)

    def elect(self, _chance: random.Random) -> None:
        before = self._epoch()
        move_leader(self.world, self.name)
        await_led(self.readers[0], self.name)
        self.log.elect(skip=self._settled_epoch() - before)
        await_led(self.readers[0], self.name)

    def recreate(self, _chance: random.Random) -> None:
        """Delete the topic, with its group's commits, and make it again."""
        if self.open:
            return
        self.world.delete(self.name)
        wait_until(lambda: self._commits(self.readers[0]) == {}, "the end of the topic's commits")
        self.world.topic(name=self.name, replicas=2)
        await_led(self.readers[0], self.name)
        self.alone = self.producer()  # one that knew the old topic may wait for it for ever
        self.kafka.delete(self.name, clear_commits=True)
        self.kafka.create(self.name, 1)

    def _settled_epoch(self) -> int:
        """The order of replicas was changed, and a leader elected: each may begin an epoch, one a moment later."""
        seen: list[int] = []

        def is_settled() -> bool:
            time.sleep(0.2)
            seen.append(self._epoch())
            return len(seen) > 4 and len({*seen[-5:]}) == 1

        wait_until(is_settled, "an epoch that stays")
        return seen[-1]

    def _epoch(self) -> int:
        return self._partition(self.readers[0]).leader_epoch


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedKafka]:
    # Nobody is killed here: on a busy machine no broker may be taken for dead, and its partitions be led by another.
    patient = {**SETTINGS, "broker.session.timeout.ms": "60000", "auto.leader.rebalance.enable": "false"}
    with EmbeddedKafka(3, settings=patient) as cluster:
        yield cluster


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(one, marks=pytest.mark.long) for one in range(2, 46))])
def test_simulated_kafka_answers_like_a_real_one_across_elections(
    three: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    world = World(three.bootstrap, tmp_path_factory.mktemp("state"))
    with reader_for(three.bootstrap) as reader:
        both = BothOfThree(world, reader)
        await_led(reader, both.name)
        walk(both, MORE_STEPS, STEPS_A_SEQUENCE, seed)


GROUP_STEPS: Final = ("commit", "commit", "negative", "pend", "pend", "end", "forget", "add")
GROUP_STEPS_A_SEQUENCE: Final = 8
PATIENCE_S: Final = 0.1


class BothGroups:
    """A group and its two topics on a real cluster, and the same in memory."""

    def __init__(self, world: World, reader: ClusterReader) -> None:
        self.world = world
        self.topics = (world.topic("one"), world.topic("two"))
        self.group = f"{self.topics[0]}-group"
        self.kafka = SimKafka()
        for name in self.topics:
            self.kafka.create(name, 1)
        self.readers = (reader, SimReader(self.kafka, SimClock(self.kafka)))
        self.open: dict[str, Producer] = {}
        self.later: set[str] = set()
        """Topics with a commit that was written after the pending one. It stays, even if the transaction commits."""

    @property
    def simulated(self) -> Group:
        return self.kafka.groups.setdefault(self.group, Group(self.group))

    # -- steps ---------------------------------------------------------------------------

    def commit(self, chance: random.Random) -> None:
        topic, offset = chance.choice(self.topics), chance.randrange(20)
        self.world.commit(self.group, topic, offset)
        self.simulated.commits[topic, 0] = offset, None
        self.later.add(topic)

    def negative(self, chance: random.Random) -> None:
        topic, offset = chance.choice(self.topics), chance.choice((-1, -2, -7))
        commit_raw(self.world, self.group, topic, offset)
        self.simulated.commits[topic, 0] = offset, None
        self.later.add(topic)

    def pend(self, chance: random.Random) -> None:
        """An offset waits in a transaction, of one topic each."""
        topic, offset = chance.choice(self.topics), chance.randrange(20)
        if topic in self.open:
            return
        producer = self.world.transaction(topic, [], end="open")
        consumer = Consumer({"bootstrap.servers": self.world.bootstrap, "group.id": self.group, "logger": QUIET})
        producer.send_offsets_to_transaction([Position(topic, 0, offset)], consumer.consumer_group_metadata(), 30)
        consumer.close()
        self.open[topic] = producer
        self.later.discard(topic)
        self.simulated.pending[topic, 0] = offset, None

    def end(self, chance: random.Random) -> None:
        if not self.open:
            return
        topic, producer = self.open.popitem()
        offset, _ = self.simulated.pending.pop((topic, 0))
        committed = chance.random() < 0.5
        end_transaction(producer, commit=committed)
        if committed and topic not in self.later:
            self.simulated.commits[topic, 0] = offset, None
        wait_until(lambda: topic not in self._pending(self.readers[0]), "the marker in the offsets topic")

    def forget(self, _chance: random.Random) -> None:
        if self.open or self.group not in self.kafka.groups or not self.simulated.commits:
            return
        self.world.admin.delete_consumer_groups([self.group])[self.group].result(30)
        del self.kafka.groups[self.group]

    def add(self, _chance: random.Random) -> None:
        topic = self.topics[1]
        if len(self.kafka.topics[topic].partitions) == 1:
            self.world.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
            self.world.await_leaders(topic, 2)
            self.kafka.add_partition(topic)

    # -- answers ---------------------------------------------------------------------------

    def compare(self, after: str) -> None:
        real, simulated = (self._answers(one) for one in self.readers)
        assert real == simulated, after

    def _answers(self, reader: ClusterReader) -> dict[str, Any]:
        one, read = self._commits(reader)
        partitions = reader.metadata(self.topics).topics
        return {
            "listed": [row.kind for row in reader.list_groups(reader.brokers()) if row.name == self.group],
            "doubted": one.topics if isinstance(one, CommitsUnknown) else frozenset(),
            "commits": {topic: sorted(rows) for topic, rows in read.topics.items() if rows},
            "no position": {topic: dict(rows) for topic, rows in read.no_position.items()},
            "pending": self._pending(reader),
            "partitions": {name: sorted(topic.partitions) for name, topic in partitions.items()},
        }

    def _commits(self, reader: ClusterReader) -> tuple[GroupCommits | CommitsUnknown, GroupCommits]:
        """Return the answer, and what was read in it: of a new cluster's first group only when it has a coordinator."""
        for patience_s in (PATIENCE_S, 30.0):
            found: list[GroupCommits | CommitsUnknown] = []
            reader.read_commits([self.group], found.append, patience_s)
            (one,) = found
            if (read := one.read if isinstance(one, CommitsUnknown) else one) is not None:
                return one, read
        raise AssertionError(one)

    def _pending(self, reader: ClusterReader) -> frozenset[str]:
        counts = {name: len(self.kafka.topics[name].partitions) for name in self.topics}
        rows = reader.read_pending([self.group], counts, PATIENCE_S)
        return frozenset[str]().union(*(one.topics or () for one in rows))


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(one, marks=pytest.mark.long) for one in range(4, 60))])
def test_simulated_group_has_the_offsets_of_a_real_one(world: World, kafka: EmbeddedKafka, seed: int) -> None:
    with reader_for(kafka.bootstrap) as reader:
        walk(BothGroups(world, reader), GROUP_STEPS, GROUP_STEPS_A_SEQUENCE, seed)


@pytest.mark.parametrize("listed", ["classic", "consumer"])
@pytest.mark.parametrize(
    ("kind", "subscribed"),  # a classic group's client evaluates an expression itself
    [("classic", "by name"), ("consumer", "by name"), ("consumer", "by a regular expression")],
)
def test_simulated_group_has_the_members_of_a_real_one(
    world: World, kafka: EmbeddedKafka, kind: Literal["classic", "consumer"], listed: GroupKind, subscribed: str
) -> None:
    """A group that was listed with another protocol than it has now is found all the same (F3)."""
    topic = world.topic("read")
    group, sim = f"{topic}-group", SimKafka()
    one = sim.groups[group] = Group(group, kind)
    wanted = topic
    if subscribed == "by name":
        one.members.add(topic)
    else:
        wanted = f"^{topic}$"
        one.pattern = f"({wanted})"  # librdkafka joins its patterns
        one.assigned.add(topic)
    simulated = SimReader(sim, SimClock(sim))
    with ExitStack() as stack:
        reader = stack.enter_context(reader_for(kafka.bootstrap))
        member = world.member(group, [wanted], group_protocol=kind)
        stack.callback(member.close)

        def told(by: ClusterReader) -> dict[str, MembersRead | str]:
            found: dict[str, MembersRead | str] = {}
            by.describe_members(
                [
                    ListedGroup(group, listed, "consumer", "Stable"),
                    ListedGroup(f"{group}-gone", listed, "consumer", ""),
                ],
                lambda name, reads: found.update(
                    {name: str(reads) if isinstance(reads, RequestFailedError) else reads}
                ),
            )
            return found

        deadline = time.monotonic() + 30
        while not isinstance((real := told(reader))[group], frozenset):
            assert time.monotonic() < deadline, real
            member.poll(0.2)
        assert real == told(simulated)
