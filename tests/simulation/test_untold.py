"""What a pass could not ask, or could not end, must not let the next one go by another log (F5, G3, M4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from retention_cli.core.model import TopicPartition
from tests.simulation.scene import Step
from tests.simulation.world import World
from tests.support.facts import known

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


WRITTEN: list[Step] = [("produce", 0, 3, 2, 0), ("read", 0, 0, 7, 0)]
BEHIND: list[Step] = [("produce", 0, 5, 0, 0), ("fall_behind", 0), ("produce", 0, 5, 0, 0), *[("read", 0, 0, 7, 0)] * 2]
AGED: list[Step] = [("append_time", 0), ("produce", 0, 3, 0, 0), ("plan", 0, 0), ("time", 4)]
AGAIN: list[Step] = [("append_time", 0), ("plan", 0, 0), ("produce", 0, 5, 0, 0), ("trim", 0, 0)]
UNTOLD: dict[str, tuple[str, range, range, Callable[[int], list[Step]]]] = {
    "truncation is remembered when the leader changes in the same pass": (
        *("R1", range(10, 26), range(7)),
        lambda n: [*CUT, ("catch_up", 0), ("plan", 0, n), ("elect", 0, 0), ("finish", 0), ("trim", 0, 0)],
    ),
    "truncation is remembered when its pass fails": (
        *("R1", range(10, 26), range(7)),
        lambda n: [*CUT, ("plan", 0, n), ("fail", 0, 0), ("finish", 0), ("trim", 0, 0)],
    ),
    # One state directory: what this run read of groups before, and of partitions after, was of two moments.
    "truncation noted by another run is used": (
        *("R1 @one", range(1, 24), range(7)),
        lambda n: [
            *[("produce", 0, 5, 2, 0) if step[0] == "produce" else step for step in CUT[:-1]],
            *[("trim", 0, n), ("plan", 1, 0), ("finish", 0)],
        ],
    ),
    # The one began with an empty memory, and ends in the log as it was cut; the other saved before the cut.
    **{
        f"note of a run from before a truncation is checked after another run continued: {memories}": (
            *(f"R1 @{memories}", range(1, 28), range(7)),
            lambda n: [
                *[*BEHIND, ("plan", 1, n), ("plan", 0, 0), ("elect", 0, 0), *[("produce", 0, 5, 0, 0)] * 2],
                *[("finish", 1), ("time", 2), ("trim", 0, 0)],
            ],
        )
        for memories in ("one", "cluster")
    },
    # What one has noted of the cut gets lost half way to the topic that all share.
    "truncation is stored together with the commits that it refuses": (
        *("R1 @cluster", range(1), range(7)),
        lambda _: [*CUT, ("fail", 10, 0), ("plan", 1, 0), ("trim", 0, 0)],
    ),
    # The leader has written nothing, and the pass that was told so does not come to its end.
    "failed pass invents no truncation": (
        *("R1", range(8, 24), range(8, 9)),
        lambda n: [
            *[*WRITTEN, ("plan", 0, 0), ("elect", 0, 0), *WRITTEN, ("elect", 0, 0), ("plan", 0, n), ("fail", 0, 0)],
            *[("finish", 0), ("plan", 0, 0), ("elect", 0, 0), ("trim", 0, 0)],
        ],
    ),
    "commit without an epoch holds when truncation cannot be checked": (
        *("R1", range(1), range(7)),
        lambda _: [*CUT, ("fail", 6, 2), ("trim", 0, 0)],
    ),
    # The first epoch question of the recheck gets lost, the one about the record at S does not.
    "CreateTime history is kept when its epoch cannot be read": (
        *("R4 G3", range(18, 40), range(5)),
        lambda n: [*SWITCHED, ("elect", 0, 0), ("fail", 6, 0), ("trim", 0, n), ("fail", 6, 0), ("finish", 0)],
    ),
    "timestamp type switch is seen in a pass with failed reads": (
        *("R4 G3", range(1), range(5)),
        lambda _: [
            *[*AGED, ("append_time", 0), ("produce", 0, 5, 4, 4), ("elect", 0, 0), ("fail", 6, 1), ("plan", 0, 0)],
            *AGAIN,
        ],
    ),
    "timestamp type switch is seen in a pass without a leader": (
        *("R4 G3", range(1), range(5)),
        lambda _: [
            *[*AGED, ("append_time", 0), ("produce", 0, 5, 4, 4), ("no_leader", 0), ("plan", 0, 0), ("no_leader", 0)],
            *AGAIN,
        ],
    ),
}
"""Rules; after how many requests the run is stopped; where the log may start in the end; and what happens."""


@pytest.mark.parametrize(
    ("name", "requests"), [(name, number) for name, (_, stops, *_) in UNTOLD.items() for number in stops]
)
def test_what_a_pass_could_not_ask_or_end_lets_nothing_go(name: str, requests: int) -> None:
    rules, _, starts, steps = UNTOLD[name]
    with World(rules) as world:
        world.apply(*steps(requests))
        assert world.kafka.partition(("a", 0)).log.start in starts


def test_create_time_history_is_kept_when_the_ledger_is_damaged() -> None:
    with World("R4 G3") as world:
        world.apply(*SWITCHED)
        file = next(world.operators[0].folder.rglob("ledger.sqlite"))
        raw = file.read_bytes()
        file.write_bytes(raw[:100] + b"\xff" * 3_900 + raw[4_000:])
        world.apply(("trim", 0, 0))
        assert world.kafka.partition(("a", 0)).log.start == 0


def test_first_plan_of_a_topic_that_was_switched_holds_if_a_producer_stamped_its_first_record() -> None:
    """G3: a recheck remembers who stamped it, the plan has to look."""
    with World("R4 G3") as world:
        world.apply(("produce", 2, 0, 3, 0), ("append_time", 1), ("plan", 1, 0))
        plan = known(world.operators[1].saved)
    assert [(row.tp, row.action) for row in plan.decisions if row.high_watermark] == [(TopicPartition("b", 0), "hold")]
