"""The plan and the trim of a fleet, on the screen and for scripts: cluster by cluster, then topic by topic."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kretain.options import Output, PlanOutput
from kretain.render import data, plan, screen, trim
from kretain.render.reasons import MOST, print_reasons
from kretain.render.screen import Column
from kretain.render.words import count, gone, number, size
from retention_cli.fleet.plan import Failure, FleetPlan, fleet_as_json, fleet_lines, nested_lines
from retention_cli.fleet.trimming import OUTCOMES, FleetReport, fleet_report_head
from retention_cli.model import Decision, TopicPartition
from retention_cli.plan import Plan, Totals, json_lines
from retention_cli.plan import row_as_json as plan_row
from retention_cli.trim_report import OutcomeName, report_as_json, row_as_json

COLUMNS = ("cluster", *plan.COLUMNS)
TRIM_COLUMNS = ("cluster", *trim.COLUMNS)


def print_fleet_plan(fleet: FleetPlan, output: PlanOutput, *, every_row: bool) -> None:
    """Print the plan as asked. Rows for scripts have a first column, ``cluster``: the cluster's name."""
    match output:
        case PlanOutput.json:
            sys.stdout.writelines(fleet_lines(fleet))
        case PlanOutput.yaml:
            data.print_yaml(fleet_as_json(fleet))
        case PlanOutput.jsonl:
            data.print_jsonl(_plan_rows(fleet))
        case PlanOutput.csv:
            data.print_csv(COLUMNS, _plan_rows(fleet))
        case PlanOutput.table | PlanOutput.markdown:
            _print_plan_tables(fleet, markdown=output == PlanOutput.markdown, every_row=every_row)
        case PlanOutput.delete_records:
            raise ValueError("delete-records names no cluster")


def _plan_rows(fleet: FleetPlan) -> Iterator[dict[str, Any]]:
    for name, one in fleet.plans.items():
        for row in one.decisions:
            yield {"cluster": name, **plan_row(row)}


def _print_plan_tables(fleet: FleetPlan, *, markdown: bool, every_row: bool) -> None:
    _print_clusters([(name, one.totals) for name, one in fleet.plans.items()], fleet.failures, markdown=markdown)
    rows = [row for name, one in fleet.plans.items() for row in _by_topic(name, one)]
    if rows:
        screen.say()
        _print_topics(rows, markdown=markdown, every_row=every_row)
    _print_totals(fleet, markdown=markdown)
    _print_failures("Could not be planned", fleet.failures, markdown=markdown)
    for name, one in fleet.plans.items():
        held = [row for row in one.decisions if row.action == "hold"]
        print_reasons(f"On hold in {name}", ((row.tp, row.reasons) for row in held), "magenta", markdown=markdown)


def _print_clusters(
    planned: Sequence[tuple[str, Totals]], failures: Mapping[str, Failure], *, markdown: bool = False
) -> None:
    rows: list[tuple[str, ...]] = [
        (
            name,
            number(totals.partitions),
            number(totals.trim),
            number(totals.keep),
            number(totals.hold),
            number(totals.skip),
            number(totals.records),
            size(totals.size_bytes),
            number(totals.unconsumed),
        )
        for name, totals in planned
    ]
    rows += [(name, *["—"] * 8) for name in failures]
    screen.print_table(
        (
            Column("cluster"),
            *(Column(title, "right") for title in ("partitions", "trim", "keep", "hold", "skip")),
            Column("records", "right"),
            Column("bytes", "right"),
            Column("of them unread", "right"),
        ),
        rows,
        [None] * len(planned) + ["bold red"] * len(failures),
        markdown=markdown,
    )


@dataclass(frozen=True, slots=True)
class _Topic:
    cluster: str
    name: str
    totals: Totals
    held_back_by: str


def _by_topic(cluster: str, one: Plan) -> Iterator[_Topic]:
    topics: dict[str, list[Decision]] = {}
    for row in one.decisions:
        topics.setdefault(row.topic, []).append(row)
    for name, rows in topics.items():
        by = Counter(part for row in rows for part in plan.held_back_by(row).split(", ") if part)
        most = [part for part, _ in sorted(by.items(), key=lambda item: (-item[1], item[0]))]
        yield _Topic(cluster, name, Totals.of(rows), ", ".join(most[:3]) + (", …" if len(most) > 3 else ""))


def _print_topics(rows: Sequence[_Topic], *, markdown: bool, every_row: bool) -> None:
    shown = rows
    if len(rows) > plan.SHOWN and not every_row:
        order = {id(row): place for place, row in enumerate(rows)}
        most = sorted(rows, key=lambda row: (-row.totals.records, -row.totals.hold, order[id(row)]))[:MOST]
        shown = sorted(most, key=lambda row: order[id(row)])
        screen.say(f"The {len(shown)} of {len(rows):,} topics that matter most (all of them: --all; partitions: -o csv):")
        screen.say()
    screen.print_table(
        (
            Column("cluster"),
            Column("topic"),
            *(Column(title, "right") for title in ("partitions", "trim", "hold")),
            Column("records", "right"),
            Column("bytes", "right"),
            Column("held back by"),
        ),
        [
            (
                row.cluster,
                row.name,
                number(row.totals.partitions),
                number(row.totals.trim),
                number(row.totals.hold),
                number(row.totals.records),
                size(row.totals.size_bytes),
                row.held_back_by,
            )
            for row in shown
        ],
        ["yellow" if row.totals.trim else "magenta" if row.totals.hold else None for row in shown],
        markdown=markdown,
    )


