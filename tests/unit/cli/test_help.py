"""The command line: what ``--help`` promises works as typed, completion, ``kretain context`` and ``kretain show``."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from kretain import config as module
from kretain.app import COMMANDS, app
from kretain.completion import overview
from kretain.completion.quick import ALL as FULL
from kretain.config import resolve
from kretain.options.common import FLAG_ONLY, Common
from kretain.texts import RECIPES, explanations
from retention_cli.audit.log import AuditLog
from retention_cli.engines.fleet.plan import Failure, FleetPlan, fleet_lines
from retention_cli.engines.fleet.saved import write_fleet
from retention_cli.plan.value import as_json, plan_text
from retention_cli.policy.load import parse_policy
from retention_cli.policy.schema import LIVE_KEYS
from tests.support.audit_logs import BEGUN
from tests.support.docs import ROOT as PROJECT, parse as parse_words
from tests.support.plans import EVERY
from tests.support.says import says
from tests.support.world import Cli, run_cli, written
from tools.generated import COMPLETIONS, MANY, commands_page, manual_pages

HEAVY = ("confluent_kafka", "kafka", "pydantic", "yaml", "pyarrow", "pyspark", "tabulate", "pandas", "cryptography")
OF_TYPER = {"--help", "--version", "--install-completion", "--show-completion"}
ROOT: Any = typer.main.get_command(app)


def every_command(command: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    if hasattr(command, "list_commands"):
        with command.make_context(" ".join(("kretain", *path)), ["x"], resilient_parsing=True) as ctx:
            children = {name: command.get_command(ctx, name) for name in command.list_commands(ctx)}
        for name, child in children.items():
            assert child is not None, f"{name} is listed and not there"
            yield from every_command(child, (*path, name))


ALL = dict(every_command())
LEAVES = {path: command for path, command in ALL.items() if not hasattr(command, "list_commands")}


def run(*arguments: str, columns: int = 100) -> str:
    done = run_cli(*arguments, COLUMNS=str(columns), check=0)
    assert done.err == ""
    return done.out


def parse(line: str) -> None:
    words = shlex.split(line)
    name, *arguments = words[: next((number for number, word in enumerate(words) if word in ("|", ">")), len(words))]
    assert name == "kretain"
    parse_words(arguments)


def test_overview_lists_every_command_in_its_panel() -> None:
    shown = run("--help", columns=120)
    for name, (panel, _module, line) in COMMANDS.items():
        assert re.search(rf"^ +{name} +{re.escape(line)}", shown.partition(f" {panel} ")[2], re.MULTILINE), name
        assert (name,) in ALL


def test_first_steps_fit_80_columns_and_parse() -> None:
    shown = run("--help", columns=80)
    for line, _what in overview.FIRST:
        assert line in shown
        parse(line)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_examples_parse(path: tuple[str, ...]) -> None:
    found = re.findall(r"^ *(kretain .*?) *$", LEAVES[path].help or "", re.MULTILINE)
    assert found, "no example"
    for line in found:
        assert line.split()[1 : 1 + len(path)] == list(path), "of another command"
        parse(line)


GROUPS = ["Arguments", "Commands", "Options", "Connection", "Common", "Spark"]


def help_of(path: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch, **meta: Any) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    with ALL[path].make_context(" ".join(("kretain", *path)), ["x"], resilient_parsing=True) as ctx:
        ctx.meta.update(meta)
        return ALL[path].get_help(ctx).splitlines()


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("path", [path for path in ALL if path], ids=" ".join)
def test_help_is_a_page_with_its_groups_in_order(
    path: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = help_of(path, columns, monkeypatch)
    assert (len(shown) <= 50, shown[-1].startswith("Exit codes: 0 done")) == (True, True)
    assert all(len(line) <= columns or line.startswith("  kretain ") for line in shown), "examples are for copying"
    titles = [line[:-1] for line in shown if line.endswith(":") and not line.startswith(" ")]
    assert [one for one in titles if one in GROUPS] == [one for one in GROUPS if one in titles]
    if "Examples" in titles:
        assert shown[shown.index("Examples:") + 1].startswith("  kretain ") or path == ("completion",)


def test_options_that_a_page_has_no_room_for_are_named_and_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    short, full = help_of(("trim",), 80, monkeypatch), help_of(("trim",), 80, monkeypatch, **{FULL: True})
    assert "More options (kretain help trim --all): --approval," in "\n".join(short)
    names = {name for one in ALL["trim",].params for name in one.opts if name.startswith("--")} - {"--help"}
    for page in (short, full):
        assert all(re.search(rf"{name}\b", "\n".join(page)) for name in names)
    assert full == run("help", "trim", "--all", columns=80).splitlines()
    assert full.index("Spark:") > full.index("Common:")


def options() -> Iterator[tuple[str, str, Any]]:
    for path, command in ALL.items():
        for one in command.params:
            long = next((name for name in one.opts if name.startswith("--")), None)
            if long is not None and long not in OF_TYPER:
                yield " ".join(path), long, one


def test_every_option_has_a_variable_unless_it_deletes() -> None:
    """docs/connecting.md: each with a KRETAIN_ variable. Rules, and what lets records go, are flags only."""
    found = {(path, long): one.envvar for path, long, one in options()}
    assert len(found) > 50
    assert {long for _path, long in found} >= FLAG_ONLY
    of = {
        "--from": ["restore"],
        "--to": ["restore"],
        "--plan": ["trim"],
        "--out": ["approve", "plan", "policy new", "profile", "report", "segments scan"],
    }
    assert {long: sorted(path for path, one in found if one == long) for long in of} == of, (
        "a name that means different things to commands"
    )
    own = {
        *(("restore", "--group"), ("restore", "--groups")),  # they reset groups: no other command's variable may
        *(("explain", "--run"), ("explain", "--evidence"), ("plan", "--evidence"), ("replay", "--evidence")),
    }
    assert found == {
        (path, long): None
        if long in FLAG_ONLY
        else "_".join(
            ["kretain", *(path.split() if long in of or (path, long) in own else ()), *long[2:].split("-")]
        ).upper()
        for path, long in found
    }


def test_verbose_names_each_variable_in_use(tmp_path: Path) -> None:
    variables = {
        "KRETAIN_STATE_DIR": str(tmp_path),
        "KRETAIN_LIMIT": "3",
        "KRETAIN_OUTPUT": "json",
        "KRETAIN_YES": "1",
        "KRETAIN_SPARK_CONF": "spark.secret=hush",
        "KRETAIN_ERRORS": "text",
    }
    done = run_cli("history", "--limit", "2", "-v", **variables, check=0)
    assert [line for line in done.err.splitlines() if "KRETAIN_" in line and "(KRETAIN_" not in line] == [
        "kretain: KRETAIN_ERRORS=text sets --errors",
        "kretain: KRETAIN_LIMIT=3 is overridden by --limit",
        "kretain: KRETAIN_OUTPUT=json sets --output",
        "kretain: KRETAIN_SPARK_CONF has no effect on this command",
        f"kretain: KRETAIN_STATE_DIR={tmp_path} sets --state-dir",
        "kretain: KRETAIN_YES=1 has no effect on this command",
    ]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["plan", "--help"], ["trim", "--help"], ["policy", "check", "--help"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """A newcomer's first command answers at once: clients, parsers and tables are imported where they are used."""
    script = (
        "import sys\nfrom kretain.__main__ import main\n"
        "try:\n    main()\nfinally:\n    print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    imported = set(done.stderr.split())
    assert ("typer" in imported, imported.intersection(HEAVY)) == (True, set())


# -- ``kretain why``: each code is explained, in any format, and its commands are complete --


def test_without_a_code_every_code_is_listed_with_its_meaning() -> None:
    shown = run_cli("why", check=0).out
    says(shown, *(one.title.replace("`", "") for one in explanations().values()))
    assert set(explanations()) <= {line.split()[0] for line in shown.splitlines() if line}
    rows = json.loads(run_cli("why", "-o", "json", check=0).out)["codes"]
    assert [row["code"] for row in rows] == list(explanations())
    assert all(row["title"].endswith(".") for row in rows)


@pytest.mark.parametrize("code", ["F2", "f2"])
def test_code_in_any_case_of_letters_is_explained_with_the_clusters_address(code: str) -> None:
    shown = run_cli("why", code, "-b", "broker:9092", check=0).out
    assert shown.startswith("F2: A group reads this topic but has no commit on this partition.\n")
    assert [shlex.split(line)[:3] for line in shown.splitlines() if line.startswith("    k")] == [
        ["kafka-consumer-groups.sh", "--bootstrap-server", "broker:9092"],
        ["kretain", "groups", "forget"],
    ]
    assert "`" not in shown


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("F8", "kafka-acls.sh --bootstrap-server b:1 --command-config '{file}' --add"),
        ("G9", "kafka-console-consumer.sh --bootstrap-server b:1 --consumer.config '{file}' --topic"),
    ],
)
def test_client_file_reaches_every_tool_by_its_own_option(tmp_path: Path, code: str, line: str) -> None:
    file = written(tmp_path / "client file.properties", "client.id=x\n")
    assert line.format(file=file) in run_cli("why", code, "-b", "b:1", "-c", str(file), check=0).out


