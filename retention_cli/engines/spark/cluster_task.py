"""A task plans one cluster with the local engine, and hands back its plan and what its memory has added.

Spark runs a lost task again, against the live cluster. The client unpickles nothing of what a task returns: a plan's
rows are Parquet, the rest is JSON that is checked, and a ledger's file.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.extras import MissingPartError
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount
from retention_cli.decide.guards.our_clock import MAX_SKEW_MS
from retention_cli.disks.inventory.format import InventoryError
from retention_cli.disks.inventory.read import inventory_view
from retention_cli.engines.spark.session import SparkError, scratch
from retention_cli.engines.spark.shipping import ArrowTask, ConnectionRef, Sent, SentFile, reader_of
from retention_cli.observe.floors.outside import Read
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.plan.rows import as_parquet
from retention_cli.plan.saved import head_of, plan_in
from retention_cli.plan.value import Plan
from retention_cli.policy.errors import PolicyError, PolicyProblem
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.state.handover import Handed, HandedMemories

ANSWER: Final = pa.schema(
    [("failure", pa.string()), ("head", pa.string()), ("rows", pa.binary()), ("ledger", pa.binary())]
)
"""A task's only row: why there is no plan, or the plan without its rows as JSON, these as Parquet, and
the file of the ledger. The ledger comes back in either case, as what an interrupted plan has seen is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWork:
    """What any task needs of a cluster: how to reach it, and what was chosen there.

    ``now_ms`` is the time from which all cutoffs are calculated, ``sent_ms`` the client's time when it sent this (Unix
    ms).
    """

    cluster: str
    connection: ConnectionRef
    timeout_s: float
    selection: Selection
    now_ms: int
    sent_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWork(TaskWork):
    """What a task needs to plan a cluster.

    ``partitions`` are the most that one task plans. ``past`` is what was trimmed there in the last 24 hours (G6),
    ``outside`` what the policy's ``floors`` gave to the client (F7), ``inventory`` the files of its segments.
    """

    partitions: int
    past: Amount
    memory: Handed
    outside: Sequence[Read] | None = None
    inventory: tuple[SentFile, ...] = ()


def cluster_planner(work: Sent[ClusterWork]) -> ArrowTask:
    """Return the task that plans a cluster: it yields a row of :data:`ANSWER`."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        deque(batches, 0)  # Spark ends a Python worker whose task leaves some
        # Spark removes its own folder, also if this process is killed.
        with tempfile.TemporaryDirectory(prefix="kretain-task-", dir=scratch()) as folder:
            yield pa.RecordBatch.from_pylist([_answer(work.load_once(), Path(folder))], schema=ANSWER)

    return run


def _answer(work: ClusterWork, folder: Path) -> dict[str, Any]:
    clock_ms = clock_since(work.sent_ms)
    memories = HandedMemories(work.memory, folder, clock_ms)
    try:
        check_clock(work.sent_ms)
        with reader_of(work.cluster, work.connection, work.timeout_s) as reader:
            row = _planned(work, reader, memories, clock_ms)
    except _FAILED as error:
        row = {"failure": failure_text(error)}
    finally:
        memories.close()
    return {**row, "ledger": memories.added(work.cluster)}


class TooLargeError(Exception):
    """The cluster has more partitions than one task plans."""


def check_clock(sent_ms: int) -> None:
    """Check that this machine's clock is not behind that of the client, whose work was sent before.

    Raises:
        BrokerError: it is.
    """
    behind_ms = sent_ms - SYSTEM.wall_ms()
    if behind_ms > MAX_SKEW_MS:
        here = socket.gethostname()
        raise BrokerError(
            f"the clock of executor {here} is {behind_ms // 1000:,} s behind that of this machine: correct it (NTP)"
        )


def clock_since(sent_ms: int) -> Callable[[], int]:
    """Return the clock for what is remembered: this machine's, or the client's if that is later.

    A time that is too late only remembers a group longer (F6), and keeps records longer (G3).
    """
    began = time.monotonic()
    return lambda: max(SYSTEM.wall_ms(), sent_ms + round(1000 * (time.monotonic() - began)))


def _planned(
    work: ClusterWork, reader: ClusterReader, memories: HandedMemories, clock_ms: Callable[[], int]
) -> dict[str, Any]:
    if sum(len(one.partitions) for one in reader.metadata().topics.values()) > work.partitions:
        raise TooLargeError
    inventory = inventory_view([one.here() for one in work.inventory])
    job = PlanJob(reader, work.selection, work.now_ms, lambda _cluster: work.past, memories, clock_ms)
    plan = LocalPlanner(inventory, work.outside).plan(job)
    return {"head": head_of(plan), "rows": as_parquet(plan.decisions)}


# -- in the client -----------------------------------------------------------------------


def answer_in(row: Any, bootstrap: str, plans: int) -> Plan | Exception:
    """Return the plan in a task's answer, or why there is none. It is one of so many ``plans``.

    Raises:
        SparkError: it is no answer of a task of ours.
    """
    try:
        if row["failure"] is not None:
            return failure_in(row["failure"])
        return plan_in(row["head"], bytes(row["rows"]), bootstrap, plans)
    except (ValueError, TypeError, pa.ArrowException, OSError) as error:
        said = type(error).__name__ if isinstance(error, ValidationError) else error
        raise SparkError(f"what a task has written can't be read ({said}): run again") from None


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error of a task: which one of :data:`_KINDS`, its texts, or a policy's problems."""

    kind: str
    texts: tuple[str, ...] = ()
    problems: tuple[PolicyProblem, ...] = ()

    def as_error(self) -> Exception:
        if self.kind == PolicyError.__name__:
            return PolicyError(self.problems)
        return _KINDS.get(self.kind, BrokerError)(*self.texts)


_KINDS: Final[dict[str, type[Exception]]] = {
    one.__name__: one
    for one in (BrokerError, NothingMatchesError, StateError, InventoryError, TooLargeError, MissingPartError)
}


_FAILED: Final[tuple[type[Exception], ...]] = (PolicyError, *_KINDS.values())
_FAILURES: Final = TypeAdapter(_Failure)


def failure_text(error: Exception) -> str:
    """Return an error of a task as JSON."""
    if isinstance(error, PolicyError):
        failure = _Failure(PolicyError.__name__, problems=tuple(error.problems))
    else:
        texts = error.problems if isinstance(error, NothingMatchesError) else (str(error),)
        failure = _Failure(next((name for name, one in _KINDS.items() if isinstance(error, one)), ""), texts)
    return _FAILURES.dump_json(failure).decode()


def failure_in(text: str | bytes) -> Exception:
    """Return the error in :func:`failure_text`.

    Raises:
        ValidationError: it is none.
    """
    return _FAILURES.validate_json(text).as_error()
