"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kretain.embedded import EmbeddedKafka
from tests.conftest import QUICK
from tests.support.world import World


@pytest.fixture(scope="module")
def single(archived_classes: None) -> Iterator[EmbeddedKafka]:
    """One node, which has no policy topic at first."""
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
