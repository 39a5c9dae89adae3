"""A page as a tree of elements: text can never become markup, no matter who wrote it. Charts are SVG elements in it.

Every text passes through :func:`said`, which escapes what does not print; the serializer escapes what HTML reads.
matplotlib draws the charts: their text stays text, and colors are the page's own names for them.
"""

from __future__ import annotations

import datetime as dt
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

from retention_cli.core.extras import part
from retention_cli.core.printable import printable, short

MOST: Final = 600
"""No text of a cluster or a file is longer than this on a page."""
MOST_ROWS: Final = 25
"""A table has at most this many rows; totals are of all."""
DRAWN: Final = 12
"""A chart has at most this many bars."""
_CSP: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""No script, no image, no font, no request: even if something got past the escapes."""

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fbfaf7; --card: #ffffff; --ink: #1d2129; --muted: #5f6773; --grid: #dfe1e6;
  --go: #b45309; --stay: #9db4c8; --hold: #7c3aed; --bad: #b91c1c; --good: #0f766e;
  --line1: #1d4ed8; --line2: #b45309; --line3: #0f766e; --line4: #7c3aed; --line5: #be185d; --line6: #4d7c0f; }
@media (prefers-color-scheme: dark) { :root { --paper: #14161a; --card: #1c1f25; --ink: #e6e8ec; --muted: #a0a8b4;
  --grid: #343a44; --go: #f59e0b; --stay: #4b637a; --hold: #a78bfa; --bad: #f87171; --good: #2dd4bf;
  --line1: #7aa2ff; --line2: #f59e0b; --line3: #2dd4bf; --line4: #a78bfa; --line5: #f472b6; --line6: #a3e635; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; padding: 2rem clamp(1rem, 4vw, 3rem) 3rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 .5rem; }
.lead { font-size: 1.1rem; margin: 0 0 1rem; max-width: 60ch; }
.note, footer { color: var(--muted); font-size: .9rem; max-width: 75ch; }
.note { margin: 0 0 .8rem; }
section { margin-top: 2.2rem; }
dl { display: flex; flex-wrap: wrap; gap: .3rem 1.6rem; margin: 0; font-size: .9rem; }
dl div { display: flex; gap: .4rem; min-width: 0; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin-top: 1.6rem; }
.card { background: var(--card); border: 1px solid var(--grid); border-radius: .6rem; padding: .7rem .9rem;
  flex: 1 1 auto; min-width: 7.5rem; max-width: 100%; }
.card b { display: block; font-size: 1.35rem; line-height: 1.25; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.card span { color: var(--muted); font-size: .88rem; }
.card.go b { color: var(--go); }
.card.hold b { color: var(--hold); }
.card.bad b { color: var(--bad); }
.wide { overflow-x: auto; }
.wide + .wide { margin-top: 1.2rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--grid); vertical-align: top;
  overflow-wrap: anywhere; min-width: 4.5rem; }
th { color: var(--muted); font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; overflow-wrap: normal; }
code { font: .88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.reason { border-left: 3px solid var(--grid); padding: .1rem 0 .1rem .9rem; margin: 0 0 .9rem; }
.reason.hold { border-color: var(--hold); }
.reason.trim { border-color: var(--go); }
.reason p { margin: .1rem 0; overflow-wrap: anywhere; }
.tag { font-weight: 600; margin-right: .5rem; }
td:first-child { min-width: 9rem; }
figure { overflow-x: auto; margin: 0 0 1rem; background: var(--card); border: 1px solid var(--grid);
  border-radius: .6rem; padding: .8rem; }
figure svg { display: block; width: 100%; height: auto; min-width: 34rem;
  max-width: 62rem; margin: 0 auto; }
footer { margin-top: 3rem; }
@media (max-width: 40rem) { body { padding-top: 1.2rem; } h1 { font-size: 1.4rem; } figure { padding: .3rem; }
  figure svg { min-width: 28rem; } th:first-child, td:first-child { position: sticky; left: 0; min-width: 7rem;
  max-width: 45vw; background: var(--paper); } }
@media print { :root { color-scheme: light; --paper: #fff; --card: #fff; --ink: #000; --muted: #444; --grid: #bbb;
  --go: #b45309; --stay: #9db4c8; --hold: #7c3aed; --bad: #b91c1c; --good: #0f766e; --line1: #1d4ed8;
  --line2: #b45309; --line3: #0f766e; --line4: #7c3aed; --line5: #be185d; --line6: #4d7c0f; }
  body { max-width: none; padding: 0; font-size: 10pt; } section { margin-top: 1.2rem; }
  figure, .reason, tr, .card { break-inside: avoid; } h2 { break-after: avoid; } thead { display: table-header-group; }
  .wide, figure { overflow: visible; } figure svg { min-width: 0; } * { print-color-adjust: exact; } }
"""
"""The page's style: colors by name, light and dark, and paper."""

