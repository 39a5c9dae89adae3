"""The client certificate is replaced under a running ``kretain watch``, as a short-lived one is every few hours."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as ser

from kretain.embedded import EmbeddedKafka
from tests.conftest import QUICK
from tests.support.client_files import properties
from tests.support.java_stores import PEM, key_pem, pair, self_signed
from tests.support.watching import policy_of, watching
from tests.support.world import HOUR, World, wait_until

OLD, NEW, STRANGER = 1, 2, 3


def both(number: int) -> str:
    key = pair(number)[0].private_bytes(PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption())
    return self_signed(number) + key.decode()


@pytest.mark.long
def test_watch_goes_on_with_a_certificate_that_is_replaced_while_it_runs(
    tmp_path: Path, archived_classes: None
) -> None:
    """Also its election does: the broker comes back, and knows the old certificate no more."""
    trusted, ours, ca = (tmp_path / name for name in ("trusted.pem", "ours.pem", "ca.pem"))
    (tmp_path / "broker.pem").write_text(self_signed() + key_pem())
    ca.write_text(self_signed())
    trusted.write_text(self_signed(OLD))
    ours.write_text(both(OLD))
    listener = "listener.name.secure.ssl"
    settings = QUICK | {
        f"{listener}.client.auth": "required",
        f"{listener}.keystore.type": "PEM",
        f"{listener}.keystore.location": str(tmp_path / "broker.pem"),
        f"{listener}.truststore.type": "PEM",
        f"{listener}.truststore.location": str(trusted),
    }
    config = properties(
        tmp_path,
        security_protocol="SSL",
        ssl_ca_location=ca,
        ssl_keystore_type="PEM",
        ssl_keystore_location=ours,
    )
    with EmbeddedKafka(1, settings=settings, secure_protocol="SSL") as kafka:
        world = World(kafka.bootstrap, tmp_path / "a" / "state")
        world.cli("cluster", "init", "--yes", check=0)
        topic = world.filled([30 * HOUR] * 10, {"a": 7})
        policy = policy_of(world, topic)
        secure = World(kafka.secure_bootstrap, world.state_dir)
        given = ("-c", str(config), "--trim", "--interval", "1s", "--timeout", "3s")
        with watching(secure, policy, *given) as watcher:
            watcher.wait_for("trimmed 7 records")
            ours.write_text(both(STRANGER))
            watcher.wait_for("the broker refused the client certificate")
            ours.write_text(both(OLD)[:-200])
            watcher.wait_for("the certificates or the key of the connection can't be used")
            kafka.node(1).terminate()
            trusted.write_text(self_signed(NEW))
            ours.write_text(both(NEW))
            kafka.start_node(kafka.node(1))
            kafka.wait_until_ready()
            world.commit(f"{topic}-a", topic, 9)
            watcher.wait_for("trimmed 2 records", 60)
            wait_until(lambda: watcher.metrics().get(("kretain_leader",)) == 1, "a leader", 20)
            assert watcher.end() == 0
