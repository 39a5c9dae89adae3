"""R6 and R5 without an inventory, on real brokers: by bisected times, sizes, and what is remembered (docs/rules.md)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import parquet

from retention_cli.core.units import format_bytes
from tests.support.clusters import EmbeddedKafka
from tests.support.volumes import RECORD, await_copies, scan_all, trimmed, used
from tests.support.world import HOUR, MIB, World, now_ms, wait_until, written

CEILING = 60


@dataclass
class Stuffed:
    """Three brokers that don't sweep while a test runs; by the policy's word each is full to the last byte."""

    kafka: EmbeddedKafka
    world: World
    topics: list[str]

    def policy(self, folder: Path, *entry: str) -> Path:
        capacity = ", ".join(f'"{broker}:{path}": {size}' for broker, (path, size) in used(self.world).items())
        lines = [
            "version: 1",
            "disks:",
            f"  log.retention.disk.usage.percent: {CEILING}",
            f"  capacity: {{{capacity}}}",
            "topics:",
            "  - match: stuffed-*",
            *(f"    {one}" for one in entry),
        ]
        return written(folder / "policy.yaml", "\n".join([*lines, ""]))

    def starts(self) -> dict[str, int]:
        return {name: self.world.ends(name)[0] for name in self.topics}


@pytest.fixture(scope="module")
def stuffed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stuffed]:
    chance = random.Random(5)
    settings = {
        "log.retention.check.interval.ms": str(HOUR),
        "log.initial.task.delay.ms": str(HOUR),  # 30 s by default: the first sweep would come while a test runs
        "log.index.size.max.bytes": "65536",
    }
    with EmbeddedKafka(3, settings=settings) as kafka:
        world = World(kafka.bootstrap, tmp_path_factory.mktemp("estimate") / "state")
        topics = []
        for _ in range(9):
            name = world.topic("stuffed", replicas=2, segment_bytes=str(MIB))
            count = (2 * chance.randint(4, 9) + 1) * MIB // 2 // RECORD
            oldest = now_ms() - chance.randint(10, 60) * HOUR
            stamps = [oldest + n * chance.randint(20_000, 60_000) for n in range(count)]
            world.produce_at(name, sorted(stamps), value=lambda: os.urandom(RECORD), batch=20)
            topics.append(name)
        found = Stuffed(kafka, world, topics)

        await_copies(world, topics)
        yield found


def freed_by(inventory: Path, bounds: dict[str, int]) -> dict[int, int]:
    """What these bounds really free on each broker: whole segments, but for the active ones."""
    freed: dict[int, int] = {}
    for path in sorted(inventory.glob("*.parquet")):
        for row in parquet.read_table(path).to_pylist():
            going = row["next_offset"] is not None and row["next_offset"] <= bounds.get(row["topic"], 0)
            gone = row["bytes"] if going and not row["active"] else 0
            freed[row["broker"]] = freed.get(row["broker"], 0) + gone
    return freed


def test_disk_estimate_frees_80_to_120_percent_of_the_inventorys_trim(stuffed: Stuffed, tmp_path: Path) -> None:
    """The issue's figure, on each disk of a real cluster; and the plan says that it is estimated."""
    policy, inventory = stuffed.policy(tmp_path, "unconsumed: trim"), scan_all(stuffed.kafka, tmp_path / "inventory")
    exact = stuffed.world.cli("plan", "-p", str(policy), "--inventory", str(inventory), "-o", "json", check=0)
    guess = stuffed.world.cli("plan", "-p", str(policy), "-o", "json", check=0)
    assert trimmed(guess)
    really, should = freed_by(inventory, trimmed(guess)), freed_by(inventory, trimmed(exact))
    print({broker: f"{really[broker] / should[broker]:.2f}" for broker in should})  # noqa: T201
    for broker, wanted in should.items():
        assert wanted > 5 * MIB
        assert 0.8 * wanted <= really[broker] <= 1.2 * wanted, broker
    assert {one["estimated"] for one in guess.json()["disks"]} == {True}
    assert {one["estimated"] for one in exact.json()["disks"]} == {False}
    assert {one["short_bytes"] for one in guess.json()["disks"]} == {0}
    assert all("estimated" in row["reasons"][0]["text"] for row in guess.json()["partitions"] if row["trim_to"])
    space, disks = guess.json()["space"], guess.json()["disks"]
    assert space["freed_bytes"] == sum(one["freed_bytes"] + one["other_rules_bytes"] for one in disks)
    assert (space["disks_known"], space["check_interval_ms"], space["delete_delay_ms"]) == (3, HOUR, 60_000)
    table = stuffed.world.cli("plan", "-p", str(policy), check=0).out
    shown = stuffed.world.cli("disk", "-p", str(policy), check=0).out
    assert "Growth needs two samples" in shown
    assert "about " in shown
    freed = format_bytes(space["freed_bytes"])
    assert f"Brokers free about {freed} of disk space, counting all replicas, within 1 h" in table


