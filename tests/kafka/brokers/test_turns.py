"""A request that waits behind others on its connection: when its time is up, and what becomes of the others."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.admin import AlterClientQuotasRequest, ListGroupsRequest
from kafka.protocol.consumer import FetchRequest

from retention_cli.brokers.deleter import Answered, Deleter, Outcome, delete_request
from retention_cli.brokers.errors import NotSentError, RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.wire.connections import Job
from retention_cli.brokers.wire.frames import Dated, TimedConnection
from retention_cli.brokers.wire.work import Pending
from retention_cli.core.model import TopicPartition
from tests.support.world import World, reader_for, wait_until


def _fetch(topic: str, waits_ms: int, offset: int = 0) -> Any:
    """Return a request that the leader answers after this time: there is nothing to read at this offset."""
    fetch = FetchRequest.FetchTopic
    partition = fetch.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=1_000
    )
    return FetchRequest(
        max_wait_ms=waits_ms,
        min_bytes=1,
        max_bytes=1_000,
        topics=[fetch(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
        min_version=4,
        max_version=12,
    )


def _is_answered(pending: Pending[Any]) -> bool:
    try:
        pending.result()
    except RequestFailedError:
        return False
    return True


@contextmanager
def _led(world: World, topic: str, **more: Any) -> Iterator[tuple[ClusterReader, int]]:
    """A reader, and the leader of a topic's partition."""
    with reader_for(world.bootstrap, **more) as reader:
        leader = reader.metadata([topic]).topics[topic].partitions[0].leader
        assert leader is not None
        yield reader, leader


@pytest.mark.parametrize(("waits_ms", "answered"), [(400, 4), (3_000, 0)])
def test_request_timeout_starts_once_earlier_requests_are_answered(world: World, waits_ms: int, answered: int) -> None:
    """A broker answers a connection's requests one by one: a slow one is not taken for a dead one, nor that for slow."""
    name = world.topic()
    replies: list[Any] = []
    with _led(world, name) as (reader, leader):
        work = {leader: [Job(_fetch(name, waits_ms), number) for number in range(4)]}
        began = time.monotonic()
        reader.wire.run(lambda: reader.wire.fan_out(work, lambda _, reply: replies.append(reply), timeout_s=1.0))
        seconds = time.monotonic() - began
    assert sorted(isinstance(reply, RequestFailedError) for reply in replies) == [False] * answered + [True] * (
        4 - answered
    )
    assert 1.0 < seconds < 2.9


def test_queued_delete_is_dropped_when_its_recheck_expires(world: World) -> None:
    """Its time ends, however fast the broker is with what was before it: facts are 30 s old at most (trim)."""
    name = world.filled([0] * 5)
    said: dict[Any, Outcome] = {}
    with _led(world, name) as (reader, leader):
        before = [reader.wire.start(reader.wire.ask, _fetch(name, 1_000, 5), leader) for _ in range(3)]
        began = time.monotonic()
        offsets = {leader: {TopicPartition(name, 0): 3}}
        Deleter(reader).delete(offsets, said.__setitem__, timeout_s=1.7, good_until=math.inf)
        seconds = time.monotonic() - began
        assert [type(one) for one in said.values()] == [RequestFailedError], said
        assert [_is_answered(one) for one in before] == [True, False, False]
    assert 1.6 < seconds < 2.9
    time.sleep(1.5)
    assert world.ends(name)[0] == 0, "nor does the broker come to it later"


def test_delete_with_an_expired_recheck_is_never_written(world: World) -> None:
    """A process that was stopped, or a machine that was suspended, since its time was computed (trim)."""
    name = world.filled([0] * 5)
    tp = TopicPartition(name, 0)
    said: list[Outcome] = []
    with _led(world, name) as (reader, leader):
        delete = Deleter(reader).delete
        for good_until in (reader.clock.since_boot() - 0.1, reader.clock.since_boot() + 30):
            delete({leader: {tp: 3}}, lambda _tp, one: said.append(one), timeout_s=10, good_until=good_until)
            if len(said) == 1:
                assert isinstance(said[0], NotSentError), said
                assert (said[0].retriable, world.ends(name)[0]) == (True, 0)
                assert "its recheck was too old" in str(said[0])
    assert said[1:] == [Answered(3)], "the next one goes out, on a new connection"


