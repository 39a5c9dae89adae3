"""Execute a fleet's plan cluster by cluster, each independently of the others."""

from __future__ import annotations

from collections.abc import Callable

from retention_cli.archive.interface import ArchiverFor
from retention_cli.core.model import Reason
from retention_cli.core.progress import Progress, silent
from retention_cli.disks.inventory.of_policy import inventory_paths, inventory_view
from retention_cli.engines.fleet.planning import Member
from retention_cli.plan.value import Plan
from retention_cli.trim.report import TrimReport
from retention_cli.trim.run import ExitCodeFor, Orders, check_cluster, run_trim


def trim_member(
    member: Member,
    plan: Plan,
    *,
    clock_ms: Callable[[], int],
    exit_code_for: ExitCodeFor,
    dry_run: bool = False,
    max_partitions: int | None = None,
    wait_lock_s: float = 0.0,
    max_age_ms: int | None = None,
    source: str | None = None,
    archiver: ArchiverFor | None = None,
    progress: Progress = silent,
    on_report: Callable[[TrimReport], None] = lambda _report: None,
) -> tuple[TrimReport, list[Reason]]:
    """Execute one cluster's plan under its own lock and audit log; return the report, and its ledger's notes.

    ``on_report`` is called with the report before anything later can fail.

    Raises:
        PlanRefusedError: the plan is for another cluster than the one that the member connects to.
        InventoryError: the inventory that the policy names can't be read.
        Exception: any that :func:`retention_cli.trim.run.run_trim` raises.
    """
    policy = member.selection().policy
    inventory = inventory_view(inventory_paths(policy), whole=not dry_run)
    with member.reader() as reader:
        check_cluster(plan, reader.metadata([]).cluster_id)
        memories = member.memories(reader, policy.state)
        try:
            orders = Orders(
                selection=member.selection,
                state_dir=member.state_dir,
                clock_ms=clock_ms,
                dry_run=dry_run,
                max_partitions=max_partitions,
                wait_lock_s=wait_lock_s,
                max_age_ms=max_age_ms,
                source=source,
                memories=memories,
                archiver=archiver,
                inventory=inventory,
                audit=policy.audit,
                on_report=on_report,
            )
            report = run_trim(reader, plan, orders, exit_code_for, progress)
            memories.save(clock_ms())
            return report, memories.notes
        finally:
            memories.close()