def test_disk_estimate_stops_at_the_floor_and_names_the_group(stuffed: Stuffed, tmp_path: Path) -> None:
    """G2: the group has read 120 of each; an unknown floor holds."""
    read = dict.fromkeys(stuffed.topics[1:], 120)
    for name, offset in read.items():
        stuffed.world.commit("slow", name, offset)
    made = stuffed.world.cli("plan", "-p", str(stuffed.policy(tmp_path)), "-o", "json", check=0)
    assert trimmed(made).items() <= read.items()
    rows = {row["topic"]: row for row in made.json()["partitions"]}
    assert rows[stuffed.topics[0]]["action"] == "hold"
    assert {reason["code"] for reason in rows[stuffed.topics[0]]["reasons"]} == {"F4"}
    for disk in made.json()["disks"]:
        assert disk["short_bytes"] > 0
        assert any("group:slow" in one["reason"]["text"] for one in disk["in_the_way"])
    assert "short by" in made.err


def test_disk_estimate_does_not_count_a_previous_trim_twice(stuffed: Stuffed, tmp_path: Path) -> None:
    """Last in this module: data goes. Nothing is swept yet: its bytes count as on their way, and its topics hold."""
    policy = str(stuffed.policy(tmp_path, "unconsumed: trim"))
    first = stuffed.world.cli("trim", "-p", policy, "--yes", "-o", "json", check=0)
    gone = {row["topic"] for row in first.json()["partitions"] if row["outcome"] == "trimmed"}
    assert gone
    after = stuffed.starts()
    again = stuffed.world.cli("trim", "-p", policy, "--yes", "-o", "json")
    rows = {row["topic"]: row for row in again.json()["partitions"]}
    assert {rows[name]["outcome"] for name in gone} == {"held"}
    assert {rows[name]["outcome"] for name in set(stuffed.topics) - gone} <= {"unchanged"}
    assert all("removed yet" in rows[name]["reasons"][0]["text"] for name in gone)
    assert stuffed.starts() == after
    for disk in again.json()["disks"]:
        assert disk["dead_bytes"] > 0
    fresh = World(stuffed.world.bootstrap, tmp_path / "another-state")  # who remembers nothing trusts nothing
    assert not gone & trimmed(fresh.cli("plan", "-p", policy, "-o", "json", check=0)).keys()
    assert stuffed.starts() == after


def test_disk_estimate_continues_after_brokers_have_swept(world: World, tmp_path: Path) -> None:
    """R6: once the size has fallen it is known again; ``--wait`` stays until then."""
    name = world.topic("stages", replicas=2, segment_bytes=str(MIB))
    world.produce_at(name, [now_ms() - HOUR] * 600, value=lambda: os.urandom(RECORD), batch=20)
    policy = tmp_path / "policy.yaml"
    ceiling = "disks: {log.retention.disk.usage.percent: 1, capacity: 10MiB}"
    policy.write_text(f"version: 1\n{ceiling}\ntopics:\n  - match: {name}\n")
    world.commit("stage", name, 300)
    trim = ("trim", "-p", str(policy), "--yes", "-o", "json", "--wait", "--wait-at-most", "100s")
    world.cli(*trim, check=5)  # its last segment and everybody else's topics stay: short
    assert 2 * MIB < world.ends(name)[0] * RECORD <= 300 * RECORD
    world.commit("stage", name, 600)

    def goes_on() -> bool:
        [row] = world.cli("plan", "-p", str(policy), "-o", "json", check=0).json()["partitions"]
        return row["action"] == "trim" and row["trim_to"] > 300

    wait_until(goes_on, "sizes of both replicas that fell")


def test_size_limit_without_an_inventory_trims_once(world: World) -> None:
    """R5: until the size has fallen it is unknown; then it fits, but for the segment in which S stands."""
    name = world.topic("sized", segment_bytes=str(MIB))
    world.produce_at(name, [now_ms()] * 600, value=lambda: os.urandom(RECORD), batch=20)
    policy = f"version: 1\ntopics:\n  - match: {name}\n    retention.bytes: 3MiB\n    unconsumed: trim\n"
    plan = world.plan(policy)
    [one] = plan.decisions
    assert (one.action, one.rule) == ("trim", "size")
    assert one.trim_to is not None
    assert 2.5 * MIB <= (600 - one.trim_to) * RECORD <= 3 * MIB
    world.trim(plan, policy)

    def settled() -> bool:
        [now] = world.plan(policy).decisions
        assert now.action in ("hold", "keep"), "the same bytes were taken twice"
        return now.action == "keep"

    wait_until(settled, "a size that fell")
    assert world.ends(name)[0] == one.trim_to
    world.produce_at(name, [now_ms()] * 300, value=lambda: os.urandom(RECORD), batch=20)
    [more] = world.plan(policy).decisions
    assert more.trim_to is not None
    assert 2.5 * MIB <= (900 - more.trim_to) * RECORD <= 4 * MIB
