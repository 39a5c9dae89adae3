"""The files generated from the command line itself: ``completions/``, ``man/`` and ``docs/commands.md``.

``python -m kretain.completion.generated`` writes them; ``--check`` only reports which are out of date.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kretain.app import COMMANDS
from kretain.completion.commands_page import commands_page
from kretain.completion.manual import manual_pages
from retention_cli import __version__

COMPLETIONS = {"bash": "kretain.bash", "zsh": "_kretain", "fish": "kretain.fish"}


def completion(shell: str) -> str:
    """Return the completion script that the command itself prints for a shell."""
    said = subprocess.run(
        [sys.executable, "-c", "from kretain.__main__ import main; main()"],
        env={**os.environ, "_KRETAIN_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.strip() + "\n"


def reference() -> str:
    """Return every command's help as one page."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "commands.md"
        command = [sys.executable, "-m", "typer", "kretain.app", "utils", "docs", "--name", "kretain"]
        subprocess.run([*command, "--title", "Commands", "--output", str(page)], check=True, capture_output=True)
        text = page.read_text(encoding="utf-8")
    text = re.sub(r'<span style="font-weight: bold">(.*?)</span>', r"**\1**", text)
    text = re.sub(r"(?m)^  ((?:kretain|source) .*)$", r"    \1", text)  # examples are code
    return html.unescape(text).strip() + "\n"


def wanted(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield each generated file, and its expected content."""
    for shell, name in COMPLETIONS.items():
        yield root / "completions" / name, completion(shell)
    page = reference()
    yield root / "docs" / "commands.md", commands_page(page, {name: one[0] for name, one in COMMANDS.items()})
    for name, text in manual_pages(page, __version__).items():
        yield root / "man" / name, text


def main() -> None:
    """Write or check the generated files, in the project's folder."""
    stale = []
    for path, text in wanted(Path.cwd()):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"out of date: {', '.join(stale)}; run: make generated")


if __name__ == "__main__":
    main()
