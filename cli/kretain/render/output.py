"""The one renderer: what a command found, as tables and text for people, and as JSON, YAML and CSV for scripts.

People get rich in a terminal, plain text in a pipe, Markdown on request. Nothing unprintable reaches a terminal, no
matter who wrote a text.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import itertools
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar

from kretain.reach import complete, complete_json, completed
from kretain.system import stdio
from retention_cli.core.grouping import by_key, grouped
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.printable import printable
from retention_cli.core.units import count, format_bytes, format_time
from retention_cli.plan.value import json_lines

SHOWN: Final = 40
"""A table has no more rows than this: beyond that, only totals, holds and the largest rows are shown."""
MOST: Final = 20
"""A shortened table has this many rows, and a list of reasons this many groups of partitions."""
NAMED: Final = 5
"""At most this many topics, groups or consumers are named, the others counted."""
_FOLDS: Final = 10
"""Text longer than this may wrap if a terminal is narrow; short words never do."""
_WIDEST: Final = 120
_TIME: Final = r"\d{4}-\d\d-\d\dT[\d:.]+Z"
_BREAKABLE: Final = re.compile(rf"{_TIME}[^\w]*|[^\s/.,_-]*[/.,_-]+|[^\s/.,_-]+")
"""The pieces of a word: times, and parts of paths and names, each with the sign at its end."""
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_HIDDEN: Final = re.compile(r"[\x7f-\xa0\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]+")
"""C1, bidirectional overrides and other unprintable characters, which JSON's own escapes leave as they are."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


Row = TypeVar("Row")


class Column(NamedTuple):
    """A column's heading, and the side on which its cells are aligned.

    In a terminal that is too narrow ``spare`` columns are left out; then text wraps, the widest column first.
    Numbers and ``unbroken`` columns don't wrap.
    """

    title: str
    align: Literal["left", "right"] = "left"
    unbroken: bool = False
    spare: bool = False


class Table(NamedTuple):
    """A table; ``styles`` are the rows' colors in a terminal."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    styles: Sequence[str | None] = ()


class Line(NamedTuple):
    """A line of text, wrapped at words in a terminal; one with an ``indent`` is a list's item in Markdown.

    A ``verbatim`` line is for copying and never wrapped. A ``heading`` has a blank line before it, and in Markdown,
    like a ``paragraph``, one after it. ``code`` is that of the reason which the line gives.
    """

    text: str = ""
    style: str | None = None
    indent: int = 0
    kind: Literal["line", "heading", "paragraph", "verbatim"] = "line"
    code: str | None = None


Document = tuple[Mapping[str, Any], str, Iterable[Mapping[str, Any]]]
"""What JSON and YAML have: the head, the rows' name (empty if the head is all), and the rows."""
Part = Table | Line | str | Literal[False] | None
"""A part of what people read; a text is a line. None, False and empty texts are left out."""
BLANK: Final = Line()


def heading(text: str) -> Line:
    """Return a heading over a part of the result."""
    return Line(text, "bold", kind="heading")


_clusters: list[dict[str, Any]] = []
"""Several clusters so far: each one's name, and its result in JSON and YAML, or its error. Empty for one cluster."""


@contextlib.contextmanager
def by_cluster(output: str) -> Iterator[list[dict[str, Any]]]:
    """Print the results of several clusters as one; yield the list of them, which the caller fills.

    A cluster's name is added before its result is shown, and replaced by an error if there is none. JSON and YAML have
    the list, CSV has a column, and people see the name above each.
    """
    try:
        yield _clusters
        found = {"format": "kretain.clusters/v1", "clusters": list(_clusters)}
    finally:
        _clusters.clear()
    if output in ("json", "yaml"):
        show(output, {}, "", (), lambda: (), (), lines=[json.dumps(found, ensure_ascii=False, indent=1), "\n"])


