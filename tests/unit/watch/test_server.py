"""``watch`` answers health checks while other clients misbehave."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest

from retention_cli.brokers.election import Candidate
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.watch import board as module
from retention_cli.watch.board import Board, Server
from retention_cli.watch.leader import Leadership


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server("127.0.0.1", 0, Board(300, lambda: True, lambda: True))
    yield made
    made.close()


def get(server: Server, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}{path}", timeout=3) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def answering() -> int:
    return sum(one.name == "kretain-http" for one in threading.enumerate())


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\nHost"], ids=["idle", "in a header"])
def test_idle_clients_do_not_block_health_checks(server: Server, said: bytes) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(200):
            peer = open_ones.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=5))
            peer.sendall(said)
        for _ in range(20):
            assert get(server, "/healthz")[0] == 200
            assert get(server, "/metrics")[0] == 200
        assert get(server, "/readyz")[0] == 503
        assert answering() <= 17


def test_dripping_client_is_disconnected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_S", 1.0)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as peer:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 5:
                peer.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() - began < 3


def test_client_that_reads_nothing_is_disconnected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_S", 1.0)

    def large(_environ: object, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        return iter([bytes(256 << 20)])  # more than sockets buffer

    server.set_app(large)  # (its own answers fit into a socket's buffer)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as peer:
        peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        began = time.monotonic()
        while not answering() and time.monotonic() < began + 3:
            time.sleep(0.01)
        time.sleep(0.3)
        assert answering(), "it writes"
        deadline = time.monotonic() + 5
        while answering() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not answering()


def test_metrics_request_for_the_leader_returns_only_that_metric(server: Server) -> None:
    status, text = get(server, "/metrics?name[]=kretain_leader")
    assert status == 200
    assert "\nkretain_leader{" in text
    assert "kretain_policy_valid" not in text


def test_election_connects_next_with_the_certificates_of_the_latest_pass() -> None:
    old, new = (ConnectionSettings("127.0.0.1:1", ca_pem=pem) for pem in ("old", "new"))
    leadership = Leadership("kretain-watch", lambda _text, _event="note", /, **_facts: None)
    leadership.candidate = Candidate(old, "kretain-watch", "cluster")
    leadership.look(ClusterReader(new, 1), "local")
    assert leadership.candidate.settings is new
