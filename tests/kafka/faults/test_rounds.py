"""kretain's two promises under faults: no record that the policy protects is ever gone, and every report is true.

``FAULTS_SEED=7 FAULTS_ROUNDS=25 pytest -m long tests/kafka/faults`` plays what failed again, up to that round.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from tests.conftest import QUICK
from tests.kafka.faults.judge import Log, Promise, Sent, Truth, breaches, lost, sent_in, unexplained, untrue
from tests.kafka.faults.load import (
    EXACTLY,
    PHOENIX,
    PHOENIX_READER,
    READER,
    REWINDER,
    VANISHER,
    Breaker,
    LinkedKafka,
    Load,
)
from tests.kafka.faults.runs import FAULTS, MODES, STEPS, Kretain, Round, Run, rounds, sleep_until
from tests.support.world import World, now_ms, wait_until, written

Found = TypeVar("Found")
Place = tuple[str, int]
"""A topic's name and a partition's index."""


def _consumer(bootstrap: str) -> closing[KafkaConsumer]:
    """One that has heard nothing of earlier leaders, and hides nothing: aborted and open transactions are there, too."""
    return closing(
        KafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="none",
            enable_auto_commit=False,
            isolation_level="read_uncommitted",
            check_crcs=False,
            request_timeout_ms=10_000,
            max_poll_records=5_000,
        )
    )


def log_starts(bootstrap: str, places: Mapping[Place, Log]) -> dict[Log, int]:
    """S of each log, once all leaders answer."""
    asked = [TopicPartition(*place) for place in places]
    found = _answered(bootstrap, lambda consumer: consumer.beginning_offsets(asked), "log start offsets")
    return {places[tp.topic, tp.partition]: offset for tp, offset in found.items()}


def records(
    bootstrap: str, places: Mapping[Place, Log], starts: Mapping[Log, int]
) -> dict[Log, dict[int, tuple[bytes, int]]]:
    """Read each log from its start to the end that it has by now: value and timestamp by offset."""

    def read(consumer: KafkaConsumer) -> dict[Log, dict[int, tuple[bytes, int]]]:
        found: dict[Log, dict[int, tuple[bytes, int]]] = {log: {} for log in starts}
        by_partition = {TopicPartition(*place): log for place, log in places.items() if log in starts}
        ends = consumer.end_offsets(list(by_partition))
        consumer.assign(list(by_partition))
        for tp, log in by_partition.items():
            consumer.seek(tp, starts[log])

        def at_the_end() -> bool:
            for tp, batch in consumer.poll(timeout_ms=200).items():
                found[by_partition[tp]].update({one.offset: (one.value, one.timestamp) for one in batch})
            for tp in [tp for tp in consumer.assignment() if consumer.position(tp) >= ends[tp]]:
                consumer.pause(tp)
            return len(consumer.paused()) == len(by_partition)

        wait_until(at_the_end, "the ends of all logs", 30)
        return found

    return _answered(bootstrap, read, "records")


def _answered(bootstrap: str, read: Callable[[KafkaConsumer], Found], what: str) -> Found:
    """Read, and again while leaders move."""

    def answer() -> Found | None:
        with suppress(KafkaError), _consumer(bootstrap) as consumer:
            return read(consumer)
        return None

    return wait_until(answer, what)


POLICY: Final = """\
version: 1
topics:
  - match: [orders, payments, lone, phoenix, frozen]
    retention.commitoffset.enable: true
    retention.commitoffset.ms: 2s
  - match: frozen
    hold: "a test's legal hold"
  - match: aged
    retention.ms: 1h
    retention.min.wallclock.ms: 4s
