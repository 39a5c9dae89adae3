"""The part of a page with a saved forecast's money."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from pydantic import Field

from kretain.render.forecast import price
from kretain.render.page.elements import Element, element, section, table
from retention_cli.core.model import Unknown
from retention_cli.forecast.value import Span
from retention_cli.plan.saved import StrictModel
from retention_cli.policy.shown import short

_MOST: Final = 25
Money = Annotated[float, Field(ge=0)] | None


class Bill(StrictModel):
    """Money, as a forecast's JSON has it: null is unknown or without end."""

    cost_now_low: Money = None
    cost_now_high: Money = None
    cost_saved_so_far_low: Money = None
    cost_saved_so_far_high: Money = None
    cost_saved_month_low: Money = None
    cost_saved_month_high: Money = None
    cost_unread_month_low: Money = None
    cost_unread_month_high: Money = None

    def cells(self) -> Iterator[str]:
        """Yield the four amounts."""
        ends = [getattr(self, name) for name in Bill.model_fields]
        for low, high in zip(ends[::2], ends[1::2], strict=True):
            yield price(Unknown(()) if low is None else Span(low, math.inf if high is None else high))


class _Label(Bill):
    label: str


class _Consumer(Bill):
    consumer: str


class Cost(Bill):
    """The sums: of all topics, by label, by consumer."""

    currency: str | None
    labels: list[_Label]
    consumers: list[_Consumer]


def money_section(cost: Cost | None, topics: Sequence[tuple[str, Bill]]) -> Element | None:
    """Return the part: money by topic, label and consumer; None without prices."""
    if cost is None:
        return None
    most = sorted(topics, key=lambda one: (-(one[1].cost_now_high or 0), one[0]))[:_MOST]
    rows: list[tuple[str, Bill]] = [
        ("all topics", cost),
        *((f"label {one.label}", one) for one in cost.labels[:_MOST]),
        *((f"topic {name}", one) for name, one in most),
        *((f"consumer {one.consumer}", one) for one in cost.consumers[:_MOST]),
    ]
    return section(
        f"Money, in {short(cost.currency)}" if cost.currency else "Money",
        table(
            ("", "a month now", "saved so far", "saved a month", "kept unread a month"),
            ((element("code", short(name)), *one.cells()) for name, one in rows),
        ),
        note="Saved so far is at most this. Kept unread: what a month costs because a consumer is behind.",
    )
