"""What needs no cluster: contexts added and removed, recipes, and init without a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kretain.flows.recipes import RECIPES
from retention_cli.policy.load import parse_policy
from tests.support.world import Cli, run_cli

COMMENTED = """\
# ours
contexts:
    # the shop
    prod:
        bootstrap-server: b1:9092  # all of them
        settings:
            sasl.password: hunter2
    # for tests
    lab: {bootstrap-server: "c:1"}
# below
default-context: prod  # careful
"""
Said = Callable[..., Cli]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "new" / "config.yaml"


@pytest.fixture
def kretain(config: Path) -> Said:
    def run(*arguments: str, check: int = 0) -> Cli:
        return run_cli(*arguments, check=check, KRETAIN_CONFIG=str(config))

    return run


def written(config: Path, text: str) -> Path:
    config.parent.mkdir()
    config.write_text(text)
    config.chmod(0o640)
    return config


def test_first_context_makes_the_file_and_is_the_default(kretain: Said, config: Path) -> None:
    kretain("context", "add", "lab", "-b", "localhost:9092", "-p", "lab.yaml")
    assert config.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(config.read_text()) == {
        "contexts": {"lab": {"bootstrap-server": "localhost:9092", "policy": str(Path("lab.yaml").absolute())}},
        "default-context": "lab",
    }
    kretain("context", "add", "1.2", "-b", "other:9092")
    rows = json.loads(kretain("context", "list", "-o", "json").out)["contexts"]
    assert [(row["context"], row["default"]) for row in rows] == [("lab", True), ("1.2", False)]


def test_added_context_leaves_every_other_line_as_it_was(kretain: Said, config: Path) -> None:
    written(config, COMMENTED)
    kretain("context", "add", "new", "-b", "n:9092", "--timeout", "5s")
    lines = "    new:\n      bootstrap-server: n:9092\n      timeout: 5000\n"
    assert config.read_text() == COMMENTED.replace("# below\n", f"{lines}# below\n")
    assert config.stat().st_mode & 0o777 == 0o640
    assert "bootstrap-server  n:9092" in kretain("context", "show", "new").out


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("lab", '    lab: {bootstrap-server: "c:1"}\n'),
        ("prod", COMMENTED[COMMENTED.index("    prod:") : COMMENTED.index("    # for tests")]),
    ],
)
def test_removed_context_takes_only_its_own_lines_along(kretain: Said, config: Path, name: str, gone: str) -> None:
    written(config, COMMENTED)
    told = kretain("context", "remove", name).err
    left = COMMENTED.replace(gone, "")
    assert config.read_text() == (left if name == "lab" else left.replace("default-context: prod  # careful\n", ""))
    assert ("there is no default context now" in told) == (name == "prod")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("add", "new", "-b", "n:9092"), "new would be added to"),
        (("remove", "lab"), "lab would be removed from"),
        (("remove", "prod"), "prod, the default context, would be removed from"),
    ],
)
def test_dry_run_of_a_context_change_writes_nothing(
    kretain: Said, config: Path, arguments: tuple[str, ...], told: str
) -> None:
    written(config, COMMENTED)
    assert told in kretain("context", *arguments, "--dry-run").err
    assert config.read_text() == COMMENTED


def test_dry_run_that_adds_the_first_context_creates_no_file(kretain: Said, config: Path) -> None:
    kretain("context", "add", "lab", "-b", "localhost:9092", "--dry-run")
    assert not config.exists()


def test_last_context_can_be_removed_and_another_be_added(kretain: Said, config: Path) -> None:
    written(config, "contexts:  # all\n  a:\n    bootstrap-server: a:1\n")
    kretain("context", "remove", "a")
    assert config.read_text() == "contexts: {}  # all\n"
    kretain("context", "add", "b", "-b", "b:1")
    assert config.read_text() == "contexts:  # all\n  b:\n    bootstrap-server: b:1\ndefault-context: b\n"


@pytest.mark.parametrize(
    ("before", "arguments", "code", "said"),
    [
        (COMMENTED, ("context", "add", "lab", "-b", "x:1"), 1, "context lab exists"),
        (COMMENTED, ("context", "add", "x"), 2, "give -b HOST:PORT, or -c FILE"),
        (COMMENTED, ("context", "add", "*", "-b", "x:1"), 2, "is no name for a context"),
        (COMMENTED, ("context", "add", "x", "-c", "missing.properties"), 1, "missing.properties"),
        (COMMENTED, ("context", "remove", "lub"), 1, "did you mean lab?"),
        (COMMENTED, ("context", "remove", "lub", "--dry-run"), 1, "did you mean lab?"),
        ("contexts: {a: {bootstrap-server: b:1}}\n", ("context", "add", "x", "-b", "x:1"), 1, "edit it by hand"),
        ("contexts: {a: {}, b: {}}\n", ("context", "remove", "a"), 1, "edit it by hand"),
        ("contexts: [\n", ("context", "add", "x", "-b", "x:1"), 1, "config.yaml:2"),
    ],
)
def test_file_that_cannot_be_changed_as_asked_stays_as_it_is(
    kretain: Said, config: Path, before: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    written(config, before)
    assert said in kretain(*arguments, check=code).err
    assert config.read_text() == before


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_is_a_valid_policy_that_watches_first_where_it_uses_r1(kretain: Said, tmp_path: Path, name: str) -> None:
    text = kretain("policy", "new", name).out
    policy = parse_policy(text, "policy.yaml", "sha256:x")
    uses_r1 = any("retention.commitoffset.enable" in entry.values for entry in policy.entries)
    assert policy.groups.watch_first_ms == (3 * 86_400_000 if uses_r1 else None)
    assert f"{name} " in kretain("policy", "new").out
    out = tmp_path / "policy.yaml"
    kretain("policy", "new", name, "--out", str(out))
    assert out.read_text() == text
    out.write_text("mine")
    assert "exists, and is not overwritten" in kretain("policy", "new", name, "--out", str(out), check=1).err
    assert out.read_text() == "mine"


def test_recipe_that_does_not_exist_is_a_usage_error(kretain: Said) -> None:
    assert "did you mean consumed?" in kretain("policy", "new", "consume", check=2).err


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [((), "-b HOST:PORT and --yes"), (("-b", "x:1"), "--yes"), (("--yes",), "-b HOST:PORT")],
)
def test_init_in_a_pipe_says_what_is_missing(
    kretain: Said, config: Path, arguments: tuple[str, ...], missing: str
) -> None:
    assert f"give {missing};" in kretain("init", *arguments, check=2).err
    assert not config.parent.exists()


@pytest.mark.parametrize("there", ["config.yaml", "policy.yaml"])
def test_init_overwrites_no_file(kretain: Said, config: Path, there: str) -> None:
    config.parent.mkdir()
    config.with_name(there).write_text("mine")
    assert f"{there} exists, and is not overwritten" in kretain("init", "-b", "x:1", "--yes", check=1).err
    assert {one.name: one.read_text() for one in config.parent.iterdir()} == {there: "mine"}
