"""What commands print: every format that they offer, and what is said where nothing can be printed."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from kretain.app import app
from tests.support.clusters import EmbeddedKafka
from tests.support.ledger_stores import make_kretain_topics, renew_state_topic
from tests.support.says import says
from tests.support.terminal import CLOSED, FULL, UNREAD, run_into
from tests.support.trims import audit
from tests.support.world import OLD, World, consumed, run_cli, written


@pytest.fixture
def topic(world: World) -> str:
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


@pytest.mark.parametrize(("outlet", "why"), [(FULL, "No space left on device"), (CLOSED, "stdout is closed")])
@pytest.mark.parametrize("output", ["table", "json"])
def test_lost_report_after_a_trim_exits_partial_and_names_the_deletes(
    world: World, topic: str, outlet: str, why: str, output: str
) -> None:
    done = run_into(outlet, *arguments(world, "trim", topic, "--yes", "-o", output, "-q"))
    run = run_of(world)
    assert (done.code, done.err) == (
        5,
        (
            f"kretain: the result could not be printed: {why}; run {run['run']}: 1 partition trimmed; 8 records "
            f"trimmed (kretain history --run {run['run']})\n"
        ),
    )
    assert (world.ends(topic)[0], run["records"], run["exit"]) == (8, 8, 0), "the log has what was done"


@pytest.mark.parametrize(
    ("command", "more", "code"),
    [
        ("plan", [], 0),
        ("plan", ["--detailed-exitcode"], 3),
        ("plan", ["--detailed-exitcode", "--fail-on-hold", "-o", "json"], 4),
        ("trim", ["--yes"], 0),
        ("trim", ["--yes", "--fail-on-hold", "-o", "csv"], 4),
        ("trim", ["--yes", "--wait"], 5),
        ("trim", [], 6),
    ],
)
def test_closed_pipe_keeps_the_exit_code(world: World, topic: str, command: str, more: list[str], code: int) -> None:
    done = run_into(UNREAD, *arguments(world, command, topic, *more))
    assert done.code == code, done.err
    assert "Broken pipe" not in done.err
    assert world.ends(topic)[0] == (8 if command == "trim" and code != 6 else 0)


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
    world: World, topic: str, where: tuple[str, str], error: str, code: int, words: str
) -> None:
    script = BREAKING.format(module=where[0], name=where[1], error=error)
    program = ["-c", script, *arguments(world, "trim", topic, "--yes", "--wait", "-o", "json", "-q")]
    done = subprocess.run([sys.executable, *program], capture_output=True, text=True, timeout=120, check=False)
    says(done.stderr, words, never=["Traceback"])
    assert (done.returncode, world.ends(topic)[0]) == (code, 8), done.stderr
    if code == 130:
        assert "1 partition trimmed; 8 records trimmed" in done.stderr
    else:
        report = json.loads(done.stdout)
        assert (report["totals"]["trimmed"], report["partitions"][0]["log_start"]) == (1, 8), "the report is there"


def test_interrupted_trim_with_a_lost_report_exits_as_interrupted(world: World, topic: str) -> None:
    script = BREAKING.format(module=WAITING[0], name=WAITING[1], error="KeyboardInterrupt")
    done = run_into(FULL, *arguments(world, "trim", topic, "--yes", "--wait"), program=("-c", script))
    assert done.code == 130
    assert "1 partition trimmed; 8 records trimmed" in done.err


def test_fleet_trim_with_a_lost_report_names_each_clusters_deletes(world: World, topic: str, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(consumed(topic))
    (tmp_path / "fleet.yaml").write_text(
        "version: 1\npolicy: policy.yaml\nclusters:\n"
        f"  - {{name: eu, bootstrap-server: '{world.bootstrap}'}}\n"
        "  - {name: down, bootstrap-server: '127.0.0.1:1', timeout: 1s}\n"
    )
    fleet = ["trim", "--fleet", str(tmp_path / "fleet.yaml"), "--state-dir", str(world.state_dir), "--yes", "-q"]
    done = run_into(FULL, *fleet)
    assert done.code == 5, done.err
    run = run_of(world)["run"]
    assert done.err.splitlines()[-1] == (
        f"kretain: the result could not be printed: No space left on device; eu: run {run}: 1 partition trimmed; "
        f"8 records trimmed (kretain history --run {run})"
    )


ARGUMENTS = {
    "plan": "-p {policy}",
    "trim": "-p {policy} --dry-run",
    "archive list": "{archive}",
    "archive verify": "{archive}",
    "archive compact": "{archive}",
    "restore": "{topic} --from {archive} --to {target} --append --yes",
    "explain": "{topic} -p {policy}",
    "show": "{plan}",
    "why": "F2",
    "offsets": "{topic}",
    "advise": "{topic} -p {policy}",
    "profile": "{topic}",
    "groups": "",
    "history": "",
    "groups forget": "{topic}-a --dry-run",
    "ledger show": "{topic}",
    "ledger prune": "--older-than 30d",
    "disk": "",
    "forecast": "{topic} -p {policy}",
    "segments scan": "{logs} --out {folder}/inventory.{number}.parquet",
    "segments show": "{inventory}",
    "context list": "",
    "context show": "here",
    "policy check": "{policy}",
    "policy show": "{topic} -p {policy}",
    "policy set": "{topic} retention.ms=1d -p {live}",
    "policy unset": "{topic} retention.ms -p {live}",
    "policy list": "-p {live}",
    "cluster init": "--yes",
    "doctor": "",
    "protect": "-p {kept} --dry-run",
    "verify": "{run} --state-dir {state}",
    "replay": "-p {policy} --state-dir {state}",
}
ALONE = frozenset(
    {
        *("archive list", "archive verify", "archive compact", "show", "segments scan", "segments show"),
        *("verify", "replay"),
    }
)
"""Commands that ask no cluster."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the names of the commands that have ``--output``, those of groups that are commands themselves too."""
    if any("--output" in getattr(one, "opts", ()) for one in command.params):
        yield " ".join(path)
    if hasattr(command, "list_commands"):
        context = command.context_class(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


def test_every_command_is_in_the_format_table() -> None:
    assert set(commands(typer.main.get_command(app))) == set(ARGUMENTS)


@pytest.fixture(scope="module")
def told(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, dict[str, str]]:
    """A topic that was trimmed once, with an archive, a saved plan, a scan and a context."""
    folder = tmp_path_factory.mktemp("formats")
    world = World(kafka.bootstrap, folder / "state")
    renew_state_topic(kafka.bootstrap)
    make_kretain_topics(kafka.bootstrap)
    world.cli("cluster", "init", "--protect", "--yes", check=0)
    topic = world.filled(OLD, {"a": 4}, stem="every")
    rules = f"  - match: {topic}\n    retention.commitoffset.enable: true\n    retention.commitoffset.hours: 1\n"
    names = {
        key: str(written(folder / f"{key}.yaml", f"version: 1\ntopics:\n{rules}    {more}\n"))
        for key, more in (
            ("policy", f"archive: {folder}/archive"),
            ("live", "retention.ms: cluster"),
            ("kept", f"retention.until.consumed: {{groups: [{topic}-a], max: 2d}}"),
        )
    }
    (folder / "config.yaml").write_text(f"contexts: {{here: {{bootstrap-server: '{world.bootstrap}'}}}}\n")
    names |= {"topic": topic, "archive": f"{folder}/archive", "plan": f"{folder}/plan.json", "folder": str(folder)}
    names |= {"logs": str(kafka.node(1).log_dirs[0]), "inventory": f"{folder}/seen.parquet"}
    names |= {"target": world.topic("again"), "state": str(world.state_dir)}
    world.cli("trim", "-p", names["policy"], "--yes", check=0)
    names["run"] = audit(world)[0]["run"]
    world.commit(f"{topic}-a", topic, 7)
    world.cli("plan", "-p", names["policy"], "--out", names["plan"], check=0)
    run_cli("segments", "scan", names["logs"], "--out", names["inventory"])
    return world, names


@pytest.mark.parametrize(
    "output", ["json", *(pytest.param(one, marks=pytest.mark.long) for one in ("table", "yaml", "csv"))]
)
@pytest.mark.parametrize("command", sorted(ARGUMENTS))
def test_command_prints_every_format_without_an_internal_error(
    told: tuple[World, dict[str, str]], command: str, output: str
) -> None:
    world, names = told
    asked = [*command.split(), *ARGUMENTS[command].format(**names, number=output).split(), "-o", output]
    if command == "policy unset":
        world.cli("policy", "set", names["topic"], "retention.ms=2d", "-p", names["live"])
    config = f"{names['folder']}/config.yaml"
    done = run_cli(*asked, KRETAIN_CONFIG=config) if command in ALONE else world.cli(*asked, KRETAIN_CONFIG=config)
    assert "internal error" not in done.err
    assert done.code in (0, 1), done.err
    if output == "csv":
        heading, *rows = csv.reader(io.StringIO(done.out))
        assert {len(row) for row in rows} <= {len(heading)}
    read: Any = {"json": json.loads, "yaml": yaml.safe_load}.get(output, str)
    assert read(done.out)
