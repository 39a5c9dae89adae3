"""Print the trim of a fleet: the question before it, and its results, on the screen and for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kretain.options.common import Output
from kretain.render import data, trim
from kretain.render.fleet import print_clusters, print_failures
from kretain.render.kit import screen
from kretain.render.kit.reasons import print_reasons
from kretain.render.kit.screen import Column
from kretain.render.kit.text import count, number, quantity, size
from retention_cli.engines.fleet.plan import Failure, nested_lines
from retention_cli.engines.fleet.report import OUTCOMES, FleetReport, fleet_report_head
from retention_cli.plan.value import Plan, json_lines
from retention_cli.trim.report import OutcomeName, TrimReport, report_as_json, row_as_json

COLUMNS = ("cluster", *trim.COLUMNS)


@dataclass(frozen=True, slots=True)
class Share:
    """The amounts that a cluster's plan would trim: enough for the question, without its rows."""

    name: str
    partitions: int
    topics: int
    records: int
    unread: int


def fleet_share(name: str, one: Plan, limited_to: int | None) -> Share:
    """Return the amounts that a plan would trim in its first ``limited_to`` rows that trim, or in all (None)."""
    rows = [row for row in one.decisions if row.action == "trim"][:limited_to]
    topics = len({row.topic for row in rows})
    return Share(name, len(rows), topics, sum(row.records for row in rows), sum(row.unconsumed for row in rows))


def fleet_question(shares: Sequence[Share], left_alone: Sequence[str]) -> str:
    """Return the question to ask before anything is deleted, once for all clusters."""
    going = [one for one in shares if one.partitions]
    unread = sum(one.unread for one in going)
    text = (
        f"Trim {count(sum(one.records for one in going), 'record')} from "
        f"{count(sum(one.partitions for one in going), 'partition')} of "
        f"{count(sum(one.topics for one in going), 'topic')} in {count(len(going), 'cluster')}: "
        + ", ".join(f"{one.name} {one.records:,}" for one in going)
        + "?"
    )
    if unread:
        text += f" {count(unread, 'of them has', 'of them have')} NOT been read by every consumer that counts."
    if left_alone:
        text += f" Left alone: {', '.join(left_alone)}."
    return text + " This can't be undone."


def print_saved_fleet(plans: Mapping[str, Callable[[], Plan]]) -> None:
    """Print a saved plan's totals, cluster by cluster."""
    print_clusters([(name, give().totals) for name, give in plans.items()], {})


def print_fleet_report(report: FleetReport, output: Output, *, every_row: bool) -> None:
    """Print the results of a fleet's trim in the wanted format."""
    match output:
        case Output.json:
            members = (_report_lines(name, one) for name, one in report.clusters.items())
            data.write_json(nested_lines(fleet_report_head(report), "clusters", members))
        case Output.yaml:
            clusters: list[dict[str, Any]] = []
            for name, one in report.clusters.items():
                if isinstance(one, Failure):
                    clusters.append({"name": name, "error": one.error})
                else:
                    rows = [row_as_json(row) for row in one.rows]
                    clusters.append({"name": name, **report_as_json(one), "partitions": rows})
            data.print_yaml({**fleet_report_head(report), "clusters": clusters})
        case Output.csv:
            rows_of_all = ({"cluster": n, **row_as_json(row)} for n, one in report.reports.items() for row in one.rows)
            data.print_csv(COLUMNS, rows_of_all)
        case Output.table:
            _print_report_tables(report, every_row=every_row)


def _report_lines(name: str, one: TrimReport | Failure) -> Iterator[str]:
    if isinstance(one, Failure):
        yield from (json.dumps({"name": name, "error": one.error}, ensure_ascii=False),)
    else:
        head = {"name": name, **report_as_json(one)}
        yield from json_lines(head, "partitions", (row_as_json(row) for row in one.rows))


def _print_report_tables(report: FleetReport, *, every_row: bool) -> None:
    names: list[OutcomeName] = [
        name
        for name in OUTCOMES
        if name in ("trimmed", "unchanged", "held", "failed") or any(one.count(name) for one in report.reports.values())
    ]
    rows: list[tuple[str, ...]] = []
    styles: list[str | None] = []
    for name, one in report.clusters.items():
        if isinstance(one, Failure):
            rows.append((name, *["—"] * (len(names) + 2), ""))
            styles.append("bold red")
        else:
            amount = one.trimmed
            counts = [number(one.count(outcome)) for outcome in names]
            rows.append((name, *counts, number(amount.records), size(amount.size_bytes), one.run))
            bad = one.count("failed") or one.count("unverified") or one.interrupted
            styles.append("red" if bad else "green" if one.count("trimmed") else None)
    screen.print_table(
        (
            Column("cluster"),
            *(Column(name, "right") for name in names),
            Column("records", "right"),
            Column("bytes", "right"),
            Column("run"),
        ),
        rows,
        styles,
    )
    _print_report_totals(report)
    print_failures("Not trimmed", report.failures)
    if every_row:
        for name, one in report.reports.items():
            screen.heading(name)
            trim.print_report(one, Output.table, every_row=True)
        return
    for name, one in report.reports.items():
        for title, outcome in trim.LOUD:
            style = "magenta" if outcome == "held" else "red"
            print_reasons(f"{title} in {name}", trim.reasons_of(one, outcome), style)
        print_reasons(f"Gone before this trim in {name}", trim.gone_before(one))


def _print_report_totals(report: FleetReport) -> None:
    if not report.reports:
        screen.say()
        screen.say(f"Nothing was done to any of {count(len(report.clusters), 'cluster')}.", "bold")
        return
    head = fleet_report_head(report)["totals"]
    counts = [f"{head[name]:,} {name}" for name in OUTCOMES if head[name]]
    failed = f"; nothing was done to {head['clusters_failed']:,}" if report.failures else ""
    screen.say()
    of = f"{count(len(report.reports), 'cluster')}, {count(head['partitions'], 'partition')}"
    screen.say(f"{of}: {', '.join(counts) or 'none'}{failed}.", "bold")
    if head["would-trim"]:
        screen.say(f"{quantity(head['records'], head['bytes'], 'would be trimmed')}. A dry run: nothing was sent.")
    elif head["trimmed"]:
        screen.say(
            f"{quantity(head['records'], head['bytes'], 'trimmed')}. Brokers free the disk at their next retention "
            f"check (log.retention.check.interval.ms), whole segments at a time."
        )
    if report.interrupted:
        screen.say("Interrupted: what was not reached is unchanged.", "bold red")
