"""R6 on simulated disks: what it takes is what brute force over the true files takes, or less with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Leaders, Wanted
from retention_cli.core.model import TopicPartition
from retention_cli.disks.run import DiskRun
from retention_cli.observe.cluster import observe
from retention_cli.observe.recall import Remembered
from retention_cli.observe.request import Request
from retention_cli.plan.make import LocalPlanner
from retention_cli.plan.value import Plan
from retention_cli.policy.load import parse_policy
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import Selection
from tests.simulation.disks.kafka import PLACES, TOTALS, DiskReader
from tests.simulation.disks.run import run, sequence_of, told
from tests.simulation.disks.world import POLICY, DiskWorld
from tests.simulation.kafka import HOUR, Group, Partition, Tp
from tests.simulation.scene import Step

FOUND = {
    61: "indexes of what was trimmed since the scan counted as somebody else's",
    79: "an active segment that a fresh scan had seen was waited for, for ever",
    222: "indexes of dead segments stayed, by the ledger's word",
    704: "of records that no level tells apart all went, by the estimate",
}
"""What the simulation found, by seed."""


@pytest.mark.parametrize("seed", FOUND)
def test_kept_disk_sequence_breaks_no_rule(seed: int) -> None:
    run(sequence_of(seed))


def test_disk_sequence_of_a_seed_breaks_no_rule() -> None:
    exact = sum(run(sequence_of(seed)).judge.counts["fresh, exact"] for seed in range(5))
    assert exact > 20, "with inventories of the moment R6 was compared with brute force"


@pytest.fixture
def world() -> Iterator[DiskWorld]:
    with DiskWorld() as one:
        yield one


def put(world: DiskWorld, tp: Tp, count: int, age_ms: int) -> None:
    for _ in range(count):
        world.kafka.append(tp, stamp=world.kafka.now_ms - age_ms)
        world.kafka.pass_time(200)


def test_r6s_own_frees_after_a_scan_are_not_taken_elsewhere(world: DiskWorld) -> None:
    """A follower lagged when it was scanned: its disk gets back what it has fetched since, by the leader's disk's bound."""
    put(world, ("a", 0), 16, 5 * HOUR)
    world.do_fall_behind(0)
    put(world, ("a", 0), 104, 5 * HOUR)
    put(world, ("a", 1), 60, 60_000)
    world.kafka.others |= {(1, "8:1"): 11_000_000, (2, "8:1"): 6_500_000}
    world.do_scan(0)
    world.do_catch_up(0)
    trims = {(one.topic, one.partition): one.trim_to for one in world.do_trim(0, 1).decisions if one.trim_to}
    assert trims == {("a", 0): 52}


@pytest.mark.parametrize("inventory", [0, 1], ids=["estimated", "inventory"])
@pytest.mark.parametrize("kind", [1, 2], ids=["tiered", "diskless"])
def test_topic_that_is_not_on_disks_alone_is_left_alone_by_r6(world: DiskWorld, kind: int, inventory: int) -> None:
    put(world, ("a", 0), 100, 60_000)
    put(world, ("a", 1), 100, 60_000)
    world.kafka.others = dict.fromkeys(world.kafka.others, 10_000_000)
    world.do_scan(0)
    world.do_plan(0, inventory)
    world.do_time(6)  # longer than two of the brokers' checks: how much is dead is known
    world.do_scan(0)
    world.do_storage(0, kind)
    assert not [one for one in world.do_trim(0, inventory).decisions if one.trim_to]
    world.do_storage(0, 0)
    world.do_scan(0)
    assert [one for one in world.do_trim(0, inventory).decisions if one.trim_to]


def test_lagging_follower_is_not_estimated(world: DiskWorld) -> None:
    """Spread over all offsets its few records would seem to begin late: five times as many went as should."""
    put(world, ("a", 0), 20, 5 * HOUR)
    world.do_fall_behind(0)
    put(world, ("a", 0), 100, 5 * HOUR)
    put(world, ("a", 1), 60, 60_000)
    put(world, ("c", 0), 45, 60_000)
    world.kafka.others[2, "8:1"] = 9_300_000
    [held] = [one for one in world.do_trim(0, 0).decisions if (one.topic, one.partition) == ("a", 0)]
    assert any("it lags or is still filling" in why.text for why in held.reasons), held


def test_files_of_replicas_that_swap_dirs_are_not_counted_as_bytes_that_stay(world: DiskWorld) -> None:
    """A rebalancer moves one replica to a disk and another one away: there are as many as before, and none is new."""
    first, second = (one for one in PLACES if one.broker == 3)
    put(world, ("a", 2), 28, 5 * HOUR)
    for tp in (("c", 0), ("b", 1)):
        put(world, tp, 48, 60_000)
    for _ in range(6):
        world.kafka.pass_time(600_000)
        swapped = world.kafka.placed[3, ("c", 0)] == second
        world.kafka.move(("c", 0), 3, first if swapped else second)
        world.kafka.move(("b", 1), 3, second if swapped else first)
        world.kafka.pass_time(20_000)
        world.do_plan(0, 0)  # the judge holds it against the true files


class Unsteady(DiskReader):
    """What happens to a topic's second partition after its ends were read: once, or whenever a time is looked up."""

    elects = loses = False

    def sizes_soon(self, leaders: Leaders) -> Any:
        if self.elects:
            self.elects = False
            self._kafka.partition(("a", 1)).elect()
        return super().sizes_soon(leaders)

    def list_offsets_soon(self, wanted: Sequence[Wanted], leaders: Leaders) -> Any:
        answers = super().list_offsets_soon(wanted, leaders)
        for specs, found in zip(wanted, answers.result(), strict=True):
            for tp in found:
                if self.loses and tp == ("a", 0) and isinstance(specs[tp], int):
                    found[tp] = RequestFailedError("timed out", retriable=True)
        return answers


