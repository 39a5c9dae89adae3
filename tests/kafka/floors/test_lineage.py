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
from tests.support import archiving
from tests.support.clusters import EmbeddedKafka
from tests.support.leaders import SETTINGS, epoch_now, lead_by, leaders
from tests.support.world import HOUR, World, consumed, now_ms, wait_until

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

    def __init__(self, world: World, folder: Path, archive: Path) -> None:
        self.world = world
        self.archive = archive
        self.policy = folder / "policy.yaml"
        self.saved = folder / "plan.json"

    def rules(self, **settings: str) -> None:
        lines = [f"  - {{match: {topic}, {rules}}}" for topic, rules in settings.items()]
        self.policy.write_text("\n".join(["version: 1", "topics:", *lines, ""]))

    def plan(self, *topics: str) -> dict[str, Any]:
        done = self.world.cli("plan", *topics, "-p", str(self.policy), "-o", "json", check=0)
        return {row["topic"]: row for row in done.json()["partitions"]}

    def trim(self, *topics: str, code: int = 0) -> dict[str, Any]:
        """Trim through the command line; return the last topic's row."""
        done = self.world.cli("trim", *topics, "-p", str(self.policy), "--yes", "-o", "json", check=code)
        return dict(done.json()["partitions"][-1])

    def start(self, topic: str) -> int:
        return self.world.ends(topic)[0]


def said(row: dict[str, Any]) -> str:
    return " | ".join(f"{reason['code']} {reason['text']}" for reason in row["reasons"])


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
        harmed = Harmed(world, folder, folder / "archive")
        make_pairs(world)
        harmed.rules(
            scanned=BY_HEADER,
            newest=BY_STAMP,
            archived=f"{READ}, archive: {harmed.archive}",
            **dict.fromkeys(("saved", "gone", "gone-bare", "bare", "bare-moved", "beyond"), READ),
        )
        dated(world, "scanned", 900, LONG_AGO)
        for topic in (*TORN[1:], "left"):
            world.produce(topic, [LONG_AGO] * 4)
        assert len(before := leaders(world, "gone")) == 1
        assert before[0] == 1
        three.node(2).kill()
        wait_until(lambda: all(alone(world, topic) for topic in TORN), "the leader alone in sync")
        dated(world, "scanned", 100, LONG_AGO)
        for topic in TORN[1:]:
            if topic == "archived":
                world.transaction(topic, [now_ms() - LONG_AGO] * 5, end="abort")  # and its marker: 4 to 9, and no data
            else:
                world.produce(topic, [0 if topic == "newest" else LONG_AGO] * 6)
        own = {0: epoch_now(world, "gone")}
        for topic in ("saved", "archived", "gone", "beyond"):
            world.commit(f"{topic}-g", topic, {0: 10}, epochs=own)
        for topic in ("gone-bare", "bare", "bare-moved"):
            world.commit(f"{topic}-g", topic, 10)
        assert {topic: row["trim_to"] for topic, row in harmed.plan().items()} == {
            **dict.fromkeys(("saved", "gone", "gone-bare", "bare", "bare-moved", "beyond"), 10),
            "scanned": None,
            "newest": 4,
            "archived": 9,  # at 9 stands the marker, of now
        }
        world.cli("plan", "saved", "-p", str(harmed.policy), "--out", str(harmed.saved), check=0)
        archiving.killed_at(world, "before-delete", 1, "trim", "archived", "--yes", "-p", str(harmed.policy))
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
    made = [NewTopic(topic, 1, replica_assignment=[[1, 2]], config=config) for topic in TORN]
    made.append(NewTopic("left", 1, replica_assignment=[[1]], config=config))
    for future in world.admin.create_topics(made).values():
        future.result(60)
    for topic in (*TORN, "left"):
        world.await_leaders(topic, 1)


