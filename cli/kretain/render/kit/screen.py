"""Print tables and text: rich in a terminal, plain text in a pipe, Markdown on request."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from kretain.errors import tell
from kretain.reach import complete
from retention_cli.core.printable import printable


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, and the side on which its cells are aligned.

    In a terminal that is too narrow ``spare`` columns are left out; then text wraps, the widest column first.
    Numbers and ``whole`` columns don't wrap.
    """

    title: str
    align: Literal["left", "right"] = "left"
    whole: bool = False
    spare: bool = False


def is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


@functools.cache
def console() -> Any:
    """Return stdout's rich console."""
    from rich.console import Console

    return Console(highlight=False)


def print_table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    styles: Iterable[str | None] = (),
    *,
    markdown: bool = False,
) -> None:
    """Print a table. ``styles`` are the rows' colors in a terminal."""
    lines = [[printable(complete(cell)) for cell in row] for row in rows]
    if markdown or not is_terminal():
        from tabulate import tabulate

        text = tabulate(
            [[cell.replace("|", "\\|") for cell in line] for line in lines] if markdown else lines,
            headers=[column.title for column in columns],
            tablefmt="github" if markdown else "simple",
            colalign=[column.align for column in columns] if lines else None,
            disable_numparse=True,
        )
        print("\n".join(line.rstrip() for line in text.splitlines()))
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    widths = _widths(columns, lines, console().width)
    if widths is not None and any(one.spare for one in columns):
        kept = [number for number, one in enumerate(columns) if not one.spare]
        columns, lines = [columns[n] for n in kept], [[line[n] for n in kept] for line in lines]
        widths = _widths(columns, lines, console().width)
    padding = (0, 1, 0, 1 if widths is None else 0)
    table = Table(box=SIMPLE_HEAD, padding=padding, pad_edge=False, header_style="bold", show_edge=False)
    for number, column in enumerate(columns):
        width = None if widths is None else widths[number]
        table.add_column(column.title, justify=column.align, no_wrap=width is None, overflow="fold", width=width)
    if widths is not None:  # even if that is wider than the terminal, which then breaks lines, but not numbers
        table.width = sum(widths) + 2 * (len(widths) - 1)
    colors = list(styles)
    for number, line in enumerate(lines):
        style = colors[number] if number < len(colors) else None
        table.add_row(*(Text(cell) for cell in line), style=style)
    console().print(table, crop=False)


_FOLDS: Final = 10
"""Text longer than this may wrap if a terminal is narrow; short words never do."""


def _widths(columns: Sequence[Column], lines: Sequence[Sequence[str]], terminal: int) -> list[int] | None:
    """Return the columns' widths if they don't all fit at full width, else None. A number is never cut.

    Headings are wrapped at words first, then long names; the terminal breaks what still does not fit.
    """
    from rich.cells import cell_len

    cells = [max((cell_len(line[i]) for line in lines), default=0) for i in range(len(columns))]
    whole = [max(width, cell_len(column.title)) for width, column in zip(cells, columns, strict=True)]
    if sum(whole) + 3 * (len(columns) - 1) <= terminal:
        return None
    heads = [_two_lines(column.title) for column in columns]
    widths = [max(pair) for pair in zip(cells, heads, strict=True)]
    arrows = [_pieces([line[i] for line in lines]) for i in range(len(columns))]
    least = [
        min(width, max(head, _FOLDS if column.align == "left" and not column.whole else arrow))
        for column, width, head, arrow in zip(columns, widths, heads, arrows, strict=True)
    ]
    while sum(widths) + 2 * (len(columns) - 1) > terminal:
        spare, widest = max((width - least[i], i) for i, width in enumerate(widths))
        if spare <= 0:
            break
        widths[widest] -= 1
    return widths


def _pieces(cells: Iterable[str]) -> int:
    """Return the width of the widest piece of cells that may wrap only after an arrow."""
    from rich.cells import cell_len

    return max((cell_len(piece) for cell in cells for piece in cell.replace("→ ", "→\n").splitlines()), default=0)


def _two_lines(title: str) -> int:
    """Return the smallest width in which a heading takes at most two lines."""
    import textwrap

    width = max((len(word) for word in title.split()), default=0)
    while len(textwrap.wrap(title, max(1, width))) > 2:
        width += 1
    return width


def say(text: str = "", style: str | None = None) -> None:
    """Print a line of the result, wrapped at words in a terminal; a blank line follows if it ends with a newline."""
    line = text.rstrip("\n")
    text = printable(complete(line)) + text[len(line) :]
    if is_terminal():
        from rich.text import Text

        console().print(Text(text, style=style or ""))
    else:
        print(text)


def heading(text: str, *, markdown: bool = False) -> None:
    """Print a heading over a part of the result."""
    say()
    say(f"### {text}\n" if markdown else text, "bold")


def bullet(text: str, style: str | None = None, indent: int = 2, *, markdown: bool = False) -> None:
    """Print an indented paragraph whose later lines are aligned with its first; in Markdown, a list's item."""
    text = printable(complete(text))
    if markdown:
        print(" " * (indent - 2) + "- " + text)
    elif is_terminal():
        from rich.padding import Padding
        from rich.text import Text

        console().print(Padding(Text(text, style=style or ""), (0, 0, 0, indent)))
    else:
        print(" " * indent + text)


def verbatim(text: str) -> None:
    """Print an indented line for copying: it is never wrapped."""
    print(f"    {printable(complete(text))}")


def warn(text: str) -> None:
    """Print a warning to stderr."""
    tell(f"kretain: {text}")
