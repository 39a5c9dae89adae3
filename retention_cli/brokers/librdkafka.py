"""What every client of confluent-kafka has in common: its connection, silence, and errors without secrets."""

from __future__ import annotations

import logging
from typing import Any, Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.security.settings import MASK, ConnectionSettings

NO_KERBEROS: Final = (
    "records can't be read or written over Kerberos (confluent-kafka lacks it): use a listener for SCRAM or TLS"
)


def quiet_client(settings: ConnectionSettings) -> dict[str, Any]:
    """Return the settings of a client that prints nothing: errors are reported where they matter.

    Raises:
        RequestFailedError: the connection is by Kerberos.
    """
    if settings.kerberos is not None:
        raise RequestFailedError(NO_KERBEROS, retriable=False)
    quiet = logging.getLogger("retention_cli.brokers.librdkafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    return {**settings.for_librdkafka(), "log_level": 0, "logger": quiet}


def without_secrets(said: object, settings: ConnectionSettings) -> str:
    """Return an error's text in one line, without the connection's secrets."""
    text = " ".join(str(said).split())
    for secret in settings.secrets():
        text = text.replace(" ".join(secret.split()), MASK)
    return text
