"""Where the tests of archives have theirs."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "archive"
