"""R6 on disks that really fill, on small tmpfs volumes; R6 and R5 without an inventory (docs/rules.md)."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from retention_cli.core.units import format_bytes
from tests.support.clusters import EmbeddedKafka
from tests.support.says import says
from tests.support.volumes import RECORD, Filled, await_copies, log_dirs_of, scan_all, trimmed, used, volume
from tests.support.world import HOUR, MIB, Cli, World, now_ms, wait_until, written

ROOM = 48
"""MiB of each broker's volume."""
CEILING = 50
FILLED = 12 * MIB // RECORD
AGES_H = {"old": 30, "middle": 20, "young": 10}


def usage(world: World) -> list[float]:
    """Return how full each broker's only dir is, in percent."""
    dirs: Any = log_dirs_of(world).values()
    return [100 * (1 - one.usable_bytes / one.total_bytes) for [one] in dirs]


@dataclass
class Full(Filled):
    """Three brokers whose volumes are nearly full, by three topics of another age each."""

    inventory: Path = Path()
    """Made once: nothing is written and nothing goes before the last test."""

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
        found = Full(kafka, World(kafka.bootstrap, root / "state"), root)
        for stem, age in AGES_H.items():
            found.topic(stem, 12, age, 3, min_insync_replicas="1", file_delete_delay_ms="100")
        wait_until(lambda: min(usage(found.world)) > 70, "replicas of all topics on all volumes")
        for stem, offset in (("old", 250), ("middle", FILLED), ("young", FILLED)):
            found.world.commit("reader", found.topics[stem], offset)
        found.inventory = scan_all(kafka, root / "inventory")
        yield found


def policy_of(folder: Path, percent: float = CEILING, entry: str = "unconsumed: hold") -> Path:
    ceiling = f"disks: {{log.retention.disk.usage.percent: {percent}}}"
    text = f"version: 1\n{ceiling}\ntopics: [{{match: [old-*, middle-*, young-*], {entry}}}]\n"
    return written(folder / "policy.yaml", text)


def test_lagging_group_keeps_its_data_on_a_full_disk_and_is_named(full: Full, tmp_path: Path) -> None:
    """Never past G2; what could not be reached is said, and exit codes are README.md's."""
    policy, inventory = policy_of(tmp_path, percent=10), full.inventory
    made = full.run("plan", policy, "--inventory", str(inventory), "-o", "json", "--fail-on-hold", check=4)
    [old] = [row for row in made.json()["partitions"] if row["topic"] == full.topics["old"]]
    assert old["action"] == "keep" or old["trim_to"] <= 250
    disks = made.json()["disks"]
    assert [one["broker"] for one in disks] == [1, 2, 3]
    for disk in disks:
        assert disk["short_bytes"] > 0
        assert any("group:reader" in one["reason"]["text"] for one in disk["in_the_way"])
        assert any(one["reason"]["code"] == "active" for one in disk["in_the_way"])
    middle = full.topics["middle"]
    explained = full.run("explain", policy, f"{middle}:0", "--inventory", str(inventory), "-o", "json", check=0)
    says(explained.out, middle, '"disk-usage"')
    says(made.err, "short by", "group:reader")
    report = full.run("trim", policy, "--inventory", str(inventory), "-o", "json", "--dry-run", check=5)
    assert {row["outcome"] for row in report.json()["partitions"]} <= {"would-trim", "unchanged"}
    assert full.starts() == {"old": 0, "middle": 0, "young": 0}


@pytest.mark.long
def test_disk_watermark_shortens_the_forced_age(full: Full, tmp_path: Path) -> None:
    """R7: at 15 % already every disk has reached the mark; what it adds is guarded by the floor."""
    marks = "  watermarks: [{percent: 15, factor: 0.5, minimum: 1h}]"
    text = ["version: 1", "disks:", marks, "topics:", "  - match: [old-*, middle-*, young-*]", "    retention.ms: 25h"]
    path = written(tmp_path / "policy.yaml", "\n".join(text))
    rows = {row["topic"]: row for row in full.run("plan", path, "-o", "json", check=0).json()["partitions"]}
    old, middle, young = (rows[full.topics[stem]] for stem in ("old", "middle", "young"))
    assert (old["trim_to"], old["rule"]) == (FILLED, "forced-age")  # by the unscaled age, read or not
    assert (middle["trim_to"], middle["rule"]) == (FILLED, "forced-age")  # 20 h old, and 25 h count as 12.5 h
    assert any(reason["code"] == "R7" for reason in middle["reasons"])
    assert young["action"] == "keep"


