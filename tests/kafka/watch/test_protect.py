"""What a group may lose: foretold by a forecast, prevented by ``kretain protect``. The broker's retention check runs each second."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic, ResourceType  # type: ignore[attr-defined]

from retention_cli.brokers.metadata import TopicValue
from retention_cli.forecast.reading import read_forecast
from retention_cli.forecast.steady import Terms
from retention_cli.forecast.value import Forecast, Span
from retention_cli.state.memories import Memories
from tests.support.plain import meanwhile
from tests.support.says import json_of, pick, refuses
from tests.support.terminal import Terminal
from tests.support.trims import audit
from tests.support.watching import PLAIN, Watcher, policy_of as empty_policy_of, watching
from tests.support.world import DAY, MIB, QUIET, World, consumed, now_ms, reader_for, wait_until, written

SECOND = 1000
MINUTES: Final = float(os.environ.get("PROTECT_MINUTES", "1.5"))
"""How long the consumer that stops is watched: for two thirds of that it does not read."""


@pytest.fixture
def world(electing: World) -> World:
    electing.cli("cluster", "init", "--protect", "--yes", check=0)
    return electing


def policy_of(world: World, topic: str, group: str = "billing", max_: str = "10m") -> Path:
    rule = f"{{match: {topic}, retention.until.consumed: {{groups: [{group}], max: {max_}}}}}"
    return written(empty_policy_of(world), f"version: 1\ntopics: [{rule}]\n")


def value(world: World, topic: str, key: str = "retention.ms") -> TopicValue:
    with reader_for(world.bootstrap) as reader:
        values = reader.own_values([topic], [key])[topic]
    assert isinstance(values, dict), values
    return values[key]


def own(world: World, topic: str, key: str = "retention.ms") -> str | None:
    found = value(world, topic, key)
    return found.value if found.own else None


def expiring(world: World, stem: str, retention_ms: int = 20 * SECOND) -> str:
    """Make a topic whose segments are closed after a second, with some records in each of three."""
    topic = world.topic(stem, retention_ms=str(retention_ms), segment_ms="1000")
    for _ in range(3):
        world.produce(topic, 10)
        time.sleep(1.1)
    world.produce(topic, 1)
    return topic


def protect(world: World, policy: Path, *more: str, every: str = "1s") -> Any:
    found = json_of(world, "protect", "-p", str(policy), "--every", every, *more)["settings"]
    return {row["setting"]: row for row in found}


def test_protect_once_raises_what_would_expire_and_restores_it_when_the_group_has_read(world: World) -> None:
    """P1, P2: a plan first; the record is on the cluster, and a machine without any memory restores the original."""
    topic = expiring(world, "once", 60 * SECOND)  # long enough for a slow machine
    world.commit("billing", topic, 0)
    policy = policy_of(world, topic)
    planned = protect(world, policy, "--dry-run", every="30s")["retention.ms"]
    assert pick(planned, "action", "group", "old") == ("raise", "billing", 60 * SECOND)
    assert planned["new"] > 60 * SECOND
    assert own(world, topic) == str(60 * SECOND)
    made = protect(world, policy, "--yes", every="30s")["retention.ms"]
    assert (made["outcome"], own(world, topic)) == ("done", str(made["new"]))
    world.commit("billing", topic, world.ends(topic)[1])
    elsewhere = World(world.bootstrap, world.state_dir.parent / "elsewhere")
    assert protect(elsewhere, policy, "--yes", every="30s")["retention.ms"]["action"] == "restore"
    assert own(world, topic) == str(60 * SECOND)
    assert [one["event"] for one in audit(world)] == ["protect", "protected"]
    assert world.cli("history", "--verify", check=0)


def test_answer_that_comes_after_the_next_pass_was_due_changes_nothing(world: World) -> None:
    """P2: the plan restores the original, and what the group has not read by then may be due under it."""
    topic = expiring(world, "asked", 60 * SECOND)
    world.commit("billing", topic, 0)
    policy = policy_of(world, topic)
    protect(world, policy, "--yes", every="30s")
    raised = own(world, topic)
    world.commit("billing", topic, world.ends(topic)[1])
    command = [sys.executable, "-m", "kretain", "protect", "-p", str(policy), "--every", "2s", "-b", world.bootstrap]
    with Terminal([*command, "--state-dir", str(world.state_dir)], columns=200) as terminal:
        terminal.read_until("[y/N]")
        world.commit("billing", topic, 0)
        time.sleep(2.1)
        terminal.type("y\n")
        assert terminal.wait() == 6, terminal.text
    assert "the answer took longer than --every" in terminal.text
    assert own(world, topic) == raised != str(60 * SECOND)


def test_misspelled_topic_is_named_by_protect(world: World) -> None:
    topic = world.topic("misspelled")
    policy = str(policy_of(world, topic))
    refuses(world.cli("protect", "-p", policy, f"{topic}x"), f"no topic matches '{topic}x'; did you mean ")


def test_protect_raises_what_an_open_transaction_hides(world: World) -> None:
    """P2: nobody reads what is behind it, and a broker deletes it all the same."""
    topic = world.filled(3, stem="hidden", retention_ms="60000")
    world.commit("billing", topic, 3)
    producer = world.transaction(topic, [now_ms() - 50 * SECOND], end="open")
    world.produce(topic, 5)
    planned = protect(world, policy_of(world, topic), "--dry-run", every="5s")["retention.ms"]
    assert pick(planned, "action", "group") == ("raise", "billing")
    assert planned["new"] < 10 * 60 * SECOND  # its age is known: not up to max
    producer.abort_transaction(30)
    world.commit("billing", topic, world.ends(topic)[1])
    assert protect(world, policy_of(world, topic), "--dry-run", every="5s")["retention.ms"]["action"] == "none"


def test_default_that_becomes_larger_while_a_topic_is_raised_is_restored(world: World) -> None:
    """P4: the default is in hours, or set on the broker; kretain's own topic shows it."""
    topic = f"default-{os.getpid()}"
    world.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    world.await_leaders(topic, 1)
    world.produce(topic, [7 * DAY - 60 * SECOND, 0])
    policy = policy_of(world, topic, max_="14d")
    assert value(world, topic) == (str(7 * DAY), False)
    made = protect(world, policy, "--yes", every="30s")["retention.ms"]
    assert pick(made, "action", "original", "outcome") == ("raise", 7 * DAY, "done")
    assert int(own(world, topic) or 0) > 7 * DAY
    world.configure("1", {"log.retention.ms": str(9 * DAY)}, ResourceType.BROKER)
    try:
        wait_until(lambda: value(world, "_kretain_protected") == (str(9 * DAY), False), "the brokers' new default")
        made = protect(world, policy, "--yes", every="30s")["retention.ms"]
        assert pick(made, "action", "original", "outcome") == ("restore", 9 * DAY, "done")
        assert value(world, topic) == (str(9 * DAY), False)
    finally:
        world.configure("1", {"log.retention.ms": None}, ResourceType.BROKER)


