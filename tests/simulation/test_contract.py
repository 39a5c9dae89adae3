"""The simulated Kafka held against real brokers: the same random sequences on both, and every answer compared."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import TopicPartition
from tests.simulation import logs
from tests.simulation.both_kafkas import STEPS, Both, all_led, walk
from tests.support.clusters import EmbeddedKafka
from tests.support.leaders import SETTINGS, move_leader
from tests.support.world import World, reader_for, wait_until

STEPS_A_SEQUENCE: Final = 12


@contextmanager
def sequences(world: World, kafka: EmbeddedKafka, seeds: range) -> Iterator[Callable[[int], None]]:
    """Give what runs the sequence of a seed, on a partition of its own."""
    topic = world.topic("contract", partitions=len(seeds))
    with reader_for(kafka.bootstrap) as reader:
        wait_until(lambda: all_led(reader, topic), "leaders that know that they lead")

        def run(seed: int) -> None:
            both = Both(world, reader, TopicPartition(topic, seed - seeds.start), len(seeds))
            try:
                walk(both, STEPS, STEPS_A_SEQUENCE, seed)
            finally:
                for producer, _txn in both.open:
                    producer.abort_transaction(30)

        yield run


@pytest.fixture(autouse=True)
def _one_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real log of a few records is one segment."""
    monkeypatch.setattr(logs, "SEGMENT_RECORDS", 1_000_000)


@pytest.mark.thorough
@pytest.mark.parametrize("first", [0, *(pytest.param(one, marks=pytest.mark.long) for one in range(1_000, 1_200, 8))])
def test_simulated_kafka_answers_like_a_real_one(world: World, kafka: EmbeddedKafka, first: int) -> None:
    with sequences(world, kafka, range(first, first + 8)) as run:
        for seed in range(first, first + 8):
            run(seed)


MORE_STEPS: Final = (*STEPS, "elect", "elect", "elect", "recreate")


class BothOfThree(Both):
    """A topic of one partition and two replicas on three real brokers, and the same in memory."""

    def __init__(self, world: World, reader: ClusterReader) -> None:
        self.name = world.topic("moved", replicas=2)
        super().__init__(world, reader, TopicPartition(self.name, 0), 1)

    def elect(self, _chance: random.Random) -> None:
        """The other replica, which has everything, leads."""
        before = self._epoch()
        move_leader(self.world, self.name)
        wait_until(lambda: all_led(self.readers[0], self.name), "a leader that knows that it leads")
        log = self.kafka.topics[self.name].partitions[0]
        log.elect(next(one for one in log.replicas if one != log.leader), skip=self._settled_epoch() - before)
        wait_until(lambda: all_led(self.readers[0], self.name), "a leader that knows that it leads")

    def recreate(self, _chance: random.Random) -> None:
        """Delete the topic, with its group's commits, and make it again."""
        if self.open:
            return
        self.world.delete(self.name)
        wait_until(lambda: self._commits(self.readers[0]) == {}, "the end of the topic's commits")
        self.world.topic(name=self.name, replicas=2)
        wait_until(lambda: all_led(self.readers[0], self.name), "leaders that know that they lead")
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
        return self.readers[0].metadata([self.name]).topics[self.name].partitions[0].leader_epoch


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
        wait_until(lambda: all_led(reader, both.name), "leaders that know that they lead")
        try:
            walk(both, MORE_STEPS, STEPS_A_SEQUENCE, seed)
        finally:
            for producer, _txn in both.open:
                producer.abort_transaction(30)
