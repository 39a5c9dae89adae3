"""Time responses in turn, and never write a delete that is too late (kafka-python has one limit for all requests).

A broker answers a connection's requests one by one, so the time-out of a request begins when the one before it has been
answered: a slow broker with several in flight is not treated as dead, nor does a request with little time end those
sent before it. Only one that deletes keeps the time that it was sent with: by then its facts are too old.

Requests to a broker that throttles (KIP-219) are sent once its time is over; the client would refuse them.

Every connection's broker must be of the same cluster: an address may lead to another one (a port-forward, a load
balancer, an IP address in use again) with topics of the same names, and offsets of the one mean nothing in the other.

A request that deletes carries the time until which it may be sent (``too_late``). It is checked right before each write
to the socket, so a buffer, a throttle or a stopped process never sends a stale delete.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.schemas.fields.codecs.tagged_fields import TaggedFields
from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32


def _no_tags(data: Any) -> None:
    """Read a number of tagged fields that must be 0. The client reads it within an ``assert``, which ``-O`` drops."""
    if UnsignedVarInt32.decode(data):
        raise kafka_errors.KafkaProtocolError("a response has tagged fields where it can have none")


TaggedFields.decode_empty = staticmethod(_no_tags)

_POLL_S: Final = 0.1
"""A request that waits for its turn checks for it at most this often (s)."""


class TooLateError(kafka_errors.KafkaTimeoutError):  # type: ignore[misc]
    """A request whose time ran out before all of it was written: it was not sent."""


class OtherClusterError(kafka_errors.KafkaConnectionError):  # type: ignore[misc]
    """A broker is of another cluster than those that this client was connected to before."""


class Dated(bytes):
    """The bytes of a request that may be written only until it is ``too_late``."""

    too_late: Callable[[], bool]

    @classmethod
    def of(cls, content: bytes, too_late: Callable[[], bool]) -> Dated:
        """Return these bytes with their time."""
        made = cls(content)
        made.too_late = too_late
        return made


class TimedConnections(KafkaConnectionManager):  # type: ignore[misc]
    """The client's connections to one cluster, with time-outs in turn.

    ``cluster_id`` is None until a broker names it, ``led_elsewhere`` says that an address led to another one.
    """

    cluster_id: str | None = None
    led_elsewhere = False

    def get_connection(self, node_id: int | str | None, *args: Any, **options: Any) -> Any:
        """Return the connection to a node, creating it if there is none."""
        if self.cluster.is_bootstrap(node_id):
            self.broker_version_data = None  # another's, which may be a controller: each is asked for its own
        connection = super().get_connection(node_id, *args, **options)
        if not isinstance(connection, TimedConnection):  # it is new, and the client makes only its own kind
            connection.deletes, connection.manager = set(), self
            connection.__class__ = TimedConnection
        return connection


class TimedConnection(KafkaConnection):  # type: ignore[misc]
    """A connection whose requests wait for a broker that throttles, and time out in turn.

    ``deletes`` are the futures of those of its requests that delete, ``manager`` has the other connections.
    """

    deletes: set[Any]
    manager: TimedConnections
    _send: Callable[[], tuple[int, Exception | None]]

    def connection_made(self, transport: Any) -> None:
        """Go on with a transport, which is watched, and a :class:`TimedProtocol`."""
        self._send = transport._sock_send  # noqa: SLF001  (the one place where it writes to the socket)
        transport._sock_send = lambda: self._send_in_time(transport)  # noqa: SLF001
        receive = transport._sock_recv  # noqa: SLF001

        def all_of_it() -> tuple[bytes, Exception | None]:
            # A broker that refuses a password answers and hangs up: the client would drop the answer.
            data, error = receive()
            return data, None if data else error

        transport._sock_recv = all_of_it  # noqa: SLF001
        super().connection_made(transport)
        self.parser = TimedProtocol(
            client_id=self.config["client_id"],
            receive_message_max_bytes=self.config["receive_message_max_bytes"],
        )

    async def _get_api_versions(self, timeout_at: float | None = None) -> None:
        await super()._get_api_versions(timeout_at)
        if not self.sasl_enabled:
            await self._check_cluster(timeout_at)

    async def _sasl_authenticate(self, timeout_at: float | None = None) -> None:
        await super()._sasl_authenticate(timeout_at)
        if self.initializing:  # not when it logs in again (KIP-368): the broker is the same
            await self._check_cluster(timeout_at)

    async def _check_cluster(self, timeout_at: float | None) -> None:
        """Ask which cluster the broker is of, before any other request is sent.

        Raises:
            OtherClusterError: it is not the one of the other connections.
        """
        if MetadataRequest.API_KEY not in self.broker_version_data.api_versions:  # a controller, which is refused later
            return
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False, min_version=4)  # of no topic
        found = (await self._send_request(request, timeout_at=timeout_at)).cluster_id
        self.manager.cluster_id = known = self.manager.cluster_id or found
        if found != known:
            self.manager.led_elsewhere = True
            text = f"this address leads to another cluster ({found}) than the other brokers' ({known})"
            raise OtherClusterError(f"{text}: check the addresses, port-forwards and advertised.listeners")

    def send_request(self, request: Any, request_timeout_ms: float | None = None) -> Any:
        """Send a request, or have it wait; return its future response."""
        if "throttle" in self.paused and self._is_ready():  # a quota (KIP-219)
            future = Future()  # the client would refuse it, and a fact would stay unread
            waiting = request, future, self._timeout_at(timeout_ms=request_timeout_ms)
            self._request_buffer.append(waiting)
            self.net.call_at(waiting[2], lambda: self._give_up(waiting))
        else:
            future = super().send_request(request, request_timeout_ms)
        if getattr(request, "API_KEY", None) == 21:  # DeleteRecords
            self.deletes.add(future)
            future.add_both(lambda _: self.deletes.discard(future))
        return future

    def _send_in_time(self, transport: Any) -> tuple[int, Exception | None]:
        """Write the buffer; a request with a time goes alone, and ends the connection once its time is over."""
        waiting: deque[Any] = transport._write_buffer  # noqa: SLF001
        if not any(isinstance(one, Dated) for one in waiting):
            return self._send()
        total = 0
        while waiting:
            chunk = waiting.popleft()
            if isinstance(chunk, Dated) and chunk.too_late():
                return total, self._fail_deletes()
            transport._write_buffer = deque([chunk])  # noqa: SLF001
            count, error = self._send()
            total += count
            left: deque[Any] = transport._write_buffer  # noqa: SLF001
            transport._write_buffer = waiting  # noqa: SLF001
            if error is not None:
                return total, error
            if left:  # the socket takes no more; what is left of a request keeps its time
                rest = bytes(left[0])
                waiting.appendleft(Dated.of(rest, chunk.too_late) if isinstance(chunk, Dated) else rest)
                break
        return total, None

    def _fail_deletes(self) -> Exception:
        """Fail the deletes of this connection: at most one is in flight, and not all of it has been written."""
        for one in [one for one in self.in_flight_requests if one[1] in self.deletes]:
            self.in_flight_requests.remove(one)  # or it would fail with the connection's error instead
            one[1].failure(TooLateError("its recheck was too old when the request could be written"))
        return kafka_errors.KafkaConnectionError("a request was too old to be written")  # type: ignore[no-any-return]

    def unpause(self, why: str) -> None:
        """Send what waited, once nothing else pauses the connection."""
        super().unpause(why)
        if not self.paused and self._is_ready():
            self.send_buffered()

    def _request_timed_out(self, future: Any, sent: float, until: float) -> None:
        """End the connection if it is the request's turn and its time is up. The client's timers call this."""
        if (at := self._time_is_up(future, sent, until)) > time.monotonic():
            self.net.call_at(at, lambda: self._request_timed_out(future, sent, until))
        else:
            super()._request_timed_out(future, sent, until)

    def _is_ready(self) -> bool:
        return self.connected and not (self.initializing or self._reauth.is_reauthenticating)  # these buffer, too

    def _give_up(self, waiting: tuple[Any, Any, float]) -> None:
        if waiting in self._request_buffer:
            self._request_buffer.remove(waiting)
            waiting[1].failure(kafka_errors.KafkaTimeoutError("the broker throttles this client"))

    def _time_is_up(self, future: Any, sent: float, until: float) -> float:
        if future in self.deletes or future.is_done or self.closed:
            return until
        waiting = self.in_flight_requests
        if waiting and waiting[0][1] is not future:  # it is not its turn yet: look again
            return time.monotonic() + max(until - sent, _POLL_S)
        return float(max(sent, self.parser.answered) + until - sent)


class TimedProtocol(KafkaProtocol):  # type: ignore[misc]
    """Keeps the time of requests that have one. ``answered`` is when the last response was complete (monotonic)."""

    answered = 0.0

    def send_request(self, request: Any, correlation_id: int | None = None) -> Any:
        """Encode and queue a request; responses arrive in the order of requests."""
        sent = super().send_request(request, correlation_id)
        if (too_late := getattr(request, "too_late", None)) is not None:
            request.is_encoded = True
            self.bytes_to_send[-1] = Dated.of(self.bytes_to_send[-1], too_late)
        return sent

    def send_bytes(self) -> bytes:
        """Return what is to be sent; with the time of a request that has one."""
        dated = next((one for one in self.bytes_to_send if isinstance(one, Dated)), None)
        content: bytes = super().send_bytes()
        return content if dated is None else Dated.of(content, dated.too_late)

    def receive_bytes(self, data: Any) -> Any:
        """Return the responses that are complete, decoded."""
        if responses := super().receive_bytes(data):
            self.answered = time.monotonic()
        return responses
