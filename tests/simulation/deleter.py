"""Deletes that arrive, get lost on the way there or back, or are carried out long after."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from retention_cli.brokers.deleter import Answered, Deleter, Outcome
from retention_cli.brokers.errors import NotSentError, RequestFailedError
from retention_cli.core.model import TopicPartition
from tests.simulation.hub import Hub
from tests.simulation.kafka import SimKafka

LATE = RequestFailedError("timed out", retriable=True)


class SimDeleter(Deleter):
    """Carries deletes out, or loses them on the way there or back. ``carried`` is told of each that took effect."""

    def __init__(
        self,
        kafka: SimKafka,
        hub: Hub,
        carried: Callable[[TopicPartition, int], Callable[[], None]],
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        self._kafka = kafka
        self._hub = hub
        self._carried = carried
        self._sent = sent
        self.late: list[tuple[TopicPartition, Callable[[], Outcome]]] = []

    def delete(
        self,
        by_leader: Mapping[int, Mapping[TopicPartition, int]],
        on_outcome: Callable[[TopicPartition, Outcome], None],
        *,
        timeout_s: float,
        good_until: float,
    ) -> None:
        for leader, offsets in by_leader.items():
            self._hub.pause("delete_records written")
            if self._kafka.elapsed_s >= good_until:
                for tp in offsets:
                    on_outcome(tp, NotSentError("its recheck was too old"))
                continue
            self._sent()
            for tp, offset in offsets.items():
                self._hub.pause("delete_records")
                how = self._kafka.lost.pop() if self._kafka.lost else None
                outcome = self._one(leader, tp, offset, how)
                self._hub.pause("delete_records answered")
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
        if log is None:
            return RequestFailedError("UNKNOWN_TOPIC_OR_PARTITION", retriable=True, answered=True)
        if log.leader != leader:
            return RequestFailedError("NOT_LEADER_OR_FOLLOWER", retriable=True, answered=True)
        if offset > log.high_watermark:
            return RequestFailedError("OFFSET_OUT_OF_RANGE", retriable=False, answered=True)
        carry()
        return Answered(log.move_start(offset))
