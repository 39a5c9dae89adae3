"""A plan over Spark without Spark: the client's own functions and the tasks', in one process, one after the other.

Between any two requests others may act (:mod:`tests.simulation.hub`), as in all runs of the simulation.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pytest
from greenlet import getcurrent

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.decide.guards.limits import Amount
from retention_cli.engines.spark import commit_tasks, commits, fact_tasks
from retention_cli.engines.spark import prepare as preparing
from retention_cli.engines.spark import remember as remembering
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.engines.spark.packing import pack
from retention_cli.engines.spark.parts import CLIENT, Source
from retention_cli.engines.spark.schemas import CHUNK, READ
from retention_cli.engines.spark.write import chunk_of
from retention_cli.memory.stores import Memories
from tests.simulation.clock import SimClock
from tests.simulation.kafka import BROKERS
from tests.simulation.reader import SimReader
from tests.simulation.runs import selection_of
from tests.simulation.scene import Operator

if TYPE_CHECKING:
    from tests.simulation.world import World

_ATTEMPTS = 3
_READERS: dict[str, TaskReader] = {}
_CLOCKS: dict[Any, SimClock] = {}


class TaskReader(SimReader):
    """What a client and its tasks read by."""

    def topic_configs(
        self, topics: Sequence[str], patience_s: float | None = None
    ) -> dict[str, TopicConfig | RequestFailedError]:
        found: dict[str, TopicConfig | RequestFailedError] = self.topic_configs_soon(topics, patience_s).result()
        return found

    def coordinators(self, groups: Iterable[str]) -> dict[str, int]:
        return {name: BROKERS[number % len(BROKERS)] for number, name in enumerate(sorted(groups))}


@dataclass(frozen=True)
class Here:
    """A value that was sent to tasks (:class:`retention_cli.engines.spark.sent.Sent`)."""

    value: Any

    def load(self) -> Any:
        return self.value


class TaskReaders:
    """See :class:`retention_cli.engines.spark.connections.Readers`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def opened(self, _cluster: str, connection: ConnectionRef, _timeout_s: float) -> TaskReader:
        return _READERS[str(connection.path)]


class TaskClock:
    """The clock of the machine on which a run is under way."""

    def wall_ms(self) -> int:
        return _CLOCKS[getcurrent()].wall_ms()


class OneByOne:
    """A pool of threads of which one works at a time."""

    def __init__(self, _count: int) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, work: Any, some: Iterable[Any], chunksize: int) -> list[Any]:
        del chunksize
        return [work(one) for one in some]


def simulate_tasks(patch: pytest.MonkeyPatch) -> None:
    """Let tasks read by the simulated reader and clock of their run."""
    for module in (commit_tasks, fact_tasks, preparing, remembering):
        patch.setattr(module, "SYSTEM", TaskClock())
    patch.setattr(fact_tasks, "Readers", TaskReaders)
    patch.setattr(commits, "ThreadPool", OneByOne)


def spark_plan(world: World, one: Operator, reader: TaskReader, memories: Memories) -> list[dict[str, Any]]:
    """Make a plan, and remember what was seen; return the plan's rows (``schemas.CHUNK``)."""
    name = str(id(reader))
    _READERS[name], _CLOCKS[getcurrent()] = reader, one.clock
    try:
        simulated: Any = reader
        target = preparing.Target("", simulated, selection_of(world, one), ConnectionRef, lambda _: Amount(), memories)
        prepared = preparing.prepare(target, one.clock.wall_ms())
        preparing.open_memory(prepared)
        world.hub.pause("spark starts")
        prepared.job = replace(prepared.job, connection=ConnectionRef(path=name))
        return _planned(world, prepared)
    finally:
        del _READERS[name], _CLOCKS[getcurrent()]


def _planned(world: World, prepared: preparing.Prepared) -> list[dict[str, Any]]:
    tasks = pack(prepared.job.places.by_leader(), 1)
    parts, seen, known, sources = _groups(prepared, tasks)
    parts += commits.own_parts(prepared, tasks, rows=False)
    world.hub.pause("spark reads ends")
    sent: Any = {prepared.cluster: Here(prepared.job)}
    recalled: Any = {prepared.cluster: Here(prepared.recalled)}
    read = fact_tasks.slice_reader(sent, recalled, tasks, {prepared.cluster: sources})
    rows = pa.Table.from_batches(parts, READ).to_pylist()
    chunks: list[pa.RecordBatch] = []
    for number in range(len(tasks)):
        theirs = [row for row in rows if row["kind"] == "part" and row["task"] == number]
        arrived = pa.RecordBatch.from_pylist([{"kind": "task", "task": number}, *theirs], schema=READ)
        for _piece, slices in read(iter([arrived])):
            chunks += map(chunk_of, slices)
    whole = pa.Table.from_batches(chunks, CHUNK).sort_by("at")
    world.hub.pause("spark remembers")
    remembering.remember(prepared, [whole], seen.items(), lambda: known)
    found: list[dict[str, Any]] = whole.to_pylist()
    return found


def _groups(
    prepared: preparing.Prepared, readers_of: Any
) -> tuple[list[pa.RecordBatch], Mapping[str, bytes | None], Mapping[str, Any], set[Source]]:
    """Read the groups' commits as :func:`retention_cli.engines.spark.commits.read_commits` does."""
    cluster, readers, attempt = prepared.cluster, TaskReaders(), 0
    while True:
        attempt += 1
        listed = commits.listed_now([prepared])
        sizes = listed[cluster].by_coordinator(cluster) if listed else {}
        pieces = [piece for task in pack(sizes, 1) for piece in task]
        some: list[pa.RecordBatch] = []
        for piece in pieces:
            given: Any = (prepared.job, listed[cluster], readers, piece, attempt, readers_of)
            some += commit_tasks.read_piece(*given, rows=False)
        rows = [row for batch in some for row in batch.to_pylist()]
        seen = {row["group"]: row["value"] for row in rows if row["kind"] == "memory"}
        known = (listed[cluster].memories or {}) if listed else {}
        if prepared.listing is None or not commits.coordinators_moved(prepared) or attempt == _ATTEMPTS:
            told = [row for row in rows if row["kind"] == "source"]
            sources = {Source(attempt, row["offset"], row["partition"], row["text"]) for row in told}
            return some, seen, known, {CLIENT, *sources}
        deque(remembering.saw_groups(prepared, seen.items(), functools.partial(dict, known)), 0)
