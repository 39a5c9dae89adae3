"""``kretain watch``."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kretain.config import resolve
from kretain.errors import Deletions, Exit, UsageError, is_json_log, log_as_json, log_line, tell
from kretain.options.common import Common, OptionGroup, duration_ms, now_ms, option, single_command, size_bytes
from kretain.options.plans import InventoryOption, selection_of
from retention_cli.core.units import format_duration, timestamp

if TYPE_CHECKING:
    from retention_cli.protect.decision import Protection
    from retention_cli.trim.report import TrimReport
    from retention_cli.watch.board import Board

METRICS = "Metrics, health and log"


@dataclass(frozen=True, slots=True)
class OutFlags(OptionGroup):
    """Where metrics, health and the log go."""

    listen: Annotated[
        str,
        option(
            "--listen",
            metavar="HOST:PORT",
            panel=METRICS,
            help="Serve /metrics, /healthz and /readyz here, or off.",
        ),
    ] = "127.0.0.1:9308"
    textfile: Annotated[
        Path | None,
        option("--textfile", metavar="FILE", panel=METRICS, help="Write metrics to this .prom file for node_exporter."),
    ] = None
    log_format: Annotated[
        Literal["text", "json"],
        option(
            "--log-format",
            metavar="FORMAT",
            panel=METRICS,
            help="Write the log as text, or as one JSON object per line.",
            show_default=False,
        ),
    ] = "text"


@single_command
def watch(
    common: Common,
    interval: Annotated[
        int,
        option(
            "--interval",
            metavar="DURATION",
            parser=duration_ms,
            help="Plan this often (±10 %). Default: 5m.",
            show_default=False,
        ),
    ] = "5m",  # type: ignore[assignment]  # (the option's parser reads it)
    trim: Annotated[bool, option("--trim", help="Delete. Without it, watch only plans.")] = False,
    protect: Annotated[
        bool, option("--protect", help="Raise retention while required groups lag (kretain protect).")
    ] = False,
    max_records: Annotated[
        int | None, option("--max-records", metavar="N", min=1, help="Trim at most this many records per pass.")
    ] = None,
    max_bytes: Annotated[
        int | None,
        option(
            "--max-bytes",
            metavar="SIZE",
            parser=size_bytes,
            help="Trim at most about this much per pass, such as 50GiB.",
        ),
    ] = None,
    standby_group: Annotated[
        str,
        option(
            "--standby-group",
            metavar="NAME",
            help="Elect the instance that trims through this Kafka group.",
        ),
    ] = "kretain-watch",
    out: OutFlags = OutFlags(),
) -> None:
    """Plan every few minutes; with --trim, carry out each plan. Serves metrics.

    A pass is a kretain plan and trim, with the same ledger, lock and audit log, and logs one line to stderr. Each pass
    rereads the policy file, and trims nothing while it is broken or has just changed. SIGTERM and Ctrl-C finish the
    current batch.

    Examples:
      kretain watch -p policy.yaml

      kretain watch -p policy.yaml --trim --interval 10m --max-records 50000000

      kretain watch -p policy.yaml --trim --protect

      kretain watch -p policy.yaml --trim --listen 0.0.0.0:9308

      kretain watch -p policy.yaml --listen off --textfile /var/lib/node_exporter/kretain.prom
    """
    from kretain.flows.trims import exit_codes
    from kretain.render.progress import still
    from kretain.system.signals import Ending, end_if_stuck
    from retention_cli.trim.narrow import Ceiling
    from retention_cli.watch.board import Board, Server
    from retention_cli.watch.leader import Leadership
    from retention_cli.watch.loop import Loop
    from retention_cli.watch.notify import Notifier
    from retention_cli.watch.one_pass import Passes, PolicyFile

    if out.log_format == "json":
        log_as_json()
    wrong = {
        "--interval: must be at least 1 s": interval < 1000,
        "--standby-group: must be 1 to 200 printable characters": not (
            0 < len(standby_group) <= 200 and standby_group.isprintable()
        ),
        "--max-records and --max-bytes need --trim": (max_records, max_bytes) != (None, None) and not trim,
        "--max-bytes: must be at least 1 byte": max_bytes is not None and max_bytes < 1,
    }
    if problem := next((text for text, is_so in wrong.items() if is_so), None):
        raise UsageError(problem)
    where = _address(out.listen)
    settings = resolve(common)
    file = settings.policy_file("watch needs a policy file")
    policy = PolicyFile(lambda: selection_of(file))
    policy.read_current()  # a broken policy ends it here, before anything else
    settings.settings()

    notifier = Notifier(settings.name, _say)
    ending, leadership = Ending(), Leadership(standby_group, _say)
    board = Board(interval / 1000, lambda: (trim or protect) and leadership.term() is not None, lambda: policy.valid)
    passes = Passes(
        reader=lambda: settings.reader(patient=True),
        memories=settings.memories,
        inventory=lambda selection: InventoryOption(None, selection.policy).view,
        policy=policy,
        leadership=leadership,
        state_dir=settings.state_dir,
        clock_ms=now_ms,
        trims=trim,
        every_ms=interval,
        ceiling=Ceiling(max_records, max_bytes),
        exit_code_for=exit_codes(),
        uninterrupted=ending.uninterrupted,
        progress=board.tick,
        protects=protect,
        on_protected=lambda made: _protected(board, made, quiet=common.quiet),
    )
    still()
    with ExitStack() as stack:
        stack.enter_context(ending.heard())
        stack.enter_context(closing(leadership))
        stack.enter_context(closing(notifier))
        publish = _publisher(board, out.textfile)
        publish()
        if where is not None:
            server = stack.enter_context(closing(Server(*where, board)))
            host = f"[{where[0]}]" if ":" in where[0] else where[0]
            _say(f"metrics and health on http://{host}:{server.server_port}/metrics, /healthz, /readyz", "started")
        does = "plans and trims" if trim else "dry run (pass --trim to delete): plans"
        does += " and protects" if protect else ""
        _say(f"{does} every {format_duration(interval)}", "started")
        end_if_stuck(lambda: board.alive, lambda: Exit.PARTIAL if common.deletions else Exit.FAILED)
        Loop(
            make=passes.make,
            board=board,
            leadership=leadership,
            interval_s=interval / 1000,
            trims=trim,
            stop_requested=lambda: ending.requested,
            say=_quiet if common.quiet else _say,
            publish=publish,
            on_report=lambda report: _note(common.deletions, report),
            notify=lambda notice: notifier.post(policy.notify, notice),
        ).run()
        _say(f"{ending.signal} received, stopped", "stopped")


def _say(text: str, event: str = "note", /, **facts: object) -> None:
    from retention_cli.core.printable import printable

    if is_json_log():
        print(log_line(event, text=printable(text), **facts), file=sys.stderr, flush=True)
    else:
        tell(f"{timestamp(now_ms())[:19]}Z {text}")


def _quiet(text: str, event: str = "note", /, **facts: object) -> None:
    if event == "failed":
        _say(text, event, **facts)


def _protected(board: Board, made: Protection, *, quiet: bool) -> None:
    from kretain.render.protect import change_line

    board.protected = made.raised
    board.protect_changes += len([row for row in made.changes if row.outcome == "done"])
    for row in [] if quiet else made.changes:
        _say(change_line(row), "protect", topic=row.topic, setting=row.setting)


def _note(deletions: Deletions, report: TrimReport) -> None:
    """Record once that something was deleted: a later failure must not exit with 1."""
    if report.sent and not deletions:
        deletions.note("its passes have trimmed records (kretain history)")


def _publisher(board: Board, textfile: Path | None) -> Any:
    """Return the function that writes the textfile, if there is one.

    Raises:
        MissingPartError: prometheus_client is not installed.
    """
    if textfile is None:
        return lambda: None
    if textfile.suffix != ".prom":
        raise UsageError(f"--textfile {textfile}: node_exporter only reads *.prom files")
    from retention_cli.core.files import write_atomic
    from retention_cli.watch.board import as_text, registry_of

    registry = registry_of(board)
    return lambda: write_atomic(textfile, [as_text(registry)], 0o644)


def _address(text: str) -> tuple[str, int] | None:
    """Return the host and the port of ``--listen``, None where it is off.

    Raises:
        UsageError: it is neither.
    """
    if text == "off":
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"--listen {text!r}: is neither HOST:PORT (127.0.0.1:9308, [::1]:9308) nor off")
    return host, int(port)
