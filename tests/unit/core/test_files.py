"""Files, servers, durations and sizes: exactly what they say, or refused in one line of our words, in little time and memory."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import random
import resource
import shlex
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic_core import from_json

from kretain import reach
from kretain.config import config_path
from kretain.embedded.jars import cache_dir
from retention_cli.audit.log import AuditLog
from retention_cli.core.commands import Reach, grant_line, kafka_tool, kretain
from retention_cli.core.consumers import forget_hint, who
from retention_cli.core.extras import MissingPartError, how_to_add, part
from retention_cli.core.file_problems import (
    json_problem,
    store_problem,
    yaml_problem,
)
from retention_cli.core.files import SETTINGS_MAX_BYTES, FileError, beside, home, read_file, write_atomic
from retention_cli.core.http import HttpError, ask
from retention_cli.core.json_values import loads
from retention_cli.core.printable import name_in_text, shell_word
from retention_cli.core.state_dir import StateError, default_state_dir, trim_lock
from retention_cli.core.units import (
    UnitError,
    format_age,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_ms,
    parse_time_ms,
)
from retention_cli.memory.ledger_file import LedgerFile
from retention_cli.plan.saved import SavedPlanError, read_bytes
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.fleet_file import FleetFileError, load_fleet
from retention_cli.policy.load import load_policy, parse_policy
from retention_cli.policy.model import matches
from tests.support.says import raised, refusal, says

CUT = "it ends in the middle: it was cut short"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, CUT),
        ('{"a": [1,\n', 2, CUT),
        ('{"a": "hunter2', 1, CUT),
        ("{}\n{}", 2, "something follows its end"),
        ('{"a" 1}', 1, None),
        ("{a: 1}", 1, None),
        ("hunter2", 1, "it is not JSON"),
        ('["\n"]', None, "a string has a line break or a tab that is not escaped"),
    ],
)
@pytest.mark.parametrize("read", [json.loads, from_json])
def test_json_problem_has_its_line_without_quoting_content(
    read: Callable[[str], object], text: str, line: int | None, said: str | None
) -> None:
    at, problem = json_problem(raised(ValueError, read, text))
    assert (at if line else None, problem if said else None) == (line, said)
    assert not [word for word in ("column", "hunter2") if word in problem]


_LOST = "not YAML: look for a quote, a bracket or a colon that is missing or left over"


@pytest.mark.parametrize(
    ("problem", "theirs", "ours"),
    [
        (store_problem, OSError(13, "Permission denied"), "Permission denied"),
        (
            store_problem,
            OSError(
                "When listing in bucket 'b': AWS Error ACCESS_DENIED during ListObjectsV2 operation: Access Denied"
            ),
            "the store does not let these credentials do that (access denied): grant it",
        ),
        (
            store_problem,
            OSError("When reading 'k': AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No body."),
            "the store does not accept these credentials, or does not let them do that (HTTP 403)",
        ),
        (
            store_problem,
            OSError("When listing: AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 7"),
            "the store can't be reached: check its endpoint and the network",
        ),
        (store_problem, OSError("HDFS is in\nsafe mode"), "HDFS is in safe mode"),
        (
            yaml_problem,
            "while scanning, found unexpected end of stream in quoted scalar",
            "not YAML: a quote is not closed",
        ),
        (yaml_problem, "found duplicate anchor 'hunter2'; first occurrence", f"{_LOST} (found duplicate anchor)"),
        (yaml_problem, "invalid literal for int() with base 10: 'hunter2'", f"{_LOST} (invalid literal for int)"),
        (yaml_problem, "'hunter2'", _LOST),
    ],
)
def test_librarys_problem_is_in_our_words_without_quoted_content(
    problem: Callable[[Any], str], theirs: Any, ours: str
) -> None:
    assert problem(theirs) == ours


LAUGHS = "version: 1\na: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
"""Nine to the eighth values from a few hundred bytes."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(LAUGHS, "p.yaml:2: has more than 200,000 keys and values, counting aliases", id="aliases"),
        pytest.param(f"topics: {'[' * 60}{']' * 60}", "is nested more than 50 deep", id="deep"),
        pytest.param(f"topics: {'[' * 200_000}{']' * 200_000}", "is nested more than 50 deep", id="very deep"),
        pytest.param(
            "topics:\n" + "- x\n" * 500_000, "p.yaml:399999: has more than 200,000 keys and", id="many values"
        ),
    ],
)
def test_yaml_that_would_take_too_much_memory_is_refused_before_parsing(text: str, said: str) -> None:
    assert said in refusal(PolicyError, parse_policy, text, "p.yaml", "")