@pytest.mark.parametrize("what", ["elects", "loses"])
def test_young_records_do_not_go_for_old_ones_of_a_partition_whose_times_are_unknown(
    world: DiskWorld, what: str
) -> None:
    """Of a topic's limit the oldest records go: not a whole other partition, whose leader was elected meanwhile."""
    put(world, ("a", 0), 40, 5 * HOUR)
    put(world, ("a", 1), 40, 60_000)
    text = "version: 1\ntopics: [{match: a, retention.topic.bytes: 4000000, unconsumed: trim}]"
    policy = parse_policy(text, "policy.yaml", "sha256:simulated")

    def trims(reader: DiskReader) -> dict[Tp, int | None]:
        with closing(world.memories(world.folders[0])) as memories:
            decisions = LocalPlanner().plan(world.job(policy, memories, reader)).decisions
        return {(one.topic, one.partition): one.trim_to for one in decisions}

    reader = Unsteady(world.kafka, world.clock)
    setattr(reader, what, True)
    young = trims(reader)["a", 1]
    assert trims(world.reader()) == {("a", 0): 36, ("a", 1): 9, ("a", 2): None}
    assert young == (9 if what == "elects" else None)


def test_topic_recreated_between_two_looks_is_not_trimmed_by_r6(world: DiskWorld) -> None:
    """M1: the second look is for another topic's partitions alone, and what was read of this one still decides."""
    put(world, ("a", 0), 60, 5 * HOUR)
    put(world, ("b", 0), 40, 60_000)
    world.kafka.others = dict.fromkeys(world.kafka.others, 12_000_000)
    reader, selection, state = world.reader(), Selection(POLICY), DiskRun(POLICY.disks)
    with closing(world.memories(world.folders[0])) as memories:
        seen = observe(reader, Request(selection.settings_for, POLICY.groups, world.clock.wall_ms(), memories))
        for some in ({"a", "b"}, {"b"}):
            facts = {tp: one for tp, one in seen.facts.items() if tp.topic in some}
            leaders = {tp: one for tp, one in seen.leaders.items() if tp.topic in some}
            remembered = Remembered(memories(world.kafka.cluster_id), seen.settings, leaders)
            remembered.open({one.topic.name: one.topic.topic_id for one in facts.values()})
            state.take_samples(reader, facts, seen.settings, leaders, remembered, world.clock.wall_ms)
            if "a" in some:
                world.do_recreate(0)
        read = TopicPartition("a", 0)
        assert reader.metadata(["a"]).topics["a"].partitions[0] == seen.leaders[read], "the id alone is another"
        assert state.changed(reader, [read]).keys() == {read}


