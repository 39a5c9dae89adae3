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


class _Topic(Bill):
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


class SavedForecast(StrictModel):
    """What a page shows of a saved forecast."""

    created_at: str
    cluster_id: Annotated[str, Field(validation_alias=AliasPath("cluster", "id"))]
    policy_source: Annotated[str, Field(validation_alias=AliasPath("policy", "source"))]
    totals: _Totals
    topics: list[_Topic]
    groups: list[_Group]
    disks: list[_Disk]
    cost: Cost | None = None


def read_forecast_file(path: Path, cluster_id: str | None) -> SavedForecast:
    """Read a saved forecast; of this cluster, if one is given.

    Raises:
        SavedPlanError: it can't be read, is no forecast, or is of another cluster.
    """
    content = json_in(read_bytes(path), path)
    if content.get("format") != FORMAT:
        raise SavedPlanError(f"{path} has format {shown(content.get('format'))}; a forecast's is {FORMAT}")
    found = checked(SavedForecast, content, path)
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise SavedPlanError(f"{path} is a forecast for cluster {shown(found.cluster_id)}, the plan for {cluster_id}")
    return found


def forecast_parts(found: SavedForecast) -> list[Element | None]:
    """Return a saved forecast's parts: what is kept and lost, when disks are full; what it costs if it has prices."""
    totals, low, high = found.totals, found.totals.saved_bytes_low, found.totals.saved_bytes_high
    more = "" if high == low else " or more" if high is None else f" to {size(high)}"
    saves = "an unknown amount" if low is None else size(low) + more
    losing = [one for one in found.groups if one.seconds_to_loss is not None][:MOST_ROWS]
    retention_and_loss = section(
        "Forecast",
        _steady_state(found.topics),
        table(
            ("who loses data next", "topic", "to", "lag", "left if it stops now"),
            (
                (
                    element("code", short(one.group)),
                    element("code", short(one.topic)),
                    one.cause or "",
                    number(one.lag),
                    about(1000 * (one.seconds_to_loss or 0)),
                )
                for one in losing
            ),
            left=3,
        )
        if losing
        else None,
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
        )
        if found.disks
        else None,
        note=(
            f"By {short(found.policy_source)}, made at {short(found.created_at)}. {count(totals.topics, 'topic')}: "
            f"{totals.steady:,} steady, {totals.endless_alone:,} without limit by brokers alone, "
            f"{totals.unknown:,} unknown. It saves {saves}, one replica each."
        ),
    )
    return [retention_and_loss, None if found.cost is None else _money(found.cost, found.topics)]


def _steady_state(topics: Sequence[_Topic]) -> Element | None:
    """Return the chart of the topics of which brokers alone would keep the most; None if nothing is known."""
    known_topics = [
        (one.topic, one.alone_bytes_high, one.policy_bytes_high)
        for one in topics
        if one.policy_bytes_high is not None and one.alone_bytes_high is not None
    ]
    drawn = sorted(known_topics, key=lambda one: (-one[1], one[0]))[:DRAWN]
    series = {
        "the policy keeps": (STAY, [policy for _, _, policy in drawn]),
        "brokers alone, beyond that": (GO, [max(0, alone - policy) for _, alone, policy in drawn]),
    }
    return (
        bars(
            "The most bytes kept in steady state: by the policy, and what brokers alone would add",
            [topic for topic, _, _ in drawn],
            series,
            "bytes",
        )
        if drawn
        else None
    )


def _full(known: bool, ms: int | None) -> str:
    return "?" if not known else "never" if ms is None else f"in {about(ms)} at the earliest"


def _money(cost: Cost, topics: Sequence[_Topic]) -> Element:
    """Return the part: money by topic, label and consumer."""
    most = sorted(topics, key=lambda one: (-(one.cost_now_high or 0), one.topic))[:MOST_ROWS]
    rows: list[tuple[str, Bill]] = [
        ("all topics", cost),
        *((f"label {one.label}", one) for one in cost.labels[:MOST_ROWS]),
        *((f"topic {one.topic}", one) for one in most),
        *((f"consumer {one.consumer}", one) for one in cost.consumers[:MOST_ROWS]),
    ]
    return section(
        f"Money, in {short(cost.currency)}" if cost.currency else "Money",
        table(
            ("", *COSTS.values()),
            ((element("code", short(name)), *one.cells()) for name, one in rows),
        ),
        note="Saved so far is at most this. Kept unread: what a month costs because a consumer is behind.",
    )
