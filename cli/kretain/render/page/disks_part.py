"""Disks over time, by the ledger's looks: a part of every page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kretain.render.output import about, size
from kretain.render.page.charts import LINES, lines
from kretain.render.page.elements import Child, Element, element, section, table
from retention_cli.core.model import Unknown
from retention_cli.core.units import format_time
from retention_cli.memory.disk import Look, growth

_MOST: Final = 50


def disks_section(disks: Mapping[str, Sequence[Look]], notes: Sequence[str]) -> Element | None:
    """Return the part, None if the ledger has no look at any disk and there is nothing to say of it."""
    seen = {name: looks for name, looks in disks.items() if looks}
    fullest = sorted(seen, key=lambda name: (-_percent(seen[name][-1]), name))
    if not fullest:
        return section("Disks over time", *(element("p", note, class_="note") for note in notes)) if notes else None
    drawn = [name for name in fullest if len(seen[name]) > 1][: len(LINES)]
    chart = (
        lines(
            "How full the fullest disks were over time, in percent",
            {f"broker {name}": [(one.wall_ms, _percent(one)) for one in seen[name]] for name in drawn},
            "% in use",
        )
        if drawn
        else None
    )
    rows: list[Sequence[Child]] = []
    for name in fullest[:_MOST]:
        last = seen[name][-1]
        found = growth(seen[name][:-1], last)
        rows.append(
            (
                element("code", f"broker {name}"),
                f"{_percent(last):.1f} %",
                size(last.used_bytes),
                size(last.total_bytes),
                "?" if isinstance(found, Unknown) else _signed(found.bytes_per_day),
                "?" if isinstance(found, Unknown) else "—" if found.full_in_ms is None else about(found.full_in_ms),
                format_time(last.wall_ms // 1000 * 1000),
            )
        )
    more = f" The fullest {_MOST} of {len(fullest):,}." if len(fullest) > _MOST else ""
    heads = ("disk", "in use", "used", "size", "a day", "full in", "seen at")
    note = f"As kretain saw them, with whatever was trimmed meanwhile.{more}"
    return section("Disks over time", chart, table(heads, rows), *(element("p", one) for one in notes), note=note)


def _percent(look: Look) -> float:
    return 100 * look.used_bytes / look.total_bytes if look.total_bytes else 0.0


def _signed(amount: int) -> str:
    return f"{'+' if amount > 0 else '−' if amount < 0 else ''}{size(abs(amount))}"
