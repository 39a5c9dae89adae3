"""The address of one broker leads to another cluster: a port-forward, a load balancer, an IP address in use again."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.records import Range
from retention_cli.brokers.republisher import GroupResetter, Republisher, RestoreGroup
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.model import TopicPartition
from tests.support.clusters import EmbeddedKafka
from tests.support.doors import Door
from tests.support.leaders import leaders
from tests.support.says import refusal, says
from tests.support.world import OLD, World, reader_for, run_cli, written


class _Behind(EmbeddedKafka):
    """Clients reach the second node of the second listener through a door."""

    door: Door

    def _properties(self, node_id: int, *args: Any) -> dict[str, str]:
        found = super()._properties(node_id, *args)
        if node_id == 2:
            heard = found["advertised.listeners"].partition("SECURE://")[0]
            found["advertised.listeners"] = f"{heard}SECURE://{self.door.address}"
        return found


def test_broker_of_another_cluster_is_neither_read_nor_trimmed(tmp_path: Path) -> None:
    """Both have a topic of this name, with the same leader epochs: its offsets mean nothing there."""
    kafka = _Behind(2, secure_protocol="PLAINTEXT")
    with Door() as kafka.door, EmbeddedKafka(1) as other, kafka:
        kafka.door.leads_to = f"127.0.0.1:{kafka.node(2).secure_port}"
        ours, theirs = World(kafka.bootstrap, tmp_path / "state"), World(other.bootstrap, tmp_path / "theirs")
        for world in (ours, theirs):
            world.topic(name="orders", partitions=4)
            for number in range(4):
                world.produce("orders", OLD, number)
        policy = str(
            written(tmp_path / "p.yaml", "version: 1\ntopics: [{match: orders, retention.ms: 1h, unconsumed: trim}]")
        )
        at = ("orders", "-b", f"127.0.0.1:{kafka.node(1).secure_port}", "-p", policy, "--timeout", "8s")

        def trim() -> dict[int, Any]:
            rows = run_cli("trim", *at, "--yes", "-o", "json", "--state-dir", str(tmp_path / "state")).json()[
                "partitions"
            ]
            return {row["partition"]: row for row in rows}

        kafka.door.leads_to = other.bootstrap
        far = {number for number, leader in leaders(ours, "orders").items() if leader == 2}
        rows = trim()
        assert far
        assert {number for number, row in rows.items() if row["outcome"] == "held"} == far
        for number in far:
            says(rows[number]["reasons"][0]["text"], "leads to another cluster", other.cluster_id, kafka.cluster_id)
        assert [theirs.ends("orders", number)[0] for number in range(4)] == [0] * 4
        kafka.door.leads_to = f"127.0.0.1:{kafka.node(2).secure_port}"
        assert {row["outcome"] for number, row in trim().items() if number in far} == {"trimmed"}


def test_records_are_not_read_from_another_cluster(tmp_path: Path) -> None:
    """The client that reads records connects by itself: what the other cluster has says nothing of ours (R2)."""
    tp, read = TopicPartition("orders", 0), list[int]()
    with Door() as door, EmbeddedKafka(1) as other, EmbeddedKafka(1) as kafka:
        for one in (kafka, other):
            world = World(one.bootstrap, tmp_path / "state")
            world.produce(world.topic(name="orders"), OLD)
        door.leads_to = kafka.bootstrap
        with reader_for(door.address) as reader:
            door.leads_to = other.bootstrap
            ended = reader.read_ranges({tp: Range(0, 10)}, None, lambda _, message: read.append(message.offset()))
            says(str(ended[tp]), "leads to another cluster", other.cluster_id, kafka.cluster_id)
            assert read == []
            door.leads_to = kafka.bootstrap
            assert reader.read_ranges({tp: Range(0, 10)}, None, lambda _, message: read.append(message.offset())) == {
                tp: None
            }
            assert read == list(range(10))


@pytest.mark.parametrize("silent_s", [0, 4])
def test_messages_are_not_written_to_another_cluster(tmp_path: Path, silent_s: int) -> None:
    """A live setting would count there, and trim its records (R3). Nor if it is slow to say which cluster it is."""
    with Door() as door, EmbeddedKafka(1) as other, EmbeddedKafka(1) as kafka:
        theirs, ours = (World(one.bootstrap, tmp_path / "state") for one in (other, kafka))
        for world in (theirs, ours):
            world.topic(name="settings")
        door.leads_to = kafka.bootstrap
        with reader_for(door.address) as reader:
            door.leads_to = other.bootstrap
            door.cut()
            threading.Timer(silent_s, door.heal, kwargs={"lost": False}).start()
            with ClusterWriter(reader.pinned_settings, {"settings"}, 10) as writer:
                says(refusal(BrokerError, writer.append, "settings", b"k", b"v"), "leads to another cluster")
                door.leads_to = kafka.bootstrap
                assert writer.append("settings", b"k", b"v").offset == 0
        assert [world.ends("settings")[1] for world in (theirs, ours)] == [0, 1]


def test_groups_of_another_cluster_are_not_reset_and_nothing_is_restored_there(tmp_path: Path) -> None:
    """A group of that name would skip what it has not read there, or R1 trim it."""
    with Door() as door, EmbeddedKafka(1) as other, EmbeddedKafka(1) as kafka:
        theirs, ours = (World(one.bootstrap, tmp_path / "state") for one in (other, kafka))
        for world in (theirs, ours):
            world.commit("billing", world.topic(name="orders"), 3)
        door.leads_to = kafka.bootstrap
        with reader_for(door.address) as reader:
            settings = reader.pinned_settings
            group, resetter = RestoreGroup(settings, "kretain-restore-1", 10), GroupResetter(settings, "orders", 10)

            def restore() -> None:
                with group, Republisher(settings, "orders", 0, "kretain-restore-1-0", group, 10) as republisher:
                    republisher.append([], 0, "{}")

            door.leads_to = other.bootstrap
            for work in (partial(resetter.reset, "billing", {0: 9}), restore, group.delete):
                says(refusal(BrokerError, work), "leads to another cluster", other.cluster_id)
            door.leads_to = kafka.bootstrap
            resetter.reset("billing", {0: 9})
            restore()
            assert group.name in ours.groups()
            group.delete()
        found: list[Any] = []
        for world in (theirs, ours):
            with reader_for(world.bootstrap) as reader:
                reader.read_commits(sorted(world.groups()), found.append, 10)
        assert [(one.group, one.topics["orders"][0][1]) for one in found] == [("billing", 3), ("billing", 9)]
