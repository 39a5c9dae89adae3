"""How long a response may be, by what was asked for (kafka-python allows every frame the same).

The client takes a frame's length of memory before any of it has come, so a length that no honest broker would send is
refused first. An answer with a row for each row of its request is limited by that request; one that grows with
the cluster (metadata, configs, log dirs, listings, commits, records) by :data:`MAX_RESPONSE_BYTES` alone.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import kafka.errors as kafka_errors
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.parser import KafkaProtocol

MAX_RESPONSE_BYTES: Final = 128 << 20
"""For any response. Requests are cut so that answers stay far below it: 1,000 partitions, some 20,000 commits."""

_ROW_FOR_ROW: Final = {
    0: "Produce",
    2: "ListOffsets",
    10: "FindCoordinator",
    17: "SaslHandshake",
    18: "ApiVersions",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    36: "SaslAuthenticate",
}
_ROOM_BYTES: Final = 1 << 20
_GROWTH: Final = 64
"""A coordinator's key of a few bytes is answered with a host name and an error message."""


def longest_answer(api_key: int | None, request_bytes: int) -> int:
    """Return how many bytes the answer to a request of so many bytes may have."""
    if api_key in _ROW_FOR_ROW:
        return min(MAX_RESPONSE_BYTES, _ROOM_BYTES + _GROWTH * request_bytes)
    return MAX_RESPONSE_BYTES


class BoundedConnections(KafkaConnectionManager):  # type: ignore[misc]
    """The client's connections, each with a :class:`BoundedProtocol`."""

    def get_connection(self, node_id: int | str | None, *args: Any, **options: Any) -> Any:
        """Return the connection to a node, made if there is none yet."""
        connection = super().get_connection(node_id, *args, **options)
        if isinstance(connection, KafkaConnection) and connection.transport is None:
            _bound(connection)
        return connection


def _bound(connection: Any) -> None:
    made = type(connection).connection_made

    def connection_made(transport: Any) -> None:
        made(connection, transport)
        connection.parser = BoundedProtocol(client_id=connection.config["client_id"])

    connection.connection_made = connection_made


class BoundedProtocol(KafkaProtocol):  # type: ignore[misc]
    """Refuses a frame that is longer than an answer to the oldest open request can be, before memory is taken."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._limits: deque[int] = deque()

    def send_request(self, request: Any, correlation_id: int | None = None) -> Any:
        """Encode and queue a request; its answer is the next but those that are open."""
        sent = super().send_request(request, correlation_id)
        if request.expect_response():
            api_key = getattr(request, "API_KEY", None)
            self._limits.append(longest_answer(api_key, len(self.bytes_to_send[-1])))
        return sent

    def _validate_frame_size(self, nbytes: int) -> None:
        most = self._limits.popleft() if self._limits else 0
        if not 0 <= nbytes <= most:
            raise kafka_errors.InvalidReceiveError(f"Invalid frame length: {nbytes}")
