"""``offset_at(T)``: a broker's look-up, never taken at its word where it says −1 (RULES.md, Look-ups)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, Leaders, NotFound
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Search
from retention_cli.model import ANCIENT_MS, LookUp, Maybe, PartitionFacts, Reason, TopicPartition, Unknown


Partitions = Mapping[TopicPartition, PartitionFacts]


def look_up(
    reader: ClusterReader,
    wanted: Mapping[int, Partitions],
    leaders: Leaders,
    scan_records: Callable[[str], int],
    deadline: float,
) -> dict[int, dict[TopicPartition, Maybe[LookUp]]]:
    """Return, per time (Unix ms) and partition, the offset before which every record is older.

    H must have been read before. Where the broker says that there is no such record, its MAX_TIMESTAMP, asked
    now, must bear that out; else records are read, ``scan_records`` of the topic at the most.
    """
    found: dict[int, dict[TopicPartition, Maybe[LookUp]]] = {}
    for time_ms, answers in reader.list_offsets(wanted, leaders).items():
        assert isinstance(time_ms, int)  # noqa: S101  (for the type checker: we asked for times alone)
        settled = found[time_ms] = {}
        silent: dict[TopicPartition, PartitionFacts] = {}
        for tp, answer in answers.items():
            if isinstance(answer, Found):
                settled[tp] = LookUp(answer.offset)
            elif isinstance(answer, NotFound):
                silent[tp] = wanted[time_ms][tp]
            else:
                settled[tp] = Unknown.because("lookup", f"the offset at a time could not be looked up: {answer}")
        if silent:
            settled |= _settle(reader, silent, time_ms, leaders, scan_records, deadline)
    return found


def _settle(
    reader: ClusterReader,
    partitions: Partitions,
    time_ms: int,
    leaders: Leaders,
    scan_records: Callable[[str], int],
    deadline: float,
) -> dict[TopicPartition, Maybe[LookUp]]:
    """Settle look-ups that said −1: by MAX_TIMESTAMP where that is enough, else by reading."""
    found: dict[TopicPartition, Maybe[LookUp]] = {}
    searches: dict[TopicPartition, Search] = {}
    for tp, newest in reader.list_offsets({"max-timestamp": partitions}, leaders)["max-timestamp"].items():
        start, end = partitions[tp].log_start, partitions[tp].high_watermark
        if isinstance(start, Unknown) or isinstance(end, Unknown):
            found[tp] = Unknown.because("lookup", "the log's ends are unknown")
        elif isinstance(newest, Found) and newest.timestamp is not None and newest.timestamp < time_ms:
            found[tp] = LookUp(end)
        else:
            # For old stamps (G9) the record at S alone is asked.
            limit = 1 if time_ms == ANCIENT_MS else scan_records(tp.topic)
            searches[tp] = Search(start, end, time_ms, limit)
    for tp, reached in reader.search_records(searches, max(1.0, deadline - time.monotonic())).items():
        if isinstance(reached, RequestFailedError):
            text = f"an ambiguous look-up could not be settled by reading: {reached}"
            found[tp] = Unknown.because("lookup", text)
        else:
            found[tp] = LookUp(reached.offset, _stopped(reached.offset) if reached.stopped else None)
    return found


def _stopped(offset: int) -> Reason:
    return Reason(
        "lookup",
        f"a look-up was settled by reading, which stopped at {offset:,}; the next run goes on from there "
        f"(lookup.scan.records)",
    )
