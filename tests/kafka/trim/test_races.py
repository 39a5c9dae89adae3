"""Groups that rewind, readers that restart and topics that come and go while the real command trims.

What DeleteRecords itself can't see (docs/rules.md) is not asked for; what a batch's recheck saw is.
The audit log says what that was: it is compared with everything that was true at the time.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition

from tests.support.plain import Place, commit_all, log_starts
from tests.support.world import HOUR, QUIET, Cli, World, consumed, now_ms, wait_until

pytestmark = pytest.mark.thorough  # six trims against a topic that comes and goes

PARTITIONS = 8
RECORDS = 400


@dataclass
class Commits:
    """One group's commits in order: when each was sent, when it was acknowledged, and the offsets it left behind."""

    log: list[tuple[int, int, dict[Place, int]]] = field(default_factory=list)

    def commit(self, offsets: dict[Place, int], send: Callable[[dict[Place, int]], None]) -> None:
        sent = now_ms()
        send(offsets)
        self.log.append((sent, now_ms(), {**(self.log[-1][2] if self.log else {}), **offsets}))

    def in_force(self, place: Place, began: int, ended: int) -> set[int]:
        """What a reading between two moments may have found. A commit holds until the next is acknowledged."""
        log = self.log.copy()  # it goes on growing
        ends = [*(acknowledged for _, acknowledged, _ in log[1:]), ended]
        return {
            offsets[place] for (sent, _, offsets), end in zip(log, ends, strict=True) if sent <= ended and end >= began
        }


