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

from kretain.embedded.download_bar import download_bar
from kretain.embedded.errors import EmbeddedError
from kretain.embedded.java import Java
from retention_cli.core.files import home
from retention_cli.core.install import how_to_add

DEFAULT_VERSION = "4.4.0"
"""The Kafka that `kretain demo` and the tests run."""

KAFKA = "org.apache.kafka"

KAFKA_BYTES = 45 * 2**20
"""About what Kafka's jars have together."""

RESOLVE_SECONDS = 600

SETTINGS_VARIABLE = "KRETAIN_IVY_SETTINGS"
"""The variable that names a settings file for Ivy, to use a mirror for the jars."""

_SCRATCH = ".resolving-"
_LOGGING = ("slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core")

Progress = Callable[[str], None]
"""Called with one line for display before a slow step."""


def cache_dir() -> Path:
    """Return the user's cache folder for jars (``$XDG_CACHE_HOME/kretain`` or ``~/.cache/kretain``)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(home() / ".cache")
    return Path(base) / "kretain"


def resolve(
    artifact: str, version: str, java: Java, progress: Progress, *, cache: Path | None = None, group: str = KAFKA
) -> Path:
    """Return a folder with the jars of ``group:artifact:version`` and its dependencies.

    They are downloaded on first use; later calls only check the disk. Several processes may call this at once. Ivy uses
    its default repository (Maven Central), or those in the settings file that ``KRETAIN_IVY_SETTINGS`` names.

    Raises:
        EmbeddedError: no PySpark (its wheel carries Ivy), no network, or no such version.
    """
    root = (cache or cache_dir()) / "jars"
    target = root / f"{artifact}-{version}"
    if target.is_dir():  # folders are renamed into place, so an existing one is complete
        return target
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / ".lock"):
        if not target.is_dir():
            for left in root.glob(f"{_SCRATCH}*"):  # left by a killed process: we have the lock, so none is in use
                shutil.rmtree(left, ignore_errors=True)
            progress(f"downloading {_called(group, artifact)} {version} (once, about 45 MB) …")
            _download(group, artifact, version, java, root, target)
    return target


def _called(group: str, artifact: str) -> str:
    return "Kafka" if group == KAFKA else artifact


def _download(group: str, artifact: str, version: str, java: Java, root: Path, target: Path) -> None:
    called = _called(group, artifact)
    settings = os.environ.get(SETTINGS_VARIABLE)
    if settings and not Path(settings).is_file():
        raise EmbeddedError(f"{settings} ({SETTINGS_VARIABLE}) is not there")
    with tempfile.TemporaryDirectory(dir=root, prefix=_SCRATCH) as scratch:
        lib = Path(scratch) / "lib"
        command = [
            *(str(java.executable), "-jar", str(ivy_jar()), *(("-settings", settings) if settings else ())),
            *("-cache", str(root / ".ivy"), "-dependency", group, artifact, version, "-confs", "default"),
            *("-retrieve", f"{lib}/[artifact]-[revision](-[classifier]).[ext]"),
            *("-types", "jar", "bundle", "maven-plugin"),
        ]
        try:
            with download_bar(root / ".ivy", KAFKA_BYTES if group == KAFKA else None):
                ivy = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise EmbeddedError(
                f"{called} {version} could not be downloaded within {RESOLVE_SECONDS} s: check the network, then try "
                "again"
            ) from None
        # Ivy exits 0 on some failures: only the jars themselves prove that it worked.
        whole = "UNRESOLVED DEPENDENCIES" not in ivy.stdout and "FAILED DOWNLOADS" not in ivy.stdout
        if ivy.returncode != 0 or not whole or not list(lib.glob(f"{artifact}-{version}.jar")):
            raise EmbeddedError(f"{called} {version} could not be downloaded: {_ivy_reason(ivy.stdout + ivy.stderr)}")
        shutil.move(lib, target)


def _ivy_reason(said: str) -> str:
    """Return the line of Ivy's output that has the cause, and what to do about it."""
    lines = [" ".join(line.strip(" :\t").split()) for line in said.splitlines()]
    for line in lines:
        if "SSLHandshake" in line or "certification path" in line:
            return (
                f"{line}. That Java does not trust who answered: let JAVA_HOME name one that does, or give it the "
                "certificates (JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=FILE)"
            )
        if any(sign in line for sign in ("Server access error", "UnknownHost", "Connection", "timed out", "[FAILED")):
            return (
                f"{line}. The first use needs the network, or a mirror: {SETTINGS_VARIABLE} names an Ivy settings file"
            )
    for line in lines:
        if line.startswith(("module not found", "[NOT FOUND")):
            return f"{line}. There is no such version there, or a part of it was never published"
    return next((line for line in reversed(lines) if line), "Ivy said nothing")


def ivy_jar() -> Path:
    """Return the path of the Ivy jar in PySpark's wheel."""
    found = sorted(_pyspark_jars().glob("ivy-*.jar"))
    if not found:
        raise EmbeddedError(f"no ivy-*.jar in {_pyspark_jars()}: reinstall PySpark")
    return found[-1]


def logging_jars() -> list[Path]:
    """Return the jars that a broker lacks to log anything: a backend for SLF4J, which prints errors."""
    try:
        folder = _pyspark_jars()
    except EmbeddedError:  # the broker runs without it, but its errors are not shown
        return []
    return [jar for name in _LOGGING for jar in sorted(folder.glob(f"{name}-[0-9]*.jar"))[-1:]]


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EmbeddedError(f"the embedded Kafka needs PySpark's wheel, which carries Ivy: {how_to_add('demo')}")
    return Path(spec.origin).parent / "jars"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock against other processes of this user."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