def show(
    output: str,
    head: Mapping[str, Any],
    key: str,
    rows: Iterable[Mapping[str, Any]],
    people: Callable[[], Iterable[Part]],
    columns: Sequence[str],
    cells: Iterable[Mapping[str, Any]] | None = None,
    lines: Iterable[str] | None = None,
) -> None:
    """Print a result in the wanted format.

    Args:
        output: the format.
        head: what JSON and YAML have before the rows.
        key: the rows' name there; empty if the head is all that they have.
        rows: read at most once, one at a time but for YAML.
        people: returns what people read.
        columns: the columns of CSV, keys of the rows.
        cells: CSV's rows, if they are not the others.
        lines: the text of JSON, if it is not the head and the rows.
    """
    if lines is None:
        lines = json_lines(head, key, rows) if key else [json.dumps(head, ensure_ascii=False), "\n"]
    cells = rows if cells is None else cells
    if _clusters:
        one = _clusters[-1]
        if output in ("json", "yaml"):
            one |= json.loads("".join(lines))
            return
        if output == "csv":
            columns = ("cluster", *columns)
            cells = [{**row, "cluster": one["name"]} for row in cells]
        else:
            print_parts([heading(one["name"])])
    match output:
        case "json":
            _write_json(lines)
        case "jsonl":
            _write_json(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        case "yaml":
            _print_yaml(json.loads("".join(lines)))
        case "csv":
            _print_csv(columns, cells, titles=all("error" in one for one in _clusters[:-1]))
        case _:
            print_parts(people(), markdown=output == "markdown")


def picture_width(in_pipe: int) -> int:
    """Return how wide a picture may be: as the terminal, within limits; ``in_pipe`` without one."""
    return max(20, min(_WIDEST, shutil.get_terminal_size((in_pipe, 24)).columns)) if is_terminal() else in_pipe


def is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


@functools.cache
def console() -> Any:
    """Return stdout's rich console."""
    from rich.console import Console

    return Console(highlight=False)


def print_parts(parts: Iterable[Part], *, markdown: bool = False) -> None:
    """Print what people read."""
    for part in parts:
        if isinstance(part, Table):
            if part.rows:
                print_table(part, markdown=markdown)
        elif part:
            say(part, markdown=markdown)


def say(line: str | Line = BLANK, *, markdown: bool = False) -> None:
    """Print a line."""
    text, style, indent, kind, _code = line if isinstance(line, Line) else Line(line)
    text = printable(complete(text))
    if kind == "heading":
        say()
    if markdown and kind != "line" and not indent:
        text = ("### " if kind == "heading" else "") + text + "\n"
    if markdown and indent:
        print(" " * (indent - 2) + "- " + text)
    elif not is_terminal() or kind == "verbatim":
        print(" " * indent + text)
    else:
        from rich import padding, text as rich_text

        content = rich_text.Text(text, style=style or "")
        console().print(padding.Padding(content, (0, 0, 0, indent)) if indent else content)


def print_table(table: Table, *, markdown: bool = False) -> None:
    """Print a table."""
    lines = [[printable(complete(cell)) for cell in row] for row in table.rows]
    if markdown or not is_terminal():
        _print_as_text(table.columns, lines, markdown=markdown)
    else:
        _print_in_terminal(table, lines)


def _print_as_text(columns: Sequence[Column], lines: Sequence[Sequence[str]], *, markdown: bool) -> None:
    from tabulate import tabulate

    text = tabulate(
        [[cell.replace("|", "\\|") for cell in line] for line in lines] if markdown else lines,
        headers=[column.title for column in columns],
        tablefmt="github" if markdown else "simple",
        colalign=[column.align for column in columns] if lines else None,
        disable_numparse=True,
    )
    print("\n".join(line.rstrip() for line in text.splitlines()))


def _print_in_terminal(table: Table, lines: Sequence[Sequence[str]]) -> None:
    """Print a table in the terminal's width: without spare columns and with folded cells if it does not fit."""
    from rich import box, table as rich_table, text

    columns, styles = table.columns, table.styles
    widths = _widths(columns, lines, console().width)
    if widths is not None and any(one.spare for one in columns):
        shown = [at for at, one in enumerate(columns) if not one.spare]
        print_table(Table([columns[at] for at in shown], [[row[at] for at in shown] for row in table.rows], styles))
        return
    each: Sequence[int | None] = widths or [None] * len(columns)
    made = rich_table.Table(
        *(
            rich_table.Column(column.title, justify=column.align, no_wrap=width is None, overflow="fold", width=width)
            for column, width in zip(columns, each, strict=True)
        ),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 1 if widths is None else 0),
        pad_edge=False,
        header_style="bold",
        show_edge=False,
        # even if that is wider than the terminal, which then breaks lines, but not numbers
        width=None if widths is None else sum(widths) + 2 * (len(widths) - 1),
    )
    for line, style in itertools.zip_longest(lines, styles):
        cells = (cell if width is None else _folded(cell, width) for cell, width in zip(line, each, strict=True))
        made.add_row(*map(text.Text, cells), style=style)
    console().print(made, crop=False)


