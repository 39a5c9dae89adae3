"""Addresses that are not what they seem: brokers whose own addresses lead nowhere from here, and a controller's port."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kretain.embedded import EmbeddedKafka
from kretain.embedded.node import free_ports
from tests.conftest import QUICK
from tests.support.world import run_cli

ELSEWHERE = "kafka.invalid:9092"
COMMANDS = [("plan", "*", "--older-than", "1d"), ("doctor",), ("groups",)]


@pytest.fixture(scope="module")
def behind() -> Iterator[EmbeddedKafka]:
    """A broker whose second listener gives an address that no one knows."""
    (port,) = free_ports(1)
    advertised = f"PLAIN://127.0.0.1:{port},SECURE://{ELSEWHERE}"
    settings = {**QUICK, "advertised.listeners": advertised}
    with EmbeddedKafka(1, ports=[port], secure_protocol="PLAINTEXT", settings=settings) as kafka:
        yield kafka


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_unreachable_advertised_address_is_named(behind: EmbeddedKafka, command: tuple[str, ...]) -> None:
    done = run_cli(*command, "-b", behind.secure_bootstrap, "--timeout", "2s")
    assert (done.code, done.out) == (1, "")
    assert f"{behind.secure_bootstrap} answered, but no broker did" in done.err
    assert f"at the addresses they give: {ELSEWHERE} (cannot resolve its host name" in done.err
    assert "advertised.listeners" in done.err


def test_controller_port_is_recognised_at_once(behind: EmbeddedKafka) -> None:
    controller = f"127.0.0.1:{behind.nodes[0].controller_port}"
    began = time.monotonic()
    done = run_cli("doctor", "-b", controller, "--timeout", "60s")
    assert time.monotonic() - began < 30
    assert (done.code, done.out) == (1, "")
    assert f"{controller} answered, but that port is a KRaft controller's" in done.err
    assert run_cli("groups", "-b", f"{controller},{behind.bootstrap}", "--timeout", "60s").code == 0
