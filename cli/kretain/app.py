"""The commands by name. A command's module is imported only when the command is called."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from functools import partial
from typing import Annotated, Any, NoReturn

import typer
from typer.completion import install_callback, show_callback

from kretain import __version__
from kretain.completion.quick import ALL, QuickGroup
from kretain.completion.shells import use_ours
from kretain.errors import choose, for_scripts, tell_error

COMMANDS: dict[str, tuple[str, str, str]] = {
    "plan": ("Trim", "plan", "Decide what may be trimmed, per partition, and show it."),
    "trim": ("Trim", "trim", "Carry out a plan: recheck, delete, read back, report."),
    "approve": ("Trim", "plan", "Approve a saved plan, as a second person."),
    "watch": ("Trim", "watch", "Plan every few minutes; with --trim, carry out each plan."),
    "protect": ("Trim", "protect", "Raise topics' retention while required groups lag."),
    "archive": ("Trim", "archive", "List, verify and compact archives of trimmed records."),
    "restore": ("Trim", "archive", "Write archived records to a topic."),
    "explain": ("Inspect", "explain", "Draw a partition's log with each rule's bound, and say why."),
    "show": ("Inspect", "plan", "Show a saved plan."),
    "why": ("Inspect", "explain", "Explain a reason code, and say what to do."),
    "offsets": ("Inspect", "consumers", "Show each partition's floor, who sets it, and the lag."),
    "advise": ("Inspect", "topics", "Show how long brokers really keep data, and advise settings."),
    "profile": ("Inspect", "topics", "Draw a topic's records over time: rates, order, future times."),
    "groups": ("Inspect", "consumers", "List consumer groups: which count, and how far behind they are."),
    "history": ("Inspect", "history", "Show past trims from the audit log."),
    "verify": ("Inspect", "history", "Prove that a trim deleted only what was allowed."),
    "replay": ("Inspect", "history", "Decide recorded runs again under another policy."),
    "report": ("Inspect", "history", "Write an HTML report of a plan or of past trims."),
    "ledger": ("Inspect", "consumers", "Show and prune what kretain remembers."),
    "disk": ("Inspect", "disks", "Show how full each disk is, and what the plan would free."),
    "forecast": ("Inspect", "topics", "Forecast sizes, full disks and lost data."),
    "segments": ("Inspect", "disks", "Make and show inventories of the segments on brokers' disks."),
    "init": ("Set up", "setup", "Check a cluster, write config.yaml and policy.yaml, show a plan."),
    "context": ("Set up", "setup", "List, add and remove the clusters in config.yaml."),
    "policy": ("Set up", "policy", "Write, check and show the policy; change its live settings."),
    "cluster": ("Set up", "setup", "Create kretain's own topics in a cluster."),
    "doctor": ("Set up", "setup", "Check permissions, broker versions and the clock."),
    "completion": ("Set up", "setup", "Print a shell's completion script."),
    "demo": ("Set up", "demo", "Start a local Kafka, and tour plan and trim."),
}
"""Panel of the overview, module in ``kretain.commands``, and one line for the overview.

The module has an app of the command's name.
"""

EPILOG = "Options can be set in the environment: --timeout 10s is KRETAIN_TIMEOUT=10s. See kretain help COMMAND."


class LazyGroup(QuickGroup):
    """Looks commands up in :data:`COMMANDS` and imports only the one that is called."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Return the commands in the overview's order."""
        return list(COMMANDS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """Import and return a command, None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = vars(importlib.import_module(f"kretain.commands.{COMMANDS[cmd_name][1]}"))
        command = typer.main.get_command(module[cmd_name])
        command.name = cmd_name
        return command

    def main(self, *args: Any, **more: Any) -> Any:
        """Run a command, and report a usage error in one line."""
        try:
            given = args[0] if args else more.get("args")
            choose(sys.argv[1:] if given is None else given, os.environ)
            code = super().main(*args, **{**more, "standalone_mode": False})
        except typer.Abort:
            tell_error(130, "interrupted", "interrupted")
            sys.exit(130)
        except Exception as error:
            if not hasattr(error, "format_message"):  # Typer does not export the class of its usage errors
                raise
            _report_usage(error)
        sys.exit(code or 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``--context NAME`` and ``--errors json`` before the command as if they stood behind it.

        ``help COMMAND`` is ``COMMAND --help``, which ``--all`` shows in full, and ``version`` is ``--version``.
        """
        args = _behind(args)
        if args[:1] == ["help"]:
            ctx.meta[ALL] = "--all" in args
            args = [*(one for one in args[1:] if one != "--all"), "--help"]
        elif args == ["version"]:
            args = ["--version"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Suggest the nearest command if there is none of that name."""
        if args and args[0] not in COMMANDS and (similar := difflib.get_close_matches(args[0], COMMANDS, n=1)):
            ctx.fail(f"No such command {args[0]!r}; did you mean {similar[0]}?")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, _formatter: Any) -> None:
        """Print the overview without importing a single command."""
        from kretain.completion.overview import print_overview

        print_overview(ctx.get_usage(), COMMANDS, EPILOG)


def _report_usage(error: Any) -> NoReturn:
    error.message = error.message.replace("Value error, ", "")  # pydantic's, by which Typer reads enumerations
    if type(error).__name__ == "NoArgsIsHelpError":  # its text is the help, unless that has been printed
        sys.stderr.write(f"{error.message.rstrip()}\n" if error.message else "")
    else:
        ctx = getattr(error, "ctx", None)
        text = " ".join(error.format_message().split()).removeprefix("Invalid value: ").rstrip(".")
        if text[1:2].islower():  # no name or variable
            text = text[0].lower() + text[1:]
        see = f"see {'kretain' if ctx is None else ctx.command_path} --help"
        tell_error(error.exit_code, "usage", text if for_scripts() or sys.stderr.isatty() else f"{text}; {see}", see)
    sys.exit(error.exit_code)


def _behind(args: list[str]) -> list[str]:
    """Return the arguments with a ``--context`` or ``--errors`` before the command moved behind all of its own."""
    moved: list[str] = []
    rest = list(args)
    while rest and rest[0].partition("=")[0] in ("--context", "--errors"):
        width = 1 if "=" in rest[0] else 2
        moved += rest[:width]
        del rest[:width]
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *moved, *rest[end:]] if rest else args


use_ours()
app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,  # the same two options, defined below: Typer's own load pydantic for every command
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "obj": partial(importlib.import_module, "kretain.config"),  # for completions; it is slow to import
    },
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kretain {__version__}")
        raise typer.Exit


@app.callback(epilog=EPILOG)
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    install_completion: Annotated[
        bool,
        typer.Option("--install-completion", callback=install_callback, help="Install completion for this shell."),
    ] = False,
    show_completion: Annotated[
        bool,
        typer.Option("--show-completion", callback=show_callback, help="Print the completion script for this shell."),
    ] = False,
) -> None:
    """Trim Kafka topics by what every consumer has read, by event time and by age, from outside the brokers."""
    del version, install_completion, show_completion
