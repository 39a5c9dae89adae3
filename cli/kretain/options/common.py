"""The options that every command shares, and how a command is run.

``command`` adds them to a function's own options, so that each is defined once, has its ``KRETAIN_…`` variable, and
may be given before or after the arguments; it also maps errors to exit codes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_origin, get_type_hints

import typer

from kretain.completion.complete import complete_contexts
from kretain.completion.quick import QuickCommand, QuickGroup
from kretain.errors import Deletions, Exit, UsageError, as_engine_error, exit_code_for, report, tell, tell_error, worst
from kretain.render import progress as moving
from kretain.system import stdio
from kretain.system.signals import Together, ended_after
from retention_cli.core.progress import Progress
from retention_cli.core.units import UnitError, parse_bytes, parse_duration_ms, parse_time_ms

CONNECTION = "Connection"
COMMON = "Common"


Chosen = tuple[dict[str, Any], str]
"""A context's keys, and where they are from: its name is the last word."""
Output = Literal["table", "json", "yaml", "csv"]
"""Formats that every command can print."""
PlanOutput = Literal["table", "json", "yaml", "csv", "jsonl", "markdown", "delete-records"]
"""Formats of a plan."""

FLAG_ONLY: Final = frozenset(
    {
        "--yes",
        "--trim",
        "--protect",
        "--no-policy",
        "--unconsumed",
        "--consumed-after",
        "--event-time",
        "--before",
        "--older-than",
    }
)
"""Options without a variable: rules, and what lets records be deleted. A forgotten variable must not."""

OWN_VARIABLES: Final = frozenset(
    {"KRETAIN_CONFIG", "KRETAIN_COMPLETION_TIMEOUT", "KRETAIN_KEY_PASSPHRASE", "KRETAIN_MAVEN_REPOSITORY"}
)
"""Variables that are no options."""
_MAY_BE_SECRET: Final = frozenset({"KRETAIN_SPARK_CONF", "KRETAIN_KEY_PASSPHRASE"})


def now_ms() -> int:
    """Return this machine's time (Unix ms)."""
    return time.time_ns() // 1_000_000


def option(
    *names: str,
    help: str,  # noqa: A002  (typer's own word)
    panel: str | None = None,
    of: str = "",
    **more: Any,
) -> Any:
    """Return a typer option with its variable: ``--max-age`` is ``KRETAIN_MAX_AGE``. Some have none.

    ``of`` is the command, where another command's option of that name means something else: its variable says which.
    """
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    variable = None if long in FLAG_ONLY else "_".join(["kretain", *of.split(), *long[2:].split("-")]).upper()
    return typer.Option(*names, help=help, envvar=variable, show_envvar=False, rich_help_panel=panel, **more)


argument: Final = typer.Argument
"""A typer argument, which has no variable."""


def _on_command_line(parse: Callable[[str], int]) -> Callable[[str], int]:
    @functools.wraps(parse)
    def parsed(text: str) -> int:
        try:
            return parse(text)
        except UnitError as error:
            raise typer.BadParameter(str(error)) from None

    return parsed


time_ms: Final = _on_command_line(parse_time_ms)
duration_ms: Final = _on_command_line(parse_duration_ms)
size_bytes: Final = _on_command_line(parse_bytes)


OutputOption = Annotated[
    Output,
    option("--output", "-o", metavar="FORMAT", help="Print table, json, yaml or csv.", show_default=False),
]
PlanOutputOption = Annotated[
    PlanOutput,
    option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="Print json, jsonl, yaml, csv, markdown or delete-records.",
        show_default=False,
    ),
]
AllPartitions = Annotated[bool, option("--all", help="Show all partitions.")]


def name_of(chosen: Chosen) -> str:
    """Return the name of one of several clusters."""
    return chosen[1].rpartition(" ")[2]


