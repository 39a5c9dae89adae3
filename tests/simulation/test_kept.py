"""Sequences of a fixed range of seeds, and those that the simulation found and shrank: each broke a rule once."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.run import sequence_of
from tests.simulation.scene import Step
from tests.simulation.world import World, run

KEPT: Final[dict[str, tuple[str, list[Step]]]] = {
    "a refused commit whose offsets were deleted is no floor (F5, F6)": (
        "R4",
        [
            ("produce", 0, 0, 3, 0),
            ("late", 1, 0, 0, 0),
            ("plan", 0, 0),
            ("delete_offsets", 1, 0),
            ("produce", 0, 3, 0, 0),
            ("trim", 0, 0),
        ],
    ),
    "nor is one whose group was deleted": (
        "R4",
        [("late", 2, 0, 4, 0), ("plan", 0, 0), ("produce", 0, 0, 3, 0), ("delete_group", 2), ("produce", 0, 3, 0, 0)],
    ),
    "a commit from an epoch ahead was not read here (F5)": (
        "R1",
        [("produce", 1, 3, 2, 0), ("late", 0, 1, 1, 2), ("trim", 0, 0)],
    ),
    "CreateTime stamps are no append times after a switch (G3)": (
        "R4 G3",
        [("produce", 2, 0, 3, 0), ("append_time", 1), ("trim", 1, 0)],
    ),
    "nor after a switch to CreateTime and back that was watched, if a broker stamped the first record (G3)": (
        "R4 G3",
        [
            ("append_time", 0),
            ("produce", 0, 0, 0, 0),
            ("plan", 0, 0),
            ("time", 3),
            ("append_time", 0),
            ("plan", 0, 0),
            ("produce", 0, 3, 3, 0),
            ("append_time", 0),
            ("plan", 0, 0),
            ("trim", 0, 0),
        ],
    ),
    "half an hour less than R2 asks for, by event times read from records": (
        "R2 header",
        [("produce", 0, 0, 0, 10), ("produce", 0, 0, 0, 0), ("trim", 0, 0)],
    ),
    "a record whose schema could not be had is read again, not remembered as without an event time (R2)": (
        "R2 avro @each",
        [("produce", 0, 0, 0, 3), ("trim", 0, 1), ("registry", 1), ("produce", 0, 0, 0, 0)],
    ),
    "a run that waited before it read a group does not know it as an older one (F6)": (
        "R1 @cluster",
        [
            *(("produce", 0, 5, 4, 4), ("read", 0, 0, 7, 0), ("read", 1, 0, 7, 0), ("plan", 0, 0), ("plan", 1, 0)),
            *(("plan", 0, 1), ("until", 0, 3), ("time", 0), ("plan", 1, 0), ("seek", 1, 0, 5, 0), ("finish", 0)),
            *(("delete_group", 1), ("time", 0), ("trim", 1, 0)),
        ],
    ),
    "a group that a suspended run has just read is remembered from then on (F6)": (
        "R1 @one",
        [
            *(("produce", 0, 5, 4, 4), ("read", 0, 0, 7, 0), ("read", 1, 0, 7, 0), ("plan", 0, 0), ("plan", 1, 0)),
            *(("plan", 0, 1), ("until", 0, 1), ("time", 4), ("time", 4), ("time", 4), ("time", 4)),
            *(("seek", 1, 0, 5, 0), ("finish", 0), ("delete_group", 1), ("time", 0), ("trim", 0, 0)),
        ],
    ),
    "a file's consumer that leaves a topic while its log is cut still counts there (F6, F7)": (
        "R3 G2 F7 @one",
        [
            *(("produce", 1, 1, 3, 0), ("fall_behind", 1), ("produce", 1, 0, 0, 0), ("read", 2, 1, 0, 0)),
            *(("plan", 0, 0), ("delete_group", 2), ("elect", 1, 0), ("read", 0, 1, 1, 0), ("trim", 0, 0)),
            ("read", 2, 2, 0, 0),
        ],
    ),
    "a commit that may be a leftover, and is none, counts once its group is gone (F5, F6)": (
        "R1 @cluster",
        [
            *(("produce", 0, 5, 2, 2), ("read", 0, 0, 7, 1), ("read", 1, 0, 2, 0), ("plan", 0, 0), ("recreate", 0, 1)),
            *(("produce", 0, 5, 2, 2), ("produce", 0, 0, 2, 2), ("read", 0, 0, 7, 1), ("read", 1, 0, 2, 1)),
            *(("plan", 0, 0), ("delete_group", 1), ("time", 2), ("time", 2), ("trim", 0, 0)),
        ],
    ),
    "a commit seen without a leader is refused by a cut while its group can't be read (F5)": (
        "R1 @cluster",
        [
            *(("fall_behind", 0), ("produce", 0, 5, 2, 2), ("plan", 0, 0), ("read", 0, 0, 7, 0), ("no_leader", 0)),
            *(("plan", 0, 0), ("no_leader", 0), ("lose_tail", 0, 3), ("fail", 1, 5), ("plan", 0, 0)),
            *(("produce", 0, 5, 2, 2), ("produce", 0, 5, 2, 2), ("time", 2), ("trim", 0, 0)),
        ],
    ),
    "nor does its group count where it stood before, if that is higher": (
        "R1 @one",
        [
            *(
                ("produce", 0, 5, 2, 2),
                ("read", 0, 0, 7, 0),
                ("read", 1, 0, 7, 0),
                ("plan", 0, 0),
                ("late", 1, 0, 3, 2),
            ),
            *(("plan", 0, 0), ("seek", 1, 0, 0, 0), ("read", 1, 0, 0, 0), ("plan", 0, 0), ("plan", 0, 0)),
            *(("delete_group", 1), ("time", 2), ("time", 2), ("trim", 0, 0), ("trim", 0, 0)),
        ],
    ),
    "a commit seen without a leader counts nowhere in a log that was lost and grew again (F5, F6)": (
        "R1 @one",
        [
            *(
                ("produce", 0, 1, 2, 2),
                ("read", 0, 0, 7, 0),
                ("plan", 0, 0),
                ("fall_behind", 0),
                ("produce", 0, 5, 2, 2),
            ),
            *(("read", 1, 0, 7, 0), ("no_leader", 0), ("plan", 0, 0), ("no_leader", 0), ("lose_tail", 0, 4)),
            *(("produce", 0, 3, 2, 2), ("delete_group", 1), ("plan", 0, 0), ("read", 0, 0, 7, 1), ("plan", 0, 0)),
            *(("time", 2), ("time", 2), ("trim", 0, 0), ("trim", 0, 0)),
        ],
    ),
    "nor does one that was refused and may have been made again": (
        "R1 @one",
        [
            *(("fall_behind", 0), ("produce", 0, 5, 2, 2), ("read", 0, 0, 7, 0), ("plan", 0, 0), ("late", 1, 0, 1, 2)),
            *(("plan", 0, 0), ("seek", 1, 0, 0, 0), ("read", 1, 0, 0, 0), ("no_leader", 0), ("plan", 0, 0)),
            *(("no_leader", 0), ("lose_tail", 0, 3), ("fail", 1, 5), ("plan", 0, 0), ("produce", 0, 5, 2, 2)),
            *(("produce", 0, 5, 2, 2), ("read", 0, 0, 7, 1), ("plan", 0, 0), ("plan", 0, 0), ("delete_group", 1)),
            *(("time", 2), ("time", 2), ("trim", 0, 0), ("trim", 0, 0)),
        ],
    ),
    "a file's consumer that is named again after a cut still counts where it stood before (F6, F7)": (
        "R1 F7 @one",
        [
            *(("produce", 0, 5, 2, 2), ("produce", 2, 0, 2, 2), ("read", 0, 0, 7, 1), ("read", 2, 0, 1, 0)),
            *(("fall_behind", 0), ("produce", 0, 0, 2, 2), ("plan", 0, 0), ("delete_group", 2), ("elect", 0, 0)),
            *(("plan", 0, 0), ("read", 2, 0, 1, 0), ("read", 2, 0, 0, 0), ("plan", 0, 0), ("delete_group", 2)),
            *(("read", 2, 2, 0, 0), ("plan", 0, 0), ("time", 2), ("time", 2), ("read", 0, 0, 7, 1)),
            *(("trim", 0, 0), ("trim", 0, 0)),
        ],
    ),
    "groups are watched since they were listed, not since the run began (F10)": (
        "R1 watched @each",
        [("trim", 1, 3), ("time", 2), ("produce", 0, 0, 2, 0), ("read", 0, 0, 0, 0), ("trim", 1, 0)],
    ),
    "a group that another operator had forgotten meanwhile does not count (F6)": (
        "R2 avro @one",
        [
            ("produce", 0, 0, 0, 3),
            ("read", 0, 0, 0, 0),
            ("plan", 0, 0),
            ("produce", 1, 3, 0, 0),
            ("read", 1, 0, 0, 0),
            ("trim", 0, 29),
            ("late", 1, 0, 3, 0),
            ("delete_group", 0),
            ("produce", 0, 0, 0, 3),
            ("produce", 0, 0, 0, 0),
            ("forget", 1, 0),
        ],
    ),
    "a transaction marker's time is no record's (R2)": (
        "R2 @each",
        [("produce", 0, 0, 0, 0), ("read", 0, 0, 0, 0), ("transaction", 0, 0, 0), ("time", 3)],
    ),
    "a group whose coordinator has no leader is not read as gone (F9)": (
        "R1 G3 @one",
        [
            ("reset", 2, 0, 0),
            ("produce", 0, 0, 0, 0),
            ("read", 0, 0, 0, 0),
            ("trim", 0, 0),
            ("finish", 0),
            ("coordinator", 1, 1),
            ("time", 2),
            ("trim", 0, 0),
        ],
    ),
    "a run that is under way has seen a time under its own policy, though that was changed and changed back (R2)": (
        "R2 json @each",
        [
            ("trim", 0, 8),
            ("source", 1),
            ("produce", 0, 0, 0, 0),
            ("plan", 0, 0),
            ("retention", 0, 0),
            ("source", 0),
            ("produce", 0, 0, 0, 3),
        ],
    ),
    "event times in headers that are seconds (G9)": ("R2 header", [("produce", 0, 0, 0, 6), ("produce", 0, 0, 0, 0)]),
    "a trim that never arrived takes no credit for retention": (
        "R1 R4",
        [
            ("lose_delete", 0),
            ("produce", 0, 0, 0, 0),
            ("time", 3),
            ("plan", 0, 0),
            ("produce", 0, 0, 2, 0),
            ("read", 1, 0, 1, 0),
            ("saved", 1, 16),
            ("trim", 0, 0),
        ],
    ),
    "a group that is gone and was refused once stands in nobody's way": (
        "R2",
        [
            ("produce", 1, 0, 4, 0),
            ("read", 0, 1, 0, 0),
            ("late", 2, 0, 0, 0),
            ("plan", 0, 0),
            ("delete_group", 2),
            ("produce", 1, 0, 0, 0),
        ],
    ),
    "offsets that were deleted as told stand in nobody's way": (
        "R1",
        [
            ("produce", 0, 0, 0, 0),
            ("read", 1, 1, 0, 0),
            ("read", 0, 0, 0, 0),
            ("trim", 0, 0),
            ("delete_offsets", 1, 1),
        ],
    ),
    "a commit in an epoch that this log has nothing of (F5)": (
        "R1",
        [
            ("fall_behind", 0),
            ("produce", 0, 2, 2, 0),
            ("elect", 0, 0),
            ("produce", 0, 0, 0, 0),
            ("read", 0, 0, 0, 1),
            ("elect", 0, 0),
            ("trim", 0, 0),
        ],
    ),
    "a scan in an epoch that this log has nothing of (M2)": (
        "R2 header",
        [
            ("fall_behind", 0),
            ("produce", 0, 0, 4, 4),
            ("produce", 0, 5, 0, 0),
            ("elect", 0, 0),
            ("produce", 0, 5, 4, 4),
            ("plan", 0, 0),
            ("produce", 0, 0, 0, 0),
            ("plan", 0, 0),
            ("elect", 0, 0),
            ("trim", 0, 0),
        ],
    ),
    "a recheck is as old as the policy that it goes by": (
        "R3 live @one",
        [
            ("produce", 0, 0, 0, 0),
            ("produce", 2, 0, 0, 0),
            ("read", 0, 0, 0, 0),
            ("plan", 0, 0),
            ("seek", 2, 0, 0, 0),
            ("produce", 1, 0, 3, 0),
            ("seek", 1, 0, 0, 0),
            ("trim", 1, 41),
            ("time", 0),
        ],
    ),
    "a log that ends before L was another one's: nothing at its front is no proof (G9, M1)": (
        "R1 R4 @cluster",
        [
            ("produce", 1, 0, 3, 0),
            ("fall_behind", 1),
            ("produce", 1, 5, 3, 0),
            ("elect", 1, 0),
            ("produce", 1, 3, 0, 0),
            ("produce", 1, 1, 0, 0),
            ("elect", 1, 0),
            ("trim", 0, 0),
            ("deposed", 1),
            ("produce", 1, 0, 6, 0),
            ("trim", 0, 0),
        ],
    ),
    "a commit that nobody judged while its group was there never counts (F6)": (
        "R4 G3 @cluster",
        [
            ("produce", 2, 0, 0, 0),
            ("late", 1, 2, 9, 0),
            ("plan", 0, 0),
            ("delete_group", 1),
            ("produce", 2, 3, 0, 0),
            ("produce", 2, 5, 0, 0),
            ("trim", 1, 0),
            ("time", 3),
            ("trim", 1, 0),
        ],
    ),
    "a group that another run has told of between a plan and its recheck, and that is gone (F6)": (
        "R1 @cluster",
        [
            ("produce", 0, 2, 0, 0),
            ("time", 0),
            ("read", 2, 0, 0, 0),
            ("read", 0, 0, 1, 0),
            ("plan", 1, 11),
            ("delete_group", 2),
            ("time", 2),
            ("trim", 0, 28),
            ("plan", 1, 0),
        ],
    ),
    "a reading that begins at a deposed leader and ends at the one that leads now (M1, R2)": (
        "R2 header @cluster",
        [
            ("produce", 2, 4, 0, 0),
            ("fall_behind", 2),
            ("produce", 2, 0, 0, 0),
            ("time", 3),
            ("produce", 0, 0, 0, 0),
            ("elect", 2, 0),
            ("produce", 2, 1, 0, 0),
            ("deposed", 2),
            ("trim", 1, 0),
        ],
    ),
    "a commit that one refused, and another had not seen within the same millisecond (F5)": (
        "R1 R2 R4 G3 @cluster",
        [
            ("produce", 1, 1, 0, 0),
            ("trim", 0, 0),
            ("time", 2),
            ("read", 1, 0, 0, 0),
            ("trim", 0, 0),
            ("late", 1, 1, 1, 0),
            ("trim", 0, 0),
            ("produce", 1, 1, 0, 0),
            ("trim", 1, 0),
        ],
    ),
    "a commit beyond the end of its own leader epoch, once it has expired (F5, F6)": (
        "R1",
        [
            ("produce", 0, 0, 4, 4),
            ("produce", 0, 0, 4, 4),
            ("read", 1, 0, 1, 1),
            ("recreate", 0, 0),
            ("produce", 0, 0, 4, 4),
            ("elect", 0, 0),
            ("produce", 0, 0, 4, 4),
            ("plan", 0, 0),
            ("delete_offsets", 1, 0),
            ("plan", 0, 0),
            ("saved", 6, 1),
            ("finish", 6),
        ],
    ),
    "a commit beyond H, while where an epoch ends could not be asked (F5, M4)": (
        "R1 tenant @one",
        [
            ("trim", 0, 0),
            ("elect", 1, 0),
            ("fail", 6, 0),
            ("late", 0, 1, 0, 0),
            ("trim", 0, 0),
            ("finish", 0),
            ("produce", 1, 0, 2, 0),
            ("trim", 0, 0),
        ],
    ),
    "a group that only a report would have seen: nothing would remember it (F6, F9, G2)": (
        "R1 R4 @each",
        [
            ("produce", 0, 0, 3, 0),
            ("read", 0, 0, 0, 0),
            ("produce", 0, 0, 0, 0),
            ("coordinator", 0, 1),
            ("trim", 0, 0),
            ("read", 1, 0, 0, 0),
            ("delete_group", 0),
        ],
    ),
    "an offset below zero is no position, and is not none (F1, F2)": (
        "R1 @each",
        [("produce", 0, 5, 4, 4), ("read", 0, 0, 7, 0), ("reset", 1, 0, 0), ("trim", 0, 0)],
    ),
    "a first offset that is pending is missing from all offsets (F3)": (
        "R1 @each",
        [("produce", 0, 5, 4, 4), ("read", 0, 0, 7, 0), ("pend", 2, 0, 2, 0), ("trim", 0, 0)],
    ),
    "a group that changes its protocol while it is described has members (F3)": (
        "R1 @each",
        [
            ("produce", 0, 5, 4, 4),
            ("read", 0, 0, 7, 0),
            ("member", 1, 0),
            ("trim", 0, 1),
            ("until", 0, 12),
            ("upgrade", 1),
            ("until", 0, 12),
            ("upgrade", 1),
            ("finish", 0),
        ],
    ),
    "an offset that is pending on one topic hides nothing that is gone on another (F3, F6)": (
        "R1 @each",
        [
            ("produce", 2, 5, 4, 4),
            ("produce", 0, 5, 4, 4),
            ("read", 1, 0, 2, 0),
            ("read", 1, 2, 1, 0),
            ("read", 0, 2, 7, 0),
            ("plan", 1, 0),
            ("delete_offsets", 1, 2),
            ("pend", 1, 0, 2, 0),
            ("trim", 1, 0),
        ],
    ),
    "nor makes a rebalancing group known on others (F3)": (
        "R1 @each",
        [
            ("produce", 2, 5, 4, 4),
            ("produce", 0, 5, 4, 4),
            ("read", 2, 0, 2, 0),
            ("member", 2, 1),
            ("rebalance", 2),
            ("pend", 2, 0, 0, 0),
            ("read", 0, 2, 7, 0),
            ("trim", 1, 0),
        ],
    ),
    "a group that was deleted to read again does so (F2, F6)": (
        "R1 @each",
        [
            ("produce", 0, 5, 4, 4),
            ("read", 1, 0, 7, 0),
            ("read", 0, 0, 7, 0),
            ("plan", 0, 0),
            ("delete_group", 1),
            ("member", 1, 0),
            ("trim", 0, 0),
        ],
    ),
    "groups.latest waives no partition that was added later (F2)": (
        "R1 latest @each",
        [
            ("produce", 0, 5, 4, 4),
            ("read", 1, 0, 3, 0),
            ("read", 0, 0, 3, 0),
            ("plan", 0, 0),
            ("add_partition", 0),
            ("produce", 9, 5, 4, 4),
            ("read", 0, 9, 7, 0),
            ("time", 3),
            ("trim", 0, 0),
        ],
    ),
    "a regular expression reads topics that it was not assigned yet (F2)": (
        "R1 @each",
        [("produce", 0, 5, 4, 4), ("read", 0, 0, 7, 0), ("regex", 1), ("trim", 0, 0)],
    ),
    "a hidden offsets topic and dead coordinators don't mean that there are no groups (F9)": (
        "R1 F7 @each",
        [
            ("produce", 0, 5, 4, 4),
            ("read", 2, 0, 7, 0),
            ("member", 1, 0),
            ("hide",),
            ("coordinator", 0, 1),
            ("coordinator", 1, 1),
            ("trim", 0, 0),
        ],
    ),
    "the right to one group's name is none to the groups of a scope (F8)": (
        "R1 tenant @each",
        [("produce", 0, 5, 4, 4), ("read", 0, 0, 7, 0), ("member", 1, 0), ("prefix",), ("trim", 0, 0)],
    ),
    "a group of the scope that nobody requires counts (F8)": (
        "R1 tenant @each",
        [("produce", 0, 5, 4, 4), ("read", 0, 0, 7, 0), ("read", 1, 0, 1, 0), ("trim", 0, 0)],
    ),
    "a required group that went back, and whose coordinator is offline by now, is missed where that is hidden (F9)": (
        "R1 hidden @one",
        [
            ("produce", 0, 5, 4, 4),
            ("read", 0, 0, 7, 0),
            ("read", 1, 0, 7, 0),
            ("plan", 0, 0),
            ("seek", 0, 0, 5, 0),
            ("coordinator", 1, 1),
            ("trim", 0, 0),
        ],
    ),
    "the newest event time is of its source and timestamp type (M0)": (
        "R2 @each",
        [
            ("source", 1),
            ("append_time", 0),
            ("produce", 0, 0, 4, 4),
            ("plan", 0, 0),
            ("retention", 0, 5),
            ("append_time", 0),
            ("source", 0),
            ("produce", 0, 5, 3, 3),
            ("read", 0, 0, 11, 0),
            ("read", 0, 0, 11, 0),
            ("trim", 0, 0),
        ],
    ),
    "a commit of another log that H has reached by the time it is read counts, also once its group is deleted (F5, F6)": (
        "R4 G3 @one",
        [
            ("produce", 1, 0, 0, 0),
            ("trim", 0, 0),
            ("time", 3),
            ("late", 0, 1, 0, 0),
            ("trim", 0, 13),
            ("produce", 1, 0, 0, 0),
            ("delete_group", 0),
            ("wipe", 0),
        ],
    ),
    "a process that is stopped before it writes a delete sends none that is too old": (
        "R1 @each",
        [("produce", 0, 5, 4, 4), ("read", 0, 0, 7, 0), ("trim", 0, 1), ("until", 0, 13), ("time", 0), ("finish", 0)],
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept_sequence_breaks_no_rule(name: str) -> None:
    run(*KEPT[name])


def test_shared_memory_is_read_again_once_its_topic_was_cut_and_grew_on() -> None:
    """F6, M1: operator 1 had read further than operator 0 now writes. A group that only that one saw is gone."""
    with World("R1 @cluster") as world:
        world.apply(("produce", 0, 5, 4, 4), ("produce", 2, 5, 4, 4))
        for _ in range(3):
            world.apply(("read", 0, 0, 7, 1), ("read", 0, 2, 7, 1), ("time", 2), ("plan", 1, 0))
        read_up_to = world.kafka.state_end
        world.kafka.cut_state(1)
        world.apply(("read", 1, 0, 2, 1), ("plan", 0, 0), ("delete_group", 1))
        while world.kafka.state_end <= read_up_to:
            world.apply(("produce", 1, 1, 0, 0), ("read", 0, 1, 7, 1), ("time", 2), ("plan", 0, 0))
        world.apply(("trim", 1, 0))
        plan = world.operators[1].saved
        assert plan is not None
        assert plan.decisions[0].min_commit_by == "group:g1"


@pytest.mark.parametrize("first", [0, *(pytest.param(one, marks=pytest.mark.thorough) for one in (50, 100))])
def test_sequence_of_a_seed_breaks_no_rule(first: int) -> None:
    for seed in range(first, first + 50):
        run(*sequence_of(seed))
