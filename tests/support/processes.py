"""``kretain`` as a process of its own: cold, or forked from a warm interpreter (``tests/support/fork_server.py``)."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.support import fork_server

_COLD = ("PYTHON", "LC_", "LANG")
"""Variables that an interpreter reads when it starts: who sets one needs a cold start."""


@functools.cache
def _server() -> str:
    """Start this session's server, once; return its socket's path. It ends with us."""
    session = contextlib.ExitStack()
    path = str(Path(session.enter_context(tempfile.TemporaryDirectory(prefix="kretain-forks-"))) / "socket")
    process = subprocess.Popen(
        [sys.executable, fork_server.__file__, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={key: value for key, value in os.environ.items() if not key.startswith("KRETAIN_")},
        start_new_session=True,
    )
    session.enter_context(process)  # at the end its stdin is closed, and it is waited for
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    atexit.register(session.close)
    return path


def run(
    arguments: Sequence[str],
    *,
    stdin: IO[bytes] | int,
    stdout: IO[bytes],
    stderr: IO[bytes],
    environ: Mapping[str, str],
) -> int:
    """Run ``kretain`` with these arguments and exactly this environment; return its exit code.

    Raises:
        TimeoutError: it took longer than 240 s; it is killed.
    """
    if any(key.startswith(_COLD) and os.environ.get(key) != value for key, value in environ.items()):
        command = [sys.executable, "-m", "kretain", *arguments]
        return subprocess.run(
            command, stdin=stdin, stdout=stdout, stderr=stderr, env=environ, timeout=240, check=False
        ).returncode
    streams = [one if isinstance(one, int) else one.fileno() for one in (stdin, stdout, stderr)]
    return _fork(_server(), arguments, streams, environ)


def on_path(folder: Path) -> None:
    """Put a ``kretain`` into a folder, for scripts to find there: it is forked like those of :func:`run`."""
    lines = (
        f"#!{sys.executable} -S",
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})",
        f"from tests.support import processes; sys.exit(processes.forked({_server()!r}))",
    )
    shim = folder / "kretain"
    shim.write_text("\n".join(lines) + "\n", encoding="utf-8")
    shim.chmod(0o755)


def forked(server: str) -> int:
    """Be ``kretain``: fork it with this process's arguments, streams and environment; return its exit code."""
    return _fork(server, sys.argv[1:], [0, 1, 2], os.environ)


def _fork(server: str, arguments: Sequence[str], streams: Sequence[int], environ: Mapping[str, str]) -> int:
    request = json.dumps({"arguments": list(arguments), "environ": dict(environ), "cwd": str(Path.cwd())}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(240)
        caller.connect(server)
        socket.send_fds(caller, [len(request).to_bytes(8, "big")], list(streams))
        caller.sendall(request)
        with caller.makefile("r") as answers:
            pid = int(answers.readline())
            try:
                return int(answers.readline())
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                raise


@contextlib.contextmanager
def beside(command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a folder, what it says goes to ``log`` there; kill it at the end."""
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def port_of(process: subprocess.Popen[bytes], folder: Path) -> int:
    """Wait until it listens; return its port, as the kernel knows it."""
    import psutil

    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None, (folder / "log").read_text()
        for one in psutil.Process(process.pid).net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN:
                return int(one.laddr.port)
        assert time.monotonic() < deadline, "it does not listen"
        time.sleep(0.05)


def processes_of(folder: Path) -> list[str]:
    """Return the processes whose command line names a folder: brokers and the reaper of a cluster that lies there."""
    listed = subprocess.run(["ps", "-ewwo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(folder) in line]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock against other processes of this user."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def once(target: Path, make: Callable[[Path], object]) -> Path:
    """Return a file or folder that all sessions on this machine share: the first one makes it, under another name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / ".lock"):
        if not target.exists():
            part = target.with_name(f".{target.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            make(part)
            part.rename(target)
    return target


@contextlib.contextmanager
def no_room(beyond_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes, as on a full disk."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (beyond_bytes, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
