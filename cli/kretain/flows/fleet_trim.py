"""Trim several clusters one after the other, after one question; a failed cluster does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kretain.config import Resolved
from kretain.errors import Exit, RefusedError, line_of, of_many, warn
from kretain.flows.confirm import must_confirm
from kretain.flows.fleet import Fleet, code_of_failure, planned, tell_failures, tell_notes
from kretain.flows.notices import notified
from kretain.flows.spark import SharedSpark
from kretain.flows.trims import (
    code_of,
    exit_codes,
    note_deletions,
    todays_rules,
    warn_of_earlier_run,
    warn_of_log,
    within_limits,
)
from kretain.options.common import Common, now_ms
from kretain.options.plans import TrimFlags, selection_of
from kretain.render.plan import print_plan, print_saved_fleet
from kretain.render.progress import shown_by_name
from kretain.render.trim import fleet_question, print_fleet_report, topics_to_trim
from retention_cli.disks.inventory.read import inventory_paths, inventory_view
from retention_cli.engines.fleet.plan import Failure, FleetReport
from retention_cli.engines.fleet.planning import Member
from retention_cli.engines.fleet.saved import read_fleet
from retention_cli.plan.value import Plan
from retention_cli.policy.settings import OneOff
from retention_cli.trim.batches import RefusedError as LimitsError
from retention_cli.trim.narrow import limited_to
from retention_cli.trim.report import TrimReport
from retention_cli.trim.run import TrimJob, carry_out, check_cluster, shipped


@dataclass(frozen=True, slots=True)
class FleetPlans:
    """A fleet's plans, each read when its turn comes, and the clusters that could not be planned.

    ``show`` prints the plan before the user is asked.
    """

    plans: dict[str, Callable[[], Plan]]
    failures: dict[str, Failure]
    show: Callable[[], None]


def trim_fleet(
    fleet: Fleet[Resolved],
    topics: list[str] | None,
    one_off: OneOff,
    flags: TrimFlags,
    common: Common,
    spark: SharedSpark,
) -> Exit:
    """Plan (or read a saved plan), ask once, and trim each cluster under its own lock and audit log."""
    if flags.plan is None:
        members = fleet.members(topics, one_off)
        chosen = _fresh(fleet, members, spark, quiet=common.quiet)
    else:
        chosen = _saved(fleet, topics, one_off, flags.plan, flags.max_age)
        members = fleet.members(topics, one_off)
    # All of a saved plan is read and validated before the first request; rows are not kept.
    going = {name: topics_to_trim(plan(), flags.max_partitions) for name, plan in chosen.plans.items()}
    if not flags.dry_run and not flags.yes and any(going.values()):
        _leave_out_exceeding(members, chosen, flags, {name for name, some in going.items() if some})
        must_confirm(
            lambda: fleet_question({name: going[name] for name in chosen.plans}, list(chosen.failures)),
            "trim, or --dry-run to rehearse",
            "nothing was trimmed",
            show=chosen.show,
            typed=[name for one in fleet.clusters.values() for name in one.typed],
        )
    report = FleetReport(fleet.source, fleet.digest, dict(trim_each(members, chosen, flags, common, spark)))
    print_fleet_report(report, flags.output, every_row=flags.all_rows)
    tell_failures({name: one for name, one in report.failures.items() if name not in chosen.failures})
    for name, one in report.reports.items():
        warn_of_log(one, quiet=common.quiet, of=name)
    return of_many(
        [
            *(code_of_failure(one) for one in report.failures.values()),
            *(code_of(one, fail_on_hold=flags.fail_on_hold) for one in report.reports.values()),
        ]
    )


def _leave_out_exceeding(members: list[Member], chosen: FleetPlans, flags: TrimFlags, going: Collection[str]) -> None:
    """Refuse what exceeds a cluster's limits (G6) or lacks an approval before the user is asked.

    ``going`` are those with something to trim.

    Raises:
        RefusedError: that is every cluster that would be trimmed; nothing was.
    """
    refused: dict[str, Failure] = {}
    for member in members:
        if member.name not in going:
            continue
        plan = chosen.plans[member.name]()
        selected, shown = limited_to(plan, flags.max_partitions), flags.shown(plan)
        try:
            within_limits(member.state_dir, selected, member.selection().policy, plan, shown)
        except LimitsError as error:
            refused[member.name] = Failure(str(error), error)
    if refused.keys() == set(going):
        raise RefusedError("; ".join(f"{name}: {one.error}" for name, one in refused.items()))
    for name, failure in refused.items():
        warn(f"{name} is left alone: {failure.error}")
        del chosen.plans[name]
        chosen.failures[name] = failure


def trim_each(
    members: list[Member], chosen: FleetPlans, flags: TrimFlags, common: Common, spark: SharedSpark
) -> Iterator[tuple[str, TrimReport | Failure]]:
    """Trim cluster by cluster. A Ctrl-C stops the current one cleanly, and skips the later ones."""
    stopped = False
    for member in members:
        if member.name in chosen.failures:
            yield member.name, chosen.failures[member.name]
        elif member.name in chosen.plans and stopped:
            yield member.name, Failure("interrupted before its turn", KeyboardInterrupt())
        elif member.name in chosen.plans:
            sent: list[TrimReport] = []  # this cluster's report, once a request was sent to it
            try:
                report = trim_one(member, chosen.plans[member.name](), sent, flags, common, spark)
            except KeyboardInterrupt as error:
                stopped = True
                yield member.name, replace(sent[0], interrupted=True) if sent else Failure("interrupted", error)
            except Exception as error:  # noqa: BLE001  (reported in one line, with its exit code; the others continue)
                if sent:
                    common.deletions.fail(error, common.verbose)
                yield member.name, sent[0] if sent else Failure(line_of(error), error)
            else:
                stopped = report.interrupted
                if report.stopped_by is not None:
                    common.deletions.fail(report.stopped_by, common.verbose)
                yield member.name, report


def trim_one(
    member: Member, plan: Plan, sent: list[TrimReport], flags: TrimFlags, common: Common, spark: SharedSpark
) -> TrimReport:
    """Trim one cluster as planned; add its report to ``sent`` if a request was sent."""

    def keep(report: TrimReport) -> None:
        note_deletions(common.deletions, report, member.name)
        if report.sent:
            sent.append(report)

    policy = member.selection().policy
    inventory = inventory_view(inventory_paths(policy), require_all=not flags.dry_run)
    with (
        notified(policy.notify, member.name, dry_run=flags.dry_run) as post,
        shown_by_name() as watch,
        watch(member.name) as progress,
        member.reader() as reader,
    ):
        check_cluster(plan, reader.metadata([]).cluster_id)
        with closing(member.memories(reader, policy.state)) as memories:
            job = TrimJob(
                reader=reader,
                plan=plan,
                selection=member.selection,
                state_dir=member.state_dir,
                clock_ms=now_ms,
                exit_code_for=exit_codes(fail_on_hold=flags.fail_on_hold),
                dry_run=flags.dry_run,
                max_partitions=flags.max_partitions,
                wait_lock_s=flags.wait_lock / 1000,
                max_age_ms=flags.max_age_ms,
                source=flags.source,
                offered=flags.shown(plan),
                memories=memories,
                inventory=inventory,
                archiver=spark.archiver(),
                audit=policy.audit,
                on_report=keep,
                progress=progress,
            )
            report = carry_out(job)
            post(report)
            report = shipped(job, report)
            memories.save(now_ms())
    warn(*(f"{member.name}: {note.text}" for note in memories.notes if not common.quiet))
    return report


def _fresh(fleet: Fleet[Resolved], members: list[Member], spark: SharedSpark, *, quiet: bool) -> FleetPlans:
    made = planned(fleet, members, now_ms(), spark)
    tell_notes({} if quiet else made.plans)
    plans = made.plans
    return FleetPlans(
        {name: partial(plans.__getitem__, name) for name in plans},
        made.failures,
        lambda: print_plan(made, "table", every_row=False),
    )


def _saved(
    fleet: Fleet[Resolved], topics: list[str] | None, one_off: OneOff, path: Path, max_age_ms: int
) -> FleetPlans:
    """Read a fleet's saved plan, and say which clusters were trimmed by it already.

    Raises:
        SavedPlanError: the plan can't be executed.
        PlanRefusedError, RefusedError: it is too old, made with other rules, or has clusters that the fleet lacks.
    """
    saved = read_fleet(path)
    for name in (*saved.plans, *saved.failures):
        if name not in fleet.clusters:
            raise RefusedError(f"{path} has a plan for {name}, which {fleet.source} does not name; nothing was trimmed")
    for name, give in saved.plans.items():
        plan, cluster = give(), fleet.clusters[name]
        todays_rules(plan, one_off, partial(selection_of, cluster.policy, topics, one_off), max_age_ms)
        warn_of_earlier_run(cluster.state_dir, plan, f"{path} for {name}")
    return FleetPlans(
        dict(saved.plans),
        {name: Failure(f"not in the plan: {text}") for name, text in saved.failures.items()},
        lambda: print_saved_fleet(saved.plans),
    )
