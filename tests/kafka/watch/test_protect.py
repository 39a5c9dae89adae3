"""``kretain protect`` on a real broker, whose retention check runs each second."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support.watching import watching
from tests.support.world import World, wait_until

SECOND = 1000


def policy_of(world: World, topic: str, group: str = "billing", **rule: Any) -> str:
    """Write a policy that protects a topic; return its path."""
    path = world.state_dir.parent / "policy.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    more = "".join(f", {key.replace('_', '.')}: {value}" for key, value in ({"max": "10m"} | rule).items())
    path.write_text(
        f"version: 1\ntopics:\n  - match: {topic}\n"
        f"    retention.until.consumed: {{groups: [{group}]{more}}}\n"
    )
    return str(path)


def own(world: World, topic: str, key: str = "retention.ms") -> str | None:
    """Return a topic's own value of a setting, None if it has none."""
    from tests.support.world import reader_for

    with reader_for(world.bootstrap) as reader:
        values = reader.own_values([topic], [key])[topic]
    assert isinstance(values, dict), values
    return values.get(key)


def expiring(world: World, stem: str, retention_ms: int = 20 * SECOND, **more: str) -> str:
    """Make a topic whose segments are closed after a second, with a record in each of three."""
    topic = world.topic(stem, retention_ms=str(retention_ms), segment_ms="1000", **more)
    for _ in range(3):
        world.produce(topic, 10)
        time.sleep(1.1)
    world.produce(topic, 1)
    return topic


def protect(world: World, policy: str, *more: str, every: str = "1s", check: int = 0) -> Any:
    """Run it once; return its rows by setting."""
    done = world.cli("protect", "-p", policy, "--every", every, "-o", "json", *more, check=check)
    return {row["setting"]: row for row in json.loads(done.out)["settings"]}


def test_protect_once_raises_what_would_expire_and_restores_it_when_the_group_has_read(electing: World) -> None:
    """P1, P2: a plan first; the record is on the cluster, and a machine without any memory restores the original."""
    world = electing
    topic = expiring(world, "once", 4 * SECOND)
    world.commit("billing", topic, 0)
    policy = policy_of(world, topic)
    planned = protect(world, policy, "--dry-run")["retention.ms"]
    assert (planned["action"], planned["group"], planned["old"]) == ("raise", "billing", 4 * SECOND)
    assert planned["new"] > 4 * SECOND
    assert own(world, topic) == str(4 * SECOND)
    made = protect(world, policy, "--yes")["retention.ms"]
    assert made["outcome"] == "done"
    assert own(world, topic) == str(made["new"])
    world.commit("billing", topic, world.ends(topic)[1])
    elsewhere = World(world.bootstrap, world.state_dir.parent / "elsewhere")
    assert protect(elsewhere, policy, "--yes")["retention.ms"]["action"] == "restore"
    assert own(world, topic) == str(4 * SECOND)
    events = [json.loads(line) for line in next(world.state_dir.rglob("audit.jsonl")).read_text().splitlines()]
    assert [one["event"] for one in events] == ["protect", "protected"]
    assert world.cli("history", "--verify", check=0)
