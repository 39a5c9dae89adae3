"""One local Spark a session; other masters have fixtures of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from retention_cli.engines.spark.session import open_session
from tests.support.clusters import EmbeddedKafka
from tests.support.fleet import Fleet
from tests.support.spark.clusters import QUICK_START, spark_connect, spark_standalone
from tests.support.spark.hadoop import hadoop_files, spark_yarn
from tests.support.world import World

__all__ = ["hadoop_files", "spark_connect", "spark_standalone", "spark_yarn"]


@pytest.fixture(scope="session", autouse=True)
def _from_archived_classes(archived_classes: None) -> None:
    """So do the clusters that tests start for themselves."""


@pytest.fixture(scope="session")
def local_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Spark in this process, with two workers."""
    session = open_session("local[2]", {"spark.driver.extraJavaOptions": QUICK_START}, tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="module")
def fleet(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    world = World(kafka.bootstrap, tmp_path_factory.mktemp("fleet") / "state")
    with closing(Fleet(world, 13, topics=10)) as fleet:
        fleet.build()
        yield fleet
