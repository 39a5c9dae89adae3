"""How much of a download came, as the bar has it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kretain.embedded.download_bar import bytes_in, download_bar


def test_all_files_below_a_folder_count_and_one_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert bytes_in(tmp_path / "none") == 0
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "x").write_bytes(b"12345")
    (tmp_path / "a" / "b" / "y.part").write_bytes(b"123")
    (tmp_path / "a" / "gone").symlink_to(tmp_path / "nowhere")
    assert bytes_in(tmp_path) == 8


def test_in_a_pipe_there_is_no_bar(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert not sys.stderr.isatty()
    with download_bar(tmp_path, 10):
        (tmp_path / "x").write_bytes(b"1")
    assert capfd.readouterr() == ("", "")