def alone(world: World, topic: str) -> bool:
    try:
        return len(world.admin.list_topics(topic, timeout=5).topics[topic].partitions[0].isrs) == 1
    except KafkaException:  # the client may have picked the dead one to ask
        return False


def test_event_times_of_a_truncated_tail_release_no_new_record(torn: Harmed) -> None:
    """The scan was read up to 1,000; the records at 900 to 999 are others by now, and young (M2)."""
    row = torn.trim("scanned")
    assert (row["outcome"], row["target"], row["log_start"], row["records"]) == ("trimmed", 900, 900, 900)
    assert torn.trim("scanned")["outcome"] == "unchanged"
    assert torn.world.ends("scanned") == (900, 1_200)


def test_largest_event_time_of_a_lost_record_ages_nothing(torn: Harmed) -> None:
    """Six records of now were lost: without them nothing that is there is 24 h older than the newest."""
    row = torn.trim("newest")
    assert (row["outcome"], torn.world.ends("newest")) == ("unchanged", (0, 13)), said(row)


@pytest.mark.parametrize(("topic", "why"), [("newest", "F5"), ("left", "offsets")])
def test_retention_is_raised_for_what_a_commit_of_a_lost_tail_or_a_dead_leader_leaves_unknown(
    torn: Harmed, topic: str, why: str
) -> None:
    """P3: the commit is at the end, but other records are there now; or where the end is, is unknown."""
    world, ends = torn.world, {"newest": 13, "left": 4}
    world.cli("cluster", "init", "--protect", "--yes", check=0)
    world.configure(topic, {"retention.ms": str(LONG_AGO + 2 * HOUR)})
    world.commit("kept", topic, {0: ends[topic]}, epochs={0: 0})
    policy = torn.policy.with_name("protect.yaml")
    policy.write_text(
        f"version: 1\ntopics:\n  - {{match: {topic}, retention.until.consumed: {{groups: [kept], max: 200h}}}}\n"
    )

    def row() -> dict[str, Any]:
        done = world.cli("protect", "-p", str(policy), "--every", "1h", "--dry-run", "-o", "json", check=0)
        return next(one for one in done.json()["settings"] if one["setting"] == "retention.ms")

    assert (found := row())["action"] == "raise", found
    assert why in {one["code"] for one in found["reasons"]}
    if topic == "newest":
        world.commit("kept", topic, {0: 13}, epochs={0: epoch_now(world, topic)})
        assert row()["action"] == "none"


def test_saved_plan_of_a_log_truncated_since_holds(torn: Harmed) -> None:
    """Its target is 10, and the log was cut at 4: today's floor and rules would let 10 go, but nobody was shown those."""
    world = torn.world
    world.commit("saved-g", "saved", {0: 13}, epochs={0: epoch_now(world, "saved")})
    arguments = ("trim", "saved", "-p", str(torn.policy), "--yes", "-o", "json")
    row = world.cli(*arguments, "--plan", str(torn.saved), check=0).json()["partitions"][0]
    assert (row["outcome"], torn.start("saved")) == ("held", 0)
    assert "cut back to 4" in said(row)
    assert torn.trim("saved")["log_start"] == 13, "a plan of today's log goes"


def test_archive_of_a_truncated_tail_does_not_cover_new_records(torn: Harmed) -> None:
    """An interrupted trim had archived 0 to 8, data up to 3 and aborted records: 4 to 8 are data by now."""
    world = torn.world
    world.commit("archived-g", "archived", {0: 13}, epochs={0: epoch_now(world, "archived")})
    row = torn.trim("archived")
    assert (row["outcome"], torn.start("archived")) == ("held", 0), said(row)
    assert "the log was cut back: leader epoch 0 now ends at 4" in said(row)
    for manifest in torn.archive.rglob("*.json"):  # as the reason says
        manifest.unlink()
    assert torn.trim("archived")["log_start"] == 13
    assert len(archiving.archived(torn.archive, "archived")) == 13


