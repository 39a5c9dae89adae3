"""R6 on disks that really fill: log dirs on small tmpfs volumes, filled by producers (R6, KIP-61)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import EmbeddedKafka
from tests.support.volumes import RECORD, scan_all, volume
from tests.support.world import HOUR, MIB, Cli, World, now_ms, reader_for, wait_until

ROOM = 48
"""MiB of each broker's volume."""
CEILING = 50
FILLED = 12 * MIB // RECORD


def usage(world: World) -> dict[int, float]:
    with reader_for(world.bootstrap) as reader:
        answers = reader.log_dirs(reader.brokers())
    found = {}
    for broker, dirs in answers.items():
        assert not isinstance(dirs, Exception)
        [one] = dirs
        assert isinstance(one.total_bytes, int)
        assert isinstance(one.usable_bytes, int)
        found[broker] = 100 * (one.total_bytes - one.usable_bytes) / one.total_bytes
    return found


@dataclass
class Full:
    """Three brokers whose volumes are nearly full, by three topics of another age each."""

    kafka: EmbeddedKafka
    world: World
    topics: dict[str, str] = field(default_factory=dict)
    inventory: Path = Path()
    """Made once: nothing is written and nothing goes before the last test."""

    def starts(self) -> dict[str, int]:
        return {stem: self.world.ends(name)[0] for stem, name in self.topics.items()}

    def run(self, command: str, policy: Path, *more: str, check: int | None = None) -> Cli:
        return self.world.cli(command, "-p", str(policy), *more, check=check)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Full]:
    root = tmp_path_factory.mktemp("disks")
    settings = {
        "log.retention.check.interval.ms": "500",
        "log.segment.delete.delay.ms": "100",
        "log.index.size.max.bytes": "65536",
    }
    with ExitStack() as stack:
        dirs = [[stack.enter_context(volume(root / f"volume-{n}", ROOM)) / "logs"] for n in (1, 2, 3)]
        kafka = stack.enter_context(EmbeddedKafka(nodes=3, log_dirs=dirs, settings=settings))
        found = Full(kafka, World(kafka.bootstrap, root / "state"))
        for stem, age in (("old", 30 * HOUR), ("middle", 20 * HOUR), ("young", 10 * HOUR)):
            name = found.world.topic(stem, replicas=3, segment_bytes=str(MIB), min_insync_replicas="1")
            found.topics[stem] = name
            first = now_ms() - age
            stamps = [first + 1000 * n for n in range(FILLED)]
            found.world.produce_at(name, stamps, value=lambda: os.urandom(RECORD), batch=50)
        wait_until(lambda: min(usage(found.world).values()) > 70, "replicas of all topics on all volumes")
        for stem, offset in (("old", 250), ("middle", FILLED), ("young", FILLED)):
            found.world.commit("reader", found.topics[stem], offset)
        found.inventory = scan_all(kafka, root / "inventory")
        yield found


def policy_of(folder: Path, *lines: str, percent: float = CEILING, entry: str = "unconsumed: hold") -> Path:
    path = folder / "policy.yaml"
    head = ["version: 1", f"disks: {{log.retention.disk.usage.percent: {percent}}}", *lines]
    path.write_text("\n".join([*head, "topics:", "  - match: [old-*, middle-*, young-*]", f"    {entry}", ""]))
    return path


def disks_in(plan: Cli) -> list[dict[str, Any]]:
    found = plan.json()["disks"]
    assert [one["broker"] for one in found] == [1, 2, 3]
    return found


def test_lagging_group_keeps_its_data_on_a_full_disk_and_is_named(full: Full, tmp_path: Path) -> None:
    """Never past G2; what could not be reached is said, and exit codes are README.md's."""
    policy, inventory = policy_of(tmp_path, percent=10), full.inventory
    made = full.run("plan", policy, "--inventory", str(inventory), "-o", "json", "--fail-on-hold", check=4)
    rows = {row["topic"]: row for row in made.json()["partitions"]}
    old = rows[full.topics["old"]]
    assert old["action"] == "keep" or old["trim_to"] <= 250
    for disk in disks_in(made):
        assert disk["short_bytes"] > 0
        assert any("group:reader" in one["reason"]["text"] for one in disk["in_the_way"])
        assert any(one["reason"]["code"] == "active" for one in disk["in_the_way"])
    name = f"{full.topics['middle']}:0"
    explained = full.run("explain", policy, name, "--inventory", str(inventory), "-o", "json", check=0)
    assert full.topics["middle"] in explained.out
    assert '"disk-usage"' in explained.out
    assert "short by" in made.err
    assert "group:reader" in made.err
    report = full.run("trim", policy, "--inventory", str(inventory), "-o", "json", "--dry-run", check=5)
    assert {row["outcome"] for row in report.json()["partitions"]} <= {"would-trim", "unchanged"}
    assert full.starts() == {"old": 0, "middle": 0, "young": 0}


