"""A forecast: tables and bars for people; for scripts JSON types, times in ms, sizes in bytes (docs/forecast.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from kretain.render.output import (
    BLANK,
    MOST,
    NAMED,
    Column,
    Line,
    Part,
    Table,
    about,
    heading,
    number,
    reason_line,
    show,
    size,
    that_matter_most,
)
from retention_cli.core.grouping import grouped
from retention_cli.core.model import Maybe, TopicPartition, Unknown, known
from retention_cli.core.printable import short
from retention_cli.core.units import count, format_age, format_duration, some_of, timestamp
from retention_cli.forecast.cost import by_consumer, by_label, total_of
from retention_cli.forecast.loss import seconds_to_loss
from retention_cli.forecast.steady import saved
from retention_cli.forecast.value import (
    HOUR_MS,
    Amounts,
    Bill,
    Bills,
    DiskForecast,
    Forecast,
    GroupForecast,
    Loss,
    Span,
    TopicBill,
    TopicForecast,
    Totals,
)

FORMAT: Final = "kretain.forecast/v1"
_BAR: Final = 24
COSTS: Final = {  # a bill's keys, and their titles
    "cost_now": "a month now",
    "cost_saved_so_far": "saved so far",
    "cost_saved_month": "saved a month",
    "cost_unread_month": "kept unread a month",
}
CSV_COLUMNS: Final = (
    *("topic", "partitions", "now_records", "now_bytes", "records_per_hour", "records_per_hour_low"),
    *("records_per_hour_high", "measured_ms"),
    *(
        f"{scenario}{part}"
        for scenario in ("alone", "policy", "compared")
        for part in ("", "_records_low", "_records_high", "_bytes_low", "_bytes_high")
    ),
    *("policy_by", "compared_by", "saved_records_low", "saved_records_high", "saved_bytes_low", "saved_bytes_high"),
    *("labels", *(f"{key}_{end}" for key in COSTS for end in ("low", "high"))),
    "reasons",
)


def print_forecast(one: Forecast, other: Forecast | None, output: str, *, every_row: bool) -> None:
    """Print a forecast, next to another policy's if there is one.

    In rows null is unknown or without end: ``alone``, ``policy`` and ``compared`` say which.
    """
    show(
        output,
        forecast_head(one, other) if output in ("json", "yaml") else {},
        "topics",
        topic_rows(one, other),
        lambda: _forecast(one, other, every_row=every_row),
        CSV_COLUMNS,
    )


def _forecast(one: Forecast, other: Forecast | None, *, every_row: bool) -> list[Part]:
    policies = {} if other is None else {topic.name: _retained(topic.policy) for topic in other.topics}
    topics = sorted(one.topics, key=_largest_first)[: None if every_row else MOST]
    return [
        *that_matter_most(topics, len(one.topics), "topics that matter most"),
        Table(
            (
                *(Column("topic"), Column("an hour", "right", spare=True), Column("now", "right", spare=True)),
                *(Column("brokers alone", "right"), Column("policy", "right")),
                *((Column("compared", "right"),) if other is not None else ()),
                *(Column("by"), Column("saves", "right")),
            ),
            [
                (
                    topic.name,
                    "?" if isinstance(topic.rate, Unknown) else f"{topic.rate.mean * HOUR_MS:,.0f}",
                    *map(_retained, (topic.now, topic.alone, topic.policy)),
                    *((policies.get(topic.name, "?"),) if other is not None else ()),
                    topic.by,
                    _retained(saved(topic.alone, topic.policy)),
                )
                for topic in topics
            ],
        ),
        *_chart(topics),
        BLANK,
        *_totals_text(one, other),
        *(_disks(one, other) if one.disks else ()),
        *(_groups(one, every_row=every_row) if one.groups else ()),
        *(() if one.bills is None else _money(one.bills, None if every_row else MOST)),
        *_reasons_text(one),
    ]


def _largest_first(one: TopicForecast) -> tuple[bool, float, str]:
    return (
        isinstance(one.alone.records, Unknown) or not one.alone.records.endless,
        -_largest((one.alone.size_bytes, one.policy.size_bytes, one.now.size_bytes)),
        one.name,
    )


def _largest(spans: Iterable[Maybe[Span]]) -> float:
    return max((span.high for span in spans if isinstance(span, Span) and span.bounded), default=0.0)


def _chart(topics: Sequence[TopicForecast]) -> list[Part]:
    """Draw what brokers alone keep, and what the policy keeps of it, each bar to the same scale."""
    rows = [
        (one.name, one.alone.size_bytes, one.policy.size_bytes)
        for one in topics
        if isinstance(one.alone.size_bytes, Span) and isinstance(one.policy.size_bytes, Span)
    ]
    most = _largest(span for _, *spans in rows for span in spans)

    def cells(span: Span) -> int:
        return max(1 if span.high else 0, round(_BAR * min(span.high, most) / most))

    wide = min(30, max((len(name) for name, _, _ in rows), default=0))
    bars = (
        f"  {short(name, wide):<{wide}} {('█' * cells(policy)).ljust(cells(alone), '▒')}{'' if alone.bounded else '→'}"
        for name, alone, policy in rows
    )
    return [heading("█ the policy keeps, ▒ brokers alone would keep beyond that"), *bars] if most > 0 else []


def _totals_text(one: Forecast, other: Forecast | None) -> list[Part]:
    totals, ended = one.totals, one.totals.endless - one.totals.growing
    grow, growing = ("grow" if many > 1 else "grows" for many in (ended, totals.growing))
    return [
        totals.known > 0
        and Line(
            f"{count(totals.known, 'topic')} in steady state: brokers alone would keep {_text(totals.alone)}; "
            f"{one.policy_source} keeps {_text(totals.policy)}. It saves {_text(totals.saved)} (one replica each).",
            "bold",
        ),
        other is not None
        and other.totals.known > 0
        and f"{other.policy_source} keeps {_text(other.totals.policy)}, and saves {_text(other.totals.saved)}.",
        ended != 0
        and f"{count(ended, 'topic')} {grow} without limit by brokers alone; the policy keeps {_text(totals.ended)}.",
        totals.growing > 0
        and Line(f"{count(totals.growing, 'topic')} {growing} without limit under the policy, too.", "yellow"),
        totals.unknown > 0 and Line(f"Unknown for {count(totals.unknown, 'topic')} (see below).", "magenta"),
        Line(
            f"Assumes a trim every {format_duration(one.every_ms)}, constant lag, and the ledger's rates. A range is "
            "from just after a trim to just before the next, at the lowest and highest rates seen.",
            "dim",
        ),
    ]


def _disks(one: Forecast, other: Forecast | None) -> list[Part]:
    compared = {} if other is None else {disk.disk.key: disk.policy for disk in other.disks}
    ceilings = any(disk.ceiling is not None for disk in one.disks)
    still = sum(disk.still_bytes for disk in one.disks)
    return [
        heading("When disks are full"),
        Table(
            (
                Column("disk"),
                *(Column(title, "right") for title in ("used", "as measured", "brokers alone", "policy")),
                *((Column("compared", "right"),) if other is not None else ()),
                *((Column("at its ceiling", "right"),) if ceilings else ()),
            ),
            [
                (
                    disk.disk.name,
                    "?" if isinstance(disk.disk.room, Unknown) else f"{disk.disk.room.percent:.1f} %",
                    "?"
                    if isinstance(disk.growth, Unknown)
                    else "never"
                    if disk.growth.full_in_ms is None
                    else about(disk.growth.full_in_ms),
                    _time(disk.alone),
                    _time(disk.policy),
                    *((_time(compared.get(disk.disk.key, Unknown(()))),) if other is not None else ()),
                    *(("—" if disk.ceiling is None else _time(disk.ceiling),) if ceilings else ()),
                )
                for disk in one.disks
            ],
        ),
        still != 0 and Line(f"{size(still)} of other files and other topics are assumed to stay the same.", "dim"),
    ]


def _groups(one: Forecast, *, every_row: bool) -> list[Part]:
    groups = one.groups if every_row else one.groups[:MOST]
    left, losses = len(one.groups) - len(groups), [known(group.loss) for group in groups]
    return [
        heading("Who loses data next"),
        Table(
            (
                *(Column("group"), Column("partition"), Column("topic's lag", "right"), Column("to", unbroken=True)),
                *(Column("if it stops now", "right"), Column("at its rate", "right")),
            ),
            [
                (group.group, f"{group.topic}-{group.partition}", f"{group.lag:,}", *_loss(group.loss))
                for group in groups
            ],
            [
                "red" if loss is not None and loss.is_measured and loss.if_stopped_ms.low < HOUR_MS else None
                for loss in losses
            ],
        ),
        left > 0 and Line(f"and {left:,} more (--all, or -o json).", "dim"),
    ]


def _loss(loss: Maybe[Loss]) -> tuple[str, str, str]:
    """Return what a group loses data to, when if it stops now, and when at its rate."""
    if isinstance(loss, Unknown):
        return "?", "?", "?"
    first = loss.if_stopped_ms
    stopped = _time(first) if loss.is_measured else "?" if math.isinf(first.high) else f"within {_age(first.high)}"
    return (
        "—" if math.isinf(first.low) else loss.cause,
        "has lost some" if loss.cause == "gone" else stopped,
        _time(loss.at_its_rate_ms),
    )


def _reasons_text(made: Forecast) -> list[Part]:
    found = grouped((TopicPartition(topic.name, 0), tuple(topic.reasons)) for topic in made.topics if topic.reasons)
    return [
        heading("Unknown facts, and rules that can't act") if found else None,
        *(
            line
            for one in found[:NAMED]
            for named in (some_of([tp.topic for tp in one.partitions], NAMED),)
            for line in (Line(named, indent=2), *map(reason_line, one.reasons[:NAMED]))
        ),
        len(found) > NAMED and Line(f"and {len(found) - NAMED:,} more (-o csv has each topic's)", indent=2),
    ]


def _retained(amounts: Amounts) -> str:
    """Return an amount for a cell: its bytes, else its records, else a question mark."""
    if isinstance(amounts.records, Unknown):
        return "?"
    size_bytes = amounts.size_bytes
    return f"{_range(amounts.records, number)} rec." if isinstance(size_bytes, Unknown) else _range(size_bytes, size)


def _text(amounts: Amounts) -> str:
    records, size_bytes = amounts
    if isinstance(records, Unknown):
        return "an unknown amount"
    return f"{_range(records, number)} records{f', {_range(size_bytes, size)}' if isinstance(size_bytes, Span) else ''}"


def _time(span: Maybe[Span]) -> str:
    return _between(span, _age, "never", "may be now")


def _age(ms: float) -> str:
    ms_count = int(ms)
    # no finer than this: it is a forecast
    unit = next((unit for unit in (86_400_000, HOUR_MS, 60_000) if ms_count >= 3 * unit), 1_000)
    return "now" if ms_count < unit else format_age(ms_count // unit * unit)


def _range(span: Span, text: Callable[[int], str]) -> str:
    """Return a range, with a unit that both ends have once: ``7.53–9.63 MiB``."""
    low, dash, high = _between(span, lambda end: text(round(end)), "without limit", "—").partition("–")
    amount, _, unit = low.partition(" ")
    return f"{amount}–{high}" if dash and unit == high.partition(" ")[2] else f"{low}{dash}{high}"


def _between(span: Maybe[Span], text: Callable[[float], str], endless: str, unbounded: str) -> str:
    """Return a span's ends, once if they read the same; ``unbounded`` if it is from nothing to without end."""
    if isinstance(span, Unknown):
        return "?"
    if span.endless:
        return endless
    if not span.bounded:
        return f"≥ {text(span.low)}" if span.low else unbounded
    return "–".join(dict.fromkeys(map(text, span)))


