"""Runs the runbooks (docs/runbooks) as an operator would: in a shell, with Kafka's own tools on the PATH."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kretain.embedded import DEFAULT_VERSION, jars
from kretain.embedded.java import find_java
from tests.support import processes
from tests.support.terminal import Terminal
from tests.support.world import Cli, World

FOLDER: Final = Path(__file__).parents[2] / "docs" / "runbooks"
TOOLS: Final = {
    "kafka-configs.sh": ("kafka-tools", "org.apache.kafka.tools.ConfigCommand"),
    "kafka-consumer-groups.sh": ("kafka-tools", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    "kafka-dump-log.sh": ("kafka-tools", "org.apache.kafka.tools.DumpLogSegments"),
    "kafka-topics.sh": ("kafka-tools", "org.apache.kafka.tools.TopicCommand"),
}
"""Kafka's own tools: the artifact that has them, and their class."""


@dataclass(frozen=True)
class Runbooks:
    """A shell on a machine with kretain, Kafka's tools and the runbooks.

    ``tools`` is the folder of the commands, ``saves`` where runbooks leave what they save.
    """

    world: World
    policy: Path
    tools: Path
    saves: Path

    def run(self, runbook: str, *arguments: str, check: int | None = 0, **environ: str) -> Cli:
        """Run a runbook by its name; what it prints on stdout and stderr is in ``out``, in its order."""
        done = subprocess.run(
            [str(FOLDER / f"{runbook}.sh"), *arguments],
            env={**self._environ(), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        assert check is None or done.returncode == check, f"exit {done.returncode}, not {check}:\n{done.stdout}"
        return Cli(done.returncode, done.stdout, "")

    def in_terminal(self, runbook: str, *arguments: str) -> Terminal:
        """Run a runbook in a terminal, where it asks. A context manager."""
        return Terminal([str(FOLDER / f"{runbook}.sh"), *arguments], 120, self._environ())

    def _environ(self) -> dict[str, str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith("KRETAIN_")}
        return known | {
            "PATH": f"{self.tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KRETAIN_BOOTSTRAP_SERVER": self.world.bootstrap,
            "KRETAIN_POLICY": str(self.policy),
            "KRETAIN_STATE_DIR": str(self.world.state_dir),
            "RUNBOOK_DIR": str(self.saves),
        }

    def commits(self, group: str, topic: str, offset: int) -> str:
        """Return a line of shell by which a group commits an offset on partition 0."""
        words = ("--reset-offsets", "--group", group, "--topic", f"{topic}:0", "--to-offset", str(offset), "--execute")
        tool = self.tools / "kafka-consumer-groups.sh"
        real = tool.with_suffix(".sh.real")
        ours = shlex.join([str(tool), "--bootstrap-server", self.world.bootstrap, *words])
        return f"if [ -e {real} ]; then {ours.replace(str(tool), str(real), 1)}; else {ours}; fi"

    def before(self, tool: str, what: str) -> None:
        """Let a line of shell be run before each call of a tool; the call is in ``$*``."""
        self._wrap(tool, lambda real: f'{what}\nexec {real} "$@"')

    def after(self, tool: str, what: str) -> None:
        """Likewise, after each call."""
        self._wrap(tool, lambda real: f'{real} "$@"\ncode=$?\n{what}\nexit $code')

    def _wrap(self, tool: str, lines: Callable[[str], str]) -> None:
        """Put a script in a tool's place: these lines, given the path where the tool is now."""
        path = self.tools / tool
        real = path.rename(self.tools / f"{tool}.real")
        path.write_text(f"#!/usr/bin/env bash\n{lines(shlex.quote(str(real)))}\n", encoding="utf-8")
        path.chmod(0o755)


def runbooks_for(world: World, policy: str, folder: Path) -> Runbooks:
    """Return a shell in which this policy is the operator's."""
    tools, saves, file = folder / "bin", folder / "saves", folder / "policy.yaml"
    tools.mkdir()
    saves.mkdir()
    file.write_text(f"{policy}\n", encoding="utf-8")
    processes.on_path(tools)
    java = find_java()
    for tool, (artifact, main) in TOOLS.items():
        lib = jars.resolve(artifact, DEFAULT_VERSION, print)
        options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
        script = f'#!/bin/sh\nexec {shlex.quote(str(java))} {options} -cp "{lib}/*" {main} "$@"\n'
        (tools / tool).write_text(script, encoding="utf-8")
        (tools / tool).chmod(0o755)
    return Runbooks(world, file, tools, saves)
