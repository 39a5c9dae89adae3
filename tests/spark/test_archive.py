"""Archiving on executors: the archive that this process writes, file for file; trimmed is only what is seen from here."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention_cli.archive.segment import SegmentSize
from retention_cli.archive.store import Store
from retention_cli.engines.spark.archiver import SparkArchiver
from retention_cli.trim.report import TrimReport
from tests.support.archives import (
    archive,
    archived,
    filled,
    flipped,
    odd_flights,
    policy,
    produce,
    small,
    transaction,
    whole,
    whole_and_tidy,
)
from tests.support.spark.clusters import standalone
from tests.support.spark.commands import SMALL, Command, Engines
from tests.support.world import World, wait_until


def written(folder: Path) -> dict[str, Any]:
    """Every file of an archive: manifests but for when they were written, data byte for byte."""
    files = (one for one in sorted(folder.rglob("*")) if one.is_file())

    def content(path: Path) -> Any:
        undated = {"written_at": "", "checksum": ""}
        return json.loads(path.read_text()) | undated if path.suffix == ".json" else path.read_bytes()

    # _groups has where consumers stood, at another time in each
    return {str(one.relative_to(folder)): content(one) for one in files if one.parent.name != "_groups"}


Trim = Callable[[str], TrimReport]


@pytest.fixture
def trim(local_spark: Any, world: World, tmp_path: Path) -> Trim:
    """Trims by a policy, archiving over Spark in segments of 500 records."""
    sender = Engines(local_spark, world, tmp_path).sender

    def run(text: str) -> TrimReport:
        return world.trim(
            world.plan(text),
            text,
            archiver=lambda reader, cluster: SparkArchiver(reader, cluster, lambda _: sender, SegmentSize(records=500)),
        )

    return run


def outcomes(report: TrimReport) -> dict[tuple[str, int], tuple[str, str]]:
    return {row.tp: (row.outcome, row.reasons[0].text if row.reasons else "") for row in report.rows}


def reason_held(world: World, trim: Trim, topic: str, place: Path) -> str:
    """Trim, and return why the topic's partition is held; nothing of it is gone."""
    outcome, reason = outcomes(trim(policy(topic, place)))[topic, 0]
    assert outcome == "held"
    assert world.ends(topic) == (0, 1_200)
    return reason