def forecast_head(one: Forecast, other: Forecast | None) -> dict[str, Any]:
    """Return the JSON without the topics."""
    disks = {} if other is None else {disk.disk.key: disk for disk in other.disks}
    return {
        "format": FORMAT,
        "created_at": timestamp(one.created_at_ms),
        "cluster": {"id": one.cluster_id, "bootstrap": one.bootstrap},
        "policy": {"source": one.policy_source, "digest": one.policy_digest},
        "compared": None if other is None else {"source": other.policy_source, "digest": other.policy_digest},
        "every_ms": one.every_ms,
        "least_ms": one.least_ms,
        "totals": _totals(one.totals) | {"compared": None if other is None else _totals(other.totals)},
        "cost": None if one.bills is None else money_json(one.bills),
        "disks": [_disk(disk, disks.get(disk.disk.key)) for disk in one.disks],
        "groups": [_group(group) for group in one.groups],
        "notes": [*map(asdict, one.notes)],
    }


def topic_rows(one: Forecast, other: Forecast | None) -> Iterator[dict[str, Any]]:
    """Return the topics' rows of JSON, with another policy's if there is one."""
    bills = {} if one.bills is None else {bill.topic: bill for bill in one.bills.topics}
    topics = {} if other is None else {topic.name: topic for topic in other.topics}
    return (_topic(row, topics.get(row.name), bills.get(row.name)) for row in one.topics)


