"""Code that trims of one cluster and of a fleet share: rules, limits, waiting and the exit code."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kretain.errors import Deletions, Exit, exit_code_for, warn, worst
from kretain.options.common import Common, now_ms
from kretain.options.plans import flags_alone
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Reason
from retention_cli.core.progress import Progress
from retention_cli.core.units import count
from retention_cli.decide.guards.limits import Amount
from retention_cli.disks.replica_sizes import longest_delay_ms
from retention_cli.plan.approval import Offered, lacking
from retention_cli.plan.value import Plan
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import Selection
from retention_cli.policy.settings import OneOff
from retention_cli.trim.batches import RefusedError as LimitsError
from retention_cli.trim.history import carried_out, past_day, read_past_day
from retention_cli.trim.narrow import exceeded
from retention_cli.trim.report import TrimReport
from retention_cli.trim.run import ExitCodeFor, check_saved
from retention_cli.trim.wait import wait_for_space


def code_of(report: TrimReport, *, fail_on_hold: bool) -> Exit:
    """Return the exit code of a trim's report."""
    lost = report.count("failed") or report.count("unverified")
    return worst(
        Exit.INTERRUPTED if report.interrupted else Exit.DONE,
        Exit.PARTIAL if lost or report.audit_problem or report.stopped_by or report.short else Exit.DONE,
        Exit.ON_HOLD if fail_on_hold and report.count("held") else Exit.DONE,
    )


def exit_codes(*, fail_on_hold: bool = False) -> ExitCodeFor:
    """Return what tells the exit code for a report, or for an error that ended a trim."""
    return lambda result: int(
        exit_code_for(result) if isinstance(result, BaseException) else code_of(result, fail_on_hold=fail_on_hold)
    )


def todays_rules(saved: Plan | None, one_off: OneOff, select: Callable[[], Selection], max_age_ms: int) -> Selection:
    """Return the rules to carry a plan out by: those that are selected today; a saved plan was made with them, too.

    Raises:
        PlanRefusedError: the plan is too old, or was made with other one-off rules. Reported before any other error.
        UsageError, PolicyError: there is no policy, or it is invalid.
    """
    if saved is not None and saved.flags and not one_off.any_rule:
        check_saved(saved, Selection(flags_alone(one_off)), now_ms(), max_age_ms)
    today = select()
    if saved is not None:
        check_saved(saved, today, now_ms(), max_age_ms)
    return today


def within_limits(state_dir: Path, selected: Plan, policy: Policy, full: Plan, shown: Offered | None) -> None:
    """Check a plan before the user is asked. ``selected`` has the partitions that a trim takes, ``full`` all of them.

    Raises:
        trim.RefusedError: it exceeds a limit of the policy (G6), or lacks the approval that it needs.
    """
    over = exceeded(full, selected, past_day(state_dir, selected.cluster_id, now_ms(), policy.limits), policy.limits)
    over += unapproved(state_dir, selected, policy, shown)
    if over:
        raise LimitsError(over)


def unapproved(state_dir: Path, selected: Plan, policy: Policy, shown: Offered | None) -> list[Reason]:
    """Return why a trim of this plan would be refused for lack of an approval: one reason, or none."""
    if policy.approve is None:
        return []
    totals, now = selected.totals, now_ms()
    lack = lacking(
        Amount(totals.records, totals.size_bytes, totals.unconsumed),
        read_past_day(state_dir, selected.cluster_id, now).unapproved,
        policy.approve,
        shown,
        now,
    )
    return [] if lack is None else [lack]


def warn_of_earlier_run(state_dir: Path, plan: Plan, file: str) -> None:
    """Say which run has carried this saved plan out already, if one has.

    Raises:
        StateError: the audit log can't be read.
    """
    if (run := carried_out(state_dir, plan.cluster_id, plan.created_at_ms)) is not None:
        warn(
            f"{file} was carried out at {run.begun['at']} (kretain history --run {run.run} shows it); "
            f"this run can trim only what is left of it"
        )


def note_deletions(deletions: Deletions, report: TrimReport, of: str = "") -> None:
    """Record what a trim (of cluster ``of``) has deleted, in one self-contained line."""
    if not report.sent:
        return
    rows = [f"{report.count(name):,} {name}" for name in ("failed", "unverified") if report.count(name)]
    partitions = ", ".join([f"{count(report.count('trimmed'), 'partition')} trimmed", *rows])
    deletions.note(
        f"{of and f'{of}: '}run {report.run}: {partitions}; {count(report.trimmed.records, 'record')} trimmed "
        f"(kretain history --run {report.run})"
    )


def tell_behind(report: TrimReport, common: Common, notes: Sequence[Reason]) -> None:
    """Say what failed behind the deletes, what is new about the ledger, and with ``-v`` how long the trim took."""
    if report.stopped_by is not None:
        common.deletions.fail(report.stopped_by, common.verbose)
    common.warn(*notes)
    if common.verbose:
        warn(f"rechecks took {report.recheck_seconds:.2f} s, deletes and read-backs {report.delete_seconds:.2f} s")


def warn_of_log(report: TrimReport, *, quiet: bool, of: str = "") -> None:
    """Warn about the audit log (of cluster ``of``): what was broken before, what it or its copy lacks."""
    before, there = (f"{of}: ", " there") if of else ("", "")
    if (broken := report.audit_broken) is not None and not quiet:
        warn(f"{before}the audit log is broken: {broken} (kretain history --verify shows all of it)")
    warn(*(f"{before}{lack}" for lack in log_lacks(report, there)))


def log_lacks(report: TrimReport, there: str = "") -> list[str]:
    """Return what of a trim is missing in the audit log, and in its copy."""
    texts = {
        f"the audit log is incomplete, and nothing more was trimmed{there}": report.audit_problem,
        "the audit log is complete, but its copy is not": report.audit_unshipped,
    }
    return [f"{text}: {problem}" for text, problem in texts.items() if problem is not None]


def waited(
    reader: ClusterReader, report: TrimReport, selection: Callable[[], Selection], at_most_ms: int, progress: Progress
) -> list[Reason]:
    """Wait until the brokers have freed the space; return the reasons if they have not, or if this could not wait."""
    if not any(one.unknown is None and one.percent is not None for one in report.disks):
        return [Reason("disk", "--wait needs disks.log.retention.disk.usage.percent in the policy")]
    if report.interrupted or any(row.outcome in ("failed", "unverified") for row in report.rows):
        return [Reason("disk", "not waited for: the trim is incomplete")]
    deadline = time.monotonic() + at_most_ms / 1000
    topics = sorted({row.tp.topic for row in report.rows if row.outcome == "trimmed"})
    delay_s = longest_delay_ms(reader, topics) / 1000 + 5  # brokers delete in the background, with some delay
    return wait_for_space(reader, report.disks, selection().policy.disks, deadline, progress, delay_s=delay_s)
