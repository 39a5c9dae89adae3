from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clusters import EmbeddedKafka
from tests.support.world import World


@pytest.fixture
def here(single: EmbeddedKafka, tmp_path: Path) -> World:
    return World(single.bootstrap, tmp_path / "a" / "state")


@pytest.fixture
def electing(here: World) -> World:
    """The same node, with the topic that instances are elected by."""
    here.cli("cluster", "init", "--yes", check=0)
    return here