def test_document_of_a_large_policys_size_is_read() -> None:
    entries = "".join(f"  - {{match: topic-{n}, retention.ms: 3d}}\n" for n in range(5_000))
    assert len(parse_policy(f"version: 1\ntopics:\n{entries}", "p.yaml", "").entries) == 5_000


@pytest.mark.parametrize("load", [load_policy, load_fleet, read_bytes])
def test_path_that_is_no_file_is_not_read(tmp_path: Path, load: Callable[[Path], object]) -> None:
    """A pipe would block, a device never ends."""
    pipe, no_file = tmp_path / "pipe", "it is a pipe or a device, not a file"
    os.mkfifo(pipe)
    for path, said in ((pipe, no_file), (Path("/dev/zero"), no_file), (tmp_path, "Is a directory")):
        with pytest.raises((PolicyError, FleetFileError, SavedPlanError), match=said):
            load(path)


def test_pipe_device_or_stream_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """``--out /dev/null`` as root would remove the machine's device."""
    pipe, file, stream, link = (tmp_path / name for name in ("pipe", "file", "stream", "link"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with file.open("w") as opened:
        stream.symlink_to(f"/proc/self/fd/{opened.fileno()}")
        for path in (pipe, link, stream):
            before = path.lstat()
            said = refusal(FileError, write_atomic, path, ["plan"])
            assert f"{path} can't be written: it is a pipe or a device, not a file" in said
            assert path.lstat() == before
    write_atomic(file, ["plan"])
    assert file.read_text() == "plan"


def test_secret_is_read_from_a_pipe_up_to_the_file_limit(tmp_path: Path) -> None:
    """``--command-config <(vault …)`` is how many keep them off the disk."""
    for content in (b"security.protocol=SSL\n", b"x" * (SETTINGS_MAX_BYTES + 1)):
        path = tmp_path / f"pipe-{len(content)}"
        os.mkfifo(path)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(path.write_bytes, content)  # it fails where no more is read
            if len(content) > SETTINGS_MAX_BYTES:
                assert "it is larger than 16 MiB" in refusal(OSError, read_file, path, pipes=True)
            else:
                assert read_file(path, pipes=True) == content
    assert "it is a pipe or a device" in refusal(OSError, read_file, Path("/dev/zero"), pipes=True)


def test_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 4 * SETTINGS_MAX_BYTES)
    assert "it is larger than 16 MiB" in refusal(OSError, read_file, path)
    os.truncate(path, SETTINGS_MAX_BYTES)
    assert len(read_file(path)) == SETTINGS_MAX_BYTES


@pytest.mark.timeout(20)
def test_hostile_name_does_not_slow_down_a_regular_expression() -> None:
    """Anybody may name a group: a back-tracking engine would take years for this one."""
    assert not matches(["re:(a+)+!"], "a" * 249)
    assert matches(["re:(a+)+!"], "a" * 248 + "!")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("p.yaml", "/etc/p.yaml"),
        ("/p.yaml", "/p.yaml"),
        ("~/p.yaml", f"{Path.home()}/p.yaml"),
        ("~.yaml", "/etc/~.yaml"),
        ("~nobody-of-that-name/p.yaml", "/etc/~nobody-of-that-name/p.yaml"),
    ],
)
def test_path_is_relative_to_its_file_or_an_existing_home(name: str, path: str) -> None:
    assert beside(Path("/etc"), name) == Path(path)


# -- the state directory is ours alone: what others could change, or point elsewhere, is not used (docs/memory.md) --


WHEN = "2026-11-01T12:00:00.000Z"


def lock(folder: Path) -> None:
    with trim_lock(folder, WHEN):
        pass


USES = {
    "audit.jsonl": lambda folder: AuditLog(folder).append({"at": WHEN, "event": "run", "run": "r1"}),
    "trim.lock": lock,
    "ledger.sqlite": lambda folder: LedgerFile(folder).close(),
}


of_each_use = pytest.mark.parametrize(("name", "act"), USES.items(), ids=[*USES])


