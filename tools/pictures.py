"""Draw docs/images/: the plan and the trim's report of the tutorial, whose text a test compares with a real run.

``python tools/pictures.py`` writes them; ``--check`` only reports which are out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = {"plan": "kretain plan --out", "report": "kretain trim --plan plan.json --yes"}
"""The pictures, and how the commands in the tutorial begin."""
COLORS: Final = {"trim": "#7ee787", "trimmed": "#7ee787", "hold": "#e3b341", "held": "#e3b341", "F2": "#e3b341"}
FONT_SIZE: Final = 14
CHARACTER: Final = 8.43
LINE: Final = 20
MARGIN: Final = 18


def pictures() -> Iterator[tuple[Path, str]]:
    """Yield each picture's file and content."""
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    for name, command in PICTURES.items():
        block = re.search(rf"(?ms)^```console\n(\$ {re.escape(command)}.*?)^```$", tutorial)
        if block is None:
            sys.exit(f"docs/tutorial.md does not show {command}")
        yield ROOT / "docs" / "images" / f"{name}.svg", svg(block[1].rstrip().splitlines())


def svg(lines: list[str]) -> str:
    """Return a terminal's picture, with these lines."""
    width = round(max(map(len, lines)) * CHARACTER) + 2 * MARGIN
    height = len(lines) * LINE + 2 * MARGIN - 4
    bold = ' font-weight="bold"'  # of the command and the table's head
    rows = [
        f'<text x="{MARGIN}" y="{MARGIN + number * LINE + FONT_SIZE - 2}" xml:space="preserve"{bold * (number < 2)}>'
        f"{escape(line) if number < 2 else _colored(line)}</text>"
        for number, line in enumerate(lines)
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{FONT_SIZE}" fill="#e6edf3">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" rx="8" fill="#161b22"/>', *rows, "</svg>"]) + "\n"


def _colored(line: str) -> str:
    words = re.split(r"( +)", line)
    return "".join(f'<tspan fill="{COLORS[word]}">{word}</tspan>' if word in COLORS else escape(word) for word in words)


def main() -> None:
    """Write or check the pictures."""
    stale = [(path, text) for path, text in pictures() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if stale and "--check" in sys.argv:
        sys.exit(f"out of date: {', '.join(path.name for path, _ in stale)}; run: make generated")
    for path, text in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
