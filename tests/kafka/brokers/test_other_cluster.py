"""The address of one broker leads to another cluster: a port-forward, a load balancer, an IP address in use again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.clusters import EmbeddedKafka
from tests.support.doors import Door
from tests.support.leaders import leaders
from tests.support.says import says
from tests.support.world import OLD, World, run_cli, written


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
