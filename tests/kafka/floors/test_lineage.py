"""Of which log is it? What was remembered of one that then lost its tail, or got its front back (M1 to M4, F6).

Two clusters, each harmed once for all tests of its kind; each test has topics of its own there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from retention_cli.brokers.reader import ClusterReader
from tests.support import archives
from tests.support.clusters import EmbeddedKafka
from tests.support.leaders import SETTINGS, epoch_now, lead_by, leaders
from tests.support.says import json_of, pick, rows_of, said
from tests.support.world import HOUR, World, consumed, now_ms, wait_until, written

LONG_AGO = 100 * HOUR
READ = "retention.commitoffset.enable: true, retention.commitoffset.ms: 1h"
BY_HEADER = "retention.max.eventtime.ms: 24h, retention.eventtime.source: 'header:et', unconsumed: trim"
BY_STAMP = "retention.max.eventtime.ms: 24h, unconsumed: trim"


def dated(world: World, topic: str, count: int, age_ms: int) -> int:
    """Append records stamped now, with an event time of that age in a header; return the next offset."""
    time_ms = str(now_ms() - age_ms).encode()
    return world.produce_at(topic, [now_ms()] * count, headers=lambda _number: [("et", time_ms)])


class Harmed:
    """A cluster that is harmed between what was remembered and what is trimmed, and the policy of its topics."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.archive, self.policy, self.saved = (folder / name for name in ("archive", "policy.yaml", "plan.json"))

    def rules(self, **settings: str) -> None:
        lines = [f"  - {{match: {topic}, {rules}}}" for topic, rules in settings.items()]
        self.policy.write_text("\n".join(["version: 1", "topics:", *lines, ""]))

    def plan(self, *topics: str) -> dict[str, Any]:
        return rows_of(self.world, "plan", *topics, "-p", str(self.policy))

    def trim(self, topic: str, *more: str) -> dict[str, Any]:
        """Trim through the command line; return the topic's row, with the log's ``ends``."""
        row = rows_of(self.world, "trim", topic, "-p", str(self.policy), "--yes", *more)[topic]
        return {**row, "ends": self.world.ends(topic)}

    def read(self, topic: str, group: str, offset: int) -> None:
        """Commit with the leader epoch of now."""
        self.world.commit(f"{topic}-{group}", topic, {0: offset}, epochs={0: epoch_now(self.world, topic)})


# -- an unclean election takes the tail ------------------------------------------------------------------------


