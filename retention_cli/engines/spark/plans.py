"""Plan clusters over Spark (docs/spark.md): a task each, which runs the local engine, or a giant one in many.

Of a giant one some tasks read the groups, then each plans some of the topics. Only the client changes the ledger, and
only it can delete: no task has an object that can.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pydantic import ValidationError

from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.core.clock import SYSTEM
from retention_cli.core.garbage import collection_paused
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Decision, TopicPartition
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.disks.inventory.format import InventoryError
from retention_cli.disks.inventory.read import inventory_files, inventory_paths
from retention_cli.engines.fleet.plan import Failure, failure_of
from retention_cli.engines.fleet.planning import ClusterNames, Member, Watch
from retention_cli.engines.spark.session import SparkError, as_spark_error, check_executors, runs_here, slots
from retention_cli.engines.spark.shipping import Row, Sender, Sent, as_they_end, ddl, task
from retention_cli.engines.spark.tasks import (
    ANSWER,
    CLIENT,
    ROW,
    SHARE_REPORT,
    SLICE_REPORT,
    ClusterWork,
    Giant,
    ShareReport,
    Slice,
    SliceReport,
    TooLargeError,
    answer_in,
    failure_in,
    floors_rows,
    is_in_share,
    plan_cluster,
    share_rows,
    slice_planner,
)
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import Logs
from retention_cli.observe.cluster import bare_facts, configured, never_touched
from retention_cli.observe.floors.fold import FloorFold, TopicScope
from retention_cli.observe.floors.outside import Read, fold_outside, read_sources
from retention_cli.observe.floors.sources.interface import Reach, SourceError
from retention_cli.observe.recall import Recall
from retention_cli.plan.make import (
    PlanJob,
    losing,
    off_disks,
    plan_of,
    reached_by_pattern,
    unread_by_group,
    unsized,
    with_live,
)
from retention_cli.plan.value import Plan, Totals, decisions_in, having
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError, check_matches
from retention_cli.state.memories import Handed, Memories, hand_groups, hand_over, hand_partitions, take_back

PARTITIONS_A_TASK: Final = 300_000
"""The most partitions that one task plans: it needs about 0.75 GiB for 200,000."""
_IDENTIFIED_AT_ONCE: Final = 8

PARTITIONS_A_SLICE: Final = 20_000
CONNECTIONS: Final = 2
"""How many tasks per broker read a giant cluster at a time."""
_SHARES_AT_MOST: Final = 200
_CUT_AGAIN: Final = 10
_JUDGED_COMMITS: Final = 1_000_000
"""This many commits are judged at a time: each takes some 80 bytes until then."""

Open = Callable[[Progress], Sender]
"""Opens Spark, or returns what sends to the tasks of the open session."""


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster to plan, by its name in a fleet; the job's reader is open.

    ``inventory`` are the files of its inventory, for the disk rules. ``done`` is called once its plan is made, or it
    has failed: nothing more is read of the cluster then, or remembered of it.
    """

    name: str
    job: PlanJob
    inventory: Sequence[Path] = ()
    done: Callable[[], None] = lambda: None


def plan_over_spark(
    spark: Open,
    members: Sequence[Member],
    now_ms: int,
    watch: Watch,
    *,
    connections: int = CONNECTIONS,
    a_task: int = PARTITIONS_A_TASK,
) -> Iterator[tuple[str, Plan | Failure]]:
    """Plan all clusters of a fleet over one session (:data:`retention_cli.engines.fleet.planning.Engine`).

    Args:
        spark: opens the session.
        members: the clusters.
        now_ms: now (Unix ms).
        watch: reports progress.
        connections: how many tasks read from a broker at a time, at most.
        a_task: the most partitions that one task plans.
    """
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(watch("Spark"))
        targets = []
        for member in members:
            own = contextlib.ExitStack()
            stack.callback(own.close)  # where it was not done before
            try:
                targets.append(_target(member, now_ms, own, progress))
            except (BrokerError, PolicyError, StateError, InventoryError) as error:
                yield member.name, failure_of(error)
        for name, found in make_plans(spark, targets, progress, connections=connections, a_task=a_task):
            yield name, found if isinstance(found, Plan) else failure_of(found)


