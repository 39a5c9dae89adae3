"""Completions in real shells: bash, zsh and fish are typed at, and what they make of a line is read back."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clusters import EmbeddedKafka
from tests.support.terminal import Terminal
from tests.support.world import Cli, World

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
