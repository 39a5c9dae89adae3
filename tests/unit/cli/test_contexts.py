"""``kretain context``, ``kretain show``, and a context that is named before the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from kretain.config import resolve
from kretain.flows.recipes import RECIPES
from kretain.options.common import Common
from retention_cli.engines.fleet.plan import Failure, FleetPlan, fleet_lines
from retention_cli.engines.fleet.saved import write_fleet
from retention_cli.plan.value import as_json, plan_text
from retention_cli.policy.load import parse_policy
from tests.support.plans import EVERY
from tests.support.says import says
from tests.support.world import Cli, run_cli, written

CONFIG = """# mine
contexts:
  prod: {bootstrap-server: "b1:9092", policy: prod.yaml, confirm: name}
  lab:
    settings: {bootstrap.servers: "a:b@c:1", sasl.password: hunter2}
default-context: prod  # careful
"""
Said = Callable[..., Cli]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    path.chmod(0o600)
    return path


@pytest.fixture
def kretain(config: Path) -> Said:
    return partial(run_cli, check=0, KRETAIN_CONFIG=str(config))


def test_contexts_are_listed_without_secrets(kretain: Said) -> None:
    rows = json.loads(kretain("context", "list", "-o", "json").out)["contexts"]
    assert [(row["context"], row["default"], row["bootstrap_server"], row["confirm"]) for row in rows] == [
        ("prod", True, "b1:9092", "name"),
        ("lab", False, "********@c:1", None),
    ]
    says(kretain("context", "show", "lab").out, "settings.sasl.password      ********", never=["hunter2", "a:b"])


def test_report_names_the_contexts_with_the_address_of_its_cluster(kretain: Said, config: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan_text(EVERY))

    def page() -> str:
        kretain("report", str(tmp_path / "plan.json"), "--out", str(tmp_path / "page.html"))
        return (tmp_path / "page.html").read_text()

    says(page(), "<h1>Trim plan for c1</h1>")
    config.write_text(
        "contexts:\n  eu: {bootstrap-server: 'b:9092'}\n  us: {bootstrap-server: 'u:9092'}\n"
        "  old: {settings: {bootstrap.servers: 'b:9092'}}\n  broken: {command-config: nothing-here}\n"
    )
    says(
        page(),
        "<h1>Trim plan for eu, old</h1>",
        "<dt>Context</dt><dd>eu, old</dd>",
        "<dt>Cluster</dt><dd>c1</dd>",
    )


@pytest.mark.parametrize(
    ("given", "context", "name"),
    [
        (Common(), "prod", "prod"),
        (Common(context="lab"), "lab", "lab"),
        (Common(bootstrap_server="other:1"), None, "other:1"),
        (Common(bootstrap_server="a:b@c:1"), None, "********@c:1"),
    ],
)
def test_cluster_is_called_by_the_context_that_its_address_is_from(
    given: Common, context: str | None, name: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRETAIN_CONFIG", str(config))
    found = resolve(given)
    assert (found.context, found.name) == (context, name)


def test_use_context_changes_only_the_default(kretain: Said, config: Path) -> None:
    kretain("context", "use", "lab")
    assert config.read_text() == CONFIG.replace("prod  # careful", "lab")
    assert config.stat().st_mode & 0o777 == 0o600, "it may hold secrets"
    config.write_text(CONFIG.replace("default-context: prod  # careful\n", ""))
    kretain("context", "use", "prod")
    assert config.read_text().endswith("default-context: prod\n")
    assert "did you mean lab?" in kretain("context", "use", "lub", check=1).err


def test_use_context_keeps_a_symbolic_link(kretain: Said, config: Path) -> None:
    real = config.rename(config.with_name("real.yaml"))
    config.symlink_to(real)
    kretain("context", "use", "lab")
    assert (config.is_symlink(), "default-context: lab" in real.read_text()) == (True, True)


@pytest.mark.parametrize(
    ("before", "name"), [((), "prod"), (("--context", "lab"), "lab"), (("--context=lab",), "lab")], ids=str
)
def test_context_option_may_precede_the_command(kretain: Said, before: tuple[str, ...], name: str) -> None:
    assert f"Context {name}" in kretain(*before, "context", "show").out


def test_context_confirm_with_another_value_than_name_is_an_error(kretain: Said, config: Path) -> None:
    config.write_text(CONFIG.replace("confirm: name", "confirm: maybe"))
    assert "contexts.prod.confirm: write name, or omit it" in kretain("context", "show", "prod", check=1).err


def test_show_prints_a_saved_plan_unchanged(kretain: Said, tmp_path: Path) -> None:
    saved = str(written(tmp_path / "plan.json", plan_text(EVERY)))
    assert json.loads(kretain("show", saved, "-o", "json").out) == as_json(EVERY)
    changes = [one for one in EVERY.decisions if one.action in ("trim", "hold")]
    for flags, listed in (((), changes), (("--all",), EVERY.decisions)):
        table = kretain("show", saved, *flags).out
        assert [str(one.tp) for one in EVERY.decisions if f"{one.tp} " in table] == [str(one.tp) for one in listed]
    Path(saved).write_text("{}")
    assert saved in kretain("show", saved, check=1).err


def test_show_prints_a_fleet_plan_entirely_or_by_cluster(kretain: Said, tmp_path: Path) -> None:
    fleet = FleetPlan(EVERY.created_at_ms, "fleet.yaml", "sha256:f", {"eu": EVERY, "ap": Failure("down")})
    write_fleet(tmp_path / "fleet.parquet", fleet)
    show = partial(kretain, "show", str(tmp_path / "fleet.parquet"))
    assert json.loads(show("-o", "json").out) == json.loads("".join(fleet_lines(fleet)))
    assert json.loads(show("--cluster", "eu", "-o", "json").out) == as_json(EVERY)
    assert "down" in show("--cluster", "ap", check=1).err


@pytest.mark.parametrize(
    ("arguments", "code", "parts", "never"),
    [
        (("--consumed-after", "1h"), 1, ["prod.yaml"], []),
        (("--consumed-after", "1h", "--timeout", "1s", "--no-policy"), 1, ["127.0.0.1:1"], ["prod.yaml"]),
        (("--no-policy",), 2, ["--consumed-after"], []),
        (("--no-policy", "-p", "x.yaml"), 2, ["omit one of them"], []),
    ],
)
def test_no_policy_flag_overrides_the_contexts_policy(
    kretain: Said, config: Path, arguments: tuple[str, ...], code: int, parts: list[str], never: list[str]
) -> None:
    """With a policy that can't be read, the difference shows before any cluster is asked."""
    config.with_name("prod.yaml").write_text("not a policy")
    says(" ".join(kretain("plan", "t", "-b", "127.0.0.1:1", *arguments, check=code).err.split()), *parts, never=never)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("KRETAIN_BOOTSTRAP_SERVER", "other:9092", "bootstrap-server is b1:9092"),
        ("KRETAIN_COMMAND_CONFIG", "other.properties", "command-config is not that"),
        ("KRETAIN_POLICY", "other.yaml", "policy is "),
    ],
)
def test_variable_contradicting_a_named_context_is_refused(kretain: Said, variable: str, value: str, said: str) -> None:
    """``--context prod`` beside another cluster's variable would apply prod's policy to that cluster."""
    refused = kretain("plan", "--context", "prod", check=2, **{variable: value})
    says(refused.err, f"{variable} is {value}, and --context names context prod", said, "unset")


