"""The trim of a cluster and of a fleet: the question before it, and its results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kretain.render.output import (
    BLANK,
    NAMED,
    Column,
    Line,
    Part,
    Table,
    amounts,
    heading,
    hinted,
    joined,
    number,
    reasons,
    shortened,
    show,
    size,
    that_matter_most,
)
from kretain.render.plan import failed, going, would_lose
from retention_cli.core.grouping import by_key
from retention_cli.core.units import count, some_of
from retention_cli.decide.guards.limits import Amount
from retention_cli.engines.fleet.plan import Failure, FleetReport, fleet_report_head, lines_of
from retention_cli.plan.value import Plan, TopicRows, Totals, by_topic
from retention_cli.trim.report import OUTCOMES, OutcomeName, TrimReport, report_as_json, row_as_json

COLUMNS: Final = ("topic", "partition", "outcome", "target", "log_start", "records", "bytes", "reasons")
_EVERYONE: Final = "every consumer that counts"
_STYLES: Final[dict[OutcomeName, str | None]] = {
    "trimmed": "green",
    "would-trim": "yellow",
    "unchanged": None,
    "held": "magenta",
    "failed": "bold red",
    "unverified": "red",
}
_LOUDEST: Final[tuple[OutcomeName, ...]] = ("failed", "unverified", "trimmed", "would-trim", "held", "unchanged")


def print_report(report: TrimReport, output: str, *, every_row: bool) -> None:
    """Print the report in the wanted format."""
    show(
        output,
        report_as_json(report),
        "partitions",
        map(row_as_json, report.rows),
        lambda: _report(report, every_row=every_row),
        COLUMNS,
    )


def _report(report: TrimReport, *, every_row: bool) -> list[Part]:
    loudest = shortened(
        report.rows, lambda row: (_LOUDEST.index(row.outcome), -row.records, row.tp), every_row=every_row
    )
    rows = loudest if loudest is report.rows else sorted(loudest, key=lambda row: row.tp)
    counts: dict[str, int] = {name: report.count(name) for name in _LOUDEST}
    later = sum(any(reason.code == "max-partitions" for reason in row.reasons) for row in report.rows)
    return [
        *that_matter_most(rows, len(report.rows), "partitions that matter most"),
        Table(
            (
                Column("partition"),
                Column("outcome", unbroken=True),
                *(Column(title, "right") for title in ("asked for", "log start", "records", "bytes")),
            ),
            [
                (
                    str(row.tp),
                    row.outcome,
                    "" if row.target is None else number(row.target),
                    number(row.log_start),
                    "" if row.target is None else number(row.records),
                    "" if row.target is None else size(row.size_bytes),
                )
                for row in rows
            ],
            [_STYLES[row.outcome] for row in rows],
        ),
        BLANK,
        Line(f"{count(len(report.rows), 'partition')}: {amounts(counts)}.", "bold"),
        _gone(counts, report.trimmed),
        later > 0 and f"{count(later, 'partition')} left for a later run (--max-partitions).",
        report.interrupted and _INTERRUPTED,
        # a dry run is not in the audit log
        any(counts[name] for name in ("trimmed", "failed", "unverified"))
        and Line(f"Run {report.run}; broker clock {'' if report.clock == 'checked' else 'not '}verified.", "dim"),
        *hinted(_whys(report, "", _STYLES)),
    ]


def _whys(report: TrimReport, where: str, styles: Mapping[OutcomeName, str | None]) -> list[Part]:
    """Return the outcomes whose reasons matter, with them, and what another process removed before this trim."""
    loud: tuple[OutcomeName, ...] = ("failed", "unverified", "held")
    rows = by_key((row.outcome, (row.tp, row.reasons)) for row in report.rows)
    gone = [(tp, whys) for tp, whys in rows.get("unchanged", ()) if any(reason.code == "gone" for reason in whys)]
    return [
        *(part for one in loud for part in reasons(f"{one.capitalize()}{where}", rows.get(one, ()), styles[one])),
        *reasons(f"Deleted before this trim{where}", gone),
    ]


_INTERRUPTED: Final = Line("Interrupted: the remaining partitions are unchanged.", "bold red")


def _gone(counts: dict[str, int], amount: Amount) -> str | None:
    records, unread = count(amount.records, "record"), amount.unconsumed
    about = "" if amount.size_bytes is None else f", about {size(amount.size_bytes)} of the leaders' logs"
    if counts["would-trim"]:
        return f"{records} would be trimmed{about}.{_unread(unread)} Dry run: nothing was sent."
    if not counts["trimmed"]:
        return None
    return joined(
        f"{records} trimmed{about}.",
        unread and f"{unread:,} of them had NOT been read by {_EVERYONE}.",
        "Brokers free complete segments at their next retention check (log.retention.check.interval.ms).",
        by=" ",
    )


def question(plan: Plan) -> str:
    """Return the question to ask before anything is deleted: how much, where, and who has yet to read it."""
    totals = plan.totals
    topics = list(dict.fromkeys(one.topic for one in plan.decisions if one.action == "trim"))
    readers = some_of(would_lose(plan, "{} ({:,})"), NAMED, "consumer")
    return (
        f"Trim {going(totals)} of {some_of(topics, NAMED, 'topic')} in cluster {plan.cluster_id} "
        f"({plan.bootstrap})?{_unread(totals.unconsumed, readers)} This can't be undone."
    )


def _unread(records: int, readers: str = "") -> str:
    return (
        f" {count(records, 'of them has', 'of them have')} NOT been read by {readers or _EVERYONE}." if records else ""
    )


def topics_to_trim(plan: Plan, limited_to: int | None) -> list[TopicRows]:
    """Return the sums of the topics in the first ``limited_to`` rows that trim, or in all (None)."""
    return list(by_topic([row for row in plan.decisions if row.action == "trim"][:limited_to]))


def fleet_question(topics: Mapping[str, Sequence[TopicRows]], left_alone: Sequence[str]) -> str:
    """Return the question to ask before anything is deleted, once for all clusters, by their topics to trim."""
    some = {name: sum((one.totals for one in each), Totals.of(())) for name, each in topics.items() if each}
    totals = sum(some.values(), Totals.of(()))
    return joined(
        f"Trim {count(totals.records, 'record')} from {count(totals.trim, 'partition')} of "
        f"{count(sum(map(len, topics.values())), 'topic')} in {count(len(some), 'cluster')}: "
        f"{', '.join(f'{name} {one.records:,}' for name, one in some.items())}?",
        _unread(totals.unconsumed),
        bool(left_alone) and f" Left alone: {', '.join(left_alone)}.",
        " This can't be undone.",
    )


def print_fleet_report(report: FleetReport, output: str, *, every_row: bool) -> None:
    """Print the results of a fleet's trim in the wanted format."""
    head = fleet_report_head(report)
    show(
        output,
        head,
        "",
        ({"cluster": name, **row_as_json(row)} for name, one in report.reports.items() for row in one.rows),
        lambda: _fleet_report(report, every_row=every_row),
        ("cluster", *COLUMNS),
        lines=lines_of(head, report.clusters, report_as_json, lambda one: map(row_as_json, one.rows)),
    )


