"""Two clusters in one fleet: one plan, a trim for each, and one that can't be reached holds no other."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from retention_cli.core.state_dir import cluster_folder
from tests.support.clusters import EmbeddedKafka
from tests.support.says import pick, says
from tests.support.volumes import scan_all
from tests.support.world import HOUR, MIB, OLD, Cli, World, consumed, now_ms, run_cli, written

SECRET = "hunter2-of-the-fleet"


@pytest.fixture(scope="module")
def second() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(1) as cluster:
        yield cluster


@dataclass
class Pair:
    """A topic of the same name in two clusters, and a fleet file of both and of one that nobody answers for."""

    eu: World
    us: World
    ids: dict[str, str]
    topic: str
    folder: Path

    @property
    def where(self) -> tuple[str, ...]:
        return "--fleet", str(self.folder / "fleet.yaml"), "--state-dir", str(self.eu.state_dir)

    def cli(self, *arguments: str, check: int | None = None) -> Cli:
        return run_cli(*arguments, *self.where, check=check)

    @property
    def both(self) -> tuple[str, str]:
        """Their entries in a fleet file."""
        eu, us = (f"{{name: {n}, bootstrap-server: '{w.bootstrap}'}}" for n, w in (("eu", self.eu), ("us", self.us)))
        return eu, us

    def clusters(self, *entries: str) -> None:
        """Write the fleet file."""
        lines = "".join(f"  - {one}\n" for one in entries)
        written(self.folder / "fleet.yaml", f"version: 1\npolicy: policy.yaml\nclusters:\n{lines}")

    def ends(self) -> dict[str, int]:
        return {"eu": self.eu.ends(self.topic)[0], "us": self.us.ends(self.topic)[0]}


@pytest.fixture
def pair(kafka: EmbeddedKafka, second: EmbeddedKafka, tmp_path: Path) -> Pair:
    """Ten old records in each, of which a group has read 7 (eu) and 4 (us)."""
    eu, us = (World(one.bootstrap, tmp_path / "state") for one in (kafka, second))
    topic = eu.filled(OLD, {"billing": 7}, stem="fleet")
    us.filled(OLD, {"billing": 4}, name=topic)
    written(tmp_path / "policy.yaml", consumed(topic))
    found = Pair(eu, us, {"eu": kafka.cluster_id, "us": second.cluster_id}, topic, tmp_path)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        down = (
            f"{{name: down, bootstrap-server: '127.0.0.1:{closed.getsockname()[1]}', timeout: 1s, settings: "
            f"{{security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.username: a, sasl.password: {SECRET}}}}}"
        )
    found.clusters(found.both[0], down, found.both[1])
    return found


def outcomes(done: Cli) -> dict[str, Any]:
    """Return each cluster's outcomes, or its error."""
    return {
        one["name"]: one.get("error") or [row["outcome"] for row in one["partitions"]]
        for one in done.json()["clusters"]
    }


def test_fleet_plan_covers_all_clusters_and_an_unreachable_one_holds_no_other(pair: Pair) -> None:
    done = pair.cli("plan", "-o", "json", "-v", check=5)
    eu, down, us = done.json()["clusters"]
    assert [(one["name"], one["cluster"]["id"]) for one in (eu, us)] == list(pair.ids.items())
    targets = [pick(row, "topic", "trim_to") for one in (eu, us) for row in one["partitions"]]
    assert targets == [(pair.topic, 7), (pair.topic, 4)]
    assert (down["name"], "could not be reached within" in down["error"]) == ("down", True), down
    assert done.json()["totals"]["clusters_failed"] == 1
    assert f"kretain: down: {down['error']}\n" in done.err
    assert SECRET not in done.out + done.err
    table = pair.cli("plan", "-q", check=5)
    assert " from 2 partitions in 2 clusters. 1 cluster could not be planned." in table.out
    assert table.err == f"kretain: down: {down['error']}\n", "an error is told also where warnings are not wanted"


def test_commands_that_look_cover_a_fleet_and_name_the_cluster_that_failed(pair: Pair) -> None:
    done = pair.cli("groups", "--group", f"{pair.topic}-*", "-o", "json", check=5)
    eu, down, us = done.json()["clusters"]
    assert [(one["name"], one["cluster"]["id"]) for one in (eu, us)] == list(pair.ids.items())
    assert [one["groups"][0]["lag"] for one in (eu, us)] == [3, 6]
    assert (set(down), done.err) == ({"name", "error"}, f"kretain: down: {down['error']}\n")
    rows = pair.cli("offsets", pair.topic, "-o", "csv", check=5).out.splitlines()
    assert [row.split(",")[0] for row in rows] == ["cluster", "eu", "us"], "one line of titles"
    shown = pair.cli("doctor", "-q", check=5).out
    assert [line for line in shown.splitlines() if line in ("eu", "down", "us")] == ["eu", "us"]
    alone = pair.cli("groups", "--cluster", "us", "-o", "json", check=0).json()
    assert (alone["format"], alone["cluster"]["id"]) == ("kretain.groups/v1", pair.ids["us"])
    for command in (("explain", pair.topic), ("disk",), ("forecast",)):
        found = pair.cli(*command, "-o", "json", check=5).json()["clusters"]
        assert [one["name"] for one in found] == ["eu", "down", "us"]


