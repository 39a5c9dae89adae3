"""Carry out one cluster's plan: what ``kretain trim`` and the Python API share. Nothing here asks or prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kretain.errors import exit_code_for
from kretain.flows.inventory import InventoryOption
from kretain.flows.plans import now_ms
from kretain.flows.trims import code_of

if TYPE_CHECKING:  # importing these is slow, and --help must be fast
    from kretain.config import Resolved
    from retention_cli.archive.interface import ArchiverFor
    from retention_cli.brokers.reader import ClusterReader
    from retention_cli.core.progress import Progress
    from retention_cli.memory.stores import Memories
    from retention_cli.plan.value import Plan
    from retention_cli.policy.selection import Selection
    from retention_cli.policy.settings import AuditRules, Limits
    from retention_cli.trim.report import TrimReport


@dataclass(frozen=True, slots=True)
class Job:
    """How to carry out a plan.

    Args:
        selection: returns today's policy and the chosen topics; called at every recheck.
        inventory: the inventory of segments, if any.
        audit: what the policy says of the audit log.
        dry_run: send nothing.
        max_partitions: trim at most this many partitions, the first ones.
        wait_lock_ms: how long to wait for another trim of this cluster to end.
        max_age_ms: how old the plan may be once the wait is over; None: any age.
        source: the plan's file, None if the plan was made in this run.
        archiver: creates the archiver; None: this process archives.
        fail_on_hold: the audit log's exit code is 4 if partitions were held.
        on_report: called with the report before anything later can fail. Not in a dry run.
    """

    selection: Callable[[], Selection]
    inventory: InventoryOption
    audit: AuditRules
    dry_run: bool = False
    max_partitions: int | None = None
    wait_lock_ms: int = 0
    max_age_ms: int | None = None
    source: str | None = None
    archiver: ArchiverFor | None = None
    fail_on_hold: bool = False
    on_report: Callable[[TrimReport], None] = lambda _report: None


def check_plan(plan: Plan, selection: Selection, max_age_ms: int) -> None:
    """Check a plan that was made before: its age, and the one-off rules it was made with.

    Raises:
        PlanRefusedError: the plan is too old or from the future, or its flags or TOPICs differ.
    """
    from retention_cli.trim.run import check_saved

    check_saved(plan, selection, now_ms(), max_age_ms)


def check_its_cluster(plan: Plan, reader: ClusterReader) -> None:
    """Check that the reader is connected to the plan's cluster.

    Raises:
        PlanRefusedError: it is another cluster.
        BrokerError: the cluster's id could not be read.
    """
    from retention_cli.trim.run import check_cluster

    check_cluster(plan, reader.metadata([]).cluster_id)


def within_limits(
    settings: Resolved, plan: Plan, max_partitions: int | None, limits: Limits, whole: Plan | None = None
) -> Plan:
    """Return the plan of those partitions alone that a trim takes.

    ``whole`` is the plan of all managed partitions, if ``plan`` has only some of them.

    Raises:
        trim.RefusedError: they exceed a limit of the policy (G6).
    """
    from retention_cli.trim.asked import asked_for, exceeded
    from retention_cli.trim.batches import RefusedError
    from retention_cli.trim.history import past_day

    asked = asked_for(plan, max_partitions)
    day = past_day(settings.state_dir, plan.cluster_id, now_ms(), limits)
    if over := exceeded(plan if whole is None else whole, asked, day, limits):
        raise RefusedError(over)
    return asked


def carry_out(
    settings: Resolved, reader: ClusterReader, plan: Plan, job: Job, memories: Memories, progress: Progress
) -> TrimReport:
    """Recheck, delete and read back, batch by batch, and return the report (docs/architecture.md, Trim).

    Raises:
        RefusedError, PlanRefusedError, LockedError, StateError, BrokerError, PolicyError: see
            :func:`retention_cli.trim.run.run_trim`; nothing was trimmed.
    """
    from retention_cli.trim.run import Orders, run_trim

    def code_for(result: TrimReport | BaseException) -> int:
        if isinstance(result, BaseException):
            return int(exit_code_for(result))
        return int(code_of(result, fail_on_hold=job.fail_on_hold))

    orders = Orders(
        selection=job.selection,
        state_dir=settings.state_dir,
        clock_ms=now_ms,
        dry_run=job.dry_run,
        max_partitions=job.max_partitions,
        wait_lock_s=job.wait_lock_ms / 1000,
        max_age_ms=job.max_age_ms,
        source=job.source,
        memories=memories,
        inventory=job.inventory.view(),
        archiver=job.archiver,
        audit=job.audit,
        on_report=job.on_report,
        ships=False,
    )
    return run_trim(reader, plan, orders, code_for, progress)


def ship(settings: Resolved, reader: ClusterReader, job: Job, report: TrimReport) -> TrimReport:
    """Send the audit log's copies, which may take a minute, and return the report with what they lack."""
    from retention_cli.trim.run import shipped

    return report if job.dry_run else shipped(reader, job.audit, settings.state_dir, report)
