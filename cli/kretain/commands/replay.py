"""``kretain replay``."""

from __future__ import annotations

from typing import Annotated

from kretain.errors import Exit, tell
from kretain.options.common import Common, OutputOption, now_ms, option, single_command
from kretain.options.times import TimeRange

EvidenceUrl = Annotated[
    str | None,
    option("--evidence", metavar="URL", of="replay", help="Folder with the runs' folders. Default: beside the log."),
]


@single_command
def replay(
    common: Common,
    times: TimeRange = TimeRange(),  # noqa: B008  (a frozen value)
    evidence: EvidenceUrl = None,
    output: OutputOption = "table",
) -> Exit:
    """Decide recorded runs again under another policy.

    Shows what it would have deleted and kept. Reads the evidence of trims, and of plans with --evidence. Needs no
    cluster. Exits with 3 if the policy would have deleted records that a group had not read. What the evidence does not
    say is on hold, and counts as kept.

    Examples:
      kretain replay -p new.yaml --last 30d

      kretain replay -p new.yaml --since 2026-11-01T00:00:00Z -o json
    """
    from kretain.config import resolve
    from kretain.options import rules
    from kretain.render.replay import print_replayed
    from retention_cli.core.units import count
    from retention_cli.evidence.replay import recorded
    from retention_cli.evidence.replay import replay as replay_runs
    from retention_cli.policy.settings import OneOff

    settings = resolve(common)
    policy = rules.selection(settings.policy, None, OneOff()).policy
    runs = recorded(settings.state_dir, evidence, *times.bounds(now_ms()))
    with common.progress() as progress:
        found = replay_runs(runs, policy, progress)
    print_replayed(found, policy.source, output)
    if not (unread := found.totals["unread"]):
        return Exit.DONE
    tell(f"kretain: this policy would have deleted {count(unread, 'record')} that a group had not read")
    return Exit.HAS_CHANGES