@pytest.mark.long
def test_disk_watermark_shortens_the_forced_age(full: Full, tmp_path: Path) -> None:
    """R7: at 15 % already every disk has reached the mark; what it adds is guarded by the floor."""
    marks = "  watermarks: [{percent: 15, factor: 0.5, minimum: 1h}]"
    path = tmp_path / "policy.yaml"
    text = ["version: 1", "disks:", marks, "topics:", "  - match: [old-*, middle-*, young-*]", "    retention.ms: 25h"]
    path.write_text("\n".join(text))
    rows = {row["topic"]: row for row in full.run("plan", path, "-o", "json", check=0).json()["partitions"]}
    old, middle, young = (rows[full.topics[stem]] for stem in ("old", "middle", "young"))
    assert (old["trim_to"], old["rule"]) == (FILLED, "forced-age")  # by the unscaled age, read or not
    assert (middle["trim_to"], middle["rule"]) == (FILLED, "forced-age")  # 20 h old, and 25 h count as 12.5 h
    assert any(reason["code"] == "R7" for reason in middle["reasons"])
    assert young["action"] == "keep"


def test_inventory_of_another_cluster_or_missing_brokers_trims_nothing(full: Full, tmp_path: Path) -> None:
    policy, inventory = policy_of(tmp_path, entry="unconsumed: trim"), full.inventory
    one = full.run("plan", policy, "--inventory", str(inventory / "1.parquet"), "-o", "json", check=0)
    assert [disk["broker"] for disk in disks_in(one) if not disk["reasons"]] == [1]
    assert "kretain segments scan" in one.err
    copy = tmp_path / "inventory"
    shutil.copytree(inventory, copy)
    (copy / "1.parquet").write_bytes(b"broken")
    assert "1.parquet" in full.run("trim", policy, "--inventory", str(copy), "--yes", check=1).err
    planned = full.run("plan", policy, "--inventory", str(copy), "-o", "json", check=0)
    assert "1.parquet is not a Parquet file that kretain can read" in planned.err
    assert 1 not in [disk["broker"] for disk in disks_in(planned) if not disk["reasons"]], "it costs its broker alone"
    assert {disk["broker"] for disk in disks_in(planned) if not disk["reasons"]}
    assert full.starts() == {"old": 0, "middle": 0, "young": 0}


def test_trim_brings_each_disk_under_its_ceiling_oldest_first(full: Full, tmp_path: Path) -> None:
    """Last in this module: data goes. A saved plan is decided afresh; a second run trims nothing."""
    policy, inventory = policy_of(tmp_path, entry="unconsumed: trim"), str(full.inventory)
    before = usage(full.world)
    assert min(before.values()) > CEILING
    plan = tmp_path / "plan.json"
    full.run("plan", policy, "--inventory", inventory, "--out", str(plan), check=0)
    rehearsed = full.run("trim", policy, "--plan", str(plan), "--dry-run", "-o", "json", check=0)
    asked = {row["topic"]: row["trim_to"] or 0 for row in json.loads(plan.read_text())["partitions"]}
    for row in rehearsed.json()["partitions"]:  # no inventory: estimated afresh, and never more than was planned
        assert (row["target"] or 0) <= asked[row["topic"]]
    more = ("--inventory", inventory, "--plan", str(plan), "--yes", "--wait", "-o", "json")
    report = full.run("trim", policy, *more, check=0)
    assert "trimmed" in {row["outcome"] for row in report.json()["partitions"]}
    # it has waited until brokers count these segments no more; their files go log.segment.delete.delay.ms later
    wait_until(lambda: max(usage(full.world).values()) < min(before.values()) - 15, "the files to go", 20)
    again = full.run("trim", policy, "--inventory", inventory, "--yes", "-o", "json", check=0)
    assert {row["outcome"] for row in again.json()["partitions"]} == {"unchanged"}
    wait_until(lambda: max(usage(full.world).values()) <= CEILING, "every volume under its ceiling")
    starts = full.starts()
    assert starts["old"] > FILLED - 2 * MIB // RECORD  # all of the oldest but the active segment
    assert 0 < starts["middle"] < FILLED
    assert starts["young"] == 0
    assert min(after for after in usage(full.world).values()) > CEILING - 15, "far more went than had to"
    full.world.produce(full.topics["young"], 20, value=os.urandom(RECORD))  # the brokers take writes as before
    fresh = str(scan_all(full.kafka, tmp_path / "fresh"))
    settled = full.run("plan", policy, "--inventory", fresh, "-o", "json", check=0)
    assert {row["action"] for row in settled.json()["partitions"]} == {"keep"}
