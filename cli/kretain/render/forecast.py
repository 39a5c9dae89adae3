"""A forecast on the screen and for scripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from kretain.options.common import Output
from kretain.render import data
from kretain.render.forecast_data import CSV_COLUMNS, head, topic_rows
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from kretain.render.kit.text import about, count, size
from retention_cli.core.grouping import grouped
from retention_cli.core.model import Maybe, TopicPartition, Unknown
from retention_cli.core.units import format_age, format_duration
from retention_cli.forecast.loss import Loss
from retention_cli.forecast.make import saved
from retention_cli.forecast.rates import HOUR_MS
from retention_cli.forecast.span import Span
from retention_cli.forecast.value import Amounts, DiskForecast, Forecast, GroupForecast, TopicForecast
from retention_cli.memory.disk import Growth

SHOWN: Final = 15
"""A table has no more topics than this, and no more groups."""
_BAR: Final = 24
_REASONS: Final = 6


def print_forecast(one: Forecast, other: Forecast | None, output: Output, *, every_row: bool) -> None:
    """Print a forecast, beside another policy's if there is one."""
    match output:
        case Output.json:
            data.print_json(head(one, other), "topics", topic_rows(one, other))
        case Output.yaml:
            data.print_yaml({**head(one, other), "topics": list(topic_rows(one, other))})
        case Output.csv:
            data.print_csv(CSV_COLUMNS, topic_rows(one, other))
        case Output.table:
            _print_tables(one, other, every_row=every_row)


def _print_tables(one: Forecast, other: Forecast | None, *, every_row: bool) -> None:
    most = len(one.topics) if every_row else SHOWN
    topics = sorted(one.topics, key=_largest_first)[:most]
    if len(one.topics) > len(topics):
        screen.say(f"The {len(topics)} of {count(len(one.topics), 'topic')} that matter most (all: --all, or -o csv):")
        screen.say()
    others = {} if other is None else {topic.name: topic for topic in other.topics}
    screen.print_table(
        (
            Column("topic"),
            Column("an hour", "right", spare=True),
            Column("now", "right", spare=True),
            Column("brokers alone", "right"),
            Column("policy", "right"),
            *((Column("compared", "right"),) if other is not None else ()),
            Column("by"),
            Column("saves", "right"),
        ),
        [_topic_cells(topic, others.get(topic.name), compares=other is not None) for topic in topics],
    )
    _chart(topics)
    _print_totals(one, other)
    _print_disks(one, other)
    _print_groups(one, every_row=every_row)
    _print_reasons(one)


def _topic_cells(one: TopicForecast, other: TopicForecast | None, *, compares: bool) -> list[str]:
    rate = "?" if isinstance(one.rate, Unknown) else f"{one.rate.mean * HOUR_MS:,.0f}"
    return [
        one.name,
        rate,
        amount(one.now),
        amount(one.alone),
        amount(one.policy),
        *(("?" if other is None else amount(other.policy),) if compares else ()),
        one.by,
        amount(saved(one.alone, one.policy)),
    ]


def _largest_first(one: TopicForecast) -> tuple[bool, float, str]:
    spans = [span for span in (one.alone.size_bytes, one.policy.size_bytes, one.now.size_bytes) if _finite(span)]
    largest = max((span.high for span in spans if not isinstance(span, Unknown)), default=0.0)
    endless = not isinstance(one.alone.records, Unknown) and one.alone.records.endless
    return (not endless, -largest, one.name)


def _finite(span: Maybe[Span]) -> bool:
    return not isinstance(span, Unknown) and span.bounded


