"""``kretain history``, ``verify``, ``replay`` and ``report``: past runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from kretain.completion.complete import complete_runs
from kretain.config import contexts_at, resolve
from kretain.errors import Exit, UsageError, warn
from kretain.flows.spark import SharedSpark
from kretain.options.common import (
    Common,
    OptionGroup,
    Output,
    OutputOption,
    TimeRange,
    argument,
    now_ms,
    option,
    single_command,
)
from kretain.options.plans import (
    SparkFlags,
    selection_of,
    topic_argument,
    topic_arguments,
)
from retention_cli.core.state_dir import StateError, cluster_folder
from retention_cli.core.units import count

if TYPE_CHECKING:
    from retention_cli.memory.disk import DiskSample


@dataclass(frozen=True, slots=True)
class Which(OptionGroup):
    """Which runs to show."""

    run: Annotated[
        str | None,
        option("--run", metavar="ID", help="Show one run, partition by partition.", autocompletion=complete_runs),
    ] = None
    limit: Annotated[int | None, option("--limit", metavar="N", min=1, help="Show the last N runs.")] = None
    outcome: Annotated[
        Literal["trimmed", "held", "failed", "unverified"] | None,
        option("--outcome", help="Show runs in which a partition had this outcome."),
    ] = None


@single_command
def history(
    common: Common,
    topics: Annotated[
        list[str] | None,
        topic_argument("Show runs that trimmed these topics or partitions.", "TOPIC[:PARTITION]"),
    ] = None,
    which: Which = Which(),
    times: TimeRange = TimeRange(),  # noqa: B008  (a frozen value)
    all_rows: Annotated[bool, option("--all", help="Also list runs that trimmed nothing.")] = False,
    verify: Annotated[
        bool, option("--verify", help="Verify the log's hash chain; list edited or missing lines.")
    ] = False,
    output: OutputOption = "table",
) -> Exit:
    """Show past trims and changes by protect. Needs no cluster.

    Reads this machine's audit log, a hash chain. --verify checks the chains of all clusters, and exits with 1 if one is
    broken.

    Examples:
      kretain history

      kretain history --last 7d --outcome failed

      kretain history orders:3

      kretain history --run 20261121T030000Z-3f9a -o json

      kretain history --verify
    """
    from kretain.render.history import nothing_chosen, print_changes, print_run, print_runs
    from retention_cli.trim.history import Choice, find_run, read_past, select, select_changes

    chosen = bool(topics) or times.given or which.limit is not None or which.outcome is not None
    if verify and (which.run is not None or chosen):
        raise UsageError("--verify checks complete logs: omit TOPIC, --run, --limit, --outcome and times")
    if which.run is not None and chosen:
        raise UsageError("--run shows one run: omit TOPIC, --limit, --outcome and times")
    settings = resolve(common, policy_counts=False)
    if verify:
        return _verified(settings.state_dir, output)
    past, changes = read_past(settings.state_dir)
    if which.run is None:
        named = topic_arguments(topics)
        choice = Choice(*times.bounds(now_ms()), which.outcome, named.unsplit, which.limit, named.partitions)
        print_runs(
            select(past, choice),
            output,
            every_row=all_rows,
            none=nothing_chosen(len(past), which.outcome),
            settings=select_changes(changes, choice),
        )
    elif of_run := [row for row in changes if row["run"] == which.run]:
        print_changes(of_run, output)
    else:
        print_run(find_run(past, which.run), output)
    return Exit.DONE


def _verified(state_dir: Path, output: Output) -> Exit:
    from kretain.render.history import print_verified
    from retention_cli.trim.history import verify_all

    found = verify_all(state_dir)
    print_verified(found, output)
    broken = sum(bool(one.chain.breaks) for one in found)
    if not broken:
        return Exit.DONE
    warn(
        f"{count(broken, 'audit log')} of {len(found)} {'is' if broken == 1 else 'are'} broken: restore missing or "
        "edited lines from a copy; or move all audit*.jsonl and audit.head aside, and the next trim begins a new log"
    )
    return Exit.FAILED


@single_command
def verify(
    common: Common,
    runs: Annotated[
        list[str],
        argument(
            metavar="RUN",
            show_default=False,
            autocompletion=complete_runs,
            help="IDs of the trims to verify, from kretain history.",
        ),
    ],
    evidence: Annotated[
        str | None,
        option("--evidence", metavar="URL", help="Read evidence here. Default: as logged, or beside the log."),
    ] = None,
    public_key: Annotated[
        list[str] | None,
        option("--public-key", metavar="KEY", help="Require each run to be signed by one of these. Repeatable."),
    ] = None,
    output: OutputOption = "table",
) -> Exit:
    """Prove that a trim deleted only what was allowed.

    Decides every partition again from the recorded facts, and compares the result with the audit log. Needs no cluster
    and no policy file. Exits with 1 if anything differs, and names the file, line or row.

    Examples:
      kretain verify 20261121T030000Z-3f9a

      kretain verify 20261121T030000Z-3f9a --evidence s3://backup/evidence/CLUSTER_ID -o json
    """
    from kretain.render.history import print_verdicts
    from retention_cli.core.signing import public_keys
    from retention_cli.evidence.verify import verify_runs

    keys = public_keys(public_key or ()).values()
    found = verify_runs(resolve(common, policy_counts=False).state_dir, list(dict.fromkeys(runs)), evidence, keys)
    print_verdicts(found, output)
    if not (wrong := [one for one in found if one.findings]):
        return Exit.DONE
    warn(f"{len(wrong)} of {len(found)} runs can't be proven: docs/evidence.md explains each finding")
    return Exit.FAILED


@single_command
def replay(
    common: Common,
    times: TimeRange = TimeRange(),  # noqa: B008  (a frozen value)
    evidence: Annotated[
        str | None,
        option("--evidence", metavar="URL", of="replay", help="Read evidence here. Default: beside the audit log."),
    ] = None,
    output: OutputOption = "table",
    spark: SparkFlags = SparkFlags(),  # noqa: B008  (a frozen value)
) -> Exit:
    """Decide recorded runs again under another policy.

    Shows what that policy would have deleted and kept. Reads the evidence of trims, and of plans made with --evidence.
    Needs no cluster. Exits with 3 if the policy would have deleted records that a group had not read. Where evidence is
    missing, the partition holds and counts as kept.

    Examples:
      kretain replay -p new.yaml --last 30d

      kretain replay -p new.yaml --since 2026-11-01T00:00:00Z -o json

      kretain replay -p new.yaml --spark --evidence s3://backup/evidence/CLUSTER_ID
    """
    from kretain.render.history import print_replayed
    from retention_cli.evidence.replay import recorded, replay as replay_runs

    shared = SharedSpark(spark)
    settings = resolve(common)
    policy = selection_of(settings.policy).policy
    runs = recorded(settings.state_dir, evidence, *times.bounds(now_ms()))
    with common.progress() as progress, shared:
        if spark.spark:
            from retention_cli.engines.spark.replay import replay_over

            found = replay_over(shared.get(progress), runs, policy)
        else:
            found = replay_runs(runs, policy, progress)
    print_replayed(found, policy.source, output)
    if not (unread := found.totals["unread"]):
        return Exit.DONE
    warn(f"this policy would have deleted {count(unread, 'record')} that a group had not read")
    return Exit.HAS_CHANGES


@single_command
def report(
    common: Common,
    out: Annotated[
        Path,
        option("--out", of="report", metavar="FILE.html", help="Write the report here; overwrites the file."),
    ],
    plan: Annotated[
        Path | None,
        argument(metavar="FILE", show_default=False, help="A saved plan. Default: past trims."),
    ] = None,
    times: TimeRange = TimeRange(),  # noqa: B008  (a frozen value)
    forecast: Annotated[
        Path | None,
        option("--forecast", metavar="FILE", help="Also show this output of kretain forecast -o json."),
    ] = None,
) -> None:
    """Write an HTML report of a saved plan or of past trims. Needs no cluster.

    The report is one file without scripts, and loads nothing. For a plan it shows what a trim would delete, what is on
    hold and how to fix it, the largest topics, and which consumers hold back most.

    Examples:
      kretain report plan.json --out plan.html

      kretain report plan.json --forecast forecast.json --out plan.html

      kretain report --last 30d --out history.html
    """
    from kretain.render.page.forecast import forecast_parts
    from kretain.render.page.pages import history_page, plan_page
    from retention_cli.core.files import write_atomic
    from retention_cli.engines.fleet.saved import read_any
    from retention_cli.memory.ledger_file import FILE_NAME
    from retention_cli.plan.saved import SavedPlanError
    from retention_cli.plan.value import Plan
    from retention_cli.trim.history import Choice, read_history, select

    if plan is not None and times.given:
        raise UsageError("a plan has no time range: omit --since, --until and --last")
    state_dir = resolve(common, policy_counts=False).state_dir
    saved = None if plan is None else read_any(plan)
    if not isinstance(saved, Plan | None):
        raise SavedPlanError(f"{plan} is the plan of a fleet: report takes the plan of one cluster")
    runs = select(read_history(state_dir), Choice(*times.bounds(now_ms()))) if saved is None else []
    more = [] if forecast is None else forecast_parts(forecast, None if saved is None else saved.cluster_id)
    if saved is None:
        at = {run.begun["cluster"]["id"]: run.begun["cluster"].get("bootstrap", "") for run in runs}
        named = {cluster: ", ".join(contexts_at(address)) for cluster, address in at.items()}
        folders = [one.parent for one in sorted(state_dir.glob(f"*/{FILE_NAME}"))]
        text = history_page(runs, *_disks(folders), str(state_dir), more, named)
    else:
        folder = cluster_folder(state_dir, saved.cluster_id)
        text = plan_page(saved, *_disks([folder]), more, ", ".join(contexts_at(saved.bootstrap)))
    write_atomic(out, [text])
    common.warn(f"written to {out}")


def _disks(folders: list[Path]) -> tuple[dict[str, tuple[DiskSample, ...]], list[str]]:
    """Return the looks at disks of these clusters, by name, and why some can't be read."""
    from retention_cli.memory.ledger import stored_disk_samples

    found: dict[str, tuple[DiskSample, ...]] = {}
    notes = []
    for folder in folders:
        try:
            samples = stored_disk_samples(folder)
        except StateError as error:
            notes.append(str(error))
            continue
        several = f" ({folder.name})" if len(folders) > 1 else ""
        found |= {f"{name}{several}": one for name, one in samples.items()}
    return found, notes
