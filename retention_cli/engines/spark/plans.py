"""Plan clusters over Spark (docs/spark.md): a task each, which runs the local engine, or a giant one in many.

Only the client can delete: no task has an object that can.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.clock import SYSTEM
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.disks.inventory.format import InventoryError
from retention_cli.disks.inventory.read import inventory_files, inventory_paths
from retention_cli.engines.fleet.plan import Failure, failure_of
from retention_cli.engines.fleet.planning import ClusterNames, Member, Watch
from retention_cli.engines.spark.giant import CONNECTIONS, plan_giant
from retention_cli.engines.spark.session import SparkError, as_spark_error, check_executors, runs_here, slots
from retention_cli.engines.spark.shipping import Sender, as_they_end, ddl
from retention_cli.engines.spark.tasks import (
    ANSWER,
    ClusterWork,
    TooLargeError,
    answer_in,
    cluster_planner,
)
from retention_cli.observe.floors.outside import Read, read_sources
from retention_cli.observe.floors.sources.interface import Reach, SourceError
from retention_cli.plan.make import PlanJob
from retention_cli.plan.value import Plan
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError
from retention_cli.state.memories import hand_over, take_back

PARTITIONS_A_TASK: Final = 300_000
"""The most partitions that one task plans: it needs about 0.75 GiB for 200,000."""
_IDENTIFIED_AT_ONCE: Final = 8

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
    spark: Open, connections: int, a_task: int, members: Sequence[Member], now_ms: int, watch: Watch
) -> Iterator[tuple[str, Plan | Failure]]:
    """Plan all clusters of a fleet over one session (:data:`retention_cli.engines.fleet.planning.Engine`).

    Args:
        spark: opens the session.
        connections: how many tasks read from a broker at a time, at most.
        a_task: the most partitions that one task plans.
        members: the clusters.
        now_ms: now (Unix ms).
        watch: reports progress.
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
    reader = stack.enter_context(member.reader())
    memories = member.memories(reader, selection.policy.state)
    stack.callback(memories.close)
    job = PlanJob(reader, selection, now_ms, member.past_day(selection, now_ms), memories, progress=progress)
    return Target(member.name, job, files, stack.close)


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
    the ledgers. At most so many ``connections`` read a giant cluster at a time for each of its brokers.

    Raises:
        SameClusterError: two targets are one cluster. Nothing was saved.
        SparkError: Spark can't be used.
    """
    failures: dict[str, BaseException] = {}
    found = sorted(_identified(targets, failures), key=lambda one: -_ledger_bytes(*one))
    yield from failures.items()
    if not found:
        return
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


def _identified(targets: Sequence[Target], failures: MutableMapping[str, BaseException]) -> list[tuple[Target, str]]:
    """Return the targets with their clusters' ids; those that can't be reached are in ``failures``, and done.

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

    there = []
    with ThreadPool(max(1, min(_IDENTIFIED_AT_ONCE, len(targets)))) as pool:  # its threads are daemons
        for target, found in zip(targets, pool.map(identify, targets, chunksize=1), strict=True):
            if isinstance(found, BrokerError):
                failures[target.name] = found
                target.done()
            else:
                there.append((target, found))
    return there


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
    """Have a task plan a cluster, and remember what it has seen."""
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
    frame = sender.session.range(0, 1, 1, 1).mapInArrow(cluster_planner(sender.send(work)), ddl(ANSWER))
    [row] = frame.collect()
    found = answer_in(row, job.reader.settings.bootstrap, plans)
    take_back(memories, cluster, bytes(row["ledger"] or b""), memory.revision, job.now_ms)
    return replace(found, notes=[*found.notes, *memories.notes]) if isinstance(found, Plan) else found


def _outside(job: PlanJob) -> Sequence[Read] | None:
    """Return what the policy's ``floors`` say, None if it has none: files and commands are this machine's (F7)."""
    sources = job.selection.policy.groups.sources
    if not sources:
        return None
    metadata = job.reader.metadata()
    managed = [name for name in metadata.topics if job.selection.settings_for(name) is not None]
    found = read_sources(sources, Reach(job.reader, metadata, managed))
    # An error's cause may be an object that can't be sent.
    return [SourceError(str(one)) if isinstance(one, SourceError) else one for one in found]
