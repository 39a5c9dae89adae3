"""Tasks that plan: one a cluster, with the local engine; or several one that is too large (docs/spark.md).

In the latter case, some tasks read groups, then each plans some topics.

Spark runs a lost task again, against the live cluster. The client unpickles nothing of what a task returns: a plan's
rows are Parquet, the rest is JSON that is checked, and a ledger's file.

No matter which run of a share of the groups arrives at a slice of the topics, its commits were read before the slice's
log ends (F5), and it has itself compared coordinators before and after (F9). Two slices may have got different runs of
a share: a run has a name, so that the client notices.
"""

from __future__ import annotations

import socket
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from pydantic import ConfigDict, TypeAdapter, ValidationError

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.metadata import OFFSETS_TOPIC, ClusterMetadata, TopicConfig
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.extras import MissingPartError
from retention_cli.core.garbage import collection_paused
from retention_cli.core.model import TopicPartition
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount
from retention_cli.decide.guards.our_clock import MAX_SKEW_MS
from retention_cli.disks.inventory.format import InventoryError
from retention_cli.disks.inventory.read import inventory_view
from retention_cli.engines.spark.session import SparkError, scratch
from retention_cli.engines.spark.shipping import (
    ConnectionRef,
    Row,
    Sent,
    SentFile,
    from_bytes,
    reader_of,
    to_bytes,
)
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import LogNow, Logs, LogsOf, Place
from retention_cli.observe.cluster import observe
from retention_cli.observe.floors.fold import Commit, FloorFold, TopicScope
from retention_cli.observe.floors.kafka_groups import GroupReader
from retention_cli.observe.floors.outside import Read
from retention_cli.observe.recall import Recall
from retention_cli.observe.request import Prepared, Request
from retention_cli.plan.make import LocalPlanner, PlanJob, decide_all, managed_records, with_owners
from retention_cli.plan.saved import head_of, plan_of_parts
from retention_cli.plan.value import Plan, Totals, as_parquet
from retention_cli.policy.errors import PolicyError, PolicyProblem
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.state.memories import Handed, HandedMemories, changes

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


def plan_cluster(sent: Sent[ClusterWork], _number: int) -> Iterator[Row]:
    """Plan a cluster, in a task; yield a row of :data:`ANSWER`."""
    work = sent.load_once()
    clock_ms = clock_since(work.sent_ms)
    # Spark removes its own folder, also if this process is killed.
    with tempfile.TemporaryDirectory(prefix="kretain-task-", dir=scratch()) as folder:
        memories = HandedMemories(work.memory, Path(folder))
        try:
            check_clock(work.sent_ms)
            with reader_of(work.cluster, work.connection, work.timeout_s) as reader:
                row = _planned(work, reader, memories, clock_ms)
        except _FAILED as error:
            row = {"failure": failure_text(error)}
        finally:
            memories.close()
        yield {**row, "ledger": memories.added(work.cluster)}


class TooLargeError(Exception):
    """The cluster has more partitions than one task plans."""


def check_clock(sent_ms: int) -> None:
    """Check that this machine's clock is not behind that of the client, whose work was sent before.

    Raises:
        BrokerError: it is.
    """
    if (behind_ms := sent_ms - SYSTEM.wall_ms()) > MAX_SKEW_MS:
        raise BrokerError(
            f"the clock of executor {socket.gethostname()} is {behind_ms // 1000:,} s behind that of this machine: "
            f"correct it (NTP)"
        )


def clock_since(sent_ms: int) -> Callable[[], int]:
    """Return the clock for what is remembered: this machine's, or the client's if that is later.

    As the time when something was seen, one that is too late only remembers a group longer (F6), and keeps records
    longer (G3). How long something is gone is never reckoned by it.
    """
    began = time.monotonic()
    return lambda: max(SYSTEM.wall_ms(), sent_ms + round(1000 * (time.monotonic() - began)))


