"""``kretain profile --spark`` finds what this process finds by itself, byte for byte."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kretain.render.profile import print_profile
from retention_cli.core.model import TopicPartition
from retention_cli.engines.spark import profile as spark_profile
from retention_cli.engines.spark.profile import SparkReading
from retention_cli.engines.spark.shipping import Sender
from retention_cli.policy.load import parse_policy
from retention_cli.profile.hours import summarize
from retention_cli.profile.reading import Profile, Wanted, all_rows, fill, head, prepare, write_parquet
from tests.support.world import DAY, HOUR, World, now_ms, reader_for

ANY_STAMP = str(2**63 - 1)


def profiled(world: World, wanted: Wanted, sender: Sender | None = None, most: int = 1) -> Profile:
    with reader_for(world.bootstrap) as reader:
        found = prepare(reader, wanted)
        fill(reader, found, read=None if sender is None else SparkReading(sender, reader, most))
    return found


@pytest.fixture(scope="module")
def odd(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    """Out of order over every seam, stamps of all kinds, headers, transactions that ended, one that is open, nothing."""
    world = World(kafka.bootstrap, tmp_path_factory.mktemp("odd") / "state")
    topic = world.topic("odd", partitions=4, message_timestamp_after_max_ms=ANY_STAMP)
    now, chance = now_ms(), random.Random(5)
    stamps = [now - DAY + n * 20_000 - chance.choice((0, 0, 0, 1, 60_000, 2 * HOUR)) for n in range(3000)]
    for place, stamp in ((500, now * 1000), (1400, now // 1000), (2100, now + 2 * HOUR)):
        stamps[place] = stamp
    world.produce_at(
        topic, stamps, 0, headers=lambda n: [("at", str(stamps[n] - HOUR).encode())] if n % 3 else None, batch=100
    )
    world.delete_records(topic, 37)
    world.transaction(topic, [now - HOUR] * 40, end="commit", partition=1)
    world.transaction(topic, [now - HOUR] * 40, end="abort", partition=1)
    world.produce_at(topic, [now - 2 * HOUR] * 150, 1)
    world.produce_at(topic, [now - HOUR] * 130, 2)
    open_one = world.transaction(topic, [now] * 90, end="open", partition=2)
    yield world, topic
    open_one.abort_transaction(30)


@pytest.mark.parametrize("how", ["stamps", "event times", "window"])
def test_spark_profile_equals_the_local_one(
    how: str, local_spark: Any, odd: tuple[World, str], tmp_path: Path, capsys: Any
) -> None:
    """Whatever is cut where; in the terminal, as JSON and as Parquet."""
    world, topic = odd
    now = now_ms()
    policy = parse_policy(
        f'version: 1\ntopics: [{{match: {topic}, retention.eventtime.source: "header:at", retention.ms: 1d}}]',
        "policy.yaml",
        "sha256:test",
    )
    wanted = {
        "stamps": Wanted((topic,), now),
        "event times": Wanted((topic,), now, policy, by_event_time=True),
        "window": Wanted((topic,), now, policy, from_ms=now - 20 * HOUR, to_ms=now - 3 * HOUR),
    }[how]
    told = []
    for found in (profiled(world, wanted), profiled(world, wanted, Sender(local_spark, tmp_path), 170)):
        for output in ("table", "json"):
            print_profile(found, output, of_bytes=False)
        file = tmp_path / "profile.parquet"
        write_parquet(file, head(found), all_rows(found.topics.values()))
        told.append((capsys.readouterr().out, file.read_bytes()))
    assert told[0] == told[1]
    assert "an open transaction begins at offset 130" in told[0][0]
    assert summarize(found.topics[topic].partitions).late_exact


def test_spark_profile_names_partitions_that_executors_cannot_reach(
    local_spark: Any, world: World, tmp_path: Path
) -> None:
    topic = world.filled([HOUR] * 10, partitions=2)
    sender = Sender(local_spark, tmp_path, str(tmp_path / "no.properties"))
    (unread,) = profiled(world, Wanted((topic,), now_ms()), sender, 5).unread
    assert (unread.tp, unread.reached, unread.end) == (TopicPartition(topic, 0), 0, 10)
    assert "no.properties" in unread.text


def test_interrupted_spark_profile_shows_what_was_merged(
    local_spark: Any, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_profile, "SLICES_A_JOB", 1)
    monkeypatch.setattr(spark_profile, "JOBS_AT_ONCE", 2)
    topic = world.filled([HOUR] * 1000)
    told: list[str] = []

    def progress(phase: str, done: int = 0, total: int | None = None) -> None:
        if done:
            told.append(phase)

    with reader_for(world.bootstrap) as reader:
        found = prepare(reader, Wanted((topic,), now_ms()))
        fill(reader, found, progress, lambda: bool(told), SparkReading(Sender(local_spark, tmp_path), reader, 25))
    assert found.interrupted
    (unread,) = found.unread
    assert unread.text == "reading was interrupted"
    assert unread.reached is not None
    assert unread.reached % 25 == 0
    assert summarize(found.topics[topic].partitions).records == unread.reached < 1000
