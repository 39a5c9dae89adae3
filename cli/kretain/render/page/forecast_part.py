"""A saved forecast (``kretain forecast -o json``) as a part of a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from kretain.render.output import about, count, number, size
from kretain.render.page.charts import GO, STAY, bars
from kretain.render.page.elements import Child, Element, element, section, table
from retention_cli.plan.saved import SavedPlanError, StrictModel, checked, json_in, read_bytes
from retention_cli.policy.shown import short, shown

FORMAT: Final = "kretain.forecast/v1"
_DRAWN: Final = 12
_MOST: Final = 25
_Amount = Annotated[int, Field(ge=0)] | None
_Kind = Literal["steady", "endless", "unknown"]


class _Topic(StrictModel):
    topic: str
    alone: _Kind
    alone_bytes_high: _Amount
    policy: _Kind
    policy_bytes_high: _Amount


class _Group(StrictModel):
    group: str
    topic: str
    lag: Annotated[int, Field(ge=0)]
    cause: str | None
    seconds_to_loss: _Amount


class _Disk(StrictModel):
    broker: int
    dirs: list[str]
    full_alone_in_known: bool
    full_alone_in_ms_low: _Amount
    full_policy_in_known: bool
    full_policy_in_ms_low: _Amount


class _Totals(StrictModel):
    topics: Annotated[int, Field(ge=0)]
    steady: Annotated[int, Field(ge=0)]
    unknown: Annotated[int, Field(ge=0)]
    endless_alone: Annotated[int, Field(ge=0)]
    saved_bytes_low: _Amount
    saved_bytes_high: _Amount


class _Cluster(StrictModel):
    id: str


class _Policy(StrictModel):
    source: str


class SavedForecast(StrictModel):
    """What a page shows of a saved forecast."""

    format: str
    created_at: str
    cluster: _Cluster
    policy: _Policy
    totals: _Totals
    topics: list[_Topic]
    groups: list[_Group]
    disks: list[_Disk]


def read_forecast_file(path: Path, cluster_id: str | None) -> SavedForecast:
    """Read a saved forecast; of this cluster, if one is given.

    Raises:
        SavedPlanError: it can't be read, is no forecast, or is of another cluster.
    """
    content = json_in(read_bytes(path), path)
    if content.get("format") != FORMAT:
        raise SavedPlanError(f"{path} has format {shown(content.get('format'))}; a forecast's is {FORMAT}")
    found = checked(SavedForecast, content, path)
    if cluster_id is not None and found.cluster.id != cluster_id:
        raise SavedPlanError(f"{path} is a forecast for cluster {shown(found.cluster.id)}, the plan for {cluster_id}")
    return found


def forecast_section(found: SavedForecast) -> Element:
    """Return the part: what is kept with and without the policy, who loses data next, when disks are full."""
    totals = found.totals
    note = (
        f"By {short(found.policy.source)}, made at {short(found.created_at)}. {count(totals.topics, 'topic')}: "
        f"{totals.steady:,} steady, {totals.endless_alone:,} without end by brokers alone, {totals.unknown:,} unknown. "
        f"It saves {_saved(totals)}, one replica each."
    )
    topics = [one for one in found.topics if one.policy_bytes_high is not None and one.alone_bytes_high is not None]
    topics.sort(key=lambda one: (-(one.alone_bytes_high or 0), one.topic))
    drawn = topics[:_DRAWN]
    chart = (
        bars(
            "Bytes kept in steady state at most: by the policy, and beyond that by brokers alone",
            [one.topic for one in drawn],
            {
                "the policy keeps": (STAY, [one.policy_bytes_high or 0 for one in drawn]),
                "brokers alone, beyond that": (
                    GO,
                    [max(0, (one.alone_bytes_high or 0) - (one.policy_bytes_high or 0)) for one in drawn],
                ),
            },
            "bytes",
        )
        if drawn
        else None
    )
    return section("Forecast", chart, _groups(found.groups), _disks(found.disks), note=note)


def _saved(totals: _Totals) -> str:
    low, high = totals.saved_bytes_low, totals.saved_bytes_high
    if low is None:
        return "an unknown amount"
    return size(low) if high == low else f"{size(low)} or more" if high is None else f"{size(low)} to {size(high)}"


def _groups(groups: Sequence[_Group]) -> Element | None:
    losing = [one for one in groups if one.seconds_to_loss is not None][:_MOST]
    if not losing:
        return None
    rows: list[Sequence[Child]] = [
        (
            element("code", short(one.group)),
            element("code", short(one.topic)),
            one.cause or "",
            number(one.lag),
            about(1000 * (one.seconds_to_loss or 0)),
        )
        for one in losing
    ]
    heads = ("who loses data next", "topic", "to", "lag", "left if it stops now")
    return table(heads, rows, left=3)


def _disks(disks: Sequence[_Disk]) -> Element | None:
    rows: list[Sequence[Child]] = [
        (
            element("code", short(f"broker {one.broker}, {' + '.join(one.dirs)}")),
            _full(one.full_alone_in_known, one.full_alone_in_ms_low),
            _full(one.full_policy_in_known, one.full_policy_in_ms_low),
        )
        for one in disks[:_MOST]
    ]
    return table(("disk", "full by brokers alone", "full with the policy"), rows) if rows else None


def _full(known: bool, ms: int | None) -> str:
    return "?" if not known else "never" if ms is None else f"in {about(ms)} at the earliest"
