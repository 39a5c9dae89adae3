"""The simulated Kafka held against a real one: the same random sequences on both, and every answer compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from kretain.embedded import EmbeddedKafka
from retention_cli.core.model import TopicPartition
from tests.simulation import logs
from tests.simulation.both import walk
from tests.simulation.both_kafkas import STEPS, Both, all_led
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


def test_simulated_kafka_answers_like_a_real_one(world: World, kafka: EmbeddedKafka) -> None:
    with sequences(world, kafka, range(8)) as run:
        for seed in range(8):
            run(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000, 1_200, 50))
def test_simulated_kafka_answers_like_a_real_one_in_many_sequences(
    world: World, kafka: EmbeddedKafka, first: int
) -> None:
    with sequences(world, kafka, range(first, first + 50)) as run:
        for seed in range(first, first + 50):
            run(seed)
