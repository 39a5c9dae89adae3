"""A plan over Spark: commits to standings, facts joined to them, decided where they were read (docs/architecture.md).

The client reads what is small, and nothing is collected to it but totals and, where somebody wants to see them,
rows. It alone can delete: no task has anything that could.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import pyarrow as pa

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.model import Decision, Reason
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount, over_limits
from retention_cli.engines.fleet.planning import ClusterNames
from retention_cli.engines.spark.commit_tasks import GROUPS, commit_batch, commit_reader
from retention_cli.engines.spark.disks import ClusterDisks, look, looks_at_disks, with_asked, with_bases, with_bytes
from retention_cli.engines.spark.fact_tasks import FACTS_AND_STANDING, decider, fact_reader, limiter
from retention_cli.engines.spark.frames import PLACE, as_frame, join_commits
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
from retention_cli.engines.spark.schemas import COMMITS, DECIDED, LIMITS, SLICES, ddl
from retention_cli.engines.spark.summaries import Summary, summaries_of
from retention_cli.observe.floors.kafka_groups import changed_since, not_listed
from retention_cli.plan.columns import COLUMNS, decision_of
from retention_cli.plan.spill import SpilledDecisions
from retention_cli.plan.value import Plan, Totals
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError

_ATTEMPTS: Final = 3
_CLIENTS: Final = 8
"""How many clusters the client reads at a time."""
_TASKS_AT_MOST: Final = 10_000
IN_MEMORY: Final = 50_000
"""So many decisions of one cluster the client holds in memory: some 60 MB."""


@dataclass(slots=True)
class SparkPlan:
    """What was decided of all clusters that could be read. A context manager: it lets go of what Spark keeps.

    ``rows`` is a frame of ``schemas.DECIDED``; ``plans`` are the clusters' plans by the targets' names, without
    rows, ``failures`` why the others have none.
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
        """Return a plan's decisions in order. Many are kept in a file, never all of them in memory."""
        some = self.rows.where(self.rows.cluster == plan.cluster_id).select(*(one.name for one in COLUMNS))
        many = plan.totals.partitions > IN_MEMORY
        if many:
            some = some.sort("topic", "partition")  # two more jobs, which a small plan need not wait for
        found = (decision_of(row.asDict(recursive=True)) for row in some.toLocalIterator(prefetchPartitions=True))
        return SpilledDecisions(found) if many else sorted(found, key=lambda one: one.tp)


