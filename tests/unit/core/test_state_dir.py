"""The state directory is ours alone: what others could change, or point elsewhere, is not used (docs/memory.md)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kretain.config import config_path
from kretain.embedded.jars import cache_dir
from retention_cli.audit.lock import trim_lock
from retention_cli.audit.log import AuditLog
from retention_cli.core.files import home
from retention_cli.core.state_dir import StateError, default_state_dir
from retention_cli.memory.ledger_file import LedgerFile

WHEN = "2026-11-01T12:00:00.000Z"


def audit(folder: Path) -> None:
    AuditLog(folder).append({"at": WHEN, "event": "run", "run": "r1"})


def lock(folder: Path) -> None:
    with trim_lock(folder, WHEN):
        pass


def ledger(folder: Path) -> None:
    LedgerFile(folder).close()


USES = {"audit.jsonl": audit, "trim.lock": lock, "ledger.sqlite": ledger}


@pytest.fixture(params=USES)
def use(request: pytest.FixtureRequest) -> tuple[str, Callable[[Path], None]]:
    return request.param, USES[request.param]


def test_state_files_and_folders_are_private(tmp_path: Path, use: tuple[str, Callable[[Path], None]]) -> None:
    folder = tmp_path / "state" / "cluster"
    before = os.umask(0)
    try:
        use[1](folder)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (folder.parent, folder)] == [0o700, 0o700]
    assert (folder / use[0]).is_file()
    assert {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {0o600}


def test_link_or_pipe_in_place_of_a_state_file_is_refused(
    tmp_path: Path, use: tuple[str, Callable[[Path], None]]
) -> None:
    name, act = use
    folder = tmp_path / "cluster"
    folder.mkdir()
    other = tmp_path / "other"
    other.write_bytes(b"theirs")
    (folder / name).symlink_to(other)
    with pytest.raises(StateError, match="it is a symbolic link"):
        act(folder)
    assert other.read_bytes() == b"theirs"
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(StateError, match="it is a pipe or a device, not a file"):
        act(folder)


def test_state_folder_writable_by_others_is_refused(tmp_path: Path, use: tuple[str, Callable[[Path], None]]) -> None:
    act, folder = use[1], tmp_path / "state" / "cluster"
    act(folder)
    for path in (folder, folder.parent):
        path.chmod(0o777)
        with pytest.raises(StateError, match=f"the state directory {path} is world-writable: chmod o-w '{path}'"):
            act(folder)
        path.chmod(0o700)
    act(folder)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(StateError, match="is a symbolic link: put a folder there"):
        act(tmp_path / "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_state_folder_of_another_user_is_refused(tmp_path: Path, use: tuple[str, Callable[[Path], None]]) -> None:
    folder = tmp_path / "state" / "cluster"
    use[1](folder)
    os.chown(folder, 12345, -1)
    with pytest.raises(StateError, match="belongs to uid 12345, kretain runs as uid 0"):
        use[1](folder)


def test_user_without_a_home_gets_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", lost)
    for name in ("KRETAIN_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert home() == Path("/")
    assert config_path() == Path("/.config/kretain/config.yaml")
    assert default_state_dir() == Path("/.local/state/kretain")
    assert cache_dir() == Path("/.cache/kretain")
