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
    from kretain.config import context_of, resolve
    from kretain.render.forecast import print_forecast
    from retention_cli.forecast.steady import Terms

    settings = resolve(common)
    if compare is None and common.chosen is None and settings.policy is not None:
        of_context = context_of(common.context)[0].get("policy")
        if of_context is not None and Path(of_context).resolve() != settings.policy.resolve():
            compare = Path(of_context)
    chosen = [rules.selection(settings.policy, topics, flags.for_topics(topics))]
    if compare is not None:
        chosen.append(rules.selection(compare, topics))
    terms = Terms(every, least, now_ms())
    with settings.reader() as reader, common.progress() as progress:
        made = forecasts(settings, reader, chosen, terms, progress)
    common.warn(*dict.fromkeys(note for one in made for note in one.notes))
    print_forecast(made[0], made[1] if compare is not None else None, output, every_row=all_rows)
