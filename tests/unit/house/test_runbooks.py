"""Runbooks (docs/runbooks) are scripts: each is tested on a broker, and every command in them exists with these flags."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.docs import parse

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "runbooks"
SCRIPTS = sorted(FOLDER.glob("*.sh"))
RUNBOOKS = [path for path in SCRIPTS if path.name != "lib.sh"]
TESTS = (ROOT / "tests" / "kafka" / "cli" / "test_runbooks.py").read_text(encoding="utf-8")
VALUES: Final = {"keep": "1h", "old": "86400000", "since": "2026-11-01T00:00:00Z", "until": "0"}
"""What a variable may be worth, where a word would not do."""
KAFKA: Final = {
    "kafka-configs.sh": "--alter --describe --entity-type --entity-name --add-config --delete-config",
    "kafka-consumer-groups.sh": "--delete --group --reset-offsets --from-file --execute",
    "kafka-topics.sh": "--create --delete --topic --partitions --config",
    "kafka-dump-log.sh": "--files --print-data-log",
    "kafka-acls.sh": "",
    "kafka-share-groups.sh": "",
}
"""Flags of Kafka's own tools that runbooks may use: those that the tests run with the tools of 4.3.0."""


def lines_of(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if not line.lstrip().startswith("#"):
            yield line.strip()


def commands(path: Path, name: str) -> Iterator[list[str]]:
    """Yield the words behind each call of a command, with values for variables; prose that names one is left out."""
    begins = r"(?:^|\brun |\$\(|\|\| |&& |\bkafka )"
    for line in lines_of(path):
        for call in re.findall(rf"{begins}{re.escape(name)} ([^|;)<>&]*)", line):
            text = re.sub(r'\$\{\w+:\+([^}]*"[^"]*"|[^}"]*)\}', r"\1", call)  # ${yes:+--yes}: as if it were set
            text = text.replace('"$@"', "")
            text = re.sub(r"\$\{?(\w+)\}?", lambda found: VALUES.get(found[1], "word"), text)
            yield shlex.split(text)


def calls(name: str) -> list[Any]:
    return [
        pytest.param(words, id=f"{path.name}: {' '.join(words)}") for path in SCRIPTS for words in commands(path, name)
    ]


def test_runbooks_match_the_page() -> None:
    page = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
    names = {path.stem for path in RUNBOOKS}
    assert names == {"broker-retention", "dead-consumer", "disk-filling", "legal-hold", "undo", "who-deleted"}
    assert names == {path.stem for path in FOLDER.glob("*.md")}
    assert [one for name in names for one in (f"{name}.sh", f"{name}.md") if f"](runbooks/{one})" not in page] == []


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.name)
def test_runbook_stops_at_the_first_failure_and_is_tested(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert os.access(path, os.X_OK)
    assert re.match(r"(?s)#!/usr/bin/env bash\n# .*\nset -euo pipefail\n", text)
    assert len(re.findall(rf'books\.run[(,]\s*"{path.stem}"|^\s*\w+ = \("{path.stem}"', TESTS, re.MULTILINE)) > 2
    asked, wrong = (
        subprocess.run([str(path), option], capture_output=True, text=True, check=False, timeout=60)
        for option in ("--help", "--no-such-option")
    )
    assert (asked.returncode, asked.stderr, wrong.returncode) == (0, "", 2)
    assert asked.stdout.splitlines()[0] in text
    assert "--yes" in asked.stdout or "changes nothing\n" in asked.stdout
    assert asked.stdout in wrong.stderr


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_runbook_is_valid_bash_without_hidden_failures(path: Path) -> None:
    """In a function that is called behind ``if``, ``!``, ``&&`` or ``||``, bash goes on after a command that failed."""
    assert subprocess.run(["bash", "-n", str(path)], check=False, timeout=60).returncode == 0
    harmless = {"run", "note", "held_here", "usage", "kafka", "holds", "value", "given", "stop", "wrong"}
    functions = set(re.findall(r"^(\w+)\(\) \{", path.read_text(encoding="utf-8"), re.MULTILINE)) - harmless
    for line in lines_of(path):
        for name in functions:
            assert not re.search(rf"(?:&&|\|\||\bif|!) {name}\b|(?:^|\) ){name}(?: [^|&]*)? (?:&&|\|\|) ", line), line


@pytest.mark.parametrize("words", calls("kretain"))
def test_every_kretain_command_in_a_runbook_parses(words: list[str]) -> None:
    parse(words)


@pytest.mark.parametrize("tool", [name for name, flags in KAFKA.items() if flags])
def test_every_kafka_tool_flag_in_a_runbook_is_tested(tool: str) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md"))
    in_pages = [call.split() for call in re.findall(rf"{re.escape(tool)} ([^`\n]*)", text)]
    in_scripts = [words.values[0] for words in calls(tool)]
    used = {word for words in (*in_pages, *in_scripts) for word in words if word.startswith("--")}
    assert set() < used <= {*KAFKA[tool].split(), "--bootstrap-server"}


def test_every_kafka_tool_named_in_runbooks_is_known() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in FOLDER.iterdir())
    assert set(re.findall(r"\bkafka-[a-z-]+\.sh", text)) <= set(KAFKA)


def test_runbooks_cover_the_main_kretain_commands() -> None:
    found = {words.values[0][0] for words in calls("kretain")}
    assert {"plan", "trim", "disk", "groups", "offsets", "restore", "archive", "doctor", "policy", "history"} <= found


def quotes() -> list[Any]:
    """Return what the pages' tables say that a runbook says."""
    sections = {
        page: page.read_text(encoding="utf-8").partition("## If it stops")[2].partition("\n## ")[0]
        for page in sorted(FOLDER.glob("*.md"))
    }
    return [
        pytest.param(page, text, id=f"{page.stem}: {text}")
        for page, section in sections.items()
        for cell in re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE)
        for text in re.findall(r"`([^`]+)`", cell)
    ]


@pytest.mark.parametrize(("page", "text"), quotes())
def test_page_quotes_the_runbooks_output_exactly(page: Path, text: str) -> None:
    """By the script, or by kretain; an ellipsis or an N stands for anything."""
    script = page.with_suffix(".sh").read_text(encoding="utf-8")
    for part in re.split(r"…|\bN\b|=", text):
        words = part.strip(" .,:")
        assert words in script or any(words in source for source in sources()), words


@functools.cache
def sources() -> list[str]:
    """Return the product's modules, with strings that go on in the next line joined."""
    texts = [
        path.read_text(encoding="utf-8") for room in ("cli", "retention_cli") for path in (ROOT / room).rglob("*.py")
    ]
    return [re.sub(r'"\n\s+f?"', "", text) for text in texts]


def test_pages_contain_quotes() -> None:
    assert len(quotes()) > 25
