"""What is computed slab by slab is what is computed at once (R6)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.disks import inventory_view as view
from retention_cli.disks import segments, water_level
from retention_cli.disks.segments import Segments
from tests.support.disks import segments_of

NUMBERS = st.integers(0, 40)
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4), NUMBERS, NUMBERS, st.integers(-1, 9), st.integers(0, 9)),
    max_size=40,
)


@given(rows=ROWS, bounds=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=5, max_size=5), excess=st.integers(0, 400))
def test_the_water_level_is_the_same_however_small_the_slabs(
    rows: list[tuple[int, ...]], bounds: list[tuple[int, int]], excess: int
) -> None:
    drawn = [(disk, tp, base, base + more, 7 * size, time, size > 8) for disk, tp, base, more, time, size in rows]
    table: Segments = segments_of(drawn)
    start, limit = (np.array(one) for one in zip(*bounds, strict=True))
    above = np.array([excess, excess // 2, 0])
    whole = water_level.water_level(table, start, limit, above)
    for size in (1, 3):
        with pytest.MonkeyPatch.context() as patch:
            for module in (segments, water_level):
                patch.setattr(module, "SLAB", size)
            cut = water_level.water_level(table, start, limit, above)
        for name in whole.__slots__:
            assert getattr(cut, name).tolist() == getattr(whole, name).tolist(), name


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(1, 7))
def test_slabs_of_replicas_are_whole_replicas_in_order(sizes: list[int], most: int) -> None:
    first = np.cumsum([0, *sizes])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view, "SLAB", most)
        found = list(view.replica_slabs(first))
    assert [n for some in found for n in range(some.start, some.stop)] == list(range(len(sizes)))
    assert all(some.stop - some.start == 1 or first[some.stop] - first[some.start] <= most for some in found)
