"""Brokers that are reached elsewhere, say little, or are none: it may cost neither memory nor patience."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kretain.embedded.node import free_ports
from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from tests.conftest import QUICK
from tests.support.clusters import EmbeddedKafka
from tests.support.world import World, reader_for, run_cli

ELSEWHERE = "kafka.invalid:9092"
COMMANDS = [("plan", "*", "--older-than", "1d"), ("doctor",), ("groups",)]


@pytest.fixture(scope="module")
def behind() -> Iterator[EmbeddedKafka]:
    """A broker whose second listener gives an address that no one knows."""
    (port,) = free_ports(1)
    settings = {**QUICK, "advertised.listeners": f"PLAIN://127.0.0.1:{port},SECURE://{ELSEWHERE}"}
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
    controller = f"127.0.0.1:{behind.nodes[0].ports[1]}"
    began = time.monotonic()
    done = run_cli("doctor", "-b", controller, "--timeout", "60s")
    assert time.monotonic() - began < 30
    assert (done.code, done.out) == (1, "")
    assert f"{controller} answered, but that port is a KRaft controller's" in done.err
    assert run_cli("groups", "-b", f"{controller},{behind.bootstrap}", "--timeout", "60s").code == 0


MOST_KIB = 900 * 1024
"""Of address space: a process without a thousand megabytes to spare."""


@pytest.mark.parametrize(
    "length",
    [1 << 30, 0x15030100, -1],
    ids=["a GiB", "a TLS alert", "less than nothing"],
)
def test_oversized_frame_length_is_refused_before_memory_is_allocated(length: int) -> None:
    def answer() -> None:
        while True:
            try:
                connection, _peer = server.accept()
                connection.recv(1 << 16)
                connection.sendall(struct.pack(">i", length) + bytes(1000))
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "kretain", "plan", "-b", address, "--timeout", "1s", "x", "--older-than", "1d"]
        limited = ["sh", "-c", f'ulimit -v {MOST_KIB}; exec "$@"', "sh", *command]
        done = subprocess.run(limited, capture_output=True, text=True, check=False)
        server.shutdown(socket.SHUT_RDWR)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"kretain: {address} could not be reached within 1 s: its answer is not a broker's, or far longer "
        f"than expected; is it a listener for PLAINTEXT?\n"
    )


def test_deadline_ends_a_run_like_ctrl_c() -> None:
    """``--timeout`` is one request's; against a broker that never answers, ``--deadline`` is the whole run's."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = run_cli("plan", "-b", address, "--timeout", "100s", "--deadline", "1s", "x", "--older-than", "1d")
    assert (done.code, done.out) == (130, "")
    assert done.err == "kretain: --deadline 1 s has passed\nkretain: interrupted\n"


GROUPS = [f"nobody-{number}" for number in range(90)]
"""They have no commits; each is handed over all the same."""


class Taken:
    """Takes groups, slowly; at the fifth it does something."""

    def __init__(self, at_fifth: Any) -> None:
        self.names: list[str] = []
        self.busy = False
        self._at_fifth = at_fifth

    def __call__(self, found: GroupCommits | CommitsUnknown) -> None:
        self.busy = True
        self.names.append(found.group)
        if len(self.names) == 5:
            self._at_fifth()
        time.sleep(0.02)
        self.busy = False


def _interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _fail() -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize(("at_fifth", "error"), [(_interrupt, KeyboardInterrupt), (_fail, OSError)])
def test_abandoned_read_hands_over_no_more_results(world: World, at_fifth: Any, error: type[BaseException]) -> None:
    """A caller closes its ledger then: while another thread uses it, SQLite ends the process with a SIGSEGV."""
    taken = Taken(at_fifth)
    with reader_for(world.bootstrap) as reader:
        with pytest.raises(error):
            reader.read_commits(GROUPS, taken)
        names = list(taken.names)
        assert not taken.busy or error is OSError
        time.sleep(0.5)
        assert taken.names == names
        assert 5 <= len(names) < len(GROUPS)
        again = Taken(lambda: None)
        reader.read_commits(GROUPS, again)  # the connections are as good as before
        assert sorted(again.names) == sorted(GROUPS)
