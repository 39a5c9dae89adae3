"""Plans over Spark: fold commits where they are read, decide where ends are read, write the rows there (docs/spark.md).

The client itself reads only small data, and puts together what tasks have written, once. Only the client can delete:
no task has an object that can.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.engines.spark.batches import PARTITIONS_A_BATCH, Threads, in_batches
from retention_cli.engines.spark.cluster_plans import PARTITIONS_A_TASK, SparkPlans, plan_clusters
from retention_cli.engines.spark.commits import CommitsRead, read_commits
from retention_cli.engines.spark.environment import check_executors
from retention_cli.engines.spark.fact_tasks import slice_reader
from retention_cli.engines.spark.frames import kept as kept_frame
from retention_cli.engines.spark.gather import in_order, received
from retention_cli.engines.spark.heap import give_back
from retention_cli.engines.spark.lost import lost_by_group
from retention_cli.engines.spark.packing import CONNECTIONS
from retention_cli.engines.spark.prepare import Prepared, Target
from retention_cli.engines.spark.preparing import all_prepared, identified
from retention_cli.engines.spark.remember import remember
from retention_cli.engines.spark.schemas import WRITTEN, ddl
from retention_cli.engines.spark.sent import Sender
from retention_cli.engines.spark.session import runs_here
from retention_cli.engines.spark.write import Outbox, plan_writer
from retention_cli.plan.kept import KeptRows
from retention_cli.plan.make import plan_of
from retention_cli.plan.value import Plan


def make_plans(
    spark: Callable[[], Sender],
    targets: Sequence[Target],
    now_ms: int,
    progress: Progress = silent,
    *,
    connections: int = CONNECTIONS,
    partitions: int = PARTITIONS_A_BATCH,
    a_task: int = PARTITIONS_A_TASK,
) -> SparkPlans:
    """Plan every target: a cluster in a task, and one with more than ``a_task`` partitions and no disk rules in many.

    No cluster is changed; observations are stored in the ledgers. A cluster that fails is in ``failures``, and the
    others continue. ``connections`` and ``partitions`` are for :func:`plan_in_parts`.

    Raises:
        SameClusterError: two targets are one cluster. Nothing was saved.
        SparkError: Spark can't be used, or does not hand back what the tasks have written. Of clusters whose plan was
            made by then the ledgers are saved.
    """
    made = SparkPlans()
    found = identified(targets, made.failures)
    if not found:
        return made
    sender = spark()
    if runs_here(sender.session):  # elsewhere executors were asked when Spark was opened
        check_executors(sender.session, 1)
    if large := plan_clusters(sender, found, now_ms, a_task, made, progress):
        plan_in_parts(sender, large, now_ms, made, progress, connections=connections, partitions=partitions)
    return made


def plan_in_parts(
    sender: Sender,
    targets: Sequence[Target],
    now_ms: int,
    made: SparkPlans,
    progress: Progress = silent,
    *,
    connections: int = CONNECTIONS,
    partitions: int = PARTITIONS_A_BATCH,
) -> None:
    """Read and decide clusters without disk rules in many tasks each; see :func:`make_plans`.

    ``made`` gets the plans. At most so many ``connections`` read from a broker at a time. Clusters are planned in
    batches (:mod:`.batches`) of so many ``partitions``.
    """
    with contextlib.ExitStack() as stack, Threads() as threads:

        def told(phase: str, done: int = 0, total: int | None = None) -> None:
            threads.check()
            progress(phase, done, total)

        threads.session = sender.session
        prepared = threads.ahead(all_prepared(targets, now_ms, made.failures), spark=False)
        progress("topics")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kretain-rows-")))
        run = _Run(sender, now_ms, connections, folder, Outbox.at(folder), made, told, stack, len(targets))
        batches = in_batches(prepared, lambda one: len(one.job.places), partitions)
        for batch in threads.ahead(map(run.decided, threads.ahead(map(run.read, batches)))):
            run.put_together(batch)


@dataclass(slots=True)
class _Batch:
    """Some whole clusters: what was read of their commits, and what tasks have written of each."""

    prepared: list[Prepared]
    stack: contextlib.ExitStack
    commits: CommitsRead | None = None
    files: Mapping[str, Sequence[Path]] = field(default_factory=dict)

    def close(self) -> None:
        """Free what Spark keeps of it, and let go of the rest."""
        self.stack.close()
        self.prepared, self.commits, self.files = [], None, {}


@dataclass(frozen=True, slots=True)
class _Run:
    """The steps of a batch, one after the other. Only the last one, in the caller's thread, changes a ledger's file."""

    sender: Sender
    now_ms: int
    connections: int
    folder: Path
    outbox: Outbox
    made: SparkPlans
    progress: Progress
    stack: contextlib.ExitStack
    plans: int

    def read(self, prepared: list[Prepared]) -> _Batch:
        """Read all commits of a batch; groups are listed right before."""
        batch = _Batch(prepared, contextlib.ExitStack())
        self.stack.callback(batch.close)
        for one in prepared:
            one.connected()
        batch.commits = batch.stack.enter_context(read_commits(self.sender, prepared, self.progress, self.connections))
        give_back()
        return batch

    def decided(self, batch: _Batch) -> _Batch:
        """Have tasks read log ends, and decide; all commits of these clusters were read before."""
        assert batch.commits is not None  # noqa: S101  (they were read)
        known = {one.cluster: self.sender.send(one.recalled) for one in batch.prepared}
        self.progress("log ends, look-ups and decisions")
        read = slice_reader(batch.commits.jobs, known, batch.commits.tasks, batch.commits.sources)
        written = batch.commits.arrived().mapInArrow(plan_writer(read, self.outbox), ddl(WRITTEN))
        batch.files = received(kept_frame(written, batch.stack), self.folder)
        give_back()
        return batch

    def put_together(self, batch: _Batch) -> None:
        """Put the plans of a batch together, and remember what was seen."""
        assert batch.commits is not None  # noqa: S101  (they were read)
        for one in batch.prepared:
            self.progress("the plan" + (f" of {one.target.name}" if one.target.name else ""))
            theirs = batch.files.get(one.cluster, ())
            try:
                self.made.plans[one.target.name] = _plan(
                    self.sender, one, batch.commits, theirs, self.now_ms, self.plans
                )
            except StateError as error:  # the audit log can't be read, or its chain is broken (G6)
                self.made.failures[one.target.name] = error
            one.done()
        batch.close()
        give_back()


def _plan(
    sender: Sender,
    one: Prepared,
    commits: CommitsRead,
    files: Sequence[Path],
    now_ms: int,
    plans: int,
) -> Plan:
    """Put a cluster's plan together from what its tasks have written, and remember what they have seen.

    It is one of so many ``plans``.
    """
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
        decisions=kept.decisions(plans),
        totals=kept.totals,
        managed=kept.managed,
        unread=unread,
        notes=one.notes,
        sizes_problem=kept.note,
        past_day=one.target.past_day,
        memories=one.target.memories,
        disks=None,
    )