TORN = ("scanned", "newest", "saved", "archived", "gone", "gone-bare", "bare", "bare-moved", "beyond")


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harmed]:
    """A cluster whose logs lost their tails in an unclean election, and whose every log has grown past it since.

    Of "scanned" 100 of 1,000 records were lost, and 300 young ones came; of the others 6 of 10, and 9 came.
    """
    settings = {**SETTINGS, "unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    folder = tmp_path_factory.mktemp("torn")
    with EmbeddedKafka(3, settings=settings) as three:
        world = World(three.bootstrap, folder / "state")
        harmed = Harmed(world, folder)
        make_pairs(world)
        read = ("saved", "gone", "gone-bare", "bare", "bare-moved", "beyond")
        archived = f"{READ}, archive: {harmed.archive}"
        harmed.rules(scanned=BY_HEADER, newest=BY_STAMP, archived=archived, **dict.fromkeys(read, READ))
        dated(world, "scanned", 900, LONG_AGO)
        for topic in (*TORN[1:], "left"):
            world.produce(topic, [LONG_AGO] * 4)
        assert leaders(world, "gone") == {0: 1}
        three.node(2).kill()
        wait_until(lambda: all(alone(world, topic) for topic in TORN), "the leader alone in sync")
        dated(world, "scanned", 100, LONG_AGO)
        for topic in TORN[1:]:
            if topic == "archived":
                world.transaction(topic, [now_ms() - LONG_AGO] * 5, end="abort")  # and its marker: 4 to 9, and no data
            else:
                world.produce(topic, [0 if topic == "newest" else LONG_AGO] * 6)
        own = {0: epoch_now(world, "gone")}
        for topic in ("archived", *read):
            world.commit(f"{topic}-g", topic, {0: 10}, epochs=None if "bare" in topic else own)
        assert {topic: row["trim_to"] for topic, row in harmed.plan().items()} == {
            **dict.fromkeys(read, 10),
            "scanned": None,
            "newest": 4,
            "archived": 9,  # at 9 stands the marker, of now
        }
        world.cli("plan", "saved", "-p", str(harmed.policy), "--out", str(harmed.saved), check=0)
        archives.killed_at(world, "before-delete", 1, "trim", "archived", "--yes", "-p", str(harmed.policy))
        for group in ("gone-g", "gone-bare-g"):
            world.delete_group(group)
        three.node(1).kill()
        three.start_node(three.node(2))
        wait_until(lambda: all(leaders(world, topic)[0] == 2 for topic in TORN), "the unclean election", 90)
        assert [world.ends(topic) for topic in TORN] == [(0, 900), *[(0, 4)] * (len(TORN) - 1)]
        dated(world, "scanned", 300, 0)
        for topic in TORN[1:]:
            world.produce(topic, [LONG_AGO] * 9)
        yield harmed


def make_pairs(world: World) -> None:
    """Make the topics, with replicas on nodes 1 (which leads) and 2; of "left" there is none on 2."""
    config = {"retention.ms": "-1", "unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    replicas = {**{topic: [1, 2] for topic in TORN}, "left": [1]}
    made = [NewTopic(topic, 1, replica_assignment=[nodes], config=config) for topic, nodes in replicas.items()]
    for topic, future in world.admin.create_topics(made).items():
        future.result(60)
        world.await_leaders(topic, 1)


def alone(world: World, topic: str) -> bool:
    try:
        return len(world.admin.list_topics(topic, timeout=5).topics[topic].partitions[0].isrs) == 1
    except KafkaException:  # the client may have picked the dead one to ask
        return False


def test_event_times_of_a_truncated_tail_release_no_new_record(torn: Harmed) -> None:
    """The scan was read up to 1,000; the records at 900 to 999 are others by now, and young (M2)."""
    assert pick(torn.trim("scanned"), "outcome", "target", "log_start", "records") == ("trimmed", 900, 900, 900)
    assert pick(torn.trim("scanned"), "outcome", "ends") == ("unchanged", (900, 1_200))


def test_largest_event_time_of_a_lost_record_ages_nothing(torn: Harmed) -> None:
    """Six records of now were lost: without them nothing that is there is 24 h older than the newest."""
    assert pick(torn.trim("newest"), "outcome", "ends") == ("unchanged", (0, 13))


@pytest.mark.parametrize(("topic", "why"), [("newest", "F5"), ("left", "offsets")])
def test_retention_is_raised_for_what_a_commit_of_a_lost_tail_or_a_dead_leader_leaves_unknown(
    torn: Harmed, topic: str, why: str
) -> None:
    """P3: the commit is at the end, but other records are there now; or where the end is, is unknown."""
    world, ends = torn.world, {"newest": 13, "left": 4}
    world.cli("cluster", "init", "--protect", "--yes", check=0)
    world.configure(topic, {"retention.ms": str(LONG_AGO + 2 * HOUR)})
    world.commit("kept", topic, {0: ends[topic]}, epochs={0: 0})
    rule = f"{{match: {topic}, retention.until.consumed: {{groups: [kept], max: 200h}}}}"
    policy = written(torn.policy.with_name("protect.yaml"), f"version: 1\ntopics: [{rule}]\n")

    def row() -> dict[str, Any]:
        found = json_of(world, "protect", "-p", str(policy), "--every", "1h", "--dry-run")["settings"]
        return next(one for one in found if one["setting"] == "retention.ms")

    found = row()
    assert (found["action"], why in {one["code"] for one in found["reasons"]}) == ("raise", True), found
    if topic == "newest":
        world.commit("kept", topic, {0: 13}, epochs={0: epoch_now(world, topic)})
        assert row()["action"] == "none"


def test_saved_plan_of_a_log_truncated_since_holds(torn: Harmed) -> None:
    """Its target is 10, and the log was cut at 4: today's floor and rules would let 10 go, but nobody was shown those."""
    torn.read("saved", "g", 13)
    row = torn.trim("saved", "--plan", str(torn.saved))
    assert (*pick(row, "outcome", "ends"), "cut back to 4" in said(row)) == ("held", (0, 13), True)
    assert torn.trim("saved")["log_start"] == 13, "a plan of today's log goes"


def test_archive_of_a_truncated_tail_does_not_cover_new_records(torn: Harmed) -> None:
    """An interrupted trim had archived 0 to 8, data up to 3 and aborted records: 4 to 8 are data by now."""
    torn.read("archived", "g", 13)
    row = torn.trim("archived")
    assert pick(row, "outcome", "ends") == ("held", (0, 13))
    assert "the log was cut back: leader epoch 0 now ends at 4" in said(row)
    for manifest in torn.archive.rglob("*.json"):  # as the reason says
        manifest.unlink()
    assert (torn.trim("archived")["log_start"], len(archives.archived(torn.archive, "archived"))) == (13, 13)


@pytest.mark.parametrize("topic", ["gone", "gone-bare"])
def test_deleted_groups_commit_counts_up_to_the_truncation_only(torn: Harmed, topic: str) -> None:
    """It had read up to 10; of what stands at 4 to 9 now it has read nothing, with or without an epoch (F6, M2)."""
    torn.read(topic, "other", 13)
    assert pick(torn.trim(topic), "outcome", "log_start") == ("trimmed", 4)
    assert torn.plan(topic)[topic]["min_commit"] == 4


def test_commit_without_an_epoch_is_refused_beyond_a_truncation(torn: Harmed) -> None:
    """It has not changed since: whether it was looked at once or twice, nothing beyond the cut goes by it (F5)."""
    for _again in range(2):
        row = torn.trim("bare")
        assert (*pick(row, "outcome", "ends"), "F5" in said(row)) == ("held", (0, 13), True)
    torn.world.commit("bare-g", "bare", 12)
    assert torn.trim("bare")["log_start"] == 12


def test_truncation_is_remembered_when_the_leader_changes_during_the_read(
    torn: Harmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reading finds the cut, and is void; the second one must know of it, too, and so must the next run."""
    world, topic = torn.world, "bare-moved"
    honest, compared = ClusterReader.metadata, itertools.count()

    def move_first(self: ClusterReader, *topics: Any) -> Any:
        answer = honest(self, *topics)
        if topics and isinstance(topics[0], dict) and next(compared) == 0:  # what was read is held against this
            lead_by(world, topic, 3)
            # the broker that answers may not have heard of it yet
            while answer.topics[topic].partitions[0].leader != 3:
                answer = honest(self, *topics)
        return answer

    with monkeypatch.context() as stepped_in:
        stepped_in.setattr(ClusterReader, "metadata", move_first)
        decision = world.decide(consumed(topic), topic)
    assert next(compared) > 1, "it was read again"
    assert pick(decision, "action", "trim_to") == ("hold", None)
    assert pick(torn.trim(topic), "outcome", "log_start") == ("held", 0)


def test_commit_beyond_its_epochs_end_counts_at_that_end_after_group_deletion(torn: Harmed) -> None:
    """Refused while it is there (F5); deleted as told, its group has read what lies before the cut, and no more (F6)."""
    torn.read("beyond", "other", 13)
    row = torn.trim("beyond")
    assert pick(row, "outcome", "ends") == ("held", (0, 13))
    assert said(row).count("beyond-g") == 1, "one reason, with one remedy"
    torn.world.delete_group("beyond-g")
    assert pick(torn.trim("beyond"), "outcome", "log_start") == ("trimmed", 4)


# -- a log whose front came back -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harmed]:
    """A broker that lost its power before it had noted how far logs were trimmed: each starts at 0 again.

    Before, 500 of 1,000 records were gone, and kretain had looked.
    """
    settings = {
        **SETTINGS,
        "log.flush.start.offset.checkpoint.interval.ms": "3600000",
        "log.initial.task.delay.ms": "3600000",  # after the 30 s of the default, S would be noted for the first time
    }
    folder = tmp_path_factory.mktemp("restored")
    with EmbeddedKafka(1, settings=settings) as one:
        world = World(one.bootstrap, folder / "state")
        harmed = Harmed(world, folder)
        harmed.rules(**{"scan-back": BY_HEADER, "read-back": READ})
        world.topic(name="scan-back")
        dated(world, "scan-back", 500, HOUR)
        dated(world, "scan-back", 500, LONG_AGO)
        world.delete_records("scan-back", 500)
        dated(world, "scan-back", 10, HOUR)
        world.filled([LONG_AGO] * 10, {"g": 10, "slow": 2}, name="read-back")
        world.delete_records("read-back", 5)
        assert {topic: row["trim_to"] for topic, row in harmed.plan().items()} == {
            "scan-back": 1_000,
            "read-back": None,
        }
        one.node(1).kill()
        one.start_node(one.node(1))
        one.wait_until_ready()
        for topic in ("scan-back", "read-back"):
            world.await_leaders(topic, 1)
            assert world.ends(topic)[0] == 0
        yield harmed


def test_event_time_scan_from_a_later_start_does_not_cover_restored_records(restored: Harmed) -> None:
    """500 to 999 are old; 0 to 499 are young, and lie before them again (M3)."""
    assert pick(restored.trim("scan-back"), "outcome", "ends") == ("unchanged", (0, 1_010))


def test_group_whose_lost_records_return_can_read_them(restored: Harmed) -> None:
    """Its commit lay below S; now it lies within the log, and counts as any."""
    assert restored.trim("read-back")["log_start"] == 2
