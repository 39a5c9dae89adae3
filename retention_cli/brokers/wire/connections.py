"""One client's connections to a cluster, and requests over them (kafka-python's connection manager).

Requests are coroutines on the client's own event loop, in its own thread; :meth:`Wire.run` starts one. No request is
repeated here: only the caller knows whether that is safe.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.net.selector import NetworkSelector

from retention_cli.brokers.errors import (
    BrokerError,
    MissingApiError,
    NotSentError,
    RequestFailedError,
    UnauthorizedError,
    UnreachableError,
)
from retention_cli.brokers.security.sasl_settings import WHAT
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.wire.frames import TimedConnections, TooLateError
from retention_cli.brokers.wire.problems import (
    CONTROLLER,
    LATE,
    NO_ANSWER,
    NO_LISTENER,
    code_problem,
    connection_problem,
    missing_api,
)
from retention_cli.brokers.wire.work import Pending, Work

IN_FLIGHT: Final = 8
"""Requests in flight per broker, of one call of :meth:`Wire.fan_out`."""

_RIGHT: Final = {
    "AWS": "are the AWS credentials allowed to connect",
    "OAUTHBEARER": "is the token for it",
    "GSSAPI": "do its clock and its keytab fit the Kerberos ticket",
}

LEFT_OUT: Final = RequestFailedError("the broker left it out of its answer", retriable=True)

T = TypeVar("T")
J = TypeVar("J")

_REFUSED = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)


@dataclass(frozen=True, slots=True)
class Job(Generic[J]):
    """A request for one broker, and the caller's data for handling its reply."""

    request: Any
    about: J


