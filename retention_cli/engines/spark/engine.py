"""A plan over Spark: reduce commits to standings, join facts, and decide where facts were read (docs/architecture.md).

The client itself reads only small data; only totals are collected to it and, if they are to be shown, rows. Only the
client can delete: no task has an object that can.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pyarrow as pa

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.consumers import floor_by
from retention_cli.core.model import Decision
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.engines.fleet.planning import ClusterNames
from retention_cli.engines.spark.commit_tasks import GROUPS, commit_batch, commit_reader
from retention_cli.engines.spark.disks import ClusterDisks, look, looks_at_disks, with_asked, with_bases, with_bytes
from retention_cli.engines.spark.fact_tasks import Reading, decider, fact_reader, limiter, read_before, slice_reader
from retention_cli.engines.spark.frames import PLACE, as_frame, frame_of, join_commits
from retention_cli.engines.spark.jobs import ClusterJob
from retention_cli.engines.spark.prepare import (
    Prepared,
    Target,
    group_rows,
    list_groups,
    own_rows,
    prepare,
    recall,
    slice_rows,
)
from retention_cli.engines.spark.remember import remember_groups, remember_partitions
from retention_cli.engines.spark.schemas import COMMITS, DECIDED, FACTS, LIMITS, SLICES, ddl
from retention_cli.engines.spark.summaries import Summary, summaries_of
from retention_cli.observe.floors.kafka_groups import changed_since, not_listed
from retention_cli.plan.columns import COLUMNS, decision_of
from retention_cli.plan.make import plan_of
from retention_cli.plan.spill import SpilledDecisions
from retention_cli.plan.value import Plan, Totals
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError

_ATTEMPTS: Final = 3
_CLIENTS: Final = 8
"""How many clusters the client reads at a time."""
_TASKS_AT_MOST: Final = 10_000
IN_MEMORY: Final = 50_000
"""At most this many decisions of one cluster are held in the client's memory: about 60 MB."""


@dataclass(slots=True)
class SparkPlan:
    """The decisions for all clusters that could be read. A context manager: on exit it frees the frames Spark keeps.

    ``rows`` is a frame of ``schemas.DECIDED``; ``plans`` are the clusters' plans by target name, without rows;
    ``failures`` are why the other targets have no plan.
    """

    rows: Any
    plans: dict[str, Plan] = field(default_factory=dict)
    failures: dict[str, BaseException] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.rows is not None:
            self.rows.unpersist()

    def decisions(self, plan: Plan) -> Sequence[Decision]:
        """Return a plan's decisions in order. More than ``IN_MEMORY`` are kept in a file, not in memory."""
        some = self.rows.where(self.rows.cluster == plan.cluster_id).select(*(one.name for one in COLUMNS))
        many = plan.totals.partitions > IN_MEMORY
        if many:
            some = some.sort("topic", "partition")  # two more jobs, which a small plan does not need
        found = (decision_of(row.asDict(recursive=True)) for row in some.toLocalIterator(prefetchPartitions=True))
        return SpilledDecisions(found) if many else sorted(found, key=lambda one: one.tp)


