"""The tutorial and the recipes (docs/howto), followed from their own code blocks on real brokers."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kretain.embedded import EmbeddedKafka
from tests.support.docs import ROOT
from tests.support.walkthroughs import Reader
from tests.support.world import DAY, HOUR, World

HOWTO = ROOT / "docs" / "howto"
MIB = 1 << 20
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def here(single: EmbeddedKafka, tmp_path: Path) -> World:
    return World(single.bootstrap, tmp_path / "state")


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
    topic = here.topic(name="orders", partitions=3)
    for partition in range(3):
        here.produce(topic, [10 * DAY] * 700 + [HOUR] * 300, partition)
    here.commit("billing", topic, {0: 950, 1: 950})
    here.commit("shipping", topic, {0: 900, 1: 420, 2: 900})
    follow("consumed", here, tmp_path)
    assert [here.ends(topic, partition)[0] for partition in range(3)] == [700, 420, 0]
    here.delete(topic)


def test_recipe_event_time_trims_by_a_json_field(here: World, tmp_path: Path) -> None:
    topic = here.topic(name="trips")
    end = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
    moments = iter([end - dt.timedelta(hours=hour) for hour in range(479, -1, -1)])
    value = lambda: json.dumps({"trip": {"ended_at": next(moments).isoformat()}}).encode()  # noqa: E731
    here.produce_at(topic, [int(end.timestamp() * 1000)] * 480, value=value)
    here.commit("analytics", topic, 480)
    follow("event-time", here, tmp_path)
    assert here.ends(topic) == (480 - 7 * 24 - 1, 480)
    here.delete(topic)


def test_recipe_minimum_timestamp_trims_what_the_application_released(here: World, tmp_path: Path) -> None:
    topic = here.topic(name="journal")
    live = here.topic(name="_kretain_policy", cleanup_policy="compact")
    minimum = int(dt.datetime(2026, 11, 1, tzinfo=dt.UTC).timestamp() * 1000)
    here.produce_at(topic, [minimum - HOUR] * 800 + [minimum + HOUR] * 200)
    follow("min-timestamp", here, tmp_path)
    assert here.ends(topic) == (800, 1000)
    here.delete(topic)
    here.delete(live)


def test_recipe_disk_ceiling_trims_the_oldest_segments(here: World, tmp_path: Path) -> None:
    for topic, mebibytes, age in (("clicks", 12, 9 * DAY), ("views", 6, 2 * DAY)):
        here.topic(name=topic, segment_bytes=str(MIB))
        records = mebibytes * 100
        here.produce(topic, [age - number * 60_000 for number in range(records)], value=os.urandom(10_400))
        here.commit("reader", topic, records)
    follow("disk-ceiling", here, tmp_path)
    assert here.ends("clicks")[0] > 0
    assert here.ends("views")[0] == 0
    here.delete("clicks")
    here.delete("views")


def test_recipe_legal_hold_keeps_the_held_topic_alone(here: World, tmp_path: Path) -> None:
    for topic in ("payments", "payments.eu"):
        here.topic(name=topic)
        here.produce(topic, [10 * DAY] * 500)
        here.commit("ledger", topic, 500)
    follow("legal-hold", here, tmp_path)
    assert [here.ends(topic)[0] for topic in ("payments", "payments.eu")] == [500, 0]
    here.delete("payments")
    here.delete("payments.eu")


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