def _planned(
    work: ClusterWork, reader: ClusterReader, memories: HandedMemories, clock_ms: Callable[[], int]
) -> dict[str, Any]:
    if sum(len(one.partitions) for one in reader.metadata().topics.values()) > work.partitions:
        raise TooLargeError
    plan = LocalPlanner(inventory_view([one.here() for one in work.inventory]), work.outside).plan(
        PlanJob(reader, work.selection, work.now_ms, lambda _cluster: work.past, memories, clock_ms)
    )
    return {"head": head_of(plan), "rows": as_parquet(plan.decisions)}


# -- in the client -----------------------------------------------------------------------


def answer_in(row: Any, bootstrap: str, plans: int) -> Plan | Exception:
    """Return the plan in a task's answer, or why there is none. It is one of ``plans`` plans.

    Raises:
        SparkError: it is no answer of a task of ours.
    """
    try:
        if row["failure"] is not None:
            return failure_in(row["failure"])
        return plan_of_parts(row["head"], bytes(row["rows"]), bootstrap, plans)
    except (ValueError, TypeError, pa.ArrowException, OSError) as error:
        cause = type(error).__name__ if isinstance(error, ValidationError) else error
        raise SparkError(f"what a task has written can't be read ({cause}): run again") from None


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error of a task: which one of :data:`_KINDS`, its texts, or a policy's problems."""

    kind: str
    texts: tuple[str, ...] = ()
    problems: tuple[PolicyProblem, ...] = ()


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
    failure = _FAILURES.validate_json(text)
    if failure.kind == PolicyError.__name__:
        return PolicyError(failure.problems)
    return _KINDS.get(failure.kind, BrokerError)(*failure.texts)


ROW: Final = pa.schema([("slice", pa.int32()), ("kind", pa.string()), ("name", pa.string()), ("content", pa.binary())])
"""What tasks yield, for a slice or, with a number below zero, for the client.

=======  ==========================================================================================
kind     ``content``
=======  ==========================================================================================
floors   what a share's groups come to on a slice's topics, for its task; ``name`` is the share's run
group    the commits of group ``name``, null if the ledger has them
share    :class:`ShareReport` as JSON
rows     a slice's plan as Parquet
slice    :class:`SliceReport` as JSON
ledger   a slice's partitions that have changed (:func:`retention_cli.state.memories.changes`)
failure  why there is no plan (:func:`failure_text`)
=======  ==========================================================================================
"""
CLIENT: Final = "client"
"""In place of a run: what the client folds itself, consumers outside Kafka's groups."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Some topics: their metadata and settings, and what is remembered of their partitions."""

    metadata: ClusterMetadata
    configs: Mapping[str, TopicConfig | RequestFailedError]
    memory: Handed


@dataclass(frozen=True, slots=True, kw_only=True)
class Giant(TaskWork):
    """What all tasks of a giant cluster know.

    ``scopes`` are the topics that may be trimmed, ``slices`` their names
    and those of all other managed topics. The groups are read in ``shares`` tasks, each of which has its part of the
    ledger in ``memories``.
    """

    topic_ids: Mapping[str, str]
    scopes: Mapping[str, TopicScope]
    slices: Sequence[tuple[Collection[str], Sent[Slice]]]
    memories: Sequence[Sent[Handed]]
    shares: int