def test_variable_agreeing_with_a_named_context_is_accepted(kretain: Said, config: Path) -> None:
    policy = written(config.with_name("prod.yaml"), "version: 1\ntopics: [{match: a, retention.ms: 1h}]\n")
    same = {"KRETAIN_BOOTSTRAP_SERVER": "b1:9092", "KRETAIN_POLICY": str(policy), "KRETAIN_TIMEOUT": "1s"}
    assert "unset" not in kretain("policy", "show", "--context", "prod", check=None, **same).err


# -- what needs no cluster: contexts added and removed, recipes, and init without a terminal --


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


@pytest.fixture
def new_config(tmp_path: Path) -> Path:
    return tmp_path / "new" / "config.yaml"


@pytest.fixture
def kretain_here(new_config: Path) -> Said:
    return partial(run_cli, check=0, KRETAIN_CONFIG=str(new_config))


def existing(config: Path, text: str) -> None:
    config.parent.mkdir()
    config.write_text(text)
    config.chmod(0o640)


def test_first_context_makes_the_file_and_is_the_default(kretain_here: Said, new_config: Path) -> None:
    kretain_here("context", "add", "lab", "-b", "localhost:9092", "-p", "lab.yaml")
    assert new_config.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(new_config.read_text()) == {
        "contexts": {"lab": {"bootstrap-server": "localhost:9092", "policy": str(Path("lab.yaml").absolute())}},
        "default-context": "lab",
    }
    kretain_here("context", "add", "1.2", "-b", "other:9092")
    rows = json.loads(kretain_here("context", "list", "-o", "json").out)["contexts"]
    assert [(row["context"], row["default"]) for row in rows] == [("lab", True), ("1.2", False)]


def test_added_context_leaves_every_other_line_as_it_was(kretain_here: Said, new_config: Path) -> None:
    existing(new_config, COMMENTED)
    kretain_here("context", "add", "new", "-b", "n:9092", "--timeout", "5s")
    lines = "    new:\n      bootstrap-server: n:9092\n      timeout: 5000\n"
    text, mode = new_config.read_text(), new_config.stat().st_mode & 0o777
    assert (text, mode) == (COMMENTED.replace("# below\n", f"{lines}# below\n"), 0o640)
    assert "bootstrap-server  n:9092" in kretain_here("context", "show", "new").out


