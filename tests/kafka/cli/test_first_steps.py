"""The first minutes with a cluster: ``init``, ``cluster init``, recipes, and the tutorial as it is written."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from kretain.texts import RECIPES
from tests.support.clusters import EmbeddedKafka
from tests.support.docs import ROOT
from tests.support.ledger_stores import renew_state_topic
from tests.support.says import says
from tests.support.terminal import Terminal
from tests.support.world import DAY, HOUR, MIB, World, run_cli

_BLOCK: Final = re.compile(r"^```(yaml|sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"# ([\w.-]+)\n")
_VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?Z| UTC)?"), "TIME"),
    (re.compile(r"\b\d{8}T\d{6}Z(-\w+)?\b"), "TIME"),
    (re.compile(r"[\d,.]+ (B|KiB|MiB|GiB)\b"), "SIZE"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s)\b"), "TIME"),
    (re.compile(r"\b[\w-]{22}\b"), "CLUSTER"),
    (re.compile(r"-{3,}"), "LINE"),
    (re.compile(r"[ ]+(?=\n)"), ""),
    (re.compile(r"[ ]+"), " "),
)
"""What differs from run to run: moments, sizes on disk, durations, ids, and so the widths of columns."""


@dataclass
class Reader:
    """A user who follows pages: in a folder, with these variables. The cluster's address is shown as another."""

    folder: Path
    variables: dict[str, str]
    address: str
    shown_as: str = "broker-1:9092"

    def follow(self, page: Path, *, skip: str = "") -> None:
        """Follow a page from top to bottom, without the blocks that contain ``skip``."""
        text = page.read_text(encoding="utf-8")
        new = _BLOCK.sub(lambda block: block[0] if skip and skip in block[0] else self._block(block), text)
        if os.environ.get("DOCS") == "write":
            page.write_text(new, encoding="utf-8")
        else:
            assert new == text

    def _block(self, block: re.Match[str]) -> str:
        kind, text = block.groups()
        if kind == "yaml":
            if name := _FILE.match(text):
                (self.folder / name[1]).write_text(text, encoding="utf-8")
        elif kind == "sh":
            self._run(text)
            self.variables.update(re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE))
        else:
            commands = re.findall(r"^\$ (.*(?:(?<=\\)\n.*)*)", text, re.MULTILINE)
            parts = [f"$ {one}\n{first_paragraph(self._run(one))}" for one in commands]
            new = f"```console\n{''.join(parts)}```"
            return block[0] if masked(new) == masked(block[0]) else new
        return block[0]

    def _run(self, script: str) -> str:
        settings = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items())
        done = subprocess.run(
            ["bash", "-ec", f"{settings}{script}"],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{script}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.replace(self.address, self.shown_as)


def first_paragraph(text: str) -> str:
    """Return the lines up to the first empty one, without spaces at their ends, and an ellipsis for the others."""
    first, _, rest = text.strip("\n").partition("\n\n")
    return "".join(f"{line.rstrip()}\n" for line in first.splitlines()) + ("…\n" if rest.strip() else "")


def masked(text: str) -> str:
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


OLD = [100 * HOUR] * 10


def test_init_writes_files_that_work_and_holds_r1(world: World, tmp_path: Path) -> None:
    topic = world.filled(OLD, {"reader": 7}, retention_ms=str(7 * DAY))
    short = world.filled([HOUR], stem="short", retention_ms=str(DAY))
    world.commit("reader", short, 1)
    forever = world.filled(OLD, {"reader": 7})
    config = tmp_path / "home" / "config.yaml"
    variables = {"KRETAIN_CONFIG": str(config), "COLUMNS": "80"}
    policy = config.with_name("policy.yaml")
    says(
        world.cli("init", "--yes", check=0, **variables).out, f"Wrote {config} (context main) and {policy}.", "F10"
    )  # the first plan holds
    assert yaml.safe_load(config.read_text())["default-context"] == "main"
    [entry] = yaml.safe_load(policy.read_text())["topics"]
    # Brokers keep less of the short one than R1 waits, and the owner of the third keeps all of it.
    assert [name in entry["match"] for name in (topic, short, forever)] == [True, False, False], entry
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
    run_cli(
        *("init", "-b", "127.0.0.1:1", "--timeout", "1s", "--yes"),
        "--state-dir",
        str(tmp_path / "state"),
        check=1,
        KRETAIN_CONFIG=str(config),
    )
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
    policy = str(tmp_path / "policy.yaml")
    world.cli("policy", "new", name, "--out", policy, check=0)
    assert "OK: " in world.cli("policy", "check", policy, check=0).out
    world.cli("plan", "-p", policy, check=0)


def test_cluster_init_asks_and_needs_yes_without_a_terminal(world: World) -> None:
    renew_state_topic(world.bootstrap)
    if "_kretain_policy" in world.admin.list_topics(timeout=30).topics:
        world.delete("_kretain_policy")
    assert "--yes to create topics" in world.cli("cluster", "init", check=6).err
    terminal = Terminal([sys.executable, "-m", "kretain", "cluster", "init", "-b", world.bootstrap])
    shown = terminal.end(("[y/N]", "n\r"), code=6)
    assert "Create _kretain_policy in cluster" in " ".join(shown.split())
    assert "created" in world.cli("cluster", "init", "--yes", check=0).out
    assert "exists" in world.cli("cluster", "init", check=0).out, "there is nothing to ask"


HOWTO = ROOT / "docs" / "howto"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def here(here: World) -> Iterator[World]:
    """A cluster to which a recipe's topics come, and from which they go again."""
    yield here
    for name in here.admin.list_topics(timeout=60).topics:
        if not name.startswith("__"):
            here.delete(name)


def follow(recipe: str, world: World, folder: Path) -> None:
    variables = {
        "PATH": PATH,
        "COLUMNS": "88",
        "KRETAIN_BOOTSTRAP_SERVER": world.bootstrap,
        "KRETAIN_POLICY": "policy.yaml",
        "KRETAIN_STATE_DIR": str(world.state_dir),
    }
    Reader(folder, variables, world.bootstrap).follow(HOWTO / f"{recipe}.md")


def test_recipe_consumed_trims_what_every_group_has_read(here: World, tmp_path: Path) -> None:
    topic = here.filled([10 * DAY] * 700 + [HOUR] * 300, None, 3, name="orders")
    here.commit("billing", topic, {0: 950, 1: 950})
    here.commit("shipping", topic, {0: 900, 1: 420, 2: 900})
    follow("consumed", here, tmp_path)
    assert [here.ends(topic, partition)[0] for partition in range(3)] == [700, 420, 0]


def test_recipe_event_time_trims_by_a_json_field(here: World, tmp_path: Path) -> None:
    topic = here.topic(name="trips")
    end = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
    moments = iter([end - dt.timedelta(hours=hour) for hour in range(479, -1, -1)])
    value = lambda: json.dumps({"trip": {"ended_at": next(moments).isoformat()}}).encode()  # noqa: E731
    here.produce_at(topic, [int(end.timestamp() * 1000)] * 480, value=value)
    here.commit("analytics", topic, 480)
    follow("event-time", here, tmp_path)
    assert here.ends(topic) == (480 - 7 * 24 - 1, 480)


def test_recipe_minimum_timestamp_trims_what_the_application_released(here: World, tmp_path: Path) -> None:
    topic = here.topic(name="journal")
    here.topic(name="_kretain_policy", cleanup_policy="compact")
    minimum = int(dt.datetime(2026, 11, 1, tzinfo=dt.UTC).timestamp() * 1000)
    here.produce_at(topic, [minimum - HOUR] * 800 + [minimum + HOUR] * 200)
    follow("min-timestamp", here, tmp_path)
    assert here.ends(topic) == (800, 1000)


def test_recipe_disk_ceiling_trims_the_oldest_segments(here: World, tmp_path: Path) -> None:
    for topic, records, age in (("clicks", 1200, 9 * DAY), ("views", 600, 2 * DAY)):  # of 12 and 6 MiB
        here.topic(name=topic, segment_bytes=str(MIB))
        here.produce(topic, [age - number * 60_000 for number in range(records)], value=os.urandom(10_400))
        here.commit("reader", topic, records)
    follow("disk-ceiling", here, tmp_path)
    assert [here.ends(topic)[0] > 0 for topic in ("clicks", "views")] == [True, False]


def test_recipe_legal_hold_keeps_the_held_topic_alone(here: World, tmp_path: Path) -> None:
    for topic in ("payments", "payments.eu"):
        here.commit("ledger", here.filled([10 * DAY] * 500, name=topic), 500)
    follow("legal-hold", here, tmp_path)
    assert [here.ends(topic)[0] for topic in ("payments", "payments.eu")] == [500, 0]


@pytest.mark.long  # it loads the demo's data
def test_tutorial_works_on_the_demo_cluster_which_leaves_nothing(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "kretain", "demo", "--cluster"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(scratch)}, text=True)
    try:
        assert process.stdout is not None
        text = "".join(iter(process.stdout.readline, f"{Path(sys.executable).with_name('kretain')} plan\n"))
        assert "1. The data" not in text, "there is no tour"
        exports = dict(re.findall(r"^export (KRETAIN_\w+)=(\S+)$", text, re.MULTILINE))
        reader = Reader(tmp_path, {"PATH": PATH, "COLUMNS": "88", **exports}, exports["KRETAIN_BOOTSTRAP_SERVER"])
        reader.follow(ROOT / "docs" / "tutorial.md", skip="pipx install")
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert list(scratch.iterdir()) == []


def test_every_recipe_is_followed() -> None:
    followed = set(re.findall(r'follow\("([\w-]+)"', Path(__file__).read_text(encoding="utf-8")))
    assert followed == {page.stem for page in HOWTO.glob("*.md")} - {"index"}
