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


def test_an_answer_row_for_row_is_limited_by_its_request() -> None:
    few, many = longest_answer(21, 100), longest_answer(21, 100_000)
    assert 1 << 20 < few < many < MAX_RESPONSE_BYTES
    assert longest_answer(3, 100) == longest_answer(None, 100) == MAX_RESPONSE_BYTES


@pytest.mark.parametrize("length", [2 << 20, MAX_RESPONSE_BYTES, -1])
def test_a_frame_that_is_too_long_for_what_was_asked_is_refused(length: int) -> None:
    protocol = BoundedProtocol(client_id="t")
    protocol.send_request(_deletes(1))
    with pytest.raises(InvalidReceiveError):
        _claim(protocol, length)


def test_limits_go_with_their_requests_in_order() -> None:
    protocol = BoundedProtocol(client_id="t")
    protocol.send_request(DescribeLogDirsRequest(topics=None, version=4))
    protocol.send_request(_deletes(1))
    _claim(protocol, 2 << 20)  # of log dirs
    protocol = BoundedProtocol(client_id="t")
    protocol.send_request(_deletes(100_000))
    _claim(protocol, 2 << 20)


def test_a_frame_that_nobody_asked_for_is_refused() -> None:
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


def test_a_request_with_next_to_no_time_left_does_not_look_all_the_time_whether_its_turn_has_come() -> None:
    connection = _Connection()
    bind(connection)
    connection.time_passes(0.0001)
    assert not connection.ended
    assert connection.looks[0] > time.monotonic() + 0.05
    connection.in_flight_requests.pop(0)
    connection.parser.answered = time.monotonic() - 0.05
    connection.time_passes(0.0001)
    assert connection.ended == [connection.second]


def test_a_delete_does_not_wait_for_its_turn() -> None:
    connection = _Connection()
    bind(connection)
    connection.send_request(_deletes(1))
    connection.time_passes(1.0)
    assert connection.ended == [connection.second]