def _widths(columns: Sequence[Column], lines: Sequence[Sequence[str]], terminal: int) -> list[int] | None:
    """Return the columns' widths if they don't all fit at full width, else None. A number is never cut.

    Headings are wrapped at words first, then long names; the terminal breaks what still does not fit.
    """
    from rich.cells import cell_len

    def widest(parts_of: Callable[[str], Iterable[str]]) -> list[int]:
        return [
            max((cell_len(piece) for line in lines for piece in parts_of(line[i])), default=0)
            for i in range(len(columns))
        ]

    cells = widest(lambda cell: [cell])
    unwrapped = sum(max(width, cell_len(column.title)) for width, column in zip(cells, columns, strict=True))
    if unwrapped + 3 * (len(columns) - 1) <= terminal:
        return None
    heads = [_two_lines(column.title) for column in columns]
    widths = list(map(max, cells, heads))
    # Cells that may not wrap elsewhere do so after an arrow.
    arrows = widest(lambda cell: cell.replace("→ ", "→\n").splitlines())
    least = [
        min(width, max(head, _FOLDS if column.align == "left" and not column.unbroken else arrow))
        for column, width, head, arrow in zip(columns, widths, heads, arrows, strict=True)
    ]
    # Times wrap only if the table does not fit otherwise.
    for smallest in (list(map(min, widths, map(max, least, widest(re.compile(_TIME).findall)))), least):
        while sum(widths) + 2 * (len(columns) - 1) > terminal:
            spare, at = max((width - smallest[i], i) for i, width in enumerate(widths))
            if spare <= 0:
                break
            widths[at] -= 1
    return widths


def _folded(cell: str, width: int) -> str:
    """Return a cell with words that are too long broken after a sign, never within a time."""
    from rich.cells import cell_len

    lines = [""]
    for word in cell.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width:
            lines[-1] = joined
        else:
            lines += [""] if lines[-1] else []
            for piece in [word] if cell_len(word) <= width else _BREAKABLE.findall(word):
                if lines[-1] and cell_len(lines[-1] + piece) > width:
                    lines.append("")
                lines[-1] += piece
    return "\n".join(lines)


def _two_lines(title: str) -> int:
    """Return the smallest width in which a heading takes at most two lines."""
    import textwrap

    least = itertools.count(max(map(len, title.split()), default=0))
    return next(width for width in least if len(textwrap.wrap(title, max(1, width))) <= 2)


def _write_json(parts: Iterable[str]) -> None:
    """Write JSON to stdout; if stdout is not UTF-8, escape all but ASCII, so that it is still valid JSON."""
    escape = _HIDDEN if stdio.is_utf8() else _NOT_ASCII
    for part in map(complete_json, stdio.while_heard(parts)):
        sys.stdout.write(part if part.isascii() else escape.sub(lambda some: json.dumps(some[0])[1:-1], part))


def _print_yaml(value: Any) -> None:
    import yaml

    for unicode in (stdio.is_utf8(), False):
        text = yaml.dump(
            completed(value),
            Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper),
            sort_keys=False,
            allow_unicode=unicode,
            width=1000,
        )
        if _HIDDEN.search(text) is None:
            break
    sys.stdout.write(text)


def _print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, titles: bool = True) -> None:
    """Print the columns' titles and one line per row; lists of reasons become text, absent values empty cells.

    Unprintable characters are escaped, and a cell that a spreadsheet would treat as a formula is prefixed with ``'``.
    """
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if titles:
        writer.writerow(columns)
    writer.writerows([_cell(row.get(column)) for column in columns] for row in stdio.while_heard(rows))


