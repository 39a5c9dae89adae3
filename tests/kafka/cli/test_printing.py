"""What is printed: completions in real shells, names that others choose, and results that nothing can take.

Brokers take any group id. A person is shown its escape; a script that reads JSON or YAML gets the very name back.
Formats: ``tests/unit/render``.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import html5lib
import pytest
import yaml

from tests.support import archives
from tests.support.clusters import EmbeddedKafka, tools_on_path
from tests.support.docs import ROOT
from tests.support.says import says
from tests.support.terminal import CLOSED, FULL, UNREAD, Terminal, run_into
from tests.support.world import HOUR, OLD, Cli, World, commit_raw, consumed, now_ms, run_cli, wait_until, written

FILES = ROOT / "completions"

START = {
    "bash": f"PS1='> '; source {FILES}/kretain.bash",
    "zsh": f"PS1='> '; bindkey -e; autoload -Uz compinit; compinit -u -D; source {FILES}/_kretain",
    "zsh-fpath": f"PS1='> '; bindkey -e; fpath=({FILES} $fpath); autoload -Uz compinit; compinit -u -D",
    "fish": f"source {FILES}/kretain.fish",
}
COMMAND = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "--private", "--interactive"],
}


EVIL = {
    "sub": "$(touch pwned)",
    "tick": "`touch pwned`",
    "quote": "'; touch pwned; '",
    "space": " a b",
    "glob": "*?[x]",
}
"""Ends of group names: anybody who may join a group can name one so."""


@pytest.fixture(scope="module")
def stem(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What topics and groups begin with, and nothing else on the cluster."""
    world = World(kafka.bootstrap, tmp_path_factory.mktemp("state"))
    stem = f"comp{os.getpid()}"
    for end, partitions in (("-orders.eu", 11), ("-orders_us", 1), ("-solo", 3)):
        world.topic(name=stem + end, partitions=partitions)
    world.produce(f"{stem}-solo", 1)
    evil = [f"-evil-{kind}{end}" for kind, end in EVIL.items()]
    for end in ("-billing", "-bill:odd", *evil, "-evil-z\\", "-evil-zz;touch pwned;#"):
        world.commit(stem + end, f"{stem}-solo", 1)
    return stem


