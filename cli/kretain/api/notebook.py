"""A plan as HTML for a notebook. All texts are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from retention_cli.core.printable import printable

if TYPE_CHECKING:
    from kretain.api.values import Partition, Plan

_MOST: Final = 40
_COLUMNS: Final = ("topic", "partition", "action", "trim to", "records", "reasons")


def plan_html(plan: Plan) -> str:
    """Return a plan's totals, and a table of the rows that trim or hold, at most 40."""
    totals = plan.totals
    counts = f"{totals.trim:,} trim, {totals.keep:,} keep, {totals.hold:,} hold, {totals.skip:,} skip"
    head = f"<b>{totals.records:,} records would be trimmed</b> in cluster {_text(plan.cluster_id)}: {counts}."
    refused = "".join(f"<p><b>trim refuses this plan: {_text(one.text)}</b></p>" for one in plan.refusals)
    rows = [one for one in plan.partitions if one.action in ("trim", "hold")]
    more = f"<p>and {len(rows) - _MOST:,} more</p>" if len(rows) > _MOST else ""
    table = _table(map(_cells, rows[:_MOST])) if rows else ""
    return f"{refused}<p>{head}</p>{table}{more}"


def _cells(one: Partition) -> Sequence[str]:
    target = "" if one.trim_to is None else f"{one.trim_to:,}"
    why = "; ".join(f"{reason.code}: {reason.text}" for reason in one.reasons)
    return (one.topic, str(one.partition), one.action, target, f"{one.records:,}", why)


def _table(rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in _COLUMNS)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(text: str) -> str:
    return escape(printable(text))
