"""The data sources, as somebody's notebook reads them (docs/spark.md)."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from kretain.embedded import EmbeddedKafka
from retention_cli.brokers.errors import BrokerError
from retention_cli.engines.spark.session import is_connect, open_session, stop_session
from retention_cli.engines.spark.source_options import Options
from retention_cli.spark import register
from tests.kafka.world import DAY, HOUR, QUIET, World, now_ms, reader_for, wait_until
from tests.spark.clusters import spark_connect, spark_standalone

__all__ = ["spark_connect", "spark_standalone"]
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


def over_connect() -> bool:
    return ELSEWHERE in os.environ and is_connect(_at()[0])


def _at() -> tuple[str, str]:
    master, bootstrap = os.environ[ELSEWHERE].split("|")
    return master, bootstrap


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if ELSEWHERE in os.environ:
        return World(_at()[1], tmp_path / "state")
    return World(request.getfixturevalue("kafka").bootstrap, tmp_path / "state")


@pytest.mark.thorough
@pytest.mark.long  # a session each
@pytest.mark.parametrize("where", ["spark_standalone", "spark_connect"])
def test_the_same_reads_elsewhere(where: str, world: World, request: pytest.FixtureRequest) -> None:
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
    assert re.search(r"\b1[0-9] passed", done.stdout), done.stdout


def load(notebook: Any, source: str, world: World, **options: str) -> Any:
    reader = notebook.read.format(f"kretain.{source}").option("bootstrap.servers", world.bootstrap)
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load()


def test_commits_are_rows_and_what_a_group_lacks_is_one_too(notebook: Any, world: World) -> None:
    """F2: a partition without a commit of a group that reads the topic is no gap in the rows."""
    topic = world.topic(partitions=3)
    for partition in range(3):
        world.produce(topic, [HOUR] * 9, partition)
    world.commit(f"{topic}-a", topic, {0: 4, 2: 9})
    world.commit(f"{topic}-b", topic, {0: 1, 1: 2, 2: 3})
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
    one = load(notebook, "commits", world).where(f"group = '{topic}-b' and topic = '{topic}'")
    assert one.count() == 3


def test_offsets_are_the_ends_and_the_look_ups(notebook: Any, world: World) -> None:
    """docs/rules.md, Look-ups: the offset before which every record is older, the end of the log where all are."""
    topic, empty = world.topic(partitions=2), world.topic()
    now = now_ms()
    world.produce(topic, [5 * HOUR, 4 * HOUR, 2 * HOUR, HOUR])
    world.delete_records(topic, 1)
    times = f"{now - 3 * HOUR},{now}"
    frame = load(notebook, "offsets", world, topics=f"{topic},{empty}", times=times)
    rows = {(row.topic, row.partition): row for row in frame.collect()}
    assert rows.keys() == {(topic, 0), (topic, 1), (empty, 0)}
    read = rows[topic, 0]
    assert (read.log_start, read.high_watermark, read.last_stable_offset) == (1, 4, 4)
    assert (read.cleanup_policy, read.retention_ms, read.internal) == ("delete", -1, False)
    assert read.unknown == []
    assert {one.time: one.offset for one in read.lookups} == {now - 3 * HOUR: 2, now: 4}
    assert rows[empty, 0].high_watermark == 0
    only = frame.where(f"topic = '{topic}' and partition = 1")
    assert [(row.topic, row.partition) for row in only.collect()] == [(topic, 1)]
    assert frame.where("partition = 7").count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nonsense": "1"}, "unknown option 'nonsense'"),
        ({"command.config": "/nowhere/client.properties"}, "/nowhere/client.properties"),
    ],
)
def test_a_wrong_option_is_said(notebook: Any, world: World, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        load(notebook, "offsets", world, **options).collect()


def test_a_cluster_that_is_not_there_is_an_error_and_no_empty_frame(notebook: Any, tmp_path: Path) -> None:
    nowhere = World("127.0.0.1:1", tmp_path)
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        load(notebook, "commits", nowhere, timeout="2s").count()


def test_sizes_are_what_lies_in_log_dirs_and_how_full_they_are(notebook: Any, world: World) -> None:
    topic = world.topic(partitions=2, replicas=3)
    world.produce(topic, [HOUR] * 50)
    rows = load(notebook, "sizes", world, topics=topic).collect()
    with reader_for(world.bootstrap) as reader:
        told = reader.log_dirs(reader.brokers())
    expected = {
        (broker, folder.path, one.tp.topic, one.tp.partition): one.size_bytes
        for broker, dirs in told.items()
        if not isinstance(dirs, Exception)
        for folder in dirs
        for one in folder.replicas
        if one.tp.topic == topic
    }
    assert len(expected) == 6
    assert {(row.broker, row.log_dir, row.topic, row.partition): row.bytes for row in rows} == expected
    assert all(row.bytes > 0 for row in rows if row.partition == 0)
    assert {(row.offset_lag, row.is_future, len(row.unknown)) for row in rows} == {(0, False, 0)}
    assert all(0 < row.usable_bytes < row.total_bytes for row in rows)
    frame = load(notebook, "sizes", world)
    one = frame.where(f"broker = 2 and topic = '{topic}' and partition in (1, 7)")
    assert [(row.broker, row.partition) for row in one.collect()] == [(2, 1)]
    nobody = load(notebook, "sizes", world, topics="no-such-topic").collect()
    assert {(row.broker, row.topic) for row in nobody} == {(1, None), (2, None), (3, None)}, "volumes are there anyway"


@pytest.mark.long  # a cluster of its own
def test_a_log_dir_that_is_offline_and_a_broker_that_is_gone_are_rows(notebook: Any, tmp_path: Path) -> None:
    with EmbeddedKafka(3, log_dirs=2) as three:
        world = World(three.bootstrap, tmp_path / "state")
        topic = world.topic(partitions=6, replicas=3)
        world.produce(topic, [HOUR] * 10)
        lost = three.nodes[1].log_dirs[1]
        lost.rename(tmp_path / "away")
        lost.touch()  # what the broker finds there now is no folder
        three.nodes[2].kill()

        def rows() -> list[Any]:
            for partition in range(6):
                with contextlib.suppress(AssertionError, KafkaException):
                    world.produce(topic, [HOUR], partition)
            frame = load(notebook, "sizes", world, topics=topic, timeout="10s")
            return list(frame.where("size(unknown) > 0").collect())

        wait_until(lambda: {row.broker for row in rows()} == {2, 3}, "both are seen to be gone", 120)
        said = {row.broker: row for row in rows()}
        assert said[2].log_dir == str(lost)
        assert "log dir" in said[2].unknown[0].text
        assert (said[2].topic, said[2].bytes, said[2].total_bytes) == (None, None, None)
        assert (said[3].log_dir, said[3].topic) == (None, None)
        assert "is it down?" in said[3].unknown[0].text


def test_records_are_what_a_consumer_reads_however_they_are_cut(notebook: Any, world: World) -> None:
    topic = world.topic(partitions=2)
    base = now_ms() - DAY
    stamps = [base + n * 1000 for n in range(2500)]
    world.produce_at(topic, stamps, 0, headers=lambda n: [("at", str(stamps[n] - 7).encode())] if n % 2 else None)
    world.transaction(topic, [base] * 3, end="commit", partition=1)
    world.transaction(topic, [base] * 3, end="abort", partition=1)
    tombstones = Producer({"bootstrap.servers": world.bootstrap, "logger": QUIET})
    tombstones.produce(topic, None, b"key", partition=1, timestamp=base + 5)
    assert tombstones.flush(60) == 0
    wait_until(lambda: len(world.records(topic, 1)) == 4, "markers are written")
    last = world.records(topic, 1)[-1][0]
    world.delete_records(topic, 5)
    frame = load(notebook, "records", world, topics=topic, **{"event.time": "header:at", "slice.offsets": "700"})
    if not over_connect():
        assert frame.rdd.getNumPartitions() >= 4
    rows = {(row.partition, row.offset): row for row in frame.collect()}
    assert len(rows) == 2495 + 4
    first = [rows[0, n] for n in range(5, 2500)]
    assert [one.timestamp for one in first] == stamps[5:]
    assert [one.event_time for one in first] == [stamps[n] - 7 if n % 2 else None for n in range(5, 2500)]
    assert [one.bytes for one in first] == [100 + len(f"k{n}") + (15 if n % 2 else 0) for n in range(5, 2500)]
    assert {row.offset: row.tombstone for row in rows.values() if row.partition == 1} == {
        **dict.fromkeys((0, 1, 2), False),
        last: True,
    }
    assert (rows[1, last].bytes, rows[1, last].timestamp, rows[1, last].event_time) == (3, base + 5, None)
    some = frame.where("partition = 0 and offset >= 100 and offset < 103").select("offset", "timestamp").collect()
    assert sorted(map(tuple, some)) == [(n, stamps[n]) for n in (100, 101, 102)]
    by_options = {"from.offset": "100", "to.offset": "2400", "from.time": str(stamps[50]), "to.time": str(stamps[120])}
    window = load(notebook, "records", world, topics=topic, **by_options).where("partition = 0")
    assert sorted(row.offset for row in window.collect()) == list(range(100, 120))
    assert load(notebook, "records", world, topics=topic).where("partition = 9").count() == 0


def test_records_behind_an_open_transaction_are_not_waited_for(notebook: Any, world: World) -> None:
    topic = world.topic()
    world.produce(topic, [HOUR] * 30)
    open_one = world.transaction(topic, [HOUR] * 50, end="open")
    try:
        frame = load(notebook, "records", world, topics=topic, timeout="20s", **{"slice.offsets": "10"})
        assert frame.count() == 30
    finally:
        open_one.abort_transaction(30)


def test_records_that_went_while_they_were_come_to_are_an_error_and_no_shorter_frame(
    notebook: Any, world: World
) -> None:
    """A part of a frame that is taken for all would be a lie."""
    if over_connect():
        pytest.skip("a frame over Connect is planned when it is read")
    topic = world.topic()
    world.produce(topic, [HOUR] * 100)
    frame = load(notebook, "records", world, topics=topic, **{"slice.offsets": "30"})
    planned = frame.rdd  # what is read is fixed here
    world.delete_records(topic, 40)
    lost = r"(0 to 30 those from 0|30 to 60 those from 30) on were deleted before they could be read"  # whichever fails first
    with pytest.raises(Exception, match=rf"{topic}-0: of the records from offset {lost}"):
        planned.count()
    behind = load(notebook, "records", world, topics=topic, gone="skip", **{"slice.offsets": "30"})
    planned = behind.rdd
    world.delete_records(topic, 50)
    assert sorted(row.offset for row in planned.collect()) == list(range(50, 100))
    assert load(notebook, "records", world, topics=topic).count() == 50


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "reads every record of its topics: name them"),
        ({"topics": "no-such-topic"}, "no topic matches"),
        ({"topics": "*", "event.time": "body"}, "is not timestamp, header:NAME or json:/pointer"),
        ({"topics": "*", "gone": "maybe"}, "'maybe' is not fail or skip"),
        ({"topics": "*", "from.offset": "-1"}, "'-1' is no number of offsets"),
    ],
)
def test_records_want_to_be_asked_for_by_name(notebook: Any, world: World, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        load(notebook, "records", world, **options).collect()


def test_a_task_that_comes_to_another_cluster_reads_nothing_of_it(world: World) -> None:
    """An address may mean another cluster on an executor's machine: its groups are not those that count."""
    options = Options.of({"bootstrap.servers": world.bootstrap})
    with (
        pytest.raises(BrokerError, match="from here, not one-that-is-elsewhere"),
        options.reader_at("one-that-is-elsewhere"),
    ):
        pass
