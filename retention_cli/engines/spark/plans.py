"""Plan clusters over Spark (docs/spark.md): a task each, which runs the local engine, or a giant one in many.

Only the client can delete: no task has an object that can.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.clock import SYSTEM
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.engines.spark.at_once import as_they_end
from retention_cli.engines.spark.cluster_task import (
    ANSWER,
    ClusterWork,
    TooLargeError,
    answer_in,
    cluster_planner,
    inventory_files,
)
from retention_cli.engines.spark.environment import check_executors
from retention_cli.engines.spark.failures import as_spark_error
from retention_cli.engines.spark.frames import ddl
from retention_cli.engines.spark.giant import CONNECTIONS, plan_giant
from retention_cli.engines.spark.sent import Sender
from retention_cli.engines.spark.session import SparkError, runs_here, slots
from retention_cli.engines.spark.targets import Target, identified
from retention_cli.observe.floors.outside import Read, read_sources
from retention_cli.observe.floors.sources.interface import Reach, SourceError
from retention_cli.plan.value import Plan
from retention_cli.policy.disks import needs_disks
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError
from retention_cli.state.handover import hand_over, take_back

PARTITIONS_A_TASK: Final = 300_000
"""The most partitions that one task plans: it needs about 0.75 GiB for 200,000."""


@dataclass(frozen=True, slots=True)
class SparkPlans:
    """The clusters' plans by target name; ``failures`` are why the other targets have no plan."""

    plans: dict[str, Plan] = field(default_factory=dict)
    failures: dict[str, BaseException] = field(default_factory=dict)

    def add(self, target: Target, plan: Plan | BaseException) -> None:
        """Add a target's plan, or why there is none."""
        if isinstance(plan, Plan):
            self.plans[target.name] = plan
        else:
            self.failures[target.name] = plan
        target.done()


def make_plans(
    spark: Callable[[], Sender],
    targets: Sequence[Target],
    now_ms: int,
    progress: Progress = silent,
    *,
    connections: int = CONNECTIONS,
    a_task: int = PARTITIONS_A_TASK,
) -> SparkPlans:
    """Plan every target: a cluster in a task, and one with more than ``a_task`` partitions and no disk rules in many.

    No cluster is changed; observations are stored in the ledgers. A cluster that fails is in ``failures``, and the
    others continue. At most so many ``connections`` read a giant cluster at a time for each of its brokers.

    Raises:
        SameClusterError: two targets are one cluster. Nothing was saved.
        SparkError: Spark can't be used.
    """
    made = SparkPlans()
    found = sorted(identified(targets, made.failures), key=lambda one: -_size(*one))
    if not found:
        return made
    sender = spark()
    if runs_here(sender.session):  # elsewhere executors were asked when Spark was opened
        check_executors(sender.session, 1)
    jobs = [partial(_planned, sender, *one, now_ms, a_task, len(targets)) for one in found]
    large: list[tuple[Target, str]] = []
    progress("clusters", 0, len(jobs))
    with contextlib.closing(as_they_end(sender.session, jobs, slots(sender.session))) as ended:
        for done, future in enumerate(ended, 1):
            target, cluster, plan = future.result()
            if isinstance(plan, TooLargeError):
                large.append((target, cluster))
            else:
                made.add(target, plan)
            progress("clusters", done, len(jobs))
    for target, cluster in large:
        job = partial(plan_giant, sender, target, cluster, now_ms, a_task, connections, len(targets), progress)
        made.add(target, _tried(job))
    return made


def _size(target: Target, cluster: str) -> int:
    """Return the size of a cluster's ledger (bytes), 0 without one: it grows with partitions and groups."""
    memory = None if target.memories is None else target.memories(cluster)
    return memory.path.stat().st_size if memory is not None and memory.on_disk else 0


def _planned(
    sender: Sender, target: Target, cluster: str, now_ms: int, partitions: int, plans: int
) -> tuple[Target, str, Plan | BaseException]:
    job = partial(_plan_in_task, sender, target, cluster, now_ms, partitions, plans)
    return target, cluster, _tried(job)


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


def _plan_in_task(
    sender: Sender, target: Target, cluster: str, now_ms: int, partitions: int, plans: int
) -> Plan | BaseException:
    """Have a task plan a cluster, and remember what it has seen."""
    memories = target.memories
    if target.inventory or needs_disks(target.selection.policy):
        partitions = sys.maxsize  # R6 is decided over all of them
    memory = None if memories is None else hand_over(memories, cluster)
    work = ClusterWork(
        cluster=cluster,
        connection=target.connect(),
        timeout_s=target.reader.timeout_s,
        selection=target.selection,
        now_ms=now_ms,
        sent_ms=SYSTEM.wall_ms(),
        partitions=partitions,
        past=target.past_day(cluster),
        memory=memory,
        outside=_outside(target),
        inventory=tuple(sender.send_file(one) for one in inventory_files(target.inventory)),
    )
    frame = sender.session.range(0, 1, 1, 1).mapInArrow(cluster_planner(sender.send(work)), ddl(ANSWER))
    [row] = frame.collect()
    found = answer_in(row, target.reader.settings.bootstrap, plans)
    if memories is not None and memory is not None:
        take_back(memories, cluster, bytes(row["ledger"] or b""), memory.revision, now_ms)
        if isinstance(found, Plan):
            found = replace(found, notes=[*found.notes, *memories.notes])
    return found


def _outside(target: Target) -> Sequence[Read] | None:
    """Return what the policy's ``floors`` say, None if it has none: files and commands are this machine's (F7)."""
    sources = target.selection.policy.groups.sources
    if not sources:
        return None
    metadata = target.reader.metadata()
    managed = [name for name in metadata.topics if target.selection.settings_for(name) is not None]
    found = read_sources(sources, Reach(target.reader, metadata, managed))
    # An error's cause may be an object that can't be sent.
    return [SourceError(str(one)) if isinstance(one, SourceError) else one for one in found]