class Wire:
    """Connections to the brokers of one cluster, from :meth:`open` to :meth:`close`.

    Args:
        settings: the connection settings.
        timeout_s: the time-out of a request, from when the broker has answered those before it (a delete's: from when
            it is sent), and of connecting to the cluster.
        patient: try for all of that time even if every bootstrap address refuses connections, as a broker that
            restarts does.
    """

    def __init__(self, settings: ConnectionSettings, timeout_s: float, *, patient: bool = False) -> None:
        self.timeout_s = timeout_s
        # How long ports on which no process listens are tried again.
        self._refused_s = timeout_s if patient else min(timeout_s, 3.0)
        self._settings = settings
        configs = {
            **settings.for_kafka_python(),
            "request_timeout_ms": int(timeout_s * 1000),
            "socket_connection_setup_timeout_ms": int(timeout_s * 1000),
            # Memory for a response is allocated before any of it has arrived. Requests are cut so that responses stay
            # far below: 1,000 partitions, 20,000 commits.
            "receive_message_max_bytes": 128 << 20,
            "reconnect_backoff_max_ms": 1000,
            # Beyond it the client refuses a request, with an error that would leave a fact unread. A few calls under
            # way pass its default, five; calls bound themselves.
            "max_in_flight_requests_per_connection": 1_000,
        }
        self._heard = _Heard(settings)
        _LOG.listen(self._heard)
        self._net = NetworkSelector(client_id=settings.client_id)
        self._manager = TimedConnections(self._net, **configs)
        self.coordinators: frozenset[int] | None = None
        """Those that may coordinate groups: another one is a broker no more, and may not know it. None: any."""
        self._has_answered = False
        """Whether a broker has answered anything but the first look for brokers."""

    def open(self) -> None:
        """Connect to one broker and learn the others.

        Raises:
            UnreachableError: no broker answered within the time-out.
            UnauthorizedError: the cluster refused the user, password, certificate or mechanism.
            BrokerError: the token endpoint gave no token.
        """
        try:
            # Before any broker is asked: without a token or ticket, each would seem to be out of reach.
            if (tokens := self._settings.tokens) is not None:
                tokens.token(self.timeout_s)
            if self._settings.kerberos is not None:
                from retention_cli.brokers.security.kerberos import log_in

                log_in(self._settings.kerberos, self.timeout_s)
        except BrokerError:
            self.close()
            raise
        self._net.start()
        began = time.monotonic()
        if not self._bootstrapped(began):
            self.close()
            limit_s = self._refused_s if time.monotonic() < began + self.timeout_s else self.timeout_s
            if (refusal := self._heard.refusal) is not None:
                what = "could not be reached" if refusal.startswith(WHAT) else "refused the connection"
                raise UnauthorizedError(f"{self._settings.bootstrap} {what}: {refusal}")
            problem = self._heard.last or "no answer"
            listener = f"; is it a listener for {self._settings.protocol}"
            if problem in (NO_ANSWER, LATE):
                problem += f"{listener}?"
            if problem == "socket disconnected":  # the only sign of a refusal if the broker disconnects right after it
                right = _RIGHT.get(
                    "AWS" if self._settings.uses_aws else self._settings.mechanism or "", "are name and password right"
                )
                problem = f"it ended the connection{listener}"
                problem += f", and {right}?" if self._settings.mechanism else "?"
            if problem == CONTROLLER:
                raise UnreachableError(f"{self._settings.bootstrap} answered, but {problem}")
            raise UnreachableError(f"{self._settings.bootstrap} could not be reached within {limit_s:g} s: {problem}")

    def _bootstrapped(self, began: float) -> bool:
        """Connect to one of the bootstrap brokers. A broker that hangs only takes a share of the time-out."""
        deadline = began + self.timeout_s
        share_s = self.timeout_s / max(1, self._settings.bootstrap.count(",") + 1)
        while (left_s := deadline - time.monotonic()) > 0:
            attempt = self._manager.bootstrap_async(int(1000 * min(share_s, left_s)))
            done = threading.Event()
            attempt.add_both(lambda _, done=done: done.set())
            while not done.wait(0.05):
                # A refusal is final, and so is a controller, though the client would retry until the time-out.
                # A name server that does not answer blocks the loop itself.
                now = time.monotonic()
                if self._heard.final or now > deadline + 1 or (now > began + self._refused_s and self._heard.nowhere):
                    return False
            if not isinstance(attempt.exception, kafka_errors.KafkaTimeoutError):
                return bool(attempt.succeeded())  # done, or another attempt would fail the same way
        return False

    def close(self) -> None:
        """Close the connections. May be called repeatedly."""
        _LOG.leave(self._heard)
        loop: threading.Thread | None = self._net._io_thread  # noqa: SLF001  (nothing else says whether it has ended)
        with contextlib.suppress(RuntimeError, OSError, kafka_errors.KafkaError):
            if loop is not None:  # else what is scheduled now would run as the loop is closed, and fail
                self._net.call_soon_threadsafe(self._manager.close)
                self._net.stop(timeout_ms=2000)
            if loop is None or not loop.is_alive():  # a name server may still block it
                self._net.close()

    def run(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any, timeout_s: float | None = None) -> T:
        """Run a coroutine on the client's loop and return its result; Ctrl-C interrupts the wait.

        Raises:
            UnreachableError: it did not finish within ``timeout_s``, if that is given.
        """
        return self.start(work, *args).result(timeout_s)

    def start(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Pending[T]:
        """Start a coroutine on the client's loop, concurrently with others, and return at once."""
        mine = Work()
        return Pending(self._manager.call_soon(mine.run, work, *args), mine, self._settings.bootstrap)

    @property
    def led_elsewhere(self) -> bool:
        """Whether an address led to another cluster than the first that answered."""
        return self._manager.led_elsewhere

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that these connections lead to, None until a broker has named it."""
        return self._manager.cluster_id

    def brokers(self) -> list[int]:
        """Return the ids of the brokers in the latest metadata."""
        return sorted(broker.node_id for broker in self._manager.cluster.brokers())

    def hosts(self) -> list[str]:
        """Return the host names in the latest metadata, and those of the bootstrap brokers."""
        given = {one.strip().rpartition(":")[0] for one in self._settings.bootstrap.split(",")}
        return sorted(given | {str(broker.host) for broker in self._manager.cluster.brokers()})

    async def ask(self, request: Any, node: int | None = None, timeout_s: float | None = None) -> Any:
        """Send one request and return its response; without a ``node``, to any available broker.

        Raises:
            RequestFailedError: it was not sent, or not answered. The caller handles the response's own error codes.
        """
        reply = await self.settle(self.send(request, node, timeout_s))
        self._has_answered = True
        return reply

    def send(self, request: Any, node: int | None, timeout_s: float | None = None) -> Awaitable[Any]:
        """Send a request, and return its future response. Await it with :meth:`settle`."""
        limit_ms = int((self.timeout_s if timeout_s is None else timeout_s) * 1000)
        try:
            return self._manager.send(request, node, request_timeout_ms=limit_ms)  # type: ignore[no-any-return]
        except kafka_errors.KafkaError as error:
            return cast(Awaitable[Any], Future().failure(error))

    async def settle(self, sent: Awaitable[Any]) -> Any:
        """Await a sent request; see :meth:`ask`."""
        try:
            return await sent
        except kafka_errors.KafkaError as error:
            raise _translated(error, self._settings) from None

    async def ask_any(self, request_for: Callable[[], Any], deadline: float) -> Any:
        """Ask brokers in turn until one answers. ``request_for`` creates a new request for each.

        A deadline that others have used up ends the retries, and leaves a single request 2 s for its answer.

        Raises:
            UnreachableError: no broker had answered at the deadline (of ``time.monotonic``).
            BrokerError: the cluster does not support this request.
        """
        while True:
            try:
                return await self.ask(
                    request_for(), timeout_s=min(self.timeout_s, max(2.0, deadline - time.monotonic()))
                )
            except RequestFailedError as error:
                if not error.retriable:
                    raise
                if time.monotonic() > deadline:
                    raise UnreachableError(self._no_broker_answered(error)) from None
            await self.sleep(0.1)

    def _no_broker_answered(self, error: RequestFailedError) -> str:
        """Return why no broker answers: it may be that they give clients addresses which lead nowhere from here."""
        why = self._heard.last or str(error)
        named = sorted({f"{one.host}:{one.port}" for one in self._manager.cluster.brokers()})
        if self._has_answered or not named:
            return f"no broker answered: {why}"
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        return (
            f"{self._settings.bootstrap} answered, but no broker did at the addresses they give: "
            f"{', '.join(named[:3])}{more} ({why}). This machine must reach them: check the brokers, the network and "
            f"advertised.listeners"
        )

    async def fan_out(
        self,
        work: Mapping[int, Iterable[Job[J]]],
        on_reply: Callable[[J, Any | RequestFailedError], None],
        *,
        in_flight: int = IN_FLIGHT,
        timeout_s: float | None = None,
    ) -> None:
        """Send each broker its jobs, a few in flight at once, and call ``on_reply`` with each reply as it arrives.

        For a job that fails, the reply is the error, and the other brokers' jobs continue. A broker's replies are in
        the order of its jobs; calls of ``on_reply`` never overlap.
        """

        async def serve(node: int, jobs: Iterable[Job[J]]) -> None:
            pending: deque[tuple[J, Awaitable[Any]]] = deque()
            for job in jobs:
                pending.append((job.about, self.send(job.request, node, timeout_s)))
                if len(pending) >= in_flight:
                    await hand_over(*pending.popleft())
            while pending:
                await hand_over(*pending.popleft())

        async def hand_over(about: J, sent: Awaitable[Any]) -> None:
            try:
                reply = await self.settle(sent)
            except RequestFailedError as error:
                reply = error
            on_reply(about, reply)

        mine = Work.current()
        for one in [self._manager.call_soon(mine.run_part, serve(node, jobs)) for node, jobs in work.items()]:
            await one

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the loop."""
        await self._net.sleep(seconds)

    async def learn_brokers(self) -> None:
        """Ask the cluster for its brokers again: leaders may be on new ones."""
        with contextlib.suppress(kafka_errors.KafkaError):
            await self._manager.cluster.refresh_metadata()

    async def api_versions(self, node: int) -> Mapping[int, tuple[int, int]]:
        """Return the versions that one broker supports: API key to (lowest, highest) version.

        Raises:
            RequestFailedError: it could not be reached.
        """
        try:
            connection = await self._manager.get_connection(node)
        except kafka_errors.KafkaError as error:
            raise _translated(error, self._settings) from None
        return dict(connection.broker_version_data.api_versions)

    def offered(self) -> Mapping[int, tuple[int, int]]:
        """Return the versions that a connected broker named, by API key; empty if none is connected."""
        versions = (one.broker_version_data for one in list(self._manager._conns.values()))  # noqa: SLF001
        return next((one.api_versions for one in versions if one is not None), {})

    async def highest_version(self, node: int, api_key: int) -> int | None:
        """Return the highest version of an API that one broker supports (−1: none), None if it can't be reached."""
        try:
            return (await self.api_versions(node)).get(api_key, (0, -1))[1]
        except RequestFailedError:
            return None


class _Log(logging.Handler):
    """Takes what the client logs, such as each failed connection: kretain reports it once, in its own words.

    It stays, for all connections: logging takes a lock to add a handler, to remove one and to set a level. Before
    Python 3.13 a Ctrl-C can leave that lock taken; then each thread that logs waits forever, and so each connection.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._client = logging.getLogger("kafka")
        self._listening: list[_Heard] = []

    def listen(self, heard: _Heard) -> None:
        """Pass it what is logged from now on."""
        self._listening.append(heard)
        self._client.propagate = False
        if self not in self._client.handlers:
            self._client.addHandler(self)
        if self._client.level != logging.WARNING:
            self._client.setLevel(logging.WARNING)

    def leave(self, heard: _Heard) -> None:
        """Stop passing it what is logged, if it listens."""
        with contextlib.suppress(ValueError):
            self._listening.remove(heard)

    def emit(self, record: logging.LogRecord) -> None:
        for heard in tuple(self._listening):
            heard.emit(record)


class _Heard:
    """Collects from the client's log why it can't connect, and prints nothing."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self.last: str | None = None
        self.refusal: str | None = None
        self._by_address: dict[str, str] = {}
        """How the latest attempt at each bootstrap address ended."""

    @property
    def nowhere(self) -> bool:
        """Whether every bootstrap address refused the latest connection."""
        refused = sum(problem == NO_LISTENER for problem in self._by_address.values())
        return refused == len(self._by_address) >= self._settings.bootstrap.count(",") + 1

    @property
    def final(self) -> bool:
        """Whether trying again is useless: it was refused, or the only address is a controller's."""
        return self.refusal is not None or (self.last == CONTROLLER and "," not in self._settings.bootstrap)

    def emit(self, record: logging.LogRecord) -> None:
        errors = [arg for arg in (record.args if isinstance(record.args, tuple) else ()) if isinstance(arg, Exception)]
        for error in errors:
            if "Unable to bootstrap" not in str(error):  # kretain reports that itself; the cause was logged before
                problem = connection_problem(
                    error,
                    self._settings.mechanism,
                    tls=self._settings.uses_tls,
                    sends_ours=self._settings.certificate_pem is not None,
                    aws=self._settings.uses_aws,
                )
                if isinstance(error, _REFUSED):
                    self.refusal = problem
                if isinstance(record.args, tuple) and str(record.args[0]).startswith("bootstrap"):
                    self._by_address[str(record.args[0])] = problem
                if problem != LATE or self.last is None:  # the last attempt's time is up where all ended otherwise
                    self.last = problem


_LOG: Final = _Log()


def _translated(error: Exception, settings: ConnectionSettings) -> BrokerError:
    if isinstance(error, _REFUSED):
        return RequestFailedError(connection_problem(error, settings.mechanism, aws=settings.uses_aws), retriable=False)
    if isinstance(error, TooLateError):
        return NotSentError(f"not sent: {error.args[0]}")
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
        return MissingApiError(missing_api(error))
    return RequestFailedError(connection_problem(error), retriable=True)


def failure_of(reply: Any) -> RequestFailedError | None:
    """Return why a request failed: it got no answer, or the answer has an error code. None if it did not fail."""
    return reply if isinstance(reply, RequestFailedError) else error_named(getattr(reply, "error_code", 0))


async def ask_each(
    wire: Wire, brokers: Iterable[int], request_for: Callable[[], Any], deadline: float, task: str
) -> Iterable[Any]:
    """Ask each of these brokers, again if an error may pass, and return their answers.

    Raises:
        BrokerError: a broker has not done its ``task`` at the deadline (of ``time.monotonic``).
    """
    found: dict[int, Any] = {}
    waiting = list(brokers)
    while waiting:
        await wire.fan_out({broker: [Job(request_for(), broker)] for broker in waiting}, found.__setitem__)
        errors = {broker: error for broker in waiting if (error := failure_of(found[broker])) is not None}
        if waiting := sorted(errors):
            error = errors[waiting[0]]
            if not error.retriable or time.monotonic() > deadline:
                kind = MissingApiError if isinstance(error, MissingApiError) else BrokerError
                raise kind(f"broker {waiting[0]} did not {task}: {error}")
            await wire.sleep(0.25)
    return found.values()


def error_named(code: int, message: str | None = None, *, needs: str = "DESCRIBE") -> RequestFailedError | None:
    """Return the error for a response's error code, None for 0.

    ``needs`` is the operation that this request takes: what to grant if the user is not authorized.
    """
    if code == 0:
        return None
    kind = kafka_errors.for_code(code)
    name = getattr(kind, "message", None) or kind.__name__
    retriable = bool(getattr(kind, "retriable", False)) or issubclass(kind, kafka_errors.RetriableError)
    text = code_problem(name, needs, message or getattr(kind, "description", None))
    return RequestFailedError(text, retriable=retriable, answered=True, code=name)
