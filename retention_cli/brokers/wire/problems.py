"""What brokers, TLS and the two Kafka clients say when something fails: what happened, what to do. Pure.

What people meet has our words; the rest is passed on. A text from our tables ends in the protocol's own name in
parentheses, where it has one: that is what to search for.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from typing import Any, Final

import kafka.errors as kafka_errors

from retention_cli.brokers.security.sasl_settings import WHAT

NO_ANSWER: Final = "its answer is not a broker's, or far longer than expected"
LATE: Final = "no answer came in time"
NO_LISTENER: Final = os.strerror(errno.ECONNREFUSED).lower()
"""No process listens at that address."""
CONTROLLER: Final = "that port is a KRaft controller's, which serves no clients: use a broker's port"
_GONE: Final = "it does not exist, or this user may not DESCRIBE it"
_CODES: Final[Mapping[str, str]] = {
    "OFFSET_OUT_OF_RANGE": "the log does not have that offset",
    "UNKNOWN_TOPIC_OR_PARTITION": _GONE,
    "UNKNOWN_TOPIC_OR_PART": _GONE,
    "LEADER_NOT_AVAILABLE": "it has no leader at the moment",
    "NOT_LEADER_FOR_PARTITION": "its leader has just changed",
    "REQUEST_TIMED_OUT": "the broker did not finish in time",
    "NOT_ENOUGH_REPLICAS": "too few of its replicas are in sync",
    "COORDINATOR_NOT_AVAILABLE": "the group's coordinator is not available",
    "NOT_COORDINATOR": "the group's coordinator has just changed",
    "UNSUPPORTED_VERSION": "the broker is too old for this request",
    "SECURITY_DISABLED": "the brokers have no authorizer",
    "INVALID_REPLICATION_FACTOR": "there are fewer brokers than the requested replicas",
    "POLICY_VIOLATION": "a policy of the brokers forbids it; deleting records needs cleanup.policy with delete",
    "KAFKA_STORAGE_ERROR": "the broker can't use the disk it is on",
    "THROTTLING_QUOTA_EXCEEDED": "the broker throttles this user: try again later",
}
_RESOURCES: Final[Mapping[str, str]] = {
    "TOPIC_AUTHORIZATION_FAILED": "topic",
    "GROUP_AUTHORIZATION_FAILED": "group",
    "CLUSTER_AUTHORIZATION_FAILED": "cluster",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "transactional id",
}
_LOCAL: Final[Mapping[str, str]] = {
    "_TRANSPORT": "the connection to the broker broke",
    "_RESOLVE": "cannot resolve the broker's host name",
    "_TIMED_OUT": LATE,
    "_MSG_TIMED_OUT": LATE,
    "_ALL_BROKERS_DOWN": "no broker can be reached",
    "_AUTHENTICATION": "the brokers did not accept the user or the password",
    "_UNKNOWN_TOPIC": _GONE,
    "_UNSUPPORTED_FEATURE": "the brokers lack a required API: kretain doctor names it",
    "_AUTO_OFFSET_RESET": "the log does not have that offset",
}
"""librdkafka's own errors."""
_ANOTHER_CA: Final = (
    "the broker's certificate is signed by a CA that is not trusted here: name its CA (ssl.ca.location or "
    "ssl.truststore.location)"
)
_ANOTHER_NAME: Final = (
    "the broker's certificate is for another name than this address: connect by a name that is in it, or have it "
    "issued for this one (ssl.endpoint.identification.algorithm=none turns the check off)"
)
_WANTS_OURS: Final = "it wants a client certificate (ssl.certificate.location or ssl.keystore.location)"
_REFUSES_OURS: Final = "the broker refused the client certificate: is it signed by a CA that the broker trusts?"
_PLAIN: Final = "the broker does not speak TLS there: use its port for TLS, or security.protocol {plain}"
_TLS: Final = (
    ("hostname mismatch", _ANOTHER_NAME),
    ("ip address mismatch", _ANOTHER_NAME),
    ("self-signed certificate", _ANOTHER_CA),
    ("self signed certificate", _ANOTHER_CA),
    ("issuer certificate", _ANOTHER_CA),
    ("certificate has expired", "the broker's certificate has expired: renew it, or correct this machine's clock"),
    ("not yet valid", "the broker's certificate is not valid yet: is this machine's clock right?"),
    ("certificate verify failed", "the broker's certificate is not accepted here: check its CA, names and dates"),
    ("certificate required", _WANTS_OURS),
    ("certificate expired", "{ours}: has it expired?"),
    ("bad certificate", "{ours}"),
    ("unknown ca", "{ours}"),
    ("certificate unknown", "{ours}"),
    ("wrong version number", _PLAIN),
    ("record layer failure", _PLAIN),
    ("packet length too long", _PLAIN),
    ("protocol version", "the broker does not speak TLS 1.2 or later: enable it there (ssl.enabled.protocols)"),
    ("eof occurred", "the broker ended the TLS handshake: either this is no listener for TLS, or {ours}"),
    ("unexpected eof", "the broker ended the TLS handshake: either this is no listener for TLS, or {ours}"),
)
"""What OpenSSL says (in lower case, blanks for underscores), and what we say: the first that fits."""