@pytest.mark.thorough
def test_value_set_by_hand_counts_until_protect_is_told_to_resume(world: World) -> None:
    """P6: then its value is the original."""
    topic = world.filled([50 * SECOND], stem="hand", retention_ms="60000")
    policy = policy_of(world, topic)

    def row() -> dict[str, Any]:
        return protect(world, policy, "--yes", every="5s")["retention.ms"]  # type: ignore[no-any-return]

    assert row()["outcome"] == "done"
    world.configure(topic, {"retention.ms": "61000"})
    assert pick(row(), "action", "outcome") == ("release", "done")
    assert (row()["action"], own(world, topic)) == ("none", "61000")
    world.cli("protect", "-p", str(policy), "--resume", topic, "--yes", check=0)
    assert row()["original"] == 61000
    assert own(world, topic) != "61000"
    world.cli("protect", "-p", str(policy), "--restore", topic, "--yes", check=0)
    assert own(world, topic) == "61000"
    checks = json_of(world, "doctor", "-p", str(policy), topic, check=None)["checks"]
    texts = [one["text"] for one in checks if one["check"] == "protection"]
    assert texts[0] == "ALTER_CONFIGS on every topic to protect (1)"


@pytest.mark.thorough
def test_retention_bytes_is_raised_for_unread_bytes_and_the_ledger_knows_the_original(world: World) -> None:
    """P5: the topic of records is deleted, and this machine's ledger still has the original."""
    topic = world.filled(1_500, stem="sized", retention_bytes="200000", segment_bytes="1048576")
    policy = policy_of(world, topic)
    assert protect(world, policy, "--yes")["retention.bytes"]["outcome"] == "done"
    assert int(own(world, topic, "retention.bytes") or 0) > 200_000
    world.delete("_kretain_protected")
    world.cli("cluster", "init", "--protect", "--yes", check=0)
    world.commit("billing", topic, world.ends(topic)[1])
    assert protect(world, policy, "--yes")["retention.bytes"]["action"] == "restore"
    assert own(world, topic, "retention.bytes") == "200000"


