"""What became of a trim, on the screen and for scripts."""

from __future__ import annotations

from collections.abc import Sequence

from kretain.options import Output
from kretain.render import data, screen
from kretain.render.plan import MOST, SHOWN
from kretain.render.screen import Column
from kretain.render.words import count, number, partitions, size
from retention_cli.model import Reason, TopicPartition
from retention_cli.plan import Plan
from retention_cli.trim import OutcomeName, TrimReport, TrimRow, report_as_json, row_as_json

COLUMNS = ("topic", "partition", "outcome", "target", "log_start", "records", "bytes", "reasons")

_STYLES: dict[OutcomeName, str | None] = {
    "trimmed": "green", "would-trim": "yellow", "unchanged": None, "held": "magenta", "failed": "bold red",
    "unverified": "red",
}  # fmt: skip
_LOUDEST: tuple[OutcomeName, ...] = ("failed", "unverified", "trimmed", "would-trim", "held", "unchanged")


def print_report(report: TrimReport, output: Output, *, every_row: bool) -> None:
    """Print the report as asked."""
    match output:
        case Output.json:
            data.print_json(report_as_json(report), "partitions", (row_as_json(row) for row in report.rows))
        case Output.yaml:
            data.print_yaml({**report_as_json(report), "partitions": [row_as_json(row) for row in report.rows]})
        case Output.csv:
            data.print_csv(COLUMNS, (row_as_json(row) for row in report.rows))
        case Output.table:
            _print_table(report, every_row=every_row)


def _print_table(report: TrimReport, *, every_row: bool) -> None:
    rows: Sequence[TrimRow] = report.rows
    if len(rows) > SHOWN and not every_row:
        loudest = sorted(rows, key=lambda row: (_LOUDEST.index(row.outcome), -row.records, row.topic, row.partition))
        rows = sorted(loudest[:MOST], key=lambda row: (row.topic, row.partition))
        screen.say(f"The {len(rows)} of {len(report.rows):,} partitions that matter most (all of them: --all, or -o csv):")
        screen.say()
    screen.print_table(
        (
            Column("partition"), Column("outcome"), Column("asked for", "right"), Column("log start", "right"),
            Column("records", "right"), Column("bytes", "right"),
        ),  # fmt: skip
        [
            (
                f"{row.topic}-{row.partition}", row.outcome, number(row.target) if row.target is not None else "",
                number(row.log_start), number(row.records) if row.target is not None else "",
                size(row.size_bytes) if row.target is not None else "",
            )  # fmt: skip
            for row in rows
        ],
        [_STYLES[row.outcome] for row in rows],
    )
    _print_totals(report)
    loud: tuple[tuple[str, OutcomeName], ...] = (("Failed", "failed"), ("Unverified", "unverified"), ("Held", "held"))
    for title, outcome in loud:
        _print_reasons(title, [row for row in report.rows if row.outcome == outcome], _STYLES[outcome])


def _print_totals(report: TrimReport) -> None:
    counts = [f"{report.count(name):,} {name}" for name in _LOUDEST if report.count(name)]
    gone = report.trimmed
    screen.say()
    screen.say(f"{count(len(report.rows), 'partition')}: {', '.join(counts) or 'none'}.", "bold")
    if report.count("would-trim"):
        about = "" if gone.size_bytes is None else f", about {size(gone.size_bytes)} on each leader's disk"
        screen.say(f"{count(gone.records, 'record')} would go{about}. A dry run: nothing was sent.")
    elif report.count("trimmed"):
        about = "" if gone.size_bytes is None else f", about {size(gone.size_bytes)} on each leader's disk"
        screen.say(
            f"{count(gone.records, 'record')} went{about}. Brokers free the disk at their next retention check "
            f"(log.retention.check.interval.ms), whole segments at a time."
        )
    if report.interrupted:
        screen.say("Interrupted: what was not reached is unchanged.", "bold red")
    screen.say(f"Run {report.run}.", "dim")


def _print_reasons(title: str, rows: Sequence[TrimRow], style: str | None) -> None:
    grouped: dict[tuple[Reason, ...], list[TopicPartition]] = {}
    for row in rows:
        grouped.setdefault(row.reasons, []).append(TopicPartition(row.topic, row.partition))
    if not grouped:
        return
    screen.heading(title)
    ordered = sorted(grouped.items(), key=lambda item: (-len(item[1]), item[1][0]))
    for reasons, members in ordered[:MOST]:
        screen.bullet(partitions(members), style)
        for reason in reasons:
            screen.bullet(f"{reason.code}  {reason.text}", indent=4)
    if len(ordered) > MOST:
        screen.bullet(f"and {len(ordered) - MOST:,} more reasons (-o csv shows each partition's)")


def question(plan: Plan, limited_to: int | None) -> str:
    """Return what a person is asked before anything is deleted: how much, where, and what nobody has read."""
    rows = [one for one in plan.decisions if one.action == "trim"][:limited_to]
    records = sum(one.records for one in rows)
    unread = sum(one.unconsumed for one in rows)
    topics = len({one.topic for one in rows})
    text = (
        f"Trim {count(records, 'record')} from {count(len(rows), 'partition')} of {count(topics, 'topic')} "
        f"in cluster {plan.cluster_id} ({plan.bootstrap})?"
    )
    if unread:
        text += f" {count(unread, 'of them has', 'of them have')} NOT been read by every consumer that counts."
    return text + " This can't be undone."