@pytest.mark.parametrize(("line", "same"), [(("help", "plan"), ("plan", "--help")), (("version",), ("--version",))])
def test_help_and_version_are_commands_too(line: tuple[str, ...], same: tuple[str, ...]) -> None:
    assert run_cli(*line, check=0).out == run_cli(*same, check=0).out


# -- what a TAB is answered, one candidate a line; and patterns are checked before anything is read or connected to --


def candidates(line: str) -> list[str]:
    asked = {"_KRETAIN_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return run_cli(**asked, _TYPER_COMPLETE_ARGS=line, COLUMNS="60", check=0).out.splitlines()


def names_of(line: str) -> list[str]:
    """Return what a line may be completed with, without its help."""
    return [one.partition("\t")[0] for one in candidates(line)]


@pytest.mark.parametrize("command", ["plan", "trim", "watch", "segments scan"])
def test_completion_candidates_are_options_with_one_line_help(command: str) -> None:
    found = [line.partition("\t") for line in candidates(f"kretain {command} --")]
    assert len(found) > 5
    assert [one for one in found if not (one[0].startswith("--") and one[2])] == [], "its help stands beside it"


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_completion_prints_the_committed_script(shell: str) -> None:
    script = (PROJECT / "completions" / COMPLETIONS[shell]).read_text(encoding="utf-8")
    assert run_cli("completion", shell, check=0).out == script


@pytest.mark.parametrize("command", ["plan", "doctor", "history"])
def test_contexts_complete_unless_their_names_are_unprintable(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "contexts", lambda: {"prod": {}, "pr\x1b[2J": {}, "lab": {}})
    [option] = [one for one in ALL[command,].params if one.name == "context"]
    with ALL[command,].make_context(command, [], obj=lambda: module, resilient_parsing=True) as ctx:
        assert [one.value for one in option.shell_complete(ctx, "pr")] == ["prod"]


def test_runs_complete_newest_first(tmp_path: Path) -> None:
    for cluster, day, run in (("one", 21, "20261121T030000Z-aaaa"), ("two", 22, "20261122T030000Z-bbbb")):
        (tmp_path / cluster).mkdir()
        AuditLog(tmp_path / cluster).append({**BEGUN, "run": run, "at": f"2026-11-{day}T03:00:00.000Z"})
    found = names_of(f"kretain history --state-dir {tmp_path} --run 2026")
    assert found == ["20261122T030000Z-bbbb", "20261121T030000Z-aaaa"]


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("kretain plan --context no-such-", False),
        ("kretain plan no-such-", False),
        ("kretain history --run no-such-", False),
        ("kretain groups --group no-such-", False),
        ("kretain plan -b no-such-", False),
        ("kretain plan --older-than no-such-", False),
        ("kretain plan -o no-such-", False),
        ("kretain plan --no-such-", False),
        ("kretain no-such-", False),
        ("kretain context add no-such-", False),
        ("kretain show no-such-", True),
        ("kretain plan --state-dir=no-such-", True),
        ("kretain restore orders --from no-such-", True),
        ("kretain plan -p no-such-", True),
        ("kretain archive list no-such-", True),
    ],
)
def test_only_words_that_may_be_files_offer_files(line: str, files: bool) -> None:
    assert candidates(line) == ([""] if files else ["\t"])