def _chart(topics: Sequence[TopicForecast]) -> None:
    """Draw what brokers alone keep, and what the policy keeps of it, each bar to the same scale."""
    rows = [
        (one.name, one.alone.size_bytes, one.policy.size_bytes)
        for one in topics
        if not isinstance(one.alone.size_bytes, Unknown) and not isinstance(one.policy.size_bytes, Unknown)
    ]
    ends = [span.high for _, alone, policy in rows for span in (alone, policy) if span.bounded]
    if not ends or max(ends) <= 0:
        return
    screen.heading("█ the policy keeps, ▒ brokers alone would keep beyond that")
    width = min(30, max(len(name) for name, _, _ in rows))
    for name, alone, policy in rows:
        kept, all_of_it = (_cells(span, max(ends)) for span in (policy, alone))
        beyond = "▒" * max(0, all_of_it - kept)
        label = name if len(name) <= width else name[: width - 1] + "…"
        screen.say(f"  {label:<{width}} {'█' * kept}{beyond}{'' if alone.bounded else '→'}")


def _cells(span: Span, most: float) -> int:
    value = span.high if span.bounded else most
    return max(1 if value else 0, round(_BAR * min(value, most) / most))


def _print_totals(one: Forecast, other: Forecast | None) -> None:
    totals = one.totals
    screen.say()
    if totals.known:
        screen.say(
            f"{count(totals.known, 'topic')} in steady state: brokers alone would keep {spelled(totals.alone)}; "
            f"{one.policy_source} keeps {spelled(totals.policy)}. It saves {spelled(totals.saved)} (one replica each).",
            "bold",
        )
    if other is not None and other.totals.known:
        screen.say(
            f"{other.policy_source} keeps {spelled(other.totals.policy)}, and saves {spelled(other.totals.saved)}."
        )
    if ended := totals.endless - totals.growing:
        grow = "grow" if ended > 1 else "grows"
        screen.say(
            f"{count(ended, 'topic')} {grow} without end by brokers alone; the policy keeps {spelled(totals.ended)}."
        )
    if totals.growing:
        grow = "grow" if totals.growing > 1 else "grows"
        screen.say(f"{count(totals.growing, 'topic')} {grow} without end under the policy, too.", "yellow")
    if totals.unknown:
        screen.say(f"Unknown for {count(totals.unknown, 'topic')} (see below).", "magenta")
    screen.say(
        f"Trims every {format_duration(one.every_ms)}; consumers stay as far behind as they are; rates are the "
        f"ledger's. A range is from right after a trim to right before the next, at the lowest and highest rate seen.",
        "dim",
    )


def _print_disks(one: Forecast, other: Forecast | None) -> None:
    if not one.disks:
        return
    screen.heading("When disks are full")
    others = {} if other is None else {disk.disk.key: disk for disk in other.disks}
    ceilings = any(disk.ceiling is not None for disk in one.disks)
    screen.print_table(
        (
            Column("disk"),
            Column("used", "right"),
            Column("as measured", "right"),
            Column("brokers alone", "right"),
            Column("policy", "right"),
            *((Column("compared", "right"),) if other is not None else ()),
            *((Column("at its ceiling", "right"),) if ceilings else ()),
        ),
        [_disk_cells(disk, others.get(disk.disk.key), other is not None, ceilings) for disk in one.disks],
    )
    still = sum(disk.still_bytes for disk in one.disks)
    if still:
        screen.say(f"{size(still)} of other users and other topics are taken to stay as they are.", "dim")


def _disk_cells(one: DiskForecast, other: DiskForecast | None, compares: bool, ceilings: bool) -> list[str]:
    room, grows = one.disk.room, one.growth
    measured = "?"
    if isinstance(grows, Growth):
        measured = "never" if grows.full_in_ms is None else about(grows.full_in_ms)
    return [
        one.disk.name,
        "?" if isinstance(room, Unknown) else f"{room.percent:.1f} %",
        measured,
        time(one.alone),
        time(one.policy),
        *(("?" if other is None else time(other.policy),) if compares else ()),
        *(("—" if one.ceiling is None else time(one.ceiling),) if ceilings else ()),
    ]


def _print_groups(one: Forecast, *, every_row: bool) -> None:
    groups = one.groups if every_row else one.groups[:SHOWN]
    if not groups:
        return
    screen.heading("Who loses data next")
    screen.print_table(
        (
            Column("group"),
            Column("topic"),
            Column("lag", "right"),
            Column("to", "left", whole=True),
            Column("if it stops now", "right"),
            Column("at its rate", "right"),
        ),
        [_group_cells(group) for group in groups],
        ["red" if _is_soon(group) else None for group in groups],
    )
    if len(one.groups) > len(groups):
        screen.say(f"and {len(one.groups) - len(groups):,} more (--all, or -o json).", "dim")


