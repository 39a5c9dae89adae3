"""``completions/`` and ``docs/commands.md`` say what the app says: a changed or missing file is named, exit 1."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.generated import MANY, commands_page, manual_pages

ROOT = Path(__file__).parents[3]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("completions", "docs", "man"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def test_generated_files_are_up_to_date_and_a_change_is_named(copy: Path) -> None:
    def check() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "tools" / "generated.py"), "--check"]
        return subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=120, check=False)

    assert check().returncode == 0, "run make generated"
    (copy / "completions" / "_kretain").unlink()
    bash = copy / "completions" / "kretain.bash"
    bash.write_text(bash.read_text() + "# edited\n")
    stale = check()
    assert (stale.returncode, stale.stdout) == (1, "")
    assert stale.stderr == "out of date: kretain.bash, _kretain; run: make generated\n"
    assert not (copy / "completions" / "_kretain").exists(), "a check writes nothing"


def test_every_command_has_a_manual_page_with_its_options() -> None:
    """Each option of the reference is in some page, and no line of text is taken for a request of roff."""
    page = (ROOT / "docs" / "commands.md").read_text()
    pages = {path.name: path.read_text() for path in (ROOT / "man").iterdir()}
    assert {"kretain.1", "kretain-plan.1", "kretain-trim.1", "kretain-archive.1"} <= set(pages)
    assert len(pages) == page.count("\n### `kretain ") + 1
    whole = "".join(pages.values()).replace("\\-", "-")
    assert set(re.findall(r"`(--[a-z-]+)", page)) <= set(re.findall(r"(--[a-z-]+)", whole))
    assert "--bootstrap-server" in pages["kretain-explain.1"].replace("\\-", "-"), "a page is whole by itself"
    requests = {line.split()[0] for line in whole.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".PP", ".TP", ".nf", ".fi"}
    shown = manual_pages("# Commands\n.dot\n\n'quote `a` \\ b\n", "", "1")["kretain.1"]
    assert shown.partition(".SH EXIT")[0].splitlines()[2:] == [
        "kretain \\- \\&.dot",
        ".SH DESCRIPTION",
        "\\&.dot",
        ".PP",
        "\\&'quote \\fBa\\fR \\e b",
    ]


@pytest.mark.parametrize("page", sorted((ROOT / "man").iterdir()), ids=lambda page: page.name)
def test_every_manual_page_has_the_usual_sections_in_order(page: Path) -> None:
    sections = [line.removeprefix(".SH ") for line in page.read_text().splitlines() if line.startswith(".SH ")]
    usual = ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"]
    assert [name for name in sections if name in usual] == usual
    text = page.read_text().replace("\\-", "-")
    for name in ("130", "KRETAIN_BOOTSTRAP_SERVER", "config.yaml"):
        assert name in text.partition(".SH EXIT STATUS")[2]
    for name in re.findall(r"\\fB(kretain[a-z-]*)\\fR\(1\)", text.partition(".SH SEE ALSO")[2]):
        assert (page.parent / f"{name}.1").exists(), name


def test_shared_options_appear_once_in_the_manual() -> None:
    common = "* `--many`: In all of them.\n"
    reference = "# Commands\n\nWhat it is.\n\n**Commands**:\n\n* `c0`: x\n\n" + "".join(
        f"## `kretain c{n}`\n\nDoes {n}.\n\n**Options**:\n\n* `--own-{n}`: Its own.\n{common}\n" for n in range(MANY)
    )
    page = commands_page(reference, {f"c{n}": "Odd" if n % 2 else "Even" for n in range(MANY)})
    assert page.count("--many") == 1
    assert all(f"--own-{n}" in page for n in range(MANY))
    assert [line for line in page.splitlines() if line.startswith("## ")] == ["## Shared options", "## Even", "## Odd"]
    assert page.index("kretain c2") < page.index("kretain c1"), "by group"
