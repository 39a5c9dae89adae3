"""``kretain trim``."""

from __future__ import annotations

from functools import partial

from kretain.errors import Exit, UsageError, warn, worst
from kretain.flows.confirm import must_confirm
from kretain.flows.fleet import Fleet, FleetFlags, chosen
from kretain.flows.spark import SharedSpark, planner
from kretain.options.common import Common, now_ms, single_command
from kretain.options.plans import (
    InventoryOption,
    PartedTopics,
    RuleFlags,
    SparkFlags,
    TrimFlags,
    check_one,
    selection_of,
    topic_arguments,
)
from retention_cli.core.model import Reason


@single_command
def trim(
    common: Common,
    flags: RuleFlags,
    clusters: FleetFlags,
    topics: PartedTopics = None,
    how: TrimFlags = TrimFlags(),  # noqa: B008  (a frozen value)
    spark: SparkFlags = SparkFlags(),  # noqa: B008  (a frozen value)
) -> Exit:
    """Carry out a plan: recheck, delete, read back, report.

    A recheck can only narrow the plan. The audit log records each request first.

    Examples:
      kretain trim -p policy.yaml --dry-run

      kretain trim -p policy.yaml --plan plan.json --yes --fail-on-hold

      kretain trim -b localhost:9092 orders --consumed-after 3d --max-partitions 1

      kretain trim --fleet fleet.yaml --plan plan.parquet --cluster eu
    """
    from kretain.flows.notices import notified
    from kretain.flows.plans import named_alone, plan_now, read_saved
    from kretain.flows.trims import (
        code_of,
        exit_codes,
        note_deletions,
        tell_behind,
        todays_rules,
        unapproved,
        waited,
        warn_of_earlier_run,
        warn_of_log,
        within_limits,
    )
    from kretain.render.trim import print_report, question
    from retention_cli.trim.narrow import limited_to
    from retention_cli.trim.run import TrimJob, carry_out, check_cluster, shipped

    if how.wait and how.dry_run:
        raise UsageError("--wait has nothing to wait for in a --dry-run: omit one of them")
    named = topic_arguments(topics)
    one_off = flags.for_topics(named.topics)
    settings = chosen(common, clusters)
    shared = SharedSpark(spark)
    if isinstance(settings, Fleet):
        from kretain.flows.fleet_trim import trim_fleet

        check_one(how.inventory, wait=how.wait)
        named.check_one_cluster()
        with shared:
            return trim_fleet(settings, named.topics, one_off, how, common, shared)
    saved = None if how.plan is None else read_saved(how.plan, clusters.cluster)
    shown = how.shown(saved)
    selection = partial(selection_of, settings.policy, named.topics, one_off, named.partitions)
    today = todays_rules(saved, one_off, selection, how.max_age)
    given = InventoryOption(how.inventory, today.policy, require_all=not how.dry_run)
    engine = planner(shared, given)
    noted = notified(today.policy.notify, settings.name, dry_run=how.dry_run)
    with shared, noted as post, settings.reader() as reader:
        memories = settings.memories(reader, today.policy.state)
        if saved is not None:
            check_cluster(saved, reader.metadata([]).cluster_id)
            warn_of_earlier_run(settings.state_dir, saved, str(how.plan))
            full = saved
        else:
            with common.progress() as progress:
                full = plan_now(settings, reader, today, engine, memories, progress)
            common.warn(*full.notes)
        made = named_alone(settings, full, today)
        selected = limited_to(made, how.max_partitions)
        if how.dry_run and saved is not None:
            common.warn(*unapproved(settings.state_dir, selected, today.policy, shown))
        elif not how.dry_run and not how.yes and made.totals.trim:
            from kretain.render.plan import print_plan

            reader.check_deletes()
            within_limits(settings.state_dir, selected, today.policy, full, shown)
            must_confirm(
                lambda: question(selected),
                "trim, or --dry-run to rehearse",
                "nothing was trimmed",
                show=lambda: print_plan(selected, "table", every_row=False),
                typed=settings.typed,
            )
        with common.progress() as progress:
            job = TrimJob(
                reader=reader,
                plan=made,
                selection=selection,
                state_dir=settings.state_dir,
                clock_ms=now_ms,
                exit_code_for=exit_codes(fail_on_hold=how.fail_on_hold),
                dry_run=how.dry_run,
                max_partitions=how.max_partitions,
                wait_lock_s=how.wait_lock / 1000,
                max_age_ms=how.max_age_ms,
                source=how.source,
                offered=shown,
                memories=memories,
                inventory=given.view,
                archiver=shared.archiver(),
                audit=today.policy.audit,
                on_report=lambda report: note_deletions(common.deletions, report),
                progress=progress,
            )
            report = carry_out(job)
            post(report)
            late: list[Reason] = []
            with common.deletions.behind(common.verbose):
                late = waited(reader, report, selection, how.wait_at_most, progress) if how.wait else []
        warned = len(memories.notes)
        with common.deletions.behind(common.verbose):
            memories.save(now_ms())
        if how.output == "table":  # the copies of the audit log may take a minute
            print_report(report, how.output, every_row=how.all_rows)
        report = shipped(job, report)
    tell_behind(report, common, memories.notes[warned:])
    if how.output != "table":
        print_report(report, how.output, every_row=how.all_rows)
    warn(*(report.short if saved is not None or not made.disks else ()))
    warn_of_log(report, quiet=common.quiet)
    warn(*late)
    return worst(Exit.PARTIAL if late else Exit.DONE, code_of(report, fail_on_hold=how.fail_on_hold))