@pytest.fixture
def environ(kafka: EmbeddedKafka, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return {
        **os.environ,
        "HOME": str(tmp_path / "home"),
        "HISTFILE": "",
        "INPUTRC": os.devnull,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KRETAIN_BOOTSTRAP_SERVER": kafka.bootstrap,
        "KRETAIN_COMPLETION_TIMEOUT": "30s",  # a busy machine is as good as a cluster that is far away
    }


class Shell:
    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._lines = itertools.count(1)

    def words(self, line: str, seconds: float = 150) -> list[str]:
        """Type a line with a TAB at its end; return the words after ``kretain`` that the shell then has."""
        before = line.replace("\t", "").split()[1:]
        deadline = time.monotonic() + seconds
        while True:  # on a busy machine a second is too short for the cluster to answer
            number = next(self._lines)
            # Ctrl-A: to the line's beginning, where a command is put that prints the words of the rest.
            self.terminal.type(f"{line}\x01 printf '<%s>' \x05; echo do''ne{number}\n")
            said = self.terminal.read_until(f"done{number}\n", 60)
            last = said.rpartition("<kretain>")[2].rpartition("done")[0].rstrip("\n")
            after = last.removeprefix("<").removesuffix(">").split("><")
            if after != before or time.monotonic() > deadline:
                return after


@pytest.fixture(params=[one if one == "bash" else pytest.param(one, marks=pytest.mark.long) for one in START])
def shell(request: pytest.FixtureRequest, environ: dict[str, str], tmp_path: Path) -> Iterator[Shell]:
    name: str = request.param
    command = COMMAND[name.removesuffix("-fpath")]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed here")
    with Terminal(command, columns=200, environ=environ) as terminal:
        terminal.type(f"cd {shlex.quote(str(tmp_path))}; {START[name]}; echo rea''dy\n")
        terminal.read_until("ready\n", 60)
        yield Shell(terminal)
        assert not (tmp_path / "pwned").exists(), "a name was run as a command"


def test_first_tab_press_completes_commands_and_topics(shell: Shell, stem: str) -> None:
    """Also where the file was found in fpath, and is loaded by that TAB."""
    assert shell.words("kretain expl\t", seconds=0) == ["explain"]
    assert shell.words(f"kretain plan {stem}-orders.\t") == ["plan", f"{stem}-orders.eu"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"], indirect=True)
def test_tab_at_what_takes_no_file_offers_no_files(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "no-such-name.yaml").touch()
    for line in ("plan no-such-", "plan --context no-such-", "plan -b no-such-", "plan --older-than no-such-"):
        assert shell.words(f"kretain {line}\t", seconds=0) == line.split()
    assert shell.words("kretain show no-such-\t") == ["show", "no-such-name.yaml"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"], indirect=True)
def test_tab_completes_options_partitions_groups_and_files(shell: Shell, stem: str, tmp_path: Path) -> None:
    (tmp_path / "my-policy.yaml").touch()
    for line, end in (
        ("plan --consumed", "-after"),
        (f"explain {stem}-orders_us:", "0"),
        (f"groups --group {stem}-bill:", "odd"),
        (f"groups --group={stem}-billi", "ng"),
        ("plan -p my-p", "olicy.yaml"),
    ):
        assert shell.words(f"kretain {line}\t") == f"{line}{end}".split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"], indirect=True)
def test_group_of_any_name_completes_to_one_word(shell: Shell, stem: str) -> None:
    """What is offered is never run: names come from whoever may join a group."""
    for kind, end in EVIL.items():
        line = f"groups --group {stem}-evil-{kind}"
        assert shell.words(f"kretain {line}\t") == [*line.split()[:2], f"{stem}-evil-{kind}{end}"]
    for _ in range(20):  # as often as a busy machine needs to answer within the second that completion waits
        shell.words(f"kretain groups --group {stem}-evil-z\t\t", seconds=0)
        if shown := f"{stem}-evil-zz;touch pwned;#" in shell.terminal.text.replace("\\", ""):
            break
    assert shown, "the list was never shown"


BASH = """source {file}
COMP_LINE={line}; COMP_POINT=${{#COMP_LINE}}
_kretain_completion kretain
printf '%s\\n' "${{COMPREPLY[@]}}" """


def listed(line: str, environ: dict[str, str]) -> list[str]:
    script = BASH.format(file=FILES / "kretain.bash", line=shlex.quote(line))
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return [word for word in done.stdout.split("\n") if word]


def eventually(ask: Callable[[], list[str]]) -> list[str]:
    """Ask until there is something: on a busy machine a second is too short for the cluster to answer."""
    deadline = time.monotonic() + 60
    while not (found := ask()) and time.monotonic() < deadline:
        pass
    return found


def test_partitions_complete_in_order_without_the_given_ones(stem: str, environ: dict[str, str]) -> None:
    """COMP_WORDBREAKS has the colon: to bash what follows it is a word of its own."""
    place = f"{stem}-orders.eu:"
    assert eventually(lambda: listed(f"kretain explain {place}", environ)) == [str(number) for number in range(11)]
    assert eventually(lambda: listed(f"kretain explain {place}1", environ)) == ["1", "10"]
    assert eventually(lambda: listed(f"kretain trim {place}1", environ)) == ["1", "10"]


def test_completion_uses_the_connection_of_the_line(stem: str, environ: dict[str, str]) -> None:
    line = f"kretain plan -b {environ.pop('KRETAIN_BOOTSTRAP_SERVER')} {stem}-so"
    assert eventually(lambda: listed(line, environ)) == [f"{stem}-solo"]
    assert listed(f"kretain plan {stem}-so", environ) == [], "no cluster, no names, no error"


def asked(line: str, environ: dict[str, str]) -> tuple[float, Cli]:
    """Ask as the scripts do; return how long it took, and what was said."""
    fish = {"_KRETAIN_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    env = {**environ, **fish, "_TYPER_COMPLETE_ARGS": line}
    began = time.monotonic()
    done = subprocess.run(["kretain"], env=env, capture_output=True, text=True, timeout=60, check=False)
    return time.monotonic() - began, Cli(done.returncode, done.stdout.strip(), done.stderr)


@pytest.mark.parametrize("cluster", ["closed port", "silent port", "unknown host", "broken configuration"])
def test_completion_of_an_unreachable_cluster_is_silent_within_a_second(
    environ: dict[str, str], tmp_path: Path, cluster: str
) -> None:
    """0.9 s on an idle machine; on a busy one what starting takes there, and half a second for the cluster."""
    del environ["KRETAIN_COMPLETION_TIMEOUT"]
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        environ["KRETAIN_BOOTSTRAP_SERVER"] = {
            "closed port": f"127.0.0.1:{closed.getsockname()[1]}",
            "silent port": f"127.0.0.1:{silent.getsockname()[1]}",
        }.get(cluster, "no-such-host.invalid:9092")
        if cluster == "broken configuration":
            (tmp_path / "config.yaml").write_text("contexts: [")
            environ["KRETAIN_CONFIG"] = str(tmp_path / "config.yaml")
        took = []
        for _attempt in range(3):
            idle, _ = asked("kretain plan --o", environ)  # asks no cluster
            seconds, done = asked("kretain plan x", environ)
            assert done == Cli(0, "", "")
            took.append(seconds - idle)
            if seconds < 1 or seconds - idle < 0.8:
                return
    raise AssertionError(f"completion took this much longer than one that asks no cluster: {took}")


# -- names, records and networks that others choose: brokers take any group id -----------------


HOSTILE = "evil\x1b[2J\x1b[31m\r\nkretain: 0 records\x07\x9b1m\u202egpj.exe\u200b\u2028"


def odd(said: Cli) -> set[str]:
    """Return what does not print of an output; its line ends aside."""
    return {one for one in said.out + said.err if one != "\n" and not one.isprintable()}


ESCAPED = r"evil\x1b[2J\x1b[31m\r\nkretain: 0 records\x07\x9b1m\u202egpj.exe\u200b\u2028"
FORMULA = "=HYPERLINK(1)"
RULE = ("--consumed-after", "1h")
COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": (*RULE, "-v"),
    "explain": RULE,
    "trim": (*RULE, "--dry-run"),
    "offsets": ("--group", "*"),
}
"""What is asked about a topic; each names the group that holds it, or that reads it."""


@pytest.fixture
def topic(world: World) -> Iterator[str]:
    """Two groups of such names read it: the hostile one is behind, and has no commit on the second partition (F2)."""
    topic = world.filled([100 * HOUR] * 10, None, 2)
    world.commit(HOSTILE, topic, 3)
    world.commit(FORMULA, topic, {0: 5, 1: 5})
    yield topic
    for name in (HOSTILE, FORMULA):  # the cluster is shared, and no other test wants to meet them
        world.delete_group(name)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings([*value, *value.values()])
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_names_are_escaped_in_every_output(world: World, topic: str, command: str) -> None:
    outputs = ("table", "csv", "json", "yaml")
    found = {output: world.cli(command, topic, *COMMANDS[command], "-o", output, check=0) for output in outputs}
    assert [output for output in outputs if odd(found[output])] == []
    assert ESCAPED in found["table"].out.replace("\n", "").replace("  ", " ")
    cells = [cell for row in csv.reader(io.StringIO(found["csv"].out)) for cell in row]
    assert any(ESCAPED in cell for cell in cells)
    assert not any(cell.startswith("=") for cell in cells)
    for value in (found["json"].json(), yaml.safe_load(found["yaml"].out)):
        assert any(HOSTILE in text for text in strings(value))


def test_hostile_names_are_escaped_in_group_lists_and_remedies(world: World, topic: str) -> None:
    for words in (["groups", "--group", "evil*", "--group", "=*"], ["doctor"]):
        for output in ("table", "csv", "json", "yaml"):
            assert odd(world.cli(*words, "-o", output)) == set()
    says(world.cli("groups", "--group", "evil*", "--group", "=*", "-o", "csv").out, ESCAPED, f"'{FORMULA}")
    markdown, lines = (world.cli("plan", topic, *RULE, "-o", output) for output in ("markdown", "jsonl"))
    assert (odd(markdown), odd(lines), ESCAPED in markdown.out) == (set(), set(), True)
    assert all(json.loads(line) for line in lines.out.splitlines())
    remedy = r"--group $'evil\x1b[2J\x1b[31m\x0d\x0akretain: 0 records\x07\xc2\x9b1m\xe2\x80\xaegpj.exe"
    assert remedy in world.cli("plan", topic, *RULE, "-o", "csv").out


def test_hostile_names_are_escaped_in_errors(world: World) -> None:
    for words in (["plan", HOSTILE, *RULE], ["groups", "forget", HOSTILE], ["plan", "--policy", f"/no/{HOSTILE}"]):
        said = world.cli(*words)
        # With its colon the name is taken for TOPIC:PARTITION, and no number stands behind it.
        assert (said.code, odd(said)) == (2 if words[:2] == ["plan", HOSTILE] else 1, set()), said.err


@pytest.fixture
def contents(world: World) -> str:
    """Ten records whose values, header names and header values move cursors; so does the metadata of a commit of 8."""
    contents = world.topic("contents")
    text = HOSTILE.encode()
    stamps = [now_ms() - 100 * HOUR + n for n in range(10)]
    world.produce_at(contents, stamps, value=text, headers=lambda _: [(HOSTILE, text)])
    world.commit(f"{contents}-g", contents, 8, metadata=HOSTILE)
    return contents


def test_escape_sequences_in_records_and_commits_reach_no_terminal(world: World, contents: str, tmp_path: Path) -> None:
    policy, store = tmp_path / "policy.yaml", tmp_path / "archive"
    policy.write_text(archives.policy(contents, store))
    for words in (
        ("profile", contents),
        ("offsets", contents, "--group", f"{contents}-*"),
        ("explain", contents, "-p", str(policy)),
        ("trim", "-p", str(policy), "--yes"),
        ("archive", "list", str(store)),
        ("archive", "verify", str(store)),
        ("restore", contents, "--from", str(store), "--to", world.topic("restored"), "--yes"),
    ):
        for output in ("table",) if words[0] in ("trim", "restore") else ("table", "json"):
            said = world.cli(*words, "-o", output)
            assert (said.code, odd(said)) == (0, set()), (words, output, said.out + said.err)
    assert world.ends(contents) == (8, 10)


_WORD = r"""(?:[^\s'"$,;()]|'[^']*'|"[^"]*"|\$'(?:\\.|[^'\\])*'|,(?!\s))+"""
_COMMAND = re.compile(rf"(?:kafka-[a-z-]+\.sh|kretain [a-z]+(?: [a-z]+)? (?=-)|kretain groups forget)(?: ?{_WORD})*")
NAMES = ["", "-g", "--group", "it's; $(touch x) `y`", "two\nlines", "billing,"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, kafka: EmbeddedKafka) -> str:
    del kafka  # it has resolved its own jars
    folder = tmp_path_factory.mktemp("bin")
    tools_on_path(folder)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def commands_in(text: str) -> Iterator[str]:
    """Yield the command lines in a text: each begins with a tool's name and ends where the sentence goes on."""
    for found in _COMMAND.finditer(text):
        line = found[0].rstrip(",;) ")
        if len(line.split()) > 2:
            yield line


@pytest.fixture
def troubles(world: World, tmp_path: Path) -> tuple[World, list[str]]:
    """A topic of each kind of trouble for each group name; the options that reach them."""
    world.commit("warm-up", world.topic(), 0)
    topics: dict[str, list[str]] = {"missing": [], "below": [], "gone": []}
    for number, name in enumerate(NAMES):
        for kind, some in topics.items():
            some.append(world.filled([40 * 3_600_000] * 4, None, 2, stem=f"odd.{kind}_{number}-"))
            group = f"{name}gone{some[-1]}" if kind == "gone" else name
            committed(world, group, some[-1], -2 if kind == "below" else 1)
    policy = written(tmp_path / "it's policy.yaml", consumed("odd.*"))
    client = written(tmp_path / "client file.properties", "client.id=odd\n")
    options = ["-b", world.bootstrap, "-c", str(client), "-p", str(policy), "--state-dir", str(world.state_dir)]
    world.cli("plan", *options[2:], check=None)
    for name, topic in zip(NAMES, topics["gone"], strict=True):
        world.delete_group(f"{name}gone{topic}")
    return world, options


def committed(world: World, group: str, topic: str, offset: int) -> None:
    def done() -> bool:
        try:
            commit_raw(world, group, topic, offset)
        except (KeyError, AssertionError):
            return False
        return True

    wait_until(done, f"a commit of {group!r}")


def test_printed_commands_run_as_printed(troubles: tuple[World, list[str]], path: str, tmp_path: Path) -> None:
    world, options = troubles
    rows = world.cli("plan", "-o", "json", *options[2:]).json()["partitions"]
    reasons = [reason["text"] for row in rows for reason in row["reasons"]]
    printed = list(dict.fromkeys(commands_in("\n".join([world.cli("plan", *options[2:]).out, *reasons]))))
    says("\n".join(printed), "--delete-offsets", "--delete ", "--reset-offsets", "groups forget")
    assert len(printed) >= 4 * len(NAMES) - 6, printed
    named = world.cli("offsets", "--group", "", "-o", "json", *options[2:], check=0).json()
    assert {row["group"] for row in named["partitions"]} == {""}
    assert not any("group  " in one or "HOST:PORT" in one for one in printed)
    for line in printed:
        ran = subprocess.run(
            ["bash", "-c", line],
            env={**os.environ, "PATH": path},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        wrong = "rror" in ran.stdout.replace("ConsumerGroupCommand", "")
        assert (ran.returncode, wrong) == (0, False), f"{line}\n{ran.stdout}"
    assert not (tmp_path / "x").exists(), "a name was run"
    after = json.loads(world.cli("plan", "-o", "json", *options[2:]).out)
    assert not any(reason["code"] == "F6" for row in after["partitions"] for reason in row["reasons"]), (
        "all are forgotten"
    )


# -- a result that can't be printed, after a trim and before ---------------------------------------


@pytest.fixture
def half_read(world: World) -> str:
    """Ten old records in each of two partitions; a group has read eight of the first, and never the second."""
    return world.filled(OLD, {"a": {0: 8}}, 2)


def arguments(world: World, command: str, topic: str, *more: str) -> list[str]:
    return [
        command,
        topic,
        "--consumed-after",
        "1h",
        *["-b", world.bootstrap, "--state-dir", str(world.state_dir)],
        *more,
    ]


def run_of(world: World) -> dict:
    (run,) = world.cli("history", "-o", "json", check=0).json()["runs"]
    return run


@pytest.mark.parametrize(
    ("outlet", "why", "output"), [(FULL, "No space left on device", "table"), (CLOSED, "stdout is closed", "json")]
)
def test_lost_report_after_a_trim_exits_partial_and_names_the_deletes(
    world: World, half_read: str, outlet: str, why: str, output: str
) -> None:
    done = run_into(outlet, *arguments(world, "trim", half_read, "--yes", "-o", output, "-q"))
    run = run_of(world)
    assert (done.code, done.err) == (
        5,
        (
            f"kretain: the result could not be printed: {why}; run {run['run']}: 1 partition trimmed; 8 records "
            f"trimmed (kretain history --run {run['run']})\n"
        ),
    )
    assert (world.ends(half_read)[0], run["records"], run["exit"]) == (8, 8, 0), "the log has what was done"


@pytest.mark.parametrize(
    ("command", "more", "code"),
    [
        ("plan", ["--detailed-exitcode"], 3),
        ("plan", ["--detailed-exitcode", "--fail-on-hold", "-o", "json"], 4),
        ("trim", ["--yes"], 0),
        ("trim", ["--yes", "--fail-on-hold", "-o", "csv"], 4),
        ("trim", ["--yes", "--wait"], 5),
        ("trim", [], 6),
    ],
)
def test_closed_pipe_keeps_the_exit_code(
    world: World, half_read: str, command: str, more: list[str], code: int
) -> None:
    done = run_into(UNREAD, *arguments(world, command, half_read, *more))
    assert done.code == code, done.err
    assert "Broken pipe" not in done.err
    assert world.ends(half_read)[0] == (8 if command == "trim" and code != 6 else 0)


BREAKING = """
import sys
from kretain.__main__ import main
from retention_cli.brokers.errors import BrokerError

def fail(*_, **__):
    raise {error}

import {module} as module
module.{name} = fail
sys.argv[0] = "kretain"
main()
"""
"""The real command, in which one thing fails."""

WAITING = ("kretain.flows.trims", "waited")
NOTING = ("retention_cli.trim.journal", "AuditJournal.result")


@pytest.mark.parametrize(
    ("where", "error", "code", "words"),
    [
        (WAITING, 'BrokerError("no broker answered")', 5, "kretain: no broker answered\n"),
        (WAITING, "KeyboardInterrupt", 130, "kretain: interrupted\nkretain: before that: run "),
        (NOTING, 'KeyError("x")', 5, "kretain: internal error: KeyError: 'x'"),
    ],
)
def test_failure_after_a_delete_is_partial_and_ctrl_c_stays_130(
    world: World, half_read: str, where: tuple[str, str], error: str, code: int, words: str
) -> None:
    script = BREAKING.format(module=where[0], name=where[1], error=error)
    program = ["-c", script, *arguments(world, "trim", half_read, "--yes", "--wait", "-o", "json", "-q")]
    done = subprocess.run([sys.executable, *program], capture_output=True, text=True, timeout=120, check=False)
    says(done.stderr, words, never=["Traceback"])
    assert (done.returncode, world.ends(half_read)[0]) == (code, 8), done.stderr
    if code == 130:
        assert "1 partition trimmed; 8 records trimmed" in done.stderr
    else:
        report = json.loads(done.stdout)
        assert (report["totals"]["trimmed"], report["partitions"][0]["log_start"]) == (1, 8), "the report is there"


def test_interrupted_trim_with_a_lost_report_exits_as_interrupted(world: World, half_read: str) -> None:
    script = BREAKING.format(module=WAITING[0], name=WAITING[1], error="KeyboardInterrupt")
    done = run_into(FULL, *arguments(world, "trim", half_read, "--yes", "--wait"), program=("-c", script))
    assert done.code == 130
    assert "1 partition trimmed; 8 records trimmed" in done.err


def test_fleet_trim_with_a_lost_report_names_each_clusters_deletes(
    world: World, half_read: str, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(consumed(half_read))
    (tmp_path / "fleet.yaml").write_text(
        "version: 1\npolicy: policy.yaml\nclusters:\n"
        f"  - {{name: eu, bootstrap-server: '{world.bootstrap}'}}\n"
        "  - {name: down, bootstrap-server: '127.0.0.1:1', timeout: 1s}\n"
    )
    done = run_into(
        FULL,
        *("trim", "--fleet", str(tmp_path / "fleet.yaml"), "--state-dir", str(world.state_dir), "--yes", "-q"),
    )
    assert done.code == 5, done.err
    run = run_of(world)["run"]
    assert done.err.splitlines()[-1] == (
        f"kretain: the result could not be printed: No space left on device; eu: run {run}: 1 partition trimmed; "
        f"8 records trimmed (kretain history --run {run})"
    )


# -- pages and replays, without the cluster ----------------------------------------------------


MARKUP = "<script>alert(1)</script>\x1b[2J\u202e"


def tags(page: Path) -> set[str]:
    root = html5lib.parse(page.read_text(encoding="utf-8"), namespaceHTMLElements=False)
    return {one.tag.rpartition("}")[2] for one in root.iter() if isinstance(one.tag, str)}


def test_report_renders_a_plan_and_its_trim(world: World, tmp_path: Path) -> None:
    topic, held = (world.filled([2 * HOUR] * 40, stem=stem) for stem in ("shown", "held"))
    world.commit(MARKUP, topic, 25)
    plan = tmp_path / "plan.parquet"
    policy = written(
        tmp_path / "policy.yaml",
        "version: 1\n"
        f"topics: [{{match: [{topic}, {held}], retention.commitoffset.enable: true, retention.commitoffset.ms: 1h}}]\n",
    )
    try:
        world.cli("disk", check=0)  # it remembers how full they are
        world.cli("plan", "-p", str(policy), "--out", str(plan), check=0)
        page, past = tmp_path / "plan.html", tmp_path / "past.html"
        foretold = written(
            tmp_path / "forecast.json", world.cli("forecast", "-p", str(policy), "-o", "json", check=0).out
        )
        given = (str(plan), "--forecast", str(foretold))
        assert world.cli("report", *given, "--out", str(page), check=0).out == ""
        text = page.read_text(encoding="utf-8")
        says(
            text,
            "Trim 25 records ",
            *("&lt;script&gt;alert(1)", r"\x1b[2J\u202e"),
            "Disks over time",
            "2 topics: 0 steady",
        )
        assert re.search(rf"kretain groups[^<]*-p \S*{policy.name}", text)
        world.cli("trim", topic, "--consumed-after", "1h", "--yes", check=0)
        assert world.ends(topic)[0] == 25
        before = {one: one.read_bytes() for one in world.state_dir.rglob("*") if one.is_file()}
        world.cli("report", "--out", str(past), check=0)
        assert {one: one.read_bytes() for one in world.state_dir.rglob("*") if one.is_file()} == before
        assert "1 trim of 1 cluster: 25 records deleted." in past.read_text(encoding="utf-8")
        for one in (page, past):
            assert tags(one) & {"svg", "script", "img", "link", "iframe", "a"} == {"svg"}
    finally:
        world.delete_group(MARKUP)


def test_recorded_plan_and_trim_are_verified_replayed_and_drawn_without_the_cluster(
    world: World, tmp_path: Path
) -> None:
    topic = world.filled([30 * HOUR] * 10, {"a": 8})
    policy, forced, frozen = (
        written(tmp_path / f"{name}.yaml", f"version: 1\ntopics:\n- match: {topic}\n  {rules}\n")
        for name, rules in (
            ("policy", "retention.commitoffset.enable: true\n  retention.commitoffset.hours: 24"),
            ("forced", "retention.ms: 24h"),
            ("frozen", "hold: legal"),
        )
    )
    for file in (policy, forced):
        assert "recorded as " in world.cli("plan", "-p", str(file), "--evidence", check=0).err
        time.sleep(1)  # a run's name has the second that it began in, and runs are in the order of their names
    world.cli("trim", "-p", str(policy), "--yes", check=0)
    assert world.ends(topic) == (8, 10)
    here = ("--state-dir", str(world.state_dir), "-b", "localhost:1")  # nothing listens there
    found = run_cli("replay", "-p", str(policy), *here, "-o", "json", check=0).json()
    plans, trim = found["runs"][:2], found["runs"][2]
    assert {name: amount for name, amount in found["totals"].items() if amount} == {"earlier": 8, "partitions": 1}
    assert "2 records that a group had not read" in run_cli("replay", "-p", str(forced), *here, check=3).err
    kept = run_cli("replay", "-p", str(frozen), *here, "-o", "json", check=0).json()
    assert (kept["totals"]["never"], kept["totals"]["held"]) == (8, 1)
    said = run_cli("verify", *found["runs"], *here, check=0).out
    assert said.count("proven") == 3
    assert f"{plans[0]}: proven. 1 decision of a plan repeated" in said
    says(run_cli("explain", f"{topic}:0", "--run", trim, *here, check=0).out, f"As run {trim} saw it", "8 records")
    assert run_cli("explain", topic, "--at", "2030-01-01T00:00:00Z", *here, "-o", "json", check=0).json()["run"] == trim
    assert run_cli("history", f"{topic}:0", *here, "-o", "json", check=0).json()["runs"][0]["run"] == trim
    assert run_cli("history", f"{topic}:1", *here, "-o", "json", check=0).json()["runs"] == []
    run_cli("explain", f"{topic}:7", "--run", trim, *here, check=1)