TWO_LOOKS: Final[list[Any]] = [
    *(("fill", 29), ("fill", 5), ("trim", 10, 14), ("produce", 18, 6, 7), ("fall_behind", 3), ("produce", 3, 29, 4)),
    *(("catch_up", 3), ("fill", 28), ("recreate", 28), ("trim", 9, 8), ("time", 4), ("fill", 22), ("time", 20)),
    *(("trim", 0, 0), ("time", 4), ("trim", 1, 25), ("time", 10), ("time", 4), ("time", 12)),
]
"""Seed 2018 of what is drawn, shortened."""


MORE: Final = [0, *(pytest.param(one, marks=pytest.mark.long) for one in range(8, 40, 8))]


def test_partition_that_r6_saw_added_to_an_unmanaged_topic_is_not_covered_by_groups_latest(world: DiskWorld) -> None:
    """F2: once the policy manages the topic, the ledger knows that it has grown since it saw the group."""
    later = parse_policy(
        "version: 1\ngroups: {latest: [g]}\ntopics: [{match: c, retention.commitoffset.enable: true, "
        "retention.commitoffset.hours: 1}]\n",
        "policy.yaml",
        "sha256:later",
    )

    def plan(policy: Policy) -> Plan:
        with closing(world.memories(world.folders[0])) as memories:
            made = LocalPlanner(None).plan(world.job(policy, memories))
            memories.save(world.clock.wall_ms())
        return made

    kafka = world.kafka
    for disk, total in TOTALS.items():
        kafka.others[disk] = max(kafka.others[disk], total * 9 // 10)
    put(world, ("c", 0), 6, 0)
    for number in range(3):
        put(world, ("a", number), 1, 0)
    kafka.groups["h"] = Group("h")
    kafka.groups["g"].commits |= {("a", 0): (1, 0), ("c", 0): (6, 0)}
    kafka.groups["h"].commits[("c", 0)] = (6, 0)
    plan(POLICY)
    kafka.topics["c"].partitions.append(Partition.new((2, 3)))
    for broker in (2, 3):
        kafka.placed[broker, ("c", 1)] = next(one for one in PLACES if one.broker == broker)
    put(world, ("c", 1), 6, 0)
    kafka.groups["h"].commits[("c", 1)] = (6, 0)
    plan(POLICY)
    kafka.pass_time(3 * HOUR)
    [added] = [one for one in plan(later).decisions if one.partition == 1]
    assert (added.action, [one.code for one in added.reasons]) == ("hold", ["F2"])


def test_files_leaving_at_two_looks_of_another_operator_are_not_counted_as_bytes_that_stay() -> None:
    """At the first look a deleted topic's files were leaving, at the second what the other operator had trimmed."""
    run(TWO_LOOKS)


@pytest.mark.thorough
@pytest.mark.parametrize("first", MORE)
@pytest.mark.parametrize(("drawn", "base"), [(sequence_of, 1000), (told, 2000)], ids=["steps", "stories"])
def test_disk_sequence_of_more_seeds_breaks_no_rule(drawn: Callable[[int], list[Step]], base: int, first: int) -> None:
    for seed in range(base + first, base + first + 8):
        run(drawn(seed))