def _topic(one: TopicForecast, other: TopicForecast | None, bill: TopicBill | None) -> dict[str, Any]:
    rate = known(one.rate)
    return {
        "topic": one.name,
        "partitions": one.partitions,
        **_now(one.now),
        **{  # to four digits: more of them would be false precision
            f"records_per_hour{end}": None if rate is None else float(f"{getattr(rate, which) * HOUR_MS:.4g}")
            for which, end in (("mean", ""), ("low", "_low"), ("high", "_high"))
        },
        "measured_ms": None if rate is None else rate.over_ms,
        **_amounts("alone", one.alone),
        **_amounts("policy", one.policy),
        **_amounts("compared", None if other is None else other.policy),
        "policy_by": one.by,
        "compared_by": None if other is None else other.by,
        **_both("saved", saved(one.alone, one.policy)),
        **({} if bill is None else {"labels": _labels(bill), **_bill(bill.bill)}),
        "reasons": [*map(asdict, one.reasons)],
    }


def _totals(totals: Totals) -> dict[str, Any]:
    return {
        "topics": totals.topics,
        "steady": totals.known,
        "unknown": totals.unknown,
        "endless_alone": totals.endless,
        "endless_policy": totals.growing,
        **_now(totals.now),
        **_amounts("alone", totals.alone),
        **_amounts("policy", totals.policy),
        **_both("saved", totals.saved),
        **_both("ended", totals.ended),
    }