@dataclass
class Reader:
    """A group that reads a topic in the background, commits, stops and comes back."""

    bootstrap: str
    topic: str
    group: str
    seen: list[int] = field(default_factory=list)

    @contextmanager
    def reading(self) -> Iterator[None]:
        settings = {"group.id": self.group, "auto.offset.reset": "earliest", "logger": QUIET}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "enable.auto.commit": False, **settings})
        consumer.subscribe([self.topic])

        def read() -> None:
            if some := [one for one in consumer.consume(1000, 0.2) if one.error() is None]:
                self.seen += [int(one.value() or b"-1") for one in some]
                consumer.commit(asynchronous=False)

        with closing(consumer), meanwhile(read):
            yield

    @property
    def lost(self) -> int:
        """How many records went before it read them."""
        return sum(later - earlier - 1 for earlier, later in zip(self.seen, self.seen[1:], strict=False))


@contextmanager
def numbered(bootstrap: str, *topics: str) -> Iterator[list[int]]:
    """Append consecutive numbers to each topic, five a second, for as long as the context is open; yield those."""
    producer = Producer({"bootstrap.servers": bootstrap, "logger": QUIET})
    numbers: list[int] = []

    def write() -> None:
        time.sleep(0.2)
        for topic in topics:
            producer.produce(topic, str(len(numbers)).encode(), partition=0)
        producer.flush(10)
        numbers.append(len(numbers))

    with meanwhile(write):
        yield numbers


@pytest.mark.long
@pytest.mark.timeout(300 + 60 * MINUTES)
def test_stopped_consumer_loses_nothing_while_watch_protects_and_loses_records_without(world: World) -> None:
    """What must be shown: it stops for two thirds of the time, and returns; then the original is restored."""
    minute = MINUTES * 60
    retention_s = max(20, round(minute / 15))
    interval = f"{max(1, retention_s // 20)}s"
    config: dict[str, Any] = {
        "retention_ms": str(retention_s * SECOND),
        "segment_ms": str(max(1, retention_s // 10) * SECOND),
    }
    kept, other = (world.topic(stem, **config) for stem in ("kept", "other"))
    readers = [Reader(world.bootstrap, topic, f"{topic}-billing") for topic in (kept, other)]
    policy = policy_of(world, kept, readers[0].group, max_="2h")
    largest = 0
    with (
        numbered(world.bootstrap, kept, other) as produced,
        watching(world, policy, "--protect", "--interval", interval) as watcher,
    ):
        with readers[0].reading(), readers[1].reading():
            wait_until(lambda: all(one.seen for one in readers), "both groups read")
            time.sleep(minute / 12)
        assert own(world, kept) == config["retention_ms"]
        stopped = time.monotonic()
        while time.monotonic() < stopped + minute * 2 / 3:
            time.sleep(1)
            largest = max(largest, int(own(world, kept) or 0))
        with readers[0].reading(), readers[1].reading():
            wait_until(lambda: own(world, kept) == config["retention_ms"], "the original value", minute / 3 + 30)
            time.sleep(5)
            last = produced[-1]
            wait_until(lambda: all(one.seen[-1] >= last for one in readers), "both groups read all")
        watcher.wait_for("retention.ms restored from")
        changes = watcher.metrics()[("kretain_protect_changes_total",)]
        assert watcher.metrics()[("kretain_protected_settings",)] == 0
    print(  # noqa: T201  (what a run of an hour is for)
        f"{minute / 60:g} min, {len(produced):,} produced: {len(readers[0].seen):,} read, {readers[0].lost} lost; "
        f"without protect {len(readers[1].seen):,} read, {readers[1].lost} lost; {changes:g} changes, {largest} ms at "
        f"most, {retention_s * SECOND} before and after"
    )
    assert readers[0].lost == 0
    assert readers[1].lost > 0
    assert largest < (retention_s + minute) * SECOND


def test_lost_ledger_restores_nothing_until_a_restart(world: World) -> None:
    """P3: with another ledger, the commits that the earlier one refused are not known."""
    topic = expiring(world, "lost")
    world.commit("billing", topic, 0)
    with watching(world, policy_of(world, topic), "--protect", "--interval", "10s") as watcher:
        watcher.wait_for("retention.ms raised from")
        watcher.wait_passes(1)
        for file in world.state_dir.glob("*/ledger.sqlite*"):
            file.unlink()
        watcher.wait_passes(1)
        world.commit("billing", topic, world.ends(topic)[1])
        watcher.wait_passes(3)
        assert own(world, topic) != str(20 * SECOND)
    with watching(world, policy_of(world, topic), "--protect", "--interval", "10s") as watcher:
        watcher.wait_for("retention.ms restored from")
        assert own(world, topic) == str(20 * SECOND)


# -- forecasts ---------------------------------------------------------------------------------


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
    with reader_for(world.bootstrap) as reader, closing(Memories(world.state_dir)) as memories:
        return read_forecast(reader, world.selection(policy), Terms(2000, least_ms, now_ms()), memories=memories)


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