@of_each_use
def test_state_files_and_folders_are_private(tmp_path: Path, name: str, act: Callable[[Path], None]) -> None:
    folder = tmp_path / "state" / "cluster"
    before = os.umask(0)
    try:
        act(folder)
    finally:
        os.umask(before)
    modes = {one: stat.S_IMODE(one.stat().st_mode) for one in (folder.parent, folder, *folder.iterdir())}
    assert modes == {one: 0o700 if one in (folder.parent, folder) else 0o600 for one in modes}
    assert (folder / name).is_file()


@of_each_use
def test_link_or_pipe_in_place_of_a_state_file_is_refused(
    tmp_path: Path, name: str, act: Callable[[Path], None]
) -> None:
    file, other = tmp_path / "cluster" / name, tmp_path / "other"
    file.parent.mkdir()
    other.write_bytes(b"theirs")
    file.symlink_to(other)
    assert "it is a symbolic link" in refusal(StateError, act, file.parent)
    assert other.read_bytes() == b"theirs"
    file.unlink()
    os.mkfifo(file)
    assert "it is a pipe or a device, not a file" in refusal(StateError, act, file.parent)


@pytest.mark.parametrize("act", USES.values(), ids=[*USES])
def test_state_folder_writable_by_others_is_refused(tmp_path: Path, act: Callable[[Path], None]) -> None:
    folder = tmp_path / "state" / "cluster"
    act(folder)
    for path in (folder, folder.parent):
        path.chmod(0o777)
        said = refusal(StateError, act, folder)
        assert f"the state directory {path} is world-writable: chmod o-w '{path}'" in said
        path.chmod(0o700)
    act(folder)
    (tmp_path / "link").symlink_to(folder)
    assert "is a symbolic link: put a folder there" in refusal(StateError, act, tmp_path / "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("act", USES.values(), ids=[*USES])
def test_state_folder_of_another_user_is_refused(tmp_path: Path, act: Callable[[Path], None]) -> None:
    folder = tmp_path / "state" / "cluster"
    act(folder)
    os.chown(folder, 12345, -1)
    assert "belongs to uid 12345, kretain runs as uid 0" in refusal(StateError, act, folder)


def test_user_without_a_home_gets_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", lost)
    for name in ("KRETAIN_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert [str(one()) for one in (home, config_path, default_state_dir, cache_dir)] == [
        *("/", "/.config/kretain/config.yaml", "/.local/state/kretain", "/.cache/kretain")
    ]


# -- the quick reader of JSON gives what ``json.loads`` gives: nothing in a changed audit log looks better through it --

ODD = (
    *('{"a":1,"a":2}', '{"b":1,"a":0,"b":3}', "[NaN,Infinity,-Infinity]", "[1e400,-1e400,-0,-0.0,0.1,1E5]"),
    *('["\\ud800","\\ud83d\\ude00","\\udc00\\ud800"]', "[9223372036854775808,-9223372036854775809]", "[01]", "[1.]"),
    *("[.5]", "[+1]", '["a\tb"]', '["a\x00b"]', "{}\x00", "{} {}", "[1,]", '{"a":1,}', "\x0b[]", " \t\n\r[] ", "[-01]"),
    *('["\\/\\b\\x41"]', '["\\u12"]', "[1_000]", "[" * 300 + "]" * 300, "[" * 3_000 + "]" * 3_000, "nan", "['a']", ""),
    *(
        f"[{'9' * 4_000}]",
        f"[{'9' * 5_000}]",
        "[5e-324,1.7976931348623157e308,9007199254740993.0]",
        "/**/[]",
        "\ufeff{}",
    ),
)
RAW = (*(one.encode() for one in ODD), b'["\xff"]', b'["\xed\xa0\x80"]', "{}".encode("utf-16"), "[]".encode("utf-32"))


def said(text: str | bytes, *, quick: bool) -> str:
    """Return what a reader makes of a text, with its types and the order of keys."""
    try:
        return repr(loads(text) if quick else json.loads(text))
    except (ValueError, RecursionError):
        return "refused"


@pytest.mark.parametrize("text", [*ODD, *RAW], ids=range(len(ODD) + len(RAW)))
def test_json_is_read_as_by_the_standard_library(text: str | bytes) -> None:
    assert said(text, quick=True) == said(text, quick=False)


def test_changed_json_is_read_as_by_the_standard_library() -> None:
    draw = random.Random(1)
    for _ in range(20_000):
        text = bytearray(draw.choice(RAW)[:60])
        for _ in range(draw.randrange(1, 4)):
            n = draw.randrange(len(text) + 1)
            text[n : n + draw.randrange(2)] = draw.choice(
                [b"", bytes([draw.choice(b'09-+.eE"\\{}[],: \x00\x7fuN\xc3')])]
            )
        assert said(bytes(text), quick=True) == said(bytes(text), quick=False), bytes(text)


# -- a request to a hostile server ends at its deadline, within its limit (retention_cli/core/http.py) --


Served = Callable[[Callable[[socket.socket], None]], str]
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def served() -> Iterator[Served]:
    """Serves each connection by a function of its socket; at the end none may be open any more."""
    servers: list[ThreadingTCPServer] = []
    ended: list[threading.Event] = []

    def serve(answer: Callable[[socket.socket], None]) -> str:
        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                over = threading.Event()
                ended.append(over)
                self.request.settimeout(10)
                with contextlib.suppress(OSError):
                    self.request.recv(65536)
                    answer(self.request)
                    while self.request.recv(65536):
                        pass
                over.set()

        servers.append(ThreadingTCPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}/positions"

    yield serve
    for server in servers:
        server.shutdown()
        server.socket.close()
    assert all(one.wait(2) for one in ended), "a connection stayed open"
    for one in threading.enumerate():
        if isinstance(one, threading.Timer):
            one.join(2)
            assert not one.is_alive()


def sends(before: bytes, again: bytes, pause_s: float = 0.0) -> Callable[[socket.socket], None]:
    """Send, then send the second part again and again, until the client closes the connection."""

    def answer(peer: socket.socket) -> None:
        peer.sendall(before)
        while True:
            peer.sendall(again)
            time.sleep(pause_s)

    return answer


drip = partial(sends, pause_s=0.05)


@pytest.mark.parametrize(
    "answer",
    [
        drip(b"", b"H"),
        drip(OK, b"X-More: 1\r\n"[:3]),
        drip(OK, b"a: b\r\n"),
        drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        drip(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        drip(OK + b"Content-Length: 1000000\r\n\r\n", b"x"),
        drip(b"HTTP/1.1 302 Found\r\nLocation: /positions\r\n\r\n", b"x"),
        lambda _peer: time.sleep(1.5),
    ],
    ids=["status", "a header", "headers", "100 Continue", "chunks", "body", "a redirect to itself", "nothing"],
)
def test_dripping_server_costs_one_timeout(served: Served, answer: Callable[[socket.socket], None]) -> None:
    url, began = served(answer), time.monotonic()
    with pytest.raises(HttpError, match=r"not read within 0\.5 s|got more than 100 headers|redirect"):
        ask(url, timeout_s=0.5, most_bytes=1 << 20)
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize("status", [b"302 Found\r\nLocation: /positions", b"200 OK", b"500 Oh"])
@pytest.mark.parametrize("length", [b"Content-Length: 4294967296\r\n", b"", b"Transfer-Encoding: chunked\r\n"])
def test_endless_body_is_not_read_into_memory(served: Served, status: bytes, length: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    chunk = b"ffffffff\r\n" if b"chunked" in length else b""
    url = served(sends(b"HTTP/1.1 " + status + b"\r\n" + length + b"\r\n" + chunk, bytes(1 << 20)))
    with pytest.raises(HttpError, match=r"longer than 1,024 KiB|redirect"):
        ask(url, timeout_s=5, most_bytes=1 << 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_redirect_is_followed_only_where_allowed(served: Served) -> None:
    there = served(lambda peer: peer.sendall(OK + b"Content-Length: 2\r\n\r\nok"))
    here = served(
        lambda peer: peer.sendall(f"HTTP/1.1 307 X\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n".encode())
    )
    assert ask(here, timeout_s=5, most_bytes=9).body == b"ok"
    assert ask(here, timeout_s=5, most_bytes=9, body=b"secret").status == 307


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/x", "s3://bucket/x?token=hunter2"])
def test_redirect_to_a_file_is_refused(served: Served, place: str) -> None:
    here = served(lambda peer: peer.sendall(f"HTTP/1.1 302 hunter2\r\nLocation: {place}\r\n\r\n".encode()))
    assert "hunter2" not in refusal(HttpError, ask, here, timeout_s=5, most_bytes=1 << 20)


def test_truncated_answer_is_an_error(served: Served) -> None:
    def cut(peer: socket.socket) -> None:
        peer.sendall(OK + b"Content-Length: 5\r\n\r\nab")
        peer.shutdown(socket.SHUT_WR)

    assert "cut short" in refusal(HttpError, ask, served(cut), timeout_s=5, most_bytes=9)


# -- durations and sizes as people write them: exactly what they say, or an error that names the units --


MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
BYTES = {
    "B": 1,
    **{f"{p}B": 1000**n for n, p in enumerate("KMGTP", 1)},
    **{f"{p}iB": 1024**n for n, p in enumerate("KMGTP", 1)},
}
spaces = st.sampled_from(["", " ", "  ", "\t"])


@given(st.integers(0, 10**30), st.sampled_from(sorted(MS)), spaces, spaces)
def test_whole_durations_are_exact(amount: int, unit: str, before: str, between: str) -> None:
    assert parse_duration_ms(f"{before}{amount}{between}{unit}{before}") == amount * MS[unit]


@given(st.integers(0, 10**30), st.sampled_from(sorted(BYTES)), spaces)
def test_whole_sizes_are_exact(amount: int, unit: str, between: str) -> None:
    assert parse_bytes(f"{amount}{between}{unit}") == amount * BYTES[unit]


@given(st.integers(0, 10**6), st.text("0123456789", min_size=1, max_size=40), st.sampled_from(sorted(MS)))
def test_fractions_are_exact_or_refused(whole: int, digits: str, unit: str) -> None:
    wanted = Fraction(f"{whole}.{digits}") * MS[unit]
    try:
        assert parse_duration_ms(f"{whole}.{digits}{unit}") == wanted
    except UnitError as error:
        assert wanted.denominator != 1
        assert "whole number of milliseconds" in str(error)


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_an_error_with_an_example(text: str) -> None:
    for parse, example in ((parse_duration_ms, "3d"), (parse_bytes, "50GiB")):
        try:
            assert parse(text) >= 0
        except UnitError as error:
            assert example in str(error) or "whole number" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "-3d",
        "+3d",
        "3 x",
        "d",
        "3D",
        "3d4h",
        "1e3s",
        "0x3d",
        "3,5h",
        ".5h",
        "5.h",
        "3dd",
        "inf s",
        "nan s",
        "∞d",
        "3kb",
    ],
)
def test_text_that_is_no_quantity_is_refused(text: str) -> None:
    for parse in (parse_duration_ms, parse_bytes):
        refusal(UnitError, parse, text)


def test_number_of_thousands_of_digits_is_refused_in_one_line() -> None:
    texts = ("9" * 5_000 + "d", "1." + "9" * 5_000 + "h", "3" + "d" * 5_000, "9" * 5_000)
    for text, parse in product(texts, (parse_duration_ms, parse_bytes, parse_time_ms)):
        assert len(refusal(UnitError, parse, text)) < 200


@given(st.integers(0, 10**15))
def test_shown_duration_parses_back(ms: int) -> None:
    assert parse_duration_ms(format_duration(ms).replace(",", "")) == ms


@given(st.integers(0, 2**60))
def test_shown_size_is_within_its_last_digit(size: int) -> None:
    number, unit = format_bytes(size).split()
    assert len(number.replace(".", "")) <= 4
    assert abs(Fraction(number) * BYTES[unit] - size) * 100 <= max(size, 1)


@pytest.mark.parametrize(
    ("show", "given", "shown"),
    [
        (format_age, 209_206_000, "2d 10h"),
        (format_age, 3_600_000, "1h"),
        (format_age, 3_600_001, "1h"),
        (format_age, 86_400_000 + 5_000, "1d"),
        (format_age, 45_999, "45s"),
        (format_age, 1, "1ms"),
        (format_age, 0, "0ms"),
        (shell_word, "a", "a"),
        (shell_word, "a,", "'a,'"),
        (shell_word, "a.b", "a.b"),
        (shell_word, "a.", "'a.'"),
        (name_in_text, "a", "a"),
        (name_in_text, "", "''"),
        (name_in_text, " ", "' '"),
        (name_in_text, "a b", "a b"),
        (name_in_text, "a ", "'a '"),
        (who, "", "group ''"),
    ],
)
def test_age_has_its_two_largest_units_and_odd_names_are_quoted(show: Any, given: object, shown: str) -> None:
    assert show(given) == shown


# -- command lines to be copied (``core.commands``, ``core.extras``), and names in sentences --


REACH = Reach(
    ("--bootstrap-server", "b1:9092", "--command-config", "my file"), ("-b", "b1:9092", "-c", "my file", "-p", "a'b")
)


@pytest.mark.parametrize("name", ["billing", "", "-g", "--", "it's", "a,", "a.", " a"])
def test_quoted_name_is_one_shell_word(name: str) -> None:
    tool = REACH.complete(kafka_tool("kafka-consumer-groups.sh", "--delete", "--group", name))
    assert shlex.split(tool) == ["kafka-consumer-groups.sh", *REACH.kafka, "--delete", "--group", name]
    ours = shlex.split(REACH.complete(kretain("groups", "forget", names=(name,))))
    last = ["--", name] if name.startswith("-") else [name]
    assert ours == ["kretain", "groups", "forget", *REACH.ours, *last]
    assert name or forget_hint(name).endswith("kretain groups forget -b HOST:PORT ''")


def test_printed_commands_get_the_clusters_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_known", [])
    line = grant_line("Describe", "cluster")
    assert reach.completed({"a": [line]}) == {"a": [line]}
    reach.reaches("b:1", None, [("--context", "prod")], secured=False)
    assert reach.completed({"a": [line, 1, None]}) == {"a": [line.replace("HOST:PORT", "b:1"), 1, None]}
    assert reach.complete(kretain("init")) == "kretain init --context prod"
    reach.reaches("b:1", None, [], secured=True)
    assert "--bootstrap-server b:1 --command-config FILE" in reach.complete(line)


@pytest.mark.parametrize(
    ("receipt", "origin", "command"),
    [
        (None, None, "pip install 'kretain[parquet]'"),
        (None, {"url": "file://{}", "dir_info": {"editable": True}}, "pip install -e '{}[parquet]'"),
        (None, {"url": "file://{}", "dir_info": {}}, "pip install '{}[parquet]'"),
        (None, {"url": "file:///nowhere/kretain.whl", "archive_info": {}}, "pip install 'kretain[parquet]'"),
        (None, {"url": "https://example.org/kretain.whl", "archive_info": {}}, "pip install 'kretain[parquet]'"),
        (None, ["odd"], "pip install 'kretain[parquet]'"),
        ("pipx_metadata.json", None, "pipx install --force 'kretain[parquet]'"),
        ("pipx_metadata.json", {"url": "file://{}", "archive_info": {}}, "pipx install --force '{}[parquet]'"),
        ("uv-receipt.toml", None, "uv tool install --force 'kretain[parquet]'"),
    ],
)
def test_install_hint_matches_the_installer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: str | None, origin: object, command: str
) -> None:
    _environment(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    files = {} if origin is None else {"direct_url.json": json.dumps(origin).replace("//{}", f"//{tmp_path}")}
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _name: SimpleNamespace(read_text=files.get))
    if receipt is not None:
        (tmp_path / receipt).write_text("")
    assert how_to_add("parquet") == command.replace("{}", str(tmp_path))


def test_install_hint_calls_the_environments_own_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _environment(tmp_path / "own venv", monkeypatch)
    _environment(tmp_path, monkeypatch)  # another one, on PATH
    monkeypatch.setenv("PATH", str(tmp_path / "own venv"))
    assert how_to_add("aws").startswith(f"{tmp_path}/python -m pip install ")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no pip" / "python"))
    assert how_to_add("aws").startswith(f"'{tmp_path}/no pip/python' -m pip install ")
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert how_to_add("aws").startswith("pip install ")


def _environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "pip").write_text("")
    (folder / "pip").chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


def test_missing_package_is_named_with_the_install_command() -> None:
    says(
        refusal(MissingPartError, part, "metrics", "no_such_module"),
        *("metrics need prometheus_client: ", "pip install ", "[metrics]', or --listen off (No module named"),
    )