Element = ET.Element
Child = str | Element | None


def safe_text(text: str, most: int = MOST) -> str:
    """Return a text as it may be shown: control and bidirectional characters escaped, and not too long."""
    return short(printable(text), most)


def element(tag: str, *children: Child, **attributes: str) -> Element:
    """Return an element; ``class_`` is its class. Children that are None are left out."""
    made = ET.Element(tag, {name.rstrip("_").replace("_", "-"): safe_text(value) for name, value in attributes.items()})
    for child in (one for one in children if one is not None):
        if not isinstance(child, str):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + safe_text(child)
        else:
            made.text = (made.text or "") + safe_text(child)
    return made


def section(title: str, *children: Child, note: str | None = None) -> Element | None:
    """Return a part of the page under a heading, None if it has no children."""
    under = None if note is None else element("p", note, class_="note")
    return (
        element("section", element("h2", title), under, *children) if any(one is not None for one in children) else None
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[Child]], left: int = 1) -> Element | None:
    """Return a table, None if it has no rows; the first ``left`` columns are text, the others numbers."""

    def cells(tag: str, row: Sequence[Child], **more: str) -> Element:
        return element(
            "tr",
            *(element(tag, one, **more, **({} if at < left else {"class_": "number"})) for at, one in enumerate(row)),
        )

    head, body = (
        element("thead", cells("th", heads, scope="col")),
        element("tbody", *(cells("td", row) for row in rows)),
    )
    return element("div", element("table", head, body), class_="wide") if len(body) else None


def cards(figures: Iterable[tuple[str, str, str]]) -> Element:
    """Return large figures: each with its value, its name and its class."""
    return element(
        "div",
        *(
            element("div", element("b", value), element("span", name), class_=f"card {kind}".strip())
            for value, name, kind in figures
        ),
        class_="cards",
    )


def page(title: str, lead: str, facts: Iterable[tuple[str, str]], *sections: Element | None) -> str:
    """Return the page as text."""
    style = ET.Element("style")
    style.text = _STYLE
    root = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=_CSP),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("meta", name="referrer", content="no-referrer"),
            element("title", title),
            style,
        ),
        element(
            "body",
            element(
                "header",
                element("h1", title),
                element("p", lead, class_="lead"),
                element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in facts)),
            ),
            element("main", *sections),
            element("footer", element("p", "Made by kretain. This page loads nothing and runs no code.")),
        ),
        lang="en",
    )
    return "<!DOCTYPE html>\n" + ET.tostring(root, encoding="unicode", method="html") + "\n"


_COLORS: Final = {
    "#0a0b01": "var(--ink)",
    "#0a0b02": "var(--muted)",
    "#0a0b03": "var(--grid)",
    "#0a0b04": "var(--go)",
    "#0a0b05": "var(--stay)",
    "#0a0b06": "var(--hold)",
    **{f"#0a0b1{number}": f"var(--line{number})" for number in range(1, 7)},
}
"""What matplotlib is given, and what the page has instead."""
_GIVEN: Final = re.compile("|".join(_COLORS))
INK, MUTED, GRID, GO, STAY, HOLD = list(_COLORS)[:6]
LINES: Final = list(_COLORS)[6:]
_ALLOWED: Final = frozenset({"svg", "g", "path", "text", "tspan", "defs", "clipPath", "rect", "use", "line", "title"})
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
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "timezone": "UTC",
}
_LABEL: Final = 34


