"""One Ctrl-C ends a command, wherever it arrives; and a crash says on stderr where it was."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

LOST = """
import signal, sys, time, weakref
import kretain.__main__ as main
from kretain.options import common

class Thing:
    pass

def work():
    for _ in range({times}):
        thing = Thing()
        {kind}
        del thing
    time.sleep(20)  # it went on: the interrupt was lost
    raise SystemExit(77)

def command(*_args, **_kwargs):
    raise SystemExit(int(common.guarded(work, 0)))

import kretain.app
kretain.app.app = command
main.main()
"""
KINDS = {
    "a weak reference": "hold = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))",
    "a destructor": "Thing.__del__ = lambda _: signal.raise_signal(signal.SIGINT)",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 3])
def test_ctrl_c_where_python_ignores_it_is_not_lost(kind: str, times: int) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LOST.format(kind=KINDS[kind], times=times)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert "ignored" not in done.stderr
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("after_s", [0.4, 0.8, 1.2, 2.0])
def test_plan_with_a_silent_broker_ends_at_once_on_ctrl_c(after_s: float, silent_port: int) -> None:
    command = ["plan", "a", "--older-than", "1d", "-b", f"127.0.0.1:{silent_port}", "--timeout", "30s"]
    with subprocess.Popen([sys.executable, "-m", "kretain", *command], stderr=subprocess.PIPE, text=True) as running:
        time.sleep(after_s)
        running.send_signal(signal.SIGINT)
        began = time.monotonic()
        _out, err = running.communicate(timeout=60)
    assert running.returncode in (130, -signal.SIGINT), err  # the latter: before Python itself was up
    assert time.monotonic() - began < 10


@pytest.fixture(scope="module")
def silent_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


CRASH = """
import os, signal, kretain.app
def trim_a_partition(**_): os.kill(os.getpid(), signal.SIGSEGV)
kretain.app.app = trim_a_partition
from kretain.__main__ import main
main()
"""


def test_crash_names_its_place_and_keeps_its_signal() -> None:
    """A supervisor must see that it was one, and who looks for its cause needs more than that."""
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr
    assert "in trim_a_partition" in done.stderr
