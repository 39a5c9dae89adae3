"""Archives in real stores, S3, Azure and HDFS: archived, trimmed, verified, compacted and restored."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.fs
import pytest

from kretain.embedded.cluster import free_ports
from kretain.embedded.jars import find_java
from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.store import Store
from tests.support.archives import archived, filled, policy, small, whole
from tests.support.processes import beside, port_of
from tests.support.says import refusal, says
from tests.support.secured import show_none
from tests.support.spark.commands import ON_YARN, Command
from tests.support.spark.hadoop import Hdfs, Yarn, hdfs, libhdfs, resolved
from tests.support.trims import trimmed_with_evidence_at
from tests.support.world import Cli, World, run_cli, written

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which everyone knows."""


@dataclass(frozen=True)
class Server:
    """An archive's URL in it; of S3's also the folder with its objects, and what its clients have in their environment."""

    url: str
    folder: Path = Path()
    environ: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, npm, node = tmp_path_factory.mktemp("azure"), shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("there is no npm")
    run = subprocess.run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), "azurite"], check=False)
    if run.returncode:
        pytest.skip("npm can't install Azurite here")
    port = free_ports(1)[0]
    command = [node, str(folder / "node_modules/azurite/dist/src/blob/main.js"), "--silent", "--inMemoryPersistence"]
    command += ["--blobPort", str(port), "--skipApiVersionCheck", "--disableTelemetry"]
    with beside(command, folder) as server:
        port_of(server, folder)
        place = f"127.0.0.1:{port}"
        files = pyarrow.fs.AzureFileSystem(
            ACCOUNT, account_key=KEY, blob_storage_authority=place, dfs_storage_authority=place,
            blob_storage_scheme="http", dfs_storage_scheme="http",
        )  # fmt: skip
        files.create_dir("backup")
        yield Server(
            f"abfs://backup@{ACCOUNT}.dfs.core.windows.net/kafka?"
            f"blob_storage_authority={place}&dfs_storage_authority={place}&scheme=http"
        )


