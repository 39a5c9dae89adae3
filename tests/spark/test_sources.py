"""The data sources, as somebody's notebook reads them (docs/spark.md)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retention_cli.brokers.errors import BrokerError
from retention_cli.engines.spark.session import is_connect, open_session, stop_session
from retention_cli.engines.spark.sources import Options
from retention_cli.spark import register
from tests.support.world import HOUR, World, now_ms

ELSEWHERE = "TESTS_SOURCES_AT"
"""Where this file's tests are to read, and of which cluster: a process has one Spark, so each has one of its own."""


@pytest.fixture(scope="module")
def notebook(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if ELSEWHERE in os.environ:
        conf = {} if is_connect(_at()[0]) else {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
        session = open_session(_at()[0], conf, tmp_path_factory.mktemp("notebook"))
    else:
        session = request.getfixturevalue("local_spark")
    for _ in range(2):  # a cell of a notebook is run again
        register(session)
    yield session
    if ELSEWHERE in os.environ:
        stop_session(session)


def _at() -> tuple[str, str]:
    master, bootstrap = os.environ[ELSEWHERE].split("|")
    return master, bootstrap


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    bootstrap = _at()[1] if ELSEWHERE in os.environ else request.getfixturevalue("kafka").bootstrap
    return World(bootstrap, tmp_path / "state")


@pytest.mark.long  # a session each
@pytest.mark.parametrize("where", ["spark_standalone", "spark_connect"])
def test_data_source_tests_pass_on_another_spark(where: str, world: World, request: pytest.FixtureRequest) -> None:
    """All that this file says of the sources, on a standalone cluster and over Connect."""
    spark = request.getfixturevalue(where)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider", __file__],
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
        env={**spark.environment(), "PYTHONPATH": ":".join(sys.path), ELSEWHERE: f"{spark.url}|{world.bootstrap}"},
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert re.search(r"\b[6-9] passed", done.stdout), done.stdout


def load(notebook: Any, source: str, world: World, **options: str) -> Any:
    return notebook.read.format(f"kretain.{source}").options(**{"bootstrap.servers": world.bootstrap, **options}).load()


def test_commits_source_has_rows_and_lists_missing_commits(notebook: Any, world: World) -> None:
    """F2: a partition without a commit of a group that reads the topic is no gap in the rows."""
    topic = world.filled([HOUR] * 9, {"a": {0: 4, 2: 9}, "b": {0: 1, 1: 2, 2: 3}}, 3)
    frame = load(notebook, "commits", world, topics=topic)
    rows = [(row.group, row.partition, row.kind, row.offset) for row in frame.where(f"topic = '{topic}'").collect()]
    assert sorted(rows) == [
        (f"{topic}-a", 0, "commit", 4),
        (f"{topic}-a", 1, "missing", None),
        (f"{topic}-a", 2, "commit", 9),
        (f"{topic}-b", 0, "commit", 1),
        (f"{topic}-b", 1, "commit", 2),
        (f"{topic}-b", 2, "commit", 3),
    ]
    least = frame.where(f"topic = '{topic}' and kind = 'commit'").groupBy("partition").min("offset")
    assert dict(map(tuple, least.collect())) == {0: 1, 1: 2, 2: 3}
    assert load(notebook, "commits", world).where(f"group = '{topic}-b' and topic = '{topic}'").count() == 3


def test_offsets_source_has_ends_and_look_ups(notebook: Any, world: World) -> None:
    """docs/rules.md, Look-ups: the offset before which every record is older, the end of the log where all are."""
    topic, empty = world.topic(partitions=2), world.topic()
    now = now_ms()
    world.produce(topic, [5 * HOUR, 4 * HOUR, 2 * HOUR, HOUR])
    world.delete_records(topic, 1)
    frame = load(notebook, "offsets", world, topics=f"{topic},{empty}", times=f"{now - 3 * HOUR},{now}")
    rows = {(row.topic, row.partition): row for row in frame.collect()}
    assert rows.keys() == {(topic, 0), (topic, 1), (empty, 0)}
    read = rows[topic, 0]
    assert (read.log_start, read.high_watermark, read.last_stable_offset) == (1, 4, 4)
    assert (read.cleanup_policy, read.retention_ms, read.internal) == ("delete", -1, False)
    assert read.unknown == []
    assert {one.time: one.offset for one in read.lookups} == {now - 3 * HOUR: 2, now: 4}
    assert rows[empty, 0].high_watermark == 0
    [only] = frame.where(f"topic = '{topic}' and partition = 1").collect()
    assert (only.topic, only.partition) == (topic, 1)
    assert frame.where("partition = 7").count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nonsense": "1"}, "unknown option 'nonsense'"),
        ({"command.config": "/nowhere/client.properties"}, "/nowhere/client.properties"),
    ],
)
def test_data_source_names_a_wrong_option(notebook: Any, world: World, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        load(notebook, "offsets", world, **options).collect()


def test_data_source_of_an_unreachable_cluster_is_an_error(notebook: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        load(notebook, "commits", World("127.0.0.1:1", tmp_path), timeout="2s").count()


def test_data_source_task_that_reaches_another_cluster_reads_nothing(world: World) -> None:
    """An address may mean another cluster on an executor's machine: its groups are not those that count."""
    options = Options.of({"bootstrap.servers": world.bootstrap})
    with (
        pytest.raises(BrokerError, match="from here, not one-that-is-elsewhere"),
        options.reader_at("one-that-is-elsewhere"),
    ):
        pass
