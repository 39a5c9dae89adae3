"""``tools/words.py`` finds what reads like a translation, and nothing in what was rewritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs import ROOT


def words(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "words.py"), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("First.\n\nThe group is told anew.\n", ["page.md:3: 'told': ", "page.md:3: 'anew': ", "'is told': "]),
        ("The whole topic is there.\n\nBrokers delete whole segments.\n", ["'whole': complete", "'is there': exists"]),
        (f"- {'word ' * 30}word.\n", ["page.md:1: a sentence of 32 words"]),
        (f"| a | {'word ' * 31}|\n", ["page.md:1: a sentence of 31 words"]),
        (f"```sh\ntold {'word ' * 40}\n```\n\nThe broker deletes `whatever` it keeps. [x](told.md)\n", []),
    ],
    ids=["tics", "more-tics", "item", "cell", "code"],
)
def test_odd_words_and_long_sentences_outside_code_are_named(tmp_path: Path, text: str, found: list[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    done = words(page)
    assert done.returncode == (1 if found else 0), done.stdout + done.stderr
    assert [one for one in found if one not in done.stdout] == []
    assert len(done.stdout.splitlines()) == len(found)


def test_help_and_rewritten_pages_have_no_problem() -> None:
    done = words()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