def make_plans(session: Any, targets: Sequence[Target], now_ms: int, progress: Progress = silent) -> SparkPlan:
    """Read and decide every target. No cluster is changed; observations are stored in the ledgers.

    A cluster that fails is in ``failures``, and the others continue.

    Raises:
        SameClusterError: two targets are one cluster.
    """
    progress("topics and groups")
    found = _prepared(targets, now_ms)
    prepared = [one for one in found.values() if isinstance(one, Prepared)]
    failures = {name: one for name, one in found.items() if not isinstance(one, Prepared)}
    if not prepared:
        return SparkPlan(None, failures=failures)
    names = ClusterNames([one.target.name for one in prepared])
    for one in prepared:
        names.claim(one.cluster, one.target.name)
    for one in prepared:
        recall(one)
    commits, read = read_commits(session, prepared, progress)
    disks: dict[str, ClusterDisks] = {}
    for one in list(prepared):
        if not looks_at_disks(one):
            continue
        progress(f"disks{f' of {one.target.name}' if one.target.name else ''}")
        try:
            disks[one.cluster] = look(session, one)
        except BrokerError as error:
            failures[one.target.name] = error
            prepared.remove(one)
    required = sorted({group for one in prepared for item in one.settings.values() for group in item.require_groups})
    disk_facts = {cluster: one.disk_facts(progress) for cluster, one in disks.items()}
    places = (row for one in prepared for row in slice_rows(one, disk_facts.get(one.cluster, {})))
    slices = frame_of(session, places, SLICES)
    slices = with_bases(slices, disks.values())
    tasks = tasks_for(
        len({(one.cluster, at.leader) for one in prepared for at in one.metadata.places(one.settings).values()})
    )
    jobs = {one.cluster: one.job for one in prepared}
    rows = join_commits(slices, commits, required)
    progress("log ends, look-ups and decisions")
    with contextlib.ExitStack() as stack:
        decided = _decided(session, rows, jobs, tasks, disks.values(), now_ms, stack, progress)
        if any(one.inventory is not None for one in disks.values()):
            stack.callback(decided.persist().unpersist)
            decided = with_bytes(decided, disks.values())
        decided = decided.persist()
        summaries = summaries_of(decided)
    progress("what is remembered")
    remember_groups(prepared, commits)
    remember_partitions(prepared, decided)
    result = SparkPlan(decided, failures=failures)
    unread = _unread_by_group(decided, commits, summaries.values(), prepared)
    for one in prepared:
        summary, of_disks = summaries.get(one.cluster, Summary(Totals.of(()))), disks.get(one.cluster)
        try:
            result.plans[one.target.name] = plan_of(
                one.target.reader,
                one.selection,
                one.cluster,
                now_ms,
                decisions=(),
                totals=summary.totals,
                managed=summary.managed,
                unread=unread.get(one.cluster, {}),
                notes=one.notes,
                sizes_problem=summary.note,
                past_day=one.target.past_day,
                memories=one.target.memories,
                disks=None if of_disks is None else of_disks.state,
            )
        except StateError as error:  # the audit log can't be read, or its chain is broken (G6)
            result.failures[one.target.name] = error
    for frame in read:
        frame.unpersist()
    return result


def _decided(
    session: Any,
    rows: Any,
    jobs: Mapping[str, ClusterJob],
    tasks: int,
    disks: Iterable[ClusterDisks],
    now_ms: int,
    stack: contextlib.ExitStack,
    progress: Progress,
) -> Any:
    """Read facts and decide them; if a disk has a ceiling, R6 is decided last, over all partitions of a cluster.

    ``stack`` frees the frames that Spark keeps for that.
    """
    with_ceiling = []
    for one in disks:
        stack.callback(one.close)
        if one.state.rules.percent is None:
            one.state.without_ceiling()
        else:
            with_ceiling.append(one)
    if not with_ceiling:
        return decided_frame(by_leader(rows, tasks), jobs, slice_reader(jobs))
    facts = by_leader(rows, tasks).mapInArrow(fact_reader(jobs), ddl(FACTS)).persist()
    stack.callback(facts.unpersist)
    few = facts.where(facts.cluster.isin(*(one.prepared.cluster for one in with_ceiling)))
    limits = few.mapInArrow(limiter(jobs), ddl(LIMITS)).persist()
    stack.callback(limits.unpersist)
    limits.count()
    progress("the oldest on disks above their ceilings")
    asked = with_asked(session, facts, limits, with_ceiling, now_ms)
    return decided_frame(asked, jobs, read_before)


def by_leader(rows: Any, tasks: int) -> Any:
    """Assign rows to tasks: one task per leader, which reads the leader's slices one after the other.

    So each broker has at most one connection per task.
    """
    return rows.repartition(tasks, "cluster", "leader").sortWithinPartitions("cluster", "slice", "topic", "partition")


def decided_frame(rows: Any, jobs: Mapping[str, ClusterJob], read: Reading) -> Any:
    """Return decisions (``schemas.DECIDED``): each task reads its rows and decides them in the same Python process."""
    return rows.mapInArrow(decider(jobs, read), ddl(DECIDED))


