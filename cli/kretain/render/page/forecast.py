"""A saved forecast's part of a page: what is kept and lost, when disks are full, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AliasPath, Field

from kretain.render.forecast import COSTS, FORMAT, price
from kretain.render.output import about, number, size
from kretain.render.page.elements import DRAWN, GO, MOST_ROWS, STAY, Element, bars, element, section, table
from retention_cli.core.model import Unknown
from retention_cli.core.printable import short, shown
from retention_cli.core.units import count
from retention_cli.forecast.value import Span
from retention_cli.plan.saved import SavedPlanError, StrictModel, checked, json_in, read_bytes

Money = Annotated[float, Field(ge=0)] | None
Count = Annotated[int, Field(ge=0)]


class _Bill(StrictModel):
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
        ends = [getattr(self, name) for name in _Bill.model_fields]
        for low, high in zip(ends[::2], ends[1::2], strict=True):
            yield price(Unknown(()) if low is None else Span(low, math.inf if high is None else high))


class _Label(_Bill):
    label: str


class _Consumer(_Bill):
    consumer: str


class _Cost(_Bill):
    currency: str | None
    labels: list[_Label]
    consumers: list[_Consumer]


class _Topic(_Bill):
    topic: str
    alone_bytes_high: Count | None
    policy_bytes_high: Count | None


class _Group(StrictModel):
    group: str
    topic: str
    lag: Count
    cause: str | None
    seconds_to_loss: Count | None


class _Disk(StrictModel):
    broker: int
    dirs: list[str]
    full_alone_in_known: bool
    full_alone_in_ms_low: Count | None
    full_policy_in_known: bool
    full_policy_in_ms_low: Count | None


class _Totals(StrictModel):
    topics: Count
    steady: Count
    unknown: Count
    endless_alone: Count
    saved_bytes_low: Count | None
    saved_bytes_high: Count | None


class _SavedForecast(StrictModel):
    created_at: str
    cluster_id: Annotated[str, Field(validation_alias=AliasPath("cluster", "id"))]
    policy_source: Annotated[str, Field(validation_alias=AliasPath("policy", "source"))]
    totals: _Totals
    topics: list[_Topic]
    groups: list[_Group]
    disks: list[_Disk]
    cost: _Cost | None = None


def forecast_parts(path: Path, cluster_id: str | None) -> list[Element | None]:
    """Return a saved forecast's parts: what is kept and lost, when disks are full; what it costs if it has prices.

    The forecast must be of the cluster, if one is given.

    Raises:
        SavedPlanError: it can't be read, is no forecast, or is of another cluster.
    """
    content = json_in(read_bytes(path), path)
    if content.get("format") != FORMAT:
        raise SavedPlanError(f"{path} has format {shown(content.get('format'))}; a forecast's is {FORMAT}")
    found = checked(_SavedForecast, content, path)
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise SavedPlanError(f"{path} is a forecast for cluster {shown(found.cluster_id)}, the plan for {cluster_id}")
    return [_retention_and_loss(found), None if found.cost is None else _money(found.cost, found.topics)]


def _retention_and_loss(found: _SavedForecast) -> Element | None:
    totals, low, high = found.totals, found.totals.saved_bytes_low, found.totals.saved_bytes_high
    more = "" if high == low else " or more" if high is None else f" to {size(high)}"
    saves = "an unknown amount" if low is None else size(low) + more
    losing = [one for one in found.groups if one.seconds_to_loss is not None][:MOST_ROWS]
    return section(
        "Forecast",
        element(
            "p",
            f"By {short(found.policy_source)}, made at {short(found.created_at)}. {count(totals.topics, 'topic')}: "
            f"{totals.steady:,} steady, {totals.endless_alone:,} without limit by brokers alone, "
            f"{totals.unknown:,} unknown. It saves {saves}, one replica each.",
            class_="note",
        ),
        _steady_state(found.topics),
        table(
            ("who loses data next", "topic", "to", "lag", "left if it stops now"),
            (
                (
                    *(element("code", short(name)) for name in (one.group, one.topic)),
                    one.cause or "",
                    number(one.lag),
                    about(1000 * (one.seconds_to_loss or 0)),
                )
                for one in losing
            ),
            left=3,
        ),
        table(
            ("disk", "full by brokers alone", "full with the policy"),
            (
                (
                    element("code", short(f"broker {one.broker}, {' + '.join(one.dirs)}")),
                    _full(one.full_alone_in_known, one.full_alone_in_ms_low),
                    _full(one.full_policy_in_known, one.full_policy_in_ms_low),
                )
                for one in found.disks[:MOST_ROWS]
            ),
        ),
    )


def _steady_state(topics: Sequence[_Topic]) -> Element | None:
    """Return the chart of the topics of which brokers alone would keep the most; None if nothing is known."""
    known = [
        (one.topic, one.alone_bytes_high, one.policy_bytes_high)
        for one in topics
        if one.policy_bytes_high is not None and one.alone_bytes_high is not None
    ]
    drawn = sorted(known, key=lambda one: (-one[1], one[0]))[:DRAWN]
    return bars(
        "The most bytes kept in steady state: by the policy, and what brokers alone would add",
        [topic for topic, _, _ in drawn],
        {
            "the policy keeps": (STAY, [policy for _, _, policy in drawn]),
            "brokers alone, beyond that": (GO, [max(0, alone - policy) for _, alone, policy in drawn]),
        },
        "bytes",
    )


def _full(known: bool, ms: int | None) -> str:
    return "?" if not known else "never" if ms is None else f"in {about(ms)} at the earliest"


def _money(cost: _Cost, topics: Sequence[_Topic]) -> Element | None:
    most = sorted(topics, key=lambda one: (-(one.cost_now_high or 0), one.topic))[:MOST_ROWS]
    rows: list[tuple[str, _Bill]] = [
        ("all topics", cost),
        *((f"label {one.label}", one) for one in cost.labels[:MOST_ROWS]),
        *((f"topic {one.topic}", one) for one in most),
        *((f"consumer {one.consumer}", one) for one in cost.consumers[:MOST_ROWS]),
    ]
    return section(
        f"Money, in {short(cost.currency)}" if cost.currency else "Money",
        table(("", *COSTS.values()), ((element("code", short(name)), *one.cells()) for name, one in rows)),
        note="Saved so far is at most this. Kept unread: what a month costs because a consumer is behind.",
    )
