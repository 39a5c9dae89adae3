"""An archive in a real object store: archived, trimmed, verified and restored, by this process and by Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.archiving import archived, odd_flights, policy, produce, whole
from tests.support.s3 import S3, SECRET, s3_server
from tests.support.world import Cli, World, run_cli

pytestmark = pytest.mark.long  # it downloads a server, and starts Spark


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def commands(world: World, s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Cli]]:
    """What every command said: no secret of the store's, as no test passes without looking."""
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    said: list[Cli] = []
    yield said
    assert said
    for one in said:
        assert SECRET not in one.out + one.err
    for log in world.state_dir.rglob("audit.jsonl"):
        assert SECRET not in log.read_text()


@pytest.mark.parametrize("spark", [(), ("--spark", "--master", "local[2]")], ids=["here", "spark"])
def test_archive_trim_verify_and_restore_work_on_s3(
    world: World, s3: S3, commands: list[Cli], tmp_path: Path, spark: tuple[str, ...]
) -> None:
    topic = world.topic("in-s3", partitions=2)
    for partition in range(2):
        produce(world, topic, odd_flights(1_200), partition, "zstd")
    before = [whole(world, topic, partition) for partition in range(2)]
    world.commit(f"{topic}-g", topic, {0: 1_200, 1: 1_200})
    file = tmp_path / "policy.yaml"
    file.write_text(policy(topic, f'"{s3.url}"'))
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
    world: World, s3: S3, commands: list[Cli], tmp_path: Path, spark: tuple[str, ...]
) -> None:
    topic = world.topic("refused")
    produce(world, topic, odd_flights(10))
    world.commit(f"{topic}-g", topic, 10)
    file = tmp_path / "policy.yaml"
    file.write_text(policy(topic, f'"{s3.url}"'))
    wrong = {"AWS_SECRET_ACCESS_KEY": "another"}
    commands.append(world.cli("trim", "-p", str(file), "--yes", "-o", "json", *spark, check=0, **wrong))
    (row,) = commands[-1].json()["partitions"]
    assert row["outcome"] == "held"
    assert "could not be archived to s3://backup/kafka" in row["reasons"][0]["text"]
    assert world.ends(topic) == (0, 10)