def _disk(one: DiskForecast, other: DiskForecast | None) -> dict[str, Any]:
    room = known(one.disk.room)
    grows = known(one.growth)
    whys = [reason for value in (one.alone, one.policy) if isinstance(value, Unknown) for reason in value.reasons]
    return {
        "broker": one.disk.broker,
        "dirs": list(one.disk.dirs),
        "total_bytes": None if room is None else room.total_bytes,
        "used_bytes": None if room is None else room.used_bytes,
        "ceiling_percent": one.percent,
        "still_bytes": one.still_bytes,
        "growth_bytes_per_day": None if grows is None else grows.bytes_per_day,
        "growth_full_in_ms": None if grows is None else grows.full_in_ms,
        **_when("full_alone_in", one.alone),
        **_when("full_policy_in", one.policy),
        **_when("full_compared_in", None if other is None else other.policy),
        **_when("ceiling_in", one.ceiling),
        "reasons": [*map(asdict, dict.fromkeys(whys))],
    }


def _group(one: GroupForecast) -> dict[str, Any]:
    loss = known(one.loss)
    return {
        "group": one.group,
        "topic": one.topic,
        "partition": one.partition,
        "lag": one.lag,
        **_when("unread", one.unread_ms),
        "cause": None if loss is None else loss.cause,
        "seconds_to_loss": _finite(seconds_to_loss(one.loss)),
        **_when("if_stopped", None if loss is None else loss.if_stopped_ms),
        **_when("at_its_rate", None if loss is None else loss.at_its_rate_ms),
        "reasons": [*map(asdict, one.loss.reasons)] if isinstance(one.loss, Unknown) else [],
    }


def _amounts(name: str, amounts: Amounts | None) -> dict[str, Any]:
    records = None if amounts is None else amounts.records
    kind = "unknown" if isinstance(records, Unknown) else "steady" if records and records.bounded else "endless"
    return {name: None if records is None else kind, **_both(name, amounts)}