@dataclass(frozen=True, slots=True)
class Common:
    """The options of every command. ``given_by`` is the source of each value: flag, variable or default.

    ``chosen`` is one of several clusters, in place of the context.

    A command that deletes records its deletes in ``deletions``.
    """

    bootstrap_server: Annotated[
        str | None,
        option("--bootstrap-server", "-b", help="Connect to these brokers.", panel=CONNECTION, metavar="HOST:PORT"),
    ] = None
    command_config: Annotated[
        Path | None,
        option(
            "--command-config",
            "-c",
            metavar="FILE",
            panel=CONNECTION,
            help="Read client settings (Java or librdkafka).",
        ),
    ] = None
    context: Annotated[
        str | None,
        option(
            "--context",
            metavar="NAME",
            panel=CONNECTION,
            help="Use this context, or all that match a glob.",
            autocompletion=complete_contexts,
        ),
    ] = None
    timeout: Annotated[
        int | None,
        option(
            "--timeout",
            metavar="DURATION",
            panel=CONNECTION,
            parser=duration_ms,
            help="Time out requests after this. Default: 30s.",
        ),
    ] = None
    deadline: Annotated[
        int | None,
        option(
            "--deadline",
            metavar="DURATION",
            panel=COMMON,
            parser=duration_ms,
            help="Stop after this long, as on SIGTERM.",
        ),
    ] = None
    policy: Annotated[Path | None, option("--policy", "-p", metavar="FILE", help="Read this policy file.")] = None
    no_policy: Annotated[
        bool, option("--no-policy", panel=COMMON, help="Use no policy file, not even the context's.")
    ] = False
    state_dir: Annotated[
        Path | None,
        option(
            "--state-dir", metavar="DIR", panel=COMMON, help="Use this state directory, not ~/.local/state/kretain."
        ),
    ] = None
    quiet: Annotated[bool, option("--quiet", "-q", panel=COMMON, help="Print no progress and no warnings.")] = False
    errors: Annotated[
        Literal["text", "json"],
        option(
            "--errors",
            metavar="FORMAT",
            panel=COMMON,
            help="Print errors as text, or as one line of JSON.",
            show_default=False,
        ),
    ] = "text"
    verbose: Annotated[
        int,
        option(
            "--verbose",
            "-v",
            count=True,
            panel=COMMON,
            show_default=False,
            help="Show where settings come from; -vv: tracebacks.",
        ),
    ] = 0
    chosen: Chosen | None = None
    given_by: dict[str, str] = field(default_factory=dict)
    deletions: Deletions = field(default_factory=Deletions)

    def warn(self, *notes: Any) -> None:
        """Print warnings to stderr, texts or reasons, but not with ``--quiet``."""
        of = "" if self.chosen is None else f"{name_of(self.chosen)}: "
        for note in () if self.quiet else notes:
            tell(f"kretain: {of}{getattr(note, 'text', note)}")

    def progress(self) -> contextlib.AbstractContextManager[Progress]:
        """Return a context manager whose progress is drawn in a terminal, but not with ``--quiet``."""
        return moving.shown()


class OptionGroup:
    """A frozen dataclass of options that several commands share; each field's default is the option's."""


RANGE: Final = "Time range (default: all)"


@dataclass(frozen=True, slots=True)
class TimeRange(OptionGroup):
    """From ``since`` on and before ``until`` (Unix ms), or the ``last`` milliseconds."""

    since: Annotated[
        int | None,
        option(
            "--since", metavar="TIME", panel=RANGE, parser=time_ms, help="Begin at this time (ISO 8601 or Unix ms)."
        ),
    ] = None
    until: Annotated[
        int | None,
        option("--until", metavar="TIME", panel=RANGE, parser=time_ms, help="End before this time."),
    ] = None
    last: Annotated[
        int | None,
        option("--last", metavar="DURATION", panel=RANGE, parser=duration_ms, help="Begin this long ago, such as 7d."),
    ] = None

    @property
    def given(self) -> bool:
        """Whether one of the options was given."""
        return (self.since, self.until, self.last) != (None, None, None)

    def bounds(self, now_ms: int) -> tuple[int | None, int | None]:
        """Return the first time (Unix ms) and the one before which it ends; None: no bound.

        Raises:
            UsageError: the options contradict each other.
        """
        if self.last is not None:
            if self.since is not None or self.until is not None:
                raise UsageError("--last cannot be combined with --since or --until")
            return max(0, now_ms - self.last), None
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError("--since must be before --until")
        return self.since, self.until


def _parameters(group: type) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=getattr(group(), key), annotation=hint)
        for key, hint in get_type_hints(group, include_extras=True).items()
        if get_origin(hint) is Annotated
    ]


def command(
    app: typer.Typer, name: str | None = None, *, callback: bool = False, **settings: Any
) -> Callable[[Callable[..., Exit | None]], Any]:
    """Register a function as a command: its first parameter is :class:`Common`, the rest are its own options.

    Where an option of :class:`Common` means something else, that parameter is a subclass. A parameter that is an
    :class:`OptionGroup` stands for all of its options. ``callback``: the function runs a command with subcommands when
    none is given.
    """

    def register(function: Callable[..., Exit | None]) -> Callable[..., None]:
        first, *parameters = inspect.signature(function, eval_str=True).parameters.values()
        groups = {
            one.name: one.annotation
            for one in parameters
            if isinstance(one.annotation, type) and issubclass(one.annotation, OptionGroup)
        }
        own = [part for one in parameters for part in (_parameters(groups[one.name]) if one.name in groups else [one])]
        shared = _parameters(first.annotation)

        @functools.wraps(function)
        def run(**values: Any) -> None:
            ctx: typer.Context = values.pop("ctx")
            if ctx.invoked_subcommand is not None:
                if "flag" in (_giver(ctx, "fleet"), _giver(ctx, "cluster")):
                    raise typer.BadParameter(
                        f"{ctx.invoked_subcommand} is for one cluster: omit --fleet and --cluster", ctx=ctx
                    )
                return
            common = first.annotation(**_common(ctx, shared, values))
            for parameter, group in groups.items():
                values[parameter] = group(**{one.name: values.pop(one.name) for one in _parameters(group)})
            (moving.still if common.quiet else moving.begin)()
            try:
                code = guarded(lambda: function(common, **values), common.verbose, common.deletions, common.deadline)
            except UsageError as error:
                raise typer.BadParameter(str(error), ctx=ctx) from None
            raise typer.Exit(int(code))

        signature = inspect.Signature(
            [
                *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own),
                *shared,
                inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
            ]
        )
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
        help_text = prose(function.__doc__ or "")
        if callback:
            app.callback(invoke_without_command=True, help=help_text, **settings)(run)
        else:
            app.command(name, cls=QuickCommand, help=help_text, **settings)(run)
        return run

    return register


