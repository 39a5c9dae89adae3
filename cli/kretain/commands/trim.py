"""``kretain trim``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kretain import rules
from kretain.exits import Exit, RefusedError, UsageError, exit_code_for, tell, worst
from kretain.inventory import Inventories, stock
from kretain.options import COMMON, Common, Output, PlanOutput, command, duration_ms, option
from kretain.rules import RuleFlags, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from retention_cli.brokers.reader import ClusterReader
    from retention_cli.model import Reason
    from retention_cli.plan import Plan
    from retention_cli.planning import Selection
    from retention_cli.progress import Progress
    from retention_cli.trim_report import TrimReport

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_MAX_AGE_MS = 3_600_000


@command(app)
def trim(
    common: Common,
    flags: RuleFlags,
    topics: Topics = None,
    plan: Annotated[
        Path | None,
        option("--plan", metavar="FILE", help="Carry out a saved plan. It is decided afresh, and only narrowed."),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", help="Rehearse: everything but the deletes.")] = False,
    yes: Annotated[
        bool, option("--yes", "-y", help="Don't ask. Without a terminal, trim refuses unless this is given.")
    ] = False,
    max_age: Annotated[
        int,
        option(
            "--max-age",
            metavar="DURATION",
            parser=duration_ms,
            help="How old a saved plan may be. Default: 1h.",
            show_default=False,
        ),
    ] = "1h",  # type: ignore[assignment]  # (the option's parser reads it)
    max_partitions: Annotated[
        int | None, option("--max-partitions", metavar="N", min=1, help="Trim these few first.")
    ] = None,
    wait: Annotated[
        bool,
        option("--wait", help="Wait until the brokers have given the space back, by the disks of an --inventory."),
    ] = False,
    wait_at_most: Annotated[
        int,
        option(
            "--wait-at-most",
            metavar="DURATION",
            parser=duration_ms,
            help="How long --wait waits; then it is said what is missing, and left with 5. Default: 15m.",
            show_default=False,
        ),
    ] = "15m",  # type: ignore[assignment]  # (the option's parser reads it)
    fail_on_hold: Annotated[bool, option("--fail-on-hold", help="Leave with 4 where partitions were held.")] = False,
    inventory: Inventories = None,
    output: Annotated[Output, option("--output", "-o", panel=COMMON, help="How to print the report.")] = Output.table,
    all_rows: Annotated[bool, option("--all", help="Every partition, however many there are.")] = False,
) -> Exit:
    """Carry a plan out: recheck, delete, read back, report.

    Each batch is decided afresh right before its request goes out; a plan can only be narrowed by that.
    The audit log has each request before it is sent, and after it what was read back.

    [bold]Examples[/bold]

      kretain trim -p policy.yaml --dry-run

      kretain trim -p policy.yaml --plan plan.json --yes --fail-on-hold

      kretain trim -b localhost:9092 orders --consumed-after 3d --max-partitions 1
    """
    from kretain.config import resolve
    from kretain.progress import shown
    from kretain.render.screen import warn
    from kretain.render.trim import print_report
    from retention_cli.carry_out import Orders, carry_out, check_cluster, check_saved
    from retention_cli.planning import Selection, make_plan
    from retention_cli.state.history import past_day

    if wait and dry_run:
        raise UsageError("--wait has nothing to wait for in a --dry-run")
    settings = resolve(common)
    one_off = flags.for_topics(topics)
    saved: Plan | None = None
    if plan is not None:
        from retention_cli.saved_plan import read_plan

        saved = read_plan(plan)
        if saved.flags and not one_off.any_rule:
            check_saved(saved, Selection(rules.flags_alone(one_off), ()), _now_ms(), max_age)

    def selection() -> Selection:
        return rules.selection(settings.policy, topics, one_off)

    def code_for(result: TrimReport | BaseException) -> int:
        if isinstance(result, BaseException):
            return int(exit_code_for(result))
        return int(_exit(result, fail_on_hold=fail_on_hold))

    chosen = selection()
    if saved is not None:
        check_saved(saved, chosen, _now_ms(), max_age)
    lying = stock(inventory)
    with settings.reader() as reader:
        memories = settings.memories(reader, chosen.policy.state)
        if saved is not None:
            check_cluster(saved, reader.metadata([]).cluster_id)
            made = saved
        else:
            with shown(quiet=common.quiet) as progress:
                made = make_plan(
                    reader,
                    chosen,
                    _now_ms(),
                    progress=progress,
                    stock=lying,
                    memories=memories,
                    past_day=lambda cluster: past_day(settings.state_dir, cluster, _now_ms()),
                )
            for note in () if common.quiet else made.notes:
                warn(note.text)
        if not dry_run:
            _confirm(made, max_partitions, yes=yes, show=output == Output.table)
        orders = Orders(
            selection=selection,
            state_dir=settings.state_dir,
            clock_ms=_now_ms,
            dry_run=dry_run,
            max_partitions=max_partitions,
            source=None if plan is None else str(plan),
            memories=memories,
            stock=lying,
        )
        with shown(quiet=common.quiet) as progress:
            report = carry_out(reader, made, orders, code_for, progress)
            late = _waited(reader, report, selection, wait_at_most, progress) if wait else []
        told = len(memories.notes)
        memories.save(_now_ms())
    for note in () if common.quiet else memories.notes[told:]:
        warn(note.text)
    if common.verbose:
        warn(f"rechecks took {report.recheck_seconds:.2f} s, deletes with reading back {report.delete_seconds:.2f} s")
    print_report(report, output, every_row=all_rows)
    for note in report.short if saved is not None or not made.disks else ():
        warn(note.text)
    if report.audit_problem is not None:
        warn(f"the audit log is not whole, and nothing more was trimmed: {report.audit_problem}")
    for reason in late:
        warn(reason.text)
    return worst(Exit.PARTIAL if late else Exit.DONE, _exit(report, fail_on_hold=fail_on_hold))


def _waited(
    reader: ClusterReader, report: TrimReport, selection: Callable[[], Selection], at_most_ms: int, progress: Progress
) -> list[Reason]:
    """Wait for the space, and return what is not back."""
    from retention_cli.model import Reason
    from retention_cli.space import wait_for_space

    if not any(one.unknown is None and one.percent is not None for one in report.disks):
        text = "--wait knows what to wait for by disks.log.retention.disk.usage.percent and an --inventory alone"
        return [Reason("disk", text)]
    if report.interrupted or any(row.outcome in ("failed", "unverified") for row in report.rows):
        return [Reason("disk", "not waited for: the trim is not whole")]
    deadline = time.monotonic() + at_most_ms / 1000
    return wait_for_space(reader, report.disks, selection().policy.disks, deadline, progress)


def _exit(report: TrimReport, *, fail_on_hold: bool) -> Exit:
    return worst(
        Exit.INTERRUPTED if report.interrupted else Exit.DONE,
        Exit.PARTIAL
        if report.count("failed") or report.count("unverified") or report.audit_problem or report.short
        else Exit.DONE,
        Exit.ON_HOLD if fail_on_hold and report.count("held") else Exit.DONE,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _confirm(made: Plan, max_partitions: int | None, *, yes: bool, show: bool) -> None:
    """Ask a person, or refuse where there is none. Nothing to trim needs no question."""
    from kretain.render.plan import print_plan
    from kretain.render.trim import question

    if yes or not made.totals.trim:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise RefusedError(
            "there is no terminal to ask on: give --yes to trim, or --dry-run to rehearse; nothing was trimmed"
        )
    if show:
        print_plan(made, PlanOutput.table, every_row=False)
    print(file=sys.stderr)
    tell(f"{question(made, max_partitions)} [y/N] ", end=" ")
    answer = sys.stdin.readline().strip().lower()
    print(file=sys.stderr)
    if answer not in ("y", "yes"):
        raise RefusedError("not confirmed; nothing was trimmed")