"""
PROMISES: Final = {
    "orders": Promise((READER, REWINDER, VANISHER), stamped_ms=2_000),
    "payments": Promise((READER, EXACTLY), stamped_ms=2_000),
    "lone": Promise((READER, REWINDER), stamped_ms=2_000),
    "frozen": Promise((READER,), frozen=True),
    "aged": Promise(None, stamped_ms=3_600_000, written_ms=4_000),
    PHOENIX: Promise((PHOENIX_READER,), stamped_ms=2_000),
}
TOPICS: Final = {"orders": (3, 3), "payments": (2, 3), "lone": (3, 1), "aged": (1, 3), "frozen": (1, 3)}
"""Partitions and replicas."""


class Arena:
    """A cluster under load, and the kretain that trims it."""

    def __init__(self, kafka: LinkedKafka, world: World, folder: Path, volume: Path | None, seed: int) -> None:
        policy = written(folder / "policy.yaml", POLICY)
        self.load = Load(kafka.bootstrap, Truth(), str(seed))
        self.truth = self.load.truth
        self.breaker = Breaker(kafka, world, self.load, volume)
        self.kretain = Kretain(kafka.bootstrap, policy, world.state_dir, folder)
        self.world, self.kafka = world, kafka
        for topic, (partitions, replicas) in TOPICS.items():
            self.breaker.make(topic, partitions, replicas)
        self.breaker.live()
        self._judged: set[Sent] = set()

    def warm_up(self) -> None:
        """Wait until every group has committed on every log, and kretain has seen them."""

        def stands() -> bool:
            self.load.check()
            return all(
                self.truth.log(topic, n) in self.truth.commits[group].last()
                for topic, promise in PROMISES.items()
                for group in promise.groups or ()
                for n in range(self.truth.partitions[topic])
            )

        wait_until(stands, "commits of every group")
        run = self.kretain.trim()
        assert run.code == 0, run.err
        assert self._judge(None) == []
        self.load.seen.set()

    def play(self, one: Round) -> dict[str, Any]:
        """Play a round, and raise all that is wrong in it. Return its figures: records written and trimmed, commits, time."""
        clock, began = time.monotonic(), now_ms()
        written, commits = self.truth.written, sum(map(len, self.truth.commits.values()))
        before = self._starts()
        run = self.kretain.start(one)
        started = time.monotonic()
        sleep_until(started + one.delay_s)
        for fault in one.faults:
            self.breaker.begin(fault, one)
        broken = time.monotonic()
        watching = one.mode.startswith("watch")
        if one.mode in ("trim, killed at a moment", "watch, killed"):
            run.wait(max(0.0, started + one.moment_s + 2 * watching - time.monotonic()))
            run.end(signal.SIGKILL)
        run.wait(max(0.0, broken + one.lasting_s + watching - time.monotonic()))
        for fault in one.faults:
            self.breaker.end(fault, one)
        if watching:
            wait_until(lambda: "plans and trims every" in run.err or run.code is not None, "a watch that has begun")
            sleep_until(time.monotonic() + 1)
            run.end(signal.SIGTERM)
        assert run.wait(120) is not None, "kretain hangs"
        self.breaker.heal(one.faults)
        self.load.check()
        problems = self._said(one, run, before, self._starts())
        trimmed = self._settle(one, began)
        problems += self._judge(began if {"pause", "cut", "kill", "restart", "move"} & {*one.faults} else None)
        if (wrong := self.kretain.verified()) != "":
            problems.append(f"the audit log's chain: {wrong}")
        grown = self.truth.written - written
        again = sum(map(len, self.truth.commits.values())) - commits
        if not (grown and again):
            problems.append(f"no live load: {grown} records, {again} commits")
        for commits_of in self.truth.commits.values():
            commits_of.forget_before(began)
        if problems:
            raise AssertionError("\n".join([str(one), *problems, run.err[-6000:]]))
        outcomes = Counter(row["outcome"] for row in (run.report() or {"partitions": ()})["partitions"])
        seconds = time.monotonic() - clock
        return {"seconds": seconds, "written": grown, "commits": again, "trimmed": trimmed, "outcomes": outcomes}

    def _said(self, one: Round, run: Run, before: Mapping[Log, int], after: Mapping[Log, int]) -> list[str]:
        """What the run said that is not so."""
        code = run.code
        killed = "killed" in one.mode and code == -signal.SIGKILL
        expected = {0, 5, 1, 6 if one.mode == "plan, then trim" else 0}
        problems = [] if killed or code in expected else [f"exit {code}"]
        if any(word in run.err for word in ("Traceback", "internal error")):
            problems.append("an error that kretain has no words for")
        ours = [sent for sent in sent_in(self.kretain.events()) if sent not in self._judged]
        report = run.report()
        if report is not None:
            whole = not {"kill", "restart", "pause", "cut"} & {*one.faults}
            problems += untrue(report, ours, before, after, self.truth, whole=whole)
        elif code in (1, 6) and not one.mode.startswith("watch"):  # a batch may be announced that a full disk stopped
            moved = [sent for sent in ours if sent.log in before and after.get(sent.log, -1) > before[sent.log]]
            problems += [f"exit {code}, which says that nothing was trimmed, after {sent}" for sent in moved[:1]]
        return problems

    def _settle(self, one: Round, began: int) -> int:
        """Trim until all is well, and something that was read has gone in this round; return how many records."""
        problems: list[str] = []
        gone: list[int] = []

        def done() -> bool:
            before = self._starts()
            ours = {sent.run for sent in sent_in(self.kretain.events())}
            run = self.kretain.trim()
            assert run.code in (0, 5), f"{one}\nexit {run.code}: {run.err}"
            after = self._starts()
            sent = [each for each in sent_in(self.kretain.events()) if each.run not in ours]
            report = run.report()
            assert report is not None
            problems.extend(untrue(report, sent, before, after, self.truth, whole=True))
            read = [each for each in sent_in(self.kretain.events()) if each.at >= began and each.topic != "aged"]
            gone.append(sum(each.target - each.start for each in read if each.outcome == "trimmed"))
            return run.code == 0 and gone[-1] > 0

        wait_until(done, f"a trim of what was read, in {one} (it was {gone})", 120)
        assert not problems, "\n".join([str(one), *problems])
        return gone[-1]

    def _judge(self, deposed: int | None) -> list[str]:
        """Every batch that was announced since the last time, every log, every record that must be there."""
        starts = self._starts()
        written = {log: self.truth.records(log) for log in starts}
        there = records(self.world.bootstrap, self._places(), starts)
        everything = list(sent_in(self.kretain.events()))
        problems = []
        for sent in everything:
            if sent not in self._judged:
                promise = PROMISES[sent.topic]
                known = written[sent.log] if sent.log in written else self.truth.records(sent.log)
                problems += breaches(sent, promise, self.truth.commits, known, deposed)
        self._judged = set(everything)
        problems += unexplained(
            starts, everything, {log: self.breaker.topics[log[0]] for log in starts}, self.breaker.born
        )
        problems += lost(written, there, starts)[:10]
        self.truth.forget(starts)
        return problems

    def _places(self) -> dict[tuple[str, int], Log]:
        return {
            (topic, n): self.truth.log(topic, n)
            for topic, partitions in self.truth.partitions.items()
            for n in range(partitions)
        }

    def _starts(self) -> dict[Log, int]:
        return log_starts(self.world.bootstrap, self._places())


# -- rounds, and the seed that they are dealt from ---------------------------------------------------

SETTINGS = {
    **QUICK,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
}
SEED = int(os.environ.get("FAULTS_SEED", "1"))
FEW = 6
"""So many rounds have every fault and every way to run kretain."""


def test_fault_round_is_determined_by_its_seed_and_covers_every_fault() -> None:
    dealt = list(rounds(7, 40))
    assert [list(rounds(7, 40)), list(rounds(7, 10))] == [dealt, dealt[:10]]
    assert list(rounds(8, 40)) != dealt
    for seed in range(20):
        few = list(rounds(seed, FEW))
        assert ({fault for one in few for fault in one.faults}, {one.mode for one in few}) == ({*FAULTS}, {*MODES})
    assert {one.step for one in rounds(1, 200) if one.mode == "trim, killed at a step"} == {*STEPS}


@pytest.fixture
def volume() -> Iterator[Path | None]:
    """A small volume for the state directory, where one can be mounted; else its disk is never full."""
    folder = Path(tempfile.mkdtemp(prefix="kretain-faults-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "kretain-test", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    yield folder if mounted else None
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=False)
    folder.rmdir()


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(FEW, marks=[pytest.mark.thorough, pytest.mark.timeout(600)]),
        pytest.param(
            int(os.environ.get("FAULTS_ROUNDS", "200")), marks=[pytest.mark.long, pytest.mark.timeout(14_400)]
        ),
    ],
    ids=["few", "many"],
)
def test_faults_delete_no_protected_record_and_reports_are_true(
    count: int, volume: Path | None, tmp_path: Path
) -> None:
    with LinkedKafka(3, settings=SETTINGS) as kafka:
        arena = Arena(kafka, World(kafka.bootstrap, (volume or tmp_path) / "state"), tmp_path, volume, SEED)
        with arena.load.going_on():
            arena.warm_up()
            for one in rounds(SEED, count):
                played = arena.play(one)
                print(f"{one.number} {'+'.join(one.faults)}, {one.mode} {one.step}: {played}", flush=True)  # noqa: T201
                assert played["trimmed"] > 0
