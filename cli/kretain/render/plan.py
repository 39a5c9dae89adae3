"""A plan on the screen and for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kretain.options import PlanOutput
from kretain.render import data, screen
from kretain.render.screen import Column
from kretain.render.words import count, number, partitions, size
from retention_cli.model import Decision, Reason
from retention_cli.plan import Plan, as_json, delete_records_json, head_as_json, row_as_json

SHOWN = 40
"""More rows than these are not a table any more: then the totals, the holds and the largest rows are."""
MOST = 20

COLUMNS = (
    "topic", "topic_id", "partition", "action", "log_start", "high_watermark", "last_stable_offset", "min_commit",
    "min_commit_by", "trim_to", "records", "bytes", "unconsumed", "rule", "limited_by", "reasons",
)  # fmt: skip

_STYLES = {"trim": "yellow", "hold": "magenta", "keep": None, "skip": "dim"}


def print_plan(plan: Plan, output: PlanOutput, *, every_row: bool) -> None:
    """Print the plan as asked."""
    match output:
        case PlanOutput.json:
            data.print_json(head_as_json(plan), "partitions", (row_as_json(one) for one in plan.decisions))
        case PlanOutput.jsonl:
            data.print_jsonl(row_as_json(one) for one in plan.decisions)
        case PlanOutput.yaml:
            data.print_yaml(as_json(plan))
        case PlanOutput.csv:
            data.print_csv(COLUMNS, (row_as_json(one) for one in plan.decisions))
        case PlanOutput.delete_records:
            _print_delete_records(plan)
        case PlanOutput.table | PlanOutput.markdown:
            _print_table(plan, markdown=output == PlanOutput.markdown, every_row=every_row)


def _print_delete_records(plan: Plan) -> None:
    content = delete_records_json(plan)
    rows = content.pop("partitions")
    data.print_json(content, "partitions", rows)


def _print_table(plan: Plan, *, markdown: bool, every_row: bool) -> None:
    rows = list(plan.decisions)
    if len(rows) > SHOWN and not every_row:
        rows = _that_matter(rows)
        screen.say(f"The {len(rows)} of {len(plan.decisions):,} partitions that matter most (all of them: --all, or -o csv):")
        screen.say()
    screen.print_table(
        (
            Column("partition"), Column("action"), Column("log start → trim to", "right"), Column("records", "right"),
            Column("bytes", "right"), Column("rule"), Column("held back by"),
        ),  # fmt: skip
        [
            (
                str(one.tp), one.action, _move(one), number(one.records) if one.trim_to is not None else "",
                size(one.size_bytes) if one.trim_to is not None else "", one.rule or "", held_back_by(one),
            )  # fmt: skip
            for one in rows
        ],
        [_STYLES[one.action] for one in rows],
        markdown=markdown,
    )
    print_totals(plan)
    print_holds(plan.decisions)


def _that_matter(rows: Sequence[Decision]) -> list[Decision]:
    """The largest trims; where there are few, holds too."""
    order = {"trim": 0, "hold": 1, "keep": 2, "skip": 3}
    chosen = sorted(rows, key=lambda one: (order[one.action], -one.records, one.tp))[:MOST]
    return sorted(chosen, key=lambda one: one.tp)


def _move(one: Decision) -> str:
    if one.trim_to is not None:
        return f"{number(one.log_start)} → {number(one.trim_to)}"
    return number(one.log_start)


def held_back_by(one: Decision) -> str:
    """Return what keeps the rest of the partition from going: a consumer, a guard, or a reason's code."""
    if one.action in ("hold", "skip"):
        return ", ".join(dict.fromkeys(reason.code for reason in one.reasons))
    reached = one.trim_to if one.trim_to is not None else one.log_start
    if one.limited_by is not None and one.limited_by != "G2":
        return one.limited_by
    if one.min_commit is not None and one.min_commit_by is not None and reached is not None:
        behind = one.high_watermark is not None and one.min_commit < one.high_watermark
        if behind and one.min_commit <= reached:
            return one.min_commit_by.removeprefix("group:")
    return ""


def print_totals(plan: Plan) -> None:
    """Print what would go, whose it is, and what trim would say to it."""
    totals = plan.totals
    counts = [
        f"{amount:,} {word}"
        for word, amount in (("trim", totals.trim), ("keep", totals.keep), ("hold", totals.hold), ("skip", totals.skip))
        if amount
    ]
    screen.say()
    screen.say(f"{count(totals.partitions, 'partition')}: {', '.join(counts) or 'none'}.", "bold")
    if totals.trim:
        about = "" if totals.size_bytes is None else f", about {size(totals.size_bytes)} on each leader's disk"
        screen.say(f"{count(totals.records, 'record')} would go{about}. {_unread(plan)}")
    else:
        screen.say("Nothing to trim.")
    for reason in plan.refusals:
        screen.say(f"trim would refuse this plan: {reason.text} ({reason.code}).", "bold red")
    screen.say("Clock unchecked: the brokers' time can't be had, ours is trusted (G8).", "dim")


def _unread(plan: Plan) -> str:
    unread = plan.totals.unconsumed
    if not unread:
        return "All of them were read by every consumer that counts."
    by_group = sorted(plan.unconsumed_by.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{name} {amount:,}" for name, amount in by_group[:5])
    more = f" and {len(by_group) - 5} more" if len(by_group) > 5 else ""
    return f"{count(unread, 'of them is', 'of them are')} not read by everybody" + (f": {named}{more}." if named else ".")


def print_holds(decisions: Iterable[Decision]) -> None:
    """Print every hold with its reasons, partitions with the same reasons together; then what else is worth knowing."""
    holds: dict[tuple[Reason, ...], list[Decision]] = {}
    notes: dict[tuple[Reason, ...], list[Decision]] = {}
    for one in decisions:
        if one.action == "hold":
            holds.setdefault(one.reasons, []).append(one)
        elif one.reasons and one.action in ("trim", "keep"):
            notes.setdefault(one.reasons, []).append(one)
    _print_reasons("On hold", holds, "magenta")
    _print_reasons("Worth knowing", notes, None)


def _print_reasons(title: str, grouped: dict[tuple[Reason, ...], list[Decision]], style: str | None) -> None:
    if not grouped:
        return
    screen.heading(title)
    largest_first = sorted(grouped.items(), key=lambda item: (-len(item[1]), item[1][0].tp))
    for reasons, members in largest_first[:MOST]:
        screen.bullet(partitions(one.tp for one in members), style)
        for reason in reasons:
            screen.bullet(f"{reason.code}  {reason.text}", indent=4)
    if len(largest_first) > MOST:
        screen.bullet(f"and {len(largest_first) - MOST:,} more reasons (-o csv shows each partition's)")

