"""Topics that more than one module looks at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import QUICK
from tests.support.clusters import EmbeddedKafka
from tests.support.world import HOUR, World


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


@pytest.fixture
def topic(world: World) -> str:
    """Ten old records; group a has read eight."""
    return world.filled([30 * HOUR] * 10, {"a": 8})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where an archive is to be."""
    return tmp_path / "archive"