def _print_totals(fleet: FleetPlan, *, markdown: bool) -> None:
    totals = fleet.totals
    failed = len(fleet.failures)
    lost = f"; {failed:,} could not be planned" if failed else ""
    counts = [
        f"{amount:,} {word}"
        for word, amount in (("trim", totals.trim), ("keep", totals.keep), ("hold", totals.hold), ("skip", totals.skip))
        if amount
    ]
    of = f"{count(len(fleet.plans), 'cluster')}, {count(totals.partitions, 'partition')}"
    lines: list[tuple[str, str | None]] = [(f"{of}: {', '.join(counts) or 'none'}{lost}.", "bold")]
    if totals.trim:
        unread = (
            f"{count(totals.unconsumed, 'of them is', 'of them are')} not read by everybody."
            if totals.unconsumed
            else "All of them were read by every consumer that counts."
        )
        lines.append((f"{gone(totals.records, totals.size_bytes, 'would go')}. {unread}", None))
    else:
        lines.append(("Nothing to trim.", None))
    lines += [
        (f"trim would refuse the plan of {name}: {reason.text} ({reason.code}).", "bold red")
        for name, one in fleet.plans.items()
        for reason in one.refusals
    ]
    if fleet.plans:
        lines.append(("Clocks unchecked: ours is trusted (G8).", "dim"))
    screen.say()
    for text, style in lines:
        screen.say(f"{text}\n" if markdown and text is not lines[-1][0] else text, style)


def _print_failures(title: str, failures: Mapping[str, Failure], *, markdown: bool = False) -> None:
    if failures:
        screen.heading(title, markdown=markdown)
        for name, failure in failures.items():
            screen.bullet(name, "bold red", markdown=markdown)
            screen.bullet(failure.error, indent=4, markdown=markdown)


# -- trim ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Share:
    """What of a cluster's plan would be asked for: enough for the question, without its rows."""

    name: str
    partitions: int
    topics: int
    records: int
    unread: int


def fleet_share(name: str, one: Plan, limited_to: int | None) -> Share:
    """Return what of a plan would go, its first ``limited_to`` rows that trim, or all (None)."""
    rows = [row for row in one.decisions if row.action == "trim"][:limited_to]
    topics = len({row.topic for row in rows})
    return Share(name, len(rows), topics, sum(row.records for row in rows), sum(row.unconsumed for row in rows))


def fleet_question(shares: Sequence[Share], left_alone: Sequence[str]) -> str:
    """Return what a person is asked before anything is deleted, once for all clusters."""
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
        text += f" Left alone, since there is no plan: {', '.join(left_alone)}."
    return text + " This can't be undone."


def print_saved_fleet(plans: Mapping[str, Callable[[], Plan]]) -> None:
    """Print what a saved plan comes to, cluster by cluster."""
    _print_clusters([(name, give().totals) for name, give in plans.items()], {})


def print_fleet_report(report: FleetReport, output: Output, *, every_row: bool) -> None:
    """Print what became of a fleet's trim as asked."""
    match output:
        case Output.json:
            members = (_report_lines(name, one) for name, one in report.clusters.items())
            sys.stdout.writelines(nested_lines(fleet_report_head(report), "clusters", members))
        case Output.yaml:
            clusters = []
            for name, one in report.clusters.items():
                if isinstance(one, Failure):
                    clusters.append({"name": name, "error": one.error})
                else:
                    rows = [row_as_json(row) for row in one.rows]
                    clusters.append({"name": name, **report_as_json(one), "partitions": rows})
            data.print_yaml({**fleet_report_head(report), "clusters": clusters})
        case Output.csv:
            rows_of_all = ({"cluster": n, **row_as_json(row)} for n, one in report.reports.items() for row in one.rows)
            data.print_csv(TRIM_COLUMNS, rows_of_all)
        case Output.table:
            _print_report_tables(report, every_row=every_row)


def _report_lines(name: str, one: Any) -> Iterator[str]:
    if isinstance(one, Failure):
        yield from (data.json.dumps({"name": name, "error": one.error}, ensure_ascii=False),)
    else:
        head = {"name": name, **report_as_json(one)}
        yield from json_lines(head, "partitions", (row_as_json(row) for row in one.rows))


def _print_report_tables(report: FleetReport, *, every_row: bool) -> None:
    del every_row
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
    _print_failures("Not trimmed", report.failures)
    for name, one in report.reports.items():
        loud: tuple[tuple[str, OutcomeName], ...] = (
            ("Failed in", "failed"),
            ("Unverified in", "unverified"),
            ("Held in", "held"),
        )
        for title, outcome in loud:
            reasons = (
                (TopicPartition(row.topic, row.partition), row.reasons) for row in one.rows if row.outcome == outcome
            )
            print_reasons(f"{title} {name}", reasons, "magenta" if outcome == "held" else "red")


def _print_report_totals(report: FleetReport) -> None:
    head = fleet_report_head(report)["totals"]
    counts = [f"{head[name]:,} {name}" for name in OUTCOMES if head[name]]
    failed = f"; nothing was done to {head['clusters_failed']:,}" if report.failures else ""
    screen.say()
    of = f"{count(len(report.reports), 'cluster')}, {count(head['partitions'], 'partition')}"
    screen.say(f"{of}: {', '.join(counts) or 'none'}{failed}.", "bold")
    if head["would-trim"]:
        screen.say(f"{gone(head['records'], head['bytes'], 'would go')}. A dry run: nothing was sent.")
    elif head["trimmed"]:
        screen.say(
            f"{gone(head['records'], head['bytes'], 'went')}. Brokers free the disk at their next retention check "
            f"(log.retention.check.interval.ms), whole segments at a time."
        )
    if report.interrupted:
        screen.say("Interrupted: what was not reached is unchanged.", "bold red")