def _target(member: Member, now_ms: int, stack: contextlib.ExitStack, progress: Progress) -> Target:
    selection = member.selection()
    files = inventory_paths(selection.policy)
    return Target(member.name, member.job(selection, now_ms, progress, stack), files, stack.close)


def make_plans(
    spark: Open,
    targets: Sequence[Target],
    progress: Progress = silent,
    *,
    connections: int = CONNECTIONS,
    a_task: int = PARTITIONS_A_TASK,
) -> Iterator[tuple[str, Plan | BaseException]]:
    """Plan every target: a cluster in a task, and one with more than ``a_task`` partitions and no disk rules in many.

    Yields each target's name with its plan, or why there is none. No cluster is changed; observations are stored in
    the ledgers. At most ``connections`` connections read a giant cluster at a time for each of its brokers.

    Raises:
        SameClusterError: two targets are one cluster. Nothing was saved.
        SparkError: Spark can't be used.
    """
    found: list[tuple[Target, str]] = []
    for target, cluster in _identified(targets):
        if isinstance(cluster, BrokerError):
            target.done()
            yield target.name, cluster
        else:
            found.append((target, cluster))
    if not found:
        return
    found.sort(key=lambda one: -_ledger_bytes(*one))
    sender = spark(progress)
    if runs_here(sender.session):  # elsewhere executors were asked when Spark was opened
        check_executors(sender.session, 1)
    jobs = [partial(_planned, sender, *one, a_task, len(targets)) for one in found]
    large: list[tuple[Target, str]] = []
    progress("clusters", 0, len(jobs))
    with contextlib.closing(as_they_end(sender.session, jobs, slots(sender.session))) as ended:
        for done, future in enumerate(ended, 1):
            target, cluster, plan = future.result()
            if isinstance(plan, TooLargeError):
                large.append((target, cluster))
            else:
                target.done()
                yield target.name, plan
            progress("clusters", done, len(jobs))
    for target, cluster in large:
        plan = _tried(partial(plan_giant, sender, target.job, cluster, a_task, connections, len(targets)))
        target.done()
        yield target.name, plan


def _identified(targets: Sequence[Target]) -> list[tuple[Target, str | BrokerError]]:
    """Return the targets with their clusters' ids, or why these can't be reached.

    Raises:
        SameClusterError: two targets are one cluster; its ledger is opened once alone.
    """
    names = ClusterNames([one.name for one in targets])

    def identify(target: Target) -> str | BrokerError:
        try:
            cluster: str = target.job.reader.metadata([]).cluster_id
        except BrokerError as error:
            return error
        names.claim(cluster, target.name)
        return cluster

    with ThreadPool(max(1, min(_IDENTIFIED_AT_ONCE, len(targets)))) as pool:  # its threads are daemons
        return list(zip(targets, pool.map(identify, targets, chunksize=1), strict=True))


def _ledger_bytes(target: Target, cluster: str) -> int:
    """Return the size of a cluster's ledger, 0 without one: it grows with partitions and groups."""
    memory = target.job.memories(cluster)
    return memory.path.stat().st_size if memory.on_disk else 0


def _planned(
    sender: Sender, target: Target, cluster: str, partitions: int, plans: int
) -> tuple[Target, str, Plan | BaseException]:
    return target, cluster, _tried(partial(_plan_in_task, sender, target, cluster, partitions, plans))


def _tried(job: Callable[[], Plan | BaseException]) -> Plan | BaseException:
    """Return a cluster's plan, or the error that costs only this cluster."""
    try:
        return job()
    except (BrokerError, PolicyError, NothingMatchesError, StateError, SparkError, OSError) as error:
        return as_spark_error(error) or error
    except Exception as error:
        if (failed := as_spark_error(error)) is None:
            raise
        return failed


