"""Files that are wrong, or made to harm: refused in one line of our words, without their content, in little memory."""

from __future__ import annotations

import contextlib
import json
import os
import random
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_core import from_json

from kretain.config import config_path
from kretain.embedded.jars import cache_dir
from retention_cli.audit.log import AuditLog
from retention_cli.core.file_problems import (
    json_problem,
    store_problem,
    yaml_problem,
)
from retention_cli.core.files import SETTINGS_MAX_BYTES, beside, home, read_file
from retention_cli.core.json_values import loads
from retention_cli.core.state_dir import StateError, default_state_dir, trim_lock
from retention_cli.memory.ledger_file import LedgerFile
from retention_cli.plan.saved import SavedPlanError, read_bytes
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.fleet_file import FleetFileError, load_fleet
from retention_cli.policy.load import load_policy, parse_policy
from retention_cli.policy.model import matches
from tests.support.says import refusal

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
    with pytest.raises(ValueError, match=r".") as error:
        read(text)
    at, problem = json_problem(error.value)
    assert (at if line else None, problem if said else None) == (line, said)
    assert not [word for word in ("column", "hunter2") if word in problem]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(13, "Permission denied"), "Permission denied"),
        (
            OSError(
                "When listing in bucket 'b': AWS Error ACCESS_DENIED during ListObjectsV2 operation: Access Denied"
            ),
            "the store does not let these credentials do that (access denied): grant it",
        ),
        (
            OSError("When reading 'k': AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No body."),
            "the store does not accept these credentials, or does not let them do that (HTTP 403)",
        ),
        (
            OSError("When listing: AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 7"),
            "the store can't be reached: check its endpoint and the network",
        ),
        (OSError("HDFS is in\nsafe mode"), "HDFS is in safe mode"),
    ],
)
def test_object_store_error_is_described_in_our_words(error: OSError, said: str) -> None:
    assert store_problem(error) == said


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        ("while scanning, found unexpected end of stream in quoted scalar", "not YAML: a quote is not closed"),
        (
            "found duplicate anchor 'hunter2'; first occurrence",
            "not YAML: look for a quote, a bracket or a colon that is missing or left over (found duplicate anchor)",
        ),
        (
            "invalid literal for int() with base 10: 'hunter2'",
            "not YAML: look for a quote, a bracket or a colon that is missing or left over (invalid literal for int)",
        ),
        ("'hunter2'", "not YAML: look for a quote, a bracket or a colon that is missing or left over"),
    ],
)
def test_yaml_problem_keeps_the_parsers_words_without_quoted_content(said: str, ours: str) -> None:
    assert yaml_problem(said) == ours


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


def test_secret_is_read_from_a_pipe_up_to_the_file_limit(tmp_path: Path) -> None:
    """``--command-config <(vault …)`` is how many keep them off the disk."""
    for content in (b"security.protocol=SSL\n", b"x" * (SETTINGS_MAX_BYTES + 1)):
        path = tmp_path / f"pipe-{len(content)}"
        os.mkfifo(path)
        writer = threading.Thread(target=_write, args=(path, content))
        writer.start()
        try:
            if len(content) > SETTINGS_MAX_BYTES:
                assert "it is larger than 16 MiB" in refusal(OSError, read_file, path, pipes=True)
            else:
                assert read_file(path, pipes=True) == content
        finally:
            writer.join(10)
    assert "it is a pipe or a device" in refusal(OSError, read_file, Path("/dev/zero"), pipes=True)


def _write(path: Path, content: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        path.write_bytes(content)


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


def audit(folder: Path) -> None:
    AuditLog(folder).append({"at": WHEN, "event": "run", "run": "r1"})


def lock(folder: Path) -> None:
    with trim_lock(folder, WHEN):
        pass


def ledger(folder: Path) -> None:
    LedgerFile(folder).close()


USES = {"audit.jsonl": audit, "trim.lock": lock, "ledger.sqlite": ledger}


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
        with pytest.raises(StateError, match=f"the state directory {path} is world-writable: chmod o-w '{path}'"):
            act(folder)
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
