"""A container's user may have no HOME and no entry in passwd."""

from __future__ import annotations

from pathlib import Path

import pytest

from kretain.config import config_path
from kretain.embedded.jars import cache_dir
from retention_cli.core.files import home
from retention_cli.core.state_dir import default_state_dir


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
