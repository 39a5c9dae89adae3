"""The plan of a giant cluster over Spark without Spark: the client's own functions and the tasks', one after the other.

Between any two requests others may act (:mod:`tests.simulation.hub`), as in all runs of the simulation.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from greenlet import getcurrent

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.decide.guards.limits import Amount
from retention_cli.engines.spark import plans, tasks
from retention_cli.engines.spark.shipping import ConnectionRef, SentFile, from_bytes, to_bytes
from retention_cli.plan.make import PlanJob
from retention_cli.plan.value import Plan
from retention_cli.state.memories import Memories
from tests.simulation.reader import SimReader
from tests.simulation.runs import selection_of
from tests.simulation.scene import Operator

if TYPE_CHECKING:
    from tests.simulation.world import World

_RUNS: dict[Any, tuple[World, TaskReader]] = {}
"""The run of each greenlet."""
_LARGEST_SLICE = 2


class TaskReader(SimReader):
    """What a client and its tasks read by."""

    def topic_configs(
        self, topics: Sequence[str], patience_s: float | None = None
    ) -> dict[str, TopicConfig | RequestFailedError]:
        found: dict[str, TopicConfig | RequestFailedError] = self.topic_configs_soon(topics, patience_s).result()
        return found


@dataclass(frozen=True)
class Here:
    """A value that was sent to tasks (:class:`retention_cli.engines.spark.shipping.Sent`)."""

    raw: bytes

    def load(self) -> Any:
        return from_bytes(self.raw)

    load_once = load


class Sender:
    """See :class:`retention_cli.engines.spark.shipping.Sender`."""

    def send(self, value: Any) -> Here:
        return Here(to_bytes(value))

    def connection(self, _settings: object) -> ConnectionRef:
        return ConnectionRef(SentFile("simulated"))


def clock_since(_sent_ms: int) -> Callable[[], int]:
    """The clock of the machine on which a run is under way."""
    return _RUNS[getcurrent()][1].clock.wall_ms


def simulate_tasks(patch: pytest.MonkeyPatch) -> None:
    """Let tasks read by the simulated reader and clock of their run."""
    patch.setattr(plans, "_rows_of_tasks", planned)
    patch.setattr(tasks, "clock_since", clock_since)


def planned(sender: Any, whole: Any, own: Iterator[Any], *, again: bool = False) -> Generator[Any, None, None]:
    """Yield what all tasks yield: shares first, as a shuffle is between them and the slices.

    ``again``: Spark has lost what shares have read for the client, and reads it once more.
    """
    world, reader = _RUNS[getcurrent()]
    one, task_reader = sender.send(whole).load(), reader
    given: Any = task_reader
    world.hub.pause("spark starts")
    rows = [*own]
    with tempfile.TemporaryDirectory() as name:
        for share in range(one.shares):
            rows += tasks.read_share(one, share, one.memories[share].load_once(), given, Path(name) / f"share-{share}")
        world.hub.pause("spark reads ends")
        for number, (_topics, sent) in enumerate(one.slices):
            floors = [(row["name"], from_bytes(row["content"])) for row in rows if row["slice"] == number]
            folder = Path(name) / f"slice-{number}"
            for row in tasks.plan_slice(one, sent.load_once(), floors, given, folder):
                yield {"name": None, **row, "slice": number}
        if again:
            world.hub.pause("spark loses a share")
            rows = []
            for share in range(one.shares):
                folder = Path(name) / f"again-{share}"
                rows += tasks.read_share(one, share, one.memories[share].load_once(), given, folder)
    yield from ({"name": None, **row} for row in rows if row["slice"] < 0)
    world.hub.pause("spark remembers")


def spark_plan(world: World, one: Operator, reader: TaskReader, memories: Memories) -> Plan:
    """Make a plan, and remember what was seen."""
    _RUNS[getcurrent()] = world, reader
    try:
        simulated: Any = reader
        sender: Any = Sender()
        selection, clock_ms = selection_of(world, one), one.clock.wall_ms
        job = PlanJob(simulated, selection, clock_ms(), lambda _: Amount(), memories, clock_ms)
        return plans.plan_giant(sender, job, world.kafka.cluster_id, _LARGEST_SLICE, 1, 1)
    finally:
        del _RUNS[getcurrent()]