def code_problem(name: str, needs: str, message: str | None = None) -> str:
    """Return what an error code of the protocol means.

    Args:
        name: the protocol's name of it.
        needs: the operation that the user must be allowed for this request, such as DESCRIBE.
        message: the broker's or the client's text, for codes that have none here.
    """
    if (resource := _RESOURCES.get(name)) is not None:
        return f"this user needs {needs} on the {resource} ({name})"
    if (text := _CODES.get(name)) is not None:
        return f"{text} ({name})"
    return f"{name} ({message})" if message else name


def client_problem(error: Any, needs: str = "READ") -> str:
    """Return what an error of librdkafka (a KafkaError) means, in one line."""
    name, text = str(error.name()), " ".join(str(error.str()).split())
    if name in _LOCAL:
        return _LOCAL[name]
    if name == "_SSL":
        return tls_problem(text) or "the TLS connection failed"
    known = code_problem(name, needs)
    return text if known == name else known


def may_pass(error: Any) -> bool:
    """Return whether an error of librdkafka may pass by itself: an empty cluster's coordinators come a moment later."""
    moving = ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE")
    return bool(error.retriable()) or error.name() in moving


def tls_problem(error_text: str, *, sends_ours: bool = False, sasl: bool = False) -> str | None:
    """Return what an error of OpenSSL means, None if it is none of those that have words here.

    Args:
        error_text: its text.
        sends_ours: whether a client certificate is configured.
        sasl: whether user and password are.
    """
    lower = error_text.lower().replace("_", " ")
    if (text := next((ours for theirs, ours in _TLS if theirs in lower), None)) is None:
        return None
    return text.format(
        plain="SASL_PLAINTEXT" if sasl else "PLAINTEXT", ours=_REFUSES_OURS if sends_ours else _WANTS_OURS
    )


def _not_accepted(text: str, mechanism: str | None, *, aws: bool) -> str:
    if aws:
        return "it did not accept the AWS credentials: do they allow kafka-cluster:Connect, and is this clock right?"
    if WHAT in text:  # we did not send a ticket
        return text[text.index(WHAT) :]
    if mechanism == "GSSAPI":
        return (
            "it did not accept the Kerberos ticket: is its keytab that of the service in the KDC, and are the clocks "
            "of this machine, the KDC and the broker right?"
        )
    if mechanism == "OAUTHBEARER":
        return "it did not accept the token: is it meant for this cluster, and does it know who issued it?"
    by = f" by {mechanism}" if mechanism else ""
    return f"it did not accept the user or the password{by}: are sasl.username and sasl.password right?"


def connection_problem(
    error: BaseException,
    mechanism: str | None = None,
    *,
    tls: bool = False,
    sends_ours: bool = False,
    aws: bool = False,
) -> str:
    """Return why a connection or a request failed, from kafka-python's error.

    Args:
        error: its error.
        mechanism: the SASL mechanism that is configured.
        tls: whether TLS is.
        sends_ours: whether a client certificate is.
        aws: whether AWS credentials are.
    """
    text = " ".join(str(error).split())
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        return _not_accepted(text, mechanism, aws=aws)
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        offered = re.findall(r"[A-Z][A-Z0-9-]{2,}", text.rpartition("mechanisms:")[2])
        has = f"; it has {', '.join(sorted(set(offered)))}" if "mechanisms:" in text and offered else ""
        return f"it does not offer sasl.mechanism {mechanism or 'as configured'}{has}"
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return (
            f"its listener asks for no user and password: use security.protocol {'SSL' if tls else 'PLAINTEXT'}, or "
            f"its port for SASL"
        )
    if isinstance(error, kafka_errors.InvalidReceiveError):
        return NO_ANSWER
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion) and "MetadataRequest" in text:
        return CONTROLLER
    if (why := tls_problem(text, sends_ours=sends_ours, sasl=mechanism is not None)) is not None:
        return why
    if isinstance(error, kafka_errors.KafkaTimeoutError) or "timed out" in text.lower():  # the client's own
        return LATE
    if "DNS" in text:
        return "cannot resolve its host name: check the name and DNS"
    return _in_short(error, text)


def _in_short(error: BaseException, text: str) -> str:
    """Return an error's own text without the client's prefixes."""
    text = text.removeprefix(f"[Error {getattr(error, 'errno', '')}] ")
    for noise in ("KafkaConnectionError: ", f"{type(error).__name__}: "):
        text = text.removeprefix(noise)
    if isinstance(error, kafka_errors.NodeNotReadyError):
        return f"broker {text} can't be reached" if text.isdigit() else "no broker can be reached"
    if isinstance(error, kafka_errors.UnknownBrokerIdError):
        return f"broker {text} is down: the cluster does not list it"
    if match := re.fullmatch(r"(\d+) E[A-Z]+", text):  # 111 ECONNREFUSED
        text = os.strerror(int(match[1])).lower()
    return text or "no answer"


def missing_api(error: kafka_errors.IncompatibleBrokerVersion) -> str:
    """Return which API a broker does not offer."""
    name = re.search(r"'(\w+?)(Request)?'", str(error))
    called = "this request" if name is None else name[1]
    offered = "" if "does not support" in str(error) else " in a version that fits"
    return f"the broker does not offer {called}{offered}"
