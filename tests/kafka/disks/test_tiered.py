"""Topics with remote storage, on a broker whose remote storage is real: a folder, by Kafka's own LocalTieredStorage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from kretain.embedded import jars
from tests.support.clusters import EmbeddedKafka
from tests.support.processes import locked
from tests.support.volumes import RECORD, Filled, disk_in, trimmed, volume
from tests.support.world import HOUR, MIB, World, now_ms, wait_until, written

VERSION: Final = "4.3.0"
"""The newest whose test jar of Kafka's storage is published: brokers with tiered storage are of this version."""


def storage_jar() -> Path:
    folder = jars.cache_dir() / "jars" / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        context = jars.maven(folder)
        return context.create_dependency(f"org.apache.kafka:kafka-storage:jar:test:{VERSION}").artifact.resolve()


def remote_settings(jar: Path, remote: Path) -> dict[str, str]:
    remote.mkdir(parents=True, exist_ok=True)
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jar),
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(remote),
        "remote.log.metadata.manager.listener.name": "PLAIN",
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
    }


LOCAL_BYTES: Final = 4 * MIB


@dataclass
class Tiered(Filled):
    """A broker with one topic whose oldest segments are remote alone."""

    topic_name: str
    remote: Path

    def far(self) -> list[Path]:
        return sorted(self.remote.rglob("*.log"))

    def near(self) -> list[int]:
        [node] = self.kafka.nodes
        return sorted(int(one.stem) for one in Path(node.log_dirs[0]).glob(f"{self.topic_name}-0/*.log"))

    def settled(self) -> bool:
        """Whether the broker deletes no further local segment, and has removed those that it deleted."""
        [node] = self.kafka.nodes
        files = list(Path(node.log_dirs[0]).glob(f"{self.topic_name}-0/*"))
        if any(one.suffix == ".deleted" for one in files):
            return False
        first, *others = sorted(one for one in files if one.suffix == ".log")
        return int(first.stem) > 0 and sum(one.stat().st_size for one in others) < LOCAL_BYTES


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Tiered]:
    settings = {
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
        "log.index.size.max.bytes": "65536",
        **remote_settings(storage_jar(), tmp_path / "remote"),
    }
    with ExitStack() as stack:
        folder = stack.enter_context(volume(tmp_path / "volume", 96))
        kafka = stack.enter_context(EmbeddedKafka(1, version=VERSION, log_dirs=[[folder / "logs"]], settings=settings))
        world = World(kafka.bootstrap, tmp_path / "state")
        topic = world.topic(
            "tiered",
            remote_storage_enable="true",
            local_retention_bytes=str(LOCAL_BYTES),
            segment_bytes=str(MIB),
            file_delete_delay_ms="1000",
        )
        first = now_ms() - 30 * HOUR
        stamps = [first + 1000 * n for n in range(12 * MIB // RECORD)]
        world.produce_at(topic, stamps, value=lambda: os.urandom(RECORD), batch=50)
        one = Tiered(kafka, world, tmp_path, topic, tmp_path / "remote")
        wait_until(lambda: one.settled() and len(one.far()) >= 6, "segments that are remote alone", 120)
        yield one


def test_remote_segments_are_trimmed_only_if_the_policy_allows_it(far: Tiered) -> None:
    """R6 leaves the topic alone; ``tiered: trim`` lets it go, and then what is remote goes, too; bytes are not known."""
    assert far.world.ends(far.topic_name)[0] == 0, "what is remote is still there to be read"
    begins = far.near()[0]
    scanned = far.scan("near")
    total, used, _ = far.described()
    percent = round(100 * (used - MIB) / total, 2)
    alone = far.policy(percent, f'match: "{far.topic_name}"')
    for n, more in enumerate(((), ("--inventory", scanned))):
        left = far.plan(alone, *more, fresh=f"alone-{n}")
        assert trimmed(left) == {}, more
        [row] = left.json()["partitions"]
        assert row["action"] == "keep", row
        assert any("remote storage" in one["reason"]["text"] for one in disk_in(left)["in_the_way"]), disk_in(left)
    may = far.policy(percent, f'match: "{far.topic_name}", tiered: trim')
    for n, more in enumerate(((), ("--inventory", scanned))):
        made = far.plan(may, *more, fresh=f"may-{n}")
        [row] = made.json()["partitions"]
        assert row["bytes"] is None or row["bytes_exact"] is False, "what brokers say is what is local"
        assert all(reason["text"].find("which no scan finds") < 0 for reason in row["reasons"]), row
    made = far.plan(may, "--inventory", scanned)
    assert trimmed(made)[far.topic_name] > begins, "only what is local frees the disk"
    before = len(far.far())
    far.world.cli("trim", "-p", str(may), "--inventory", scanned, "--yes", "-o", "json", check=0)
    assert far.world.ends(far.topic_name)[0] > begins
    wait_until(lambda: len(far.far()) < before - 4, "what was remote before it is deleted, too", 120)


def test_trim_by_time_counts_no_local_bytes_for_remote_segments(far: Tiered) -> None:
    """R4 of half of the log: records are counted, bytes are not known (``size``)."""
    path = written(
        far.root / "forced.yaml", f'version: 1\ntopics:\n  - {{match: "{far.topic_name}", retention.ms: 1799m}}\n'
    )
    made = far.plan(path)
    [row] = made.json()["partitions"]
    assert row["action"] == "trim", row
    assert row["records"] > 0
    assert row["bytes"] is None, row
    assert [note["code"] for note in made.json()["notes"]].count("tiered") == 1, made.json()["notes"]
    refused = far.world.cli("policy", "check", "-p", str(path), check=1)
    assert f"forced.yaml:3: tiered: is not set to trim for {far.topic_name}" in refused.err
    path.write_text(f'version: 1\ntopics:\n  - {{match: "{far.topic_name}", retention.ms: 1799m, tiered: trim}}\n')
    checked = far.world.cli("policy", "check", "-p", str(path), check=0)
    assert "a trim also deletes what is in remote storage" in checked.err