@pytest.mark.parametrize("line", ["kretain ", "kretain policy "])
def test_descriptions_of_commands_are_whole_sentences(line: str) -> None:
    found = [one.partition("\t")[2] for one in candidates(line)]
    assert len(found) > 5
    assert all(text.endswith(".") and not text.endswith("...") for text in found), found


def test_only_live_keys_complete() -> None:
    assert {"retention.ms"} <= set(names_of("kretain policy unset orders ret")) <= LIVE_KEYS
    assert "retention.ms=" in names_of("kretain policy set orders retention.m")


NO_CLUSTER = (
    "no cluster given: pass -b HOST:PORT, KRETAIN_BOOTSTRAP_SERVER, --context or -c FILE; see kretain {} --help\n"
)


@pytest.mark.parametrize(
    ("arguments", "code", "wanted"),
    [
        (["plan", "--bogus"], 2, "no such option: --bogus"),
        (["plan", "-o", "xml"], 2, "invalid value for '--output' / '-o': 'xml' is not one of"),
        (["plan", "x", "--older-than", "1"], 2, "invalid value for '--older-than': '1' is not a duration such as 3d"),
        (["plan", "x", "--before", "soon"], 2, "invalid value for '--before': 'soon' is not a time"),
        (["advise", "--want-bytes", "x"], 2, "invalid value for '--want-bytes': 'x' is not a size"),
        (["explain"], 2, "missing argument 'TOPIC[:PARTITION]'; see kretain explain --help"),
        (["plam"], 2, "no such command 'plam'; did you mean plan?"),
        (["history", "--verify", "--limit", "3"], 2, "--verify checks complete logs"),
        (["groups", "--fleet", "f.yaml", "forget", "x"], 2, "forget is for one cluster: omit --fleet"),
        (["policy", "sow"], 2, "no such command 'sow'"),
        (["policy", "new", "consume"], 2, "there is no recipe 'consume'; did you mean consumed?"),
        (["doctor", "-b", "127.0.0.1:1", "--timeout", "0s"], 2, "--timeout must be more than 0s"),
        (["why", "zz"], 2, "no reason code 'zz'; codes are F2, F3"),
        (["why", "f22"], 2, "no reason code 'f22'; did you mean F2?"),
        (["why", "r4"], 2, "R4 is a rule, not a reason: docs/rules.md explains it"),
        (["plan", "x", "--older-than", "1d"], 2, NO_CLUSTER.format("plan")),
        (["doctor"], 2, NO_CLUSTER.format("doctor")),
        (["doctor", "-b", ""], 2, NO_CLUSTER.format("doctor")),
        (["plan"], 2, "no policy: give"),
        (["plan", "--older-than", "1d"], 2, "a one-off rule without a policy file needs a TOPIC"),
        (["plan", "re:(", "--older-than", "1d"], 2, "invalid value for 'TOPIC[:PARTITION]': 're:(' is not a regular"),
        (["plan", "x", "--older-than", "1d", "--unconsumed", "maybe"], 2, "invalid value for '--unconsumed': 'maybe'"),
        (["plan", "x", "--older-than", "1d", "-c", "nowhere.properties"], 1, "nowhere.properties cannot be read"),
        (["plan", "x", "-b", "x:1", "--timeout", "soon"], 2, "invalid value for '--timeout': 'soon' is not a duration"),
        (["plan", "x", "-b", "x:1", "--fleet", "fleet.yaml"], 2, "--fleet names several clusters"),
        (["plan", "x", "--cluster", "eu"], 2, "--cluster names one of several"),
        (["trim", "x", "--plan", "nowhere.json", "--older-than", "1d"], 1, "nowhere.json cannot be read"),
        (["trim", "x", "--plan", "nowhere.parquet", "--older-than", "1d"], 1, "nowhere.parquet cannot be read"),
        (["trim", "x", "--older-than", "1d", "--max-partitions", "0"], 2, "invalid value for '--max-partitions'"),
        (["explain", "*", "--older-than", "1d"], 2, "'*': explain takes the full name of one topic"),
        (["explain", "x:y", "--older-than", "1d"], 2, "'x:y': 'y' is not a partition number"),
        (["history", "--run", "nope"], 1, "there is no run 'nope'"),
        (["nonsense"], 2, "no such command 'nonsense'"),
        (["explain", "x"], 2, ""),
        (["watch"], 2, ""),
        (["policy", "show", "x"], 2, "no policy file"),
        (["plan", "-p", "nowhere.yaml", "-b", "x:1"], 1, "nowhere.yaml: cannot be read"),
        (["policy", "check", "nowhere.yaml"], 1, ""),
        (["trim", "-p", "nowhere.yaml", "-b", "x:1"], 1, ""),
        (["plan", "--context", "no"], 1, ""),
        (["context", "show", "no"], 1, ""),
        (["show", "nowhere.json"], 1, ""),
    ],
    ids=str,
)
def test_error_in_a_pipe_is_one_line_and_its_kind_has_one_exit_code(
    arguments: list[str], code: int, wanted: str
) -> None:
    """What is not named at all is a usage error, a cluster like a policy; a name that leads nowhere is a failure."""
    done = run_cli(*arguments, check=code)
    assert (done.out, done.err.count("\n"), "--help" in done.err) == ("", 1, code == 2), done.err
    assert done.err.startswith(f"kretain: {wanted}")


