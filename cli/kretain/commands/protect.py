"""``kretain protect``."""

from __future__ import annotations

from typing import Annotated

from kretain.completion.complete import complete_topics
from kretain.config import resolve
from kretain.errors import Exit, RefusedError, UsageError
from kretain.flows.confirm import must_confirm
from kretain.options.common import Common, OutputOption, duration_ms, now_ms, option, single_command
from kretain.options.plans import Topics, selection_of
from retention_cli.core.clock import SYSTEM


@single_command
def protect(
    common: Common,
    topics: Topics = None,
    every: Annotated[
        int,
        option("--every", metavar="DURATION", parser=duration_ms, help="Assume a run this often."),
    ] = "5m",  # type: ignore[assignment]  # typer parses it like a typed value
    dry_run: Annotated[bool, option("--dry-run", help="Show what would be changed; change nothing.")] = False,
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question. Required without a terminal.")] = False,
    resume: Annotated[
        str | None,
        option(
            "--resume",
            metavar="TOPIC",
            help="Raise this topic again after another client set it.",
            autocompletion=complete_topics,
        ),
    ] = None,
    restore: Annotated[
        str | None,
        option(
            "--restore",
            metavar="TOPIC",
            help="Restore this topic's original settings now.",
            autocompletion=complete_topics,
        ),
    ] = None,
    output: OutputOption = "table",
) -> Exit:
    """Raise topics' retention while required groups lag, and restore it.

    For topics with retention.until.consumed in the policy. Changes only retention.ms and retention.bytes, within max,
    max.bytes and the disks' ceiling. Shows a plan and asks first. kretain watch --protect does this in each pass.

    Examples:
      kretain protect -p policy.yaml --dry-run

      kretain protect -p policy.yaml --yes --every 10m

      kretain protect --resume orders -p policy.yaml
    """
    from kretain.flows.notices import notified
    from kretain.render.protect import print_protection, question
    from retention_cli.protect.decision import Terms
    from retention_cli.protect.run import ProtectJob, carry_out, plan_protection, resume as resumed
    from retention_cli.trim.journal import new_run_name

    if resume is not None and restore is not None:
        raise UsageError("--resume and --restore cannot be combined")
    settings = resolve(common)
    selection = selection_of(settings.policy_file("protect needs a policy file"), topics)
    with (
        notified(selection.policy.notify, settings.name, dry_run=dry_run) as post,
        settings.reader() as reader,
        common.progress() as progress,
    ):
        memories = settings.memories(reader, selection.policy.state)
        memories(reader.metadata([]).cluster_id)
        common.warn(*memories.notes)  # what it lacks may say which commits are of another log: nothing is lowered (P3)
        job = ProtectJob(
            reader=reader,
            selection=selection,
            memories=memories,
            state_dir=settings.state_dir,
            clock_ms=now_ms,
            terms=Terms(every, lowers=not memories.notes),
            run=new_run_name(now_ms()),
            progress=progress,
        )
        nothing = "nothing was changed"
        if (topic := resume or restore) is not None:
            how = "resume" if resume is not None else "restore"
            if dry_run:
                raise UsageError(f"--{how} has no --dry-run: kretain protect --dry-run shows what is raised")
            must_confirm(lambda: f"{how.capitalize()} topic {topic}?", how, nothing, yes=yes)
            common.warn(*resumed(job, topic, how))  # type: ignore[arg-type]
            return Exit.DONE
        made, memory = plan_protection(job)
        if not dry_run:
            if made.changes:
                began_s = SYSTEM.since_boot()
                must_confirm(
                    lambda: question(made),
                    "change settings, or --dry-run to look",
                    nothing,
                    yes=yes,
                    show=lambda: print_protection(made, "table"),
                )
                if not yes and 1000 * (SYSTEM.since_boot() - began_s) > every:  # what is unread may be due by now (P2)
                    raise RefusedError(f"the answer took longer than --every: run kretain protect again; {nothing}")
            made = carry_out(job, made, memory)
            post(made)
    print_protection(made, output)
    return Exit.PARTIAL if made.failed else Exit.DONE