def bars(
    label: str,
    names: Sequence[str],
    parts: Mapping[str, tuple[str, Sequence[int]]],
    unit: str = "records",
) -> Element | None:
    """Return horizontal bars, one a name, from top to bottom; None without names.

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
            axes.barh(rows, amounts, left=left, color=color, height=0.62, label=safe_text(legend, _LABEL))
            left = [before + more for before, more in zip(left, amounts, strict=True)]
        axes.set_yticks(rows, [safe_text(one, _LABEL) for one in names])
        axes.set(xlim=(0, None), ylim=(len(names) - 0.4, -0.6), xlabel=safe_text(unit, _LABEL))
        axes.spines["left"].set_visible(False)
        axes.xaxis.set(
            major_formatter=_in_short,
            major_locator=part("report", "matplotlib.ticker").MaxNLocator(nbins=5, integer=True),
        )
        if len(parts) > 1:
            _legend(axes, len(parts))

    return _chart(label, 1.1 + 0.34 * len(names), draw, grid="x") if names else None


def lines(label: str, series: Mapping[str, Sequence[tuple[int, float]]], unit: str) -> Element | None:
    """Return lines over time: by name, Unix ms and values; None without any."""

    def draw(axes: Any) -> None:
        for number, (name, points) in enumerate(series.items()):
            axes.plot(
                [dt.datetime.fromtimestamp(at / 1000, dt.UTC) for at, _ in points],
                [value for _, value in points],
                label=safe_text(name, _LABEL),
                color=LINES[number % len(LINES)],
                linewidth=1.8,
                marker="o",
                ms=2.5,
            )
        axes.set(ylim=(0, None), ylabel=safe_text(unit, _LABEL))
        dates = part("report", "matplotlib.dates")
        locator = dates.AutoDateLocator(minticks=3, maxticks=8)
        axes.xaxis.set(major_locator=locator, major_formatter=dates.ConciseDateFormatter(locator))
        _legend(axes, 2)

    return _chart(label, 3.1, draw) if series else None


def columns(label: str, names: Sequence[str], amounts: Sequence[int], unit: str) -> Element | None:
    """Return vertical bars, from left to right; None without names."""

    def draw(axes: Any) -> None:
        axes.bar(range(len(names)), amounts, color=GO, width=0.7)
        axes.set(xlim=(-0.6, max(len(names), 12) - 0.4), ylabel=safe_text(unit, _LABEL))
        step = max(1, -(-len(names) // 10))
        axes.set_xticks(range(0, len(names), step), [safe_text(one, _LABEL) for one in names[::step]])
        axes.yaxis.set_major_formatter(_in_short)

    return _chart(label, 2.8, draw) if names else None


def _chart(label: str, height: float, draw: Callable[[Any], None], grid: str = "y") -> Element:
    """Return a chart as an element: only what draws, with the page's settings and colors and no others."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # hide its notes about the font cache
    text = io.BytesIO()
    with part("report", "matplotlib").rc_context({**_SETTINGS, "axes.grid.axis": grid}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a script that its own font lacks: the browser has another
        figure = part("report", "matplotlib.figure").Figure(figsize=(8.6, height), layout="constrained")
        axes = figure.subplots()
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        draw(axes)
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    root = ET.fromstring(text.getvalue())  # noqa: S314  (what matplotlib has just written)
    svg = _cleaned(root)
    svg.attrib = {"viewBox": root.get("viewBox", ""), "role": "img", "aria-label": safe_text(label)}
    return element("figure", svg)


def _legend(axes: Any, most: int) -> None:
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.01), ncols=most, frameon=False, borderaxespad=0, labelcolor=INK,
        handlelength=1.2,
    )  # fmt: skip


def _in_short(value: float, _position: int) -> str:
    """Return an amount at an axis: ``5 k``, ``1.2 M``."""
    units = ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"))
    size, letter = next((unit for unit in units if value >= unit[0]), (1, ""))
    return f"{value / size:g}{letter}"


def _cleaned(one: ET.Element) -> Element:
    made = ET.Element(
        _plain(one.tag),
        {
            _plain(key): _GIVEN.sub(lambda some: _COLORS[some[0]], value)
            for key, value in one.items()
            if not _plain(key).lower().startswith("on")
        },
    )
    made.text, made.tail = one.text, one.tail
    made.extend(_cleaned(child) for child in one if isinstance(child.tag, str) and _plain(child.tag) in _ALLOWED)
    return made


def _plain(name: str) -> str:
    return name.rpartition("}")[2]