def test_command_without_its_subcommand_prints_help_and_ends_the_line() -> None:
    said = run_cli("policy", check=2).err
    assert ("Usage: kretain policy" in said, said[-1]) == (True, "\n")


WITH_PATTERNS = (
    ("advise",),
    ("archive", "list"),
    ("archive", "verify"),
    ("archive", "compact"),
    ("doctor",),
    ("groups", "--group"),
    ("offsets",),
    ("offsets", "--group"),
    ("plan", "--older-than", "1d"),
    ("profile",),
    ("segments", "scan", "/", "--tiered"),
    ("trim", "--older-than", "1d"),
)


@pytest.mark.parametrize(
    ("command", "pattern", "why"),
    [
        *((command, "re:(", "'re:(' is not a regular expression (RE2): missing )") for command in WITH_PATTERNS),
        # a group may be called ''
        *((command, "", "it is empty") for command in WITH_PATTERNS if command[-1] != "--group"),
    ],
)
def test_invalid_pattern_is_an_error_before_any_connection(command: tuple[str, ...], pattern: str, why: str) -> None:
    result = CliRunner().invoke(app, [*command, pattern], env={"TERMINAL_WIDTH": "200", "COLUMNS": "200"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


# -- ``completions/`` and ``docs/commands.md`` say what the app says: a changed or missing file is named, exit 1 --


def test_generated_files_are_up_to_date_and_a_change_is_named(tmp_path: Path) -> None:
    def check() -> tuple[int, str, str]:
        command = [sys.executable, str(PROJECT / "tools" / "generated.py"), "--check"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout, done.stderr

    for name in ("completions", "docs", "man"):
        shutil.copytree(PROJECT / name, tmp_path / name)
    assert check()[0] == 0, "run make generated"
    (tmp_path / "completions" / "_kretain").unlink()
    bash = tmp_path / "completions" / "kretain.bash"
    bash.write_text(bash.read_text() + "# edited\n")
    assert check() == (1, "", "out of date: kretain.bash, _kretain; run: make generated\n")
    assert not (tmp_path / "completions" / "_kretain").exists(), "a check writes nothing"


def test_every_command_has_a_manual_page_with_its_options() -> None:
    """Each option of the reference is in some page, and no line of text is taken for a request of roff."""
    page = (PROJECT / "docs" / "commands.md").read_text()
    pages = {path.name: path.read_text().replace("\\-", "-") for path in (PROJECT / "man").iterdir()}
    assert {"kretain.1", "kretain-plan.1", "kretain-trim.1", "kretain-archive.1"} <= set(pages)
    assert len(pages) == page.count("\n### `kretain ") + 1
    whole = "".join(pages.values())
    assert set(re.findall(r"`(--[a-z-]+)", page)) <= set(re.findall(r"(--[a-z-]+)", whole))
    assert "--bootstrap-server" in pages["kretain-explain.1"], "a page is whole by itself"
    requests = {line.split()[0] for line in whole.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".PP", ".TP", ".nf", ".fi"}


def test_text_that_looks_like_roff_is_escaped_in_a_manual_page() -> None:
    shown = manual_pages("# Commands\n.dot\n\n'quote `a` \\ b\n", "", "1")["kretain.1"]
    assert shown.partition(".SH EXIT")[0].splitlines()[2:] == [
        "kretain \\- \\&.dot",
        ".SH DESCRIPTION",
        "\\&.dot",
        ".PP",
        "\\&'quote \\fBa\\fR \\e b",
    ]


@pytest.mark.parametrize("page", sorted((PROJECT / "man").iterdir()), ids=lambda page: page.name)
def test_every_manual_page_has_the_usual_sections_in_order(page: Path) -> None:
    text = page.read_text().replace("\\-", "-")
    usual = ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"]
    assert [name for name in re.findall(r"^\.SH (.+)$", text, re.MULTILINE) if name in usual] == usual
    says(text.partition(".SH EXIT STATUS")[2], "130", "KRETAIN_BOOTSTRAP_SERVER", "config.yaml")
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


# -- ``kretain context``, ``kretain show``, and a context that is named before the command --


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
    path = written(tmp_path / "config.yaml", CONFIG)
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
    says(kretain("why", "F2", "--context", "lab").out, "--bootstrap-server '********@c:1'", never=["hunter2", "a:b"])


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


def test_use_context_keeps_windows_line_ends(kretain: Said, config: Path) -> None:
    config.write_bytes(CONFIG.replace("\n", "\r\n").encode())
    kretain("context", "use", "lab")
    assert config.read_bytes() == CONFIG.replace("prod  # careful", "lab").replace("\n", "\r\n").encode()


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
    printed = kretain("show", saved, "-o", "json")
    assert json.loads(printed.out) == as_json(EVERY)
    assert re.search(r"plan\.json was made 20\S+Z \(.+ ago\) for cluster c1 \(b:9092\), by ", printed.err)
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
    assert "for one cluster: name it with --cluster NAME" in show("-o", "delete-records", check=2).err


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
    written(config, text).chmod(0o640)


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