@dataclass(frozen=True, slots=True)
class ShareReport:
    """What the client must know of a share of the groups.

    ``run`` names the run of the task. ``read`` are the groups whose commits were read, ``gone`` the positions of those
    that are gone (F6). ``widths`` and ``born`` are when topics and groups were first seen (F2), by topic id and number
    of partitions, and by group. ``complete``: all groups of the share were read (F10).
    """

    run: str
    read: Sequence[str]
    gone: Sequence[tuple[str, dict[str, list[Commit]]]]
    complete: bool = False
    widths: Sequence[tuple[str, int, int]] = ()
    born: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceReport:
    """What the client must know of a slice's logs, to judge commits on them (F5), and of its plan.

    ``logs`` are those of :meth:`~retention_cli.memory.positions.Logs.sent`, ``special`` all others. ``cuts`` are where
    logs were cut. ``runs`` are those of the shares that it got.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    runs: frozenset[str]
    totals: Totals
    managed: int
    sizes_problem: str | None
    logs: bytes = b""
    special: Sequence[tuple[tuple[str, int], LogNow]] = ()
    cuts: Sequence[tuple[str, int]] = ()


SHARE_REPORT: Final = TypeAdapter(ShareReport)
SLICE_REPORT: Final = TypeAdapter(SliceReport)


def share_rows(sent: Sent[Giant], share: int) -> Iterator[Row]:
    """Read a share of the groups, by its number, in a task; yield rows of :data:`ROW`."""
    giant = sent.load()
    try:
        with _in_task(giant) as (folder, reader):
            yield from read_share(giant, share, giant.memories[share].load_once(), reader, folder)
    except (BrokerError, StateError, MissingPartError) as error:
        yield _failed(-1 - share, error)


@contextmanager
def _in_task(giant: Giant) -> Iterator[tuple[Path, ClusterReader]]:
    """Yield a folder, which Spark removes if this process is killed, and a reader of the cluster."""
    with (
        collection_paused(),
        tempfile.TemporaryDirectory(prefix="kretain-task-", dir=scratch()) as folder,
        reader_of(giant.cluster, giant.connection, giant.timeout_s) as reader,
    ):
        check_clock(giant.sent_ms)
        yield Path(folder), reader


def _failed(number: int, error: Exception) -> Row:
    return {"slice": number, "kind": "failure", "content": failure_text(error).encode()}


def read_share(giant: Giant, share: int, handed: Handed, reader: ClusterReader, folder: Path) -> Iterator[Row]:
    """Read a share of the groups as the local engine does, and yield the result.

    Raises:
        BrokerError: no broker answered.
        StateError: what is remembered of them can't be read.
    """
    clock_ms = clock_since(giant.sent_ms)
    memory = HandedMemories(handed, folder)(giant.cluster)
    memory.begin(giant.topic_ids)
    memory.reads = []
    seen: set[str] = set()
    fold = GroupReader(
        reader,
        giant.scopes,
        # The client reads the sources. Its clock says how long a group is gone: this one may be ahead (F6).
        Recall(memory, replace(giant.selection.policy.groups, sources=()), giant.sent_ms, clock_ms),
        listener=lambda commits: seen.add(commits.group),
        is_mine=partial(is_in_share, giant.shares, share),
    ).read(reader.metadata([OFFSETS_TOPIC]))
    run = f"{share}:{uuid.uuid4().hex}"
    yield from floors_rows(fold, giant.slices, run)
    gone = [(group, {topic: [*some] for topic, some in rows.items()}) for group, rows in fold.gone]
    report = ShareReport(run, sorted(seen), gone, not fold.failed)
    mine = -1 - share
    if memory.on_disk:
        for name, read in memory.reads:
            yield {"slice": mine, "kind": "group", "name": name, "content": None if read is None else read.as_bytes()}
        widths, born = memory.noted_ages()
        report = replace(report, widths=[(*key, seen_ms) for key, seen_ms in widths.items()], born=born)
    memory.close()
    yield {"slice": mine, "kind": "share", "content": SHARE_REPORT.dump_json(report)}


def is_in_share(shares: int, share: int, group: str) -> bool:
    """Return whether a group belongs to a share."""
    return zlib.crc32(group.encode("utf-8", "surrogatepass")) % shares == share


def floors_rows(fold: FloorFold, slices: Sequence[tuple[Collection[str], Sent[Slice]]], run: str) -> Iterator[Row]:
    """Yield a run's fold, a row for each slice."""
    for number, (topics, _sent) in enumerate(slices):
        yield {"slice": number, "kind": "floors", "name": run, "content": to_bytes(fold.part(topics))}


