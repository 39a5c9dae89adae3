"""Run a trim, from its plan to the last line in the audit log: checks, lock, limits, journal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from retention_cli.archive.writer import Archiver, ArchiverFor
from retention_cli.audit.log import AuditLog
from retention_cli.audit.shipping import ship
from retention_cli.brokers.deleter import Deleter
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.errors import Refusal
from retention_cli.core.progress import Progress, silent
from retention_cli.core.signing import private_key_at
from retention_cli.core.state_dir import LockedError, StateError, cluster_folder, trim_lock
from retention_cli.core.units import exact_duration, format_age, timestamp
from retention_cli.evidence.writer import recorder_for
from retention_cli.plan.approval import Approval, Offered, approved
from retention_cli.plan.value import UNCHECKED, Plan
from retention_cli.policy.selection import Selection
from retention_cli.policy.settings import AuditRules
from retention_cli.state.memories import Memories
from retention_cli.state.own_topics import BrokerClock
from retention_cli.trim.archive_gate import ArchivedFirst
from retention_cli.trim.batches import Permit, Trimmer
from retention_cli.trim.history import PastDay, read_past_day
from retention_cli.trim.journal import AuditJournal, new_run_name
from retention_cli.trim.recheck import Rechecks
from retention_cli.trim.report import TrimReport

if TYPE_CHECKING:  # only an inventory needs these
    from retention_cli.disks.inventory_view import InventoryView

_CLOCK_SLACK_MS: Final = 60_000

ExitCodeFor = Callable[[TrimReport | BaseException], int]
"""Returns the exit code for a report or an error, for the audit log."""


class PlanRefusedError(Refusal):
    """The saved plan must not be executed on this cluster, or any longer. Nothing was trimmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimJob:
    """A plan to carry out, and how.

    Args:
        reader: the cluster, opened.
        plan: the most that may be trimmed.
        selection: returns the current policy; called at every recheck.
        state_dir: the folder of the audit log and the lock.
        clock_ms: returns the current time, Unix ms.
        exit_code_for: returns the exit code that the audit log's last line has.
        memories: the ledgers of clusters.
        dry_run: send nothing, and create no object that could.
        max_partitions: trim at most this many partitions, the first ones.
        wait_lock_s: how long to wait for another trim of this cluster to end.
        max_age_ms: how old the plan may be once the wait is over; None: any age.
        source: the plan's file, None if the plan was made in this run.
        offered: what it has to show if it needs an approval; None: nothing, as a plan that was made in this run.
        inventory: the inventory of segments; None if none was given.
        archiver: creates the archiver; None: this process archives.
        deleter_for: creates the deleter; not called in a dry run.
        broker_clock_for: creates the object that compares this machine's clock with the brokers' (G8).
        permit: entered around each batch, to say whether it may still be sent.
        audit: the policy's rules for the audit log.
        on_report: called with the report as soon as it exists, before anything later can fail. Not in a dry run.
        progress: called with what is being done.
    """

    reader: ClusterReader
    plan: Plan
    selection: Callable[[], Selection]
    state_dir: Path
    clock_ms: Callable[[], int]
    exit_code_for: ExitCodeFor
    memories: Memories
    dry_run: bool = False
    max_partitions: int | None = None
    wait_lock_s: float = 0.0
    max_age_ms: int | None = None
    source: str | None = None
    offered: Offered | None = None
    inventory: InventoryView | None = None
    archiver: ArchiverFor | None = None
    deleter_for: Callable[[ClusterReader], Deleter] = Deleter
    broker_clock_for: Callable[[ClusterReader, Callable[[], int]], BrokerClock] = BrokerClock
    permit: Permit = nullcontext
    audit: AuditRules = field(default_factory=AuditRules)
    on_report: Callable[[TrimReport], None] = lambda _report: None
    progress: Progress = silent


def check_saved(plan: Plan, selection: Selection, now_ms: int, max_age_ms: int) -> None:
    """Check a saved plan without the cluster: its age, and the one-off rules it was made with.

    Raises:
        PlanRefusedError: the plan is too old or from the future, or its flags or TOPICs differ.
    """
    _check_age(plan, now_ms, max_age_ms)
    if now_ms - plan.created_at_ms < -_CLOCK_SLACK_MS:
        raise PlanRefusedError(
            f"the plan's time is in the future ({timestamp(plan.created_at_ms)}): check this machine's clock"
        )
    if dict(plan.flags) != (given := selection.policy.one_off.flags()):
        if not plan.flags:
            raise PlanRefusedError(f"the plan was made without one-off rules: remove {' and '.join(given)}")
        rules = " ".join(f"{name} {_as_given(name, value)}" for name, value in plan.flags.items())
        raise PlanRefusedError(f"the plan was made with {rules}: give exactly these rules")
    if plan.flags and tuple(plan.topics) != selection.given:
        raise PlanRefusedError(f"the plan's one-off rules were for TOPIC {' '.join(plan.topics)}: give the same again")


def _as_given(name: str, value: int | str) -> str:
    return exact_duration(value) if isinstance(value, int) and name != "--before" else str(value)


def _check_age(plan: Plan, now_ms: int, max_age_ms: int) -> None:
    if (age := now_ms - plan.created_at_ms) > max_age_ms:
        raise PlanRefusedError(
            f"the plan is {format_age(age)} old (limit {format_age(max_age_ms)}): run kretain plan again"
        )


