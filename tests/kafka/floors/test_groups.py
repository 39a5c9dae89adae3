"""``kretain groups``: who blocks what, on a broker of its own, where no other test's groups are."""

from __future__ import annotations

import os
from pathlib import Path

from kretain.embedded import EmbeddedKafka
from tests.support.world import World, now_ms, reader_for


def test_groups_shows_what_each_group_alone_holds_back(tmp_path: Path) -> None:
    """Bytes are those of the leader's replica, spread evenly; what a second group has yet to read too is nobody's alone."""
    with EmbeddedKafka(1) as kafka:
        world = World(kafka.bootstrap, tmp_path / "state")
        topic = world.topic("blocked")
        world.produce_at(topic, [now_ms()] * 10, value=lambda: os.urandom(10_000), batch=1)
        for group, offset in (("slow", 3), ("fast", 8), ("console-consumer-1", 0)):
            world.commit(group, topic, offset)
        with reader_for(world.bootstrap) as reader:
            [size] = [
                one
                for tp, one in reader.sizes_soon(reader.metadata({topic}).places()).result()[0].items()
                if tp.topic == topic
            ]
        said = world.cli("groups", "-o", "json", check=0).json()
        rows = {row["group"]: (row["lag"], row["lag_bytes"], row["alone_bytes"]) for row in said["groups"]}
        assert rows == {
            "slow": (7, size * 7 // 10, size * 5 // 10),
            "fast": (2, size * 2 // 10, 0),
            "console-consumer-1": (10, None, None),
        }
        table = world.cli("groups", check=0).out
        assert f"Held back alone, most first: {size * 5 / 10 / 1024:.3g} KiB by slow." in table
        few = world.cli("groups", "--group", "slow", "-o", "json", check=0).json()["groups"]
        assert [row["alone_bytes"] for row in few] == [None], "who else is there was not asked"
        world.cli("plan", topic, "--consumed-after", "0s", check=0)  # it is remembered
        first = _last_seen(world, topic)
        assert _unread_since(world) == dict.fromkeys(["console-consumer-1", "fast", "slow"], first)
        world.produce_at(topic, [now_ms()] * 5)
        world.commit("fast", topic, 12)
        world.cli("plan", topic, "--consumed-after", "0s", check=0)
        assert _unread_since(world) == {"console-consumer-1": first, "fast": _last_seen(world, topic), "slow": first}
        assert first < _last_seen(world, topic)
        unmoved = _since(world, "unmoved_since")
        assert unmoved["console-consumer-1"] is None, "an ignored group is not remembered"
        assert unmoved["slow"] is not None
        assert unmoved["fast"] is not None
        assert unmoved["slow"] <= first < unmoved["fast"], "both looks saw slow there, the second fast"
        world.commit("fast", topic, 15)
        assert _unread_since(world)["fast"] is None
        assert _since(world, "unmoved_since") == {**unmoved, "fast": None}, "it has moved since"
        world.delete_group("slow")
        assert _unread_since(world)["slow"] == first
        assert _since(world, "unmoved_since")["slow"] == unmoved["slow"]
        gone = {row["group"]: row["alone_bytes"] for row in world.cli("groups", "-o", "json", check=0).json()["groups"]}
        assert gone["slow"] > size * 5 // 10, "it is gone, and counts (F6)"


def _unread_since(world: World) -> dict[str, str | None]:
    return _since(world, "unread_since")


def _since(world: World, key: str) -> dict[str, str | None]:
    rows = world.cli("groups", "-o", "json", check=0).json()["groups"]
    return {row["group"]: row[key] for row in rows}


def _last_seen(world: World, topic: str) -> str:
    """Return when the last plan that found another H than before saw it, as the ledger has it."""
    [row] = world.cli("ledger", "show", topic, "-o", "json", check=0).json()["partitions"]
    return str(row["newest_sample"])
