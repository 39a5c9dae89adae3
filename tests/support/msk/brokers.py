"""A broker whose second listener checks IAM identities as MSK's does, and what aws-msk-iam-auth sends to one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kretain.embedded import jars
from tests.support.client_files import pkcs12_store, self_signed
from tests.support.clusters import EmbeddedKafka

LIBRARY: Final = "2.3.5"
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AKIDKRETAIN", "s3cret/key+of=kretain", "session/token+of=kretain"
REGION: Final = "eu-central-1"
SESSION_MS: Final = 3000
_STORE: Final = "st0re-s3cret"


class MskKafka(EmbeddedKafka):
    """One node. ``ca.pem`` in ``folder`` is what clients of its second listener trust."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.ca = folder / "ca.pem"
        self.ca.write_text(self_signed())
        (folder / "broker.p12").write_bytes(pkcs12_store(_STORE, key=True))
        listener = "listener.name.secure"
        bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        more = {
            f"{listener}.ssl.keystore.location": str(folder / "broker.p12"),
            f"{listener}.ssl.keystore.type": "PKCS12",
            f"{listener}.ssl.keystore.password": _STORE,
            f"{listener}.ssl.key.password": _STORE,
            f"{listener}.sasl.enabled.mechanisms": "AWS_MSK_IAM,OAUTHBEARER",
            f"{listener}.aws_msk_iam.sasl.jaas.config": "MskListener$Login required;",
            f"{listener}.oauthbearer.sasl.jaas.config": f"{bearer} required;",
            f"{listener}.oauthbearer.sasl.server.callback.handler.class": "MskListener$Tokens",
            f"{listener}.connections.max.reauth.ms": str(SESSION_MS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{ACCESS_KEY}",
        }
        super().__init__(1, settings={**settings, **more}, secure_protocol="SASL_SSL")
        self._classes = compiled("MskListener", super().class_path(), folder)

    def class_path(self) -> str:
        return f"{super().class_path()}{os.pathsep}{self._classes}"


def sent_by_java(classes: str, host: str, keys: tuple[str, str, str], now: str) -> tuple[str, str, str]:
    """Return the library's user agent, AWS_MSK_IAM's payload and OAUTHBEARER's token for a host, at an instant."""
    command = [str(jars.find_java()), "-cp", classes, "MskSigner", host, *keys, now]
    agent, payload, token = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return agent, payload, token


def signer_classes(folder: Path) -> str:
    """Return the class path with the library, and with what calls it."""
    kafka = jars.resolve("kafka_2.13", jars.DEFAULT_VERSION, print)
    library = jars.resolve("aws-msk-iam-auth", LIBRARY, print, group="software.amazon.msk")
    path = f"{library}/*{os.pathsep}{kafka}/*"
    return f"{compiled('MskSigner', path, folder)}{os.pathsep}{path}"


def compiled(name: str, class_path: str, folder: Path) -> Path:
    """Return a folder with the classes of one of this folder's Java sources."""
    beside = jars.find_java().resolve().with_name("javac")
    compiler = str(beside) if beside.exists() else shutil.which("javac")
    assert compiler is not None, "javac is needed for these tests"
    source = str(Path(__file__).with_name(f"{name}.java"))
    subprocess.run([compiler, "-nowarn", "-d", str(folder), "-cp", class_path, source], check=True, capture_output=True)
    return folder