def _fleet_report(report: FleetReport, *, every_row: bool) -> Iterator[Part]:
    head = fleet_report_head(report)["totals"]
    names = [name for name in OUTCOMES if name in ("trimmed", "unchanged", "held", "failed") or head[name]]
    cells = [_cells(one, names) for one in report.clusters.values()]
    counted: dict[str, int] = {name: head[name] for name in OUTCOMES}
    yield from [
        Table(
            (Column("cluster"), *(Column(title, "right") for title in (*names, "records", "bytes")), Column("run")),
            [(name, *row) for name, (row, _) in zip(report.clusters, cells, strict=True)],
            [style for _, style in cells],
        ),
        BLANK,
        Line(
            joined(
                f"{count(len(report.reports), 'cluster')}, {count(head['partitions'], 'partition')}: ",
                amounts(counted),
                bool(report.failures) and f"; nothing was done to {head['clusters_failed']:,}",
                ".",
            )
            if report.reports
            else f"Nothing was done to any of {count(len(cells), 'cluster')}.",
            "bold",
        ),
        _gone(counted, report.trimmed),
        bool(report.reports) and report.interrupted and _INTERRUPTED,
        *failed("Not trimmed", report.failures),
    ]
    for name, one in report.reports.items():  # one cluster's rows at a time
        yield from (
            (heading(name), *_report(one, every_row=True))
            if every_row
            else _whys(one, f" in {name}", {**_STYLES, "failed": "red"})
        )


def _cells(one: TrimReport | Failure, names: Sequence[OutcomeName]) -> tuple[list[str], str | None]:
    if isinstance(one, Failure):
        return [*["—"] * (len(names) + 2), ""], "bold red"
    bad = one.count("failed") or one.count("unverified") or one.interrupted
    return [
        *(number(one.count(name)) for name in names),
        number(one.trimmed.records),
        size(one.trimmed.size_bytes),
        one.run,
    ], "red" if bad else "green" if one.count("trimmed") else None
