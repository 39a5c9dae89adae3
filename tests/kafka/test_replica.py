"""What MirrorMaker 2 has yet to copy to another cluster stays (F7): two real clusters, and MirrorMaker 2 itself."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kretain.embedded.cluster import EmbeddedKafka
from tests.kafka.mirror_maker import mirror_maker
from tests.kafka.world import HOUR, World, consumed, wait_until

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]

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
    return consumed(topic, after="0") + f"\nfloors:\n  - {{replica: dr, timeout: 30s{keys}}}"


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


def test_before_anything_is_copied_nothing_goes(world: World) -> None:
    topic = make(world)
    held = world.decide(policy(topic, remote__topics="primary.{topic}", offset__syncs="mm2-none"), topic)
    assert held.action == "hold"
    assert said(held) == (
        "F3: replica:dr could not be read: there is no topic mm2-none here, or this user may not describe it: write "
        "offset.syncs"
    )


def test_what_is_copied_goes_and_what_is_not_stays(world: World, dr: World, copying: subprocess.Popen[bytes]) -> None:
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
        assert "MirrorMaker 2 has told no offset sync" in said(world.decide(policy(late), late))
    until(world, topic, lambda one: one.trim_to == 15)
    until(world, late, lambda one: one.trim_to == 3)
    assert len(dr.records(f"primary.{topic}")) == 15