@contextmanager
def meanwhile(*work: Callable[[], None]) -> Iterator[None]:
    """Do each of these over and over while something else goes on; what fails there fails here."""
    done = threading.Event()
    errors: list[BaseException] = []

    def repeat(one: Callable[[], None]) -> None:
        try:
            while not done.is_set():
                one()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def read_on(world: World, group: str, topic: str, commits: Commits, rng: random.Random) -> None:
    """Start where the group stands, read on without a gap, commit: a consumer that is restarted all the time."""
    places = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    consumer = Consumer(
        {
            "bootstrap.servers": world.bootstrap,
            "group.id": group,
            "logger": QUIET,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        position = {one.partition: one.offset for one in consumer.committed(places, timeout=30)}
        consumer.assign([TopicPartition(topic, n, offset) for n, offset in position.items()])
        for message in consumer.consume(rng.randint(1, 60), timeout=0.5):
            assert message.error() is None, f"{group} lost its place: {message.error()}"
            number = message.partition() or 0
            assert message.offset() == position[number], f"a gap: {message.offset()} after {position[number]}"
            position[number] += 1
        moved = [TopicPartition(topic, n, offset) for n, offset in position.items()]
        commits.commit(
            {(topic, n): offset for n, offset in position.items()},
            lambda _: drop(consumer.commit(offsets=moved, asynchronous=False)),
        )
    finally:
        consumer.close()


def drop(_answer: object) -> None:
    """Take an answer that nobody wants."""


def audit(world: World, run: str) -> list[dict[str, Any]]:
    log = next(world.state_dir.glob("*/audit.jsonl"))
    return [event for line in log.read_text().splitlines() if (event := json.loads(line))["run"] == run]


def ms(timestamp: str) -> int:
    import datetime as dt

    return round(dt.datetime.fromisoformat(timestamp).timestamp() * 1000)


def test_recheck_protects_against_concurrent_groups(world: World, tmp_path: Path) -> None:
    """One group rewinds and jumps ahead in a tight loop, one reads on from where it committed."""
    topic, rng = world.topic("race", partitions=PARTITIONS), random.Random(5)
    places = [(topic, n) for n in range(PARTITIONS)]
    for _, partition in places:
        world.produce(topic, [30 * HOUR] * RECORDS, partition)
    racer, reader = Commits(), Commits()

    def rewind() -> None:
        low = min(reader.log[-1][2].values())
        wish = {place: rng.randint(low // 2, min(RECORDS, low + 40)) for place in places}
        racer.commit(wish, lambda offsets: commit_all(world.admin, f"{topic}-racer", offsets))

    reader.commit(dict.fromkeys(places, 20), lambda offsets: commit_all(world.admin, f"{topic}-reader", offsets))
    rewind()
    policy = tmp_path / "policy.yaml"
    policy.write_text(consumed(topic))
    outcomes: set[str] = set()
    deadline = time.monotonic() + 60
    with meanwhile(rewind, lambda: read_on(world, f"{topic}-reader", topic, reader, rng)):
        for number in range(30):
            before = log_starts(world.admin, places)
            report = world.cli("trim", "-p", str(policy), "--yes", "-o", "json", check=0).json()
            after = log_starts(world.admin, places)
            events = audit(world, report["run"])
            began = ms(events[0]["at"])
            told = {(row["topic"], row["partition"]): row for row in report["partitions"]}
            expected = dict(before)
            for batch in (event for event in events if event["event"] == "batch"):
                for row in batch["partitions"]:
                    place, ended = (row["topic"], row["partition"]), ms(batch["at"])
                    floors = {
                        min(one, other)
                        for one in racer.in_force(place, began, ended)
                        for other in reader.in_force(place, began, ended)
                    }
                    assert row["min_commit"] in floors, f"{row} is no floor of its time: {sorted(floors)}"
                    assert row["target"] <= row["min_commit"], row
                    expected[place] = row["target"]
            assert after == expected, "S is where the audit log says, and nowhere else"
            assert all(told[place]["outcome"] == "trimmed" for place in places if after[place] > before[place])
            outcomes |= {row["outcome"] for row in told.values()}
            if number >= 5 and {"trimmed", "held"} <= outcomes:
                break
            if time.monotonic() > deadline:
                pytest.fail(f"in {number} trims only {outcomes}: this test tests nothing")


@dataclass
class Generation:
    """One life of a topic: its id, whether its records were read, and where it started when it ended."""

    topic_id: str
    began: int
    read: bool
    starts: dict[Place, int] = field(default_factory=dict)


class Phoenix:
    """A topic that is deleted and recreated, its records read by a group in every other life only.

    A life lasts up to `longest` seconds more than it takes to begin.
    """

    longest = 0.4

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.lives: list[Generation] = []
        self.rng = random.Random(7)
        self.begin()

    def begin(self) -> None:
        began = now_ms()
        self.world.topic(name=self.name, partitions=2)
        wait_until(lambda: self._id() not in {None, *(life.topic_id for life in self.lives)}, "the new topic's id")
        life = Generation(str(self._id()), began, read=len(self.lives) % 2 == 0)
        for partition in range(2):
            self.world.produce(self.name, [30 * HOUR] * 10, partition)
        if life.read:
            commit_all(self.world.admin, f"{self.name}-a", {(self.name, 0): 8, (self.name, 1): 8})
        self.lives.append(life)

    def _id(self) -> str | None:
        try:
            about = self.world.admin.describe_topics(TopicCollection([self.name]))[self.name].result(30)
        except KafkaException:  # a broker that has not heard of it yet
            return None
        return str(about.topic_id).replace("/", "_").replace("+", "-")  # as Kafka's own tools print it

    def end(self) -> None:
        self.lives[-1].starts = {(self.name, n): self.world.ends(self.name, n)[0] for n in range(2)}
        self.world.delete(self.name)

    def rise(self) -> None:
        time.sleep(self.rng.uniform(0, self.longest))  # so that a trim meets each life at another moment
        self.end()
        self.begin()


@pytest.fixture
def phoenix(world: World) -> Phoenix:
    return Phoenix(world, world.topic("phoenix-name") + "-phoenix")


def trim_again_and_again(world: World, *arguments: str) -> Iterator[Cli]:
    for _ in range(6):
        one = world.cli("trim", *arguments, "--yes", "-o", "json")
        assert one.code in (0, 5), one.err
        assert "internal error" not in one.err
        yield one


def batches(world: World, run: str) -> list[Any]:
    return [event for event in audit(world, run) if event["event"] == "batch"]


def test_saved_plan_never_touches_a_recreated_topic(world: World, phoenix: Phoenix, tmp_path: Path) -> None:
    """The id at the plan is not the id at the recheck, whatever moment of a life that meets."""
    policy, plan = tmp_path / "policy.yaml", tmp_path / "plan.json"
    policy.write_text(consumed(phoenix.name))
    world.cli("plan", "-p", str(policy), "--out", str(plan), check=0)
    assert json.loads(plan.read_text())["totals"]["trim"] == 2
    phoenix.rise()
    with meanwhile(phoenix.rise):
        for one in trim_again_and_again(world, "-p", str(policy), "--plan", str(plan)):
            assert {row["outcome"] for row in one.json()["partitions"]} <= {"held", "failed"}
    phoenix.end()
    assert len(phoenix.lives) > 3
    assert all(start == 0 for life in phoenix.lives for start in life.starts.values()), phoenix.lives


def test_each_recreation_of_a_topic_is_decided_by_its_own_facts(world: World, phoenix: Phoenix, tmp_path: Path) -> None:
    """A life whose records nobody read keeps them, whatever was decided about the one before it."""
    other = world.topic("other")  # so that there always is a topic that matches
    policy = tmp_path / "policy.yaml"
    policy.write_text(consumed(phoenix.name) + "\n" + consumed(other).partition("topics:\n")[2] + "\n")
    runs: list[str] = []
    deadline = time.monotonic() + 120
    with meanwhile(phoenix.rise):
        while not any(batches(world, run) for run in runs):
            if time.monotonic() > deadline:
                pytest.fail(f"in {len(runs)} trims none met a life that was read: this test tests nothing")
            runs += [one.json()["run"] for one in trim_again_and_again(world, "-p", str(policy))]
            phoenix.longest = 3.0  # on a slow machine a life must last as long as a trim takes
    phoenix.end()
    sent = {
        (row["topic_id"], row["topic"], row["partition"]): (row["target"], event["at"])
        for run in runs
        for event in batches(world, run)
        for row in event["partitions"]
    }
    for life in phoenix.lives:
        for (name, partition), start in life.starts.items():
            own = sent.get((life.topic_id, name, partition))
            if own is not None:
                assert life.read, f"nobody had read it: {life}"
                assert start in (0, own[0]), life
            elif start > 0:  # what no client can see: sent right before the life that it was for ended
                assert any(ms(at) <= life.began for _, at in sent.values()), life
