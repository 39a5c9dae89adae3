"""The runbooks (docs/runbooks) on a real broker: what the cluster looks like afterwards, and where each of them stops."""

from __future__ import annotations

import csv
import getpass
import hashlib
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

from tests.conftest import QUICK
from tests.support import archives
from tests.support.clusters import EmbeddedKafka, tools_on_path
from tests.support.says import says
from tests.support.terminal import Terminal
from tests.support.world import HOUR, MIB, OLD, Cli, World, consumed, everywhere, wait_until, written

FOLDER: Final = Path(__file__).parents[3] / "docs" / "runbooks"


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
    rows = here.cli("offsets", "*", "--groups", "--group", group, "-o", "json", check=0).json()["partitions"]
    stands = {(one["topic"], one["partition"]): one["committed"] for one in rows}
    assert stands == {(topic, 0): 9, (topic, 1): 9, (other, 0): 4}, "where the log begins by now"
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
    assert "Partitions 0 are not on hold" in books.run("legal-hold", "check", topic, check=5).out
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
