"""Topics that are written to at a steady rate, and what a forecast makes of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from retention_cli.forecast.reading import read_forecast
from retention_cli.forecast.steady import Terms
from retention_cli.forecast.value import Forecast
from retention_cli.state.memories import Memories
from tests.support.plain import meanwhile
from tests.support.world import QUIET, World, now_ms, reader_for

A_SECOND = 200
"""Records a second, of about 1 KiB."""


@contextmanager
def written_to(world: World, *topics: str) -> Iterator[None]:
    """Write to partition 0 of these topics at a steady rate."""
    producer = Producer({"bootstrap.servers": world.bootstrap, "linger.ms": 5, "logger": QUIET})
    begun, count = time.monotonic(), 0

    def write() -> None:
        nonlocal count
        while count < (time.monotonic() - begun) * A_SECOND:
            for topic in topics:
                producer.produce(topic, b"x" * 1024, partition=0)
            count += 1
        producer.poll(0.02)

    with meanwhile(write):
        yield
    producer.flush(30)


def foretell(world: World, policy: str, least_ms: int = 3000) -> Forecast:
    chosen = world.selection(policy)
    with reader_for(world.bootstrap) as reader:
        memories = Memories(world.state_dir)
        try:
            return read_forecast(reader, chosen, Terms(2000, least_ms, now_ms()), memories=memories)
        finally:
            memories.close()
