"""When a request's time is up."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from kafka.future import Future
from kafka.protocol.admin import DeleteRecordsRequest

from retention_cli.brokers.wire.frames import TimedProtocol, bind


def _deletes() -> DeleteRecordsRequest:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    partitions = [topic.DeleteRecordsPartition(partition_index=0, offset=1)]
    return DeleteRecordsRequest(topics=[topic(name="t", partitions=partitions)], timeout_ms=1, version=2)


class _Connection:
    """What frames use of the client's connection, with one request in flight and another behind it."""

    def __init__(self) -> None:
        self.closed = False
        self.paused = set[str]()
        self.first, self.second = Future(), Future()
        self.in_flight_requests = [(1, self.first), (2, self.second)]
        self.parser = TimedProtocol(client_id="t")
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
    connection.send_request(_deletes())
    connection.time_passes(1.0)
    assert connection.ended == [connection.second]
