"""A missing part is named with the command that fits how kretain was installed."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

from retention_cli.core.extras import MissingPartError, _part
from retention_cli.core.install import how_to_add


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
    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if origin is None else json.dumps(origin).replace("//{}", f"//{tmp_path}")

    monkeypatch.setattr(importlib.metadata, "distribution", lambda _name: Distribution())
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if receipt is not None:
        (tmp_path / receipt).write_text("")
    assert how_to_add("parquet") == command.replace("{}", str(tmp_path))


def test_missing_package_is_named_with_the_install_command() -> None:
    with pytest.raises(MissingPartError, match=r"it needs x: pip install .*\[all\]', or do without \(No module named"):
        _part("no_such_module", "it needs x", "all", ", or do without")
