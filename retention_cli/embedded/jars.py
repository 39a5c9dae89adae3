"""A Kafka broker's jars, resolved by the Ivy inside PySpark's wheel and cached per user."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from retention_cli.embedded.errors import EmbeddedError
from retention_cli.embedded.java import Java

DEFAULT_VERSION = "4.3.0"
"""The Kafka that `kretain demo` and the tests run."""

RESOLVE_SECONDS = 600

Progress = Callable[[str], None]
"""Takes one line for people: what is being waited for."""


def cache_dir() -> Path:
    """Return the user's cache folder for jars (``$XDG_CACHE_HOME/kretain`` or ``~/.cache/kretain``)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kretain"


def resolve(artifact: str, version: str, java: Java, progress: Progress, *, cache: Path | None = None) -> Path:
    """Return a folder that holds ``org.apache.kafka:artifact:version`` and all it needs, as jars.

    Downloads on first use; afterwards it is a look at the disk. Safe for several processes at once.

    Raises:
        EmbeddedError: no PySpark (its wheel carries Ivy), no network, or no such version.
    """
    root = (cache or cache_dir()) / "jars"
    target = root / f"{artifact}-{version}"
    if target.is_dir():  # it is renamed into place whole, so that a folder is a finished one
        return target
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / ".lock"):
        if not target.is_dir():
            progress(f"downloading Kafka {version} (once, about 45 MB) …")
            _download(artifact, version, java, root, target)
    return target


def _download(artifact: str, version: str, java: Java, root: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=root, prefix=".resolving-") as scratch:
        lib = Path(scratch) / "lib"
        command = [
            *(str(java.executable), "-jar", str(_ivy_jar()), "-cache", str(root / ".ivy")),
            *("-dependency", "org.apache.kafka", artifact, version, "-confs", "default"),
            *("-retrieve", f"{lib}/[artifact]-[revision](-[classifier]).[ext]"),
            *("-types", "jar", "bundle", "maven-plugin"),
        ]
        try:
            ivy = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise EmbeddedError(
                f"Kafka {version} could not be downloaded within {RESOLVE_SECONDS} s: check the network, then try again"
            ) from None
        # Ivy exits 0 on some failures: only the jars themselves prove that it worked.
        if ivy.returncode != 0 or not list(lib.glob(f"{artifact}-{version}.jar")) or "UNRESOLVED" in ivy.stdout:
            raise EmbeddedError(
                f"Kafka {version} could not be downloaded: {_ivy_reason(ivy.stdout + ivy.stderr)}. "
                "The first use needs the network (Maven Central, or a mirror that Ivy's settings name)"
            )
        shutil.move(lib, target)


def _ivy_reason(said: str) -> str:
    for sign in ("UNRESOLVED DEPENDENCY", "UnknownHost", "unresolved dependency", "FAILED", "Connection", "not found"):
        for line in said.splitlines():
            if sign in line:
                return " ".join(line.strip(" :\t").split())
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "Ivy said nothing"


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EmbeddedError("the embedded Kafka needs PySpark's wheel, which carries Ivy: pip install 'kretain[demo]'")
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise EmbeddedError(f"no ivy-*.jar in {Path(spec.origin).parent / 'jars'}: reinstall PySpark")
    return jars[-1]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
