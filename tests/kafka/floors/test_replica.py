"""What MirrorMaker 2 has yet to copy to another cluster stays (F7): two real clusters, and MirrorMaker 2 itself."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kretain.embedded.cluster import EmbeddedKafka
from tests.support.mirror_maker import mirror_maker
from tests.support.world import HOUR, World, consumed, wait_until

pytestmark = pytest.mark.timeout(600)

SYNCS = "mm2-offset-syncs.dr.internal"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def target(archived_classes: None) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def primary(archived_classes: None) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def copying(
    primary: EmbeddedKafka, target: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[subprocess.Popen[bytes]]:
    with mirror_maker(tmp_path_factory.mktemp("mm2"), primary.bootstrap, target.bootstrap, "m-.*") as process:
        yield process


@pytest.fixture
def world(primary: EmbeddedKafka, target: EmbeddedKafka, tmp_path: Path) -> World:
    return World(primary.bootstrap, tmp_path / "state", {"dr": target.bootstrap})


@pytest.fixture
def dr(target: EmbeddedKafka, tmp_path: Path) -> World:
    return World(target.bootstrap, tmp_path / "dr-state")


@contextmanager
def paused(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def policy(topic: str, **more: str) -> str:
    keys = "".join(f", {key.replace('__', '.')}: '{value}'" for key, value in more.items())
    return consumed(topic, after="0") + f"\nfloors:\n  - {{replica: dr{keys}}}"


def read_by_group(world: World, topic: str, offset: int) -> None:
    world.commit(f"{topic}-group", topic, offset)


def said(decision: Any) -> str:
    return "; ".join(f"{one.code}: {one.text}" for one in decision.reasons)


def make(world: World, count: int = 10) -> str:
    topic = world.topic(name=f"m-{next(_numbers)}-{os.getpid()}")
    world.produce(topic, [5 * HOUR] * count)
    read_by_group(world, topic, count)
    return topic


def until(world: World, topic: str, so: Callable[[Any], bool], **more: str) -> Any:
    """Plan until it is so; return the decision."""
    found: list[Any] = []

    def look() -> bool:
        found[:] = [world.decide(policy(topic, **more), topic)]
        return so(found[0])

    wait_until(look, f"a plan of {topic}", 90)
    return found[0]


def test_replica_without_any_copy_trims_nothing(world: World) -> None:
    topic = make(world)
    held = world.decide(policy(topic, source__alias="primary", offset__syncs="mm2-none"), topic)
    assert held.action == "hold"
    assert "has no topic mm2-none, or this user may not describe it: write offset.syncs" in said(held)


def test_copied_records_are_trimmed_and_others_kept(world: World, dr: World, copying: subprocess.Popen[bytes]) -> None:
    topic = make(world)
    done = until(world, topic, lambda one: one.trim_to == 10)
    assert done.min_commit == 10
    with paused(copying):
        world.produce(topic, [5 * HOUR] * 5)
        read_by_group(world, topic, 15)
        plan = world.plan(policy(topic))
        one = plan.decisions[0]
        assert (one.trim_to, one.min_commit, one.min_commit_by) == (10, 10, "replica:dr")
        world.trim(plan, policy(topic))
        assert world.ends(topic) == (10, 15)
        late = world.topic(name=f"m-late-{next(_numbers)}-{os.getpid()}")
        world.produce(late, [5 * HOUR] * 3)
        read_by_group(world, late, 3)
        assert "MirrorMaker 2 has no offset sync of it" in said(world.decide(policy(late), late))
    until(world, topic, lambda one: one.trim_to == 15)
    until(world, late, lambda one: one.trim_to == 3)
    assert len(dr.records(f"primary.{topic}")) == 15


def test_lost_copy_holds_even_if_new_records_took_its_offsets(
    world: World, dr: World, copying: subprocess.Popen[bytes]
) -> None:
    topic = make(world)
    until(world, topic, lambda one: one.trim_to == 10)
    with paused(copying):
        dr.delete(f"primary.{topic}")
        assert f"its copy primary.{topic}-0 in dr does not exist" in said(world.decide(policy(topic), topic))
        dr.topic(name=f"primary.{topic}")
        assert "the copy of offset 9 no longer exists: it was 9, and the copy has 0 to 0" in said(
            world.decide(policy(topic), topic)
        )
        dr.produce(f"primary.{topic}", [5 * HOUR] * 20, value=b"another")
        held = world.decide(policy(topic), topic)
        assert held.action == "hold"
        assert f"offset 9 of primary.{topic} in dr is not a copy of offset 9" in said(held)


def test_copier_that_continues_in_another_log_is_rejected(
    world: World, dr: World, copying: subprocess.Popen[bytes]
) -> None:
    """A recreated topic, here or there: MirrorMaker 2 goes on at its old offset, and never copies what is before it."""
    here, there = make(world), make(world)
    for topic in (here, there):
        until(world, topic, lambda one: one.trim_to == 10)
    with paused(copying):
        world.delete(here)
        world.topic(name=here)
        dr.delete(f"primary.{there}")
        dr.topic(name=f"primary.{there}")
        world.produce(here, [4 * HOUR] * 15, value=b"new")
        world.produce(there, [4 * HOUR] * 5)
        for topic in (here, there):
            read_by_group(world, topic, 15)
    wait_until(lambda: dr.ends(f"primary.{here}")[1] > 10, "what is new here is copied")
    wait_until(lambda: dr.ends(f"primary.{there}")[1] == 5, "what is new is copied to the new topic there")
    for topic in (here, there):
        for remember in (True, False):
            held = world.decide(policy(topic), topic, remember=remember)
            assert held.action == "hold", topic


def test_cluster_that_is_its_own_replica_is_an_error(world: World, copying: subprocess.Popen[bytes]) -> None:
    topic = make(world)
    world.contexts = {"dr": world.bootstrap}
    assert "context dr is this cluster itself" in said(world.decide(policy(topic), topic))
    world.contexts = {"dr": "127.0.0.1:1"}
    held = world.decide(policy(topic, timeout="1s"), topic)
    assert held.action == "hold"
    assert "replica:dr could not be read: 127.0.0.1:1" in said(held)


def test_groups_doctor_and_plan_use_the_replica_of_its_context(
    world: World, target: EmbeddedKafka, copying: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    topic = make(world)
    until(world, topic, lambda one: one.trim_to == 10)
    config, file = tmp_path / "config.yaml", tmp_path / "policy.yaml"
    config.write_text(f"contexts: {{dr: {{bootstrap-server: '{target.bootstrap}'}}}}\n")
    file.write_text(policy(topic))
    config_is = str(config)
    rows = {
        one["group"]: one
        for one in world.cli("groups", "-p", str(file), "-o", "json", KRETAIN_CONFIG=config_is).json()["groups"]
    }
    assert rows["replica:dr"]["type"] == "replica"
    assert topic in rows["replica:dr"]["topics"]
    assert (
        "replica:dr can be read: it has positions on"
        in world.cli("doctor", "-p", str(file), KRETAIN_CONFIG=config_is).out
    )
    assert (
        world.cli("plan", "-p", str(file), "-o", "json", KRETAIN_CONFIG=config_is).json()["partitions"][0]["trim_to"]
        == 10
    )
    spark = world.cli(
        "plan", "-p", str(file), "--spark", "--master", "local[2]", "-o", "json", KRETAIN_CONFIG=config_is
    ).json()["partitions"][0]
    assert (spark["trim_to"], spark["min_commit"]) == (10, 10)
    config.write_text("contexts: {other: {bootstrap-server: 'a:1'}}\n")
    held = world.cli("plan", "-p", str(file), "-o", "json", KRETAIN_CONFIG=config_is).json()["partitions"][0]
    assert "there is no context 'dr'; it has other" in held["reasons"][0]["text"]


def test_record_rejected_by_the_target_stays_until_copied(
    world: World, dr: World, copying: subprocess.Popen[bytes]
) -> None:
    """What follows was in flight: it is copied, and syncs tell so, but the connector, which has failed, is before it."""
    topic = make(world)
    until(world, topic, lambda one: one.trim_to == 10)
    dr.configure(f"primary.{topic}", {"max.message.bytes": "20000"})
    with paused(copying):
        world.produce(topic, [4 * HOUR] * 5)
        world.produce(topic, [4 * HOUR], value=b"y" * 60_000)
        world.produce(topic, [4 * HOUR] * 394)
        read_by_group(world, topic, 410)
    wait_until(lambda: dr.ends(f"primary.{topic}")[1] > 20, "records after the one that was refused", 60)
    for _ in range(20):
        plan = world.plan(policy(topic))
        world.trim(plan, policy(topic))
        assert world.ends(topic)[0] <= 15
        time.sleep(0.2)


def test_unparsable_sync_message_makes_the_replica_unreadable(world: World, copying: subprocess.Popen[bytes]) -> None:
    """Last of all: MirrorMaker 2 can't read its topic any more, either."""
    topic = make(world)
    producer = Producer({"bootstrap.servers": world.bootstrap})
    producer.produce(SYNCS, b"odd", b"odd")
    assert producer.flush(30) == 0
    held = world.decide(policy(topic), topic)
    assert held.action == "hold"
    assert f"{SYNCS}-0: the message at offset" in said(held)