@pytest.mark.parametrize("topic", ["gone", "gone-bare"])
def test_deleted_groups_commit_counts_up_to_the_truncation_only(torn: Harmed, topic: str) -> None:
    """It had read up to 10; of what stands at 4 to 9 now it has read nothing, with or without an epoch (F6, M2)."""
    world = torn.world
    world.commit(f"{topic}-other", topic, {0: 13}, epochs={0: epoch_now(world, topic)})
    row = torn.trim(topic)
    assert (row["outcome"], row["log_start"]) == ("trimmed", 4), said(row)
    assert torn.plan(topic)[topic]["min_commit"] == 4


def test_commit_without_an_epoch_is_refused_beyond_a_truncation(torn: Harmed) -> None:
    """It has not changed since: whether it was looked at once or twice, nothing beyond the cut goes by it (F5)."""
    for _again in range(2):
        row = torn.trim("bare")
        assert (row["outcome"], torn.start("bare")) == ("held", 0)
        assert "F5" in said(row)
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
            while (
                answer.topics[topic].partitions[0].leader != 3
            ):  # the broker that answers may not have heard of it yet
                answer = honest(self, *topics)
        return answer

    with monkeypatch.context() as stepped_in:
        stepped_in.setattr(ClusterReader, "metadata", move_first)
        decision = world.decide(consumed(topic), topic)
    assert next(compared) > 1, "it was read again"
    assert (decision.action, decision.trim_to) == ("hold", None), decision
    row = torn.trim(topic)
    assert (row["outcome"], torn.start(topic)) == ("held", 0), said(row)


def test_commit_beyond_its_epochs_end_counts_at_that_end_after_group_deletion(torn: Harmed) -> None:
    """Refused while it is there (F5); deleted as told, its group has read what lies before the cut, and no more (F6)."""
    world = torn.world
    world.commit("beyond-other", "beyond", {0: 13}, epochs={0: epoch_now(world, "beyond")})
    row = torn.trim("beyond")
    assert (row["outcome"], torn.start("beyond")) == ("held", 0)
    assert said(row).count("beyond-g") == 1, "one reason, with one remedy"
    world.delete_group("beyond-g")
    row = torn.trim("beyond")
    assert (row["outcome"], row["log_start"]) == ("trimmed", 4), said(row)


# -- a log whose front came back -------------------------------------------------------------------------------


RESTORED = ("scan-back", "read-back")


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
        harmed = Harmed(world, folder, folder / "archive")
        for topic in RESTORED:
            world.topic(name=topic)
        harmed.rules(**{"scan-back": BY_HEADER, "read-back": READ})
        dated(world, "scan-back", 500, HOUR)
        dated(world, "scan-back", 500, LONG_AGO)
        world.delete_records("scan-back", 500)
        dated(world, "scan-back", 10, HOUR)
        world.produce("read-back", [LONG_AGO] * 10)
        world.delete_records("read-back", 5)
        world.commit("read-back-g", "read-back", 10)
        world.commit("read-back-slow", "read-back", 2)
        assert {topic: row["trim_to"] for topic, row in harmed.plan().items()} == {
            "scan-back": 1_000,
            "read-back": None,
        }
        one.node(1).kill()
        one.start_node(one.node(1))
        one.wait_until_ready()
        for topic in RESTORED:
            world.await_leaders(topic, 1)
            assert harmed.start(topic) == 0
        yield harmed


def test_event_time_scan_from_a_later_start_does_not_cover_restored_records(restored: Harmed) -> None:
    """500 to 999 are old; 0 to 499 are young, and lie before them again (M3)."""
    row = restored.trim("scan-back")
    assert (row["outcome"], restored.world.ends("scan-back")) == ("unchanged", (0, 1_010)), said(row)


def test_group_whose_lost_records_return_can_read_them(restored: Harmed) -> None:
    """Its commit lay below S; now it lies within the log, and counts as any."""
    assert restored.trim("read-back")["log_start"] == 2
