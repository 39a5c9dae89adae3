"""``offset_at(T)``: a broker's look-up, never taken at its word where it says −1 (RULES.md, Look-ups)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, Leaders, NotFound
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Search
from retention_cli.model import ANCIENT_MS, LookUp, Maybe, PartitionFacts, Reason, TopicPartition, Unknown

Facts = Mapping[TopicPartition, PartitionFacts]
Answered = tuple[TopicPartition, int, Maybe[LookUp]]
"""A partition, the time that was looked up, and the answer."""


def look_up(
    reader: ClusterReader,
    facts: Facts,
    wanted: Mapping[TopicPartition, Collection[int]],
    leaders: Leaders,
    scan_records: Mapping[str, int],
    deadline: float,
) -> Iterator[Answered]:
    """Yield, for each partition and time (Unix ms), the offset before which every record is older.

    H must have been read before. Where the broker says that there is no such record, its MAX_TIMESTAMP, asked
    now, must bear that out; else records are read, ``scan_records`` of the topic at the most.
    """
    rounds = _rounds(wanted)
    silent: dict[TopicPartition, list[int]] = {}
    for asked, answers in zip(rounds, reader.list_offsets(rounds, leaders), strict=True):
        for tp, answer in answers.items():
            if isinstance(answer, Found):
                yield tp, asked[tp], LookUp(answer.offset)
            elif isinstance(answer, NotFound):
                silent.setdefault(tp, []).append(asked[tp])
            else:
                text = f"the offset at a time could not be looked up: {answer}"
                yield tp, asked[tp], Unknown.because("lookup", text)
    if silent:
        yield from _settle(reader, facts, silent, leaders, scan_records, deadline)


def _rounds(wanted: Mapping[TopicPartition, Collection[int]]) -> list[dict[TopicPartition, int]]:
    """Cut several times per partition into mappings with one each: a request names a partition once."""
    rounds: list[dict[TopicPartition, int]] = []
    for tp, times in wanted.items():
        for number, time_ms in enumerate(sorted(times)):
            if number == len(rounds):
                rounds.append({})
            rounds[number][tp] = time_ms
    return rounds


def _settle(
    reader: ClusterReader,
    facts: Facts,
    silent: Mapping[TopicPartition, Collection[int]],
    leaders: Leaders,
    scan_records: Mapping[str, int],
    deadline: float,
) -> Iterator[Answered]:
    """Settle look-ups that said −1: by MAX_TIMESTAMP where that is enough, else by reading."""
    newest = reader.list_offsets([dict.fromkeys(silent, "max-timestamp")], leaders)[0]
    unsettled: dict[TopicPartition, list[int]] = {}
    for tp, times in silent.items():
        end, latest = facts[tp].high_watermark, newest[tp]
        for time_ms in times:
            if isinstance(latest, Found) and latest.timestamp is not None and latest.timestamp < time_ms:
                yield tp, time_ms, end if isinstance(end, Unknown) else LookUp(end)
            else:
                unsettled.setdefault(tp, []).append(time_ms)
    for asked in _rounds(unsettled):
        searches = {}
        for tp, time_ms in asked.items():
            start, end = facts[tp].log_start, facts[tp].high_watermark
            if isinstance(start, Unknown) or isinstance(end, Unknown):
                yield tp, time_ms, Unknown.because("lookup", "the log's ends are unknown")
            else:  # for old stamps (G9) the record at S alone is asked
                searches[tp] = Search(start, end, time_ms, 1 if time_ms == ANCIENT_MS else scan_records[tp.topic])
        for tp, reached in reader.search_records(searches, max(1.0, deadline - time.monotonic())).items():
            if isinstance(reached, RequestFailedError):
                text = f"an ambiguous look-up could not be settled by reading: {reached}"
                yield tp, asked[tp], Unknown.because("lookup", text)
            else:
                note = _stopped(reached.offset) if reached.stopped and asked[tp] != ANCIENT_MS else None
                yield tp, asked[tp], LookUp(reached.offset, note)


def _stopped(offset: int) -> Reason:
    return Reason(
        "lookup",
        f"a look-up was settled by reading, which stopped at {offset:,}; the next run goes on from there "
        f"(lookup.scan.records)",
    )
