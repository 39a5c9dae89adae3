"""docs/rules.md has every rule that is quoted by number, and no other; what else is quoted from docs/ is there, too."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
RULES = ROOT / "docs" / "rules.md"
NUMBER = re.compile(r"(?<![\w-])[FGRMP]\d{1,2}(?!\w)")
QUOTE = re.compile(r"docs/([\w-]+\.md)(?:, ([A-Z](?!\d)[\w-]*(?: [\w-]+)*))?")
"""A page, and perhaps a heading in it: ``docs/rules.md, Look-ups``."""
SHOUTED = re.compile(r"(?<![\w/-])[A-Z]{4,}\.md\b")


CODE = [path for folder in ("cli", "retention_cli", "tests", "bench") for path in (ROOT / folder).rglob("*.py")]


@cache
def texts() -> dict[str, str]:
    """Everything that may quote a rule or a page: code, tests, docs, and what stands at the root."""
    files = [
        *CODE,
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
    assert {number: where[:3] for number, where in quoted().items() if number not in defined()} == {}


def test_every_rule_is_quoted() -> None:
    assert [number for number in defined() if number not in quoted()] == []


def test_rules_are_in_order_without_gaps() -> None:
    count = Counter(number[0] for number in defined())
    firsts = {letter: 0 if letter == "M" else 1 for letter in "RGFMP"}
    assert defined() == [f"{letter}{first + n}" for letter, first in firsts.items() for n in range(count[letter])]


def test_every_rule_number_used_in_the_rules_page_is_defined() -> None:
    assert set(NUMBER.findall(RULES.read_text(encoding="utf-8"))) == set(defined())


def test_every_page_and_heading_quoted_in_code_exists() -> None:
    quotes = [(name, page, heading) for name, text in texts().items() for page, heading in QUOTE.findall(text)]
    assert any(heading for *_, heading in quotes)
    for name, page, heading in quotes:
        path = ROOT / "docs" / page
        assert path.exists(), f"{name}: docs/{page}"
        headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert not heading or any(one.startswith(heading) for one in headings), f"{name}: docs/{page}, {heading}"


def test_every_document_quoted_in_code_exists() -> None:
    """A contract that only its author has is none."""
    missing = {
        name: sorted(lost)
        for name, text in texts().items()
        if (lost := {one for one in SHOUTED.findall(text) if not (ROOT / one).exists()})
    }
    assert missing == {}


# -- what developers are told is so: each path, target, marker, module and name that their pages name is there --


PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md", ROOT / "docs" / "development.md"]
PLACES = [ROOT, ROOT / "retention_cli", ROOT / "cli" / "kretain", ROOT / "docs"]
"""What a path in these pages may be relative to."""
OURS = ("tests", "bench", "kretain", "retention_cli")


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def shell(page: Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [shlex.join(shlex.split(line, comments=True)) for block in blocks for line in block.splitlines()]


def code(page: Path) -> list[str]:
    return [*re.findall(r"`([^`\n]+)`", prose(page)), *shell(page)]


def words(page: Path) -> list[str]:
    return [word for one in code(page) for word in one.split()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_named_in_developer_docs_exists(page: Path) -> None:
    paths = {
        word.rstrip("/")
        for word in words(page)
        if re.fullmatch(r"(?!\.venv)[\w.-]+(/[\w.-]+)*/?", word)
        and ("/" in word or Path(word).suffix in (".py", ".md", ".toml"))
    }
    assert paths
    assert {path for path in paths if not any((place / path).exists() for place in PLACES)} == set()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_every_make_target_named_in_docs_exists(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for one in code(page) for name in re.findall(r"(?:^|&& )make ([a-z-]+)", one)}
    assert named <= set(targets)
    assert named or page.name == "architecture.md"


def test_every_developer_make_target_is_documented() -> None:
    """Those of the README, and what takes things away, explain themselves (``make help``)."""
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for one in code(PAGES[2]) for name in re.findall(r"^make ([a-z-]+)", one)}
    assert set(targets) - named == {"help", "install", "demo", "clean"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_pytest_marker_named_in_docs_is_registered(page: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    registered = {one.partition(":")[0] for one in project["tool"]["pytest"]["ini_options"]["markers"]}
    named = set(re.findall(r"\bmarked\s+`(\w+)`", prose(page)))
    for line in shell(page):
        for expression in re.findall(r"pytest.* -m ('[^']+'|\w+)", line):
            named |= set(re.findall(r"\w+", expression)) - {"not", "and", "or"}
    assert named <= registered
    assert named or page.name != "development.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_run_in_developer_docs_exists(page: Path) -> None:
    named = {one for line in code(page) for one in re.findall(r"python -m ([\w.]+)", line)}
    ours = {f"{one.replace('.', '/')}.py" for one in named if one.partition(".")[0] in OURS}
    assert [one for one in ours if not (ROOT / one).exists() and not (ROOT / "cli" / one).exists()] == []


@cache
def names_in_code() -> frozenset[str]:
    texts = [path.read_text(encoding="utf-8") for path in CODE if path != Path(__file__)]
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_name_in_developer_docs_exists(page: Path) -> None:
    named = {one.partition("(")[0] for one in re.findall(r"`([A-Za-z]\w+(?:\([^`]*\))?)`", prose(page))}
    assert named - names_in_code() == set()


def test_pre_commit_hooks_run_exactly_the_steps_of_make_check() -> None:
    [recipe] = re.findall(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    checks = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    assert [hook["entry"] for hook in hooks] == checks
    assert all(hook["language"] == "system" and hook["always_run"] and not hook["pass_filenames"] for hook in hooks)
