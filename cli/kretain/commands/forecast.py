"""``kretain forecast``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from kretain.flows.fleet import each_cluster
from kretain.flows.plans import forecasts
from kretain.options import rules
from kretain.options.common import Common, OutputOption, duration_ms, now_ms, option, single_command
from kretain.options.rules import RuleFlags, Topics


@single_command
@each_cluster
def forecast(
    common: Common,
    flags: RuleFlags,
    topics: Topics = None,
    compare: Annotated[
        Path | None,
        option(
            "--compare",
            metavar="FILE",
            help="Compare with this policy. Default with -p: the context's policy.",
        ),
    ] = None,
    every: Annotated[
        int,
        option("--every", metavar="DURATION", parser=duration_ms, help="Assume a trim this often."),
    ] = "5m",  # type: ignore[assignment]  # typer parses it like a typed value
    least: Annotated[
        int,
        option(
            "--least",
            metavar="DURATION",
            parser=duration_ms,
            help="Measure rates over at least this long.",
        ),
    ] = "1h",  # type: ignore[assignment]
    output: OutputOption = "table",
    all_rows: Annotated[bool, option("--all", help="Show all topics and groups.")] = False,
) -> None:
    """Forecast what the policy keeps, when disks are full, and who loses data next.

    Uses the ledger's samples, to which each plan and trim adds. If a rate is unknown, so is what depends on it. Changes
    nothing.

    Examples:
      kretain forecast -p policy.yaml

      kretain forecast -p new.yaml --compare policy.yaml

      kretain forecast '*' --consumed-after 3d -b localhost:9092

      kretain forecast -p policy.yaml -o json | jq '.groups[] | select((.seconds_to_loss // infinite) < 86400)'
    """
    from kretain.config import resolve
    from kretain.render.forecast import print_forecast
    from retention_cli.forecast.steady import Terms

    settings = resolve(common)
    other = compare if compare is not None else _of_context(common, settings.policy)
    one_off = flags.for_topics(topics)
    chosen = [rules.selection(settings.policy, topics, one_off)]
    if other is not None:
        chosen.append(rules.selection(other, topics))
    terms = Terms(every, least, now_ms())
    with settings.reader() as reader, common.progress() as progress:
        made = forecasts(settings, reader, chosen, terms, progress)
    common.warn(*dict.fromkeys(note for one in made for note in one.notes))
    print_forecast(made[0], made[1] if other is not None else None, output, every_row=all_rows)


def _of_context(common: Common, policy: Path | None) -> Path | None:
    """Return the context's policy, if the command line names another; None if there is nothing to compare."""
    from kretain.config import context_of

    if common.chosen is not None:
        return None
    named = context_of(common.context)[0].get("policy")
    if named is None or policy is None or Path(named).resolve() == policy.resolve():
        return None
    return Path(named)