def _is_soon(one: GroupForecast) -> bool:
    return not isinstance(one.loss, Unknown) and one.loss.sure and one.loss.if_stopped_ms.low < HOUR_MS


def _group_cells(one: GroupForecast) -> list[str]:
    loss: Loss | None = None if isinstance(one.loss, Unknown) else one.loss
    cause = "?" if loss is None else "—" if math.isinf(loss.if_stopped_ms.low) else loss.cause
    return [
        one.group,
        f"{one.topic}-{one.partition}",
        f"{one.lag:,}",
        cause,
        "?" if loss is None else _loss_time(loss),
        "?" if loss is None else time(loss.at_its_rate_ms),
    ]


def _loss_time(loss: Loss) -> str:
    if loss.cause == "gone":
        return "has lost some"
    if loss.sure:
        return time(loss.if_stopped_ms)
    return "?" if math.isinf(loss.if_stopped_ms.high) else f"within {_age(loss.if_stopped_ms.high)}"


def _print_reasons(one: Forecast) -> None:
    found = grouped((TopicPartition(topic.name, 0), tuple(topic.reasons)) for topic in one.topics if topic.reasons)
    if not found:
        return
    screen.heading("What is unknown, and which rules can't act")
    for same in found[:_REASONS]:
        names = ", ".join(tp.topic for tp in same.places[:_REASONS])
        more = f" and {same.count - _REASONS:,} more" if same.count > _REASONS else ""
        screen.bullet(f"{names}{more}")
        for reason in same.reasons[:_REASONS]:
            screen.bullet(f"{reason.code}  {reason.text}", indent=4)
    if len(found) > _REASONS:
        screen.bullet(f"and {len(found) - _REASONS:,} more (-o csv has each topic's)")


def amount(amounts: Amounts) -> str:
    """Return an amount for a cell: its bytes, else its records, else a question mark."""
    if isinstance(amounts.records, Unknown):
        return "?"
    if isinstance(amounts.size_bytes, Unknown):
        return f"{_range(amounts.records, _records)} rec."
    return _range(amounts.size_bytes, _bytes)


def spelled(amounts: Amounts) -> str:
    """Return an amount for a sentence: records and bytes."""
    if isinstance(amounts.records, Unknown):
        return "an unknown amount"
    text = f"{_range(amounts.records, _records)} records"
    return text if isinstance(amounts.size_bytes, Unknown) else f"{text}, {_range(amounts.size_bytes, _bytes)}"


def time(span: Maybe[Span]) -> str:
    """Return a time to come for a cell: a range, ``never``, or a question mark."""
    if isinstance(span, Unknown):
        return "?"
    if math.isinf(span.low):
        return "never"
    if math.isinf(span.high):
        return f"≥ {_age(span.low)}" if span.low else "may be now"
    low, high = _age(span.low), _age(span.high)
    return low if low == high else f"{low}–{high}"


def _age(ms: float) -> str:
    whole = int(ms)
    for unit in (86_400_000, HOUR_MS, 60_000, 1_000):
        if whole >= 3 * unit:  # no finer than this: it is a forecast
            return format_age(whole // unit * unit)
    return "now" if whole < 1_000 else format_age(whole // 1_000 * 1_000)


def _range(span: Span, text: Callable[[float], str]) -> str:
    """Return a range, with a unit that both ends have once: ``7.53–9.63 MiB``."""
    if span.endless:
        return "without end"
    low = text(span.low)
    if not span.bounded:
        return f"≥ {low}" if span.low else "—"
    high = text(span.high)
    if low == high:
        return low
    amount, _, unit = low.partition(" ")
    return f"{amount}–{high}" if unit == high.partition(" ")[2] else f"{low}–{high}"


def _bytes(value: float) -> str:
    return size(round(value))


def _records(value: float) -> str:
    return f"{round(value):,}"
