"""README and docs can't drift: what they show is read by the real app, the real parser and the real code."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from kretain import config
from kretain.app import app
from kretain.errors import Exit
from kretain.reasons import explanations
from kretain.render import consumers, forecast, history, setup
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
    begun: tuple[int, str, list[str]] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("```"):
            if begun is not None:
                begun[2].append(line)
        elif begun is None:
            begun = (number, line.removeprefix("```"), [])
        else:
            yield Block(page, begun[0], begun[1], "".join(f"{one}\n" for one in begun[2]))
            begun = None
    assert begun is None, f"{page.name}: a block that never ends"


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


def mentions() -> Iterator[Any]:
    """Yield each ``kretain …`` that a sentence names."""
    for page in WRITTEN:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for line in sorted(set(re.findall(r"`kretain ([^`]+)`", prose))):
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


def test_policy_page_documents_exactly_the_real_keys() -> None:
    documented = keys_in_tables((ROOT / "docs" / "policy.md").read_text(encoding="utf-8"))
    real = {
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
    }
    assert documented == real


def paths(value: Any, prefix: str = "") -> set[str]:
    """Return the dotted paths of an object's leaves; lists, and objects whose keys are data, are leaves."""
    if not isinstance(value, dict) or prefix in ("policy.flags", "unconsumed_by"):
        return {prefix}
    return {path for key, one in value.items() for path in paths(one, f"{prefix}.{key}" if prefix else key)}


def section(page: str, title: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return next(part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.startswith(title))


def test_plan_page_documents_exactly_the_plan_and_report_keys() -> None:
    plan = as_json(replace(EVERY, requester=Signed("key", "signature")))
    assert keys_in_tables(section("plan.md", "The plan")) == paths(plan) | set(plan["partitions"][0])
    report = TrimReport("run", "id", "b:9092", [TrimRow(EVERY.decisions[0].tp, "trimmed")])
    outcomes = {"trimmed", "would-trim", "unchanged", "held", "failed", "unverified"}
    documented = keys_in_tables(section("plan.md", "The report"))
    assert documented - outcomes == paths(report_as_json(report)) | {"partitions"} | set(row_as_json(report.rows[0]))
    assert outcomes <= documented


def test_fleets_page_documents_exactly_the_fleet_keys() -> None:
    assert keys_in_tables(section("fleets.md", "The fleet file")) == {
        *keys_of(FleetModel),
        *(f"clusters.{key}" for key in keys_of(ClusterModel)),
    }
    assert keys_in_tables(section("fleets.md", "The plan")) == paths(fleet_head(FLEET)) | {"clusters"}
    assert keys_in_tables(section("fleets.md", "The report")) == paths(fleet_report_head(REPORT)) | {"clusters"}


def test_plan_page_documents_the_keys_of_other_commands() -> None:
    text = section("plan.md", "Other commands")
    for form in (setup.DOCTOR_FORMAT, consumers.GROUPS_FORMAT, history.HISTORY_FORMAT, consumers.OFFSETS_FORMAT):
        assert f"`{form}`" in text
    for key in {
        *(setup.DOCTOR_COLUMNS + consumers.GROUP_COLUMNS + consumers.FLOOR_COLUMNS + consumers.POSITION_COLUMNS),
        *(history.COLUMNS + history.RUN_COLUMNS + offset_rows.BY_TOPIC + offset_rows.BY_PARTITION),
    }:
        assert f"`{key}`" in text, key


def test_forecast_page_documents_the_forecast_keys() -> None:
    text = (ROOT / "docs" / "forecast.md").read_text(encoding="utf-8")
    assert f"`{forecast.FORMAT}`" in text
    for key in forecast.CSV_COLUMNS:
        assert f"`{key}`" in text, key


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
