"""What a pass could not ask, or could not end, must not let the next one go by another log (F5, G3, M4)."""

from __future__ import annotations

import pytest

from tests.simulation.logs import Partition
from tests.simulation.scene import Step
from tests.simulation.world import World

CUT: list[Step] = [
    *[("produce", 0, 5, 0, 0), ("fall_behind", 0), ("produce", 0, 5, 0, 0)],
    *[("read", 0, 0, 7, 0), ("read", 0, 0, 7, 0), ("plan", 0, 0)],
    *[("elect", 0, 0), ("produce", 0, 5, 0, 0), ("produce", 0, 5, 0, 0), ("time", 2)],
]
"""A group has read to 12 and commits without an epoch; an election cuts the log to 6, and it grows to 18."""

SWITCHED: list[Step] = [
    *[("append_time", 0), ("produce", 0, 3, 0, 0), ("plan", 0, 0), ("time", 4)],
    *[("append_time", 0), ("plan", 0, 0), ("produce", 0, 5, 4, 4)],
    *[("append_time", 0), ("plan", 0, 0), ("produce", 0, 5, 0, 0)],
]
"""Records 4 to 9 were stamped 100 hours back by their producer, and written just now; kretain saw that switch."""


def after(rules: str, steps: list[Step]) -> Partition:
    with World(rules) as world:
        for step in steps:
            world.apply(step)
        found = world.kafka.partition(("a", 0))
        assert found is not None
        return found


@pytest.mark.parametrize("requests", range(10, 26))
def test_truncation_is_remembered_when_the_leader_changes_in_the_same_pass(requests: int) -> None:
    moved = [("catch_up", 0), ("plan", 0, requests), ("elect", 0, 0), ("finish", 0)]
    assert after("R1", [*CUT, *moved, ("trim", 0, 0)]).log.start <= 6


@pytest.mark.parametrize("requests", range(10, 26))
def test_truncation_is_remembered_when_its_pass_fails(requests: int) -> None:
    broken = [("plan", 0, requests), ("fail", 0, 0), ("finish", 0)]
    assert after("R1", [*CUT, *broken, ("trim", 0, 0)]).log.start <= 6


@pytest.mark.parametrize("requests", range(1, 24))
def test_truncation_noted_by_another_run_is_used(requests: int) -> None:
    """One state directory: what this run read of groups before, and of partitions after, was of two moments."""
    cut = [("produce", 0, 5, 2, 0) if step[0] == "produce" else step for step in CUT[:-1]]
    assert after("R1 @one", [*cut, ("trim", 0, requests), ("plan", 1, 0), ("finish", 0)]).log.start <= 6


@pytest.mark.parametrize("memories", ["one", "cluster"])
@pytest.mark.parametrize("requests", range(1, 28))
def test_note_of_a_run_from_before_a_truncation_is_checked_after_another_run_continued(
    requests: int, memories: str
) -> None:
    """The one began with an empty memory, and ends in the log as it was cut; the other saved before the cut."""
    written = [("produce", 0, 5, 0, 0), ("fall_behind", 0), ("produce", 0, 5, 0, 0), *[("read", 0, 0, 7, 0)] * 2]
    both = [("plan", 1, requests), ("plan", 0, 0), ("elect", 0, 0), *[("produce", 0, 5, 0, 0)] * 2, ("finish", 1)]
    assert after(f"R1 @{memories}", [*written, *both, ("time", 2), ("trim", 0, 0)]).log.start <= 6


def test_truncation_is_stored_together_with_the_commits_that_it_refuses() -> None:
    """What one has noted of the cut gets lost half way to the topic that all share."""
    told = [("fail", 10, 0), ("plan", 1, 0), ("trim", 0, 0)]
    assert after("R1 @cluster", [*CUT, *told]).log.start <= 6


@pytest.mark.parametrize("requests", range(8, 24))
def test_failed_pass_invents_no_truncation(requests: int) -> None:
    """The leader has written nothing, and the pass that was told so does not come to its end."""
    written = [("produce", 0, 3, 2, 0), ("read", 0, 0, 7, 0)]
    led = [*written, ("plan", 0, 0), ("elect", 0, 0), *written, ("elect", 0, 0)]
    broken = [("plan", 0, requests), ("fail", 0, 0), ("finish", 0)]
    assert after("R1", [*led, *broken, ("plan", 0, 0), ("elect", 0, 0), ("trim", 0, 0)]).log.start == 8


def test_commit_without_an_epoch_holds_when_truncation_cannot_be_checked() -> None:
    assert after("R1", [*CUT, ("fail", 6, 2), ("trim", 0, 0)]).log.start <= 6


@pytest.mark.parametrize("requests", range(18, 40))
def test_create_time_history_is_kept_when_its_epoch_cannot_be_read(requests: int) -> None:
    """The first epoch question of the recheck gets lost, the one about the record at S does not."""
    asked = [("elect", 0, 0), ("fail", 6, 0), ("trim", 0, requests), ("fail", 6, 0), ("finish", 0)]
    assert after("R4 G3", [*SWITCHED, *asked]).log.start <= 4


@pytest.mark.parametrize("untold", [[("elect", 0, 0), ("fail", 6, 1)], [("no_leader", 0)]])
def test_timestamp_type_switch_is_seen_in_a_pass_with_failed_reads(untold: list[Step]) -> None:
    first = [("append_time", 0), ("produce", 0, 3, 0, 0), ("plan", 0, 0), ("time", 4)]
    switch = [("append_time", 0), ("produce", 0, 5, 4, 4), *untold, ("plan", 0, 0)]
    back = [("no_leader", 0)] if ("no_leader", 0) in untold else []
    then = [*back, ("append_time", 0), ("plan", 0, 0), ("produce", 0, 5, 0, 0), ("trim", 0, 0)]
    assert after("R4 G3", [*first, *switch, *then]).log.start <= 4


def test_create_time_history_is_kept_when_the_ledger_is_damaged() -> None:
    with World("R4 G3") as world:
        for step in SWITCHED:
            world.apply(step)
        file = next(world.operators[0].folder.rglob("ledger.sqlite"))
        raw = file.read_bytes()
        file.write_bytes(raw[:100] + b"\xff" * 3_900 + raw[4_000:])
        world.apply(("trim", 0, 0))
        found = world.kafka.partition(("a", 0))
        assert found is not None
        assert found.log.start == 0