def _both(name: str, amounts: Amounts | None) -> dict[str, float | None]:
    return _bounds(dict(zip((f"{name}_records", f"{name}_bytes"), amounts or (None, None), strict=True)))


def _now(amounts: Amounts) -> dict[str, float | None]:
    return {key.removesuffix("_low"): value for key, value in _both("now", amounts).items() if key.endswith("_low")}


def _when(name: str, span: Maybe[Span] | None) -> dict[str, Any]:
    """Return a future time (ms): ``known`` is false if it is unknown; null means never."""
    return {f"{name}_known": isinstance(span, Span), **_bounds({f"{name}_ms": span})}


def _bounds(spans: Mapping[str, Maybe[Span] | None], digits: int | None = None) -> dict[str, float | None]:
    return {
        f"{name}_{end}": _finite(value, digits)
        for name, span in spans.items()
        for end, value in zip(("low", "high"), span if isinstance(span, Span) else (None, None), strict=True)
    }


def _finite(value: float | None, digits: int | None = None) -> float | None:
    return None if value is None or math.isinf(value) else round(value, digits)


def _money(bills: Bills, most: int | None) -> list[Part]:
    prices, total = bills.prices, total_of(one.bill for one in bills.topics)
    unit = f" {prices.currency}" if prices.currency else ""
    per = "each replica" if prices.per_replica else "all replicas together"
    topics = sorted(bills.topics, key=lambda one: (-_largest(one.bill), one.topic))[:most]
    labels, consumers = [*by_label(bills).items()][:most], by_consumer(bills)[:most]
    columns = [Column(title, "right") for title in COSTS.values()]
    spelled_out = [price(span).replace("≤", "at most").replace("≥", "at least") for span in total[1:]]
    so_far, saves, unread = ("an unknown amount" if one == "?" else f"{one}{unit}" for one in spelled_out)
    return [
        heading(f"Money: {prices.per_gib_month:g}{unit} per GiB and month, {per}"),
        Table(
            (Column("topic"), Column("labels"), *columns),
            [(one.topic, _labels(one) or "—", *map(price, one.bill)) for one in topics],
        ),
        len(bills.topics) > len(topics)
        and Line(f"{len(topics)} of {count(len(bills.topics), 'topic')} (all: --all, or -o csv).", "dim"),
        heading("By label") if labels else None,
        Table(
            (Column("label"), Column("topics", "right"), *columns),
            [(label, f"{topics:,}", *map(price, bill)) for label, (topics, bill) in labels],
        ),
        heading("Kept because a consumer is behind") if consumers else None,
        Table((Column("consumer"), Column("a month", "right")), [(name, price(span)) for name, span in consumers]),
        BLANK,
        Line(
            f"Saved so far: {so_far}. The policy saves {saves} a month, and {unread} more once no consumer is behind.",
            "bold",
        ),
    ]


def money_json(bills: Bills) -> dict[str, Any]:
    """Return the prices and the sums."""
    prices, labels = bills.prices, by_label(bills)
    return {
        "per_gib_month": prices.per_gib_month,
        "replication": "excluded" if prices.per_replica else "included",
        "currency": prices.currency or None,
        **_bill(total_of(one.bill for one in bills.topics)),
        "labels": [{"label": label, "topics": topics, **_bill(bill)} for label, (topics, bill) in labels.items()],
        "consumers": [
            {"consumer": name, **_bounds({"cost_unread_month": span}, 6)} for name, span in by_consumer(bills)
        ],
    }


def price(span: Maybe[Span]) -> str:
    """Return money with two decimals; what is more than nothing is never ``0.00``."""
    if isinstance(span, Span) and span.bounded and span.low == 0 < span.high:
        return f"≤ {_decimals(span.high)}"
    return _between(span, _decimals, "without limit", "?")


def _decimals(value: float) -> str:
    return "0.01" if 0 < value < 0.01 else f"{value:,.2f}"


def _labels(one: TopicBill) -> str:
    return ", ".join(f"{name}={value}" for name, value in one.labels.items())


def _bill(bill: Bill) -> dict[str, Any]:
    return _bounds(dict(zip(COSTS, bill, strict=True)), 6)