def _item(one: Any) -> str:
    """Return an element of a list: a reason as ``code: text``, another object as its values."""
    if not isinstance(one, dict):
        return str(one)
    if one.keys() >= {"code", "text"}:
        return f"{one['code']}: {one['text']}"
    return " ".join(_item(value) for value in one.values() if value is not None)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        value = "; ".join(map(_item, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # a name stays unique
        return ("'" if value.startswith(_FORMULA) else "") + stdio.escaped(printable(complete(value)), encoding)
    return "" if value is None else value


def cluster_head(form: str, cluster_id: str, bootstrap: str) -> dict[str, Any]:
    """Return what JSON begins with: its format, and the cluster."""
    return {"format": form, "cluster": {"id": cluster_id, "bootstrap": bootstrap}}


def joined(*texts: str | Literal[0, False] | None, by: str = "") -> str:
    """Return texts as one. None, False and empty ones are left out."""
    return by.join(text for text in texts if text)


def amounts(by_name: Mapping[Any, int]) -> str:
    """Return ``3 trim, 1 hold``, without what is zero; ``none`` if all is."""
    return ", ".join(f"{amount:,} {name}" for name, amount in by_name.items() if amount) or "none"


def number(value: int | None) -> str:
    """Return a number with thousands separators, a dash for None."""
    return "—" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Return bytes in binary units, a question mark if unknown."""
    return "?" if value is None else format_bytes(value)


def signed(amount: int) -> str:
    """Return bytes with their sign."""
    return f"{'+' if amount > 0 else '−' if amount < 0 else ''}{size(abs(amount))}"


def moment(ms: int | None, unknown: str = "") -> str:
    """Return a time (Unix ms) to the second."""
    return unknown if ms is None else format_time(ms // 1000 * 1000)


def about(ms: int) -> str:
    """Return a time span in its largest unit: ``12 d``, ``5 h``, ``0 min``; beyond ten years, only that it is."""
    days, hours = ms // 86_400_000, ms // 3_600_000
    if days > 3652:
        return "> 10 years"
    return f"{days:,} d" if days >= 2 else f"{hours:,} h" if hours >= 2 else f"{ms // 60_000} min"


def reasons(
    title: str, rows: Iterable[tuple[TopicPartition, tuple[Reason, ...]]], style: str | None = None
) -> list[Part]:
    """Return a heading, then the partitions and their reasons; nothing if there are no rows.

    Partitions with the same reasons are grouped, the most frequent first.
    """
    found = grouped(rows)
    return [
        heading(title) if found else None,
        *(
            line
            for one in found[:MOST]
            for line in (
                Line(partitions(one.partitions, of_topics=one.topics), style, 2),
                *map(reason_line, one.reasons),
            )
        ),
        len(found) > MOST and Line(f"and {len(found) - MOST:,} more (-o csv has each partition's)", indent=2),
    ]


def reason_line(reason: Reason) -> Line:
    """Return a reason as a line, below what it is the reason of."""
    return Line(f"{reason.code}  {reason.text}", indent=4, code=reason.code)


def hinted(parts: Iterable[Part]) -> list[Part]:
    """Return parts; if there are reasons among them, the command that explains the first code follows."""
    found = list(parts)
    codes = [one.code for one in found if isinstance(one, Line) and one.code is not None]
    return [*found, *((BLANK, Line(f"What to do about a code: kretain why {codes[0]}", "dim")) if codes else ())]


def partitions(tps: Iterable[tuple[str, int]], of_topics: int | None = None) -> str:
    """Return partitions by topic with runs joined: ``orders 0-3, 7; payments 0``.

    ``of_topics`` is the total number of topics, if these are only the first few's partitions.
    """
    by_topic = by_key(tps)
    shown = [f"{topic} {runs(sorted(numbers))}" for topic, numbers in list(by_topic.items())[:NAMED]]
    more = (of_topics or len(by_topic)) - len(shown)
    return "; ".join(shown) + (f"; and {count(more, 'more topic')}" if more else "")


def shortened(rows: Sequence[Row], key: Callable[[Row], Any], *, every_row: bool) -> Sequence[Row]:
    """Return all rows of a table, or of too many the first by this key; equal ones keep their order."""
    return rows if every_row or len(rows) <= SHOWN else sorted(rows, key=key)[:MOST]


def that_matter_most(shown: Sequence[Any], total: int, what: str) -> tuple[Part, ...]:
    """Return the lines over a table that has not all that was found; nothing over one that has."""
    return (f"The {len(shown)} of {total:,} {what} (all: --all, or -o csv):", BLANK) if len(shown) < total else ()


def runs(numbers: Sequence[int], most: int = 12) -> str:
    """Return ``0-3, 7`` for 0, 1, 2, 3, 7."""
    blocks = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])  # the same in a run
    spans = [[one for _, one in block] for _, block in blocks]
    text = [str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in spans[:most]]
    return ", ".join(text + ([f"… ({len(numbers):,} in all)"] if len(spans) > most else []))
