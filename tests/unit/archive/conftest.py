"""An empty archive for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention_cli.archive.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))
