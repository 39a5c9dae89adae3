"""A forecast of a real cluster, with days made seconds: what it says is kept and lost is what is kept and lost."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from retention_cli.forecast.reading import read_forecast
from retention_cli.forecast.steady import Terms
from retention_cli.forecast.value import Forecast, Span
from retention_cli.state.memories import Memories
from tests.support.plain import meanwhile
from tests.support.says import json_of, pick
from tests.support.watching import PLAIN, Watcher, watching
from tests.support.world import MIB, QUIET, World, consumed, now_ms, reader_for, wait_until, written


def test_deleted_group_holds_without_end_in_a_forecast(world: World) -> None:
    topic = world.filled(30, {"leaver": 10}, stem="left")
    policy = consumed(topic, "1s")
    foretell(world, policy)
    world.delete_group(f"{topic}-leaver")
    time.sleep(1.1)
    world.produce(topic, 30)
    (found,) = foretell(world, policy, least_ms=1000).topics
    assert (found.policy.records, [reason.code for reason in found.reasons]) == (Span(50, math.inf), ["F6"])


def test_forecast_command_changes_nothing_and_names_unknowns(world: World, tmp_path: Path) -> None:
    topic = world.filled(50, stem="quiet")
    file, other = (
        str(written(tmp_path / f"{days}.yaml", f"version: 1\ntopics: [{{match: {topic}, retention.ms: {days}d}}]\n"))
        for days in (1, 2)
    )
    found = json_of(world, "forecast", "-p", file, "--compare", other)
    assert (found["format"], found["compared"]["source"]) == ("kretain.forecast/v1", other)
    (row,) = found["topics"]
    assert pick(row, "policy", "compared", "alone", "now_records") == (*["unknown"] * 3, 50)
    assert "samples cover" in row["reasons"][0]["text"]
    assert any(not one["full_policy_in_known"] and one["reasons"] for one in found["disks"])
    assert world.ends(topic) == (0, 50)
    assert "Unknown for 1 topic" in world.cli("forecast", "-p", file, check=0).out
    titles, line = world.cli("forecast", "-p", file, "-o", "csv", check=0).out.splitlines()[:2]
    assert titles.startswith("topic,partitions,now_records")
    assert line.startswith(f"{topic},1,50,")


A_SECOND = 200
"""Records a second, of about 1 KiB."""


@contextmanager
def written_to(world: World, *topics: str) -> Iterator[None]:
    producer = Producer({"bootstrap.servers": world.bootstrap, "linger.ms": 5, "logger": QUIET})
    begun, count = time.monotonic(), 0

    def write() -> None:
        nonlocal count
        while count < (time.monotonic() - begun) * A_SECOND:
            for topic in topics:
                producer.produce(topic, b"x" * 1024, partition=0)
            count += 1
        producer.poll(0.02)

    with meanwhile(write):
        yield
    producer.flush(30)


def foretell(world: World, policy: str, least_ms: int = 3000) -> Forecast:
    chosen = world.selection(policy)
    with reader_for(world.bootstrap) as reader, closing(Memories(world.state_dir)) as memories:
        return read_forecast(reader, chosen, Terms(2000, least_ms, now_ms()), memories=memories)


QUICKLY = f"import retention_cli.watch.one_pass as one_pass\nassert one_pass.HOUR_MS\none_pass.HOUR_MS = 3000\n{PLAIN}"
"""Rates are measured over three seconds, not over an hour."""
SLACK_S = 3.0
"""A pass, a look, and what a busy machine is late by."""


EVENLY_S = 8.0
"""How far back a forecast depends on the writer (s): three seconds for the rate, then a pass and a scrape."""


def told(world: World, watcher: Watcher, group: str, topic: str, offset: int) -> list[tuple[float, float | None]]:
    """Return what was told until the record at an offset was gone: how long that was before, and the seconds told.

    Leave out forecasts that follow an uneven spell of writing: on a busy machine the writer falls behind, then catches up.
    """
    found: list[tuple[float, float | None, int]] = []

    def gone() -> bool:
        left = watcher.metrics().get(("kretain_group_seconds_to_loss", f"group:{group}", topic))
        start, end = world.ends(topic)
        found.append((time.monotonic(), left, end))
        return start > offset

    wait_until(gone, "the loss that was foretold", 90)
    lost = found[-1][0]
    evenly = []
    for at, left, end in found:
        before, had = next((then, had) for then, _, had in found if then > at - EVENLY_S)
        if 0.8 < (end - had + 1) / ((at - before) * A_SECOND + 1) < 1.25:
            evenly.append((lost - at, left))
    return evenly


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "by", [pytest.param("R6", marks=pytest.mark.thorough), pytest.param("the brokers' size", marks=pytest.mark.long)]
)
def test_seconds_to_loss_is_between_half_and_all_of_the_real_time(here: World, by: str, tmp_path: Path) -> None:
    """A group that has stopped; its disk fills, or its topic has a ``retention.bytes``."""
    size, unconsumed, ceiling = {
        "R6": ("-1", "trim", ", log.retention.disk.usage.percent: 50"),
        "the brokers' size": (str(4 * MIB), "hold", ""),
    }[by]
    topic = here.topic("losing", segment_bytes=str(MIB), retention_bytes=size)
    disks = f"disks: {{capacity: {12 * MIB}{ceiling}}}"
    policy = written(tmp_path / "policy.yaml", f"{consumed(topic, unconsumed=unconsumed)}\n{disks}\n")
    with (
        written_to(here, topic),
        watching(here, policy, "--trim", "--interval", "3s", code=QUICKLY) as watcher,
    ):
        wait_until(lambda: here.ends(topic)[1] > 3 * A_SECOND, "some records")
        offset = here.ends(topic)[1]
        here.commit(f"{topic}-group", topic, offset)
        found = told(here, watcher, f"{topic}-group", topic, offset)
        lost = ("kretain_group_seconds_to_loss", f"group:{topic}-group", topic)
        wait_until(lambda: watcher.metrics().get(lost) == 0, "that it has lost some")
    here.delete(topic)
    numbers = [(truly, left) for truly, left in found if left is not None]
    early = [(truly, left) for truly, left in numbers if truly > 6]
    assert early, found
    assert all(left <= truly + SLACK_S for truly, left in numbers), numbers
    assert sum(left >= truly / 2 for truly, left in early) > len(early) / 2, early
