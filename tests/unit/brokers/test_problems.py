"""What brokers, TLS and the Kafka clients say comes out in our words, with what to do, and never as it was."""

from __future__ import annotations

import re

import kafka.errors as kafka_errors
import pytest
from confluent_kafka import KafkaError

from retention_cli.brokers.wire.connections import error_named
from retention_cli.brokers.wire.problems import client_problem, connection_problem, tls_problem

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
        ("[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version (_ssl.c:1006)", "no TLS from 1.2 on"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "it wants a client certificate"),
        (
            "[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate (_ssl.c:2580)",
            "it wants a client certificate",
        ),
        ("EOF occurred in violation of protocol (_ssl.c:1006)", "ended the TLS handshake"),
    ],
)
def test_tls_error_is_reported_in_our_words(said: str, ours: str) -> None:
    found = connection_problem(kafka_errors.KafkaConnectionError(said))
    assert ours in found
    assert THEIRS.search(found) is None


def test_tls_problem_names_only_the_settings_in_use() -> None:
    alert = "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)"
    assert "refused the client certificate" in (tls_problem(alert, sends_ours=True) or "")
    assert "security.protocol SASL_PLAINTEXT" in (tls_problem("wrong version number", sasl=True) or "")
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
    error = error_named(code, "The broker's.", needs=needs)
    assert error is not None
    assert str(error) == ours
    assert error.code == re.findall(r"[A-Z_]{9,}", ours)[-1]
    assert error.answered


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
