"""Optional libraries, imported where they are used, and how to add them to this installation.

kretain works without them until a feature needs them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from shlex import quote
from typing import Any, Final
from urllib.parse import unquote, urlparse


class MissingPartError(Exception):
    """An optional part of kretain is not installed; the text says how to get it."""


_NEEDS: Final = {
    "parquet": "Parquet needs pyarrow: {}",
    "pandas": "to_pandas needs pandas: {}",
    "aws": "AWS credentials need botocore: {}",
    "report": "plots need matplotlib: {}",
    "metrics": "metrics need prometheus_client: {}, or --listen off",
    "avro": "event times in Avro and Protobuf need fastavro and protobuf: {}",
}


def part(extra: str, module: str) -> Any:
    """Return a module of an extra's libraries, such as ``pandas``.

    Raises:
        MissingPartError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPartError(f"{_NEEDS[extra].format(how_to_add(extra))} ({error})") from None


def arrow(module: str = "pyarrow") -> Any:
    """Return pyarrow, or one of its modules (``pyarrow.parquet``, ``pyarrow.fs``); see :func:`part`."""
    return part("parquet", module)


def texts_of(column: Any) -> tuple[list[str], Any]:
    """Return the texts of an Arrow dictionary column, and which of them each row has (a NumPy array); −1 for null."""
    found = column.unify_dictionaries().combine_chunks()
    found = found.chunk(0) if hasattr(found, "num_chunks") else found
    return found.dictionary.to_pylist(), found.indices.fill_null(-1).to_numpy()


def require_spark() -> None:
    """Check that all that ``--spark`` needs is installed, without importing it.

    Raises:
        MissingPartError: something is not installed.
    """
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPartError(f"--spark needs PySpark: {how_to_add('spark')} (without {', '.join(missing)})")


def how_to_add(extra: str) -> str:
    """Return the command that adds an extra to this installation: by pip, pipx or uv, from where it came."""
    prefix = Path(sys.prefix)
    what = quote(f"{_origin()}[{extra}]")
    if (prefix / "uv-receipt.toml").is_file():
        return f"uv tool install --force {what}"
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx install --force {what}"
    folder = _direct_url().get("dir_info")
    editable = _origin() != "kretain" and isinstance(folder, dict) and folder.get("editable") is True
    return f"{_pip()} install {'-e ' if editable else ''}{what}"


def _pip() -> str:
    """Return how to call this environment's pip: by its Python, unless it is the one on PATH."""
    own = shutil.which("pip") == str(Path(sys.executable).with_name("pip"))
    return "pip" if own or sys.prefix == sys.base_prefix else f"{quote(sys.executable)} -m pip"


def _origin() -> str:
    """Return the folder or wheel that kretain was installed from, if it is still there; else its name."""
    url = urlparse(str(_direct_url().get("url", "")))
    path = unquote(url.path)
    return path if url.scheme == "file" and Path(path).exists() else "kretain"


def _direct_url() -> dict[str, object]:
    """Return what the installer wrote about the package's origin (PEP 610), empty if it came from an index."""
    try:
        found = json.loads(importlib.metadata.distribution("kretain").read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
