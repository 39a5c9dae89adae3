"""``completions/`` and ``docs/commands.md`` say what the app says: a changed or missing file is named, exit 1."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kretain.completion import generated

ROOT = Path(__file__).parents[3]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("completions", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def test_what_is_committed_is_what_the_app_makes_and_a_change_is_named(copy: Path) -> None:
    def check() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kretain.completion.generated", "--check"]
        return subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=120, check=False)

    assert check().returncode == 0, "run make generated"
    (copy / "completions" / "_kretain").unlink()
    bash = copy / "completions" / "kretain.bash"
    bash.write_text(bash.read_text() + "# edited\n")
    stale = check()
    assert (stale.returncode, stale.stdout) == (1, "")
    assert stale.stderr == "out of date: kretain.bash, _kretain; run: make generated\n"
    assert not (copy / "completions" / "_kretain").exists(), "a check writes nothing"


def test_writing_brings_all_of_them_up_to_date(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_text() for path in copy.rglob("*") if path.is_file()}
    shutil.rmtree(copy / "completions")
    (copy / "docs" / "commands.md").write_text("old")
    monkeypatch.chdir(copy)
    monkeypatch.setattr(sys, "argv", ["generated"])
    generated.main()
    for path, text in before.items():
        assert path.read_text() == text
