"""Files and patterns made to harm: refused in one line, in no time and little memory."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from retention_cli.core.files import SETTINGS_MAX_BYTES, beside, read_file
from retention_cli.plan.saved import SavedPlanError, read_bytes
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.fleet_file import FleetFileError, load_fleet
from retention_cli.policy.load import load_policy, parse_policy
from retention_cli.policy.model import matches

LAUGHS = "version: 1\na: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
"""Nine to the eighth values from a few hundred bytes."""


def test_yaml_alias_bomb_is_refused_before_expansion() -> None:
    with pytest.raises(PolicyError, match=r"p\.yaml:2: has more than 200,000 keys and values, aliases repeated"):
        parse_policy(LAUGHS, "p.yaml", "")


@pytest.mark.parametrize("depth", [60, 200_000])
def test_deeply_nested_document_is_refused(depth: int) -> None:
    with pytest.raises(PolicyError, match="is nested more than 50 deep"):
        parse_policy("topics: " + "[" * depth + "]" * depth, "p.yaml", "")


def test_document_of_too_many_values_is_refused_before_parsing() -> None:
    many = "topics:\n" + "- x\n" * 500_000
    with pytest.raises(PolicyError, match=r"p\.yaml:399999: has more than 200,000 keys and values"):
        parse_policy(many, "p.yaml", "")


def test_document_of_a_large_policys_size_is_read() -> None:
    entries = "".join(f"  - {{match: topic-{n}, retention.ms: 3d}}\n" for n in range(5_000))
    assert len(parse_policy(f"version: 1\ntopics:\n{entries}", "p.yaml", "").entries) == 5_000


@pytest.mark.parametrize("load", [load_policy, load_fleet, read_bytes])
def test_path_that_is_no_file_is_not_read(tmp_path: Path, load: Callable[[Path], object]) -> None:
    """A pipe would block, a device never ends."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises((PolicyError, FleetFileError, SavedPlanError), match="it is a pipe or a device, not a file"):
            load(path)
    with pytest.raises((PolicyError, FleetFileError, SavedPlanError), match="Is a directory"):
        load(tmp_path)


def test_secret_is_read_from_a_pipe_up_to_the_file_limit(tmp_path: Path) -> None:
    """``--command-config <(vault …)`` is how many keep them off the disk."""
    for content in (b"security.protocol=SSL\n", b"x" * (SETTINGS_MAX_BYTES + 1)):
        path = tmp_path / f"pipe-{len(content)}"
        os.mkfifo(path)
        writer = threading.Thread(target=_write, args=(path, content))
        writer.start()
        try:
            if len(content) > SETTINGS_MAX_BYTES:
                with pytest.raises(OSError, match="it is larger than 16 MiB"):
                    read_file(path, pipes=True)
            else:
                assert read_file(path, pipes=True) == content
        finally:
            writer.join(10)
    with pytest.raises(OSError, match="it is a pipe or a device"):
        read_file(Path("/dev/zero"), pipes=True)


def _write(path: Path, content: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        path.write_bytes(content)


def test_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 4 * SETTINGS_MAX_BYTES)
    with pytest.raises(OSError, match="it is larger than 16 MiB"):
        read_file(path)
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
