"""How long a response may be, by what was asked for, and when a request's time is up."""

from __future__ import annotations

import struct
import time
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import InvalidReceiveError
from kafka.future import Future
from kafka.protocol.admin import DeleteRecordsRequest, DescribeLogDirsRequest

from retention_cli.brokers.wire.frames import MAX_RESPONSE_BYTES, BoundedProtocol, bind, longest_answer


def _deletes(count: int) -> DeleteRecordsRequest:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    partitions = [topic.DeleteRecordsPartition(partition_index=one, offset=1) for one in range(count)]
    return DeleteRecordsRequest(topics=[topic(name="t", partitions=partitions)], timeout_ms=1, version=2)


def _claim(protocol: BoundedProtocol, length: int) -> None:
    protocol.receive_bytes(struct.pack(">i", length))


def test_frame_limit_follows_from_the_request() -> None:
    few, many = longest_answer(21, 100), longest_answer(21, 100_000)
    assert 1 << 20 < few < many < MAX_RESPONSE_BYTES
    assert longest_answer(3, 100) == longest_answer(None, 100) == MAX_RESPONSE_BYTES


@pytest.mark.parametrize("length", [2 << 20, MAX_RESPONSE_BYTES, -1])
def test_oversized_frame_is_refused(length: int) -> None:
    protocol = BoundedProtocol(client_id="t")
    protocol.send_request(_deletes(1))
    with pytest.raises(InvalidReceiveError):
        _claim(protocol, length)


def test_frame_limits_follow_request_order() -> None:
    protocol = BoundedProtocol(client_id="t")
    protocol.send_request(DescribeLogDirsRequest(topics=None, version=4))
    protocol.send_request(_deletes(1))
    _claim(protocol, 2 << 20)  # of log dirs
    protocol = BoundedProtocol(client_id="t")
    protocol.send_request(_deletes(100_000))
    _claim(protocol, 2 << 20)


def test_unrequested_frame_is_refused() -> None:
    with pytest.raises(InvalidReceiveError):
        _claim(BoundedProtocol(client_id="t"), 8)


class _Connection:
    """What frames use of the client's connection, with one request in flight and another behind it."""

    def __init__(self) -> None:
        self.closed = False
        self.paused = set[str]()
        self.first, self.second = Future(), Future()
        self.in_flight_requests = [(1, self.first), (2, self.second)]
        self.parser = BoundedProtocol(client_id="t")
        self.looks: list[float] = []
        self.ended: list[Any] = []
        self.net = SimpleNamespace(call_at=lambda when, _look: self.looks.append(when))

    def connection_made(self, *_: Any) -> None:
        raise AssertionError

    def send_request(self, *_: Any) -> Any:
        return self.second

    def unpause(self, *_: Any) -> None:
        raise AssertionError

    def _request_timed_out(self, future: Any, *_: Any) -> None:
        self.ended.append(future)

    def time_passes(self, seconds: float) -> None:
        """The timer of the second request fires, which was sent so long ago."""
        now = time.monotonic()
        self._request_timed_out(self.second, now - seconds, now)


def test_request_near_its_deadline_does_not_poll_for_its_turn() -> None:
    connection = _Connection()
    bind(connection)
    connection.time_passes(0.0001)
    assert not connection.ended
    assert connection.looks[0] > time.monotonic() + 0.05
    connection.in_flight_requests.pop(0)
    connection.parser.answered = time.monotonic() - 0.05
    connection.time_passes(0.0001)
    assert connection.ended == [connection.second]


def test_delete_does_not_wait_for_its_turn() -> None:
    connection = _Connection()
    bind(connection)
    connection.send_request(_deletes(1))
    connection.time_passes(1.0)
    assert connection.ended == [connection.second]
