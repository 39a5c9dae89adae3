"""Plans over Spark: fold commits where they are read, decide where ends are read, write the rows there (docs/spark.md).

The client itself reads only small data, and puts together what tasks have written, once. Only the client can delete:
no task has an object that can.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.engines.fleet.planning import ClusterNames
from retention_cli.engines.spark.commits import CommitsRead, read_commits
from retention_cli.engines.spark.disks import ClusterDisks, look, with_bases, with_bytes
from retention_cli.engines.spark.environment import check_executors
from retention_cli.engines.spark.fact_frames import Asked, decider, fact_reader, limiter
from retention_cli.engines.spark.fact_tasks import slice_reader
from retention_cli.engines.spark.frames import kept as kept_frame
from retention_cli.engines.spark.gather import in_order, received
from retention_cli.engines.spark.jobs import Recalled
from retention_cli.engines.spark.lost import lost_by_group
from retention_cli.engines.spark.packing import CONNECTIONS
from retention_cli.engines.spark.prepare import CLIENTS, Prepared, Target, open_memory, prepare
from retention_cli.engines.spark.remember import remember
from retention_cli.engines.spark.schemas import DECIDED, FACTS, LIMITS, WRITTEN, ddl
from retention_cli.engines.spark.sent import Sender, Sent
from retention_cli.engines.spark.session import runs_here
from retention_cli.engines.spark.write import Outbox, plan_writer, row_writer
from retention_cli.plan.kept import KeptRows
from retention_cli.plan.make import plan_of
from retention_cli.plan.value import Plan
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError


@dataclass(frozen=True, slots=True)
class SparkPlans:
    """The clusters' plans by target name; ``failures`` are why the other targets have no plan."""

    plans: dict[str, Plan] = field(default_factory=dict)
    failures: dict[str, BaseException] = field(default_factory=dict)


def make_plans(
    spark: Callable[[], Sender],
    targets: Sequence[Target],
    now_ms: int,
    progress: Progress = silent,
    *,
    connections: int = CONNECTIONS,
) -> SparkPlans:
    """Read and decide every target. No cluster is changed; observations are stored in the ledgers.

    A cluster that fails is in ``failures``, and the others continue. While ``spark`` opens a session, the client reads
    its own part of the clusters. At most so many ``connections`` read from a broker at a time.

    Raises:
        SameClusterError: two targets are one cluster.
        SparkError: Spark can't be used, or does not hand back what the tasks have written.
    """
    names = ClusterNames([one.name for one in targets])
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPool(max(1, min(CLIENTS, len(targets)))))  # its threads are daemons
        preparing = pool.map_async(lambda one: _prepared(one, now_ms, names), targets, chunksize=1)
        sender = spark()
        if runs_here(sender.session) and not preparing.ready():  # elsewhere executors were asked when Spark was opened
            check_executors(sender.session, CLIENTS)  # meanwhile they import what they need
        progress("topics")
        found = dict(zip((one.name for one in targets), preparing.get(), strict=True))
        made = SparkPlans(failures={name: one for name, one in found.items() if not isinstance(one, Prepared)})
        prepared = [one for one in found.values() if isinstance(one, Prepared)]
        if not prepared:
            return made
        for one in prepared:
            one.connected()
        commits = stack.enter_context(read_commits(sender, prepared, progress, connections))
        disks = _looked_at(sender, prepared, made, progress)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kretain-rows-")))
        known = {one.cluster: sender.send(one.recalled) for one in prepared}
        progress("log ends, look-ups and decisions")
        written = _written(sender, commits, known, disks, Outbox.at(folder), now_ms, stack, progress)
        files = received(written, folder)
        for one in prepared:
            progress("the plan" + (f" of {one.target.name}" if one.target.name else ""))
            theirs = files.get(one.cluster, ())
            try:
                made.plans[one.target.name] = _plan(sender, one, commits, theirs, disks.get(one.cluster), now_ms)
            except StateError as error:  # the audit log can't be read, or its chain is broken (G6)
                made.failures[one.target.name] = error
    return made


