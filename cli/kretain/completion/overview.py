"""Print ``kretain --help``: the commands in groups. It imports little: users wait for this output first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

_ABOUT = (
    "Trims Kafka topics by consumed offsets, event time, age and disk space.\n"
    "Deletes only what the policy clearly allows; holds a partition if a fact is unknown."
)
FIRST = (
    ("kretain doctor -b HOST:PORT", "check the cluster"),
    ("kretain plan -b HOST:PORT 'orders.*' --consumed-after 3d", "make a first plan"),
    ("kretain trim -b HOST:PORT -p policy.yaml --dry-run", "rehearse a trim"),
)


def print_overview(usage: str, commands: Mapping[str, tuple[str, str, str]], epilog: str) -> None:
    """Print usage, a description of kretain, the commands by panel, and first steps."""
    width = max(map(len, commands))
    panels: dict[str, Any] = {
        panel: Table.grid(Column(style="bold cyan", width=width, no_wrap=True), padding=(0, 2))
        for panel, _, _ in commands.values()
    }
    for name, (panel, _module, line) in commands.items():
        panels[panel].add_row(name, line)
    steps = Table.grid(Column(style="green"), Column(style="dim"), padding=(0, 2))
    for step in FIRST:
        steps.add_row(*step)
    console = Console(highlight=False)
    console.print(Padding(Text(usage, style="bold"), (1, 1, 0, 1)))
    console.print(Padding(_ABOUT, (1, 1, 0, 1)))
    options = "--version   --install-completion   --show-completion   --help"
    for title, part in {**panels, "First steps": steps, "Options": options}.items():
        console.print(Padding(Text(title, style="bold"), (1, 1, 0, 1)))
        console.print(Padding(part, (0, 1, 0, 3)))
    console.print(Padding(Text(epilog, style="dim"), (1, 1)))
