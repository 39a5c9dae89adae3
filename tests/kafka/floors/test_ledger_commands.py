"""``kretain ledger`` and ``groups forget``: what is remembered, shown and forgotten (docs/memory.md; F6)."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import pytest
import yaml

from kretain.embedded import EmbeddedKafka
from tests.support.ledger_stores import renew_state_topic, run
from tests.support.terminal import Terminal
from tests.support.world import HOUR, World, consumed

OLD = [30 * HOUR] * 10


@pytest.fixture(scope="module", autouse=True)
def _kretain_topics(kafka: EmbeddedKafka) -> None:
    renew_state_topic(kafka.bootstrap)


@pytest.fixture(params=["local", "cluster"])
def shop(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> tuple[World, str, str]:
    """A topic of two partitions with a group that is there and one that is gone, remembered by a plan."""
    topic = world.topic("shop", partitions=2, message_timestamp_type="CreateTime")
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"state: {request.param}\n{consumed(topic)}\n    retention.max.eventtime.ms: 7d\n")
    for partition in (0, 1):
        world.produce(topic, OLD, partition)
    world.commit(f"{topic}-there", topic, {0: 7, 1: 8})
    world.commit(f"{topic}-gone", topic, {0: 3, 1: 4})
    run(world, "plan", "-p", str(policy), check=0)
    world.delete_group(f"{topic}-gone")
    return world, topic, str(policy)


Shop = tuple[World, str, str]


def test_ledger_show_lists_what_is_remembered_of_each_partition(shop: Shop) -> None:
    world, topic, policy = shop
    stamps = [stamp for _, stamp in world.records(topic)]
    base = ("ledger", "show", topic, "-p", policy)
    whole = run(world, *base, "-o", "json", check=0).json()
    assert whole["format"] == "kretain.ledger/v1"
    assert whole["state"] == yaml.safe_load(Path(policy).read_text())["state"]
    assert [row["partition"] for row in whole["partitions"]] == [0, 1]
    row = whole["partitions"][0]
    assert (row["samples"], row["newest_high_watermark"], row["oldest_high_watermark"]) == (1, 10, 10)
    assert row["max_event_time"] == max(stamps)
    assert [(seen["group"], seen["offset"], seen["gone"]) for seen in row["groups"]] == [
        (f"{topic}-gone", 3, False),
        (f"{topic}-there", 7, False),
    ]
    assert yaml.safe_load(run(world, *base, "-o", "yaml", check=0).out) == whole
    rows = list(csv.DictReader(io.StringIO(run(world, *base, "-o", "csv", check=0).out)))
    assert rows[1]["groups"] == f"{topic}-gone 4; {topic}-there 8"
    table = run(world, *base, check=0).out
    assert f"{topic}-0" in table
    assert f"{topic}-gone 3, {topic}-there 7" in table


def test_ledger_show_is_empty_for_a_recreated_topic_and_not_for_a_deleted_one(shop: Shop) -> None:
    world, topic, policy = shop
    world.delete(topic)
    assert f"{topic}-1" in run(world, "ledger", "show", topic, "-p", policy, check=0).out
    world.topic(name=topic)
    assert (
        f"kretain remembers nothing of topic {topic}" in run(world, "ledger", "show", topic, "-p", policy, check=1).err
    )


def test_groups_forget_removes_a_deleted_group_from_decisions(shop: Shop) -> None:
    """F6: until kretain groups forget."""
    world, topic, policy = shop

    def floors() -> list[int]:
        plan = run(world, "plan", "-p", policy, "-o", "json", check=0).json()
        return [row["min_commit"] for row in plan["partitions"]]

    listed = run(world, "groups", "-p", policy, "--group", f"{topic}-*", "-o", "json", check=0).json()["groups"]
    gone = next(row for row in listed if row["group"] == f"{topic}-gone")
    assert gone["state"].startswith("gone since 20")
    assert gone["counts"].startswith("counts until 20")
    assert (gone["topics"], gone["partitions"], gone["lag"]) == ([topic], 2, 13)
    assert floors() == [3, 4]
    both = ("groups", "forget", f"{topic}-gone", f"{topic}-never", "-p", policy)
    refused = run(world, *both, check=1)
    assert f"nothing is remembered of group {topic}-never; nothing was forgotten" in refused.err
    assert floors() == [3, 4]
    dry = run(world, "groups", "forget", f"{topic}-gone", "--dry-run", "-p", policy, check=0)
    assert dry.out == f"Would be forgotten: {topic}-gone, on 2 partitions of {topic}\n"
    command = [
        sys.executable,
        "-m",
        "kretain",
        "groups",
        "forget",
        f"{topic}-gone",
        "-p",
        policy,
        "-b",
        world.bootstrap,
    ]
    with Terminal([*command, "--state-dir", str(world.state_dir)]) as terminal:
        terminal.read_until("[y/N]")
        assert f"Forget {topic}-gone, on 2 partitions of {topic}?" in " ".join(terminal.text.split())
        terminal.type("n\r")
        assert terminal.wait() == 6
    assert floors() == [3, 4]
    # Shared options may stand before the subcommand too.
    assert run(world, "groups", "-p", policy, "forget", f"{topic}-gone", check=0).out == f"Forgotten: {topic}-gone\n"
    assert floors() == [7, 8]
    alive = run(world, "groups", "forget", f"{topic}-there", "-p", policy, check=0)
    assert f"group {topic}-there still exists, and counts where it is" in alive.err
    assert floors() == [7, 8]


def test_ledger_prune_forgets_old_deleted_groups_and_counts_them(shop: Shop) -> None:
    world, topic, policy = shop
    assert run(world, "ledger", "prune", "--older-than", "1h", "-p", policy, check=0).out == (
        "Forgotten: 0 topics that are gone, 0 groups.\n"
    )
    dry = run(world, "ledger", "prune", "--older-than", "0s", "--dry-run", "-p", policy, check=0).out
    assert dry.startswith("Would be forgotten: ")
    done = run(world, "ledger", "prune", "--older-than", "0s", "-p", policy, check=0).out
    assert done == dry.replace("Would be forgotten", "Forgotten"), "the dry run forgot nothing, and told the same"
    shown = run(world, "ledger", "show", topic, "-p", policy, "-o", "json", check=0).json()["partitions"]
    assert [(row["samples"], row["groups"]) for row in shown] == [(1, []), (1, [])], "the topic is there, the groups go"
    world.delete(topic)
    assert (
        "Forgotten: 1 topic that is gone"
        in run(world, "ledger", "prune", "--older-than", "0s", "-p", policy, check=0).out
    )
    run(world, "ledger", "show", topic, "-p", policy, check=1)


def test_ledger_prune_needs_an_age(shop: Shop) -> None:
    world, _, policy = shop
    assert "--older-than" in run(world, "ledger", "prune", "-p", policy, check=2).err


def test_groups_forget_accepts_patterns(shop: Shop) -> None:
    """A pattern leaves groups that exist alone, and one that matches none of those that are gone is refused."""
    world, topic, policy = shop
    dry = run(world, "groups", "forget", f"{topic}-*", "--dry-run", "-p", policy, check=0)
    assert dry.out == f"Would be forgotten: {topic}-gone, on 2 partitions of {topic}\n"
    assert run(world, "groups", "forget", f"{topic}-*", "-p", policy, check=0).out == f"Forgotten: {topic}-gone\n"
    refused = run(world, "groups", "forget", f"{topic}-*", "-p", policy, check=1)
    assert f"no group that is gone and remembered matches {topic}-*; nothing was forgotten" in refused.err
