"""A plan as a page: what would go, what holds it, the biggest topics, who holds back the most, disks over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kretain.render.output import count, number, size
from kretain.render.page.charts import GO, HOLD, STAY, bars
from kretain.render.page.disks_part import disks_section
from kretain.render.page.elements import Child, Element, cards, element, page, section, table
from retention_cli.core.printable import shell_word
from retention_cli.core.units import format_time
from retention_cli.memory.disk import Look
from retention_cli.plan.value import NO_FILE, Plan
from retention_cli.policy.shown import short
from retention_cli.reports.plan_summary import ConsumerSum, PlanSummary, ReasonSum, command_for, summarize

MOST: Final = 25
"""A table has no more rows than this; totals are of all."""
_DRAWN: Final = 12
_NAME: Final = 120
_ACTIONS: Final = {
    "hold": "On hold",
    "trim": "Worth knowing of what would go",
    "keep": "Worth knowing of what stays",
    "skip": "Never touched",
}


def plan_page(
    plan: Plan, disks: Mapping[str, Sequence[Look]], notes: Sequence[str], more: Sequence[Element] = ()
) -> str:
    """Return the page of a plan.

    ``disks`` are the ledger's looks, ``notes`` what of it could not be read, ``more`` other parts of the page.
    """
    found = summarize(plan, MOST)
    rules = f"{plan.policy_source}, one-off rules" if plan.rules == "one-off" else plan.policy_source
    facts = [
        ("Cluster", plan.cluster_id),
        ("Brokers", short(plan.bootstrap)),
        ("Policy", "one-off rules" if plan.policy_source == NO_FILE else rules),
        ("Made at", format_time(plan.created_at_ms // 1000 * 1000)),
        *([("Topics", ", ".join(plan.topics[:6]))] if plan.topics else []),
    ]
    return page(
        f"Trim plan for {plan.cluster_id}",
        _lead(found),
        facts,
        _cards(found),
        _topics(found),
        _consumers(found),
        *_reasons(found, plan),
        *more,
        disks_section(disks, notes),
    )


def _lead(found: PlanSummary) -> str:
    totals = found.totals
    if not totals.trim:
        held = f"{count(totals.hold, 'partition is', 'partitions are')} on hold." if totals.hold else "All is known."
        return f"Nothing would go. {held}"
    bytes_of = "" if totals.size_bytes is None else f", about {size(totals.size_bytes)} of the leaders' logs"
    unread = (
        f"{count(totals.unconsumed, 'of them is', 'of them are')} not read by every consumer that counts."
        if totals.unconsumed
        else "Every consumer that counts has read them."
    )
    return f"{count(totals.records, 'record')} would go{bytes_of}. {unread}"


def _cards(found: PlanSummary) -> Element:
    totals = found.totals
    return cards(
        [
            (number(totals.records), "records would go", "go"),
            (size(totals.size_bytes), "of the leaders' logs", "go"),
            (number(totals.unconsumed), "of these records unread", "bad" if totals.unconsumed else ""),
            (number(totals.trim), "partitions to trim", "go"),
            (number(totals.hold), "on hold", "hold" if totals.hold else ""),
            (number(totals.keep), "have nothing to trim", ""),
            *([(number(totals.skip), "never touched", "")] if totals.skip else []),
        ]
    )


def _topics(found: PlanSummary) -> Element | None:
    if not found.topics:
        return None
    drawn = [one for one in found.largest if one.records][:_DRAWN]
    chart = (
        bars(
            "Records of the biggest topics: what would go, what stays, what is on hold",
            [one.name for one in drawn],
            {
                "would go": (GO, [one.going for one in drawn]),
                "stays": (STAY, [one.staying for one in drawn]),
                "on hold": (HOLD, [one.held_records for one in drawn]),
            },
        )
        if drawn
        else None
    )
    rows: list[Sequence[Child]] = [
        (
            element("code", short(one.name) if len(one.name) < _NAME else one.name[:_NAME] + "…"),
            number(one.partitions),
            number(one.records),
            number(one.going),
            size(one.size_bytes),
            number(one.unconsumed),
            number(one.on_hold),
        )
        for one in found.topics
    ]
    heads = ("topic", "partitions", "records now", "would go", "bytes", "unread", "on hold")
    first = (
        f"Drawn: the biggest. In the table: those of which most would go. {_of(len(rows), found.topic_count, 'topic')}"
    )
    return section("Topics", chart, table(heads, rows), note=first)


def _consumers(found: PlanSummary) -> Element | None:
    if not found.consumers:
        return None
    drawn = found.consumers[:_DRAWN]
    chart = bars(
        "Records that each consumer has yet to read where it is the furthest behind",
        [_consumer(one) for one in drawn],
        {"yet to read": (HOLD, [one.records for one in drawn])},
    )
    rows: list[Sequence[Child]] = [
        (element("code", _consumer(one)), number(one.records), number(one.partitions), number(len(one.topics)))
        for one in found.consumers
    ]
    note = "Where a consumer is the furthest behind of all that count, it is what consumed and guarded rules stop at. "
    return section(
        "Who holds back the most",
        chart,
        table(("consumer", "records to read", "partitions", "topics"), rows),
        note=note + _of(len(rows), found.consumer_count, "consumer"),
    )


def _consumer(one: ConsumerSum) -> str:
    return short(one.name.removeprefix("group:"))


def _reasons(found: PlanSummary, plan: Plan) -> list[Element]:
    parts = []
    for action, title in _ACTIONS.items():
        mine = [one for one in found.reasons if one.action == action]
        if mine:
            note = _of(len(found.reasons), found.reason_count, "reason") if action == "hold" else None
            parts.append(section(title, *(_reason(one, plan) for one in mine), note=note))
    return parts


def _reason(one: ReasonSum, plan: Plan) -> Element:
    places = ", ".join(short(str(tp)) for tp in one.places)
    more = one.partitions - len(one.places)
    where = f"{count(one.partitions, 'partition')} of {count(len(one.topics), 'topic')}: {places}"
    return element(
        "div",
        element("p", element("span", one.reason.code, class_="tag"), one.reason.text),
        element("p", where + (f" and {more:,} more" if more > 0 else ""), class_="note"),
        element("p", element("code", _command(one, plan))),
        class_=f"reason {one.action}",
    )


def _command(one: ReasonSum, plan: Plan) -> str:
    first = one.places[0]
    line = command_for(one).replace("{topic}", shell_word(first.topic))
    line = line.replace("{place}", shell_word(f"{first.topic}:{first.partition}"))
    given = f"-b {shell_word(plan.bootstrap)}"
    return f"{line} {given}" if plan.policy_source == NO_FILE else f"{line} -p {shell_word(plan.policy_source)} {given}"


def _of(shown: int, there: int, noun: str) -> str:
    return f"All {count(there, noun)}." if shown >= there > 1 else f"{shown:,} of {count(there, noun)}."
