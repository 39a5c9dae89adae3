"""Every command with every format that it offers, on one cluster with something to tell: none is an internal error."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from kretain.app import app
from kretain.embedded import EmbeddedKafka
from tests.support.ledger_stores import make_kretain_topics, renew_state_topic
from tests.support.world import HOUR, World, run_cli

OLD = [30 * HOUR] * 10
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
        key: str(folder / value)
        for key, value in (("policy", "policy.yaml"), ("live", "live.yaml"), ("kept", "kept.yaml"))
    }
    Path(names["policy"]).write_text(f"version: 1\ntopics:\n{rules}    archive: {folder}/archive\n")
    Path(names["live"]).write_text(f"version: 1\ntopics:\n{rules}    retention.ms: cluster\n")
    kept = f"retention.until.consumed: {{groups: [{topic}-a], max: 2d}}"
    Path(names["kept"]).write_text(f"version: 1\ntopics:\n{rules}    {kept}\n")
    (folder / "config.yaml").write_text(f"contexts: {{here: {{bootstrap-server: '{world.bootstrap}'}}}}\n")
    names |= {"topic": topic, "archive": f"{folder}/archive", "plan": f"{folder}/plan.json", "folder": str(folder)}
    names["target"] = world.topic("again")
    names |= {"logs": str(kafka.node(1).log_dirs[0]), "inventory": f"{folder}/seen.parquet"}
    world.cli("trim", "-p", names["policy"], "--yes", check=0)
    (log,) = world.state_dir.glob("*/audit.jsonl")
    names |= {"run": json.loads(log.read_text().splitlines()[0])["run"], "state": str(world.state_dir)}
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
    assert done.out
    match output:
        case "json":
            assert json.loads(done.out)
        case "yaml":
            assert yaml.safe_load(done.out)
        case "csv":
            heading, *rows = csv.reader(io.StringIO(done.out))
            assert {len(row) for row in rows} <= {len(heading)}
