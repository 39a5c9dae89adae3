"""Names, records and networks that others choose: nothing moves a cursor, forges a line or is claimed too much.

Brokers take any group id. A person is shown its escape; a script that reads JSON or YAML gets the very name back.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import archives
from tests.support.clusters import EmbeddedKafka, tools_on_path
from tests.support.says import says
from tests.support.world import HOUR, Cli, World, commit_raw, consumed, now_ms, wait_until, written

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


ROOT = Path(__file__).parents[3]


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
