"""What answers on a broker's port, and is none: it may cost neither memory nor patience."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading

import pytest

from tests.support.world import run_cli

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
    assert done.err == "kretain: --deadline 1 s is over\nkretain: interrupted\n"
