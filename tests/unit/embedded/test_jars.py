"""A broker's jars: fetched once, whole or not at all, whoever else wants them; and why, where they can't be had.

Ivy is real; what it asks is a repository on this disk, or a port that nobody listens on.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kretain.embedded import EmbeddedError, jars
from kretain.embedded.java import Java, find_java

SETTINGS = """<ivysettings>
  <settings defaultResolver="ours"/>
  <resolvers><ibiblio name="ours" m2compatible="true" root="{root}"/></resolvers>
</ivysettings>"""
POM = """<project><modelVersion>4.0.0</modelVersion>
  <groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  <dependencies>{dependencies}</dependencies></project>"""
NEEDS = "<dependency><groupId>org.apache.kafka</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
NO_JAVA = Java(Path("/nowhere/java"), 17, "nowhere")
"""Whoever downloads with this fails."""


@pytest.fixture(scope="module")
def java() -> Java:
    return find_java()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Publish artifacts to a repository that Ivy's settings name."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(root=f"{(tmp_path / 'maven').as_uri()}/"))
    monkeypatch.setenv(jars.SETTINGS_VARIABLE, str(settings))

    def put(artifact: str, version: str, needs: tuple[str, ...] = (), *, jar: bool = True) -> None:
        folder = tmp_path / "maven" / "org" / "apache" / "kafka" / artifact / version
        folder.mkdir(parents=True)
        dependencies = "".join(NEEDS.format(one, version) for one in needs)
        pom = POM.format(artifact=artifact, version=version, dependencies=dependencies)
        (folder / f"{artifact}-{version}.pom").write_text(pom)
        if jar:
            (folder / f"{artifact}-{version}.jar").write_bytes(b"a jar")

    return put


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_existing_jars_are_not_downloaded_again(
    publish: Callable[..., None], cache: Path, java: Java, told: list[str]
) -> None:
    publish("kafka_2.13", "1.0.0", needs=("kafka-clients",))
    publish("kafka-clients", "1.0.0")
    lib = jars.resolve("kafka_2.13", "1.0.0", java, told.append, cache=cache)
    assert names(lib) == {"kafka_2.13-1.0.0.jar", "kafka-clients-1.0.0.jar"}
    assert told == ["downloading Kafka 1.0.0 (once, about 45 MB) …"]
    assert jars.resolve("kafka_2.13", "1.0.0", NO_JAVA, told.append, cache=cache) == lib
    assert len(told) == 1


def test_two_processes_download_once(publish: Callable[..., None], tmp_path: Path) -> None:
    publish("kafka_2.13", "1.0.0")
    script = (
        "from kretain.embedded import jars; from kretain.embedded.java import find_java;"
        "print(jars.resolve('kafka_2.13', '1.0.0', find_java(), print))"
    )
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    both = [
        subprocess.Popen([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate(timeout=100)[0].splitlines() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    lib = tmp_path / "cache" / "kretain" / "jars" / "kafka_2.13-1.0.0"
    assert [lines[-1] for lines in said] == [str(lib), str(lib)]
    assert sorted(len(lines) for lines in said) == [1, 2], "only one of them downloaded"
    assert names(lib) == {"kafka_2.13-1.0.0.jar"}


def test_unpublished_version_is_named_and_leaves_nothing(
    publish: Callable[..., None], cache: Path, java: Java, told: list[str]
) -> None:
    with pytest.raises(EmbeddedError) as caught:
        jars.resolve("kafka_2.13", "9.9.9", java, told.append, cache=cache)
    assert "Kafka 9.9.9 could not be downloaded: module not found: org.apache.kafka#kafka_2.13;9.9.9." in str(
        caught.value
    )
    assert "network" not in str(caught.value)
    assert names(cache / "jars") <= {".lock", ".ivy"}
    publish("kafka_2.13", "9.9.9")
    assert jars.resolve("kafka_2.13", "9.9.9", java, told.append, cache=cache).is_dir(), "the next try is a new one"


@pytest.mark.parametrize("missing", ["module", "jar"])
def test_incomplete_download_counts_as_nothing(
    publish: Callable[..., None], cache: Path, java: Java, told: list[str], missing: str
) -> None:
    publish("kafka_2.13", "4.4.0", needs=("kafka-tools-api",))
    if missing == "jar":
        publish("kafka-tools-api", "4.4.0", jar=False)
    with pytest.raises(EmbeddedError, match="kafka-tools-api"):
        jars.resolve("kafka_2.13", "4.4.0", java, told.append, cache=cache)
    assert names(cache / "jars") <= {".lock", ".ivy"}


def test_missing_network_is_named(
    tmp_path: Path, cache: Path, java: Java, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:  # bound, and nobody listens
        closed.bind(("127.0.0.1", 0))
        settings = tmp_path / "ivysettings.xml"
        settings.write_text(SETTINGS.format(root=f"http://127.0.0.1:{closed.getsockname()[1]}/maven/"))
        monkeypatch.setenv(jars.SETTINGS_VARIABLE, str(settings))
        with pytest.raises(EmbeddedError) as caught:
            jars.resolve("kafka_2.13", "4.3.0", java, told.append, cache=cache)
    assert "Connection refused" in str(caught.value)
    assert "The first use needs the network" in str(caught.value)
    assert names(cache / "jars") <= {".lock", ".ivy"}


def test_java_without_certificates_is_told_from_a_missing_network(
    publish: Callable[..., None], cache: Path, told: list[str], tmp_path: Path
) -> None:
    """What Ivy says where a company's proxy answers with the company's own certificate."""
    said = "Server access error at url https://maven (javax.net.ssl.SSLHandshakeException: PKIX path building failed)"
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '\t{said}'\n")
    java.chmod(0o755)
    with pytest.raises(EmbeddedError, match="PKIX path building failed") as caught:
        jars.resolve("kafka_2.13", "1.0.0", Java(java, 17, "PATH"), told.append, cache=cache)
    assert "JAVA_HOME" in str(caught.value)
    assert "needs the network" not in str(caught.value)


def test_next_download_removes_what_a_killed_one_left(
    publish: Callable[..., None], cache: Path, java: Java, told: list[str]
) -> None:
    left = cache / "jars" / ".resolving-killed" / "lib"
    left.mkdir(parents=True)
    publish("kafka_2.13", "1.0.0")
    jars.resolve("kafka_2.13", "1.0.0", java, told.append, cache=cache)
    assert not left.parent.exists()


def test_unknown_broker_settings_are_named(
    cache: Path, java: Java, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jars.SETTINGS_VARIABLE, "/nowhere/ivysettings.xml")
    with pytest.raises(EmbeddedError, match=r"/nowhere/ivysettings\.xml \(KRETAIN_IVY_SETTINGS\) is not there"):
        jars.resolve("kafka_2.13", "1.0.0", java, told.append, cache=cache)


def test_missing_pyspark_names_the_package(cache: Path, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(EmbeddedError, match=r"pip install .*\[demo\]'"):
        jars.resolve("kafka_2.13", "1.0.0", NO_JAVA, told.append, cache=cache)
