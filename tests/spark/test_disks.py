"""Rules that speak of disks, over Spark: the plan that this process makes by itself (R5 to R7)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from retention_cli.plan.value import Plan
from tests.support.clusters import EmbeddedKafka
from tests.support.spark.disks import COUNT, ceiling, topics_of_ages
from tests.support.spark.engines import Engines, reasons_of
from tests.support.volumes import RECORD, scan_all
from tests.support.world import DAY, MIB, World, now_ms


@pytest.fixture
def engines(local_spark: Any, world: World, tmp_path: Path) -> Engines:
    return Engines(local_spark, world, tmp_path)


def policy_of(world: World, names: list[str], untouched: str) -> str:
    """The other rules speak of one topic each, and free less than the ceiling asks for."""
    return "\n".join(
        [
            "version: 1",
            *ceiling(world),
            "  watermarks: [{percent: 40, factor: 0.5, minimum: 1d}]",
            "topics:",
            f"  - {{match: {names[0]}, retention.topic.bytes: {4 * MIB}}}",
            f"  - {{match: {names[1]}, granularity: segment}}",
            f"  - {{match: {names[2]}, retention.ms: {30 * DAY}}}",
            f"  - {{match: {names[3]}, retention.bytes: {3 * MIB}}}",
            f"  - {{match: {untouched}, retention.ms: {DAY}}}",
            "",
        ]
    )


def rules_of(plan: Plan) -> dict[str, str | None]:
    return {one.topic: one.rule for one in plan.decisions}


@pytest.mark.timeout(900)  # brokers' own topics may change under several pairs of looks
def test_spark_disk_plan_equals_the_local_one(engines: Engines, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    world = engines.world
    names = topics_of_ages(world, 40, 30, 20, 10)
    compacted = world.topic("compacted", cleanup_policy="compact,delete", segment_ms=str(1000 * DAY))
    world.produce_at(compacted, [now_ms()] * 20)
    policy = policy_of(world, names, compacted)
    guess = engines.same(policy, now_ms)
    assert rules_of(guess)[names[0]] == "disk-usage", reasons_of(guess, names[0]) + str(guess.notes)
    assert "estimated" in reasons_of(guess, names[0])
    assert rules_of(guess)[names[2]] == "forced-age"  # 15 days of 30: R7
    assert rules_of(guess)[names[3]] == "size"
    assert "G5" in reasons_of(guess, compacted)  # but it lies on a disk above its ceiling
    assert len(guess.disks) == 3
    engines.inventory = scan_all(kafka, tmp_path / "inventory")
    exact = engines.same(policy, now_ms)
    assert {rules_of(exact)[name] for name in names[:2]} == {"disk-usage"}
    assert "estimated" not in reasons_of(exact, names[0])
    assert exact.space is not None
    first = now_ms() - 18 * DAY  # written since, and trimmed by R4 together with what was scanned
    world.produce_at(names[2], [first + 1000 * n for n in range(COUNT)], value=lambda: os.urandom(RECORD), batch=20)
    stale = engines.same(policy, now_ms)
    assert min(one.doubtful_bytes for one in stale.disks) > 4 * MIB
    assert "A fresh scan shows which" in str(stale.notes)
