"""Segments travel through Spark as parcels, by slab: what goes in comes out, and of each partition all of it."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.disks.solve.segments import NO_END
from retention_cli.engines.spark.packed import Run
from retention_cli.engines.spark.parcels import slab_numbers, stretches
from retention_cli.engines.spark.shuffle_keys import keys
from retention_cli.engines.spark.slabs import RUNS, Slab, slab_of

amounts = st.integers(0, 2**62) | st.integers(0, 300)
times = st.integers(-1, 2**63 - 1) | st.integers(0, 300)
cuts = st.lists(amounts, min_size=2, max_size=6, unique=True).map(sorted)


@st.composite
def slabs(draw: st.DrawFn) -> Slab:
    """Runs of a few partitions, with ends that are unknown, times of any era, and no bytes."""
    rows: list[tuple[int, int, int, int, int, bool]] = []
    runs: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 6))):
        bounds = draw(cuts)
        first = len(rows)
        for base, following in itertools.pairwise(bounds):
            end = following if draw(st.integers(0, 4)) else NO_END
            rows.append((base, end, draw(amounts), draw(amounts), draw(times), draw(st.booleans())))
        place = {"topic": draw(st.sampled_from(["a", "é", "z-1"])), "partition": draw(st.integers(0, 3))}
        ends = {"first_row": first, "last_row": len(rows) - 1, "last_next": rows[-1][1]}
        runs.append({"file": number, "broker": 1, "dir": "/a", "topic_id": None} | place | ends)
    numbers = [np.array([row[n] for row in rows], dtype=np.int64) for n in range(5)]
    active = np.array([row[5] for row in rows], dtype=np.bool_)
    run = Run(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], active)
    counts = np.array([one["last_row"] - one["first_row"] + 1 for one in runs])
    return Slab(pa.Table.from_pylist(runs, schema=RUNS), run, counts)


def told(slab: Slab) -> dict[int, list[tuple[int, ...]]]:
    """Return each run's segments, by its number."""
    ends = np.cumsum(slab.counts).tolist()
    rows = list(zip(*(column.tolist() for column in slab.segments), strict=True))
    starts = [0, *ends[:-1]]
    return {file: rows[a:b] for file, a, b in zip(slab.runs["file"].to_pylist(), starts, ends, strict=True)}


@given(slabs(), st.data())
def test_segments_come_out_of_slabs_as_they_went_in(slab: Slab, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    group = slab_numbers(slab.runs["topic"], slab.numbers("partition"), count)
    rows = slab.cut(group, np.arange(count))
    assert rows["key"].to_pylist() == sorted(set(group.tolist()))
    found = [slab_of(rows.slice(n, 1)) for n in range(len(rows))]
    assert {run: one for part in found for run, one in told(part).items()} == told(slab)
    assert told(slab_of(rows)) == told(slab)
    places = [{*zip(one.runs["topic"].to_pylist(), one.runs["partition"].to_pylist(), strict=True)} for one in found]
    assert not any(one & other for one, other in itertools.combinations(places, 2))


@given(slabs(), st.randoms(use_true_random=False))
def test_runs_are_taken_with_their_segments(slab: Slab, chance: random.Random) -> None:
    order = list(range(len(slab.counts)))
    chance.shuffle(order)
    found = slab.take(np.array(order))
    assert told(found) == told(slab)
    assert found.runs["file"].to_pylist() == order


def test_a_slab_without_runs_is_one() -> None:
    nothing = slab_of(pa.table({"key": [], "runs": pa.array([], pa.binary()), "segments": pa.array([], pa.binary())}))
    assert (len(nothing.runs), len(nothing.counts), len(nothing.segments.active)) == (0, 0, 0)


@given(st.lists(st.integers(0, 4), max_size=12).map(sorted))
def test_stretches_are_the_rows_of_each_value(column: list[int]) -> None:
    """None of a column without rows: a slab of which nothing goes, and partitions of which no log start is known."""
    found = list(stretches(np.array(column, dtype=np.int64)))
    assert [one for value, start, end in found for one in [value] * (end - start)] == column
    assert [value for value, _, _ in found] == sorted(set(column))


def test_the_partitions_of_a_topic_are_spread_evenly() -> None:
    topic = pa.chunked_array([["orders"] * 1000])
    found = np.bincount(slab_numbers(topic, np.arange(1000), 10), minlength=10)
    assert found.min() > 80
    assert found.max() < 120


@pytest.mark.parametrize("count", [1, 2, 7, 80, 1000])
def test_each_shuffle_partition_has_a_key_of_its_own(count: int) -> None:
    assert len(set(keys(count).tolist())) == count
    assert min(keys(count)) >= 0
