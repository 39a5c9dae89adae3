"""Commands and groups of commands: fast to load, with a compact ``--help``. ``kretain --help`` needs this module."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Collection
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

_WIDEST: Final = 100
_LONGEST: Final = 200
_NAMES: Final = 34
"""The widest column of names."""
_LAST: Final = {"Connection": 1, "Common": 2, "Spark": 3}
"""The groups of options that several commands share stand last, in this order."""
_EXIT_CODES: Final = "Exit codes: 0 done, 1 failed, 2 usage, 3 changes, 4 hold, 5 partial, 6 refused"


ALL: Final = "kretain.help.all"
"""Set in a context's ``meta`` by ``kretain help COMMAND --all``."""
_MOST_LINES: Final = 50
_RANGE: Final = re.compile(r" *\[x[<>]=?\d+\]$")
_FOLDED: Final = ((), ("Spark",), ("Common", "Spark"))
"""The groups of which a page that would be too long has the names alone: the first that fits."""


def write_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Write a command's help: what it does, examples, then its options in groups, its own first.

    It has at most 50 lines, unless all are asked for.
    """
    width = max(60, min(shutil.get_terminal_size().columns, _WIDEST))
    for folded in _FOLDED[:1] if ctx.meta.get(ALL) else _FOLDED:
        page = type(formatter)(width=width)
        _write_page(command, ctx, page, folded)
        text = page.getvalue()
        if text.count("\n") <= _MOST_LINES:
            break
    formatter.write(text)


def _write_page(command: Any, ctx: Any, formatter: Any, folded: Collection[str]) -> None:
    about, _, examples = (command.help or "").partition("Examples:")
    for paragraph in about.strip().split("\n\n"):
        formatter.write_text(" ".join(paragraph.split()))
        formatter.write_paragraph()
    formatter.write_usage(ctx.command_path, " ".join(command.collect_usage_pieces(ctx)))
    if examples:
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line.strip()}\n" for line in examples.splitlines() if line.strip()))
    sections = _sections(command, ctx)
    for title, rows in sections.items():
        if rows and title not in folded:
            with formatter.section(title):
                formatter.write_dl(rows, col_max=_NAMES)
    names = [row[0].split(", ")[-1].split()[0] for title in folded for row in sections.get(title, ())]
    if names:
        full = f"More options ({ctx.command_path.replace('kretain', 'kretain help', 1)} --all): {', '.join(names)}"
        formatter.write_paragraph()
        wrapped = textwrap.wrap(full, formatter.width, subsequent_indent="  ", break_on_hyphens=False)
        formatter.write("".join(f"{line}\n" for line in wrapped))
    formatter.write_paragraph()
    formatter.write(f"{_EXIT_CODES}\n")


def _sections(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Commands": [], "Options": []}
    for one in command.get_params(ctx):
        if one.param_type_name == "argument":
            found["Arguments"].append((str(one.metavar), getattr(one, "help", None) or ""))
        elif one.name != "help" and (row := one.get_help_record(ctx)) is not None:
            found.setdefault(getattr(one, "rich_help_panel", None) or "Options", []).append(
                (row[0], _RANGE.sub("", row[1]))
            )
    if isinstance(command, TyperGroup):
        commands = {name: command.get_command(ctx, name) for name in command.list_commands(ctx)}
        found["Commands"] = [(name, one.get_short_help_str(_WIDEST)) for name, one in commands.items() if one]
    return {title: found[title] for title in sorted(found, key=lambda title: _LAST.get(title, 0))}


class _Quick:
    """What commands and groups of commands have in common; a mixin."""

    def get_short_help_str(self, limit: int = _LONGEST) -> str:
        """Return the first sentence in full: Typer's own cuts it at 45 characters, for completion too."""
        short: str = super().get_short_help_str(max(limit, _LONGEST))  # type: ignore[misc]
        return short

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; an error that names no command is this one's."""
        try:
            parsed: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except Exception as error:
            if vars(error).get("ctx", ctx) is None:
                vars(error)["ctx"] = ctx
            raise
        return parsed

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page."""
        write_help(self, ctx, formatter)


class QuickCommand(_Quick, TyperCommand):
    """A command."""


class QuickGroup(_Quick, TyperGroup):
    """A group of commands whose own --help option costs nothing if it is not given."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option with a default: otherwise Typer loads pydantic only to convert None to None."""
        found = super().get_help_option(ctx)
        if found is not None:
            found.default = False
        return found
