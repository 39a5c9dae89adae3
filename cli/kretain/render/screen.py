"""Tables for people: rich in a terminal, plain text in a pipe, Markdown where asked for."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, and which side its cells stand on. ``wide`` ones may wrap."""

    title: str
    align: Literal["left", "right"] = "left"
    wide: bool = False


def is_terminal() -> bool:
    """Return whether stdout is looked at."""
    return sys.stdout.isatty()


@functools.cache
def console() -> Any:
    """Return stdout's rich console."""
    from rich.console import Console

    return Console(highlight=False)


def print_table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], styles: Iterable[str | None] = (), *, markdown: bool = False
) -> None:
    """Print a table. ``styles`` give a terminal's color per row."""
    lines = [list(row) for row in rows]
    if markdown or not is_terminal():
        from tabulate import tabulate

        text = tabulate(
            lines,
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

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(
            column.title, justify=column.align, no_wrap=not column.wide, overflow="fold" if column.wide else "ellipsis"
        )
    colors = list(styles)
    for number, line in enumerate(lines):
        style = colors[number] if number < len(colors) else None
        table.add_row(*(Text(cell) for cell in line), style=style)
    console().print(table)


def say(text: str = "", style: str | None = None) -> None:
    """Print a line of the result, wrapped at words in a terminal."""
    if is_terminal():
        from rich.text import Text

        console().print(Text(text, style=style or ""))
    else:
        print(text)


def heading(text: str) -> None:
    """Print a heading over a part of the result."""
    say()
    say(text, "bold")


def bullet(text: str, style: str | None = None, indent: int = 2) -> None:
    """Print an indented paragraph whose later lines stand under its first."""
    if is_terminal():
        from rich.padding import Padding
        from rich.text import Text

        console().print(Padding(Text(text, style=style or ""), (0, 0, 0, indent)))
    else:
        print(" " * indent + text)


def warn(text: str) -> None:
    """Print a warning to stderr."""
    print(f"kretain: {text}", file=sys.stderr)