@pytest.mark.parametrize(
    ("name", "gone", "no_default"),
    [
        ("lab", ['    lab: {bootstrap-server: "c:1"}\n'], False),
        (
            "prod",
            [
                COMMENTED[COMMENTED.index("    prod:") : COMMENTED.index("    # for tests")],
                "default-context: prod  # careful\n",
            ],
            True,
        ),
    ],
)
def test_removed_context_takes_only_its_own_lines_along(
    kretain_here: Said, new_config: Path, name: str, gone: list[str], *, no_default: bool
) -> None:
    existing(new_config, COMMENTED)
    told = kretain_here("context", "remove", name).err
    left = COMMENTED
    for lines in gone:
        left = left.replace(lines, "")
    assert (new_config.read_text(), "no context is the default now" in told) == (left, no_default)


def test_dry_run_that_adds_the_first_context_creates_no_file(kretain_here: Said, new_config: Path) -> None:
    kretain_here("context", "add", "lab", "-b", "localhost:9092", "--dry-run")
    assert not new_config.exists()


def test_last_context_can_be_removed_and_another_be_added(kretain_here: Said, new_config: Path) -> None:
    existing(new_config, "contexts:  # all\n  a:\n    bootstrap-server: a:1\n")
    kretain_here("context", "remove", "a")
    assert new_config.read_text() == "contexts: {}  # all\n"
    kretain_here("context", "add", "b", "-b", "b:1")
    assert new_config.read_text() == "contexts:  # all\n  b:\n    bootstrap-server: b:1\ndefault-context: b\n"


@pytest.mark.parametrize(
    ("before", "arguments", "code", "said"),
    [
        (COMMENTED, ("context", "add", "new", "-b", "n:9092", "--dry-run"), 0, "new would be added to"),
        (COMMENTED, ("context", "remove", "lab", "--dry-run"), 0, "lab would be removed from"),
        (COMMENTED, ("context", "remove", "prod", "--dry-run"), 0, "prod, the default context, would be removed from"),
        (COMMENTED, ("context", "add", "lab", "-b", "x:1"), 1, "context lab exists"),
        (COMMENTED, ("context", "add", "x"), 2, "pass -b HOST:PORT, or -c FILE"),
        (COMMENTED, ("context", "add", "*", "-b", "x:1"), 2, "is not a context name"),
        (COMMENTED, ("context", "add", "x", "-c", "missing.properties"), 1, "missing.properties"),
        (COMMENTED, ("context", "remove", "lub"), 1, "did you mean lab?"),
        (COMMENTED, ("context", "remove", "lub", "--dry-run"), 1, "did you mean lab?"),
        ("contexts: {a: {bootstrap-server: b:1}}\n", ("context", "add", "x", "-b", "x:1"), 1, "edit it by hand"),
        ("contexts: {a: {}, b: {}}\n", ("context", "remove", "a"), 1, "edit it by hand"),
        ("contexts:\n  b: {}\n  <<: {a: {}}\n", ("context", "remove", "a"), 1, "edit it by hand"),
        ("<<: {contexts: {a: {}}}\n", ("context", "remove", "a"), 1, "edit it by hand"),
        ("contexts: [\n", ("context", "add", "x", "-b", "x:1"), 1, "config.yaml:2"),
    ],
)
def test_file_stays_as_it_is_after_a_dry_run_or_a_refused_change(
    kretain_here: Said, new_config: Path, before: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    existing(new_config, before)
    assert said in kretain_here(*arguments, check=code).err
    assert new_config.read_text() == before


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_is_a_valid_policy_that_watches_first_where_it_uses_r1(
    kretain_here: Said, tmp_path: Path, name: str
) -> None:
    text = kretain_here("policy", "new", name).out
    policy = parse_policy(text, "policy.yaml", "sha256:x")
    uses_r1 = any("retention.commitoffset.enable" in entry.values for entry in policy.entries)
    assert policy.groups.watch_first_ms == (3 * 86_400_000 if uses_r1 else None)
    assert f"{name} " in kretain_here("policy", "new").out
    out = tmp_path / "policy.yaml"
    kretain_here("policy", "new", name, "--out", str(out))
    assert out.read_text() == text
    out.write_text("mine")
    refused = kretain_here("policy", "new", name, "--out", str(out), check=1).err
    assert ("already exists, and is not overwritten" in refused, out.read_text()) == (True, "mine")


def test_recipe_that_does_not_exist_is_a_usage_error(kretain_here: Said) -> None:
    assert "did you mean consumed?" in kretain_here("policy", "new", "consume", check=2).err


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [((), "-b HOST:PORT and --yes"), (("-b", "x:1"), "--yes"), (("--yes",), "-b HOST:PORT")],
)
def test_init_in_a_pipe_says_what_is_missing(
    kretain_here: Said, new_config: Path, arguments: tuple[str, ...], missing: str
) -> None:
    assert f"give {missing};" in kretain_here("init", *arguments, check=2).err
    assert not new_config.parent.exists()


@pytest.mark.parametrize("there", ["config.yaml", "policy.yaml"])
def test_init_overwrites_no_file(kretain_here: Said, new_config: Path, there: str) -> None:
    new_config.parent.mkdir()
    new_config.with_name(there).write_text("mine")
    assert f"{there} already exists, and is not overwritten" in kretain_here("init", "-b", "x:1", "--yes", check=1).err
    assert {one.name: one.read_text() for one in new_config.parent.iterdir()} == {there: "mine"}
