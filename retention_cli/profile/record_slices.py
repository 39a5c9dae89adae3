"""Cut records into slices: a large partition into many slices, a leader's small partitions into one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range
from retention_cli.core.model import TopicPartition
from retention_cli.profile.hours import STEPS_AT_MOST

PARTITIONS_A_SLICE: Final = 1_000
NO_BROKER: Final = -1
"""The leader of a partition that has none."""
Ranges = dict[TopicPartition, Range]

OFFSETS_A_SLICE: Final = STEPS_AT_MOST
"""At most this many offsets per task: some seconds of reading. No piece is larger than a profile's front can hold, so
that pieces of hours merge exactly."""


class Cut(NamedTuple):
    """Pieces of partitions, in offset order, and each partition's leader (:data:`NO_BROKER`: none)."""

    pieces: Mapping[TopicPartition, list[Range]]
    leaders: Mapping[TopicPartition, int]


def cut_records(reader: ClusterReader, ranges: Mapping[TopicPartition, Range], most: int = OFFSETS_A_SLICE) -> Cut:
    """Cut ranges into pieces of ``most`` offsets; an empty range has no piece.

    Raises:
        BrokerError: no broker answered.
    """
    wanted = {tp: one for tp, one in ranges.items() if one.start < one.end}
    places = reader.metadata({tp.topic for tp in wanted}).places()
    long = [tp for tp, one in wanted.items() if one.end - one.start > most and tp in places]
    answers = reader.list_offsets([dict.fromkeys(long, "last-stable")], places)[0] if long else {}
    stable = {tp: answer.offset for tp, answer in answers.items() if isinstance(answer, Found)}
    return Cut(
        {tp: list(pieces(one, stable.get(tp), most)) for tp, one in wanted.items()},
        {tp: _leader(places.get(tp)) for tp in wanted},
    )


def _leader(place: PartitionMetadata | None) -> int:
    return NO_BROKER if place is None or place.leader is None else place.leader


def pieces(span: Range, stable: int | None, most: int = OFFSETS_A_SLICE) -> Iterator[Range]:
    """Cut a range at multiples of ``most``, so that pieces are the same wherever the range begins.

    ``stable`` is the last stable offset, None if unknown: nothing is cut at or after it. To a reader that begins
    after the start of an open transaction, a broker returns nothing, not even that this is the end.
    """
    start = span.start
    for cut in range((start // most + 1) * most, min(span.end, 0 if stable is None else stable), most):
        yield Range(start, cut)
        start = cut
    yield Range(start, span.end)


def packed(cut: Cut, most: int = OFFSETS_A_SLICE) -> list[Ranges]:
    """Return slices of pieces: of one leader, at most one piece per partition, ``most`` offsets unless one has more.

    The first pieces of all partitions come before the second ones: retention deletes the first ones first.
    """
    found: list[Ranges] = []
    current: dict[int, tuple[Ranges, int]] = {}
    order = [(number, tp, one) for tp, some in cut.pieces.items() for number, one in enumerate(some)]
    for _, tp, one in sorted(order, key=itemgetter(0)):
        broker, size = cut.leaders[tp], one.end - one.start
        ranges, offsets = current.get(broker, ({}, most))
        if offsets + size > most or tp in ranges or len(ranges) >= PARTITIONS_A_SLICE:
            ranges, offsets = {}, 0
            found.append(ranges)
        ranges[tp] = one
        current[broker] = ranges, offsets + size
    return found
