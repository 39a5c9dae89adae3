"""Fetches: records as the client library gives them, a few at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from retention_cli.brokers import content, records
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import TopicPartition
from retention_cli.policy.live import POLICY_TOPIC
from tests.simulation.deleter import LATE
from tests.simulation.kafka import SimKafka
from tests.simulation.logs import NO_STAMP, Partition, Record, Replica

_RECORDS_A_FETCH = 3


class Message:
    """A record as confluent-kafka gives it."""

    __slots__ = ("_record", "_topic")

    def __init__(self, topic: str, record: Record) -> None:
        self._topic = topic
        self._record = record

    def offset(self) -> int:
        return self._record.offset

    def leader_epoch(self) -> int:
        return self._record.epoch

    def timestamp(self) -> tuple[int, int]:
        if self._record.stamp == NO_STAMP:
            return 0, NO_STAMP
        return (2 if self._record.append_time else 1), self._record.stamp

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self._record.header is None else [("et", self._record.header)]

    def value(self) -> bytes:
        told = (self._record.header or b"").decode("ascii", "replace")
        return f'{{"et": {told if told.isdigit() else json.dumps(told)}}}'.encode()

    def key(self) -> bytes | None:
        return None


class Word(NamedTuple):
    """A message of the policy topic as confluent-kafka gives it."""

    at: int
    named: bytes
    said: bytes | None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return self.named

    def value(self) -> bytes | None:
        return self.said

    def leader_epoch(self) -> int:
        return 0

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


class RecordReads(ClusterReader):
    """The part of a reader that fetches."""

    _kafka: SimKafka
    _ask: Callable[[str], None]

    def _answering(self, log: Partition) -> Replica:
        """Return the log of whoever answers a fetch: the leader, or one that does not know yet that it was deposed."""
        others = [one for broker, one in log.replicas.items() if broker != log.leader]
        if self._kafka.deposed and others:
            self._kafka.deposed -= 1
            return others[0]
        return log.log

    def _read(
        self, tp: TopicPartition, start: int, end: int, on_record: Callable[[Record], bool]
    ) -> int | RequestFailedError | None:
        """Hand over data records, a few a fetch; return where the log ended, None where it was told to stop."""
        position = start
        while True:
            try:
                self._ask("fetch")
            except RequestFailedError as error:
                return error
            log = self._kafka.partition(tp)
            if log is None or log.leader is None:
                return LATE
            replica, stable = self._answering(log), log.last_stable
            if not replica.start <= position <= replica.end:
                return RequestFailedError("OFFSET_OUT_OF_RANGE", retriable=True)
            there = [one for one in replica.live() if one.offset < stable and log.is_data(one)]
            some = [one for one in there if one.offset >= position][:_RECORDS_A_FETCH]
            for one in some:
                position = one.offset + 1
                if on_record(one):
                    return None
            if len(some) < _RECORDS_A_FETCH:
                return min(stable, replica.end)
            if position >= end:
                return None

    def search_records(
        self, searches: Mapping[TopicPartition, records.Search], seconds: float
    ) -> dict[TopicPartition, records.Reached | RequestFailedError]:
        del seconds
        found: dict[TopicPartition, records.Reached | RequestFailedError] = {}
        epochs: dict[TopicPartition, dict[int, int]] = {tp: {} for tp in searches}
        for tp, search in searches.items():
            count = 0

            def take(one: Record, tp: TopicPartition = tp, search: records.Search = search) -> bool:
                nonlocal count
                if one.offset >= search.end:
                    found[tp] = records.Reached(search.end, stopped=False)
                elif one.stamp >= search.time_ms:
                    bound = search.start if count == 0 else one.offset
                    found[tp] = records.Reached(bound, stopped=False, timestamp=one.stamp, record=one.offset)
                else:
                    count += 1
                    if count >= search.limit:
                        stamp = one.stamp if one.stamp >= 0 else None
                        found[tp] = records.Reached(one.offset + 1, stopped=True, timestamp=stamp, record=one.offset)
                epochs[tp][one.epoch] = one.offset
                return tp in found

            ended = self._read(tp, search.start, search.end, take)
            if tp not in found:
                found[tp] = (
                    ended
                    if isinstance(ended, RequestFailedError)
                    else records.Reached(search.end if ended is None else min(ended, search.end), stopped=False)
                )
        return {
            tp: one if isinstance(one, RequestFailedError) else replace(one, epochs=epochs[tp])
            for tp, one in found.items()
        }

    def _policy(
        self, tp: TopicPartition, span: records.Range, on_record: records.OnRecord
    ) -> RequestFailedError | None:
        try:
            self._ask("fetch")
        except RequestFailedError as error:
            return error
        for offset, (key, value, _number) in enumerate(self._kafka.policy_messages[: span.end]):
            on_record(tp, Word(offset, key, value))
        return None

    def read_ranges(
        self,
        ranges: Mapping[TopicPartition, records.Range],
        deadline: float | None,
        on_record: records.OnRecord,
        *,
        scan: bool = False,
    ) -> dict[TopicPartition, RequestFailedError | None]:
        del deadline, scan
        found: dict[TopicPartition, RequestFailedError | None] = {}
        for tp, span in ranges.items():
            if span.start >= span.end:
                found[tp] = None
                continue
            if tp.topic == POLICY_TOPIC:
                found[tp] = self._policy(tp, span, on_record)
                continue

            def take(one: Record, tp: TopicPartition = tp, span: records.Range = span) -> bool:
                if one.offset >= span.end:
                    return True
                return bool(on_record(tp, Message(tp.topic, one))) or one.offset + 1 >= span.end

            ended = self._read(tp, span.start, span.end, take)
            if isinstance(ended, int) and ended < span.end:
                ended = RequestFailedError(f"the log was read to {ended}, and gave no more", retriable=True)
            found[tp] = ended if isinstance(ended, RequestFailedError) else None
        return found

    def read_whole(
        self, tp: TopicPartition, span: records.Range, on_record: Callable[[content.Record], None]
    ) -> int | RequestFailedError:
        raise NotImplementedError("archives are not simulated")