class NarrowSocket:
    """A socket that takes so many bytes, and then no more."""

    room, written = 5, b""

    def getpeername(self) -> tuple[str, int]:
        return "localhost", 9092

    def send(self, content: memoryview) -> int:
        if not self.room:
            raise BlockingIOError
        taken = bytes(content[: self.room])
        self.room -= len(taken)
        self.written += taken
        return len(taken)


def test_half_written_delete_is_cut_off_at_its_deadline() -> None:
    """A socket that takes no more for a while: what a broker has got only in part, it can't execute."""
    late, sock, connection = False, NarrowSocket(), TimedConnection(net=None)
    connection.deletes = set()
    transport = KafkaTCPTransport(NetworkSelector(), sock)
    connection.connection_made(transport)
    send = transport._sock_send  # noqa: SLF001  (what its loop calls)
    transport.writelines([b"ab", Dated.of(b"cdefgh", lambda: late), b"ij"])
    assert send() == (5, None)
    sock.room = 2
    assert send() == (2, None)
    late, sock.room = True, 99
    count, error = send()
    assert (count, isinstance(error, KafkaConnectionError), sock.written) == (0, True, b"abcdefg")


def test_delete_written_while_the_connection_opens_is_cut_off_at_its_deadline(world: World) -> None:
    name = world.filled([0] * 5)
    with _led(world, name) as (_, leader), reader_for(world.bootstrap) as reader:
        ask, start = reader.wire.ask, reader.wire.start
        before = [start(ask, _fetch(name, 1_000, 5), leader) for _ in range(3)]
        deletes = start(ask, delete_request({TopicPartition(name, 0): 3}, 1.7), leader, 1.7)
        after = start(ask, _fetch(name, 1_000, 5), leader)
        assert [_is_answered(one) for one in (*before, deletes, after)] == [True, False, False, False, False]


def test_short_request_does_not_end_earlier_ones(world: World) -> None:
    empty = world.topic()
    with _led(world, empty) as (reader, leader):
        slow = reader.wire.start(reader.wire.ask, _fetch(empty, 2_500), leader)
        assert reader.wire.start(reader.wire.ask, ListGroupsRequest(), leader, 1.0).result().error_code == 0
        assert slow.result() is not None


@contextmanager
def _throttled(world: World, topic: str) -> Iterator[tuple[ClusterReader, int]]:
    """A reader that every broker tells to wait for a second after each answer; the client's name is this test's own."""
    client = f"client-of-{topic}"
    entry = AlterClientQuotasRequest.EntryData
    who = [entry.EntityData(entity_type="client-id", entity_name=client)]
    quota = entry(entity=who, ops=[entry.OpData(key="request_percentage", value=0.01, remove=False)])
    with _led(world, topic, client_id=client) as (reader, leader):
        reply = reader.wire.run(reader.wire.ask, AlterClientQuotasRequest(entries=[quota], validate_only=False))
        assert reply.entries[0].error_code == 0, reply
        for node in reader.brokers():
            wait_until(
                lambda node=node: (  # type: ignore[misc]
                    reader.wire.run(reader.wire.ask, ListGroupsRequest(), node).throttle_time_ms > 0
                ),
                f"broker {node} throttles",
            )
        yield reader, leader


def test_throttled_request_is_answered_when_its_time_ends(world: World) -> None:
    """kafka-python refuses it, and what it would have answered would be unknown (KIP-219)."""
    name = world.filled([0] * 5)
    with _throttled(world, name) as (reader, leader):
        ask, start = reader.wire.ask, reader.wire.start
        began = time.monotonic()
        asked = [start(ask, ListGroupsRequest(), leader) for _ in range(3)]
        assert [one.result().error_code for one in asked] == [0, 0, 0]
        assert time.monotonic() - began > 0.5, "it was not throttled: this test tests nothing"
        hasty = start(ask, ListGroupsRequest(), leader, 0.2)
        deletes = start(ask, delete_request({TopicPartition(name, 0): 3}, 0.2), leader, 0.2)
        assert [_is_answered(one) for one in (hasty, deletes)] == [False, False]
        assert time.monotonic() - began < 25
        assert start(ask, ListGroupsRequest(), leader).result().error_code == 0
    assert world.ends(name)[0] == 0, "a delete is not sent once its time is over"
