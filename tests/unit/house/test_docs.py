"""README and docs can't drift: what they show and quote is read by the real app, the real parser and the real code."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml

from kretain import config
from kretain.app import app
from kretain.errors import Exit
from kretain.render import consumers, forecast, history, setup
from kretain.texts import explanations
from retention_cli import __version__
from retention_cli.core.signing import Signed
from retention_cli.engines.fleet.plan import fleet_head, fleet_report_head
from retention_cli.plan.value import as_json
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.fleet_file import ClusterModel, FleetFileError, FleetModel, parse_fleet
from retention_cli.policy.load import parse_policy
from retention_cli.policy.schema import (
    DisksModel,
    EntryModel,
    FileModel,
    FloorModel,
    GroupsModel,
    LimitsModel,
    UntilConsumedModel,
    keys_of,
)
from retention_cli.policy.schema_reports import ApproveModel, AuditModel, CostModel, EvidenceModel, NotifyModel
from retention_cli.reports import offsets as offset_rows
from retention_cli.reports.policy_check import check_alone
from retention_cli.trim.report import TrimReport, TrimRow, report_as_json, row_as_json
from tests.support.docs import ROOT, parse, reason_codes
from tests.support.facts import known
from tests.support.plans import EVERY, FLEET, REPORT
from tools.words import names, phrases

PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
WRITTEN = [page for page in PAGES if page.name != "commands.md"]
"""docs/commands.md is generated; ``make check`` looks after it."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, line, information string and text."""

    page: Path
    line: int
    info: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^```", text, re.MULTILINE)) % 2 == 0, f"{page.name}: a block that never ends"
    for found in re.finditer(r"^```(.*)\n((?:.*\n)*?)```", text, re.MULTILINE):
        yield Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])


BLOCKS = [block for page in WRITTEN for block in blocks(page)]


def commands() -> Iterator[Any]:
    """Yield each ``kretain …`` of every shell block (all lines) and console block (after a ``$``)."""
    for block in BLOCKS:
        text = block.text.replace("\\\n", " ")
        if block.info == "console":
            lines = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
        else:
            lines = text.splitlines() if block.info == "sh" else []
        for line in lines:
            words = shlex.split(line, comments=True)
            if "kretain" in words:
                words = words[words.index("kretain") + 1 :]
                end = next((at for at, word in enumerate(words) if word in ("|", ">")), len(words))
                yield pytest.param(words[:end], id=f"{block}: {line}")


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def mentions() -> Iterator[Any]:
    """Yield each ``kretain …`` that a sentence names."""
    for page in WRITTEN:
        for line in sorted(set(re.findall(r"`kretain ([^`]+)`", prose(page)))):
            yield pytest.param(shlex.split(line), id=f"{page.name}: kretain {line}")


COMMANDS = list(commands())


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_line_parses_with_the_real_app(words: list[str]) -> None:
    """Commands and options exist, and values are of their kind; nothing is run, so nothing is connected to."""
    if words == ["--install-completion"]:  # would install it
        assert words[0] in {name for option in typer.main.get_command(app).params for name in option.opts}
        return
    try:
        parse(words)
    except typer.Exit as end:  # --help has been printed
        assert end.exit_code == 0


@pytest.mark.parametrize("words", list(mentions()))
def test_every_command_and_option_named_in_prose_exists(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    options = {"--install-completion", "--help"}
    for word in words:
        if word.startswith("-"):
            assert word in options
        elif hasattr(command, "get_command"):
            command = known(command.get_command(None, word))
            options = {name for option in command.params for name in option.opts}


def test_command_lines_in_docs_cover_the_main_commands() -> None:
    assert {"plan", "trim", "explain", "history", "policy", "doctor"} <= {one.values[0][0] for one in COMMANDS}


YAML = [block for block in BLOCKS if block.info.startswith("yaml")]


@pytest.mark.parametrize("block", [one for one in YAML if one.info == "yaml"], ids=str)
def test_every_yaml_block_in_docs_is_valid(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "contexts" in yaml.safe_load(block.text):
        (tmp_path / "config.yaml").write_text(block.text)
        monkeypatch.setenv("KRETAIN_CONFIG", str(tmp_path / "config.yaml"))
        for name in config.contexts():
            config.context_of(name)
        assert config.default_context() in config.contexts()
        return
    if "clusters" in yaml.safe_load(block.text):
        assert parse_fleet(block.text, "fleet.yaml", "sha256:x", tmp_path).entries
        return
    assert not check_alone(parse_policy(block.text, "policy.yaml", "sha256:x")).problems


@pytest.mark.parametrize("block", [one for one in YAML if one.info == "yaml broken"], ids=str)
def test_every_broken_yaml_block_gives_the_shown_problems(block: Block) -> None:
    shown = next(one for one in BLOCKS if one.page == block.page and one.line > block.line)
    assert shown.info == "text"
    try:
        if block.page.name == "fleets.md":
            parse_fleet(block.text, "fleet.yaml", "sha256:x", Path())
        problems = check_alone(parse_policy(block.text, "policy.yaml", "sha256:x")).problems
    except (PolicyError, FleetFileError) as error:
        problems = error.problems
    assert "".join(f"{problem}\n" for problem in problems) == shown.text


def test_every_block_in_docs_has_a_known_language() -> None:
    assert {block.info for block in YAML} == {"yaml", "yaml broken"}
    assert {block.info for block in BLOCKS} <= {
        "yaml",
        "yaml broken",
        "java",
        "sh",
        "console",
        "text",
        "json",
        "properties",
        "sql",
        "python",
    }


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_or_heading_resolves(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_site_navigation_has_every_page_once() -> None:
    listed = re.findall(r"[\w/-]+\.md", str(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


def test_readme_fits_on_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 70


@pytest.mark.thorough  # it builds the site
def test_site_builds_without_a_broken_link(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)

    def build() -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--config-file", "mkdocs.yml"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    done = build()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kretain" in (tmp_path / "site" / "howto" / "legal-hold.html").read_text(encoding="utf-8")
    (tmp_path / "docs" / "index.md").write_text("# kretain\n\n[Rules](rules.md#no-such-rule)\n", encoding="utf-8")
    assert build().returncode == 1


def test_scripts_page_lists_exactly_the_real_exit_codes() -> None:
    rows = re.findall(
        r"^\| (\d+) \| (.+) \|$", (ROOT / "docs" / "scripts.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [int(code) for code, _ in rows] == sorted(Exit)
    said = dict(rows)
    words = {"0": "done", "1": "failed", "2": "usage", "5": "partial", "6": "refused", "130": "interrupted"}
    assert {code: said[code].split()[0].strip(",:;") for code in words} == words
    assert "--detailed-exitcode" in said["3"]
    assert "--fail-on-hold" in said["4"]


def keys_in_tables(text: str) -> set[str]:
    """Return what stands as code in the first cells of a page's tables; ``a.b`` and ``.c`` beside it are ``a.b``, ``a.c``."""
    found: set[str] = set()
    for cell in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE):
        prefix = ""
        for key in re.findall(r"`([^`]+)`", cell):
            found.add(prefix + key if key.startswith(".") else key)
            prefix = prefix if key.startswith(".") else key.rpartition(".")[0]
    return found


def paths(value: Any, prefix: str = "") -> set[str]:
    """Return the dotted paths of an object's leaves; lists, and objects whose keys are data, are leaves."""
    if not isinstance(value, dict) or prefix in ("policy.flags", "unconsumed_by"):
        return {prefix}
    return {path for key, one in value.items() for path in paths(one, f"{prefix}.{key}" if prefix else key)}


def section(page: str, title: str) -> str:
    """Return a page of docs/, or its section of this title."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return "".join(part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.startswith(title))


PLAN: Final = as_json(replace(EVERY, requester=Signed("key", "signature")))
TRIMMED: Final = TrimReport("run", "id", "b:9092", [TrimRow(EVERY.decisions[0].tp, "trimmed")])


@pytest.mark.parametrize(
    ("page", "title", "keys"),
    [
        pytest.param(
            "policy.md",
            "",
            {
                *keys_of(FileModel),
                *(f"groups.{key}" for key in keys_of(GroupsModel)),
                *keys_of(LimitsModel),
                *(f"audit.{key}" for key in keys_of(AuditModel)),
                *(f"evidence.{key}" for key in keys_of(EvidenceModel)),
                *(f"approve.{key}" for key in keys_of(ApproveModel)),
                *(f"notify.{key}" for key in keys_of(NotifyModel)),
                *(f"cost.{key}" for key in keys_of(CostModel)),
                *keys_of(DisksModel),
                *keys_of(EntryModel),
                *keys_of(UntilConsumedModel),
                *keys_of(FloorModel),
            },
            id="a policy",
        ),
        pytest.param("plan.md", "The plan", paths(PLAN) | set(PLAN["partitions"][0]), id="a plan"),
        pytest.param(
            "plan.md",
            "The report",
            {
                *paths(report_as_json(TRIMMED)),
                *("partitions", *row_as_json(TRIMMED.rows[0])),
                *("trimmed", "would-trim", "unchanged", "held", "failed", "unverified"),
            },
            id="a report and its outcomes",
        ),
        pytest.param(
            "fleets.md",
            "The fleet file",
            {*keys_of(FleetModel), *(f"clusters.{key}" for key in keys_of(ClusterModel))},
            id="a fleet file",
        ),
        pytest.param("fleets.md", "The plan", paths(fleet_head(FLEET)) | {"clusters"}, id="a fleet's plan"),
        pytest.param("fleets.md", "The report", paths(fleet_report_head(REPORT)) | {"clusters"}, id="a fleet's report"),
    ],
)
def test_page_documents_exactly_the_real_keys(page: str, title: str, keys: set[str]) -> None:
    assert keys_in_tables(section(page, title)) == keys


@pytest.mark.parametrize(
    ("page", "title", "keys"),
    [
        pytest.param(
            "plan.md",
            "Other commands",
            {
                *(setup.DOCTOR_FORMAT, consumers.GROUPS_FORMAT, history.HISTORY_FORMAT, consumers.OFFSETS_FORMAT),
                *(
                    setup.DOCTOR_COLUMNS
                    + consumers.GROUP_COLUMNS
                    + consumers.FLOOR_COLUMNS
                    + consumers.POSITION_COLUMNS
                ),
                *(history.COLUMNS + history.RUN_COLUMNS + offset_rows.BY_TOPIC + offset_rows.BY_PARTITION),
            },
            id="other commands",
        ),
        pytest.param("forecast.md", "", {forecast.FORMAT, *forecast.CSV_COLUMNS}, id="forecast"),
    ],
)
def test_page_names_every_format_and_column_of_its_commands(page: str, title: str, keys: set[str]) -> None:
    text = section(page, title)
    assert [key for key in sorted(keys) if f"`{key}`" not in text] == []


def test_exactly_the_real_reason_codes_are_explained() -> None:
    assert set(explanations()) == reason_codes()


@pytest.mark.parametrize("page", ["facts.md", "security.md"])
def test_every_test_named_in_docs_exists(page: str) -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    files = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    names = re.findall(r"`(test_\w+(?:\.py)?)`", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert len(names) > 20
    assert [name for name in names if name not in files and f"def {name}(" not in tests] == []


def test_every_module_named_in_facts_exists() -> None:
    for module in re.findall(r"`((?:[a-z_]+/)+\w+\.py)`", (ROOT / "docs" / "facts.md").read_text(encoding="utf-8")):
        assert (ROOT / "retention_cli" / module).exists(), module


def test_every_folder_named_in_the_development_page_exists() -> None:
    plan = next(block for block in BLOCKS if block.page.name == "development.md" and "cli/kretain/" in block.text)
    wing = ROOT
    for line in plan.text.splitlines():
        if line.startswith("  "):
            names = known(re.match(r"  ((?:[\w.]+/? )+) *", line))
            assert all((wing / name).exists() for name in names[1].split() if "/" in name or "." in name), line
        else:
            wing = ROOT / line.split()[0]
            assert all((ROOT / name).exists() for name in line.split() if name.endswith("/")), line


def test_changelog_contains_the_built_version() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"] == __version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)
    assert "## [Unreleased]" in changelog


# -- ``tools/words.py`` finds what reads like a translation, and nothing in what was rewritten --


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


def test_odd_words_in_docstrings_and_comments_are_named_with_their_lines() -> None:
    module = (
        '"""Return ``told``, `anew` and\n\n``taken\nfor``.\n\nThe group is\ntold.\n\n'
        'Args:\n    told: its topics.\n"""\n\n'
        "told = 'anew'  # nobody reads\n"
        "# it goes\n# by whatever\n"
    )
    problems = sorted((line, problem.partition(":")[0]) for line, problem in phrases(module, ast.parse(module)))
    assert problems == [(6, "'is told'"), (7, "'told'"), (13, "'nobody'"), (14, "'goes by'"), (15, "'whatever'")]


def test_names_that_say_little_are_named_with_their_lines() -> None:
    module = "def seen(wordsFound: int) -> None:\n    told, it.keptBytes = seen, 1\n    print(told, said)\n"
    assert sorted((line, problem.split()[2]) for line, problem in names(ast.parse(module))) == [
        (1, "wordsFound:"),
        (2, "keptBytes:"),
        (2, "told:"),
    ]


# -- docs/rules.md has every rule that is quoted by number, and no other; what else is quoted from docs/ is there, too --


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


def test_every_quoted_rule_exists_and_every_rule_is_quoted() -> None:
    assert {number: where[:3] for number, where in quoted().items() if number not in defined()} == {}
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


DEVELOPERS = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md", ROOT / "docs" / "development.md"]
PLACES = [ROOT, ROOT / "retention_cli", ROOT / "cli" / "kretain", ROOT / "docs"]
"""What a path in these pages may be relative to."""
OURS = ("tests", "bench", "kretain", "retention_cli")


def shell(page: Path) -> list[str]:
    return [
        shlex.join(shlex.split(line, comments=True))
        for block in BLOCKS
        if (block.page, block.info) == (page, "sh")
        for line in block.text.splitlines()
    ]


def code(page: Path) -> list[str]:
    return [*re.findall(r"`([^`\n]+)`", prose(page)), *shell(page)]


@pytest.mark.parametrize("page", DEVELOPERS, ids=lambda page: page.name)
def test_every_path_named_in_developer_docs_exists(page: Path) -> None:
    paths = {
        word.rstrip("/")
        for one in code(page)
        for word in one.split()
        if re.fullmatch(r"(?!\.venv)[\w.-]+(/[\w.-]+)*/?", word)
        and ("/" in word or Path(word).suffix in (".py", ".md", ".toml"))
    }
    assert paths
    assert {path for path in paths if not any((place / path).exists() for place in PLACES)} == set()


@pytest.mark.parametrize("page", [*DEVELOPERS, ROOT / "README.md"], ids=lambda page: page.name)
def test_every_make_target_named_in_docs_exists(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for one in code(page) for name in re.findall(r"(?:^|&& )make ([a-z-]+)", one)}
    assert named <= set(targets)
    assert named or page.name == "architecture.md"


def test_every_developer_make_target_is_documented() -> None:
    """Those of the README, and what takes things away, explain themselves (``make help``)."""
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for one in code(DEVELOPERS[2]) for name in re.findall(r"^make ([a-z-]+)", one)}
    assert set(targets) - named == {"help", "install", "demo", "clean"}


@pytest.mark.parametrize("page", DEVELOPERS, ids=lambda page: page.name)
def test_every_pytest_marker_named_in_docs_is_registered(page: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    registered = {one.partition(":")[0] for one in project["tool"]["pytest"]["ini_options"]["markers"]}
    named = set(re.findall(r"\bmarked\s+`(\w+)`", prose(page)))
    for line in shell(page):
        for expression in re.findall(r"pytest.* -m ('[^']+'|\w+)", line):
            named |= set(re.findall(r"\w+", expression)) - {"not", "and", "or"}
    assert named <= registered
    assert named or page.name != "development.md"


@pytest.mark.parametrize("page", DEVELOPERS, ids=lambda page: page.name)
def test_every_module_run_in_developer_docs_exists(page: Path) -> None:
    named = {one for line in code(page) for one in re.findall(r"python -m ([\w.]+)", line)}
    ours = {f"{one.replace('.', '/')}.py" for one in named if one.partition(".")[0] in OURS}
    assert [one for one in ours if not (ROOT / one).exists() and not (ROOT / "cli" / one).exists()] == []


@cache
def names_in_code() -> frozenset[str]:
    code = (text for name, text in texts().items() if name.endswith(".py"))
    return frozenset(word for text in code for word in re.findall(r"\w+", text))


@pytest.mark.parametrize("page", DEVELOPERS, ids=lambda page: page.name)
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


# -- docs/architecture.md, The life of a plan: each function that it names exists, and the code leads from one to the next --


FUNCTION: Final = re.compile(r"^[0-9]+\. `(?P<file>[a-z_/]+\.py):(?P<name>[\w.]+)`", re.MULTILINE)
SIDEWAYS: Final = {
    "PlanJob": "plan_now",
    "LocalPlanner.plan": "planner",
    "decide_all": "LocalPlanner.plan",
    "plan_of": "LocalPlanner.plan",
    "wanted": "Trimmer._round",
    "Trimmer._keep": "Trimmer._round",
    "Trimmer._send_all": "Trimmer._round",
    "carry_out": "trim",
}
"""Steps that are not reached from the step before, but from this one: it calls them one after the other."""


def definition(file: str, name: str) -> ast.AST:
    found: ast.AST = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for part in name.split("."):
        inside = [
            one
            for one in ast.iter_child_nodes(found)
            if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == part
        ]
        assert len(inside) == 1, f"{file} has no {name}"
        found = inside[0]
    return found


def names_in(node: ast.AST) -> set[str]:
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return names | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def walks() -> list[list[tuple[str, str]]]:
    """Return the lists of steps: each begins at a command."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    lists: list[list[tuple[str, str]]] = []
    for step in FUNCTION.finditer(page.partition("### The life of a plan")[2].partition("\n## ")[0]):
        if step["file"].startswith("cli/kretain/commands/"):
            lists.append([])
        lists[-1].append((step["file"], step["name"]))
    return lists


def test_documented_walk_leads_from_the_command_to_decide_and_delete() -> None:
    assert [(one[0][1], one[-1]) for one in walks()] == [
        ("plan", ("retention_cli/plan/make.py", "plan_of")),
        ("trim", ("retention_cli/brokers/deleter.py", "Deleter.delete")),
    ]
    assert ("retention_cli/decide/decision.py", "decide_by") in walks()[0]


def test_each_step_of_the_documented_walk_calls_the_next_one() -> None:
    planner = ("cli/kretain/flows/spark.py", "planner")
    for steps in walks():
        known = {name: definition(file, name) for file, name in [*steps, planner]}
        for (_, before), (_, name) in pairwise(steps):
            caller = SIDEWAYS.get(name, before)
            wanted = "LocalPlanner" if caller == "planner" else name.rpartition(".")[2]
            assert wanted in names_in(known[caller]), f"{caller} does not lead to {name}"


def test_every_caller_trims_a_plan_through_carry_out() -> None:
    for file in (
        "cli/kretain/commands/trim.py",
        "cli/kretain/flows/fleet_trim.py",
        "cli/kretain/api/cluster.py",
        "retention_cli/watch/one_pass.py",
    ):
        assert {"TrimJob", "carry_out"} <= names_in(ast.parse((ROOT / file).read_text(encoding="utf-8"))), file


# -- runbooks (docs/runbooks) are scripts: each is tested on a broker, and every command in them exists with these flags --


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


def calls(name: str) -> Iterator[Any]:
    """Yield the words behind each call of a command, with values for variables; prose that names one is left out."""
    begins = r"(?:^|\brun |\$\(|\|\| |&& |\bkafka )"
    for path, line in [(one, line) for one in SCRIPTS for line in lines_of(one)]:
        for call in re.findall(rf"{begins}{re.escape(name)} ([^|;)<>&]*)", line):
            text = re.sub(r'\$\{\w+:\+([^}]*"[^"]*"|[^}"]*)\}', r"\1", call)  # ${yes:+--yes}: as if it were set
            text = text.replace('"$@"', "")
            words = shlex.split(re.sub(r"\$\{?(\w+)\}?", lambda found: VALUES.get(found[1], "word"), text))
            yield pytest.param(words, id=f"{path.name}: {' '.join(words)}")


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


@pytest.mark.parametrize("words", list(calls("kretain")))
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


@cache
def sources() -> list[str]:
    """Return the product's modules, with strings that go on in the next line joined."""
    texts = [
        path.read_text(encoding="utf-8") for room in ("cli", "retention_cli") for path in (ROOT / room).rglob("*.py")
    ]
    return [re.sub(r'"\n\s+f?"', "", text) for text in texts]


def test_pages_contain_quotes() -> None:
    assert len(quotes()) > 25
