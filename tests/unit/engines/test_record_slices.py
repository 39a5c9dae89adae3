"""Records cut into slices for Spark, and pieces of a partition that come in any order, some of them not whole."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.record_columns import Ended
from retention_cli.brokers.records import Range
from retention_cli.core.model import TopicPartition
from retention_cli.engines.spark.profile import OFFSETS_A_SLICE, Cut, _Partition, packed, pieces
from retention_cli.profile.hours import STEPS_AT_MOST, Frame, PartitionHours

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("span", "stable", "expected"),
    [
        ((0, 10), 10, [(0, 10)]),
        ((0, 25), 25, [(0, 10), (10, 20), (20, 25)]),
        ((7, 25), 25, [(7, 10), (10, 20), (20, 25)]),
        ((0, 20), 20, [(0, 10), (10, 20)]),
        ((0, 95), 15, [(0, 10), (10, 95)]),  # a broker is silent to who begins behind an open transaction
        ((0, 95), 10, [(0, 95)]),
        ((0, 95), 0, [(0, 95)]),
        ((0, 95), None, [(0, 95)]),
    ],
)
def test_pieces_end_at_multiples_and_never_start_behind_an_open_transaction(
    span: tuple[int, int], stable: int | None, expected: list[tuple[int, int]]
) -> None:
    assert list(pieces(Range(*span), stable, 10)) == expected


def test_profile_piece_never_exceeds_the_front_limit() -> None:
    """Else hours of pieces would not merge to exact ones."""
    assert OFFSETS_A_SLICE <= STEPS_AT_MOST


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60)), max_size=12), st.integers(1, 20), st.integers(1, 3))
def test_slices_contain_every_piece_once_within_their_limit(
    spans: list[tuple[int, int]], most: int, brokers: int
) -> None:
    tps = [TopicPartition("t", number) for number in range(len(spans))]
    cut = {
        tp: list(pieces(Range(start, start + size), start + size, most))
        for tp, (start, size) in zip(tps, spans, strict=True)
    }
    leaders = {tp: tp.partition % brokers for tp in tps}
    slices = packed(Cut(cut, leaders), most)
    found: dict[TopicPartition, list[Range]] = {tp: [] for tp in tps}
    for one in slices:
        assert len({leaders[tp] for tp in one}) == 1
        assert sum(span.end - span.start for span in one.values()) <= most
        for tp, span in one.items():
            found[tp].append(span)
    assert found == cut, "each once, in order"
    for tp, (start, size) in zip(tps, spans, strict=True):
        ends = [start, *(span.end for span in cut[tp])]
        assert list(pairwise(ends)) == cut[tp]
        assert ends[-1] == start + size


@given(
    st.lists(st.integers(0, 3_600_000 * 3), min_size=1, max_size=30),
    st.integers(1, 9),
    st.none() | st.integers(0, 29),
    st.booleans(),
    st.randoms(),
)
def test_pieces_merge_in_any_order_but_not_behind_a_gap(
    times: list[int], most: int, broken_at: int | None, failed: bool, chance: Any
) -> None:
    frame = Frame(NOW)
    stamps = [NOW - 40 * 3_600_000 + one for one in times]
    cut = list(pieces(Range(0, len(stamps)), len(stamps), most))

    def hours(start: int, end: int, *, piece: bool) -> PartitionHours:
        found = PartitionHours.begin(frame, start, piece=piece)
        found.add(np.arange(start, end), np.array(stamps[start:end]), np.ones(end - start, np.int64))
        found.reached(end)
        return found

    results = []
    for one in cut:
        reached = one.end
        if broken_at is not None and one.start <= broken_at < one.end:
            reached = broken_at
        error = RequestFailedError("gone", retriable=True) if failed and reached < one.end else None
        results.append((one, Ended(reached, error), hours(one.start, reached, piece=True)))
    chance.shuffle(results)
    partition = _Partition(cut, PartitionHours.begin(frame, 0))
    for result in results:
        partition.take(*result)
    whole = broken_at is None or broken_at >= len(stamps)
    end = len(stamps) if whole else broken_at
    assert end is not None
    expected = hours(0, end, piece=False)
    assert partition.ended is not None
    assert (partition.ended.offset, partition.ended.error is not None) == (end, failed and not whole)
    assert list(partition.hours.items()) == list(expected.items())
    assert partition.hours.exact
