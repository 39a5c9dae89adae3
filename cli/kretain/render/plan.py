"""A plan on the screen and for scripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kretain.options.common import PlanOutput
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.reasons import MOST, print_reasons
from kretain.render.kit.screen import Column
from kretain.render.kit.text import count, number, quantity, size
from retention_cli.core.model import Decision
from retention_cli.core.printable import name_in_text
from retention_cli.core.units import format_age, format_duration, format_time
from retention_cli.plan.columns import NAMES
from retention_cli.plan.rows import having, held_back_by, most_important, rows_as_json
from retention_cli.plan.value import NO_FILE, Plan, as_json, delete_records_json, head_as_json
from retention_cli.policy.settings import TRIGGER_FLAGS

if TYPE_CHECKING:  # only plans that speak of disks need it
    from retention_cli.disks.solve.outcome import Space

SHOWN = 40
"""A table has no more rows than this: beyond that, only totals, holds and the largest rows are shown."""

_STYLES = {"trim": "yellow", "hold": "magenta", "keep": None, "skip": "dim"}


def print_plan(plan: Plan, output: PlanOutput, *, every_row: bool) -> None:
    """Print the plan in the wanted format."""
    match output:
        case PlanOutput.json:
            data.print_json(head_as_json(plan), "partitions", rows_as_json(plan.decisions))
        case PlanOutput.jsonl:
            data.print_jsonl(rows_as_json(plan.decisions))
        case PlanOutput.yaml:
            data.print_yaml(as_json(plan))
        case PlanOutput.csv:
            data.print_csv(NAMES, rows_as_json(plan.decisions))
        case PlanOutput.delete_records:
            _print_delete_records(plan)
        case PlanOutput.table | PlanOutput.markdown:
            _print_table(plan, markdown=output == PlanOutput.markdown, every_row=every_row)


def _print_delete_records(plan: Plan) -> None:
    content = delete_records_json(plan)
    rows = content.pop("partitions")
    data.print_json(content, "partitions", rows)


def _print_table(plan: Plan, *, markdown: bool, every_row: bool) -> None:
    shortened = len(plan.decisions) > SHOWN and not every_row
    rows = most_important(plan.decisions, MOST) if shortened else list(plan.decisions)
    if shortened:
        screen.say(
            f"The {len(rows)} of {len(plan.decisions):,} partitions that matter most (all of them: --all, or -o csv):"
        )
        screen.say()
    screen.print_table(
        (
            Column("partition"),
            Column("action", whole=True),
            Column("log start → trim to", "right"),
            Column("records", "right"),
            Column("bytes", "right"),
            Column("rule"),
            Column("held back by"),
        ),
        [
            (
                str(one.tp),
                one.action,
                _move(one),
                number(one.records) if one.trim_to is not None else "",
                size(one.size_bytes) if one.trim_to is not None else "",
                one.rule or "",
                ", ".join(map(name_in_text, held_back_by(one))),
            )
            for one in rows
        ],
        [_STYLES[one.action] for one in rows],
        markdown=markdown,
    )
    _print_totals(plan, markdown=markdown)
    held = ((one.tp, one.reasons) for one in having(plan.decisions, "hold"))
    noted = ((one.tp, one.reasons) for one in having(plan.decisions, "trim", "keep", reasons=True))
    skips = having(plan.decisions, "skip")
    skipped = ((one.tp, one.reasons) for one in skips if not one.topic.startswith("__"))
    print_reasons("On hold", held, "magenta", markdown=markdown)
    print_reasons("Worth knowing", noted, markdown=markdown)
    print_reasons("Never touched", skipped, "dim", markdown=markdown)


_YOUNG_MS: Final = 7 * 86_400_000
"""Brokers forget a group's offsets after a week by default: what expired before the first look is unknown."""


def _young_memory(plan: Plan) -> str | None:
    """Return what a memory of less than a week can't know (F6), None if it is older or there is none."""
    if plan.memory_since_ms is None or plan.created_at_ms - plan.memory_since_ms >= _YOUNG_MS:
        return None
    age_ms = plan.created_at_ms - plan.memory_since_ms
    looks = "First look at this cluster" if age_ms <= 0 else f"First look at this cluster {format_age(age_ms)} ago"
    return (
        f"{looks}: groups whose offsets had expired before (offsets.retention.minutes) are unknown, and protect "
        "nothing. Let plans run for some days before the first trim, or name them in groups.require (F6)."
    )


def _move(one: Decision) -> str:
    if one.trim_to is not None:
        return f"{number(one.log_start)} → {number(one.trim_to)}"
    return number(one.log_start)