def _prepared(target: Target, now_ms: int, names: ClusterNames) -> Prepared | BaseException:
    """Read the small data of a cluster and its ledger, or return why that failed.

    Raises:
        SameClusterError: another target is the same cluster; its ledger is opened once alone.
    """
    try:
        one = prepare(target, now_ms)
        names.claim(one.cluster, target.name)
        open_memory(one)
    except (BrokerError, PolicyError, NothingMatchesError, StateError) as error:
        return error
    return one


def _looked_at(
    sender: Sender, prepared: list[Prepared], made: SparkPlans, progress: Progress
) -> dict[str, ClusterDisks]:
    """Look at the disks of the clusters that have rules for them; one that can't be read fails."""
    disks: dict[str, ClusterDisks] = {}
    for one in [one for one in prepared if one.looks_at_disks]:
        progress(f"disks{f' of {one.target.name}' if one.target.name else ''}")
        try:
            disks[one.cluster] = looked = look(sender.session, one)
            one.recalled = replace(one.recalled, disk_facts=looked.disk_facts(progress))
        except BrokerError as error:
            made.failures[one.target.name] = error
            prepared.remove(one)
    return disks


def _written(
    sender: Sender,
    commits: CommitsRead,
    known: Mapping[str, Sent[Recalled]],
    disks: Mapping[str, ClusterDisks],
    outbox: Outbox,
    now_ms: int,
    stack: contextlib.ExitStack,
    progress: Progress,
) -> Any:
    """Return the frame of what tasks have written (``schemas.WRITTEN``), which ``stack`` frees.

    If a disk has a ceiling, R6 is decided last, over all partitions of a cluster.
    """
    with_ceiling = []
    for one in disks.values():
        stack.callback(one.close)
        if one.state.rules.percent is None:
            one.state.without_ceiling()
        else:
            with_ceiling.append(one)
    arrived = with_bases(commits, disks.values())
    read = slice_reader(commits.jobs, known, commits.tasks, commits.sources)
    scanned = [one for one in disks.values() if one.inventory is not None]
    if not with_ceiling and not scanned:
        return kept_frame(arrived.mapInArrow(plan_writer(read, outbox), ddl(WRITTEN)), stack)
    facts = kept_frame(arrived.mapInArrow(fact_reader(read), ddl(FACTS)), stack)
    asked: dict[str, Sent[Asked]] = {}
    if with_ceiling:
        few = facts.where(facts.cluster.isin(*(one.prepared.cluster for one in with_ceiling)))
        limits = kept_frame(few.mapInArrow(limiter(commits.jobs), ddl(LIMITS)), stack)
        limits.count()
        progress("the oldest on disks above their ceilings")
        for one in with_ceiling:
            cluster = one.prepared.cluster
            asked[cluster] = sender.send(one.decide(limits.where(limits.cluster == cluster), now_ms))
    decided = facts.mapInArrow(decider(commits.jobs, asked), ddl(DECIDED))
    if scanned:
        decided = with_bytes(kept_frame(decided, stack), scanned)
    return kept_frame(decided.mapInArrow(row_writer(outbox), ddl(WRITTEN)), stack)


def _plan(
    sender: Sender,
    one: Prepared,
    commits: CommitsRead,
    files: Sequence[Path],
    of_disks: ClusterDisks | None,
    now_ms: int,
) -> Plan:
    """Put a cluster's plan together from what its tasks have written, and remember what they have seen."""
    kept = KeptRows()

    def rows() -> Iterator[Any]:
        with kept.writing() as write:
            for table in in_order(files, len(one.job.places)):
                write(table)
                yield table

    recorded = rows()
    remember(one, recorded, commits.seen_groups(one.cluster), lambda: commits.known_groups(one.cluster))
    deque(recorded, 0)  # nothing is remembered without a ledger, and the rows are kept all the same
    for file in files:
        file.unlink(missing_ok=True)
    unread = lost_by_group(sender, one, commits, kept) if kept.totals.unconsumed else {}
    return plan_of(
        one.target.reader,
        one.selection,
        one.cluster,
        now_ms,
        decisions=kept.decisions(),
        totals=kept.totals,
        managed=kept.managed,
        unread=unread,
        notes=one.notes,
        sizes_problem=kept.note,
        past_day=one.target.past_day,
        memories=one.target.memories,
        disks=None if of_disks is None else of_disks.state,
    )