VERSION = "3.0.0"
NAME, SECRET = "AKIAEXAMPLE", "hush-4b1e77"
_QUIET = "<configuration><root level='off'/></configuration>"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, port = tmp_path_factory.mktemp("s3"), free_ports(1)[0]
    (folder / "objects" / "backup").mkdir(parents=True)
    settings = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": NAME,
        "s3proxy.credential": SECRET,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "x",
        "jclouds.credential": "x",
        "jclouds.filesystem.basedir": str(folder / "objects"),
    }
    (folder / "s3.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    (folder / "logback.xml").write_text(_QUIET)
    command = [
        *(str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
        *(f"-Dlogback.configurationFile={folder / 'logback.xml'}", "-cp"),
        f"{resolved('org.gaul', 's3proxy', VERSION)}/*",
        *("org.gaul.s3proxy.Main", "--properties", str(folder / "s3.properties")),
    ]
    with beside(command, folder) as server:
        port_of(server, folder)
        yield Server(
            f"s3://backup/kafka?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{port}",
            folder / "objects" / "backup" / "kafka",
            {
                "AWS_ACCESS_KEY_ID": NAME,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_EC2_METADATA_DISABLED": "true",
                # Of a store that does not know the newest checksums, as docs/archive.md has it.
                "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
                "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
            },
        )


pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # servers are downloaded, and Spark is started


@pytest.fixture
def commands(world: World, s3: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Cli]]:
    """What every command said: no secret of the store's, as no test passes without looking."""
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    said: list[Cli] = []
    yield said
    assert said
    show_none([text for one in said for text in (one.out, one.err)], SECRET)
    show_none([log.read_text() for log in world.state_dir.rglob("audit.jsonl")], SECRET)


@pytest.mark.parametrize("spark", [(), ("--spark", "--master", "local[2]")], ids=["here", "spark"])
def test_archive_trim_verify_and_restore_work_on_s3(
    world: World, s3: Server, commands: list[Cli], tmp_path: Path, spark: tuple[str, ...]
) -> None:
    topic = filled(world, 2, codec="zstd")
    before = [whole(world, topic, partition) for partition in range(2)]
    file = written(tmp_path / "policy.yaml", policy(topic, f'"{s3.url}"'))
    commands.append(world.cli("trim", "-p", str(file), "--yes", "-o", "json", *spark, check=0))
    assert [one["outcome"] for one in commands[-1].json()["partitions"]] == ["trimmed"] * 2
    assert [world.ends(topic, partition) for partition in range(2)] == [(1_200, 1_200)] * 2
    assert [archived(s3.url, topic, partition) for partition in range(2)] == before
    commands.append(run_cli("archive", "verify", s3.url, topic, "-o", "json", check=0))
    assert sum(one["records"] for one in commands[-1].json()["partitions"]) == 2_400
    target = world.topic("back", partitions=2)
    commands.append(world.cli("restore", topic, "--from", s3.url, "--to", target, "--yes", check=0))
    assert [whole(world, target, partition) for partition in range(2)] == before
    (first, *_) = sorted((s3.folder).rglob(f"*topic={topic}*/**/*.parquet"))
    first.unlink()
    commands.append(run_cli("archive", "verify", s3.url, topic, check=5))
    assert "is missing" in commands[-1].out


@pytest.mark.parametrize("spark", [(), ("--spark", "--master", "local[2]")], ids=["here", "spark"])
def test_missing_write_permission_on_s3_holds_and_is_named(
    world: World, s3: Server, commands: list[Cli], tmp_path: Path, spark: tuple[str, ...]
) -> None:
    topic = filled(world, records=10)
    file = written(tmp_path / "policy.yaml", policy(topic, f'"{s3.url}"'))
    wrong = {"AWS_SECRET_ACCESS_KEY": "another"}
    commands.append(world.cli("trim", "-p", str(file), "--yes", "-o", "json", *spark, check=0, **wrong))
    (row,) = commands[-1].json()["partitions"]
    assert (row["outcome"], world.ends(topic)) == ("held", (0, 10))
    assert "could not be archived to s3://backup/kafka" in row["reasons"][0]["text"]


def test_encrypted_archive_works_on_azure(
    world: World, azure: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    small(monkeypatch, 400)
    topic = filled(world, 2, codec="zstd")
    before = [whole(world, topic, partition) for partition in range(2)]
    key = written(tmp_path / "archive.key", base64.b64encode(os.urandom(32)).decode())
    file = written(tmp_path / "policy.yaml", "archive.key: archive.key\n" + policy(topic, f'"{azure.url}"'))
    done = world.cli("trim", "-p", str(file), "--yes", "-o", "json", check=0)
    assert [one["outcome"] for one in done.json()["partitions"]] == ["trimmed"] * 2
    assert KEY not in done.out + done.err
    run_cli("archive", "verify", "-p", str(file), topic, check=0)
    assert "is encrypted with the key of id" in run_cli("archive", "verify", azure.url, topic, check=1).err
    target = world.topic("back", partitions=2, retention_ms="-1")
    arguments = ("--from", azure.url, "--archive-key", str(key), "--to", target, "--groups", "--yes")
    world.cli("restore", topic, *arguments, check=0)
    assert [whole(world, target, partition) for partition in range(2)] == before


def test_file_on_azure_is_never_seen_half_written(azure: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure empties a file that is opened for writing; the old one counts until the new one is complete."""
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    store = Store(azure.url)
    store.write("a/one.json", b"old")

    class Dies:
        def __buffer__(self, _flags: int) -> memoryview:
            raise OSError("out of memory")

    with pytest.raises((ArchiveError, TypeError)):
        store.write("a/one.json", Dies())
    assert store.read("a/one.json") == b"old"
    store.write("a/one.json", b"new")
    assert (store.read("a/one.json"), store.files("a")) == (b"new", ["a/one.json"])


def test_wrong_credentials_are_one_clear_line_without_the_token(azure: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=2022-11-02&sp=rw&sig=HUSHHUSH%3D")
    elsewhere = azure.url.split("blob_storage_authority=")[0] + "blob_storage_authority=127.0.0.1:1&scheme=http"
    for url, said in (
        (azure.url, "Azure does not accept these credentials"),
        (elsewhere, "the store can't be reached"),
    ):
        says(refusal(ArchiveError, Store(url).exists), said, never=["HUSH"])


def test_run_is_proven_from_evidence_on_s3_and_a_missing_file_is_named(
    world: World, s3: Server, commands: list[Cli], tmp_path: Path
) -> None:
    file, url = tmp_path / "policy.yaml", s3.url.replace("/kafka?", "/evidence?")
    trim, at = trimmed_with_evidence_at(world, url, file)
    run = trim.json()["run"]
    commands += [trim, world.cli("verify", run, "--evidence", at, check=0)]
    assert "proven" in commands[-1].out
    commands.append(world.cli("replay", "-p", str(file), "--evidence", at, "-o", "json", check=0))
    assert commands[-1].json()["totals"]["same"] == 17
    (place,) = s3.folder.parent.glob(f"evidence/*/{run}")
    (place / "001-facts.parquet").unlink()
    commands.append(world.cli("verify", run, "--evidence", at, check=1))
    assert "001-facts.parquet" in commands[-1].out


# -- HDFS ------------------------------------------------------------------------------------------


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process and those that it starts find libhdfs."""
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(libhdfs()))
    monkeypatch.setenv("JAVA_HOME", str(find_java().resolve().parents[1]))


@pytest.fixture
def place(hadoop_files: Hdfs, library: None, monkeypatch: pytest.MonkeyPatch) -> str:
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
    lost = Store("hdfs://127.0.0.1:1/archive")
    for ask in (lost.exists, lost.files, lambda: lost.size("a/b"), lambda: lost.write("a/b", b"")):
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


def test_lost_name_node_holds(world: World, tmp_path: Path, library: None) -> None:
    topic = filled(world)
    with hdfs(tmp_path) as lost:
        environ = lost.environ
        lost.name_node.kill()
    file = written(tmp_path / "policy.yaml", policy(topic, f"{lost.url}/archive"))
    done = Command(world, tmp_path, tmp_path, "trim", environ).run("-p", str(file), "--yes", state="state")
    [row] = json.loads(done.stdout)["partitions"]
    assert (row["outcome"], world.ends(topic)[0]) == ("held", 0)
    assert "can't be" in row["reasons"][0]["text"]
