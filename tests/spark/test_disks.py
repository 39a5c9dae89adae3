"""Rules that speak of disks, over Spark: the plan that this process makes by itself (RULES.md R5 to R7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retention_cli.embedded import EmbeddedKafka
from retention_cli.plan import Plan
from tests.kafka.world import DAY, World, now_ms
from tests.spark.disks import MIB, ceiling, inventory_of, topics_of_ages
from tests.spark.engines import Engines, reasons_of


@pytest.fixture
def engines(local_spark: Any, world: World, tmp_path: Path) -> Engines:
    return Engines(local_spark, world, tmp_path)


def policy_of(world: World, names: list[str]) -> str:
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
            "",
        ]
    )


def rules_of(plan: Plan) -> dict[str, str | None]:
    return {one.topic: one.rule for one in plan.decisions}


@pytest.mark.timeout(900)  # brokers' own topics may change under several pairs of looks
def test_the_same_plan_of_disks_with_and_without_an_inventory(
    engines: Engines, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    world = engines.world
    names = topics_of_ages(world, 40, 30, 20, 10)
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
