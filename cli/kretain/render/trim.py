"""The results of a trim, on the screen and for scripts."""

from __future__ import annotations

from collections.abc import Sequence

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.reasons import MOST, print_reasons
from kretain.render.kit.screen import Column
from kretain.render.kit.text import count, number, quantity, size
from kretain.render.plan import SHOWN
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.printable import name_in_text
from retention_cli.plan.value import Plan
from retention_cli.trim.report import OutcomeName, TrimReport, TrimRow, report_as_json, row_as_json

COLUMNS = ("topic", "partition", "outcome", "target", "log_start", "records", "bytes", "reasons")

_STYLES: dict[OutcomeName, str | None] = {
    "trimmed": "green",
    "would-trim": "yellow",
    "unchanged": None,
    "held": "magenta",
    "failed": "bold red",
    "unverified": "red",
}
_LOUDEST: tuple[OutcomeName, ...] = ("failed", "unverified", "trimmed", "would-trim", "held", "unchanged")
LOUD: tuple[tuple[str, OutcomeName], ...] = (("Failed", "failed"), ("Unverified", "unverified"), ("Held", "held"))
"""Outcomes whose reasons are printed under the table, with their headings."""
ASKED_BY_NAME = 5
"""At most this many topics and consumers are named in the question."""


def print_report(report: TrimReport, output: Output, *, every_row: bool) -> None:
    """Print the report in the wanted format."""
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
        screen.say(
            f"The {len(rows)} of {len(report.rows):,} partitions that matter most (all of them: --all, or -o csv):"
        )
        screen.say()
    screen.print_table(
        (
            Column("partition"),
            Column("outcome", whole=True),
            Column("asked for", "right"),
            Column("log start", "right"),
            Column("records", "right"),
            Column("bytes", "right"),
        ),
        [
            (
                f"{row.topic}-{row.partition}",
                row.outcome,
                number(row.target) if row.target is not None else "",
                number(row.log_start),
                number(row.records) if row.target is not None else "",
                size(row.size_bytes) if row.target is not None else "",
            )
            for row in rows
        ],
        [_STYLES[row.outcome] for row in rows],
    )
    _print_totals(report)
    for title, outcome in LOUD:
        print_reasons(title, reasons_of(report, outcome), _STYLES[outcome])
    print_reasons("Gone before this trim", gone_before(report))


def reasons_of(report: TrimReport, outcome: OutcomeName) -> list[tuple[TopicPartition, tuple[Reason, ...]]]:
    """Return the partitions with an outcome, and their reasons."""
    return [(TopicPartition(row.topic, row.partition), row.reasons) for row in report.rows if row.outcome == outcome]


def gone_before(report: TrimReport) -> list[tuple[TopicPartition, tuple[Reason, ...]]]:
    """Return the partitions whose records another process removed before this trim, with the reason ``gone``."""
    return [
        (tp, reasons)
        for tp, reasons in reasons_of(report, "unchanged")
        if any(reason.code == "gone" for reason in reasons)
    ]


def _print_totals(report: TrimReport) -> None:
    counts = [f"{report.count(name):,} {name}" for name in _LOUDEST if report.count(name)]
    amount = report.trimmed
    screen.say()
    screen.say(f"{count(len(report.rows), 'partition')}: {', '.join(counts) or 'none'}.", "bold")
    if report.count("would-trim"):
        screen.say(f"{quantity(amount.records, amount.size_bytes, 'would be trimmed')}. A dry run: nothing was sent.")
    elif report.count("trimmed"):
        screen.say(
            f"{quantity(amount.records, amount.size_bytes, 'trimmed')}. Brokers free the disk at their next "
            f"retention check (log.retention.check.interval.ms), whole segments at a time."
        )
    if report.interrupted:
        screen.say("Interrupted: what was not reached is unchanged.", "bold red")
    if any(report.count(name) for name in ("trimmed", "failed", "unverified")):  # a dry run is not in the audit log
        screen.say(f"Run {report.run}, clock {report.clock}.", "dim")


def question(asked: Plan) -> str:
    """Return the question to ask before anything is deleted: how much, where, and who has yet to read it."""
    totals = asked.totals
    amount = "" if totals.size_bytes is None else f" ({'' if totals.size_exact else 'about '}{size(totals.size_bytes)})"
    text = (
        f"Trim {count(totals.records, 'record')}{amount} from {count(totals.trim, 'partition')} of {_topics(asked)} in "
        f"cluster {asked.cluster_id} ({asked.bootstrap})?"
    )
    if totals.unconsumed:
        text += f" {count(totals.unconsumed, 'of them has', 'of them have')} NOT been read by {_readers(asked)}."
    return text + " This can't be undone."


def _topics(asked: Plan) -> str:
    """Return the topics that a plan trims: a few by name, then how many more."""
    names = list(dict.fromkeys(one.topic for one in asked.decisions if one.action == "trim"))
    more = len(names) - ASKED_BY_NAME
    return ", ".join(names[:ASKED_BY_NAME]) + (f" and {count(more, 'more topic')}" if more > 0 else "")


def _readers(asked: Plan) -> str:
    """Return who has yet to read what goes: a few by name, with how many records."""
    unread = sorted(asked.unconsumed_by.items(), key=lambda item: (-item[1], item[0]))
    if not unread:
        return "every consumer that counts"
    named = ", ".join(
        f"{name_in_text(name.removeprefix('group:'))} ({records:,})" for name, records in unread[:ASKED_BY_NAME]
    )
    more = len(unread) - ASKED_BY_NAME
    return named + (f" and {count(more, 'more consumer')}" if more > 0 else "")
