"""Cutting what records are to be read into slices: a large partition's over many, small ones' of a leader together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range
from retention_cli.core.model import TopicPartition
from retention_cli.engines.spark.prepare import leader_of
from retention_cli.engines.spark.slices import NO_BROKER, PARTITIONS_A_SLICE
from retention_cli.profile.front import STEPS_AT_MOST

Ranges = dict[TopicPartition, Range]

OFFSETS_A_SLICE: Final = STEPS_AT_MOST
"""So many offsets a task: some seconds of reading. No piece is larger than what a profile's front holds, so that
hours of pieces merge to exact ones."""


class Cut(NamedTuple):
    """Pieces of partitions, in the order of offsets, and who leads each partition (:data:`NO_BROKER`: nobody)."""

    pieces: Mapping[TopicPartition, list[Range]]
    leaders: Mapping[TopicPartition, int]


def cut_records(reader: ClusterReader, ranges: Mapping[TopicPartition, Range], most: int = OFFSETS_A_SLICE) -> Cut:
    """Cut ranges into pieces of ``most`` offsets; where there is nothing to read there is no piece.

    Raises:
        BrokerError: nobody answered.
    """
    wanted = {tp: one for tp, one in ranges.items() if one.start < one.end}
    metadata = reader.metadata({tp.topic for tp in wanted})
    places = {
        TopicPartition(name, number): one
        for name, topic in metadata.topics.items()
        for number, one in topic.partitions.items()
    }
    long = [tp for tp, one in wanted.items() if one.end - one.start > most and tp in places]
    answers = reader.list_offsets([dict.fromkeys(long, "last-stable")], places)[0] if long else {}
    stable = {tp: answer.offset for tp, answer in answers.items() if isinstance(answer, Found)}
    return Cut(
        {tp: list(pieces(one, stable.get(tp), most)) for tp, one in wanted.items()},
        {tp: leader_of(places[tp]) if tp in places else NO_BROKER for tp in wanted},
    )


def pieces(span: Range, stable: int | None, most: int = OFFSETS_A_SLICE) -> Iterator[Range]:
    """Cut a range at multiples of ``most``, so that pieces are the same wherever the range begins.

    ``stable`` is the last stable offset, None where it is not known: nothing is cut there and behind it. A broker
    says nothing, not even that this is the end, to who begins to read behind an open transaction.
    """
    start = span.start
    for cut in range((start // most + 1) * most, min(span.end, 0 if stable is None else stable), most):
        yield Range(start, cut)
        start = cut
    yield Range(start, span.end)


def packed(cut: Cut, most: int = OFFSETS_A_SLICE) -> list[Ranges]:
    """Put pieces into slices: of one leader, of each partition one at the most, ``most`` offsets where none has more.

    The first pieces of all partitions come before the second ones: retention takes those.
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
