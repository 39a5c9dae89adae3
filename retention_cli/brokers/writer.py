"""The only object besides the deleter and the republisher that changes a cluster: it writes to kretain's own topics."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self

from retention_cli.brokers.errors import BrokerError, RequestFailedError, UnauthorizedError
from retention_cli.brokers.records import LOG_APPEND_TIME, elsewhere
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.wire.problems import client_problem
from retention_cli.core.commands import grant_line

_FLUSH_S: Final = 0.25


class Appended(NamedTuple):
    """A message's place, and the broker's timestamp of it (Unix ms), None if the topic is not LogAppendTime."""

    partition: int
    offset: int
    broker_ms: int | None


class ClusterWriter:
    """Creates topics and appends messages to them. A context manager; it connects on first use.

    Args:
        settings: the connection settings.
        topics: the only topics that it may create or write to.
        timeout_s: the time-out of a request.
    """

    def __init__(self, settings: ConnectionSettings, topics: Collection[str], timeout_s: float) -> None:
        self._settings = settings
        self._topics = frozenset(topics)
        self._timeout_s = timeout_s
        self._producer: Any = None
        self._heard: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. May be called repeatedly."""
        self._producer = None

    def connect(self) -> None:
        """Connect in the background, so that the first message is sent without delay. Errors are ignored."""
        from confluent_kafka import KafkaException

        try:
            self._connected().poll(0)
        except (KafkaException, RequestFailedError):  # the first message will fail, too
            self._producer = None

    def create(self, topic: str, replication_factor: int, config: Mapping[str, str]) -> bool:
        """Create a topic of one partition; return False if it exists already.

        Raises:
            BrokerError: the cluster refused, or did not answer within the time-out.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        self._check(topic)
        try:
            client = AdminClient({**self._settings.for_librdkafka(), "socket.timeout.ms": int(self._timeout_s * 1000)})
            new = NewTopic(topic, 1, replication_factor, config=dict(config))
            futures = client.create_topics([new], operation_timeout=self._timeout_s, request_timeout=self._timeout_s)
            futures[topic].result(self._timeout_s + 5)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise self._error(cause, f"topic {topic} could not be created", "CREATE", topic) from None
        except (TimeoutError, ValueError, TypeError) as error:
            raise BrokerError(f"topic {topic} could not be created: {self._settings.without_secrets(error)}") from None
        return True

    def append(self, topic: str, key: bytes, value: bytes | None) -> Appended:
        """Append a message and return its place, once every in-sync replica has it.

        Raises:
            BrokerError: no broker acknowledged it within the time-out. It may still be appended later.
        """
        if isinstance(result := self.append_all(topic, [(key, value)])[0], BrokerError):
            raise result
        return result

    def append_all(self, topic: str, messages: Sequence[tuple[bytes, bytes | None]]) -> list[Appended | BrokerError]:
        """Append messages (key and value; None deletes a key) to partition 0, in order; return each one's result."""
        from confluent_kafka import KafkaException

        self._check(topic)
        what = f"topic {topic} could not be written to"
        results: list[Appended | BrokerError | None] = [None] * len(messages)

        def on_delivery(number: int, error: Any, message: Any) -> None:
            if error is not None:
                results[number] = self._error(error, what, "WRITE", topic)
            else:
                kind, stamp = message.timestamp()
                results[number] = Appended(
                    message.partition(), message.offset(), stamp if kind == LOG_APPEND_TIME else None
                )

        deadline = time.monotonic() + self._timeout_s + 1  # the client gives up on its own before that
        failed: BrokerError | None = None
        try:
            producer = self._connected()
            ends = partial(self._late_after, deadline, what)
            if (failed := elsewhere(producer, self._settings.cluster_id, topic, ends)) is not None:
                self._producer = None
                return [failed] * len(messages)
            for number, (key, value) in enumerate(messages):
                while True:
                    try:
                        producer.produce(topic, value, key, partition=0, on_delivery=partial(on_delivery, number))
                        break
                    except BufferError:  # its queue is full
                        if time.monotonic() > deadline:
                            return [one or self._late(what) for one in results]
                        producer.poll(_FLUSH_S)
                producer.poll(0)
            while producer.flush(_FLUSH_S) and time.monotonic() < deadline:  # in short waits, so that Ctrl-C works
                pass
        except (KafkaException, SystemError) as error:
            failed = self._ended(error, topic)
        except RequestFailedError as error:  # the client lacks what the connection needs
            failed = RequestFailedError(f"{what}: {error}", retriable=False)
        return [one or failed or self._late(what) for one in results]

    def _ended(self, error: BaseException, topic: str) -> BrokerError:
        """Return why the client ended; the next message needs a new one."""
        from confluent_kafka import KafkaException

        cause = _cause(error)
        if cause is None or cause.name() == "_FATAL":  # it has not yet reported why
            try:
                self._producer.poll(_FLUSH_S)
            except (KafkaException, SystemError) as earlier:
                cause = _cause(earlier) or cause
        self._producer = None
        what = f"topic {topic} could not be written to"
        if cause is None:
            return RequestFailedError(f"{what}: the client ended and did not say why: run again", retriable=True)
        return self._error(cause, what, "WRITE", topic)

    def _check(self, topic: str) -> None:
        if topic not in self._topics:
            raise ValueError(f"this writer is for {', '.join(sorted(self._topics))}, not for {topic}")

    def _connected(self) -> Any:
        from confluent_kafka import Producer

        if self._producer is None:
            limit = int(self._timeout_s * 1000)
            self._producer = Producer(
                {
                    **self._settings.for_librdkafka(),
                    "enable.idempotence": True,  # and with it acks=all
                    "compression.type": "zstd",
                    "linger.ms": 2,
                    "message.timeout.ms": limit,
                    "topic.metadata.propagation.max.ms": min(limit, 2_000),  # so long an unknown topic may be a new one
                    "socket.connection.setup.timeout.ms": min(limit, 30_000),
                    "error_cb": self._hear,
                }
            )
        return self._producer

    def _hear(self, error: Any) -> None:
        """Keep the client's latest connection error: it explains why nothing arrives."""
        if error.name() != "_ALL_BROKERS_DOWN":
            self._heard = client_problem(error)

    def _error(self, cause: Any, what: str, operation: str, topic: str) -> BrokerError:
        text = self._settings.without_secrets(client_problem(cause, operation))
        match cause.name():
            case "TOPIC_AUTHORIZATION_FAILED" | "CLUSTER_AUTHORIZATION_FAILED":
                grant = grant_line(operation.replace("_", ""), "topic", topic)
                return UnauthorizedError(f"{what}: this user may not; grant it: {grant}")
            case "_AUTHENTICATION":
                return UnauthorizedError(f"{what}: the cluster refused the connection: {text}")
            case "UNKNOWN_TOPIC_OR_PART" | "_UNKNOWN_TOPIC" | "_UNKNOWN_PARTITION":
                self._producer = None  # it would keep that state even after the topic is created
                return RequestFailedError(
                    f"{what}: it does not exist: kretain cluster init creates it", retriable=False
                )
            case "_MSG_TIMED_OUT" | "_TIMED_OUT":
                text = self._no_answer()
        return RequestFailedError(f"{what}: {text}", retriable=bool(cause.retriable()))

    def _late(self, what: str) -> RequestFailedError:
        return RequestFailedError(f"{what}: {self._no_answer()}", retriable=True)

    def _late_after(self, deadline: float, what: str, _began: float) -> RequestFailedError | None:
        return self._late(what) if time.monotonic() > deadline else None

    def _no_answer(self) -> str:
        heard = f" ({self._settings.without_secrets(self._heard)})" if self._heard else ""
        return f"no answer within {self._timeout_s:g} s{heard}; are enough of its replicas in sync?"


def _cause(error: BaseException) -> Any:
    """Return the client's own error, None if it is another's.

    A fatal one is raised by the client; if delivery reports are pending, as the cause of a SystemError. On a busy
    machine that may have no cause (confluent-kafka 2.16).
    """
    from confluent_kafka import KafkaException

    cause = error if isinstance(error, KafkaException) else error.__cause__
    return cause.args[0] if isinstance(cause, KafkaException) else None