def test_trim_brings_each_disk_under_its_ceiling_oldest_first(full: Full, tmp_path: Path) -> None:
    """Last in this module: data goes. A saved plan is decided afresh; a second run trims nothing."""
    policy, inventory = policy_of(tmp_path, entry="unconsumed: trim"), str(full.inventory)
    least = min(usage(full.world))
    assert least > CEILING
    plan = tmp_path / "plan.json"
    full.run("plan", policy, "--inventory", inventory, "--out", str(plan), check=0)
    rehearsed = full.run("trim", policy, "--plan", str(plan), "--dry-run", "-o", "json", check=0)
    asked = {row["topic"]: row["trim_to"] or 0 for row in json.loads(plan.read_text())["partitions"]}
    more_than_asked = [row for row in rehearsed.json()["partitions"] if (row["target"] or 0) > asked[row["topic"]]]
    assert more_than_asked == [], "no inventory: estimated afresh, and never more than was planned"
    more = ("--inventory", inventory, "--plan", str(plan), "--yes", "--wait", "-o", "json")
    assert "trimmed" in {row["outcome"] for row in full.run("trim", policy, *more, check=0).json()["partitions"]}
    # it has waited until brokers count these segments no more; their files go log.segment.delete.delay.ms later
    wait_until(lambda: max(usage(full.world)) < least - 15, "the files to go", 20)
    again = full.run("trim", policy, "--inventory", inventory, "--yes", "-o", "json", check=0)
    assert {row["outcome"] for row in again.json()["partitions"]} == {"unchanged"}
    wait_until(lambda: max(usage(full.world)) <= CEILING, "every volume under its ceiling")
    starts = full.starts()
    assert starts["old"] > FILLED - 2 * MIB // RECORD  # all of the oldest but the active segment
    assert starts["young"] == 0 < starts["middle"] < FILLED
    assert min(usage(full.world)) > CEILING - 15, "far more went than had to"
    full.world.produce(full.topics["young"], 20, value=os.urandom(RECORD))  # the brokers take writes as before
    fresh = str(scan_all(full.kafka, tmp_path / "fresh"))
    settled = full.run("plan", policy, "--inventory", fresh, "-o", "json", check=0)
    assert {row["action"] for row in settled.json()["partitions"]} == {"keep"}


MOST = 60


class Stuffed(Filled):
    """Three brokers that don't sweep while a test runs; by the policy's word each is full to the last byte."""

    def policy_in(self, folder: Path) -> Path:
        capacity = {f"{broker}:{path}": size for broker, (path, size) in used(self.world).items()}
        disks = {"log.retention.disk.usage.percent": MOST, "capacity": capacity}
        topics = [{"match": "stuffed-*", "unconsumed": "trim"}]
        return written(folder / "policy.yaml", json.dumps({"version": 1, "disks": disks, "topics": topics}))


@pytest.fixture(scope="module")
def stuffed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stuffed]:
    chance = random.Random(5)
    settings = {
        "log.retention.check.interval.ms": str(HOUR),
        "log.initial.task.delay.ms": str(HOUR),  # 30 s by default: the first sweep would come while a test runs
        "log.index.size.max.bytes": "65536",
    }
    with EmbeddedKafka(3, settings=settings) as kafka:
        root = tmp_path_factory.mktemp("estimate")
        found = Stuffed(kafka, World(kafka.bootstrap, root / "state"), root)
        for _ in range(9):
            name = found.world.topic("stuffed", replicas=2, segment_bytes=str(MIB))
            count = (2 * chance.randint(4, 9) + 1) * MIB // 2 // RECORD
            oldest = now_ms() - chance.randint(10, 60) * HOUR
            stamps = [oldest + n * chance.randint(20_000, 60_000) for n in range(count)]
            found.world.produce_at(name, sorted(stamps), value=lambda: os.urandom(RECORD), batch=20)
            found.topics[name] = name
        await_copies(found.world, found.topics)
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
    policy, inventory = stuffed.policy_in(tmp_path), scan_all(stuffed.kafka, tmp_path / "inventory")
    exact = stuffed.world.cli("plan", "-p", str(policy), "--inventory", str(inventory), "-o", "json", check=0)
    guess = stuffed.world.cli("plan", "-p", str(policy), "-o", "json", check=0)
    assert trimmed(guess)
    really, should = freed_by(inventory, trimmed(guess)), freed_by(inventory, trimmed(exact))
    assert min(should.values()) > 5 * MIB
    shares = {broker: really[broker] / wanted for broker, wanted in should.items()}
    assert [share for share in shares.values() if not 0.8 <= share <= 1.2] == [], shares
    assert {(one["estimated"], one["short_bytes"]) for one in guess.json()["disks"]} == {(True, 0)}
    assert {one["estimated"] for one in exact.json()["disks"]} == {False}
    assert all("estimated" in row["reasons"][0]["text"] for row in guess.json()["partitions"] if row["trim_to"])
    space, disks = guess.json()["space"], guess.json()["disks"]
    assert space["freed_bytes"] == sum(one["freed_bytes"] + one["other_rules_bytes"] for one in disks)
    assert (space["disks_known"], space["check_interval_ms"], space["delete_delay_ms"]) == (3, HOUR, 60_000)
    table = stuffed.world.cli("plan", "-p", str(policy), check=0).out
    says(stuffed.world.cli("disk", "-p", str(policy), check=0).out, "Growth needs two samples", "about ")
    freed = format_bytes(space["freed_bytes"])
    assert f"Brokers free about {freed} of disk space, counting all replicas, within 1 h" in table


