"""What ``--help`` promises: every command, examples that work as typed, a variable for every option, and no wait."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from kretain import config
from kretain.app import COMMANDS, app
from kretain.completion import overview
from kretain.completion.quick import ALL as FULL
from kretain.options.common import FLAG_ONLY
from kretain.reasons import explanations
from retention_cli.audit.log import AuditLog
from retention_cli.policy.schema import LIVE_KEYS
from tests.support.audit_logs import BEGUN
from tests.support.docs import parse as parse_words
from tests.support.says import says
from tests.support.world import run_cli
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


@pytest.mark.parametrize(
    "wrong",
    [
        "kretain plan --nope",
        "kretain plan -o nothing",
        "kretain explain",
        "kretain nope",
        "kretain plan --older-than 3x",
    ],
)
def test_wrong_help_example_is_detected(wrong: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|missing|not one of|input should|not a duration") as caught:
        parse(wrong)
    assert caught.value.exit_code == 2  # type: ignore[attr-defined]


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
    file = tmp_path / "client file.properties"
    file.write_text("client.id=x\n")
    assert line.format(file=file) in run_cli("why", code, "-b", "b:1", "-c", str(file), check=0).out


def test_unknown_code_is_a_usage_error_that_lists_the_codes() -> None:
    assert "no reason code 'zz'; codes are F2, F3" in run_cli("why", "zz", check=2).err


def test_json_has_each_code_title_and_text() -> None:
    rows = json.loads(run_cli("why", "-o", "json", check=0).out)["codes"]
    assert [row["code"] for row in rows] == list(explanations())
    assert all(row["title"].endswith(".") for row in rows)


@pytest.mark.parametrize(("line", "same"), [(("help", "plan"), ("plan", "--help")), (("version",), ("--version",))])
def test_help_and_version_are_commands_too(line: tuple[str, ...], same: tuple[str, ...]) -> None:
    assert run_cli(*line, check=0).out == run_cli(*same, check=0).out


# -- what a TAB is answered, one candidate a line; and patterns are checked before anything is read or connected to --


PROJECT = Path(__file__).parents[3]


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
    monkeypatch.setattr(config, "contexts", lambda: {"prod": {}, "pr\x1b[2J": {}, "lab": {}})
    [option] = [one for one in ALL[command,].params if one.name == "context"]
    with ALL[command,].make_context(command, [], obj=lambda: config, resilient_parsing=True) as ctx:
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


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["plan", "--bogus"], "kretain: no such option: --bogus"),
        (["plan", "-o", "xml"], "kretain: invalid value for '--output' / '-o': 'xml' is not one of"),
        (["explain"], "kretain: missing argument 'TOPIC[:PARTITION]'; see kretain explain --help"),
        (["plam"], "kretain: no such command 'plam'; did you mean plan?"),
        (["history", "--verify", "--limit", "3"], "kretain: --verify checks complete logs"),
        (["groups", "--fleet", "f.yaml", "forget", "x"], "kretain: forget is for one cluster: omit --fleet"),
        (["policy", "sow"], "kretain: no such command 'sow'"),
    ],
    ids=str,
)
def test_usage_error_in_a_pipe_is_reported_in_one_line(arguments: list[str], wanted: str) -> None:
    done = run_cli(*arguments, check=2)
    assert (done.out, done.err.count("\n"), "--help" in done.err) == ("", 1, True), done.err
    assert done.err.startswith(wanted)


def test_kretain_without_arguments_prints_help() -> None:
    done = run_cli("policy")
    assert "Usage: kretain policy" in done.out + done.err


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


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("completions", "docs", "man"):
        shutil.copytree(PROJECT / name, tmp_path / name)
    return tmp_path


def test_generated_files_are_up_to_date_and_a_change_is_named(copy: Path) -> None:
    def check() -> tuple[int, str, str]:
        command = [sys.executable, str(PROJECT / "tools" / "generated.py"), "--check"]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout, done.stderr

    assert check()[0] == 0, "run make generated"
    (copy / "completions" / "_kretain").unlink()
    bash = copy / "completions" / "kretain.bash"
    bash.write_text(bash.read_text() + "# edited\n")
    assert check() == (1, "", "out of date: kretain.bash, _kretain; run: make generated\n")
    assert not (copy / "completions" / "_kretain").exists(), "a check writes nothing"


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
