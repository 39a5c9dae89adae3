"""Reading records where a look-up was ambiguous (RULES.md, Look-ups). confluent-kafka's consumer, no group."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.settings import ConnectionSettings
from retention_cli.model import TopicPartition

_PARTITIONS_AT_ONCE: Final = 500
_POLL_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Search:
    """Read data records from ``start`` on, for the first with a timestamp of at least ``time_ms``.

    Reading ends at ``end`` (exclusive) and after ``limit`` records.
    """

    start: int
    end: int
    time_ms: int
    limit: int


@dataclass(frozen=True, slots=True)
class Reached:
    """Every data record before ``offset`` is older than the time that was searched for.

    ``stopped`` says that reading ended before it found one: at the limit, or at the deadline.
    """

    offset: int
    stopped: bool


def search_records(
    settings: ConnectionSettings, searches: Mapping[TopicPartition, Search], deadline: float
) -> dict[TopicPartition, Reached | RequestFailedError]:
    """Carry out one search per partition; committed data alone: no markers, nothing aborted.

    Where the very first data record is not older, the answer is ``start`` itself: what lies before that
    record is no data. A search that the deadline ends answers with what it had read by then.
    """
    from confluent_kafka import Consumer

    if not searches:
        return {}
    quiet = logging.getLogger("retention_cli.brokers.records")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    consumer = Consumer(
        {
            **settings.for_librdkafka(),
            "group.id": "kretain-reads-without-a-group",  # required by the client; nothing is ever committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "fetch.message.max.bytes": 262_144,
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": 8192,
            "fetch.queue.backoff.ms": 5,  # the default second is waited for whenever that queue is full
            "log_level": 0,
        },
        logger=quiet,
    )
    found: dict[TopicPartition, Reached | RequestFailedError] = {}
    try:
        for chunk in _chunks(searches):
            found |= _search_chunk(consumer, chunk, deadline)
    finally:
        consumer.close()
    return found


def _search_chunk(
    consumer: Any, searches: Mapping[TopicPartition, Search], deadline: float
) -> dict[TopicPartition, Reached | RequestFailedError]:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka import TopicPartition as Assigned

    found: dict[TopicPartition, Reached | RequestFailedError] = {}
    position = {tp: search.start for tp, search in searches.items()}
    count = dict.fromkeys(searches, 0)
    consumer.assign([Assigned(tp.topic, tp.partition, search.start) for tp, search in searches.items()])
    while len(found) < len(searches) and time.monotonic() < deadline:
        try:
            first = consumer.poll(_POLL_S)  # and then what else is there: consume would wait for all it may take
            messages = [] if first is None else [first, *consumer.consume(num_messages=1000, timeout=0)]
        except KafkaException as error:
            failed = RequestFailedError(error.args[0].str(), retriable=True)
            return found | {tp: failed for tp in searches if tp not in found}
        done = []
        for message in messages:
            if message.topic() is None:
                continue  # an error of the client's own connections: it goes on by itself
            tp = TopicPartition(message.topic(), message.partition())
            if tp in found or tp not in searches:
                continue
            said = message.error()
            if said is not None and said.code() != KafkaError._PARTITION_EOF:
                found[tp] = RequestFailedError(said.str(), retriable=True)
            elif (reached := _reached(searches[tp], message, position, count, tp, at_end=said is not None)) is not None:
                found[tp] = reached
            if tp in found:
                done.append(Assigned(tp.topic, tp.partition))
        if done:
            consumer.pause(done)
    consumer.unassign()
    for tp in searches:
        if tp not in found:  # the deadline: what was read is known to be older
            found[tp] = Reached(position[tp], stopped=True)
    return found


def _reached(
    search: Search, message: Any, position: dict[TopicPartition, int], count: dict[TopicPartition, int],
    tp: TopicPartition, *, at_end: bool,
) -> Reached | None:  # fmt: skip
    offset = message.offset()
    if at_end or offset >= search.end:
        return Reached(min(offset, search.end), stopped=False)
    _kind, timestamp = message.timestamp()
    if timestamp >= search.time_ms:
        return Reached(search.start if count[tp] == 0 else offset, stopped=False)
    count[tp] += 1
    position[tp] = offset + 1
    if count[tp] >= search.limit:
        return Reached(offset + 1, stopped=True)
    return None


def _chunks(searches: Mapping[TopicPartition, Search]) -> Iterator[dict[TopicPartition, Search]]:
    items = sorted(searches.items())
    for i in range(0, len(items), _PARTITIONS_AT_ONCE):
        yield dict(items[i : i + _PARTITIONS_AT_ONCE])
