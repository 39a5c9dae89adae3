"""Charts as SVG elements, by matplotlib: text stays text, and colors are the page's own names for them."""

from __future__ import annotations

import datetime as dt
import io
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

from kretain.render.page.elements import Element, element, said
from retention_cli.core.extras import plots
from retention_cli.policy.shown import short

_COLORS: Final = {
    "#0a0b01": "var(--ink)",
    "#0a0b02": "var(--muted)",
    "#0a0b03": "var(--grid)",
    "#0a0b04": "var(--go)",
    "#0a0b05": "var(--stay)",
    "#0a0b06": "var(--hold)",
    **{f"#0a0b1{number}": f"var(--line{number})" for number in range(1, 7)},
}
"""What matplotlib is given, and what the page has in its place."""
INK, MUTED, GRID, GO, STAY, HOLD = list(_COLORS)[:6]
LINES: Final = list(_COLORS)[6:]
_KEPT: Final = frozenset({"svg", "g", "path", "text", "tspan", "defs", "clipPath", "rect", "use", "line", "title"})
"""The elements that a chart is made of; no other gets onto a page."""
_SETTINGS: Final[dict[str, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kretain",
    "font.family": ["sans-serif"],
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a name begins no formula
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "axes.axisbelow": True,
    "timezone": "UTC",
}
_LABEL: Final = 34


def bars(
    label: str,
    names: Sequence[str],
    parts: Mapping[str, tuple[str, Sequence[int]]],
    unit: str = "records",
) -> Element:
    """Return horizontal bars, one a name, from top to bottom.

    Args:
        label: what the chart shows, for those who can't see it.
        names: of the bars.
        parts: by name in the legend: a color, and each bar's amount.
        unit: of the amounts.
    """

    def draw(axes: Any) -> None:
        rows = range(len(names))
        left = [0] * len(names)
        for legend, (color, amounts) in parts.items():
            axes.barh(rows, amounts, left=left, color=color, height=0.62, label=_name(legend))
            left = [before + more for before, more in zip(left, amounts, strict=True)]
        axes.set_yticks(rows, [_name(one) for one in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.spines["left"].set_visible(False)
        axes.grid(visible=True, axis="x", linewidth=0.6)
        axes.xaxis.set_major_formatter(_in_short())
        axes.xaxis.set_major_locator(plots("matplotlib.ticker").MaxNLocator(nbins=5, integer=True))
        axes.set_xlabel(_name(unit))
        if len(parts) > 1:
            _legend(axes, len(parts))

    return _chart(label, 1.1 + 0.34 * len(names), draw)


def lines(label: str, series: Mapping[str, Sequence[tuple[int, float]]], unit: str) -> Element:
    """Return lines over time: by name, Unix ms and values."""

    def draw(axes: Any) -> None:
        for number, (name, points) in enumerate(series.items()):
            axes.plot(
                [dt.datetime.fromtimestamp(at / 1000, dt.UTC) for at, _ in points],
                [value for _, value in points],
                label=_name(name),
                color=LINES[number % len(LINES)],
                linewidth=1.8,
                marker="o",
                ms=2.5,
            )
        axes.set_ylim(bottom=0)
        axes.set_ylabel(_name(unit))
        axes.grid(visible=True, axis="y", linewidth=0.6)
        dates = plots("matplotlib.dates")
        locator = dates.AutoDateLocator(minticks=3, maxticks=8)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        _legend(axes, 2)

    return _chart(label, 3.1, draw)


def columns(label: str, names: Sequence[str], amounts: Sequence[int], unit: str) -> Element:
    """Return vertical bars, from left to right."""

    def draw(axes: Any) -> None:
        axes.bar(range(len(names)), amounts, color=GO, width=0.7)
        axes.set_xlim(-0.6, max(len(names), 12) - 0.4)
        step = max(1, -(-len(names) // 10))
        axes.set_xticks(range(0, len(names), step), [_name(one) for one in names[::step]])
        axes.set_ylabel(_name(unit))
        axes.yaxis.set_major_formatter(_in_short())
        axes.grid(visible=True, axis="y", linewidth=0.6)

    return _chart(label, 2.8, draw)


def _chart(label: str, height: float, draw: Callable[[Any], None]) -> Element:
    """Return a chart as an element: only what draws, with the page's settings and colors and no others."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # hide its notes about the font cache
    text = io.BytesIO()
    with plots("matplotlib").rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a script that its own font lacks: the browser has another
        figure = plots().Figure(figsize=(8.6, height), layout="constrained")
        axes = figure.subplots()
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        axes.tick_params(length=0)
        draw(axes)
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    root = ET.fromstring(text.getvalue())  # noqa: S314  (what matplotlib has just written)
    svg = _cleaned(root)
    svg.attrib = {"viewBox": root.get("viewBox", ""), "role": "img", "aria-label": said(label)}
    return element("figure", svg)


def _legend(axes: Any, most: int) -> None:
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.01), ncols=most, frameon=False, borderaxespad=0, labelcolor=INK,
        handlelength=1.2,
    )  # fmt: skip


def _name(text: str) -> str:
    shown = short(said(text))
    return shown if len(shown) <= _LABEL else shown[: _LABEL - 1] + "…"


def _in_short() -> Any:
    """Return what formats amounts: ``5 k``, ``1.2 M``."""
    units = ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"), (0, ""))

    def text(value: float, _position: int) -> str:
        size, letter = next((unit for unit in units if value >= unit[0]), (0, ""))
        return f"{value / (size or 1):g}{letter}"

    return plots("matplotlib.ticker").FuncFormatter(text)


def _cleaned(one: ET.Element) -> Element:
    attributes = {_plain(key): value for key, value in one.items() if not _plain(key).lower().startswith("on")}
    made = ET.Element(_plain(one.tag), {key: _colored(value) for key, value in attributes.items()})
    made.text, made.tail = one.text, one.tail
    made.extend(_cleaned(child) for child in one if isinstance(child.tag, str) and _plain(child.tag) in _KEPT)
    return made


def _plain(name: str) -> str:
    return name.rpartition("}")[2]


def _colored(value: str) -> str:
    for given, ours in _COLORS.items():
        value = value.replace(given, ours)
    return value