def make_plans(session: Any, targets: Sequence[Target], now_ms: int, progress: Progress = silent) -> SparkPlan:
    """Read and decide every target. Nothing of any cluster is changed; what was seen is remembered.

    What one cluster lacks is its own: ``failures`` has it, and the others go on.

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
    notes = {one.cluster: [*one.notes] for one in prepared}
    required = sorted({group for one in prepared for item in one.settings.values() for group in item.require_groups})
    disk_facts = {cluster: one.disk_facts(progress) for cluster, one in disks.items()}
    places = (row for one in prepared for row in slice_rows(one, disk_facts.get(one.cluster, {})))
    slices = frame_of(session, places, SLICES)
    slices = with_bases(slices, disks.values())
    tasks = tasks_for(len({(one.cluster, p.leader) for one in prepared for p in _partitions(one)}))
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
    for cluster, of_disks in disks.items():
        notes[cluster] += of_disks.state.notes
    progress("what is remembered")
    remember_groups(prepared, commits)
    remember_partitions(prepared, decided)
    result = SparkPlan(decided, failures=failures)
    unread = _unread_by_group(decided, commits, summaries.values())
    for one in prepared:
        summary, cluster = summaries.get(one.cluster, Summary(Totals.of(()))), one.cluster
        plan = _plan(one, summary, notes[cluster], unread.get(cluster, {}), now_ms)
        if cluster in disks:
            plan = replace(plan, disks=disks[cluster].outcomes, space=disks[cluster].space)
        result.plans[one.target.name] = plan
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
    """Read facts and decide them; where a disk has a ceiling, R6 has the last word, over all of a cluster's.

    What Spark keeps for that is let go of with ``stack``.
    """
    with_ceiling = []
    for one in disks:
        stack.callback(one.close)
        if one.state.rules.percent is None:
            one.state.without_ceiling()
        else:
            with_ceiling.append(one)
    if not with_ceiling:
        return decided_frame(rows, jobs, tasks)
    facts = by_leader(rows, tasks).mapInArrow(fact_reader(jobs), ddl(FACTS_AND_STANDING)).persist()
    stack.callback(facts.unpersist)
    few = facts.where(facts.cluster.isin(*(one.prepared.cluster for one in with_ceiling)))
    limits = few.mapInArrow(limiter(jobs), ddl(LIMITS)).persist()
    stack.callback(limits.unpersist)
    limits.count()
    progress("the oldest on disks above their ceilings")
    return decided_of(with_asked(session, facts, limits, with_ceiling, now_ms), jobs)


def by_leader(rows: Any, tasks: int) -> Any:
    """Bring rows to tasks: one a leader at a time, a leader's slices one after the other.

    So no broker sees more connections than that.
    """
    return rows.repartition(tasks, "cluster", "leader").sortWithinPartitions("cluster", "slice", "topic", "partition")


def decided_frame(rows: Any, jobs: Mapping[str, ClusterJob], tasks: int) -> Any:
    """Read facts where their partitions are led, and decide them.

    What is read is decided in the same Python process: :func:`decided_of` does the second half for facts that stand
    elsewhere.
    """
    read, decided = fact_reader(jobs), decider(jobs)
    return by_leader(rows, tasks).mapInArrow(lambda batches: decided(read(batches)), ddl(DECIDED))


def decided_of(facts: Any, jobs: Mapping[str, ClusterJob]) -> Any:
    """Decide facts that lie beside their standing: rows of ``schemas.DECIDED``."""
    return facts.mapInArrow(decider(jobs), ddl(DECIDED))


def _prepared(targets: Sequence[Target], now_ms: int) -> dict[str, Prepared | BaseException]:
    """Read what is small of all clusters, some at a time."""

    def one(target: Target) -> Prepared | BaseException:
        try:
            return prepare(target, now_ms)
        except (BrokerError, PolicyError, NothingMatchesError, StateError) as error:
            return error

    with ThreadPoolExecutor(min(_CLIENTS, len(targets)), "kretain-prepare") as pool:
        return dict(zip((target.name for target in targets), pool.map(one, targets), strict=True))


def _partitions(prepared: Prepared) -> Iterator[Any]:
    for topic in prepared.settings:
        yield from prepared.metadata.topics[topic].partitions.values()


def tasks_for(count: int) -> int:
    """Return how many tasks read what so many brokers answer."""
    return max(1, min(_TASKS_AT_MOST, count))


def read_commits(session: Any, prepared: Sequence[Prepared], progress: Progress) -> tuple[Any, list[Any]]:
    """Read every group's commits; all of a cluster's once more where coordinators moved meanwhile (F9).

    Return them, and the frames of them that Spark keeps.

    They are read before any log end is: counting them makes it so. A block that is lost later is read again,
    which is as safe: a commit is true when it is read.
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
    """Look whether the listing was whole; ``doubt`` is set where it was not."""
    assert prepared.before is not None  # noqa: S101  (a listing has it)
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


def frame_of(session: Any, rows: Iterable[Mapping[str, Any]], schema: Any) -> Any:
    """Return rows as a frame, packed as they come."""
    batches, some = [], []
    for row in rows:
        some.append(row)
        if len(some) == 10_000:
            batches.append(pa.RecordBatch.from_pylist(some, schema))
            some = []
    batches.append(pa.RecordBatch.from_pylist(some, schema))
    return as_frame(session, pa.Table.from_batches(batches, schema))


def _unread_by_group(decided: Any, commits: Any, summaries: Iterable[Summary]) -> dict[str, dict[str, int]]:
    """Return, per cluster and group, how many records would go before it has read them (G2)."""
    from pyspark.sql import functions as f

    if not any(one.totals.unconsumed for one in summaries):
        return {}
    losing = decided.where("action = 'trim' and unconsumed > 0").select(*PLACE, "log_start", "trim_to")
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
        found.setdefault(row["cluster"], {})[f"group:{row['group']}"] = row["lost"]
    return {cluster: dict(sorted(groups.items())) for cluster, groups in found.items()}


def _plan(prepared: Prepared, summary: Summary, notes: list[Reason], unread: Mapping[str, int], now_ms: int) -> Plan:
    if summary.note is not None:
        notes.append(Reason("size", f"sizes on disk are not known: {summary.note}"))
    target, memories = prepared.target, prepared.target.memories
    if memories is not None:
        notes += memories.notes
    amount = Amount(summary.totals.records, summary.totals.size_bytes)
    policy = prepared.selection.policy
    return Plan(
        created_at_ms=now_ms,
        cluster_id=prepared.cluster,
        bootstrap=target.reader.settings.bootstrap,
        policy_source=policy.source,
        policy_digest=policy.digest,
        flags=policy.one_off.flags(),
        topics=prepared.selection.topics,
        decisions=(),
        unconsumed_by=unread,
        refusals=over_limits(amount, target.past_day(prepared.cluster), summary.managed, policy.limits),
        notes=notes,
        memory_since_ms=None if memories is None else memories.since_ms(prepared.cluster),
        memory="local" if memories is None else memories.kind,
        counted=summary.totals,
    )
