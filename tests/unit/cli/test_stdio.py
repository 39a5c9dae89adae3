"""A result that can't be printed, a Ctrl-C and a crash: one line, and an exit code that says what was done."""

from __future__ import annotations

import ast
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from kretain.errors import Deletions, Exit, RefusedError
from kretain.options.common import guarded
from kretain.render import output
from kretain.system import stdio
from tests.support.says import says
from tests.support.terminal import CLOSED, FULL, UNREAD, run_into
from tests.support.world import run_cli


@pytest.mark.parametrize(
    ("outlet", "code", "said"),
    [
        pytest.param(FULL, 1, "kretain: the result could not be printed: No space left on device\n", id="a full disk"),
        pytest.param(CLOSED, 1, "kretain: the result could not be printed: stdout is closed\n", id="closed"),
        pytest.param(UNREAD, 0, "", id="a pipe whose reader ended"),
    ],
)
@pytest.mark.parametrize("command", [["--help"], ["history", "-o", "json"], ["policy", "schema"]], ids=" ".join)
def test_unprintable_result_is_an_error_unless_its_reader_ended(
    command: list[str], outlet: str, code: int, said: str
) -> None:
    done = run_into(outlet, *command)
    assert (done.code, done.err) == (code, said)


@pytest.mark.parametrize("outlet", [FULL, CLOSED, UNREAD])
def test_failure_keeps_its_code_and_message_if_stdout_is_unusable(outlet: str, tmp_path: Path) -> None:
    done = run_into(outlet, "policy", "check", str(tmp_path / "none.yaml"))
    assert (done.code, done.err.count("\n"), "none.yaml" in done.err) == (1, 1, True), done.err


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-", "2>&- <&-"])
def test_closed_or_full_stderr_changes_nothing(where: str) -> None:
    command = ["bash", "-c", f'exec "$@" {where}', "bash", sys.executable, "-m", "kretain", "history", "-q"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"No trims yet. kretain plan shows what a trim would delete.\n")


