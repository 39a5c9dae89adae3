"""``kretain offsets --unread`` on a real broker: what each kind of consumer has yet to read, and since when."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.world import HOUR, World, consumed, now_ms


def test_offsets_unread_counts_for_every_kind_of_consumer(world: World, tmp_path: Path) -> None:
    topic = world.topic("unread", partitions=2)
    for partition in range(2):
        world.produce(topic, [5 * HOUR] * 10, partition)
    for group, offsets in (("fast", {0: 10, 1: 9}), ("leaves", {0: 2, 1: 10}), ("lacks", {0: 7})):
        world.commit(f"{topic}-{group}", topic, offsets)
    flink, policy = tmp_path / "flink.json", tmp_path / "policy.yaml"
    rows = [{"topic": topic, "partition": 0, "offset": 5}, {"topic": topic, "partition": 1, "offset": 0}]
    flink.write_text(json.dumps({"at": now_ms(), "positions": rows}))
    broken = f"{{command: ['false'], name: broken, topics: ['{topic}']}}"
    policy.write_text(consumed(topic) + f"\nfloors: [{{file: {flink}, name: flink}}, {broken}]\n")
    asked = ("offsets", "-p", str(policy), "--unread")

    world.cli("plan", "-p", str(policy), check=0)
    world.delete_group(f"{topic}-leaves")
    world.produce(topic, 2, 1)
    world.commit(f"{topic}-new", topic, {0: 10, 1: 10})
    said = {
        row["group"].removeprefix(f"{topic}-"): row for row in world.cli(*asked, "-o", "json", check=0).json()["topics"]
    }
    known = {name: (row["records"], row["partitions"], row["unknown"], row["remembered"]) for name, row in said.items()}
    assert known == {
        "fast": (0 + 3, 2, 0, False),
        "leaves": (8 + 2, 2, 0, True),
        "lacks": (None, 2, 1, False),
        "new": (2, 2, 0, False),
        "file:flink": (5 + 12, 2, 0, False),
        "command:broken": (None, 0, 1, False),
    }
    [seen] = {
        row["oldest_sample"] for row in world.cli("ledger", "show", topic, "-o", "json", check=0).json()["partitions"]
    }
    since = {name: row["unread_since"] for name, row in said.items() if row["records"]}
    assert since == {**dict.fromkeys(("fast", "leaves", "file:flink"), seen), "new": None}, "no plan has seen those two"

    each = world.cli(*asked, "--groups", "--group", "file:*", "-o", "json", check=0).json()["partitions"]
    sizes = _sizes(world, topic)
    assert [(row["partition"], row["committed"], row["records"], row["bytes"]) for row in each] == [
        (0, 5, 5, sizes[0] * 5 // 10),
        (1, 0, 12, sizes[1]),
    ]
    table = world.cli(*asked, check=0).out
    assert f"{topic}-leaves" in table
    assert "Some consumers no longer exist" in table
    assert "—: unknown;" in table


def _sizes(world: World, topic: str) -> dict[int, int]:
    from tests.support.world import reader_for

    with reader_for(world.bootstrap) as reader:
        sizes, _ = reader.sizes_soon(reader.metadata({topic}).places([topic])).result()
    return {tp.partition: size for tp, size in sizes.items()}
