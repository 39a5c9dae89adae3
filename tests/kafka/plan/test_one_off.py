"""One-off rules over a context's policy, on a real cluster: what goes is what the flags say (docs/policy.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import EmbeddedKafka
from tests.support.says import json_of, pick, rows_of, says
from tests.support.world import DAY, OLD, World, consumed, written

FLAGS = ("--older-than", "99999999d")


@pytest.fixture(scope="module")
def flights(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, str, Path, dict[str, Any]]:
    """A topic that its policy's R1 would trim, its policy, and the variable that makes it a context's."""
    folder = tmp_path_factory.mktemp("one-off")
    world = World(kafka.bootstrap, folder / "state")
    topic = world.filled(OLD, {"billing": 7}, stem="flights")
    policy = written(folder / "prod.yaml", consumed(topic))
    config = written(
        folder / "config.yaml",
        f"contexts:\n  prod: {{bootstrap-server: '{world.bootstrap}', policy: prod.yaml}}\ndefault-context: prod\n",
    )
    return world, topic, policy, {"KRETAIN_CONFIG": str(config)}


Flights = tuple[World, str, Path, dict[str, Any]]


def test_one_off_flag_replaces_the_policys_rules(flights: Flights) -> None:
    """The policy alone would trim seven records; the flag asks for what is older than a thousand centuries."""
    world, topic, policy, prod = flights
    assert [row["trim_to"] for row in json_of(world, "plan", **prod)["partitions"]] == [7]
    made = json_of(world, "plan", topic, *FLAGS, **prod)
    assert [pick(row, "action", "min_commit") for row in made["partitions"]] == [("keep", 7)]
    assert made["policy"]["rules"] == "one-off"
    table = world.cli("plan", topic, *FLAGS, check=0, **prod).out
    off = f"One-off rules: --older-than 99999999d. The rules of {policy} are off for this run; its guards"
    says(table, off, "No changes. 1 partition up to date.")
    world.cli("trim", topic, *FLAGS, "--yes", check=0, **prod)
    assert world.ends(topic) == (0, 10)


def test_saved_plan_needs_its_one_off_rules(flights: Flights, tmp_path: Path) -> None:
    """By the file seven records could go, by the flags none; the plan says ten, by another's hand."""
    world, topic, policy, _ = flights
    saved = tmp_path / "plan.json"
    base = ("-p", str(policy))
    world.cli("plan", topic, "--older-than", "1d", "--unconsumed", "trim", *base, "--out", str(saved), check=0)
    for others in ((), ("--older-than", "2d", "--unconsumed", "trim"), ("--older-than", "1d")):
        assert "one-off rules" in world.cli("trim", topic, *others, *base, "--plan", str(saved), "--yes", check=6).err
    saved.write_text(saved.read_text().replace(str(DAY), str(99_999_999 * DAY)))
    rows = rows_of(world, "trim", topic, *FLAGS, "--unconsumed", "trim", *base, "--plan", str(saved), "--yes")
    assert {name: row["outcome"] for name, row in rows.items()} == {topic: "unchanged"}
    assert world.ends(topic) == (0, 10)


def test_cluster_flag_with_a_contexts_policy_is_mentioned(flights: Flights) -> None:
    world, topic, policy, prod = flights
    told = f"kretain: the cluster is from -b, but the policy {policy} is from context prod: give -p FILE for another, or --no-policy\n"
    for command in (("plan", topic), ("trim", "--dry-run")):
        assert world.cli(*command, check=0, **prod).err.count(told) == 1
    assert world.cli("policy", "show", topic, check=0, **prod).err == told
    for silent in (("plan", "-q"), ("plan", "-p", str(policy)), ("policy", "check", str(policy)), ("history",)):
        assert told not in world.cli(*silent, check=0, **prod).err
    assert world.cli("plan", "-q", check=0, **prod).err == ""