def test_disk_estimate_does_not_count_a_previous_trim_twice(stuffed: Stuffed, tmp_path: Path) -> None:
    """Last in this module: data goes. Nothing is swept yet: its bytes count as on their way, and its topics hold."""
    policy = str(stuffed.policy_in(tmp_path))
    first = stuffed.world.cli("trim", "-p", policy, "--yes", "-o", "json", check=0)
    gone = {row["topic"] for row in first.json()["partitions"] if row["outcome"] == "trimmed"}
    assert gone
    after = stuffed.starts()
    again = stuffed.world.cli("trim", "-p", policy, "--yes", "-o", "json")
    rows = {row["topic"]: row for row in again.json()["partitions"]}
    assert {name for name, row in rows.items() if row["outcome"] != "unchanged"} == gone
    assert {rows[name]["outcome"] for name in gone} == {"held"}
    assert all("removed yet" in rows[name]["reasons"][0]["text"] for name in gone)
    assert stuffed.starts() == after
    assert min(disk["dead_bytes"] for disk in again.json()["disks"]) > 0
    fresh = World(stuffed.world.bootstrap, tmp_path / "another-state")  # who remembers nothing trusts nothing
    assert not gone & trimmed(fresh.cli("plan", "-p", policy, "-o", "json", check=0)).keys()
    assert stuffed.starts() == after


def test_disk_estimate_continues_after_brokers_have_swept(world: World, tmp_path: Path) -> None:
    """R6: once the size has fallen it is known again; ``--wait`` stays until then."""
    name = world.topic("stages", replicas=2, segment_bytes=str(MIB))
    world.produce_at(name, [now_ms() - HOUR] * 600, value=lambda: os.urandom(RECORD), batch=20)
    ceiling = "disks: {log.retention.disk.usage.percent: 0.1%, capacity: 2GiB}"
    policy = written(tmp_path / "policy.yaml", f"version: 1\n{ceiling}\ntopics:\n  - match: {name}\n")
    world.commit("stage", name, 300)
    trim = ("trim", "-p", str(policy), "--yes", "-o", "json", "--wait", "--wait-at-most", "100s")
    world.cli(*trim, check=5)  # its last segment and everybody else's topics stay: short
    assert 2 * MIB < world.ends(name)[0] * RECORD <= 300 * RECORD
    world.commit("stage", name, 600)

    def goes_on() -> bool:
        [row] = world.cli("plan", "-p", str(policy), "-o", "json", check=0).json()["partitions"]
        return row["action"] == "trim" and row["trim_to"] > 300

    wait_until(goes_on, "sizes of both replicas that fell")


SIZED = "version: 1\ntopics:\n  - match: {}\n    retention.bytes: 3MiB\n    unconsumed: trim\n"


def await_the_size(world: World, policy: str) -> None:
    """Wait until the topic is known to fit. Until then it holds: what a trim has just freed is not taken twice."""

    def fits() -> bool:
        [now] = world.plan(policy).decisions
        assert now.action in ("hold", "keep"), "dead bytes were taken for live ones"
        return now.action == "keep"

    wait_until(fits, "a size that fell")


def test_size_limit_counts_a_segment_that_is_larger_than_segment_bytes_is_now(world: World) -> None:
    """R5: most of the segment in which S stands is dead, and it was written before the setting was lowered."""
    name = world.topic("lowered", segment_bytes=str(4 * MIB))
    world.produce_at(name, [now_ms()] * 1_000, value=lambda: os.urandom(RECORD), batch=20)
    policy = SIZED.format(name)
    world.trim(world.plan(policy), policy)
    world.plan(policy)  # the broker may sweep at any time now: with a new segment.bytes its fall would prove less
    world.configure(name, {"segment.bytes": str(MIB)})
    await_the_size(world, policy)


def test_size_limit_without_an_inventory_trims_once(world: World) -> None:
    """R5: until the size has fallen it is unknown; then it fits, but for the segment in which S stands."""
    name = world.topic("sized", segment_bytes=str(MIB))
    world.produce_at(name, [now_ms()] * 600, value=lambda: os.urandom(RECORD), batch=20)
    policy = SIZED.format(name)
    plan = world.plan(policy)
    [one] = plan.decisions
    assert (one.action, one.rule) == ("trim", "size")
    assert 2.5 * MIB <= (600 - (one.trim_to or 0)) * RECORD <= 3 * MIB
    world.trim(plan, policy)
    await_the_size(world, policy)
    assert world.ends(name)[0] == one.trim_to
    world.produce_at(name, [now_ms()] * 300, value=lambda: os.urandom(RECORD), batch=20)
    [more] = world.plan(policy).decisions
    assert 2.5 * MIB <= (900 - (more.trim_to or 0)) * RECORD <= 4 * MIB
