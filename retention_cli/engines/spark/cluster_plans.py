"""Plan clusters over Spark: a task each, which runs the local engine (:mod:`.cluster_task`)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.clock import SYSTEM
from retention_cli.core.progress import Progress
from retention_cli.core.state_dir import StateError
from retention_cli.engines.spark.at_once import as_they_end
from retention_cli.engines.spark.cluster_task import (
    ANSWER,
    ClusterWork,
    TooLargeError,
    cluster_planner,
    inventory_files,
    plan_in,
)
from retention_cli.engines.spark.failures import as_spark_error
from retention_cli.engines.spark.prepare import Target
from retention_cli.engines.spark.schemas import ddl
from retention_cli.engines.spark.sent import Sender
from retention_cli.engines.spark.session import SparkError, slots
from retention_cli.memory.handover import hand_over, take_back
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.floors.outside import Read, read_sources
from retention_cli.observe.floors.sources.interface import Reach, SourceError
from retention_cli.plan.value import Plan
from retention_cli.policy.disks import needs_disks
from retention_cli.policy.errors import PolicyError

PARTITIONS_A_TASK: Final = 300_000
"""The most partitions that one task plans: it needs about 0.75 GiB for 200,000."""


@dataclass(frozen=True, slots=True)
class SparkPlans:
    """The clusters' plans by target name; ``failures`` are why the other targets have no plan."""

    plans: dict[str, Plan] = field(default_factory=dict)
    failures: dict[str, BaseException] = field(default_factory=dict)


def plan_clusters(
    sender: Sender,
    targets: Sequence[tuple[Target, str]],
    now_ms: int,
    partitions: int,
    made: SparkPlans,
    progress: Progress,
) -> list[Target]:
    """Plan each target in a task of its own, the large ones first; return those with more than ``partitions``.

    A cluster that fails is in the failures, and the others continue.

    Args:
        sender: the session.
        targets: the clusters, each with an open reader, and their ids.
        now_ms: the time from which all cutoffs are calculated (Unix ms).
        partitions: the most that one task plans.
        made: gets the plans, and the reasons of clusters without one.
        progress: called with the number of clusters that are done.
    """
    ordered = sorted(targets, key=lambda one: -_remembered(*one))
    jobs = [partial(_planned, sender, *one, now_ms, partitions, len(targets)) for one in ordered]
    large: list[Target] = []
    progress("clusters", 0, len(jobs))
    with contextlib.closing(as_they_end(sender.session, jobs, slots(sender.session))) as ended:
        for done, future in enumerate(ended, 1):
            target, found = future.result()
            if isinstance(found, TooLargeError):
                large.append(target)
            else:
                if isinstance(found, Plan):
                    made.plans[target.name] = found
                else:
                    made.failures[target.name] = found
                target.done()
            progress("clusters", done, len(jobs))
    return large


def _remembered(target: Target, cluster: str) -> int:
    """Return the size of a cluster's ledger (bytes), 0 without one: it grows with partitions and groups."""
    memory = None if target.memories is None else target.memories(cluster)
    try:
        return memory.path.stat().st_size if isinstance(memory, Ledger) else 0
    except OSError:
        return 0


def _planned(
    sender: Sender, target: Target, cluster: str, now_ms: int, partitions: int, plans: int
) -> tuple[Target, Plan | BaseException]:
    """Have a task plan a cluster, and remember what it has seen."""
    memories = target.memories
    if target.inventory or target.batches is not None or needs_disks(target.selection.policy):
        partitions = sys.maxsize  # R6 is decided over all of them
    try:
        memory = None if memories is None else hand_over(memories, cluster)
        work = ClusterWork(
            cluster,
            target.connect(),
            target.reader.timeout_s,
            target.selection,
            now_ms,
            SYSTEM.wall_ms(),
            partitions,
            target.past_day(cluster),
            memory,
            _outside(target),
            tuple(sender.send_file(one) for one in inventory_files(target.inventory)),
            exact_bytes=target.batches is not None,
        )
        sent = sender.send(work)
        frame = sender.session.range(0, 1, 1, 1).mapInArrow(cluster_planner(sent), ddl(ANSWER))
        [row] = frame.collect()
        found = plan_in(row, target.reader.settings.bootstrap, plans)
    except (BrokerError, PolicyError, StateError, SparkError) as error:
        return target, error
    except Exception as error:
        failed = as_spark_error(error) or (error if isinstance(error, OSError) else None)
        if failed is None:
            raise
        return target, failed
    if memories is not None and memory is not None:
        take_back(memories, cluster, bytes(row["ledger"] or b""), memory.revision, now_ms)
        if isinstance(found, Plan):
            found = replace(found, notes=[*found.notes, *memories.notes])
    return target, found


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
