"""Tables in a terminal of any width: headings give way first, then names wrap, and nothing is cut off."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from kretain.render import output
from kretain.render.output import Column, Table

PLAN = (
    Column("partition"),
    Column("action", whole=True),
    Column("log start → trim to", "right"),
    Column("records", "right"),
    Column("bytes", "right"),
    Column("rule"),
    Column("held back by"),
)
ROWS = [
    ("flights-1", "trim", "0 → 146,326", "146,326", "5.42 MiB", "consumed", "delays"),
    ("weather-0", "trim", "0 → 4,351", "4,351", "134 KiB", "consumed", "archive"),
]


def drawn(
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    rows: Sequence[tuple[str, ...]],
    columns: Sequence[Column] = PLAN,
) -> list[str]:
    """Return the lines that a terminal of that width would show."""
    paper = io.StringIO()
    console = Console(file=paper, width=width, highlight=False)
    monkeypatch.setattr(output, "console", lambda: console)
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    output.print_table(Table(columns, rows))
    return [line.rstrip() for line in paper.getvalue().splitlines()]


def test_long_names_wrap_and_lose_nothing_and_numbers_stay_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "orders.by-customer.eu-central-1.and-more-of-a-name-than-fits-a-terminal-0"
    lines = drawn(monkeypatch, 80, [(name, *ROWS[0][1:])])
    first_column = "".join(line.split(" ")[0] for line in lines if "─" not in line)
    assert first_column == f"partition{name}"
    assert any("0 → 146,326" in line and "5.42 MiB" in line for line in lines)
    assert not any("…" in line for line in lines)


def test_spare_columns_are_left_out_before_anything_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [*PLAN[:-1], Column("held back by", spare=True)]
    assert drawn(monkeypatch, 100, ROWS, columns)[0].endswith(" held back by")
    lines = drawn(monkeypatch, 80, ROWS, columns)
    assert len(lines) == 4
    assert not any(word in line for line in lines for word in ("held", "delays", "archive"))
