"""Client files, and what the connection settings make of them."""

from __future__ import annotations

from pathlib import Path

from retention_cli.brokers.errors import SettingsError
from retention_cli.brokers.security.client_files import (
    Setting,
    translate,
)
from retention_cli.brokers.security.settings import ConnectionSettings
from tests.support.refusals import refusal


def properties(tmp_path: Path, **settings: object) -> Path:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in settings.items()))
    return path


SECRET = "s3cret!"


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


def of(keys: dict[str, str]) -> ConnectionSettings:
    return translate(
        {key: Setting(value, "client.properties") for key, value in {"bootstrap.servers": "h:9092", **keys}.items()}
    )


def refused(keys: dict[str, str]) -> str:
    text = refusal(SettingsError, of, keys)
    assert "\n" not in text
    return text
