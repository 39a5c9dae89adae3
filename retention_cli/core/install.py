"""How this kretain was installed, and so which command adds an optional part to it."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from shlex import quote
from urllib.parse import unquote, urlparse


def how_to_add(extra: str) -> str:
    """Return the command that adds an extra to this installation: by pip, pipx or uv, from where it came."""
    prefix = Path(sys.prefix)
    what = quote(f"{_origin()}[{extra}]")
    if (prefix / "uv-receipt.toml").is_file():
        return f"uv tool install --force {what}"
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx install --force {what}"
    return f"pip install {'-e ' if _is_editable() else ''}{what}"


def _origin() -> str:
    """Return the folder or wheel that kretain was installed from, if it is still there; else its name."""
    url = urlparse(str(_direct_url().get("url", "")))
    path = unquote(url.path)
    return path if url.scheme == "file" and Path(path).exists() else "kretain"


def _is_editable() -> bool:
    folder = _direct_url().get("dir_info")
    return _origin() != "kretain" and isinstance(folder, dict) and folder.get("editable") is True


def _direct_url() -> dict[str, object]:
    """Return what the installer wrote about the package's origin (PEP 610), empty if it came from an index."""
    try:
        text = importlib.metadata.distribution("kretain").read_text("direct_url.json")
        found = json.loads(text or "{}")
    except (importlib.metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
