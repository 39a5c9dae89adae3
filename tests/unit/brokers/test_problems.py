"""What brokers, TLS and the Kafka clients say comes out in our words, with what to do, and never as it was."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import struct
import threading
from collections.abc import Iterator

import kafka.errors as kafka_errors
import pytest
from confluent_kafka import KafkaError

from retention_cli.brokers.errors import UnauthorizedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.wire.connections import Wire, _Heard, error_named
from retention_cli.brokers.wire.problems import LATE, client_problem, connection_problem, tls_problem
from tests.support.facts import known
from tests.support.says import refusal

VERIFY = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {} (_ssl.c:1006)"
THEIRS = re.compile(r"_ssl|\[SSL|error:0A|Exception|Error\b|Broker:")


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        (VERIFY.format("unable to get local issuer certificate"), "is signed by a CA that is not trusted here"),
        (VERIFY.format("self-signed certificate in certificate chain"), "is signed by a CA that is not trusted here"),
        (
            VERIFY.format("Hostname mismatch, certificate is not valid for 'b'."),
            "is for another name than this address",
        ),
        (
            VERIFY.format("IP address mismatch, certificate is not valid for '127.0.0.1'."),
            "is for another name than this address",
        ),
        (VERIFY.format("certificate has expired"), "has expired: renew it"),
        (VERIFY.format("certificate is not yet valid"), "not valid yet"),
        (VERIFY.format("path length constraint exceeded"), "is not accepted here"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "does not speak TLS there"),
        ("[SSL] record layer failure (_ssl.c:1006)", "security.protocol PLAINTEXT"),
        ("[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version (_ssl.c:1006)", "does not speak TLS 1.2"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "it wants a client certificate"),
        (
            "[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate (_ssl.c:2580)",
            "it wants a client certificate",
        ),
        (
            "EOF occurred in violation of protocol (_ssl.c:1006)",
            "either this is no listener for TLS, or it wants a client",
        ),
    ],
)
def test_tls_error_is_reported_in_our_words(said: str, ours: str) -> None:
    found = connection_problem(kafka_errors.KafkaConnectionError(said))
    assert (ours in found, THEIRS.search(found)) == (True, None), found


def test_tls_problem_names_only_the_settings_in_use() -> None:
    alert = "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)"
    assert "refused the client certificate" in known(tls_problem(alert, sends_ours=True))
    assert "security.protocol SASL_PLAINTEXT" in known(tls_problem("wrong version number", sasl=True))
    assert tls_problem("something new") is None


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (
            kafka_errors.SaslAuthenticationFailedError("Authentication failed: Invalid username or password"),
            "it did not accept the user or the password by PLAIN: are sasl.username and sasl.password right?",
        ),
        (
            kafka_errors.UnsupportedSaslMechanismError(
                "Kafka broker does not support PLAIN sasl mechanism. Enabled mechanisms: ['SCRAM-SHA-256', 'GSSAPI']"
            ),
            "it does not offer sasl.mechanism PLAIN; it has GSSAPI, SCRAM-SHA-256",
        ),
        (
            kafka_errors.IllegalSaslStateError(),
            "its listener asks for no user and password: use security.protocol PLAINTEXT, or its port for SASL",
        ),
        (kafka_errors.KafkaConnectionError("111 ECONNREFUSED"), "connection refused"),
        (
            kafka_errors.KafkaConnectionError("DNS lookup failed for nowhere:9092, gaierror(-2, 'Name or …')"),
            "cannot resolve its host name: check the name and DNS",
        ),
        (kafka_errors.KafkaTimeoutError("Request timed out after 2997 ms"), "no answer came in time"),
        (kafka_errors.NodeNotReadyError("3"), "broker 3 can't be reached"),
        (kafka_errors.UnknownBrokerIdError(3), "broker 3 is down: the cluster does not list it"),
    ],
)
def test_connection_error_is_reported_in_our_words(error: Exception, ours: str) -> None:
    assert connection_problem(error, "PLAIN") == ours


@pytest.mark.parametrize(
    ("code", "needs", "ours"),
    [
        (29, "DELETE", "this user needs DELETE on the topic (TOPIC_AUTHORIZATION_FAILED)"),
        (30, "READ", "this user needs READ on the group (GROUP_AUTHORIZATION_FAILED)"),
        (31, "DESCRIBE", "this user needs DESCRIBE on the cluster (CLUSTER_AUTHORIZATION_FAILED)"),
        (1, "READ", "the log does not have that offset (OFFSET_OUT_OF_RANGE)"),
        (3, "READ", "it does not exist, or this user may not DESCRIBE it (UNKNOWN_TOPIC_OR_PARTITION)"),
        (22, "READ", "ILLEGAL_GENERATION (The broker's.)"),
    ],
)
def test_broker_error_code_is_reported_in_our_words(code: int, needs: str, ours: str) -> None:
    error = known(error_named(code, "The broker's.", needs=needs))
    assert (str(error), error.code, error.answered) == (ours, re.findall(r"[A-Z_]{9,}", ours)[-1], True)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("_TRANSPORT", "the connection to the broker broke"),
        ("_AUTO_OFFSET_RESET", "the log does not have that offset"),
        ("TOPIC_AUTHORIZATION_FAILED", "this user needs READ on the topic (TOPIC_AUTHORIZATION_FAILED)"),
        ("NOT_LEADER_FOR_PARTITION", "its leader has just changed (NOT_LEADER_FOR_PARTITION)"),
    ],
)
def test_librdkafka_error_is_reported_in_our_words(name: str, ours: str) -> None:
    assert client_problem(KafkaError(getattr(KafkaError, name))) == ours


# -- what is said of a cluster that can't be reached: of several attempts, what tells most --


GONE = kafka_errors.KafkaConnectionError("socket disconnected")
TIME_IS_UP = kafka_errors.KafkaTimeoutError("timed out")
PORT_CLOSED = kafka_errors.KafkaConnectionError("111 ECONNREFUSED")


def heard(bootstrap: str, level: int, text: str, *attempts: tuple[object, ...]) -> _Heard:
    """Return what is heard of a client that logs this of each attempt."""
    found = _Heard(ConnectionSettings(bootstrap))
    for arguments in attempts:
        found.emit(logging.LogRecord("kafka", level, "", 0, text, arguments, None))
    return found


@pytest.mark.parametrize(
    ("errors", "last", "refused"),
    [
        ([TIME_IS_UP], LATE, False),
        ([GONE, TIME_IS_UP], "socket disconnected", False),
        ([TIME_IS_UP, GONE], "socket disconnected", False),
        ([GONE, kafka_errors.SaslAuthenticationFailedError("no"), TIME_IS_UP], "did not accept the user", True),
    ],
    ids=["late", "the last is late", "the first is late", "refused"],
)
def test_late_attempt_does_not_hide_the_reason_of_another(errors: list[Exception], last: str, refused: bool) -> None:
    found = heard("h:1", logging.ERROR, "%s", *((error,) for error in errors))
    assert last in known(found.last)
    assert (found.refusal is not None) is refused


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
    assert heard("h:1,h:2", logging.WARNING, "%s failed: %s", *attempts).nowhere is nowhere


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


# -- a broker that refuses a user answers and hangs up at once: the answer counts, also where both arrive together --


API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
UNSUPPORTED_VERSION, SASL_AUTHENTICATION_FAILED = 35, 58


def refuse(connection: socket.socket) -> None:
    """Answer as a broker that refuses every client, and hang up at once."""
    offered = ((API_VERSIONS, 0, 0), (HANDSHAKE, 0, 1), (AUTHENTICATE, 0, 1), (3, 0, 9))
    ranges = b"".join(struct.pack(">hhh", *one) for one in offered)
    bodies = {
        HANDSHAKE: struct.pack(">hih", 0, 1, 5) + b"PLAIN",
        AUTHENTICATE: struct.pack(">hh", SASL_AUTHENTICATION_FAILED, 2) + b"no" + struct.pack(">iq", 0, 0),
    }
    key = None
    with connection, connection.makefile("rb") as asked, contextlib.suppress(struct.error, OSError):
        while key != AUTHENTICATE:
            (size,) = struct.unpack(">i", asked.read(4))
            key, version, number = struct.unpack(">hhi", asked.read(size)[:8])
            versions = struct.pack(">hi", UNSUPPORTED_VERSION if version else 0, len(offered)) + ranges
            body = bodies.get(key, versions)
            connection.sendall(struct.pack(">ii", 4 + len(body), number) + body)


@pytest.fixture
def refusing() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=refuse, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_refusal_right_before_the_end_of_the_connection_is_heard(refusing: str) -> None:
    settings = ConnectionSettings(refusing, "SASL_PLAINTEXT", "PLAIN", "ada", "wrong")
    for _ in range(10):  # the first connection can lose the race, too
        said = refusal(UnauthorizedError, ClusterReader(settings, 1.0).__enter__)
        assert "did not accept the user or the password" in said