def test_spark_archive_equals_the_local_one_and_is_trimmed(
    world: World, trim: Trim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    topic = world.topic("executed", partitions=4)
    for partition, codec in enumerate(("none", "zstd", "snappy", "none")):
        produce(world, topic, odd_flights(600 + 300 * partition), partition, codec)
        transaction(world, topic, odd_flights(50), partition, commit=partition % 2 == 0)
    before = {partition: whole(world, topic, partition) for partition in range(4)}
    ends = {partition: world.ends(topic, partition)[1] for partition in range(4)}
    world.commit(f"{topic}-g", topic, ends | {2: 700})
    for partition in range(4):
        archive(world, topic, tmp_path / "local", partition)
    report = trim(policy(topic, tmp_path / "spark"))
    assert {one.outcome for one in report.rows} == {"trimmed"}, report.rows
    assert {one.tp.partition: one.log_start for one in report.rows} == ends | {2: 700}
    local, spark = written(tmp_path / "local"), written(tmp_path / "spark")
    theirs = {path: one for path, one in spark.items() if "partition=2/" not in path}
    assert theirs == {path: one for path, one in local.items() if "partition=2/" not in path}
    for partition, records in before.items():
        assert archived(tmp_path / "spark", topic, partition) + whole(world, topic, partition) == records
    assert whole_and_tidy(tmp_path / "spark")
    told = [json.loads(line) for line in next(world.state_dir.glob("*/audit.jsonl")).read_text().splitlines()]
    assert [line["event"] for line in told] == ["run", "archive", "evidence", "batch", "result", "evidence", "end"]
    assert {(one["partition"], one["from"], one["to"]) for one in told[1]["partitions"]} == {
        (partition, 0, end) for partition, end in (ends | {2: 700}).items()
    }


def test_archive_invisible_to_the_client_holds(
    world: World, trim: Trim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same path on another machine is another disk: the tasks write there, and this machine finds nothing."""
    topic = filled(world)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.setattr("retention_cli.archive.writer.Store", lambda _url, **_keys: Store(str(here)))
    assert "storage that this machine and all executors share" in reason_held(world, trim, topic, tmp_path / "there")
    assert len(archived(tmp_path / "there", topic)) == 1_200
    monkeypatch.undo()
    assert outcomes(trim(policy(topic, tmp_path / "there")))[topic, 0][0] == "trimmed"
    assert whole_and_tidy(tmp_path / "there")


def test_file_damaged_after_the_tasks_read_back_is_found_by_the_client(
    world: World, trim: Trim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(world)
    place = tmp_path / "archive"

    class Harmed(Store):
        """The same bytes count, others in the middle."""

        def digest(self, path: str) -> str:
            flipped(max(place.rglob("*.parquet")))
            return super().digest(path)

    monkeypatch.setattr("retention_cli.archive.writer.Store", Harmed)
    reason = reason_held(world, trim, topic, place)
    assert "CRC checksum" in reason or "damaged" in reason


def test_failed_archive_job_holds_its_partitions_with_one_line(
    world: World, trim: Trim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(world)

    def broken(*_: Any) -> Any:
        raise RuntimeError("of the test")

    monkeypatch.setattr("retention_cli.engines.spark.archiver.copies", broken)
    reason = reason_held(world, trim, topic, tmp_path / "archive")
    assert "RuntimeError: of the test" in reason
    assert "\n" not in reason


@pytest.mark.long
def test_spark_starts_only_for_archiving_and_holds_where_it_cannot_start(world: World, tmp_path: Path) -> None:
    topic, other = filled(world, records=10), filled(world, records=10)
    file, saved = tmp_path / "policy.yaml", tmp_path / "plan.json"
    free = [line for line in policy(other, "none").splitlines()[2:] if "archive:" not in line]
    file.write_text("\n".join([policy(topic, tmp_path / "archive"), *free]))
    world.cli("plan", "-p", str(file), "--out", str(saved), check=0)
    nowhere = ("-p", str(file), "--plan", str(saved), "--spark", "--master", "nowhere", "-o", "json")
    rehearsed = world.cli("trim", *nowhere, "--dry-run", check=0).json()
    assert {one["outcome"] for one in rehearsed["partitions"]} == {"would-trim"}
    done = world.cli("trim", *nowhere, "--yes", "--fail-on-hold", check=4)
    rows = {one["topic"]: one for one in done.json()["partitions"]}
    assert (rows[other]["outcome"], rows[topic]["outcome"]) == ("trimmed", "held")
    assert "Spark at nowhere can't be used" in rows[topic]["reasons"][0]["text"]
    assert world.ends(topic) == (0, 10)
    assert not done.err


@pytest.mark.long  # what is archived is tested on a local session
@pytest.mark.parametrize("where", ["spark_standalone", "spark_connect"])
def test_remote_spark_archives_a_saved_plan_without_logging_the_url(
    where: str, world: World, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Not in Spark's event log, which has every plan, job and setting."""
    spark = request.getfixturevalue(where)
    topic = filled(world, 3)
    place = tmp_path / "archive-7d1e0b"
    file, saved, events = tmp_path / "policy.yaml", tmp_path / "plan.json", tmp_path / "events"
    file.write_text(policy(topic, place))
    events.mkdir()
    world.cli("plan", "-p", str(file), "--out", str(saved), check=0)
    logged = ("--spark-conf", "spark.eventLog.enabled=true", "--spark-conf", f"spark.eventLog.dir={events.as_uri()}")
    rows = Command(world, tmp_path, spark.folder, "trim").json(
        *("-p", str(file), "--plan", str(saved), "--yes", "--spark", "--master", spark.url),
        *((*SMALL, *logged) if where == "spark_standalone" else ()),
        state="state",
    )["partitions"]
    assert [(one["outcome"], one["log_start"]) for one in rows] == [("trimmed", 1_200)] * 3, rows
    assert whole_and_tidy(place)
    for partition in range(3):
        assert len(archived(place, topic, partition)) == 1_200
    logs = [one for one in events.rglob("*") if one.is_file()]
    assert where == "spark_connect" or sum(one.stat().st_size for one in logs) > 10_000
    assert not [one for one in logs if place.name.encode() in one.read_bytes()]


@pytest.mark.long  # a cluster of its own, and a worker that must be found dead
def test_killed_worker_loses_nothing_of_an_archive(world: World, tmp_path: Path) -> None:
    """Its tasks run again elsewhere, and write the same segments under the same names."""
    topic = filled(world, 6, records=50_000)
    before = {partition: whole(world, topic, partition) for partition in range(6)}
    file, place = tmp_path / "policy.yaml", tmp_path / "archive"
    file.write_text(policy(topic, place))
    with standalone(tmp_path, workers=2) as spark:
        running = Command(world, tmp_path, tmp_path, "trim").start(
            *("-p", str(file), "--yes", "--spark", "--master", spark.url, *SMALL), state="state"
        )
        wait_until(lambda: running.poll() is not None or bool(list(place.rglob("*.parquet"))), "a first file", 240)
        spark.workers[0].kill()
        out, err = running.communicate(timeout=600)
    assert running.returncode == 0, err
    assert {one["outcome"] for one in json.loads(out)["partitions"]} == {"trimmed"}, out
    for partition in range(6):
        assert archived(place, topic, partition) == before[partition]
    assert whole_and_tidy(place)


@pytest.mark.long  # two sessions of the command's own
def test_client_killed_during_a_spark_archive_loses_nothing(world: World, tmp_path: Path) -> None:
    topic = filled(world, 6, records=20_000)
    before = {partition: whole(world, topic, partition) for partition in range(6)}
    file, place = tmp_path / "policy.yaml", tmp_path / "archive"
    file.write_text(policy(topic, place))
    flags = ("-p", str(file), "--yes", "--spark", "--master", "local[2]")
    command = Command(world, tmp_path, tmp_path, "trim")
    running = command.start(*flags, state="state")
    wait_until(lambda: bool(list(place.rglob("*.json"))), "a first segment", 120)
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=60)
    assert {world.ends(topic, partition)[0] for partition in range(6)} == {0}
    left = {path: content for path, content in written(place).items() if path.endswith(".json")}
    assert {one["outcome"] for one in command.json(*flags, state="state")["partitions"]} == {"trimmed"}
    for partition in range(6):
        assert archived(place, topic, partition) == before[partition]
        assert world.ends(topic, partition) == (20_000, 20_000)
    assert {path: content for path, content in written(place).items() if path in left} == left
    assert whole_and_tidy(place)
