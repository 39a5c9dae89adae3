"""A forecast's money: tables for people; for scripts numbers, where null is unknown or without end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kretain.render.output import BLANK, Column, Line, Part, Table, heading
from retention_cli.core.model import Maybe, Unknown
from retention_cli.core.units import count
from retention_cli.forecast.cost import by_consumer, by_label, total_of
from retention_cli.forecast.value import Bill, Bills, Span, TopicBill

_TITLES = ("a month now", "saved so far", "saved a month", "kept unread a month")
_KEYS = ("cost_now", "cost_saved_so_far", "cost_saved_month", "cost_unread_month")
COLUMNS = ("labels", *(f"{key}_{end}" for key in _KEYS for end in ("low", "high")))
"""A topic's keys."""


def money_parts(bills: Bills, most: int | None) -> Iterator[Part]:
    """Yield the tables by topic, label and consumer, each of so many rows at most."""
    prices, total = bills.prices, total_of(bills)
    unit = f" {prices.currency}" if prices.currency else ""
    per = "each replica" if prices.per_replica else "all replicas together"
    yield heading(f"Money: {prices.per_gib_month:g}{unit} per GiB and month, {per}")
    topics = sorted(bills.topics, key=_most_first)[:most]
    columns = [Column(title, "right") for title in _TITLES]
    yield Table(
        (Column("topic"), Column("labels"), *columns),
        [(one.topic, _labels(one) or "—", *map(amount, one.bill)) for one in topics],
    )
    if len(bills.topics) > len(topics):
        yield Line(f"{len(topics)} of {count(len(bills.topics), 'topic')} (all: --all, or -o csv).", "dim")
    if labels := [*by_label(bills).items()][:most]:
        yield heading("By label")
        yield Table(
            (Column("label"), Column("topics", "right"), *columns),
            [(label, f"{topics:,}", *map(amount, bill)) for label, (topics, bill) in labels],
        )
    if consumers := by_consumer(bills)[:most]:
        yield heading("Kept because a consumer is behind")
        yield Table(
            (Column("consumer"), Column("a month", "right")), [(name, amount(span)) for name, span in consumers]
        )
    so_far, saves, unread = (_spelled(span, unit) for span in total[1:])
    text = f"Saved so far: {so_far}. The policy saves {saves} a month, and {unread} more once no consumer is behind."
    yield from (BLANK, Line(text, "bold"))


def money_json(bills: Bills | None) -> dict[str, Any] | None:
    """Return the prices and the sums, None without prices."""
    if bills is None:
        return None
    prices, labels = bills.prices, by_label(bills)
    return {
        "per_gib_month": prices.per_gib_month,
        "replication": "excluded" if prices.per_replica else "included",
        "currency": prices.currency or None,
        **_bill(total_of(bills)),
        "labels": [{"label": label, "topics": topics, **_bill(bill)} for label, (topics, bill) in labels.items()],
        "consumers": [{"consumer": name, **_bounds("cost_unread_month", span)} for name, span in by_consumer(bills)],
    }


def topic_money(one: TopicBill | None) -> dict[str, Any]:
    """Return a topic's keys (:data:`COLUMNS`); none without prices."""
    return {} if one is None else {"labels": _labels(one), **_bill(one.bill)}


def amount(span: Maybe[Span]) -> str:
    """Return money with two decimals; what is more than nothing is never ``0.00``."""
    if isinstance(span, Unknown) or (span.low == 0 and not span.bounded):
        return "?"
    if span.endless:
        return "without end"
    low, high = (_decimals(end) for end in span)
    if not span.bounded:
        return f"≥ {low}"
    if span.low == 0 < span.high:
        return f"≤ {high}"
    return low if low == high else f"{low}–{high}"


def _spelled(span: Maybe[Span], unit: str) -> str:
    text = amount(span).replace("≤", "at most").replace("≥", "at least")
    return "an unknown amount" if text == "?" else f"{text}{unit}"


def _decimals(value: float) -> str:
    return "0.01" if 0 < value < 0.01 else f"{value:,.2f}" if math.isfinite(value) else ""


def _labels(one: TopicBill) -> str:
    return ", ".join(f"{name}={value}" for name, value in one.labels.items())


def _most_first(one: TopicBill) -> tuple[float, str]:
    known = [span.high for span in one.bill if isinstance(span, Span) and span.bounded]
    return -max(known, default=0.0), one.topic


def _bill(bill: Bill) -> dict[str, Any]:
    return {key: value for name, span in zip(_KEYS, bill, strict=True) for key, value in _bounds(name, span).items()}


def _bounds(name: str, span: Maybe[Span]) -> dict[str, float | None]:
    low, high = (None, None) if isinstance(span, Unknown) else span
    return {f"{name}_low": _finite(low), f"{name}_high": _finite(high)}


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else round(value, 6)
