"""Rules that speak of disks, over Spark: the plan that this process makes by itself (RULES.md R5 to R7)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from retention_cli.embedded import EmbeddedKafka
from retention_cli.plan import Plan
from tests.kafka.world import DAY, World, now_ms, reader_for, run_cli, wait_until
from tests.spark.engines import Engines, reasons_of

MIB = 1 << 20
RECORD = 10_000
COUNT = 6 * MIB // RECORD


@pytest.fixture
def engines(local_spark: Any, world: World, tmp_path: Path) -> Engines:
    return Engines(local_spark, world, tmp_path)


def used(world: World) -> dict[int, tuple[str, int]]:
    """Each broker's dir, and its replicas' bytes."""
    found = {}
    with reader_for(world.bootstrap) as reader:
        for broker, dirs in reader.log_dirs(reader.brokers()).items():
            assert not isinstance(dirs, Exception)
            [one] = dirs
            found[broker] = (one.path, sum(replica.size_bytes for replica in one.replicas))
    return found


def topics_of_ages(world: World) -> list[str]:
    """Return topics of several segments on every broker, the oldest first; a group has read all of it."""
    names = []
    for days in (40, 30, 20, 10):
        name = world.topic("disk", replicas=3, segment_bytes=str(MIB))
        first = now_ms() - days * DAY
        stamps = [first + 1000 * n for n in range(COUNT)]
        world.produce_at(name, stamps, value=lambda: os.urandom(RECORD), batch=20)
        world.commit(f"{name}-g", name, COUNT)
        names.append(name)

    def copied() -> bool:
        with reader_for(world.bootstrap) as reader:
            answers = reader.log_dirs(reader.brokers())
        sizes: dict[str, set[int]] = {name: set() for name in names}
        for dirs in answers.values():
            assert not isinstance(dirs, Exception)
            for replica in dirs[0].replicas:
                if replica.tp.topic in sizes:
                    sizes[replica.tp.topic].add(replica.size_bytes)
        return all(len(one) == 1 and min(one) > 5 * MIB for one in sizes.values())

    wait_until(copied, "followers that have caught up")
    return names


def policy_of(world: World, names: list[str]) -> str:
    """A ceiling that asks for more than the two topics that other rules trim; the other rules speak of one topic each."""
    capacity = ", ".join(f'"{broker}:{path}": {2 * (size - 16 * MIB)}' for broker, (path, size) in used(world).items())
    return "\n".join(
        [
            "version: 1",
            "disks:",
            "  log.retention.disk.usage.percent: 50",
            f"  capacity: {{{capacity}}}",
            "  watermarks: [{percent: 40, factor: 0.5, minimum: 1d}]",
            "topics:",
            f"  - {{match: {names[0]}}}",
            f"  - {{match: {names[1]}, granularity: segment}}",
            f"  - {{match: {names[2]}, retention.ms: {30 * DAY}}}",
            f"  - {{match: {names[3]}, retention.bytes: {3 * MIB}}}",
            "",
        ]
    )


def inventory_of(kafka: EmbeddedKafka, folder: Path) -> Path:
    folder.mkdir()
    for node in kafka.nodes:
        out = folder / f"{node.node_id}.parquet"
        run_cli("segments", "scan", *map(str, node.log_dirs), "--out", str(out), "--no-tiered", check=0)
    return folder


def rules_of(plan: Plan) -> dict[str, str | None]:
    return {one.topic: one.rule for one in plan.decisions}


def test_the_same_plan_of_disks_with_and_without_an_inventory(
    engines: Engines, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    world = engines.world
    names = topics_of_ages(world)
    policy = policy_of(world, names)
    guess = engines.same(policy, now_ms)
    assert rules_of(guess)[names[0]] == "disk-usage", reasons_of(guess, names[0]) + str(guess.notes)
    assert "estimated" in reasons_of(guess, names[0])
    assert rules_of(guess)[names[2]] == "forced-age"  # 15 days of 30: R7
    assert rules_of(guess)[names[3]] == "size"
    assert len(guess.disks) == 3
    engines.inventory = inventory_of(kafka, tmp_path / "inventory")
    exact = engines.same(policy, now_ms)
    assert {rules_of(exact)[name] for name in names[:2]} == {"disk-usage"}
    assert "estimated" not in reasons_of(exact, names[0])
    assert exact.space is not None
