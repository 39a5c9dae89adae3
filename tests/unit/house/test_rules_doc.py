"""docs/rules.md has every rule that is quoted by number, and no other; what else is quoted from docs/ is there, too."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
RULES = ROOT / "docs" / "rules.md"
NUMBER = re.compile(r"(?<![\w-])[FGRMP]\d{1,2}(?!\w)")
QUOTE = re.compile(r"docs/([\w-]+\.md)(?:, ([A-Z](?!\d)[\w-]*(?: [\w-]+)*))?")
"""A page, and perhaps a heading in it: ``docs/rules.md, Look-ups``."""
SHOUTED = re.compile(r"(?<![\w/-])[A-Z]{4,}\.md\b")


@cache
def texts() -> dict[str, str]:
    """Everything that may quote a rule or a page: code, tests, docs, and what stands at the root."""
    files = [
        *(path for folder in ("cli", "retention_cli", "tests", "bench") for path in (ROOT / folder).rglob("*.py")),
        *(ROOT / "docs").glob("*.md"),
        *ROOT.glob("*.md"),
        *(ROOT / name for name in ("Makefile", "pyproject.toml")),
    ]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files if path != Path(__file__)}


def defined() -> list[str]:
    return re.findall(r"^### (\w+): ", RULES.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def quoted() -> dict[str, list[str]]:
    """Each number that is quoted outside docs/rules.md, and where."""
    found = defaultdict(list)
    for name, text in texts().items():
        if ROOT / name != RULES:
            for number in sorted(set(NUMBER.findall(text))):
                found[number].append(name)
    return found


def test_every_quoted_rule_exists() -> None:
    known = set(defined())
    assert {number: where[:3] for number, where in quoted().items() if number not in known} == {}


def test_every_rule_is_quoted() -> None:
    assert [number for number in defined() if number not in quoted()] == []


def test_rules_are_in_order_without_gaps() -> None:
    numbers = defined()
    for letter in "RGFMP":
        own = [int(number[1:]) for number in numbers if number[0] == letter]
        first = 0 if letter == "M" else 1
        assert own == list(range(first, len(own) + first)), letter
    assert "".join(dict.fromkeys(number[0] for number in numbers)) == "RGFMP"


def test_every_rule_number_used_in_the_rules_page_is_defined() -> None:
    assert set(NUMBER.findall(RULES.read_text(encoding="utf-8"))) == set(defined())


def test_every_page_and_heading_quoted_in_code_exists() -> None:
    checked = 0
    for name, text in texts().items():
        for page, heading in QUOTE.findall(text):
            path = ROOT / "docs" / page
            assert path.exists(), f"{name}: docs/{page}"
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert not heading or any(one.startswith(heading) for one in headings), f"{name}: docs/{page}, {heading}"
            checked += bool(heading)
    assert checked


def test_every_document_quoted_in_code_exists() -> None:
    """A contract that only its author has is none."""
    missing = {
        name: sorted(lost)
        for name, text in texts().items()
        if (lost := {one for one in SHOUTED.findall(text) if not (ROOT / one).exists()})
    }
    assert missing == {}
