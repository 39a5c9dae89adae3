"""What is said of a cluster that can't be reached: of several attempts, what tells most."""

from __future__ import annotations

import logging
import threading

import kafka.errors as kafka_errors
import pytest

from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.wire.connections import Wire, _Heard
from retention_cli.brokers.wire.problems import LATE

GONE = kafka_errors.KafkaConnectionError("socket disconnected")
TIME_IS_UP = kafka_errors.KafkaTimeoutError("timed out")
PORT_CLOSED = kafka_errors.KafkaConnectionError("111 ECONNREFUSED")
REFUSED = kafka_errors.SaslAuthenticationFailedError("no")


@pytest.mark.parametrize(
    ("errors", "last", "refused"),
    [
        ([TIME_IS_UP], LATE, False),
        ([GONE, TIME_IS_UP], "socket disconnected", False),
        ([TIME_IS_UP, GONE], "socket disconnected", False),
        ([GONE, REFUSED, TIME_IS_UP], "did not accept the user", True),
    ],
    ids=["late", "the last is late", "the first is late", "refused"],
)
def test_late_attempt_does_not_hide_the_reason_of_another(errors: list[Exception], last: str, refused: bool) -> None:
    heard = _Heard(ConnectionSettings("h:1"))
    for error in errors:
        heard.emit(logging.LogRecord("kafka", logging.ERROR, "", 0, "%s", (error,), None))
    assert heard.last is not None
    assert last in heard.last
    assert (heard.refusal is not None) is refused


@pytest.mark.parametrize(
    ("attempts", "nowhere"),
    [
        ((("bootstrap-0", PORT_CLOSED),), False),
        ((("bootstrap-0", PORT_CLOSED), ("bootstrap-0", PORT_CLOSED)), False),
        ((("bootstrap-0", PORT_CLOSED), ("bootstrap-1", PORT_CLOSED)), True),
        ((("bootstrap-0", PORT_CLOSED), ("bootstrap-1", TIME_IS_UP)), False),
        ((("bootstrap-0", TIME_IS_UP), ("bootstrap-1", PORT_CLOSED), ("bootstrap-0", PORT_CLOSED)), True),
        ((("bootstrap-0", PORT_CLOSED), ("bootstrap-1", PORT_CLOSED), ("bootstrap-1", GONE)), False),
    ],
    ids=["one of two", "the same twice", "both", "the other is late", "both, at last", "the other hangs up by now"],
)
def test_cluster_is_nowhere_only_if_every_address_refuses(
    attempts: tuple[tuple[str, Exception], ...], nowhere: bool
) -> None:
    heard = _Heard(ConnectionSettings("h:1,h:2"))
    for address, error in attempts:
        heard.emit(logging.LogRecord("kafka", logging.WARNING, "", 0, "%s failed: %s", (address, error), None))
    assert heard.nowhere is nowhere


def test_connection_opens_while_the_logging_lock_is_taken() -> None:
    """Before Python 3.13 a Ctrl-C can leave it taken; no connection came about any more in that notebook."""

    def connect() -> None:
        Wire(ConnectionSettings("h:1"), 1.0).close()

    connect()  # the first one sets the client's log up
    other = threading.Thread(target=connect, daemon=True)
    with logging._lock:  # type: ignore[attr-defined]  # noqa: SLF001  (it has no other name)
        other.start()
        other.join(20)
        assert not other.is_alive()