def _plan_in_task(sender: Sender, target: Target, cluster: str, partitions: int, plans: int) -> Plan | BaseException:
    job, memories = target.job, target.job.memories
    if target.inventory or job.selection.policy.needs_disks:
        partitions = sys.maxsize  # R6 is decided over all of them
    memory = hand_over(memories, cluster)
    work = ClusterWork(
        cluster=cluster,
        connection=sender.connection(job.reader.settings),
        timeout_s=job.reader.timeout_s,
        selection=job.selection,
        now_ms=job.now_ms,
        sent_ms=SYSTEM.wall_ms(),
        partitions=partitions,
        past=job.past_day(cluster),
        memory=memory,
        outside=_outside(job),
        inventory=tuple(sender.send_file(one) for one in inventory_files(target.inventory)),
    )
    planner = task(partial(plan_cluster, sender.send(work)), ANSWER)
    [row] = sender.session.range(0, 1, 1, 1).mapInArrow(planner, ddl(ANSWER)).collect()
    found = answer_in(row, job.reader.settings.bootstrap, plans)
    take_back(memories, cluster, bytes(row["ledger"] or b""), memory.revision, job.now_ms)
    return replace(found, notes=[*found.notes, *memories.notes]) if isinstance(found, Plan) else found


def _outside(job: PlanJob) -> Sequence[Read] | None:
    """Return what the policy's ``floors`` say, None if it has none: files and commands are this machine's (F7)."""
    if not (sources := job.selection.policy.groups.sources):
        return None
    metadata = job.reader.metadata()
    managed = [name for name in metadata.topics if job.selection.settings_for(name) is not None]
    # An error's cause may be an object that can't be sent.
    return [
        SourceError(str(one)) if isinstance(one, SourceError) else one
        for one in read_sources(sources, Reach(job.reader, metadata, managed))
    ]


@collection_paused()
def plan_giant(sender: Sender, job: PlanJob, cluster: str, most: int, connections: int, plans: int) -> Plan:
    """Plan a cluster in many tasks. It is one of ``plans`` plans.

    A slice has at most ``most`` partitions, but a topic is never cut. At most ``connections`` connections per broker
    read the cluster at a time.

    Raises:
        BrokerError: the cluster's metadata could not be read, here or in a task.
        PolicyError: R1 is enabled for a topic without a time.
        NothingMatchesError: there is no topic to decide about.
        StateError: the ledger, or the audit log (G6), can't be read.
        SparkError: what tasks have written can't be read.
    """
    reader, memories, progress = job.reader, job.memories, job.progress
    progress("topics")
    selection = with_live(reader, job.selection)
    metadata = reader.metadata()
    settings = {name: one for name in sorted(metadata.topics) if (one := selection.settings_for(name)) is not None}
    topics = {name: bare_facts(metadata.topics[name]) for name in settings}
    touched = [name for name, topic in topics.items() if not never_touched(topic, settings[name])]
    configs = reader.topic_configs(touched) if touched else {}
    topics = {name: configured(topic, configs.get(name)) for name, topic in topics.items()}
    notes = [*selection.policy.live.notes, *check_matches(selection, metadata.topics.keys())]
    notes += reached_by_pattern(topics.values(), settings, selection.policy)
    notes += off_disks(topics.values(), settings).notes()
    scopes = {name: TopicScope(metadata.topics[name].leader_epochs, settings[name].require_groups) for name in touched}
    at_once = max(1, min(connections * len(metadata.brokers), _SHARES_AT_MOST))
    names = list(_slices(metadata, settings, max(1, min(most, PARTITIONS_A_SLICE))))
    memory = memories(cluster)
    slices, ledger_parts = _cut(sender, memories, cluster, metadata, names, configs, at_once)
    giant = Giant(
        cluster=cluster,
        connection=sender.connection(reader.settings),
        timeout_s=reader.timeout_s,
        selection=selection.decided_alone,
        now_ms=job.now_ms,
        sent_ms=job.clock_ms(),
        topic_ids=metadata.topic_ids,
        scopes=scopes,
        slices=slices,
        memories=ledger_parts,
        shares=at_once,
    )
    own, outside = FloorFold(scopes), dict[str, GroupCommits | None]()
    recall = Recall(memory, selection.policy.groups, job.clock_ms(), job.clock_ms)
    fold_outside(own, metadata, recall, reader, lambda one: outside.update({one.group: one}))
    progress("committed offsets, log ends and decisions")
    with contextlib.closing(_rows_of_tasks(sender, giant, floors_rows(own, slices, CLIENT))) as rows:
        found = _Found.of(rows, giant, plans)
    if memory.on_disk:
        progress("what is remembered")
        memory.saw_topics({metadata.topic_ids[name]: name for name in settings if name in metadata.topic_ids})
        with memory.sparing():
            _remember(memory, giant, found, job.clock_ms())
            memories.save(job.clock_ms())
    gone = [*own.gone, *(one for share in found.shares for one in share.gone)]
    seen = {**outside, **{group: None for share in found.shares for group in share.read}}
    totals = sum((one.totals for one in found.slices), Totals.of(()))
    going = having(found.decisions, "trim") if totals.unconsumed else ()
    notes += unsized(min((one.sizes_problem for one in found.slices if one.sizes_problem), default=None))
    return plan_of(
        replace(job, selection=selection),
        cluster,
        found.decisions,
        totals,
        sum(one.managed for one in found.slices),
        unread_by_group(reader, seen, gone, losing(one for one in going if selection.asks_for(one.tp))),
        notes,
    )


