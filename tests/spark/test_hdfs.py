"""Archives on a real HDFS."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import pytest

from kretain.embedded.java import find_java
from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.store import Store
from tests.support.archives import archived, filled, policy, whole
from tests.support.says import refusal
from tests.support.spark.commands import ON_YARN, Command
from tests.support.spark.hadoop import Hdfs, Yarn, hdfs, libhdfs
from tests.support.trims import trimmed_with_evidence_at
from tests.support.world import World, written

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
]


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process and those that it starts find libhdfs."""
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(libhdfs()))
    monkeypatch.setenv("JAVA_HOME", str(find_java().resolve().parents[1]))


@pytest.fixture
def place(hadoop_files: Hdfs, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of the test's own in HDFS, for this process, too."""
    monkeypatch.setenv("CLASSPATH", hadoop_files.environ["CLASSPATH"])
    return f"{hadoop_files.url}/archive-{uuid.uuid4().hex}"


def test_hdfs_replaces_files_and_reports_doubt_as_an_error(place: str, tmp_path: Path) -> None:
    """HDFS that does not answer, or not to us, is no empty archive."""
    store = Store(place)
    assert (store.exists(), store.files(), store.files("a"), store.size("a/b")) == (False, [], [], None)
    for content in (b"one", b"two", b"two"):
        store.write("a/b", content)
        assert (store.read("a/b"), store.files(), store.size("a/b")) == (content, ["a/b"], 3)
    store.write("closed/in/c", b"three")
    stranger = Store(f"{place}?user=stranger")
    assert "can't be written" in refusal(ArchiveError, stranger.write, "a/b", b"four")
    assert (store.read("a/b"), stranger.files()) == (b"two", ["a/b", "closed/in/c"])
    nobody = Store("hdfs://127.0.0.1:1/archive")
    for ask in (nobody.exists, nobody.files, lambda: nobody.size("a/b"), lambda: nobody.write("a/b", b"")):
        assert "can't be" in refusal(ArchiveError, ask)


@pytest.mark.parametrize("where", ["here", "yarn"])
def test_hdfs_archive_is_trimmed(
    where: str, world: World, tmp_path: Path, place: str, hadoop_files: Hdfs, request: pytest.FixtureRequest
) -> None:
    """By this process, and by executors on YARN, who need of Hadoop's client what this machine needs."""
    topic = filled(world, 2)
    world.commit(f"{topic}-g", topic, {1: 700})
    before = {partition: whole(world, topic, partition) for partition in range(2)}
    file = written(tmp_path / "policy.yaml", policy(topic, place))
    environ, folder = hadoop_files.environ, tmp_path
    flags: tuple[str, ...] = ()
    if where == "yarn":
        cluster: Yarn = request.getfixturevalue("spark_yarn")
        passed = ["ARROW_LIBHDFS_DIR", "HADOOP_HOME", "JAVA_HOME"]
        theirs = {name: os.environ[name] for name in passed if name in os.environ} | environ
        given = [
            word for name, value in theirs.items() for word in ("--spark-conf", f"spark.executorEnv.{name}={value}")
        ]
        environ, folder, flags = environ | cluster.environ, cluster.folder, (*ON_YARN, *given)
    done = Command(world, tmp_path, folder, "trim", environ).json("-p", str(file), "--yes", *flags, state="state")
    assert {one["outcome"] for one in done["partitions"]} == {"trimmed"}, done
    assert [world.ends(topic, partition)[0] for partition in range(2)] == [1_200, 700]
    for partition, records in before.items():
        assert archived(place, topic, partition) + whole(world, topic, partition) == records
    assert not [path for path in Store(place).files() if path.endswith((".tmp", ".old"))]


def test_run_is_proven_from_evidence_on_hdfs(world: World, tmp_path: Path, place: str) -> None:
    trim, at = trimmed_with_evidence_at(world, place, tmp_path / "policy.yaml")
    assert "proven" in world.cli("verify", trim.json()["run"], "--evidence", at, check=0).out


def test_lost_name_node_holds(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = filled(world)
    with hdfs(tmp_path) as lost:
        environ = lost.environ
        lost.name_node.kill()
    file = written(tmp_path / "policy.yaml", policy(topic, f"{lost.url}/archive"))
    done = Command(world, tmp_path, tmp_path, "trim", environ).run("-p", str(file), "--yes", state="state")
    [row] = json.loads(done.stdout)["partitions"]
    assert (row["outcome"], world.ends(topic)[0]) == ("held", 0)
    assert "can't be" in row["reasons"][0]["text"]