def test_file_opened_with_closed_standard_streams_gets_a_descriptor_above_2(tmp_path: Path) -> None:
    """What a library prints to 1 or 2 would be written into the ledger."""
    code = (
        "import sys; from kretain.system import stdio; stdio.prepare()\n"
        "with open(sys.argv[1], 'w') as handle: handle.write(str(handle.fileno()))"
    )
    command = ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", sys.executable, "-c", code, str(tmp_path / "n")]
    subprocess.run(command, check=True, timeout=60)
    assert int((tmp_path / "n").read_text()) > 2


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "environ",
    [
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.thorough),
        pytest.param({"LC_ALL": "C"}, marks=pytest.mark.thorough),
        pytest.param({"PYTHONIOENCODING": "latin-1"}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_character_outside_the_encoding_is_escaped_and_json_stays_utf_8(
    environ: dict[str, str], tmp_path: Path
) -> None:
    wanted = "größer ⚠ 😀"
    policy = f'version: 1\ntopics: [{{match: a, hold: "{wanted}"}}]\n'
    (tmp_path / "policy.yaml").write_text(policy, encoding="utf-8")

    def shown(output: str) -> bytes:
        done = subprocess.run(
            [sys.executable, "-m", "kretain", "policy", "show", "a", "-p", str(tmp_path / "policy.yaml"), "-o", output],
            env={**os.environ, **environ},
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    for found in (json.loads(shown("json").decode("utf-8")), yaml.safe_load(shown("yaml").decode("utf-8"))):
        assert {one["key"]: one["value"] for one in found["settings"]}["hold"] == wanted
    for form in ("table", "csv"):
        text = shown(form).decode("latin-1" if "latin-1" in environ.values() else "utf-8")
        assert wanted in text or "\\u26a0" in text


def literals() -> Iterator[str]:
    """Yield each text in the sources that may be printed: every string but docstrings and patterns."""
    for file in [*(ROOT / "cli").rglob("*.py"), *(ROOT / "retention_cli").rglob("*.py")]:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
                yield node.value


def test_each_printed_sign_has_an_ascii_substitute() -> None:
    assert all(one.isascii() for one in stdio.PLAIN.values())
    signs = {sign for text in literals() if text.isprintable() for sign in text if not sign.isascii()}
    assert len(signs) > 10
    assert signs <= stdio.PLAIN.keys()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_terminal_without_unicode_gets_ascii_signs_and_escaped_names(encoding: str) -> None:
    code = "from kretain.system import stdio; stdio.prepare(); print('3 → 5 … ≤ – “x” │─█▏ ⚠ 😀')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == b'3 > 5 ... <= - "x" |-## \\u26a0 \\U0001f600\n'


def test_lone_surrogate_in_a_path_is_written_as_its_escape() -> None:
    assert "\\udcff.yaml" in run_cli("policy", "check", "\udcff.yaml", check=1).err


def into_a_pipe(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    read, write = os.pipe()
    monkeypatch.setattr(sys, "stdout", stdio.stream_of(write, sys.stdout))
    return read, write


def test_closed_pipe_stops_an_endless_row_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = into_a_pipe(monkeypatch)
    os.close(read)
    endless = ({"number": number} for number in itertools.count())
    for form in ("jsonl", "json", "csv"):
        output.show(form, {"format": "x"}, "rows", endless, list, ("number",))
    assert (stdio.unprinted(), next(endless)["number"] < 10_000) == (None, True)
    os.close(write)


def test_nonblocking_pipe_gets_the_entire_output(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = into_a_pipe(monkeypatch)
    os.set_blocking(write, False)
    honest, reading = select.select, list[Future[bytes]]()
    with os.fdopen(read, "rb") as source, ThreadPoolExecutor(1) as pool:

        def wait(*what: Any) -> object:
            if not reading:
                reading.append(pool.submit(source.read))  # not before the pipe is full
            return honest(*what)

        monkeypatch.setattr("select.select", wait)
        sys.stdout.write("x" * 300_000)
        problem = stdio.unprinted()
        os.close(write)
        assert (problem, len(reading[0].result(30))) == (None, 300_000)


@pytest.mark.parametrize(
    ("error", "code"),
    [(RuntimeError("x"), Exit.PARTIAL), (RefusedError("x"), Exit.PARTIAL), (KeyboardInterrupt(), Exit.INTERRUPTED)],
)
def test_failure_after_a_delete_never_exits_as_if_nothing_was_trimmed(
    error: BaseException, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    deeds = Deletions()

    def work() -> Exit:
        deeds.note("run r1: 1 partition trimmed; 8 records trimmed")
        raise error

    assert guarded(work, 0, deeds) == code
    assert capsys.readouterr().err.splitlines()[-1] == (
        "kretain: before that: run r1: 1 partition trimmed; 8 records trimmed"
    )


def test_failure_after_a_delete_is_reported_and_the_command_continues(capsys: pytest.CaptureFixture[str]) -> None:
    deeds = Deletions()

    def wait() -> None:
        raise RefusedError("the broker is gone")

    def work() -> Exit:
        deeds.note("run r1")
        with deeds.behind(0):
            wait()
        return Exit.ON_HOLD

    assert (guarded(work, 0, deeds), capsys.readouterr().err) == (Exit.PARTIAL, "kretain: the broker is gone\n")
    with pytest.raises(RefusedError), Deletions().behind(0):
        raise RefusedError("nothing was deleted")


class _Interrupted:
    """Is interrupted where Python names what a class has."""

    def __set_name__(self, _owner: type, _name: str) -> None:
        raise KeyboardInterrupt


def test_interrupt_during_an_import_exits_130(capsys: pytest.CaptureFixture[str]) -> None:
    """Commands import as they go; Python 3.11 makes a RuntimeError of an interrupt while a class is made."""

    def work() -> Exit:
        type("Imported", (), {"one": _Interrupted()})
        return Exit.DONE

    assert (guarded(work, 0), capsys.readouterr().err) == (Exit.INTERRUPTED, "kretain: interrupted\n")


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
    "a job in the background": "signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "Thing.__del__ = lambda _: signal.raise_signal(signal.SIGTERM)",
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
    took_s = time.monotonic() - began
    assert (done.returncode, "ignored" in done.stderr, took_s < 18) == (130, False, True), done.stderr


@pytest.mark.parametrize("after_s", [0.4, 1.2])
def test_plan_with_a_silent_broker_ends_at_once_on_ctrl_c(after_s: float, silent_port: int) -> None:
    command = ["plan", "a", "--older-than", "1d", "-b", f"127.0.0.1:{silent_port}", "--timeout", "30s"]
    with subprocess.Popen([sys.executable, "-m", "kretain", *command], stderr=subprocess.PIPE, text=True) as running:
        time.sleep(after_s)
        running.send_signal(signal.SIGINT)
        began = time.monotonic()
        _out, err = running.communicate(timeout=60)
    assert running.returncode in (130, -signal.SIGINT), err  # the latter: before Python itself was up
    assert time.monotonic() - began < 25


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
    says(done.stderr, "Segmentation fault", "in trim_a_partition")