def check_cluster(plan: Plan, cluster_id: str) -> None:
    """Check that the client is connected to the plan's cluster.

    Raises:
        PlanRefusedError: it is another cluster.
    """
    if plan.cluster_id != cluster_id:
        raise PlanRefusedError(f"the plan is for cluster {plan.cluster_id}, not {cluster_id}")


def carry_out(job: TrimJob) -> TrimReport:
    """Recheck, delete and read back, batch by batch; or only rehearse it (dry run).

    Raises:
        trim.RefusedError: a limit of the policy would be exceeded; nothing was trimmed.
        PlanRefusedError: the plan has become too old while the lock was waited for.
        KeyRefusedError: the key that signs the audit log can't be used.
        LockedError: another trim of this cluster is running.
        StateError: the audit log can't be read or written, or the policy has limits per day and the log's chain is
            broken; nothing was trimmed. A failure after the first batch is in the report instead, and ends the trim.
        BrokerError, PolicyError: nothing could be rechecked, or the cluster does not offer DeleteRecords; nothing was
            trimmed.
    """
    reader, plan = job.reader, job.plan
    now_ms = job.clock_ms()
    run = new_run_name(now_ms)
    folder = cluster_folder(job.state_dir, plan.cluster_id)
    if job.dry_run:
        past = read_past_day(job.state_dir, plan.cluster_id, now_ms)
        trimmer = Trimmer(plan, _rechecks(job, past), run, job.max_partitions, job.progress)
        return replace(trimmer.trim(), audit_broken=past.broken)
    key = None if job.audit.sign is None else private_key_at(job.audit.sign)
    with (
        trim_lock(folder, timestamp(now_ms), job.wait_lock_s),
        closing(job.broker_clock_for(reader, job.clock_ms)) as clock,
    ):
        if job.max_age_ms is not None:
            _check_age(plan, job.clock_ms(), job.max_age_ms)
        log = AuditLog(folder)
        journal = AuditJournal(log, run, job.clock_ms, key)
        past = read_past_day(job.state_dir, plan.cluster_id, now_ms)
        head = {"run": run, "cluster": plan.cluster_id, "inventory": job.inventory is not None}
        recorder = recorder_for(job.audit.evidence, folder, head, journal.evidence)
        rechecks = _rechecks(job, past, clock, with_seen=recorder is not None)
        trimmer = Trimmer(
            plan,
            rechecks,
            run,
            job.max_partitions,
            job.progress,
            job.deleter_for(reader),
            journal,
            ArchivedFirst(_archiver(job), journal.archived, rechecks.positions),
            job.permit,
            recorder,
        )
        ledger = job.memories.named(plan.cluster_id)
        log.rotate(job.audit.max_bytes)
        journal.begin(plan, job.source, ledger, _approval(job))
        try:
            report = replace(trimmer.trim(), clock="checked" if clock.compared else UNCHECKED, audit_broken=past.broken)
            job.on_report(report)
        except BaseException as error:
            journal.end(None, job.exit_code_for(error), " ".join(str(error).split()) or type(error).__name__)
            raise
        try:
            journal.end(report, job.exit_code_for(report))
        except StateError as error:  # the trim is done: report it, and that the log lacks its last line
            report = replace(report, audit_problem=report.audit_problem or str(error))
        return report


def shipped(job: TrimJob, report: TrimReport) -> TrimReport:
    """Copy the audit log to its topic, which may take a minute; return the report with what they lack.

    After an error nothing was trimmed: the next run copies its lines. If another trim of the cluster runs by now, it
    sends these lines, too.
    """
    if job.dry_run or report.audit_problem or (topic := job.audit.topic) is None:
        return report
    folder = cluster_folder(job.state_dir, report.cluster_id)
    try:
        with trim_lock(folder, timestamp(SYSTEM.wall_ms())):
            return replace(report, audit_unshipped=ship(AuditLog(folder), job.reader, topic))
    except LockedError:
        return report
    except StateError as error:
        return replace(report, audit_unshipped=f"{error}; the next trim sends the lines that it lacks")


def _rechecks(job: TrimJob, past: PastDay, clock: BrokerClock | None = None, *, with_seen: bool = False) -> Rechecks:
    planned = (one for one in job.plan.decisions if one.action == "trim")
    return Rechecks(
        job.reader,
        job.selection,
        job.clock_ms,
        {one.tp: one.leader_epoch for one in planned if one.leader_epoch is not None},
        past,
        job.memories,
        job.inventory,
        job.offered,
        clock,
        job.progress,
        with_seen,
    )


def _approval(job: TrimJob) -> Approval | None:
    """Return the approval of the plan, for the audit log: if it counts by today's policy."""
    rules = None if job.offered is None else job.selection().policy.approve
    if rules is not None:
        with suppress(Refusal):  # the first recheck says why, if it is needed
            return approved(job.offered, rules, job.clock_ms())
    return None


def _archiver(job: TrimJob) -> Archiver:
    if job.archiver is not None:
        return job.archiver(job.reader, job.plan.cluster_id)
    from retention_cli.archive.writer import PartitionArchiver  # not needed for a dry run

    return PartitionArchiver(job.reader, job.plan.cluster_id, lambda: timestamp(job.clock_ms()))
