"""The first minutes with a cluster: ``init``, ``cluster init``, and each recipe of ``policy new``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kretain.embedded import EmbeddedKafka
from kretain.flows.recipes import RECIPES
from tests.support.ledger_stores import renew_state_topic
from tests.support.terminal import Terminal
from tests.support.world import DAY, HOUR, World, run_cli

OLD = [100 * HOUR] * 10


def test_init_writes_files_that_work_and_holds_r1(world: World, tmp_path: Path) -> None:
    topic = world.filled(OLD, {"reader": 7}, retention_ms=str(7 * DAY))
    short = world.topic("short", retention_ms=str(DAY))
    world.produce(short, [HOUR])
    world.commit("reader", short, 1)
    forever = world.filled(OLD, {"reader": 7})
    config = tmp_path / "home" / "config.yaml"
    variables = {"KRETAIN_CONFIG": str(config), "COLUMNS": "80"}
    done = world.cli("init", "--yes", check=0, **variables)
    policy = config.with_name("policy.yaml")
    assert f"Wrote {config} (context main) and {policy}." in done.out
    assert "F10" in done.out, "the first plan"
    assert yaml.safe_load(config.read_text())["default-context"] == "main"
    [entry] = yaml.safe_load(policy.read_text())["topics"]
    assert topic in entry["match"]
    assert short not in entry["match"], "its brokers keep less than R1 waits"
    assert forever not in entry["match"], "its owner keeps all of it"
    rows = run_cli("plan", "-o", "json", check=0, **variables).json()["partitions"]
    [row] = [one for one in rows if one["topic"] == topic]
    assert (row["action"], [reason["code"] for reason in row["reasons"]]) == ("hold", ["F10"])
    assert "OK: 1 entry matches" in run_cli("policy", "check", check=0, **variables).out
    before = policy.read_bytes(), config.read_bytes()
    assert "exists, and is not overwritten" in world.cli("init", "--yes", check=1, **variables).err
    assert (policy.read_bytes(), config.read_bytes()) == before


def test_init_asks_for_a_broker_and_before_it_writes(world: World, tmp_path: Path) -> None:
    world.filled(OLD, {"reader": 7})
    config = tmp_path / "home" / "config.yaml"
    environ = {**os.environ, "KRETAIN_CONFIG": str(config)}
    command = [sys.executable, "-m", "kretain", "init", "--state-dir", str(world.state_dir)]
    for answer, code in (("n", 6), ("y", 0)):
        with Terminal(command, environ=environ) as terminal:
            terminal.read_until("HOST:PORT [localhost:9092]:")
            terminal.type(f"{world.bootstrap}\r")
            assert "Cluster " in terminal.read_until("[y/N]")
            assert not config.exists()
            terminal.type(f"{answer}\r")
            assert terminal.wait() == code
            assert config.exists() == (answer == "y")


def test_init_without_a_cluster_writes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "home" / "config.yaml"
    arguments = ("init", "-b", "127.0.0.1:1", "--timeout", "1s", "--yes")
    run_cli(*arguments, "--state-dir", str(tmp_path / "state"), check=1, KRETAIN_CONFIG=str(config))
    assert not config.parent.exists()


@pytest.fixture(scope="module")
def recipes_topics(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The topics that the recipes name. Other modules share the cluster, so they go again."""
    world = World(kafka.bootstrap, tmp_path_factory.mktemp("state"))
    names = [world.topic(name=topic) for topic in ("orders", "payments", "journal", "clicks")]
    yield
    for name in names:
        world.delete(name)


@pytest.mark.usefixtures("recipes_topics")
@pytest.mark.parametrize("name", RECIPES)
def test_recipe_passes_the_check_against_a_cluster(kafka: EmbeddedKafka, tmp_path: Path, name: str) -> None:
    world = World(kafka.bootstrap, tmp_path / "state")
    world.cli("cluster", "init", "--yes", check=0)  # as min-timestamp says
    policy = tmp_path / "policy.yaml"
    world.cli("policy", "new", name, "--out", str(policy), check=0)
    done = world.cli("policy", "check", str(policy), check=0)
    assert "OK: " in done.out
    world.cli("plan", "-p", str(policy), check=0)


def test_cluster_init_asks_and_needs_yes_without_a_terminal(world: World) -> None:
    renew_state_topic(world.bootstrap)
    topics = world.admin.list_topics(timeout=30).topics
    if "_kretain_policy" in topics:
        world.delete("_kretain_policy")
    assert "--yes to create topics" in world.cli("cluster", "init", check=6).err
    command = [sys.executable, "-m", "kretain", "cluster", "init", "-b", world.bootstrap]
    with Terminal(command) as terminal:
        assert "Create _kretain_policy in cluster" in " ".join(terminal.read_until("[y/N]").split())
        terminal.type("n\r")
        assert terminal.wait() == 6
    assert "made" in world.cli("cluster", "init", "--yes", check=0).out
    assert "existed" in world.cli("cluster", "init", check=0).out, "there is nothing to ask"
