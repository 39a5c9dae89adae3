"""``kretain history``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from kretain.completion.complete import complete_runs
from kretain.errors import Exit, UsageError, tell
from kretain.options.common import Common, OptionGroup, Output, OutputOption, now_ms, option, single_command
from kretain.options.rules import topic_argument, topic_arguments
from kretain.options.times import TimeRange


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
    """Show past trims from this machine's audit log. Needs no cluster.

    Each line of the log has the hash of the line before it. --verify checks all clusters' logs, and exits with 1 if one
    is broken.

    Examples:
      kretain history

      kretain history --last 7d --outcome failed

      kretain history orders:3

      kretain history --run 20261121T030000Z-3f9a -o json

      kretain history --verify
    """
    from kretain.config import resolve
    from kretain.render.history import nothing_chosen, print_run, print_runs
    from retention_cli.trim.history import Choice, find_run, read_history, select

    chosen = bool(topics) or times.given or which.limit is not None or which.outcome is not None
    if verify and (which.run is not None or chosen):
        raise UsageError("--verify checks complete logs: omit TOPIC, --run, --limit, --outcome and times")
    if which.run is not None and chosen:
        raise UsageError("--run shows one run: omit TOPIC, --limit, --outcome and times")
    settings = resolve(common, policy_counts=False)
    if verify:
        return _verified(settings.state_dir, output)
    past = read_history(settings.state_dir)
    if which.run is None:
        named = topic_arguments(topics)
        choice = Choice(*times.bounds(now_ms()), which.outcome, named.whole, which.limit, named.partitions)
        print_runs(select(past, choice), output, every_row=all_rows, none=nothing_chosen(len(past), which.outcome))
    else:
        print_run(find_run(past, which.run), output)
    return Exit.DONE


def _verified(state_dir: Path, output: Output) -> Exit:
    from kretain.render.history import print_verified
    from retention_cli.core.units import count
    from retention_cli.trim.history import verify_all

    found = verify_all(state_dir)
    print_verified(found, output)
    broken = sum(bool(one.chain.breaks) for one in found)
    if not broken:
        return Exit.DONE
    many = f"{count(broken, 'audit log')} of {len(found)} {'is' if broken == 1 else 'are'} broken"
    tell(
        f"kretain: {many}: restore missing or edited lines from a copy; or move all audit*.jsonl and audit.head "
        f"aside, and the next trim begins a new log"
    )
    return Exit.FAILED
