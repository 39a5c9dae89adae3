"""A profile's hours (issue: profile): one pass, or pieces that merge, and always what a plain loop over the records says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_cli.core.model import ANCIENT_MS
from retention_cli.profile import hours as hours_of
from retention_cli.profile.hours import (
    HOUR_MS,
    NO_TIME_MS,
    STEPS_AT_MOST,
    BrokenPieceError,
    Frame,
    Front,
    PartitionHours,
    from_bytes,
    to_bytes,
)

NOW = 1_800_000_000_000 // HOUR_MS * HOUR_MS
FRAME = Frame(NOW)
AHEAD = FRAME.ceiling_ms


class Record(NamedTuple):
    offset: int
    time: int
    size: int
    tombstone: bool
    unreadable: bool


def kind_of(time: int) -> tuple[str, int | None]:
    if time < 0:
        return "no-time", None
    if time > AHEAD:
        return "future", None
    return ("before-2000", None) if time < ANCIENT_MS else ("hour", time // HOUR_MS * HOUR_MS)


def brute(records: Sequence[Record], frame: Frame = FRAME) -> dict[tuple[str, int | None], dict[str, int]]:
    """What a person would write who has all the time in the world."""
    found: dict[tuple[str, int | None], dict[str, int]] = {}
    top = None
    for one in records:
        kind = kind_of(one.time)
        late_ms = 0
        if kind[0] in ("hour", "before-2000"):
            late_ms = 0 if top is None else max(0, top - one.time)
            top = one.time if top is None else max(top, one.time)
        if frame.from_ms is not None and one.time < frame.from_ms:
            continue
        if frame.to_ms is not None and (one.time >= frame.to_ms or one.time < 0):
            continue
        row = found.setdefault(
            kind,
            {
                "records": 0,
                "size_bytes": 0,
                "tombstones": 0,
                "unreadable": 0,
                "first_offset": one.offset,
                "last_offset": 0,
                "oldest_ms": one.time,
                "newest_ms": one.time,
                "newest_offset": one.offset,
                "late": 0,
                "late_ms": 0,
            },
        )
        row["records"] += 1
        row["size_bytes"] += one.size
        row["tombstones"] += one.tombstone
        row["unreadable"] += one.unreadable
        row["last_offset"] = one.offset
        row["oldest_ms"] = min(row["oldest_ms"], one.time)
        if one.time > row["newest_ms"]:
            row["newest_ms"], row["newest_offset"] = one.time, one.offset
        row["late"] += late_ms > 0
        row["late_ms"] = max(row["late_ms"], late_ms)
    return found


def rows(hours: PartitionHours) -> dict[tuple[str, int | None], dict[str, int]]:
    return {(kind, start): asdict(row) for kind, start, row in hours.items()}


def add(hours: PartitionHours, records: Sequence[Record]) -> PartitionHours:
    numbers = np.array([one[:3] for one in records], np.int64).reshape(-1, 3)
    flags = np.array([one[3:] for one in records], np.bool_).reshape(-1, 2)
    hours.add(*numbers.T, *flags.T)
    return hours


def near(moment: int, spread: int) -> st.SearchStrategy[int]:
    return st.integers(moment - spread, moment + spread)


ODD = st.sampled_from([NO_TIME_MS, 0, NOW // 1000, NOW // 1000 + 1, NOW // 1000 + 2, NOW * 1000, 2**63 - 1])
TIMES = st.one_of(
    near(NOW - 5 * HOUR_MS, 3), near(NOW - 5 * HOUR_MS, 3 * HOUR_MS), near(ANCIENT_MS, 3), near(AHEAD, 3), ODD
)
DENSE = st.integers(NOW - 5 * HOUR_MS - 2, NOW - 5 * HOUR_MS + 6)


@st.composite
def logs(draw: Any) -> list[Record]:
    """Records with gaps between their offsets. Most logs advance, with ties and steps back at every seam."""
    advancing = draw(st.integers(0, 3)) > 0
    offset, now, found = draw(st.integers(0, 5)), NOW - 5 * HOUR_MS - draw(st.sampled_from([5, HOUR_MS // 2])), []
    for gap in draw(st.lists(st.integers(1, 3), max_size=40)):
        size, tombstone, unreadable = draw(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()))
        now += draw(st.integers(0, 2))
        time = draw(ODD) if draw(st.integers(0, 15)) == 0 else now - draw(st.sampled_from([0, 0, 0, 1, 2, 5]))
        found.append(Record(offset, time if advancing else draw(TIMES), size, tombstone, unreadable))
        offset += gap
    return found


def cut(records: Sequence[Record], places: Sequence[int]) -> list[list[Record]]:
    bounds = [0, *sorted(min(one, len(records)) for one in places), len(records)]
    return [list(records[a:b]) for a, b in pairwise(bounds)]


@given(logs(), st.lists(st.integers(0, 40), max_size=5))
def test_hours_from_slices_of_any_size_equal_a_plain_loop(records: list[Record], places: list[int]) -> None:
    hours = PartitionHours.begin(FRAME, 0)
    for part in cut(records, places):
        add(hours, part)
    assert rows(hours) == brute(records)
    assert sum(row.records for row in hours.rows.values()) == len(records)


def piece(records: Sequence[Record], start: int, end: int, frame: Frame = FRAME) -> PartitionHours:
    hours = PartitionHours.begin(frame, start, piece=True)
    for half in (records[: len(records) // 2], records[len(records) // 2 :]):
        add(hours, half)
    hours.reached(end)
    return hours


def pieces_of(records: Sequence[Record], places: Sequence[int], frame: Frame = FRAME) -> list[PartitionHours]:
    parts = cut(records, places)
    starts = [0]
    for part in parts:
        starts.append(max(starts[-1], part[-1].offset + 1 if part else 0))
    return [piece(part, a, b, frame) for part, (a, b) in zip(parts, pairwise(starts), strict=True)]


def joined(pieces: Sequence[PartitionHours]) -> PartitionHours:
    """Merge pieces, in their order, as they come back from Spark."""
    found = PartitionHours.begin(pieces[0].frame, pieces[0].start)
    for one in pieces:
        found = found.merged(one)
    return found


@settings(deadline=None)
@given(logs(), st.lists(st.integers(0, 40), max_size=5))
def test_merged_pieces_equal_one_pass(records: list[Record], places: list[int]) -> None:
    pieces = pieces_of(records, places)
    before = [rows(one) for one in pieces]
    found = joined(pieces)
    assert found.exact
    assert rows(found) == brute(records)
    assert [rows(one) for one in pieces] == before, "merging changed what was merged"
    dated = [one.time for one in records if 0 <= one.time <= AHEAD]
    assert found.max_ms == max(dated, default=None)


@given(logs(), st.lists(st.integers(0, 40), max_size=3))
def test_profile_pieces_survive_serialization(records: list[Record], places: list[int]) -> None:
    pieces = [from_bytes(to_bytes(one)) for one in pieces_of(records, places)]
    assert rows(joined(pieces)) == brute(records)


@settings(deadline=None)
@given(logs(), st.lists(st.integers(0, 40), max_size=5), st.integers(1, 4))
def test_front_above_its_limit_is_inexact_and_never_overcounts_late_records(
    records: list[Record], places: list[int], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hours_of, "STEPS_AT_MOST", most)
        found = joined(pieces_of(records, places))
    there, expected = rows(found), brute(records)
    if found.exact:
        assert there == expected
    assert there.keys() == expected.keys()
    for key, row in there.items():
        assert row["late"] <= expected[key]["late"]
        assert {**row, "late": 0} == {**expected[key], "late": 0}


@pytest.mark.parametrize("most", [STEPS_AT_MOST, 1])
def test_pieces_cut_within_an_hour_merge_exactly_or_as_a_lower_bound(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Chance finds these oftener than hypothesis: what is late of an hour in which earlier records end."""
    monkeypatch.setattr(hours_of, "STEPS_AT_MOST", most)
    chance = random.Random(7)
    unsure = 0
    for _ in range(400):
        now, records = NOW - 5 * HOUR_MS - chance.choice((5, HOUR_MS // 2)), []
        for offset in range(chance.randint(3, 40)):
            now += chance.randint(0, 2)
            records.append(Record(offset, now - chance.choice((0, 0, 0, 1, 2, 5, 9)), 1, False, False))
        pieces = pieces_of(records, [chance.randint(0, len(records)) for _ in range(3)])
        found = joined(pieces)
        late = sum(row.late for row in found.rows.values())
        true = sum(row["late"] for row in brute(records).values())
        if found.exact:
            assert rows(found) == brute(records)
        else:
            unsure += 1
            assert late <= true
    assert (unsure == 0) == (most > 40)
    assert unsure < 200, "most are exact all the same"


@settings(deadline=None)
@given(logs(), DENSE | TIMES, st.none() | DENSE | TIMES, st.lists(st.integers(0, 40), max_size=3))
def test_window_counts_only_records_within_it_and_keeps_them_late(
    records: list[Record], from_ms: int, to_ms: int | None, places: list[int]
) -> None:
    frame = Frame(NOW, from_ms=max(0, from_ms), to_ms=to_ms)
    hours = PartitionHours.begin(frame, 0)
    for part in cut(records, places):
        add(hours, part)
    assert rows(hours) == brute(records, frame)
    assert rows(joined(pieces_of(records, places, frame))) == brute(records, frame)


def test_implausible_times_make_no_additional_hours() -> None:
    """A microsecond clock, seconds for milliseconds, noise: none of it makes hours by the million."""
    chance = np.random.default_rng(7)
    times = chance.integers(0, 2**63 - 1, 200_000)
    times[::3] = chance.integers(0, NOW // 1000, len(times[::3]))
    hours = PartitionHours.begin(FRAME, 0)
    hours.add(np.arange(200_000), times, np.ones(200_000, np.int64))
    assert {kind for kind, _, _ in hours.items()} <= {"future", "before-2000", "hour"}
    assert len(hours.rows) <= 3
    assert sum(row.records for _, _, row in hours.items()) == 200_000


def test_distant_time_counts_as_future_despite_a_high_ceiling() -> None:
    frame = Frame(NOW, max_ahead_ms=2**62)
    hours = PartitionHours.begin(frame, 0)
    add(hours, [Record(0, 2**62, 1, False, False)])
    assert [kind for kind, _, _ in hours.items()] == ["future"]


def test_future_timestamp_makes_no_later_record_late() -> None:
    records = [
        Record(0, NOW - 5, 1, False, False),
        Record(1, NOW * 1000, 1, False, False),
        Record(2, NOW, 1, False, False),
    ]
    hours = add(PartitionHours.begin(FRAME, 0), records)
    assert sum(row.late for row in hours.rows.values()) == 0
    assert hours.max_ms == NOW


@pytest.mark.parametrize(
    ("later", "why"),
    [
        (piece([], 6, 9), "don't follow"),
        (piece([], 4, 9), "don't follow"),
        (PartitionHours.begin(Frame(NOW + 1), 5, piece=True), "different clocks"),
        (add(PartitionHours.begin(FRAME, 5), [Record(5, NOW, 1, False, False)]), "no piece"),
    ],
)
def test_piece_with_a_gap_another_frame_or_no_front_is_not_merged(later: PartitionHours, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        piece([Record(4, NOW, 1, False, False)], 0, 5).merged(later)


def test_records_added_twice_are_refused() -> None:
    hours = add(PartitionHours.begin(FRAME, 0), [Record(3, NOW, 1, False, False)])
    with pytest.raises(ValueError, match="offset 3 comes after 3"):
        add(hours, [Record(3, NOW, 1, False, False)])


@pytest.mark.parametrize("raw", [b"", b"nonsense", to_bytes(piece([Record(0, NOW, 1, False, False)], 0, 1))[:-9]])
def test_broken_bytes_of_a_piece_are_refused(raw: bytes) -> None:
    with pytest.raises(BrokenPieceError, match="no piece of a profile"):
        from_bytes(raw)


def test_front_count_is_exact_only_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hours_of, "STEPS_AT_MOST", 2)
    front = Front()
    front.add(np.array([5, 5, 20, 30]))
    assert front.count(0, 30) == (3, True)
    assert front.count(0, 31) == (3, False)
