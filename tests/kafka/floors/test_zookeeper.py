"""Old consumers, whose positions are in ZooKeeper (F7): a real server, and Kafka's own layout of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from tests.support.world import HOUR, World, consumed, written
from tests.support.zookeeper import zookeeper

OLD = [5 * HOUR] * 10


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as (address, _process):
        yield address


class Old:
    """What Kafka's old consumers write below a chroot of their own."""

    def __init__(self, address: str, chroot: str) -> None:
        self.place = f"{address}/{chroot}"
        with_root = KazooClient(address)
        with_root.start(20)
        with_root.ensure_path(f"/{chroot}/consumers")
        with_root.stop()
        with_root.close()
        self.client = KazooClient(self.place)
        self.client.start(20)

    def commit(self, group: str, topic: str, offset: object, partition: int = 0) -> None:
        path = f"/consumers/{group}/offsets/{topic}/{partition}"
        self.client.ensure_path(path)
        self.client.set(path, str(offset).encode())

    def member(self, group: str, topic: str, pattern: str = "static") -> None:
        """Register a live member, as ``ZookeeperConsumerConnector.registerConsumerInZK`` does."""
        about = {"version": 1, "subscription": {topic: 1}, "pattern": pattern, "timestamp": "1500000000000"}
        path = f"/consumers/{group}/ids/{group}_host-1-a"
        self.client.create(path, json.dumps(about).encode(), ephemeral=True, makepath=True)

    def own(self, group: str, topic: str, partition: int = 0) -> None:
        path = f"/consumers/{group}/owners/{topic}/{partition}"
        self.client.create(path, f"{group}_host-1-a-0".encode(), ephemeral=True, makepath=True)

    def policy(self, topic: str, **more: str) -> str:
        keys = "".join(f", {key.replace('__', '.')}: {value}" for key, value in more.items())
        return consumed(topic) + f"\nfloors:\n  - {{zookeeper: '{self.place}'{keys}}}"


@pytest.fixture
def old(server: str, world: World) -> Iterator[Old]:
    found = Old(server, world.topic())
    yield found
    found.client.stop()
    found.client.close()


@pytest.fixture
def topic(world: World) -> str:
    return world.filled(OLD, {"new": 8})


def said(decision: Any) -> list[str]:
    return [f"{one.code}: {one.text}" for one in decision.reasons]


def test_zookeeper_consumers_count_beside_groups(world: World, old: Old, topic: str) -> None:
    old.commit("billing", topic, 3)
    old.commit("audit", topic, 9)
    old.commit("console-consumer-17", topic, 0)
    old.commit("dead", "a-topic-that-is-long-gone", 7)
    decision = world.decide(old.policy(topic), topic)
    assert (decision.trim_to, decision.min_commit_by) == (3, "zookeeper:billing")
    assert world.decide(old.policy(topic, groups="[audit]"), topic, remember=False).trim_to == 8
    rows = world.cli(
        "groups",
        "-p",
        str(written(world.state_dir.parent / "policy.yaml", old.policy(topic))),
        "--group",
        "zookeeper:*",
        "-o",
        "json",
    ).json()
    found = {row["group"]: (row["type"], row["lag"], row["counts"]) for row in rows["groups"]}
    assert found["zookeeper:billing"] == ("zookeeper", 7, "counts")
    assert found["zookeeper:audit"] == ("zookeeper", 1, "counts")
    assert "zookeeper:console-consumer-17" not in found


def test_deleted_zookeeper_group_counts_where_it_stood(world: World, old: Old, topic: str) -> None:
    """F6: and the chroot's other groups are read on."""
    old.commit("billing", topic, 3)
    old.commit("audit", topic, 9)
    assert world.decide(old.policy(topic), topic).trim_to == 3
    old.client.delete("/consumers/billing", recursive=True)
    decision = world.decide(old.policy(topic), topic)
    assert (decision.trim_to, decision.min_commit_by) == (3, "zookeeper:billing")
    assert any("kretain groups forget -b HOST:PORT zookeeper:billing" in one for one in said(decision))
    listed = world.cli(
        "groups",
        "-p",
        str(written(world.state_dir.parent / "policy.yaml", old.policy(topic))),
        "--group",
        "zookeeper:*",
        "-o",
        "json",
    )
    rows = {row["group"]: row for row in listed.json()["groups"]}
    assert (rows["zookeeper:billing"]["type"], rows["zookeeper:billing"]["lag"]) == ("gone", 7)
    assert rows["zookeeper:billing"]["counts"].endswith("or kretain groups forget")
    assert rows["zookeeper:audit"]["type"] == "zookeeper"
    world.cli("groups", "forget", "zookeeper:billing", check=0)
    assert world.decide(old.policy(topic), topic).trim_to == 8


