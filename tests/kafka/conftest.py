"""Topics that more than one module looks at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import QUICK
from tests.support.advising import ANY_STAMP, Shop
from tests.support.clusters import EmbeddedKafka
from tests.support.world import DAY, HOUR, MIB, MINUTE, World


@pytest.fixture(scope="session", autouse=True)
def _from_archived_classes(archived_classes: None) -> None:
    """So do the clusters that tests start for themselves."""


@pytest.fixture(scope="module")
def single(archived_classes: None) -> Iterator[EmbeddedKafka]:
    """One node for a file alone: how full its disk is, and which of kretain's topics it has, no other test decides."""
    with EmbeddedKafka(1, settings=QUICK) as cluster:
        yield cluster


@pytest.fixture
def here(single: EmbeddedKafka, tmp_path: Path) -> World:
    return World(single.bootstrap, tmp_path / "a" / "state")


@pytest.fixture
def electing(here: World) -> World:
    """The same node, with the topic that instances are elected by."""
    here.cli("cluster", "init", "--yes", check=0)
    return here


@pytest.fixture(scope="session")
def advised(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A topic for each danger, in other respects well."""
    world = World(kafka.bootstrap, tmp_path_factory.mktemp("advise") / "state")
    week: dict[str, Any] = {"retention_ms": str(7 * DAY), "segment_ms": str(DAY)}
    hour: dict[str, Any] = {"retention_ms": str(HOUR), "segment_ms": str(7 * DAY)}
    settings: dict[str, dict[str, Any]] = {
        "good": week,
        "compacted": hour | {"cleanup_policy": "compact"},
        "segment": hour,
        "filled": hour | {"segment_bytes": str(MIB)},
        "future": week | {"message_timestamp_after_max_ms": ANY_STAMP},
        "sized": week | {"retention_bytes": str(MIB), "segment_bytes": str(MIB)},
        "long": week | {"retention_ms": str(30 * DAY)},
    }
    names = {
        stem: world.topic(f"adv-{stem}", partitions=2 if stem in ("sized", "future") else 1, **config)
        for stem, config in settings.items()
    }
    # a record every six minutes of the last day, 100 bytes each
    world.produce(names["good"], [6 * MINUTE * n + 3 * MINUTE for n in range(239, -1, -1)])
    for stem in ("compacted", "segment", "long"):
        world.produce(names[stem], [40 * MINUTE, 20 * MINUTE])
    world.produce(names["future"], [MINUTE, -3 * DAY, 0], partition=1)
    for partition in (0, 1):
        world.produce(names["sized"], [MINUTE] * 700, partition, value=b"\x00" * 1000)
    world.produce(names["filled"], [MINUTE] * 2500, value=b"\x00" * 1000)
    return world, names


@pytest.fixture
def topic(world: World) -> str:
    """Ten old records; group a has read eight."""
    return world.filled([30 * HOUR] * 10, {"a": 8})
