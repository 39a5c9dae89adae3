"""``kretain history``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from kretain.completion.complete import complete_runs
from kretain.errors import Exit, UsageError, tell
from kretain.options.common import Common, Output, OutputOption, duration_ms, now_ms, option, single_command


@single_command
def history(
    common: Common,
    run: Annotated[
        str | None,
        option("--run", metavar="ID", help="Show one run, partition by partition.", autocompletion=complete_runs),
    ] = None,
    since: Annotated[
        int | None,
        option(
            "--since",
            of="history",
            metavar="DURATION",
            parser=duration_ms,
            help="Show runs of this last period, such as 7d.",
        ),
    ] = None,
    limit: Annotated[int | None, option("--limit", metavar="N", min=1, help="Show the last N runs.")] = None,
    outcome: Annotated[
        Literal["trimmed", "held", "failed", "unverified"] | None,
        option("--outcome", help="Show runs in which a partition had this outcome."),
    ] = None,
    all_rows: Annotated[bool, option("--all", help="Also list runs that trimmed nothing.")] = False,
    verify: Annotated[
        bool, option("--verify", help="Verify the log's hash chain; list edited or missing lines.")
    ] = False,
    output: OutputOption = "table",
) -> Exit:
    """Show past trims from this machine's audit log. Needs no cluster.

    Each line of the log has the hash of the line before it. --verify checks all clusters' logs, and exits with 1 if one
    is broken.

    Examples:
      kretain history

      kretain history --since 7d --outcome failed

      kretain history --run 20261121T030000Z-3f9a -o json

      kretain history --verify
    """
    from kretain.config import resolve
    from kretain.render.history import print_run, print_runs
    from retention_cli.trim.history import find_run, read_history, select

    chosen = since is not None or limit is not None or outcome is not None
    if verify and (run is not None or chosen):
        raise UsageError("--verify looks at whole logs: leave --run, --since, --limit and --outcome out")
    if run is not None and chosen:
        raise UsageError("--run is one run: leave --since, --limit and --outcome out")
    settings = resolve(common, policy_counts=False)
    if verify:
        return _verified(settings.state_dir, output)
    past = read_history(settings.state_dir)
    if run is None:
        print_runs(
            select(past, None if since is None else now_ms() - since, outcome, limit),
            output,
            every_row=all_rows,
        )
    else:
        print_run(find_run(past, run), output)
    return Exit.DONE


def _verified(state_dir: Path, output: Output) -> Exit:
    from kretain.render.history import print_verified
    from kretain.render.output import count
    from retention_cli.trim.history import verify_all

    found = verify_all(state_dir)
    print_verified(found, output)
    broken = sum(bool(one.chain.breaks) for one in found)
    if not broken:
        return Exit.DONE
    many = f"{count(broken, 'audit log')} of {len(found)} {'is' if broken == 1 else 'are'} broken"
    tell(
        f"kretain: {many}: put what is missing or edited back from a copy; or move audit*.jsonl and audit.head aside, "
        f"all of them, and the next trim begins a new log"
    )
    return Exit.FAILED