def _common(ctx: typer.Context, shared: Sequence[inspect.Parameter], values: dict[str, Any]) -> dict[str, Any]:
    """Take the options that all commands share out of the values, and add who gave each.

    kretain groups -b … forget … means the same as kretain groups forget … -b …
    """
    mine = {one.name: values.pop(one.name) for one in shared}
    given = {key: _giver(ctx, key) for key in mine}
    for key in mine:
        if given[key] != "flag" and ctx.parent is not None and _giver(ctx.parent, key) == "flag":
            mine[key], given[key] = ctx.parent.params[key], "flag"
    if mine["verbose"]:
        _tell_variables(ctx)
    return {**mine, "given_by": {key: who for key, who in given.items() if who}}


def new_app(about: str = "") -> typer.Typer:
    """Return the app of a command; ``about`` is the help of one with subcommands."""
    return typer.Typer(
        cls=QuickGroup, rich_markup_mode=None, add_completion=False, no_args_is_help=bool(about), help=about or None
    )


def single_command(function: Callable[..., Exit | None]) -> typer.Typer:
    """Return the app of a command without subcommands; see :func:`command`."""
    app = new_app()
    command(app)(function)
    return app


def prose(docstring: str) -> str:
    """Return a help text with one line per paragraph, for the terminal to wrap; examples stay as they are."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(one if one.startswith((" ", "Examples:")) else " ".join(one.split("\n")) for one in paragraphs)


def _tell_variables(ctx: Any) -> None:
    options = {one.envvar: one for at in (ctx.parent, ctx) if at is not None for one in at.command.params if one.envvar}
    for name, value in sorted(item for item in os.environ.items() if item[0].startswith("KRETAIN_")):
        one = options.get(name)
        if one is None:
            does = "is read" if name in OWN_VARIABLES else "has no effect on this command"
        elif _giver(ctx, one.name) == "variable":
            does = f"sets {one.opts[0]}"
        else:
            does = f"is overridden by {one.opts[0]}"
        tell(f"kretain: {name if name in _MAY_BE_SECRET else f'{name}={value}'} {does}")


def _giver(ctx: Any, key: str) -> str:
    source = ctx.get_parameter_source(key)
    return {"COMMANDLINE": "flag", "ENVIRONMENT": "variable"}.get(source.name if source is not None else "", "")


def guarded(
    work: Callable[[], Exit | None], verbosity: int, deletions: Deletions | None = None, deadline_ms: int | None = None
) -> Exit:
    """Run a command and return its exit code; report an error, or a result that was not printed, in one line.

    At the deadline the command is asked to stop, as by SIGTERM. Once something was deleted, any later failure is
    partial (5), and what was deleted is printed to stderr.

    Raises:
        UsageError: the arguments don't go together, or name no cluster.
    """
    # not "or": an empty one is false, but may still be filled
    deletions = Deletions() if deletions is None else deletions
    signal.signal(signal.SIGTERM, _as_interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
        signal.signal(signal.SIGHUP, _as_interrupt)  # the terminal was closed
    try:
        with ended_after(deadline_ms):
            code = work() or Exit.DONE
        sys.stdout.flush()
    except (typer.Exit, typer.Abort, UsageError):
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (reported in one line, with its exit code)
        known = as_engine_error(error)
        if exit_code_for(known) is Exit.USAGE:
            raise UsageError(str(known)) from None
        code = deletions.leave_with(exit_code_for(known))
        report(known, verbosity, exit_code=code, deletions=str(deletions))
        return code
    code = deletions.leave_with(code)
    if (why := stdio.unprinted()) is None:
        return code
    code = worst(code, Exit.PARTIAL if deletions else Exit.FAILED)
    tell_error(code, "output", f"the result could not be printed: {why}{f'; {deletions}' if deletions else ''}")
    return code


def _as_interrupt(_number: int, _frame: object) -> None:
    if not _TOGETHER.is_second():
        raise KeyboardInterrupt


_TOGETHER: Final = Together()
