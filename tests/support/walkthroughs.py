"""Follows a page of the docs: writes its files, runs its commands in order, and compares what they print with the page.

A page shows the first paragraph of what a command prints, and an ellipsis if there is more. ``DOCS=write`` puts that into
the page instead of comparing it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(r"^```(yaml|sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"# ([\w.-]+)\n")
_VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?Z| UTC)?"), "TIME"),
    (re.compile(r"\b\d{8}T\d{6}Z(-\w+)?\b"), "TIME"),
    (re.compile(r"[\d,.]+ (B|KiB|MiB|GiB)\b"), "SIZE"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s)\b"), "TIME"),
    (re.compile(r"\b[\w-]{22}\b"), "CLUSTER"),
    (re.compile(r"-{3,}"), "LINE"),
    (re.compile(r"[ ]+(?=\n)"), ""),
    (re.compile(r"[ ]+"), " "),
)
"""What differs from run to run: moments, sizes on disk, durations, ids, and so the widths of columns."""


@dataclass
class Reader:
    """A user who follows pages: in a folder, with these variables. The cluster's address is shown as another."""

    folder: Path
    variables: dict[str, str]
    address: str
    shown_as: str = "broker-1:9092"

    def follow(self, page: Path, *, skip: str = "") -> None:
        """Follow a page from top to bottom, without the blocks that contain ``skip``."""
        text = page.read_text(encoding="utf-8")
        new = _BLOCK.sub(lambda block: block[0] if skip and skip in block[0] else self._block(block), text)
        if os.environ.get("DOCS") == "write":
            page.write_text(new, encoding="utf-8")
        else:
            assert new == text

    def _block(self, block: re.Match[str]) -> str:
        kind, text = block.groups()
        if kind == "yaml":
            if name := _FILE.match(text):
                (self.folder / name[1]).write_text(text, encoding="utf-8")
        elif kind == "sh":
            self._run(text)
            self.variables.update(re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE))
        else:
            commands = re.findall(r"^\$ (.*(?:(?<=\\)\n.*)*)", text, re.MULTILINE)
            parts = [f"$ {one}\n{first_paragraph(self._run(one))}" for one in commands]
            new = f"```console\n{''.join(parts)}```"
            return block[0] if masked(new) == masked(block[0]) else new
        return block[0]

    def _run(self, script: str) -> str:
        """Run lines of shell, and return what they print on stdout."""
        settings = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items())
        done = subprocess.run(
            ["bash", "-ec", f"{settings}{script}"],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{script}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.replace(self.address, self.shown_as)


def first_paragraph(text: str) -> str:
    """Return the lines up to the first empty one, without spaces at their ends, and an ellipsis for the others."""
    first, _, rest = text.strip("\n").partition("\n\n")
    return "".join(f"{line.rstrip()}\n" for line in first.splitlines()) + ("…\n" if rest.strip() else "")


def masked(text: str) -> str:
    """Return a text without what differs from run to run."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text
