"""The plan of a fleet, on the screen and for scripts: cluster by cluster, then topic by topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import chain, islice
from itertools import count as count_from
from typing import Any

from kretain.options.common import PlanOutput
from kretain.render import data, plan
from kretain.render.kit import screen
from kretain.render.kit.reasons import MOST, print_reasons
from kretain.render.kit.screen import Column
from kretain.render.kit.text import count, number, quantity, size
from retention_cli.engines.fleet.plan import Failure, FleetPlan, fleet_as_json, fleet_lines
from retention_cli.plan.columns import NAMES
from retention_cli.plan.rows import TopicRows, by_topic, having, rows_as_json
from retention_cli.plan.value import Totals

COLUMNS = ("cluster", *NAMES)


def print_fleet_plan(fleet: FleetPlan, output: PlanOutput, *, every_row: bool) -> None:
    """Print the plan in the wanted format. Rows for scripts have a first column, ``cluster``: the cluster's name."""
    match output:
        case PlanOutput.json:
            data.write_json(fleet_lines(fleet))
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
        for row in rows_as_json(one.decisions):
            yield {"cluster": name, **row}


def _print_plan_tables(fleet: FleetPlan, *, markdown: bool, every_row: bool) -> None:
    print_clusters([(name, one.totals) for name, one in fleet.plans.items()], fleet.failures, markdown=markdown)
    if every_row:
        _print_totals(fleet, markdown=markdown)
        print_failures("Could not be planned", fleet.failures, markdown=markdown)
        for name, one in fleet.plans.items():
            screen.heading(name, markdown=markdown)
            plan.print_plan(one, PlanOutput.markdown if markdown else PlanOutput.table, every_row=True)
        return
    _print_topics(_topics_of(fleet), markdown=markdown)
    _print_totals(fleet, markdown=markdown)
    print_failures("Could not be planned", fleet.failures, markdown=markdown)
    for name, one in fleet.plans.items():
        held = ((row.tp, row.reasons) for row in having(one.decisions, "hold"))
        print_reasons(f"On hold in {name}", held, "magenta", markdown=markdown)


def print_clusters(
    planned: Sequence[tuple[str, Totals]], failures: Mapping[str, Failure], *, markdown: bool = False
) -> None:
    """Print a row per cluster."""
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


Topic = tuple[str, TopicRows]
"""A cluster's name, and a topic of it."""


def _topics_of(fleet: FleetPlan) -> Iterator[Topic]:
    """Yield the topics, without internal ones that are skipped as a whole, as for one cluster."""
    for name, one in fleet.plans.items():
        for topic in by_topic(one.decisions):
            if not topic.topic.startswith("__") or topic.actions.keys() != {"skip"}:
                yield name, topic


def _print_topics(topics: Iterator[Topic], *, markdown: bool) -> None:
    """Print a table of the topics; of many, those that matter most. Few are in memory at a time."""
    first = list(islice(topics, plan.SHOWN + 1))
    if not first:
        return
    shown: Sequence[Topic] = first
    screen.say()
    if len(first) > plan.SHOWN:
        places = count_from(0)
        numbered = ((next(places), one) for one in chain(first, topics))
        most = nsmallest(MOST, numbered, key=lambda row: (-row[1][1].records, -row[1][1].actions["hold"], row[0]))
        shown = [one for _, one in sorted(most, key=lambda row: row[0])]
        of = f"{len(shown)} of {next(places):,} topics"
        screen.say(f"The {of} that matter most (all of them: --all; partitions: -o csv):")
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
                cluster,
                one.topic,
                number(one.actions.total()),
                number(one.actions["trim"]),
                number(one.actions["hold"]),
                number(one.records),
                size(one.size_bytes),
                _held_back_by(one),
            )
            for cluster, one in shown
        ],
        ["yellow" if one.actions["trim"] else "magenta" if one.actions["hold"] else None for _, one in shown],
        markdown=markdown,
    )


def _held_back_by(one: TopicRows) -> str:
    most = [part for part, _ in sorted(one.held.items(), key=lambda item: (-item[1], item[0]))]
    return ", ".join(most[:3]) + (", …" if len(most) > 3 else "")


def _print_totals(fleet: FleetPlan, *, markdown: bool) -> None:
    if not fleet.plans:
        screen.say()
        screen.say(f"None of {count(len(fleet.clusters), 'cluster')} could be planned.", "bold")
        return
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
        going = quantity(totals.records, totals.size_bytes, "would be trimmed", exact=totals.size_exact)
        lines.append((f"{going}. {unread}", None))
    else:
        lines.append(("Nothing to trim.", None))
    lines += [
        (f"trim would refuse the plan of {name}: {reason.text} ({reason.code}).", "bold red")
        for name, one in fleet.plans.items()
        for reason in one.refusals
    ]
    if (off := plan.rules_off(fleet.plans.values())) is not None:
        lines.append((off, None))
    lines.append(("Clocks unchecked: ours is trusted (G8).", "dim"))
    screen.say()
    for text, style in lines:
        screen.say(f"{text}\n" if markdown and text is not lines[-1][0] else text, style)


def print_failures(title: str, failures: Mapping[str, Failure], *, markdown: bool = False) -> None:
    """Print a heading, then each cluster that failed and why; nothing if none did."""
    if failures:
        screen.heading(title, markdown=markdown)
        for name, failure in failures.items():
            screen.bullet(name, "bold red", markdown=markdown)
            screen.bullet(failure.error, indent=4, markdown=markdown)