def test_zookeeper_member_without_a_position_is_unknown(world: World, old: Old, topic: str) -> None:
    """F2: it owns a partition, or has subscribed to the topic and owns none yet. A pattern may be anything (F3)."""
    old.member("starting", topic)
    decision = world.decide(old.policy(topic), topic, remember=False)
    assert said(decision) == [
        f"F2: zookeeper:starting has a live member that reads {topic}, and no position there yet: let it commit"
    ]
    old.commit("starting", topic, 4)
    assert world.decide(old.policy(topic), topic, remember=False).trim_to == 4
    old.own("owning", topic)
    assert [one[:2] for one in said(world.decide(old.policy(topic), topic, remember=False))] == ["F2"]
    old.commit("owning", topic, 5)
    old.member("mirror", ".*", "white_list")
    assert said(world.decide(old.policy(topic), topic, remember=False)) == [
        "F3: zookeeper:mirror could not be read: it has live members that read unknown topics"
    ]
    old.own("mirror", "another-topic")
    assert world.decide(old.policy(topic), topic, remember=False).trim_to == 4


@pytest.mark.parametrize("content", ["", "x", "-1", "4.0", "9999999999999999999"])
def test_invalid_zookeeper_position_holds_only_its_topic(world: World, old: Old, topic: str, content: str) -> None:
    other = world.filled(OLD)
    old.commit("billing", topic, content)
    old.commit("billing", other, 3)
    policy = old.policy(topic).replace(f'match: "{topic}"', f'match: ["{topic}", "{other}"]')
    rows = {one.topic: one for one in world.plan(policy, remember=False).decisions}
    assert (rows[topic].action, [one.code for one in rows[topic].reasons]) == ("hold", ["F3"])
    assert rows[other].trim_to == 3


def test_wrong_chroot_is_an_error_and_not_an_empty_cluster(world: World, old: Old, topic: str) -> None:
    policy = old.policy(topic).replace(old.place, f"{old.place}/elsewhere")
    assert said(world.decide(policy, topic, remember=False)) == [
        f"F3: zookeeper:{old.place}/elsewhere could not be read: there is no /consumers: is the chroot right?"
    ]


def test_zookeeper_password_is_read_from_a_file(world: World, old: Old, topic: str, tmp_path: Path) -> None:
    old.commit("billing", topic, 3)
    old.client.set_acls("/consumers", [make_digest_acl("kretain", "hunter2", all=True)])
    [reason] = said(world.decide(old.policy(topic), topic, remember=False))
    assert reason.endswith("this user may not read /consumers: give a file with user:password under auth.file")
    secret = written(tmp_path / "zookeeper.secret", "kretain:hunter2\n")
    assert world.decide(old.policy(topic, auth__file=str(secret)), topic, remember=False).trim_to == 3
    secret.write_text("hunter2\n")
    [reason] = said(world.decide(old.policy(topic, auth__file=str(secret)), topic, remember=False))
    assert reason.endswith(f"auth.file {secret} does not hold one line, user:password")
    assert "hunter2" not in reason


def test_unreachable_zookeeper_is_unknown_and_forgets_nothing(world: World, topic: str, tmp_path: Path) -> None:
    with zookeeper(tmp_path / "server") as (address, process):
        old = Old(address, "kafka")
        old.commit("billing", topic, 3)
        policy, hasty = (old.policy(topic, timeout=timeout, topics="[nothing-here]") for timeout in ("5s", "1s"))
        assert world.decide(policy, topic).trim_to == 3
        old.client.stop()
        old.client.close()
        process.kill()
        process.wait()
        [reason] = said(world.decide(hasty, topic))
        assert reason == f"F3: zookeeper:{address}/kafka could not be read: it did not answer within 1 s"
