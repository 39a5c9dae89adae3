"""Several kretains at once in one thread, and what each tells the time by and writes to.

Each is a greenlet that stops at every request, where anything may happen: deletes may get lost, others act.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from greenlet import getcurrent, greenlet

from retention_cli.brokers.deleter import Answered, Deleter, Outcome
from retention_cli.brokers.errors import BrokerError, NotSentError, RequestFailedError
from retention_cli.brokers.records import Range
from retention_cli.brokers.writer import Appended
from retention_cli.core.clock import Clock
from retention_cli.core.model import TopicPartition
from retention_cli.policy.live import Message
from retention_cli.state.own_topics import BrokerClock, StateTopic
from tests.simulation.kafka import SimKafka
from tests.support.facts import known


class KilledError(BaseException):
    """The process is killed with SIGKILL: nothing of it goes on, and what it does while it unwinds is undone."""


@dataclass(slots=True)
class Process:
    """One run of kretain. It goes on until it is done, ``alive`` until it is done or killed."""

    name: str
    work: Callable[[], None]
    alive: bool = True
    killed: bool = False
    last: str = ""
    thread: greenlet = field(init=False)

    def __post_init__(self) -> None:
        self.thread = greenlet(self._run)

    def _run(self) -> None:
        try:
            self.work()
        except KilledError:
            self.killed = True
        finally:
            self.alive = False

    def step(self, requests: int = 1) -> None:
        for _ in range(requests):
            if not self.alive:
                return
            self.thread.parent = getcurrent()
            self.thread.switch()

    def until(self, request: str) -> None:
        """Go on to just before a request."""
        while self.last != request:
            assert self.alive, f"{self.name} ended before {request}"
            self.step()

    def finish(self) -> None:
        self.step(100_000)
        assert not self.alive, f"{self.name} does not end: {self.last}"

    def kill(self) -> None:
        if self.alive:
            self.killed = True
            self.thread.parent = getcurrent()
            self.thread.throw(KilledError())


class Hub:
    """Knows which process runs now; whoever speaks to a cluster whose ``pause`` it is pauses here."""

    def __init__(self) -> None:
        self.running: dict[greenlet, Process] = {}

    def start(self, name: str, work: Callable[[], None]) -> Process:
        process = Process(name, work)
        self.running[process.thread] = process
        return process

    def pause(self, what: str) -> None:
        """Stop before a request: others go on meanwhile."""
        process = self.running.get(getcurrent())
        if process is None:
            return
        if process.killed:  # it unwinds: no request of it goes out any more
            raise KilledError
        process.last = what
        known(getcurrent().parent).switch()
        if process.killed:
            raise KilledError


class SimClock(Clock):
    """An operator's clock: the cluster's, and how far it is off. Waiting lets time pass, and others act."""

    def __init__(self, kafka: SimKafka) -> None:
        self.off_ms = 0
        self._kafka = kafka

    def monotonic(self) -> float:
        return self._kafka.elapsed_s

    def since_boot(self) -> float:
        return self._kafka.elapsed_s

    def wall_ms(self) -> int:
        return self._kafka.now_ms + self.off_ms

    def sleep(self, seconds: float) -> None:
        self._kafka.pause("sleep")
        self._kafka.pass_time(int(seconds * 1000))


LATE = RequestFailedError("timed out", retriable=True)
LateDelete = tuple[TopicPartition, Callable[[], Outcome]]
"""A delete that is still under way, and what carries it out."""


class SimDeleter(Deleter):
    """Carries deletes out, or loses them on the way there or back. ``carried`` is told of each that took effect."""

    def __init__(
        self,
        kafka: SimKafka,
        carried: Callable[[TopicPartition, int], Callable[[], None]],
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        self._kafka = kafka
        self._carried = carried
        self._sent = sent
        self.written = {}
        self.late: list[LateDelete] = []

    def delete(
        self,
        by_leader: Mapping[int, Mapping[TopicPartition, int]],
        on_outcome: Callable[[TopicPartition, Outcome], None],
        *,
        timeout_s: float,
        good_until: float,
    ) -> None:
        for leader, offsets in by_leader.items():
            self._kafka.pause("delete_records written")
            if self._kafka.elapsed_s >= good_until:
                for tp in offsets:
                    on_outcome(tp, NotSentError("its recheck was too old"))
                continue
            self._sent()
            self.written |= dict.fromkeys(offsets, self._kafka.elapsed_s)
            for tp, offset in offsets.items():
                self._kafka.pause("delete_records")
                how = self._kafka.lost.pop() if self._kafka.lost else None
                outcome = self._one(leader, tp, offset, how)
                self._kafka.pause("delete_records answered")
                if how in ("before", "after", "late"):
                    self._kafka.pass_time(int(timeout_s * 1000))
                    outcome = LATE
                on_outcome(tp, outcome)

    def _one(self, leader: int, tp: TopicPartition, offset: int, how: str | None) -> Outcome:
        carry = self._carried(tp, offset)
        if how == "late":
            self.late.append((tp, functools.partial(self._effect, leader, tp, offset, carry)))
        if how in ("before", "late"):
            return LATE
        if how == "refused":
            return RequestFailedError("KAFKA_STORAGE_ERROR", retriable=True, answered=True)
        return self._effect(leader, tp, offset, carry)

    def _effect(self, leader: int, tp: TopicPartition, offset: int, carry: Callable[[], None]) -> Outcome:
        log = self._kafka.partition(tp)
        if log.leader != leader:
            return RequestFailedError("NOT_LEADER_OR_FOLLOWER", retriable=True, answered=True)
        if offset > log.high_watermark:
            return RequestFailedError("OFFSET_OUT_OF_RANGE", retriable=False, answered=True)
        carry()
        return Answered(log.move_start(offset))


class SimStateTopic(StateTopic):
    def __init__(self, kafka: SimKafka) -> None:
        self._kafka = kafka
        self._writer: Any = SimpleNamespace(append_all=self._append, connect=lambda: None, close=lambda: None)

    def _ask(self, call: str) -> None:
        self._kafka.pause(call)
        if self._kafka.lose(call):
            raise BrokerError(f"{call}: timed out")

    def check(self) -> None:
        self._ask("state")

    def extent(self) -> tuple[str, Range]:
        self._ask("state")
        return f"state {self._kafka.state_epoch}", Range(0, self._kafka.state_end)

    def read(self, start: int, end: int) -> list[Message]:
        self._ask("state")
        return [one for one in self._kafka.state_messages if start <= one.offset < end]

    def _append(self, _topic: str, messages: Sequence[tuple[bytes, bytes | None]]) -> list[Appended | BrokerError]:
        """Append; of what gets lost half is carried out, and nobody knows which."""
        self._kafka.pause("state append")
        lost = self._kafka.lose("state append")
        arriving = messages[: (len(messages) + 1) // 2] if lost else messages
        placed: list[Appended | BrokerError] = [self._kafka.append_state(key, value) for key, value in arriving]
        self._kafka.pause("state appended")
        return [BrokerError("timed out") for _ in messages] if lost else placed


class SimBrokerClock(BrokerClock):
    """Has the brokers' time by an append to the shared topic."""

    def __init__(self, kafka: SimKafka, clock_ms: Callable[[], int]) -> None:
        self.compared = False
        self._kafka = kafka
        self._clock_ms = clock_ms
        self._writer: Any = SimpleNamespace(append=self._append, close=lambda: None)

    def _append(self, _topic: str, key: bytes, value: bytes | None) -> Appended:
        self._kafka.pause("clock")
        if self._kafka.lose("clock"):
            raise RequestFailedError("timed out", retriable=True)
        return self._kafka.append_state(key, value)