def _prepared(targets: Sequence[Target], now_ms: int) -> dict[str, Prepared | BaseException]:
    """Read the small data of all clusters, a few clusters at a time."""

    def one(target: Target) -> Prepared | BaseException:
        try:
            return prepare(target, now_ms)
        except (BrokerError, PolicyError, NothingMatchesError, StateError) as error:
            return error

    with ThreadPoolExecutor(min(_CLIENTS, len(targets)), "kretain-prepare") as pool:
        return dict(zip((target.name for target in targets), pool.map(one, targets), strict=True))


def tasks_for(count: int) -> int:
    """Return the number of tasks that read from ``count`` brokers."""
    return max(1, min(_TASKS_AT_MOST, count))


def read_commits(session: Any, prepared: Sequence[Prepared], progress: Progress) -> tuple[Any, list[Any]]:
    """Read every group's commits; read a cluster's once more if coordinators moved meanwhile (F9).

    Return the commits, and the frames that Spark keeps of them. Counting rows forces them to be read before any log
    end is. Spark reads a block that it loses later again, which is just as safe: a commit is valid when it is read.
    """
    pending, parts, read = list(prepared), [], []
    for attempt in range(1, _ATTEMPTS + 1):
        groups = sum(len(one.listing.counted) for one in pending if one.listing is not None)
        progress(f"committed offsets of {groups:,} groups")
        frame = _commits_of(session, pending).persist()
        frame.count()
        read.append(frame)
        doubtful = [one for one in pending if one.listing is not None and _moved(one)]
        sound = [one.cluster for one in pending if one not in doubtful or attempt == _ATTEMPTS]
        parts.append(frame.where(frame.cluster.isin(*sound)))
        pending = [one for one in doubtful if attempt < _ATTEMPTS]
        for one in pending:
            one.before = None
            list_groups(one)
        if not pending:
            break
    own = [commit_batch(one.cluster, rows) for one in prepared if (rows := own_rows(one))]
    commits = parts[0]
    for more in parts[1:]:
        commits = commits.unionByName(more)
    if own:
        commits = commits.unionByName(as_frame(session, pa.Table.from_batches(own)))
    return commits, read


def _moved(prepared: Prepared) -> bool:
    """Return whether coordinators moved since the listing; ``doubt`` is set if they did, or if that is unknown."""
    assert prepared.before is not None  # noqa: S101  (every listing sets it)
    try:
        prepared.doubt = changed_since(prepared.target.reader, prepared.before)
    except BrokerError as error:
        prepared.doubt = not_listed(error)
    return prepared.doubt is not None


def _commits_of(session: Any, prepared: Sequence[Prepared]) -> Any:
    jobs = {one.cluster: one.job for one in prepared}
    rows = [row for one in prepared for row in group_rows(one)]
    if not rows:
        return as_frame(session, pa.Table.from_batches([], COMMITS))
    tasks = tasks_for(len({(row["cluster"], row["broker"]) for row in rows}))
    groups = frame_of(session, rows, GROUPS)
    sliced = groups.repartition(tasks, "cluster", "broker").sortWithinPartitions("cluster", "slice", "name")
    return sliced.mapInArrow(commit_reader(jobs), ddl(COMMITS))


def _unread_by_group(
    decided: Any, commits: Any, summaries: Iterable[Summary], prepared: Iterable[Prepared]
) -> dict[str, dict[str, int]]:
    """Return, per cluster and group, how many records would be trimmed before it has read them (G2).

    Only the partitions asked for are counted.
    """
    from pyspark.sql import functions as f

    if not any(one.totals.unconsumed for one in summaries):
        return {}
    losing = decided.where("action = 'trim' and unconsumed > 0").select(*PLACE, "log_start", "trim_to")
    for one in prepared:
        for topic, numbers in one.selection.parted.items():
            here = (f.col("cluster") == one.cluster) & (f.col("topic") == topic)
            losing = losing.where(~here | f.col("partition").isin(numbers))
    lost = f.col("trim_to") - f.greatest("offset", "log_start")
    rows = (
        commits.where(commits.kind.isin("commit", "refused"))
        .join(losing, [*PLACE])
        .where(lost > 0)
        .groupBy("cluster", "group")
        .agg(f.sum(lost).alias("lost"))
        .collect()
    )
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row["cluster"], {})[floor_by(row["group"])] = row["lost"]
    return {cluster: dict(sorted(groups.items())) for cluster, groups in found.items()}
