"""How long a response may be: by what was asked for."""

from __future__ import annotations

import struct

import pytest
from kafka.errors import InvalidReceiveError
from kafka.protocol.admin import DeleteRecordsRequest, DescribeLogDirsRequest

from retention_cli.brokers.wire.frames import MAX_RESPONSE_BYTES, BoundedProtocol, longest_answer


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
