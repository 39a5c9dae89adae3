"""Every command that kretain prints can be copied: it runs as it stands, against the same cluster."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kretain.embedded.jars import DEFAULT_VERSION, resolve
from kretain.embedded.java import find_java
from tests.support.clusters import EmbeddedKafka
from tests.support.world import World, commit_raw, consumed, wait_until, written

TOOLS = {
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
}
"""Kafka's own tools; their jars have the classes that the scripts run."""
_WORD = r"""(?:[^\s'"$,;()]|'[^']*'|"[^"]*"|\$'(?:\\.|[^'\\])*'|,(?!\s))+"""
_COMMAND = re.compile(rf"(?:kafka-[a-z-]+\.sh|kretain [a-z]+(?: [a-z]+)? (?=-)|kretain groups forget)(?: ?{_WORD})*")
NAMES = ["", "-g", "--group", "it's; $(touch x) `y`", "two\nlines", "billing,"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, kafka: EmbeddedKafka) -> str:
    del kafka  # it has resolved its own jars
    folder = tmp_path_factory.mktemp("bin")
    java = find_java()
    jars = resolve("kafka-tools", DEFAULT_VERSION, print)
    lines = {
        name: f"{shlex.quote(str(java))} -Xmx128m -XX:TieredStopAtLevel=1 -cp {shlex.quote(f'{jars}/*')} {main}"
        for name, main in TOOLS.items()
    }
    lines["kretain"] = f"{shlex.quote(sys.executable)} -m kretain"
    for name, line in lines.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def commands_in(text: str) -> Iterator[str]:
    """Yield the command lines in a text: each begins with a tool's name and ends where the sentence goes on."""
    for found in _COMMAND.finditer(text):
        line = found[0].rstrip(",;) ")
        if len(line.split()) > 2:
            yield line


@pytest.fixture
def odd(world: World, tmp_path: Path) -> tuple[World, list[str]]:
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


def test_printed_commands_run_as_printed(odd: tuple[World, list[str]], path: str, tmp_path: Path) -> None:
    world, options = odd
    told: dict[str, None] = {}
    for command in (("plan",), ("plan", "-o", "json"), ("plan", "-o", "yaml"), ("plan", "-o", "csv"), ("offsets",)):
        out = world.cli(*command, *options[2:]).out
        if command[-1] == "json":
            rows = json.loads(out)["partitions"]
            out = "\n".join(reason["text"] for row in rows for reason in row["reasons"])
        elif command[-1] != "plan":
            continue
        told.update(dict.fromkeys(commands_in(out)))
    kinds = ("--delete-offsets", "--delete ", "--reset-offsets", "groups forget")
    assert [kind for kind in kinds if not any(kind in one for one in told)] == [], list(told)
    assert len(told) >= 4 * len(NAMES) - 6, list(told)
    named = world.cli("offsets", "--group", "", "-o", "json", *options[2:], check=0).json()
    assert {row["group"] for row in named["partitions"]} == {""}
    assert not any("group  " in one or "HOST:PORT" in one for one in told)
    for line in told:
        ran = subprocess.run(
            ["bash", "-c", line],
            env={**os.environ, "PATH": path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        said = ran.stdout + ran.stderr
        assert ran.returncode == 0, f"{line}\n{said}"
        assert "rror" not in said.replace("ConsumerGroupCommand", ""), f"{line}\n{said}"
    assert not (tmp_path / "x").exists(), "a name was run"
    after = json.loads(world.cli("plan", "-o", "json", *options[2:]).out)
    assert not any(reason["code"] == "F6" for row in after["partitions"] for reason in row["reasons"]), (
        "all are forgotten"
    )