def slice_planner(sent: Sent[Giant]) -> Callable[[Any], Any]:
    """Return the function for ``applyInArrow`` that plans a slice, once all shares have arrived; other rows pass."""

    def run(table: Any) -> Any:
        if (number := table.column("slice")[0].as_py()) < 0:
            return table
        giant = sent.load()
        try:
            with _in_task(giant) as (folder, reader):
                arrived = [(row["name"], from_bytes(row["content"])) for row in table.to_pylist()]
                rows = list(plan_slice(giant, giant.slices[number][1].load_once(), arrived, reader, folder))
        except (BrokerError, StateError, MissingPartError) as error:
            rows = [_failed(number, error)]
        return pa.Table.from_pylist([{**row, "slice": number} for row in rows], schema=ROW)

    return run


class SliceLedger(Ledger):
    """The partitions of a slice. It has no groups: it keeps what they are to be judged by, for the client.

    ``cut`` are the logs that were cut. Their partitions remember that at once, so the groups must be judged by it also
    if the log changes again while it is read: no later pass finds the cut.
    """

    logs: Logs | None = None

    def __init__(self, *args: Any, **named: Any) -> None:
        self.cut: dict[Place, LogNow] = {}
        super().__init__(*args, **named)

    def judge(self, logs_of: LogsOf, topics: object, cuts: Collection[TopicPartition]) -> None:
        """Keep the logs."""
        del topics
        self.logs = logs = logs_of()
        self.cut |= {tp: logs.special[tp] for tp in cuts if tp in logs.special}


def plan_slice(
    giant: Giant, one: Slice, arrived: Sequence[tuple[str, FloorFold]], reader: ClusterReader, folder: Path
) -> Iterator[Row]:
    """Observe and decide the topics of a slice as the local engine does, and yield what comes of it.

    Args:
        giant: the cluster.
        one: the slice.
        arrived: the runs of all shares, and their groups' folds.
        reader: the cluster's.
        folder: this task's own.

    Raises:
        BrokerError: no broker answered, or a share is missing: it may have had the lowest commit of any partition (F3).
        StateError: what is remembered of the partitions can't be read.
    """
    if sorted(run.partition(":")[0] for run, _ in arrived) != sorted([CLIENT, *map(str, range(giant.shares))]):
        raise BrokerError("Spark lost the commits of some groups on their way to the topics that they read: run again")
    floors = FloorFold({name: scope for name, scope in giant.scopes.items() if name in one.metadata.topics})
    for _, fold in arrived:
        floors.take(fold)
    clock_ms = clock_since(giant.sent_ms)
    memories = HandedMemories(one.memory, folder, SliceLedger)
    selection = giant.selection
    observation = observe(
        reader,
        Request(
            selection.settings_for,
            selection.policy.groups,
            giant.now_ms,
            memories,
            clock_ms,
            prepared=Prepared(one.metadata, floors, one.configs),
        ),
    )
    decisions = with_owners(reader, decide_all(reader, observation, giant.now_ms, None))
    yield {"kind": "rows", "content": as_parquet(decisions)}
    runs = frozenset(run for run, _ in arrived)
    report = SliceReport(runs, Totals.of(decisions), managed_records(observation), observation.sizes_problem)
    if isinstance(ledger := memories(giant.cluster), SliceLedger):
        memories.save(clock_ms())
        if (logs := ledger.logs) is not None:
            special = {**ledger.cut, **logs.special}
            cuts = [(*tp,) for tp in ledger.cut]
            report = replace(report, logs=logs.sent(), special=[*special.items()], cuts=cuts)
        yield {"kind": "ledger", "content": changes(ledger, one.memory.ledger)}
        memories.close()
    yield {"kind": "slice", "content": SLICE_REPORT.dump_json(report)}
