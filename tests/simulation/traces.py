"""The formal model's traces (docs/model), carried out by the simulated Kafka and the complete engine.

A trace is lines as the model prints them. ``python -m tests.simulation.traces FILE NUMBER`` replays one, and fails if its
last delete takes effect: so it is run on mutants of the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.kafka import HOUR, offsets_partition
from tests.simulation.scene import Step, ViolationError, group_name
from tests.simulation.world import World
from tests.support.mutate import ROOT

FOLDER: Final = ROOT / "docs" / "model" / "traces"
_ADDED: Final = 9
_BEFORE_DELETE: Final = 13
_SAVED: Final = 6
_READS_LOST: Final = 10**6


class Trace(NamedTuple):
    """The rules of the simulation that it is of, what happens, as words, and which rule the model was without."""

    rules: str
    actions: tuple[tuple[str, ...], ...]
    without: str = ""


def traces_in(text: str) -> list[Trace]:
    """Return the traces of a file: each begins with a line ``= RULES``; others begin with ``@``."""
    found: list[Trace] = []
    for block in text.split("\n= ")[1:]:
        rules, *lines = block.splitlines()
        actions = tuple(tuple(line[1:].split()) for line in lines if line.startswith("@"))
        found.append(Trace(rules, actions, next((line[2:] for line in lines if line.startswith("# ")), "")))
    return found


class Replay:
    """A world in which a trace happens. ``decided`` has each plan's and delete's offset: the model's and the engine's."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.decided: list[tuple[str, int, int]] = []
        self.number = _ADDED if "latest" in world.rules else 0

    @property
    def log_start(self) -> int:
        return self.world.kafka.partition(self.world.tp(self.number)).log.start

    def run(self, actions: Iterable[tuple[str, ...]]) -> None:
        """Carry out a trace.

        Raises:
            ViolationError: a delete took what docs/rules.md protects.
        """
        for name, *rest in actions:
            if name == "produce" and rest:
                self._produce(rest[0])
                continue
            numbers = [int(one) for one in rest]
            match name:
                case "plan":
                    self.world.apply(("plan", 0, 0))
                    self.decided.append((name, numbers[0], self._planned()))
                case "recheck":
                    self._recheck()
                    self.decided.append((name, int(numbers[0] > 0), int(self.world.operators[0].process.alive)))
                case "delete":
                    before = self.log_start
                    self.world.apply(("finish", _SAVED))
                    now = self.log_start
                    self.decided.append((name, numbers[0], now if now > before else 0))
                case _:
                    self.world.apply(*self._steps(name, numbers))

    def _produce(self, stamped: str) -> None:
        """A record that is stamped long ago, now, in seconds, or as if it were the day after tomorrow."""
        if stamped != "future":
            age = {"old": 4, "young": 0, "ancient": 6}[stamped]
            self.world.apply(("produce", self.number, 0, age, min(age, 4)))
            return
        tp, kafka = self.world.tp(self.number), self.world.kafka
        ahead_ms = kafka.now_ms + 48 * HOUR
        self.world.counts_events(tp, [kafka.append(tp, stamp=ahead_ms, header=str(ahead_ms).encode())])

    def _recheck(self) -> None:
        """Carry out the plan up to its delete; after a refusal the process that waits goes on."""
        if not self.world.operators[0].process.alive:
            self.world.apply(("saved", _SAVED, 1))
        self.world.apply(("until", _SAVED, _BEFORE_DELETE))

    def _planned(self) -> int:
        plan, tp = self.world.operators[0].saved, self.world.tp(self.number)
        row = next((one for one in plan.decisions if one.tp == tp), None) if plan is not None else None
        return (row.trim_to or 0) if row is not None and row.action == "trim" else 0

    def _steps(self, name: str, numbers: list[int]) -> tuple[Step, ...]:
        """Return what the simulation does for an action of the model.

        Raises:
            KeyError: the model does what no simulation does.
        """
        number, (first, second) = self.number, (*numbers, 0, 0)[:2]
        group = 2 if first == 1 and "F7" in self.world.rules else first
        if name == "epoch_ends":
            self.world.kafka.failing["epoch_ends"] = 0 if first else _READS_LOST
            return ()
        return {
            "produce": (("produce", number, 0, 4, 4),),
            "commit": (("read", group, number, second - 1, 1),),
            "rewind": (("seek", group, number, 0, 1),),
            "expire": (("delete_offsets", group, number),),
            "delete_group": (("delete_group", group),),
            "join": (("member", group, 0),),
            "leave": (("member", group, 0),),
            "pend": (("pend", group, number, 0, 1),),
            "abort": (("end_pending", group, 0),),
            "sibling": (("produce", 1, 0, 4, 4), ("read", group, 1, 0, 1)),
            "add_partition": (("add_partition", 0),),
            "behind": (("fall_behind", number),),
            "elect": (("elect", number, 0),),
            "recreate": (("recreate", 0, first),),
            "rights": (("rights",),),
            "coordinator": (("coordinator", offsets_partition(group_name(self.world.rules, 1)), 1 - first),),
            "refused": (),
            "transaction": (("transaction", number, 0, 4),),
            "tick": (("time", 2),),
            "hold": (("hold",),),
            "clock": (("clock", 0, 4),),
        }[name]


def deleted_by(trace: Trace) -> tuple[bool, str]:
    """Carry out a counterexample; return whether its last delete went as far as without the rule, and what the judge says."""
    with World(trace.rules) as world:
        replay = Replay(world)
        try:
            replay.run(trace.actions)
        except ViolationError as error:
            return True, str(error)
        _, wrong, real = replay.decided[-1]
        return real >= wrong > 0, ""


def main() -> int:
    deleted, why = deleted_by(traces_in(Path(sys.argv[1]).read_text(encoding="utf-8"))[int(sys.argv[2])])
    sys.stdout.write(f"{why}\n")
    return 1 if deleted else 0


if __name__ == "__main__":
    sys.exit(main())
