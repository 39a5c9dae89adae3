"""A page as a tree of elements: text can never become markup, whoever wrote it.

Every text passes through :func:`said`, which escapes what does not print; the serializer escapes what HTML reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from kretain.render.page.style import STYLE
from retention_cli.core.printable import printable

MOST: Final = 600
"""No text of a cluster or a file is longer than this on a page."""
_CSP: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""No script, no image, no font, no request: even if something got past the escapes."""

Element = ET.Element
Child = str | Element | None


def said(text: str) -> str:
    """Return a text as it may be shown: control and bidirectional characters escaped, and not too long."""
    text = printable(text)
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


def element(tag: str, *children: Child, **attributes: str) -> Element:
    """Return an element; ``class_`` is its class. Children that are None are left out."""
    made = ET.Element(tag, {name.rstrip("_").replace("_", "-"): said(value) for name, value in attributes.items()})
    for child in children:
        if child is None:
            continue
        if not isinstance(child, str):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + said(child)
        else:
            made.text = (made.text or "") + said(child)
    return made


def section(title: str, *children: Child, note: str | None = None) -> Element:
    """Return a part of the page under a heading."""
    return element(
        "section", element("h2", title), None if note is None else element("p", note, class_="note"), *children
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[Child]], left: int = 1) -> Element:
    """Return a table; the first ``left`` columns are text, the others numbers."""
    body = element("tbody")
    for row in rows:
        cells = [
            element("td", *([cell] if cell is not None else []), **({} if number < left else {"class_": "number"}))
            for number, cell in enumerate(row)
        ]
        body.append(element("tr", *cells))
    titles = [
        element("th", one, scope="col", **({} if number < left else {"class_": "number"}))
        for number, one in enumerate(heads)
    ]
    return element("div", element("table", element("thead", element("tr", *titles)), body), class_="wide")


def cards(figures: Iterable[tuple[str, str, str]]) -> Element:
    """Return large figures: each with its value, its name and its class."""
    made = element("div", class_="cards")
    for value, name, kind in figures:
        made.append(element("div", element("b", value), element("span", name), class_=f"card {kind}".strip()))
    return made


def page(title: str, lead: str, facts: Iterable[tuple[str, str]], *sections: Element | None) -> str:
    """Return a whole page as text."""
    style = ET.Element("style")
    style.text = STYLE
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_CSP),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        style,
    )
    about = element("dl")
    for name, value in facts:
        about.append(element("div", element("dt", name), element("dd", value)))
    top = element("header", element("h1", title), element("p", lead, class_="lead"), about)
    foot = element("footer", element("p", "Made by kretain. Nothing on this page is fetched, and nothing runs."))
    body = element("body", top, element("main", *sections), foot)
    root = element("html", head, body, lang="en")
    return "<!DOCTYPE html>\n" + ET.tostring(root, encoding="unicode", method="html") + "\n"
