"""Completions in real shells, which are typed at; and names that others choose: nothing moves a cursor or forges a line.

Brokers take any group id. A person is shown its escape; a script that reads JSON or YAML gets the very name back.
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

import pytest
import yaml

from tests.support import archives
from tests.support.clusters import EmbeddedKafka, tools_on_path
from tests.support.says import says
from tests.support.terminal import Terminal
from tests.support.world import HOUR, Cli, World, commit_raw, consumed, now_ms, wait_until, written

ROOT = Path(__file__).parents[3]
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


@pytest.mark.parametrize("cluster", ["nobody listens", "nobody answers", "no such host", "a broken configuration"])
def test_completion_of_an_unreachable_cluster_is_silent_within_a_second(
    environ: dict[str, str], tmp_path: Path, cluster: str
) -> None:
    """0.9 s on an idle machine; on a busy one what starting takes there, and half a second for the cluster."""
    del environ["KRETAIN_COMPLETION_TIMEOUT"]
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        environ["KRETAIN_BOOTSTRAP_SERVER"] = {
            "nobody listens": f"127.0.0.1:{closed.getsockname()[1]}",
            "nobody answers": f"127.0.0.1:{silent.getsockname()[1]}",
        }.get(cluster, "no-such-host.invalid:9092")
        if cluster == "a broken configuration":
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
    raise AssertionError(f"so much longer than a completion that asks nobody: {took}")


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
    listed = world.cli("groups", "--group", "evil*", "--group", "=*", "-o", "csv").out
    says(listed, ESCAPED, f"'{FORMULA}")
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
