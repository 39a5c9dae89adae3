"""Find who has open transactions in logs, and since when (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import PARTITIONS_A_REQUEST, Leaders, by_leader, by_topic
from retention_cli.brokers.wire.connections import Job, Wire
from retention_cli.core.grouping import in_batches
from retention_cli.core.model import TopicPartition


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The transaction that begins at a log's last stable offset.

    ``last_write_ms`` is the timestamp of its producer's newest batch in this log. ``name`` (transactional.id) and
    ``since_ms`` (its coordinator's clock) are None where they could not be read, as without DESCRIBE on that id.
    """

    producer: int
    last_write_ms: int
    name: str | None = None
    since_ms: int | None = None


async def read_open_transactions(wire: Wire, leaders: Leaders) -> dict[TopicPartition, OpenTransaction]:
    """Return the transaction that begins first in each log that has one. What can't be read is left out.

    It takes READ on the topics, for names and times also DESCRIBE on the transactional ids, and brokers from 2.8 on.
    """
    found: dict[TopicPartition, OpenTransaction] = {}

    def on_producers(_: None, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            return
        for topic in reply.topics:
            for one in topic.partitions:
                still = [row for row in one.active_producers if row.current_txn_start_offset >= 0]
                if not one.error_code and still:
                    first = min(still, key=lambda row: row.current_txn_start_offset)
                    tp = TopicPartition(topic.name, one.partition_index)
                    found[tp] = OpenTransaction(first.producer_id, first.last_timestamp)

    led, _ = by_leader(leaders, leaders)
    work = {
        leader: [Job(_producers_of(some), None) for some in in_batches(tps, PARTITIONS_A_REQUEST)]
        for leader, tps in led.items()
    }
    await wire.fan_out(work, on_producers)
    named = await _named(wire, {one.producer for one in found.values()}) if found else {}
    return {
        tp: OpenTransaction(one.producer, one.last_write_ms, *named.get(one.producer, (None, None)))
        for tp, one in found.items()
    }


def _producers_of(partitions: Iterable[TopicPartition]) -> Any:
    request = DescribeProducersRequest.TopicRequest
    rows = [
        request(name=name, partition_indexes=[tp.partition for tp in tps]) for name, tps in by_topic(partitions).items()
    ]
    return DescribeProducersRequest(topics=rows)


async def _named(wire: Wire, producers: Collection[int]) -> dict[int, tuple[str, int | None]]:
    """Return the transactional ids of producers, and since when the transaction of each is open, as far as known."""
    names: dict[str, int] = {}
    led_by: dict[int, list[str]] = {}
    found: dict[int, tuple[str, int | None]] = {}

    def on_list(broker: int, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError) or reply.error_code:
            return
        for one in reply.transaction_states:
            if one.producer_id in producers:
                names[one.transactional_id] = one.producer_id
                led_by.setdefault(broker, []).append(one.transactional_id)
                found[one.producer_id] = (one.transactional_id, None)

    def on_described(_: None, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            return
        for one in reply.transaction_states:
            if not one.error_code and one.transaction_start_time_ms > 0 and one.transactional_id in names:
                found[names[one.transactional_id]] = (one.transactional_id, one.transaction_start_time_ms)

    listing = {
        broker: [
            Job(ListTransactionsRequest(state_filters=[], producer_id_filters=sorted(producers), min_version=0), broker)
        ]
        for broker in wire.brokers()
    }
    await wire.fan_out(listing, on_list)
    described = {
        broker: [Job(DescribeTransactionsRequest(transactional_ids=some), None)] for broker, some in led_by.items()
    }
    await wire.fan_out(described, on_described)
    return found
