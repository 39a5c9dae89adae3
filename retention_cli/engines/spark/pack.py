"""Pack a virtual environment with everything that executors need, including native parts, to send with a job."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlparse

from retention_cli import __version__
from retention_cli.core.progress import Progress, silent
from retention_cli.engines.spark.session import SparkError


def requirement() -> str:
    """Return the requirement for pip: the running version of kretain, without PySpark, which executors have already."""
    try:
        origin = importlib.metadata.distribution("kretain").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        origin = None
    url = urlparse(json.loads(origin)["url"]) if origin else None
    if url is not None and url.scheme == "file":  # installed from a checkout
        return f"{unquote(url.path)}[parquet]"
    return f"kretain[parquet]=={__version__}"


def pack(target: Path, progress: Progress = silent) -> None:
    """Build a virtual environment and write it to ``target`` (``.tar.gz``).

    Executors need the same Python version at the same path as this one, as with every packed venv.

    Raises:
        SparkError: the environment can't be built or written.
    """
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise SparkError(f"{target}: the archive's name must end in .tar.gz")
    with tempfile.TemporaryDirectory(prefix="kretain-pack-") as name:
        folder = Path(name) / "environment"
        progress("making a virtual environment")
        _run([sys.executable, "-m", "venv", str(folder)])
        progress(f"installing {requirement()}")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, requirement()])
        progress("packing")
        part = target.with_name(f".{target.name}.part")
        try:
            with tarfile.open(part, "w:gz", compresslevel=6) as archive:
                archive.add(folder, ".")
            part.replace(target)
        except OSError as error:
            raise SparkError(f"{target}: can't be written: {error.strerror}") from None
        finally:
            part.unlink(missing_ok=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it says nothing"]
        raise SparkError(f"the environment can't be built: {lines[-1]}")