def test_saved_fleet_plan_is_trimmed_by_cluster_and_then_entirely(pair: Pair) -> None:
    path = pair.folder / "plan.parquet"
    trim = ("trim", "--plan", str(path))
    saved = pair.cli("plan", "--out", str(path), check=5).err
    says(
        saved,
        f"saved in {path}; to carry it out, with the same --fleet or --context and the same policies:\n",
        f"\n  kretain trim --plan {path}\n",
    )
    assert SECRET.encode() not in path.read_bytes()
    one = pair.cli(*trim, "--cluster", "us", "--yes", "-o", "json", check=0)
    assert (one.json()["format"], one.json()["totals"]["trimmed"]) == ("kretain.trim/v1", 1)
    assert "was carried out" not in one.err
    rehearsed = pair.cli(*trim, "--dry-run", "-o", "json", check=5)
    says(rehearsed.err, f"kretain: {path} for us was carried out at ", never=[f"{path} for eu was carried out"])
    assert (outcomes(rehearsed)["eu"], pair.ends()) == (["would-trim"], {"eu": 0, "us": 4})
    both = pair.cli(*trim, "--yes", "-o", "json", check=5)
    found = outcomes(both)
    assert (found["eu"], found["us"], found["down"][:17]) == (["trimmed"], ["unchanged"], "not in the plan: ")
    again = pair.cli(*trim, "--cluster", "us", "--dry-run", check=0).err
    assert re.search(rf"kretain: {path} was carried out at .*\(kretain history --run ", again)
    formats = (both.json()["format"], both.json()["clusters"][0]["format"])
    assert (formats, pair.ends()) == (("kretain.fleet-trim/v1", "kretain.trim/v1"), {"eu": 7, "us": 4})


def test_fleet_trim_asks_once_and_keeps_one_audit_log_per_cluster(pair: Pair) -> None:
    refused = pair.cli("trim", check=6)
    assert (refused.out, "no terminal to ask on" in refused.err) == ("", True), refused
    assert pair.ends() == {"eu": 0, "us": 0}
    done = pair.cli("trim", "--yes", "-o", "json", check=5)
    assert [one for name, one in outcomes(done).items() if name != "down"] == [["trimmed"], ["trimmed"]]
    assert pair.ends() == {"eu": 7, "us": 4}
    runs = {one["name"]: one["run"] for one in done.json()["clusters"] if "run" in one}
    for name, cluster in pair.ids.items():
        log = (cluster_folder(pair.eu.state_dir, cluster) / "audit.jsonl").read_text().splitlines()
        assert [pick(json.loads(line), "run", "event") for line in log] == [
            (runs[name], event) for event in ("run", "evidence", "batch", "result", "evidence", "end")
        ]
    pair.clusters(*pair.both)
    assert pair.cli("trim", "--yes", check=0).err == ""


def test_ctrl_c_during_a_fleet_plan_ends_at_once(pair: Pair) -> None:
    """A socket that accepts and says nothing: its thread is left behind."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        pair.clusters(*pair.both, f"{{name: mute, bootstrap-server: '127.0.0.1:{mute.getsockname()[1]}'}}")
        command = [sys.executable, "-m", "kretain", "plan", *pair.where]
        with subprocess.Popen(
            [*command, "--timeout", "250s"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as running:
            mute.settimeout(60)
            connection, _ = mute.accept()  # it is being asked by now
            os.kill(running.pid, signal.SIGINT)
            out, err = running.communicate(timeout=60)
            connection.close()
    assert (running.returncode, out, err) == (130, "", "kretain: interrupted\n")


def test_fleet_trim_uses_each_inventory_and_refuses_an_unreadable_one(
    pair: Pair, kafka: EmbeddedKafka, second: EmbeddedKafka
) -> None:
    """R5: each cluster's policy names its own. Bad input never trims anything, and costs only its cluster."""
    topic = pair.eu.topic("fleet-disks", segment_bytes=str(MIB))
    pair.us.topic(name=topic, segment_bytes=str(MIB))
    entries = []
    for name, entry, world, cluster in zip(("eu", "us"), pair.both, (pair.eu, pair.us), (kafka, second), strict=True):
        for size in (100_000, 200_000):
            world.produce_at(topic, [now_ms() - 5 * HOUR] * 10, value=partial(os.urandom, size), batch=1)
        scan_all(cluster, pair.folder / f"inventory-{name}")
        rule = f"{{match: {topic}, retention.bytes: 2MiB, unconsumed: trim}}"
        written(pair.folder / f"{name}.yaml", f"version: 1\ndisks: {{inventory: inventory-{name}}}\ntopics: [{rule}]\n")
        entries.append(f"{entry[:-1]}, policy: {name}.yaml}}")
    pair.clusters(*entries)
    rows = [row for one in pair.cli("plan", "-o", "json", check=0).json()["clusters"] for row in one["partitions"]]
    assert [row["action"] for row in rows] == ["trim", "trim"]
    assert all("by the inventory" in str(row["reasons"]) for row in rows), rows
    written(pair.folder / "inventory-us" / "2.parquet", "broken")
    assert "2.parquet" in str(pair.cli("plan", "-o", "json", check=0).json()["clusters"][1]["notes"])
    says(pair.cli("trim", "--yes", check=5).err, "us: ", "2.parquet")
    assert [world.ends(topic)[0] for world in (pair.eu, pair.us)] == [rows[0]["trim_to"], 0]


def test_cluster_lost_after_the_plan_is_reported_and_the_other_trimmed(pair: Pair, second: EmbeddedKafka) -> None:
    """The last of this module: nobody starts the second cluster again."""
    pair.clusters(*pair.both)
    path = pair.folder / "plan.parquet"
    pair.cli("plan", "--out", str(path), check=0)
    second.node(1).kill()
    pair.clusters(*(one.replace("name: us,", "name: us, timeout: 2s,") for one in pair.both))
    done = pair.cli("trim", "--plan", str(path), "--yes", "-o", "json", check=5)
    found = outcomes(done)
    assert (found["eu"], "could not be reached" in found["us"]) == (["trimmed"], True), found
    assert f"kretain: us: {found['us']}" in done.err
    assert pair.cli("plan", check=5).out.count("could not be reached") == 1