def _print_totals(plan: Plan, *, markdown: bool) -> None:
    """Print the totals, which groups would lose unread records, and why trim would refuse. Markdown has paragraphs."""
    totals = plan.totals
    counts = [
        f"{amount:,} {word}"
        for word, amount in (("trim", totals.trim), ("keep", totals.keep), ("hold", totals.hold), ("skip", totals.skip))
        if amount
    ]
    lines: list[tuple[str, str | None]] = [
        (f"{count(totals.partitions, 'partition')}: {', '.join(counts) or 'none'}.", "bold")
    ]
    if totals.trim:
        going = quantity(totals.records, totals.size_bytes, "would be trimmed", exact=totals.size_exact)
        lines.append((f"{going}. {_unread(plan)}", None))
        lines.append((given_back(plan.space), None))
    else:
        lines.append(("Nothing to trim.", None))
        if plan.space is not None and plan.space.dead_bytes:
            lines.append((given_back(plan.space), None))
    lines += [(f"trim would refuse this plan: {one.text} ({one.code}).", "bold red") for one in plan.refusals]
    if (off := rules_off([plan])) is not None:
        lines.append((off, None))
    asks = "only a trim asks the brokers for theirs" if plan.memory == "cluster" else "the brokers' time can't be had"
    lines.append((f"Clock unchecked: {asks}, ours is trusted (G8).", "dim"))
    if (young := _young_memory(plan)) is not None:
        lines.append((young, "dim"))
    screen.say()
    for text, style in lines:
        screen.say(f"{text}\n" if markdown and text is not lines[-1][0] else text, style)


def rules_off(plans: Iterable[Plan]) -> str | None:
    """Return a sentence on the rules that one-off flags turn off; None if there is no policy file or no such flag."""
    chosen = [one for one in plans if one.rules == "one-off" and one.policy_source != NO_FILE]
    if not chosen:
        return None
    given = chosen[0].flags
    flags = " ".join(_as_typed(name, given[name]) for name in (*TRIGGER_FLAGS, "--unconsumed") if name in given)
    files = list(dict.fromkeys(one.policy_source for one in chosen))
    named = ", ".join(files[:3]) + (f" and {len(files) - 3:,} more" if len(files) > 3 else "")
    whose = "its" if len(files) == 1 else "their"
    return f"One-off rules: {flags}. The rules of {named} are off for this run; {whose} guards, holds and limits stay."


def _as_typed(name: str, value: int | str) -> str:
    """Return a flag as it may have been typed: ``--older-than 7d``."""
    if not isinstance(value, int):
        return f"{name} {value}"
    text = format_time(value) if name == "--before" else format_duration(value).replace(",", "").replace(" ", "")
    return f"{name} {text}"


def given_back(space: Space | None) -> str:
    """Return how much disk space brokers free, and when, as a text; without disk rules, how they free it."""
    if space is None:
        return (
            "Brokers free whole segments, at their next retention check (log.retention.check.interval.ms), and "
            "file.delete.delay.ms later."
        )
    check = "log.retention.check.interval.ms" if space.check_ms is None else format_duration(space.check_ms)
    delay = "file.delete.delay.ms" if space.delay_ms is None else format_duration(space.delay_ms)
    when = f"within {check} (their next retention check) and {delay} more (the files' delay)"
    freed = f"{'about ' if space.estimated else ''}{size(space.freed_bytes)}"
    dead = f"{'up to ' if space.estimated else ''}{size(space.dead_bytes)}"
    missing = space.disks - space.told
    rest = f" Unknown for {count(missing, 'disk')}." if missing else ""
    if not space.freed_bytes:
        if not space.dead_bytes:
            return f"It deletes no whole segment, so the brokers' disks stay as full as they are.{rest}"
        return f"Brokers give back {dead} that are dead already, {when}.{rest}"
    also = f", and {dead} that are dead already" if space.dead_bytes else ""
    return f"Brokers give back {freed} of their disks, all replicas counted{also}, {when}.{rest}"


def _unread(plan: Plan) -> str:
    unread = plan.totals.unconsumed
    if not unread:
        return "All of them were read by every consumer that counts."
    by_group = sorted(plan.unconsumed_by.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{name_in_text(name.removeprefix('group:'))} {amount:,}" for name, amount in by_group[:5])
    more = f" and {len(by_group) - 5} more" if len(by_group) > 5 else ""
    return f"{count(unread, 'of them is', 'of them are')} not read by everybody" + (
        f": {named}{more}." if named else "."
    )
