"""What every client of confluent-kafka has in common: its connection, silence, and errors without secrets."""

from __future__ import annotations

import logging
from typing import Any

from retention_cli.brokers.security.settings import MASK, ConnectionSettings


def quiet_client(settings: ConnectionSettings) -> dict[str, Any]:
    """Return the settings of a client that prints nothing: errors are reported where they matter."""
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
