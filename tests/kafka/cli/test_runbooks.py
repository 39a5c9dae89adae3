"""Runbooks, recipes and the tutorial on real brokers, as they are written; ``init`` and ``cluster init``."""

from __future__ import annotations

import csv
import datetime as dt
import getpass
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from kretain.texts import RECIPES
from tests.conftest import QUICK
from tests.support import archives
from tests.support.clusters import EmbeddedKafka, tools_on_path
from tests.support.docs import ROOT
from tests.support.ledger_stores import renew_state_topic
from tests.support.says import json_of, pick, says
from tests.support.terminal import Terminal
from tests.support.world import DAY, HOUR, MIB, OLD, Cli, World, consumed, everywhere, run_cli, wait_until, written

FOLDER: Final = ROOT / "docs" / "runbooks"


@dataclass(frozen=True)
class Runbooks:
    """A shell on a machine with kretain, Kafka's tools and the runbooks.

    ``tools`` is the folder of the commands, ``saves`` where runbooks leave what they save.
    """

    world: World
    policy: Path
    tools: Path
    saves: Path

    def run(self, runbook: str, *arguments: str, check: int | None = 0, **environ: str) -> Cli:
        """Run a runbook by its name; what it prints on stdout and stderr is in ``out``, in its order."""
        done = subprocess.run(
            [str(FOLDER / f"{runbook}.sh"), *arguments],
            env={**self._environ(), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        assert check is None or done.returncode == check, f"exit {done.returncode}, not {check}:\n{done.stdout}"
        return Cli(done.returncode, done.stdout, "")

    def in_terminal(self, runbook: str, *arguments: str) -> Terminal:
        """Run a runbook in a terminal, where it asks. A context manager."""
        return Terminal([str(FOLDER / f"{runbook}.sh"), *arguments], 120, self._environ())

    def _environ(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("KRETAIN_")} | {
            "PATH": f"{self.tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KRETAIN_BOOTSTRAP_SERVER": self.world.bootstrap,
            "KRETAIN_POLICY": str(self.policy),
            "KRETAIN_STATE_DIR": str(self.world.state_dir),
            "RUNBOOK_DIR": str(self.saves),
        }

    def commits(self, group: str, topic: str, offset: int) -> str:
        """Return a line of shell by which a group commits an offset on partition 0."""
        words = ("--reset-offsets", "--group", group, "--topic", f"{topic}:0", "--to-offset", str(offset), "--execute")
        tool = self.tools / "kafka-consumer-groups.sh"
        real = tool.with_suffix(".sh.real")
        ours = shlex.join([str(tool), "--bootstrap-server", self.world.bootstrap, *words])
        return f"if [ -e {real} ]; then {ours.replace(str(tool), str(real), 1)}; else {ours}; fi"

    def wrap(self, tool: str, before: str = ":", after: str = ":") -> None:
        """Have lines of shell run before and after each call of a tool; the call is in ``$*``."""
        path = self.tools / tool
        real = shlex.quote(str(path.rename(self.tools / f"{tool}.real")))
        script = f'#!/usr/bin/env bash\n{before}\n{real} "$@"\ncode=$?\n{after}\nexit $code\n'
        written(path, script).chmod(0o755)


def runbooks_for(world: World, policy: str, folder: Path) -> Runbooks:
    tools, saves = folder / "bin", folder / "saves"
    tools.mkdir()
    saves.mkdir()
    tools_on_path(tools)
    return Runbooks(world, written(folder / "policy.yaml", f"{policy}\n"), tools, saves)


Shell = Callable[[str], Runbooks]


@pytest.fixture
def shell(here: World, tmp_path: Path) -> Shell:
    return lambda policy: runbooks_for(here, policy, tmp_path)


def read_topic(world: World, stem: str, partitions: int = 1, **upto: int) -> str:
    """A topic of ten old records a partition, read by these groups up to these offsets; their names begin with it."""
    return world.filled(OLD, upto, partitions, stem=stem)


def own_settings(world: World, topic: str) -> dict[str, str]:
    return {name: str(one.value) for name, one in world.settings(topic).items() if one.source == 1}


# -- disk filling ---------------------------------------------------------------------------


@pytest.fixture
def filling(here: World) -> Iterator[str]:
    """A topic that takes 8 MiB, in segments of 1 MiB."""
    topic = here.topic("filling", segment_bytes=str(MIB))
    here.produce(topic, [30 * HOUR] * 800, value=os.urandom(10_000))
    yield topic
    here.delete(topic)


def disk_policy(topic: str, after: str, more: str = "") -> str:
    """R1 on a broker whose disk has 10 MiB."""
    return consumed(topic, after) + f"\ndisks: {{capacity: 10MiB}}\n{more}"


def test_disk_runbook_frees_only_what_the_policy_allows(here: World, filling: str, shell: Shell) -> None:
    other = read_topic(here, "other", reader=9)
    here.commit("slow", filling, 700)
    here.commit("fast", filling, 800)
    books = shell(disk_policy(filling, "1h"))
    said = books.run("disk-filling", "--below", "50", "--wait", "60", "--yes").out
    assert (here.ends(filling), here.ends(other)) == ((700, 800), (0, 10))
    assert re.search(r"is at 7\d % \(limit: 50 %\)", said)
    assert said.rstrip().endswith("Done: no disk is above it.")
    assert "3. What every consumer has read" not in said
    books.run("disk-filling", "--below", "50", "--yes")
    assert len(list(books.saves.glob("disk-filling-*-policy.json"))) == 1, "the second run had nothing to plan"


@pytest.mark.long
def test_disk_runbook_frees_named_topics_when_the_policy_frees_too_little(
    here: World, filling: str, shell: Shell
) -> None:
    """What every consumer has read is a plan at first; what one has yet to read stays, and it is named."""
    here.commit("slow", filling, 250)
    books = shell(disk_policy(filling, "4d"))
    assert "give --keep 1h" in books.run("disk-filling", "--below", "50", "--wait", "20", "--yes", check=5).out
    assert here.ends(filling) == (0, 800)
    said = books.run("disk-filling", "--below", "50", "--wait", "5", "--keep", "1h", "--yes", check=5).out
    assert "slow" in said.partition("4. What is in the way")[2]
    assert here.ends(filling) == (250, 800)
    here.commit("slow", filling, 800)
    books.run("disk-filling", "--below", "50", "--wait", "60", "--keep", "40h", "--yes", check=5)
    assert here.ends(filling) == (250, 800), "all of it is younger"
    books.run("disk-filling", "--below", "50", "--wait", "60", "--keep", "1h", "--yes")
    assert here.ends(filling) == (800, 800)


@pytest.mark.long
def test_disk_runbook_stops_at_a_limit_and_without_yes(here: World, filling: str, shell: Shell) -> None:
    here.commit("slow", filling, 700)
    books = shell(disk_policy(filling, "1h", "limits: {max.records: 100}\n"))
    assert "limits.max.records" in books.run("disk-filling", "--below", "50", "--yes", check=6).out
    books.policy.write_text(disk_policy(filling, "1h"))
    assert "--yes" in books.run("disk-filling", "--below", "50", check=6).out
    books.run("disk-filling", "--below", "full", check=2)
    books.run("disk-filling", "--below", check=2)
    assert here.ends(filling) == (0, 800)


@pytest.mark.long
def test_disk_runbook_stops_when_a_broker_is_silent(tmp_path: Path) -> None:
    """How full its disk is, nobody knows: who goes on all the same says so, and is told that it stays unknown."""
    with EmbeddedKafka(3, settings=QUICK) as kafka:
        world = World(kafka.bootstrap, tmp_path / "state")
        topic = world.topic("filling", segment_bytes=str(MIB), partitions=3, replicas=3)
        for partition in range(3):
            world.produce(topic, [30 * HOUR] * 100, partition, value=os.urandom(10_000))
        world.commit("reader", topic, dict.fromkeys(range(3), 90))
        books = runbooks_for(world, disk_policy(topic, "1h"), tmp_path)
        kafka.node(3).kill()
        led = lambda found: all(one.leader_id in (1, 2) for one in found.partitions)  # noqa: E731
        wait_until(lambda: everywhere(world.bootstrap, topic, led), "leaders elsewhere")
        wait_until(lambda: everywhere(world.bootstrap, "__consumer_offsets", led), "coordinators elsewhere")
        assert "broker 3" in books.run("disk-filling", "--below", "10", "--yes", check=5).out
        assert ([world.ends(topic, one)[0] for one in range(3)], [*books.saves.iterdir()]) == ([0, 0, 0], [])
        says(
            books.run("disk-filling", "--below", "99", "--even-so", "--yes", check=5).out,
            "The disks of broker 3 are unknown",
        )
        books.run("disk-filling", "--below", "1", "--wait", "5", "--even-so", "--yes", check=5)
        assert [world.ends(topic, one)[0] for one in range(3)] == [90, 90, 90]


# -- a dead consumer --------------------------------------------------------------------------


def test_group_runbook_removes_a_dead_group_and_can_restore_its_offsets(here: World, shell: Shell) -> None:
    topic = read_topic(here, "dead", 2, live=9, dead=3)
    other = read_topic(here, "elsewhere")
    here.commit(f"{topic}-dead", other, 4)
    group = f"{topic}-dead"
    books = shell(consumed(topic))
    assert "Nothing was changed" in books.run("dead-consumer", group, "--idle", "0").out
    (saved,) = books.saves.glob("*.csv")
    assert sorted(csv.reader(saved.open())) == sorted([[other, "0", "4"], [topic, "0", "3"], [topic, "1", "3"]])
    assert group in here.groups()
    assert here.cli("plan", "-p", str(books.policy), "-o", "json").json()["totals"]["records"] == 6
    books.run("dead-consumer", group, "--idle", "0", "--release", check=6)
    assert group in here.groups(), "no one confirmed"
    assert f"{group} --back" in books.run("dead-consumer", group, "--idle", "0", "--release", "--yes").out
    assert group not in here.groups()
    assert [*(here.ends(topic, one) for one in (0, 1)), here.ends(other)] == [(9, 10), (9, 10), (0, 10)]
    books.run("dead-consumer", group, "--back", str(saved), check=6)
    assert group not in here.groups()
    books.run("dead-consumer", group, "--back", str(saved), "--yes")
    rows = json_of(here, "offsets", "*", "--groups", "--group", group)["partitions"]
    assert sorted(pick(row, "topic", "partition", "committed") for row in rows) == sorted(
        [(topic, 0, 9), (topic, 1, 9), (other, 0, 4)]
    ), "where the log begins by now"
    assert "no group" in books.run("dead-consumer", "nobody-of-that-name", check=1).out


def test_group_runbook_leaves_a_live_group_alone(here: World, shell: Shell) -> None:
    topic = read_topic(here, "alive", live=9, slow=3)
    books = shell(consumed(topic))
    arguments = ("dead-consumer", f"{topic}-slow", "--release", "--yes")
    assert "unknown" in books.run(*arguments, check=6).out, "kretain has not looked before"
    here.cli("plan", "-p", str(books.policy), check=0)
    assert "for 0 h" in books.run(*arguments, check=6).out
    with closing(here.member(f"{topic}-slow", [topic])):
        assert "it has members" in books.run(*arguments, "--idle", "0", check=6).out
    assert f"{topic}-slow" in here.groups()
    assert (here.ends(topic), [*books.saves.glob("*.json")]) == ((0, 10), [])


def test_group_runbook_protects_a_group_that_returns(here: World, shell: Shell) -> None:
    """Right after it was deleted, and once more between the plan and its trim."""
    topic = read_topic(here, "back", live=9, slow=3)
    group = f"{topic}-slow"
    books = shell(consumed(topic))
    comes = books.commits(group, topic, 3)
    books.wrap("kafka-consumer-groups.sh", after=f'case "$*" in *--delete*) {comes} ;; esac')
    assert "it came back" in books.run("dead-consumer", group, "--idle", "0", "--release", "--yes", check=6).out
    assert here.ends(topic) == (0, 10)
    books.wrap("kretain", before=f'case "$*" in "trim --plan"*) {comes} ;; esac')
    (books.tools / "kafka-consumer-groups.sh.real").replace(books.tools / "kafka-consumer-groups.sh")
    assert "1 held" in books.run("dead-consumer", group, "--idle", "0", "--release", "--yes").out
    assert here.ends(topic) == (0, 10)
    (plan,) = books.saves.glob("dead-consumer-*.json")
    here.cli("trim", "--plan", str(plan), "-p", str(books.policy), "--yes", check=0)
    assert here.ends(topic) == (0, 10)


@pytest.mark.long
def test_runbook_in_a_terminal_asks_before_each_change(here: World, shell: Shell) -> None:
    """Of two questions the second may be answered otherwise: the group is gone then, and nothing is trimmed."""
    topic = read_topic(here, "asked", live=9, slow=3)
    group = f"{topic}-slow"
    books = shell(consumed(topic))
    arguments = ("dead-consumer", group, "--idle", "0", "--release")
    books.in_terminal(*arguments).end(("Delete the group", "yes please\n"), code=6)
    assert group in here.groups()
    with books.in_terminal(*arguments) as terminal:
        terminal.read_until("Delete the group")
        terminal.type("y\n")
        terminal.read_until("This can't be undone. [y/N]")
        assert group not in here.groups()
        terminal.type("n\n")
        assert terminal.wait() == 6
        assert "The group is gone, and not all of that was trimmed" in terminal.text
    assert here.ends(topic) == (0, 10)


@pytest.mark.long
def test_group_runbook_forgets_a_remembered_group(here: World, shell: Shell) -> None:
    """F6: its positions are those of the ledger."""
    topic = read_topic(here, "gone", live=9, slow=3)
    books = shell(consumed(topic))
    here.cli("plan", "-p", str(books.policy), check=0)
    here.delete_group(f"{topic}-slow")
    assert "counts as kretain remembers it" in books.run("dead-consumer", f"{topic}-slow").out
    (saved,) = books.saves.glob("*.csv")
    assert saved.read_text() == f"{topic},0,3\n"
    books.run("dead-consumer", f"{topic}-slow", "--release", "--yes")
    assert here.ends(topic) == (9, 10)


# -- from the brokers' retention to kretain ------------------------------------------------------


def test_handover_runbook_moves_a_topic_to_kretain_and_back(here: World, shell: Shell) -> None:
    topic = read_topic(here, "moving", 2, live=9)
    here.configure(topic, {"retention.ms": str(100 * HOUR)})
    books = shell(consumed(topic, "1h"))
    here.cli("plan", "-p", str(books.policy), check=0)

    def step(name: str, *more: str, check: int = 0) -> str:
        return books.run("broker-retention", name, topic, *more, check=check).out

    assert "it should be 7 days" in step("check", check=6).lower()
    assert "All is ready" in step("check", "--seen", "0")
    assert [here.ends(topic, one)[0] for one in (0, 1)] == [0, 0]
    assert "no trim has worked" in step("hand-over", str(1000 * HOUR), "--seen", "0", "--yes", check=6)
    step("first", "--seen", "0", check=6)  # no one confirmed
    step("first", "--seen", "0", "--yes")
    assert sorted(here.ends(topic, one)[0] for one in (0, 1)) == [0, 9]
    assert "would delete records" in step("hand-over", "1000", "--seen", "0", "--yes", check=6)
    assert own_settings(here, topic)["retention.ms"] == str(100 * HOUR)
    said = step("hand-over", str(1000 * HOUR), "--seen", "0", "--yes")
    (saved,) = books.saves.glob("*-retention-*.txt")
    assert (str(saved) in said, saved.read_text()) == (True, f"{topic}\nretention.ms={100 * HOUR}\n")
    step("back", str(saved), check=6)
    assert own_settings(here, topic)["retention.ms"] == str(1000 * HOUR), "no one confirmed the way back"
    step("back", str(saved), "--yes")
    assert own_settings(here, topic)["retention.ms"] == str(100 * HOUR)
    assert [here.ends(topic, one)[1] for one in (0, 1)] == [10, 10]


@pytest.mark.long
def test_handover_runbook_shows_what_brokers_would_delete_on_the_way_back(here: World, shell: Shell) -> None:
    """Unread or not, and whatever the policy holds: they know nothing of either."""
    topic = read_topic(here, "shorter", live=2)
    books = shell(consumed(topic, "1h", hold="migration"))
    (books.saves / "old.txt").write_text(f"{topic}\nretention.ms={20 * HOUR}\n")
    back = ("broker-retention", "back", topic)
    assert "Trim 10 records" in books.run(*back, str(books.saves / "old.txt"), check=6).out
    assert here.ends(topic) == (0, 10)
    other = read_topic(here, "other", live=2)
    saved = written(books.saves / "other.txt", f"{other}\nretention.ms={20 * HOUR}\n")
    assert "is not of topic" in books.run(*back, str(saved), "--yes", check=1).out
    assert own_settings(here, topic)["retention.ms"] == own_settings(here, other)["retention.ms"] == "-1"


def test_handover_runbook_stops_on_a_wrong_policy_or_unknown_facts(here: World, shell: Shell) -> None:
    topic = read_topic(here, "unready", live=9)
    here.configure(topic, {"retention.ms": str(100 * HOUR)})
    books = shell(consumed(topic, "200h"))
    assert "longer than" in books.run("broker-retention", "check", topic, "--seen", "0", check=1).out
    books.policy.write_text(consumed(topic))
    here.cli("plan", "-p", str(books.policy), check=0)
    here.produce(topic, OLD)
    here.commit(f"{topic}-other", topic, 99)  # beyond the end: another log's (F5)
    assert "F5" in books.run("broker-retention", "first", topic, "--seen", "0", "--yes", check=4).out
    assert here.ends(topic) == (0, 20)


# -- legal hold ----------------------------------------------------------------------------------


def test_hold_runbook_stops_saved_plans_and_retention_and_can_be_lifted(here: World, shell: Shell) -> None:
    topic = read_topic(here, "held", live=9)
    sibling = read_topic(here, f"{topic}-sibling", live=9)
    here.configure(topic, {"retention.ms": str(100 * HOUR)})
    books = shell(consumed(f"{topic}*"))
    before = books.policy.read_text()
    plan = books.saves / "plan.json"
    here.cli("plan", "-p", str(books.policy), "--out", str(plan), check=0)
    books.run("legal-hold", "set", topic, "case 4711", check=6)
    assert books.policy.read_text() == before, "no one confirmed"
    says(books.run("legal-hold", "set", topic, 'case 4711: "Müller" & co', "--yes").out, "Every partition is on hold")
    assert {"retention.ms": "-1", "retention.bytes": "-1"}.items() <= own_settings(here, topic).items()
    report = here.cli("trim", "--plan", str(plan), "-p", str(books.policy), "--yes", "-o", "json", check=0).json()
    outcomes = {row["topic"]: (row["outcome"], [one["code"] for one in row["reasons"]]) for row in report["partitions"]}
    assert outcomes == {topic: ("held", ["G7"]), sibling: ("trimmed", [])}
    assert (here.ends(topic), here.ends(sibling)) == ((0, 10), (9, 10))
    books.run("legal-hold", "check", topic)
    books.run("legal-hold", "set", topic, "again", "--yes", check=6)
    (saved,) = books.saves.glob("*-hold-*.txt")
    assert saved.read_text() == f"{topic}\nretention.ms={100 * HOUR}\nretention.bytes\n"
    books.run("legal-hold", "lift", topic, str(saved), check=6)
    assert here.decide(books.policy.read_text(), topic).action == "hold"
    books.run("legal-hold", "lift", topic, str(saved), "--yes")
    assert books.policy.read_text() == before
    settings = own_settings(here, topic)
    assert (settings["retention.ms"], settings.get("retention.bytes")) == (str(100 * HOUR), None)
    here.cli("trim", "-p", str(books.policy), "--yes", check=0)
    assert here.ends(topic) == (9, 10)


@pytest.mark.long
def test_hold_runbook_reports_an_ineffective_hold(here: World, shell: Shell) -> None:
    """A policy that the runbook can't change, brokers that go on deleting, and a compacted topic."""
    topic = read_topic(here, "loose", live=9)
    books = shell("")
    for policy, said, code in (
        (consumed(topic) + "\nlimits: {max.percent: 100}\n", "by hand", 6),
        (f"version: 1\ntopics:\n  - {{match: {topic}, retention.ms: 1h}}\n", "The policy is unchanged", 1),
    ):
        books.policy.write_text(policy)
        assert said in books.run("legal-hold", "set", topic, "case", "--yes", check=code).out
        assert books.policy.read_text() == policy
    assert "retention.bytes" not in own_settings(here, topic)
    assert not list(books.policy.parent.glob("policy.yaml.new"))
    assert "Partitions 0 are not on legal hold (G7)" in books.run("legal-hold", "check", topic, check=5).out
    books.policy.write_text(consumed(topic, hold="by hand"))
    here.configure(topic, {"retention.ms": str(100 * HOUR)})
    assert f"retention.ms={100 * HOUR}" in books.run("legal-hold", "check", topic, check=5).out
    here.configure(topic, {"retention.ms": "-1", "cleanup.policy": "compact"})
    assert "cleanup.policy" in books.run("legal-hold", "check", topic, check=5).out
    assert here.ends(topic) == (0, 10)


# -- who deleted it --------------------------------------------------------------------------------


def test_evidence_runbook_tells_who_deleted_what_by_which_rule_and_undo_brings_it_back(
    here: World, shell: Shell, tmp_path: Path
) -> None:
    """A policy that deletes by age, whoever has read it; who looks has no cluster."""
    topic = here.topic("missed")
    archives.produce(here, topic, archives.odd_flights(400))
    here.commit(f"{topic}-slow", topic, 120)
    books = shell(
        f'version: 1\ntopics:\n  - match: "{topic}"\n    retention.ms: 1h\n    archive: {tmp_path / "archive"}'
    )
    before = archives.whole(here, topic)
    here.cli("trim", "-p", str(books.policy), "--yes", check=0)
    assert here.ends(topic)[0] == 400
    away = {"KRETAIN_BOOTSTRAP_SERVER": "localhost:1"}
    place = ("who-deleted", topic, "--partition", "0", "--offset")
    said = books.run(*place, "250", check=0, **away).out
    (row,) = (line for line in said.splitlines() if "forced-age" in line)
    assert re.search(rf"group:{topic}-slow\W+120\W+280\b", row)
    says(said, "proven", hashlib.sha256(books.policy.read_bytes()).hexdigest(), f'"user": "{getpass.getuser()}"')
    assert "forced-age" not in books.run(*place, "400", check=0, **away).out
    target = here.topic("brought-back")
    books.run("undo", topic, "--to", target, "--yes")
    assert archives.whole(here, target) == before
    (facts,) = here.state_dir.glob("*/evidence/*/001-facts.parquet")
    facts.write_bytes(facts.read_bytes()[:-9])
    assert "3. By which rule" not in books.run("who-deleted", topic, check=1, **away).out
    assert "No run of kretain" in books.run("who-deleted", target, check=1, **away).out


# -- undo ------------------------------------------------------------------------------------------


def archived(world: World, shell: Shell, folder: Path) -> tuple[str, Runbooks, list[archives.Whole]]:
    """A topic of which 300 records were archived, and trimmed; and what they were."""
    topic = world.topic("undone")
    archives.produce(world, topic, archives.odd_flights(400))
    world.commit(f"{topic}-live", topic, 300)
    books = shell(archives.policy(topic, folder))
    before = archives.whole(world, topic)
    world.cli("trim", "-p", str(books.policy), "--yes", check=0)
    assert world.ends(topic)[0] == 300
    return topic, books, before[:300]


def test_restore_runbook_brings_back_the_archive_and_nothing_else_changes(
    here: World, shell: Shell, tmp_path: Path
) -> None:
    topic, books, gone = archived(here, shell, tmp_path / "archive")
    says(books.run("undo", topic).out, "It is complete", "300")
    target = here.topic("restored")
    books.run("undo", topic, "--to", target, check=6)  # no one confirmed
    assert here.ends(target) == (0, 0)
    books.run("undo", topic, "--to", target, "--yes")
    assert (archives.whole(here, target), here.ends(topic)) == (gone, (300, 400))
    assert "is not empty" in books.run("undo", topic, "--to", target, "--yes", check=6).out


def test_restore_runbook_stops_at_a_missing_file(here: World, shell: Shell, tmp_path: Path) -> None:
    topic, books, _gone = archived(here, shell, tmp_path / "archive")
    (lost,) = (tmp_path / "archive").rglob("*.parquet")
    lost.rename(tmp_path / lost.name)
    target = here.topic("restored")
    says(books.run("undo", topic, "--to", target, "--yes", check=5).out, lost.name, never=["4. Back into"])
    assert here.ends(target) == (0, 0)
    (tmp_path / lost.name).rename(lost)
    books.run("undo", topic, "--to", target, "--yes")
    assert here.ends(target)[1] > 0


@pytest.mark.long
def test_restore_runbook_stops_without_an_archive(here: World, shell: Shell, tmp_path: Path) -> None:
    """Whether the policy names none, or the one that it names has nothing of the topic."""
    topic = read_topic(here, "lost", live=9)
    books = shell(consumed(topic))
    here.cli("trim", "-p", str(books.policy), "--yes", check=0)
    for arguments in ((), ("--from", str(tmp_path / "nothing"))):
        said = books.run("undo", topic, *arguments, "--to", "anywhere", "--yes", check=1).out
        says(said, "no archive", "9")  # so many went


def test_trimmed_records_can_be_dumped_from_a_segment_that_remains(
    here: World, single: EmbeddedKafka, shell: Shell, tmp_path: Path
) -> None:
    """As docs/runbooks/undo.md says, for who has no archive; also once a broker has called the file ``.deleted``."""
    topic = here.topic("rescued")
    here.produce(topic, OLD, value=b"do not lose me")
    here.commit(f"{topic}-live", topic, 10)
    books = shell(consumed(topic))
    here.cli("trim", "-p", str(books.policy), "--yes", check=0)
    assert here.records(topic) == []
    (folder,) = single.nodes[0].log_dirs[0].glob(f"{topic}-0")
    (log,) = shutil.copytree(folder, tmp_path / "rescue").glob("*.log")
    log = log.rename(log.with_suffix(".log.deleted")).rename(log)
    command = [str(books.tools / "kafka-dump-log.sh"), "--files", str(log), "--print-data-log"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert shown.count("payload: do not lose me") == 10


# -- the first minutes with a cluster: init, recipes, and the tutorial; each page is followed from top to bottom --


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


AGED = [100 * HOUR] * 10


def test_init_writes_files_that_work_and_holds_r1(world: World, tmp_path: Path) -> None:
    topic = world.filled(AGED, {"reader": 7}, retention_ms=str(7 * DAY))
    short = world.filled([HOUR], stem="short", retention_ms=str(DAY))
    world.commit("reader", short, 1)
    forever = world.filled(AGED, {"reader": 7})
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
    world.filled(AGED, {"reader": 7})
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
    assert "Create _kretain_policy in cluster" in " ".join(terminal.end(("[y/N]", "n\r"), code=6).split())
    assert "created" in world.cli("cluster", "init", "--yes", check=0).out
    assert "exists" in world.cli("cluster", "init", check=0).out, "there is nothing to ask"


HOWTO = ROOT / "docs" / "howto"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def emptied(here: World) -> Iterator[World]:
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


def test_recipe_consumed_trims_what_every_group_has_read(emptied: World, tmp_path: Path) -> None:
    topic = emptied.filled([10 * DAY] * 700 + [HOUR] * 300, None, 3, name="orders")
    emptied.commit("billing", topic, {0: 950, 1: 950})
    emptied.commit("shipping", topic, {0: 900, 1: 420, 2: 900})
    follow("consumed", emptied, tmp_path)
    assert [emptied.ends(topic, partition)[0] for partition in range(3)] == [700, 420, 0]


def test_recipe_event_time_trims_by_a_json_field(emptied: World, tmp_path: Path) -> None:
    topic = emptied.topic(name="trips")
    end = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
    moments = iter([end - dt.timedelta(hours=hour) for hour in range(479, -1, -1)])
    value = lambda: json.dumps({"trip": {"ended_at": next(moments).isoformat()}}).encode()  # noqa: E731
    emptied.produce_at(topic, [int(end.timestamp() * 1000)] * 480, value=value)
    emptied.commit("analytics", topic, 480)
    follow("event-time", emptied, tmp_path)
    assert emptied.ends(topic) == (480 - 7 * 24 - 1, 480)


def test_recipe_minimum_timestamp_trims_what_the_application_released(emptied: World, tmp_path: Path) -> None:
    topic = emptied.topic(name="journal")
    emptied.topic(name="_kretain_policy", cleanup_policy="compact")
    minimum = int(dt.datetime(2026, 11, 1, tzinfo=dt.UTC).timestamp() * 1000)
    emptied.produce_at(topic, [minimum - HOUR] * 800 + [minimum + HOUR] * 200)
    follow("min-timestamp", emptied, tmp_path)
    assert emptied.ends(topic) == (800, 1000)


def test_recipe_disk_ceiling_trims_the_oldest_segments(emptied: World, tmp_path: Path) -> None:
    for topic, records, age in (("clicks", 1200, 9 * DAY), ("views", 600, 2 * DAY)):  # of 12 and 6 MiB
        emptied.topic(name=topic, segment_bytes=str(MIB))
        emptied.produce(topic, [age - number * 60_000 for number in range(records)], value=os.urandom(10_400))
        emptied.commit("reader", topic, records)
    follow("disk-ceiling", emptied, tmp_path)
    assert [emptied.ends(topic)[0] > 0 for topic in ("clicks", "views")] == [True, False]


def test_recipe_legal_hold_keeps_the_held_topic_alone(emptied: World, tmp_path: Path) -> None:
    for topic in ("payments", "payments.eu"):
        emptied.commit("ledger", emptied.filled([10 * DAY] * 500, name=topic), 500)
    follow("legal-hold", emptied, tmp_path)
    assert [emptied.ends(topic)[0] for topic in ("payments", "payments.eu")] == [500, 0]


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