def _slices(metadata: ClusterMetadata, names: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield the topics in slices, in order, with at most this many partitions each, but one topic at least."""
    some: list[str] = []
    count = 0
    for name in names:
        size = len(metadata.topics[name].partitions)
        if some and count + size > most:
            yield some
            some, count = [], 0
        some.append(name)
        count += size
    if some:
        yield some


def _cut(
    sender: Sender,
    memories: Memories,
    cluster: str,
    metadata: ClusterMetadata,
    names: Sequence[Sequence[str]],
    configs: Mapping[str, Any],
    shares: int,
) -> tuple[list[tuple[Sequence[str], Sent[Slice]]], list[Sent[Handed]]]:
    """Send each slice its topics, and each task its part of the ledger: all of one revision."""
    ids = metadata.topic_ids
    memory = memories(cluster)

    def sliced(some: Sequence[str], handed: Handed) -> tuple[Sequence[str], Sent[Slice]]:
        theirs = ClusterMetadata(cluster, metadata.brokers, {name: metadata.topics[name] for name in some})
        return some, sender.send(Slice(theirs, {name: configs[name] for name in some if name in configs}, handed))

    for _ in range(_CUT_AGAIN):
        with memory.sparing():
            memory.begin(ids)
        parts = [sender.send(hand_groups(memories, cluster, partial(is_in_share, shares, n))) for n in range(shares)]
        slices = [
            sliced(some, hand_partitions(memories, cluster, [ids[name] for name in some if name in ids]))
            for some in names
        ]
        if not memory.others_wrote:
            return slices, parts
    raise StateError("the ledger is written by other runs all the time: run again")


def _rows_of_tasks(sender: Sender, giant: Giant, own: Iterator[Row]) -> Generator[Any, None, None]:
    session, sent = sender.session, sender.send(giant)
    shares = session.range(0, giant.shares, 1, giant.shares).mapInArrow(task(partial(share_rows, sent), ROW), ddl(ROW))
    rows = shares.unionByName(session.createDataFrame(pa.Table.from_pylist(list(own), schema=ROW)))
    by_slice = rows.repartition(giant.shares, "slice").groupBy("slice")
    planned = by_slice.applyInArrow(slice_planner(sent), ddl(ROW)).persist()
    try:
        planned.count()
        yield from planned.toLocalIterator()
    finally:
        planned.unpersist()


@dataclass(slots=True)
class _Found:
    """What tasks have found: the plan's decisions in order, and what is remembered."""

    decisions: Sequence[Decision]
    shares: Sequence[ShareReport]
    slices: Sequence[SliceReport]
    groups: Sequence[tuple[str, bytes | None]]
    ledgers: Sequence[bytes]

    @property
    def is_one_reading(self) -> bool:
        """Whether all slices got those runs of the shares whose groups are here: these were read before any log end."""
        runs = {CLIENT, *(one.run for one in self.shares)}
        return all(one.runs == runs for one in self.slices)

    @classmethod
    def of(cls, rows: Iterator[Any], giant: Giant, plans: int) -> _Found:
        """Return what is in these rows.

        Raises:
            SparkError: they are not those of our tasks, or some are missing.
            BrokerError: a task could not read the cluster; or another error of a task.
        """
        try:
            kinds: dict[str, list[tuple[int, str, Any]]] = by_key(
                (row["kind"], (row["slice"], row["name"], None if row["content"] is None else bytes(row["content"])))
                for row in rows
            )
            if failures := {number: content for number, _, content in kinds.get("failure", ())}:
                raise failure_in(failures[min(failures)])  # a share's, if any: slices can't do without it
            shares = [SHARE_REPORT.validate_json(content) for *_, content in kinds.get("share", ())]
            reports = [SLICE_REPORT.validate_json(content) for *_, content in kinds.get("slice", ())]
            parts = {number: content for number, _, content in kinds.get("rows", ())}
            slices = len(giant.slices)
            if (sorted(parts), len(reports), len(shares)) != (list(range(slices)), slices, giant.shares):
                raise SparkError("the tasks' output is incomplete: run again")
            decisions = decisions_in((parts[number] for number in range(slices)), plans)
        except (ValidationError, pa.ArrowException, TypeError) as error:
            raise SparkError(f"what a task has written can't be read ({type(error).__name__}): run again") from None
        return cls(
            decisions,
            shares,
            reports,
            [(name, content) for _, name, content in kinds.get("group", ())],
            [content for *_, content in kinds.get("ledger", ())],
        )


def _remember(ledger: Ledger, giant: Giant, found: _Found, now_ms: int) -> None:
    """Remember what tasks have read: groups and how their commits stand to the logs, and the partitions (F5, F6).

    Where Spark ran a share again, its commits may be later than log ends: a commit beyond these is no leftover. Then
    only the groups are remembered, as by a plan that was interrupted.
    """
    slices = found.slices if found.is_one_reading else ()
    logs = Logs(special for one in slices for special in one.special)
    cuts = [TopicPartition(*tp) for one in slices for tp in one.cuts]
    for share in found.shares:
        ledger.take_ages({(topic_id, count): at for topic_id, count, at in share.widths}, share.born)
    if all(share.complete for share in found.shares):
        ledger.saw_all(*giant.selection.policy.groups.watched, giant.sent_ms, now_ms)
    waiting = 0
    try:
        for sent in (one.logs for one in slices if one.logs):
            logs.take(sent)
        topics = logs.topics()
        for name, raw in found.groups:
            ledger.saw_read(name, None if raw is None else GroupMemory.from_bytes(raw), giant.sent_ms)
            waiting += len(raw or b"") // 6  # a commit has about as many bytes
            if waiting > _JUDGED_COMMITS and not cuts:  # a cut is judged for all groups at once
                ledger.judge(lambda: logs, topics, ())
                waiting = 0
        for changed in found.ledgers if found.is_one_reading else ():
            ledger.take(changed)
    except ValueError as error:
        raise SparkError(f"what a task has remembered can't be read ({error}): run again") from None
    ledger.judge(lambda: logs, topics, cuts)
