"""A profile's hours and what they come to: what a plain loop over the records says, in any number of pieces."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from kretain.commands.topics import check_out
from kretain.errors import UsageError
from kretain.options.common import TimeRange
from kretain.render.profile import AXIS, HEIGHT, columns_of, picture, retained_by, sentences
from retention_cli.core.extras import MissingPartError, arrow
from retention_cli.core.model import ANCIENT_MS
from retention_cli.policy.settings import EventSource
from retention_cli.profile.hours import (
    DAY_MS,
    HOUR_MS,
    NO_TIME_MS,
    RETENTIONS_MS,
    Amount,
    BrokenPieceError,
    Frame,
    PartitionHours,
    Summary,
    binned,
    from_bytes,
    summarize,
    to_bytes,
)
from retention_cli.profile.reading import (
    COLUMNS,
    FORMAT,
    Profile,
    TopicHours,
    Wanted,
    all_rows,
    head,
    schema,
    write_parquet,
)
from tests.support.facts import known
from tests.support.says import refusal

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

    def within(time: int) -> bool:
        return (frame.from_ms is None or time >= frame.from_ms) and (frame.to_ms is None or 0 <= time < frame.to_ms)

    found = defaultdict(list)
    top = -(2**63)
    for one in records:
        kind, late_ms = kind_of(one.time), 0
        if kind[0] in ("hour", "before-2000"):
            top = max(top, one.time)
            late_ms = top - one.time
        if within(one.time):
            found[kind].append((one, late_ms))
    return {kind: row_of(some) for kind, some in found.items()}


def row_of(some: Sequence[tuple[Record, int]]) -> dict[str, int]:
    """What records of one kind come to, each with how late it is."""
    records = [one for one, _ in some]
    newest = max(records, key=lambda one: one.time)  # the first of several
    return {
        "records": len(records),
        "size_bytes": sum(one.size for one in records),
        "tombstones": sum(one.tombstone for one in records),
        "unreadable": sum(one.unreadable for one in records),
        "first_offset": records[0].offset,
        "last_offset": records[-1].offset,
        "oldest_ms": min(one.time for one in records),
        "newest_ms": newest.time,
        "newest_offset": newest.offset,
        "late": sum(late_ms > 0 for _, late_ms in some),
        "late_ms": max(late_ms for _, late_ms in some),
    }


def rows(hours: PartitionHours) -> dict[tuple[str, int | None], dict[str, int]]:
    return {(kind, start): row._asdict() for kind, start, row in hours.items()}


def add(hours: PartitionHours, records: Sequence[Record]) -> PartitionHours:
    numbers = np.array([one[:3] for one in records], np.int64).reshape(-1, 3)
    hours.add(*numbers.T, *np.array([one[3:] for one in records], np.bool_).reshape(-1, 2).T)
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


def sliced(parts: Sequence[Sequence[Record]], frame: Frame = FRAME) -> PartitionHours:
    hours = PartitionHours.begin(frame, 0)
    for part in parts:
        add(hours, part)
    return hours


@given(logs(), st.lists(st.integers(0, 40), max_size=5))
def test_hours_from_slices_of_any_size_equal_a_plain_loop(records: list[Record], places: list[int]) -> None:
    hours = sliced(cut(records, places))
    assert rows(hours) == brute(records)
    assert sum(row.records for row in hours.rows.values()) == len(records)


def piece(records: Sequence[Record], start: int, end: int, frame: Frame = FRAME) -> PartitionHours:
    hours = PartitionHours.begin(frame, start, piece=True)
    for half in cut(records, [len(records) // 2]):
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
    return reduce(PartitionHours.merged, pieces, PartitionHours.begin(pieces[0].frame, pieces[0].start))


FUTURE = [Record(n, time, 1, False, False) for n, time in enumerate((NOW - 5, NOW * 1000, NOW))]
"""The last record is not late because of the one before it."""


@settings(deadline=None)
@given(logs(), st.lists(st.integers(0, 40), max_size=5))
@example(FUTURE, [])
def test_merged_pieces_equal_one_pass(records: list[Record], places: list[int]) -> None:
    pieces = pieces_of(records, places)
    before = [rows(one) for one in pieces]
    found = joined(pieces)
    assert (found.exact, rows(found)) == (True, brute(records))
    assert [rows(one) for one in pieces] == before, "merging changed what was merged"
    assert found.max_ms == max((one.time for one in records if 0 <= one.time <= AHEAD), default=None)


@given(logs(), st.lists(st.integers(0, 40), max_size=3))
def test_profile_pieces_survive_serialization(records: list[Record], places: list[int]) -> None:
    assert rows(joined([from_bytes(to_bytes(one)) for one in pieces_of(records, places)])) == brute(records)


@settings(deadline=None)
@given(logs(), st.lists(st.integers(0, 40), max_size=5), st.integers(1, 4))
def test_front_above_its_limit_is_inexact_and_never_overcounts_late_records(
    records: list[Record], places: list[int], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("retention_cli.profile.hours.STEPS_AT_MOST", most)
        found = joined(pieces_of(records, places))
    there, expected = rows(found), brute(records)
    assert there == expected or not found.exact
    assert there.keys() == expected.keys()
    for key, row in there.items():
        assert row["late"] <= expected[key]["late"]
        assert {**row, "late": 0} == {**expected[key], "late": 0}


@settings(deadline=None)
@given(logs(), DENSE | TIMES, st.none() | DENSE | TIMES, st.lists(st.integers(0, 40), max_size=3))
def test_window_counts_only_records_within_it_and_keeps_them_late(
    records: list[Record], from_ms: int, to_ms: int | None, places: list[int]
) -> None:
    frame = Frame(NOW, from_ms=max(0, from_ms), to_ms=to_ms)
    for hours in (sliced(cut(records, places), frame), joined(pieces_of(records, places, frame))):
        assert rows(hours) == brute(records, frame)


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
    assert why in refusal(ValueError, piece([Record(4, NOW, 1, False, False)], 0, 5).merged, later)


def test_records_added_twice_are_refused() -> None:
    hours = add(PartitionHours.begin(FRAME, 0), [Record(3, NOW, 1, False, False)])
    assert "offset 3 comes after 3" in refusal(ValueError, add, hours, [Record(3, NOW, 1, False, False)])


@pytest.mark.parametrize("raw", [b"", b"nonsense", to_bytes(piece([Record(0, NOW, 1, False, False)], 0, 1))[:-9]])
def test_broken_bytes_of_a_piece_are_refused(raw: bytes) -> None:
    assert "not a part of a profile" in refusal(BrokenPieceError, from_bytes, raw)


def counted(times: list[int], size: int = 10) -> PartitionHours:
    hours = PartitionHours.begin(Frame(NOW), 0)
    hours.add(np.arange(len(times)), np.array(times, np.int64), np.full(len(times), size))
    return hours


def profile_of(*partitions: list[int], source: EventSource | None = None, **wanted: Any) -> Profile:
    topic = TopicHours("t", Frame(NOW), source, source is not None, {n: counted(p) for n, p in enumerate(partitions)})
    return Profile("id", "b:9092", Wanted(("t",), NOW, **wanted), {"t": topic})


def said(found: Profile) -> str:
    topic = found.topics["t"]
    return "\n".join(text for text, _ in sentences(found, topic, summarize(topic.partitions)))


STAMPS = st.lists(st.integers(NOW - 400 * DAY_MS, NOW), min_size=1, max_size=60)


@given(STAMPS, st.integers(20, 120), st.booleans())
def test_chart_bins_fit_and_count_every_record_or_report_it_as_left_out(
    times: list[int], most: int, of_bytes: bool
) -> None:
    bins = known(binned(summarize({0: counted(times)}), most, of_bytes=of_bytes))
    assert len(bins.values) <= most
    assert sum(bins.values) // (10 if of_bytes else 1) + bins.left_out == len(times)
    assert bins.start_ms % bins.bin_ms == 0
    assert sum(bins.start_ms <= one < bins.end_ms for one in times) >= len(times) - bins.left_out


@given(STAMPS, st.integers(20, 120))
def test_chart_fits_its_width_and_draws_every_nonempty_bin(times: list[int], width: int) -> None:
    summary = summarize({0: counted(times)})
    lines = picture(summary, width, of_bytes=False)
    assert all(len(line) <= width - 2 for line in lines[: HEIGHT + 1])
    bins = known(binned(summary, width - 4 - AXIS))
    assert lines[0].split("┤")[0].strip() == f"{max(bins.values):,}"
    assert lines[HEIGHT].split("└")[0].strip() == "0"
    bottom = lines[HEIGHT - 1][AXIS:]
    wide = max(1, min((width - 4 - AXIS) // len(bins.values), 4))
    drawn = [bottom[n * wide : n * wide + 1].strip() != "" for n in range(len(bins.values))]
    assert drawn == [value > 0 for value in bins.values]


@pytest.mark.parametrize("years", [30, 300])
def test_chart_bins_cover_any_number_of_years(years: int) -> None:
    summary = Summary(records=10)
    summary.hours.update(dict.fromkeys((NOW - years * 365 * DAY_MS, NOW), Amount(5, 1)))
    bins = known(binned(summary, 20))
    assert (len(bins.values) <= 20, sum(bins.values)) == (True, 10)


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ([], ["", ""]),
        ([0, 0], ["", ""]),
        ([8, 16], ["    ████", "████████"]),
        ([1, 1000], ["    ████", "▁▁▁▁████"]),
    ],
)
def test_chart_columns_are_as_high_as_their_values(values: list[int], lines: list[str]) -> None:
    assert columns_of(values, 8, height=2) == lines


def kept(found: Profile) -> dict[int, Amount]:
    return retained_by(found, found.topics["t"], summarize(found.topics["t"].partitions))


def test_retention_keeps_records_without_an_age() -> None:
    assert kept(profile_of([NOW - 40 * DAY_MS, NOW - 5 * DAY_MS, NOW - HOUR_MS, NOW * 1000, -1, NOW // 1000])) == {
        retention: Amount(number, number * 10) for retention, number in zip(RETENTIONS_MS, (3, 3, 4, 4), strict=True)
    }


def test_retention_by_event_time_counts_from_the_newest_event_time() -> None:
    found = profile_of([NOW - 40 * DAY_MS, NOW - 41 * DAY_MS - HOUR_MS], source=EventSource("header", "et"))
    assert [one.records for one in kept(found).values()] == [1, 2, 2, 2]
    assert "counted from the newest event time" in said(found)


def test_retention_beyond_the_window_is_not_estimated() -> None:
    assert list(kept(profile_of([NOW - HOUR_MS], from_ms=NOW - 5 * DAY_MS))) == [DAY_MS, 3 * DAY_MS]
    assert kept(profile_of([NOW - HOUR_MS], to_ms=NOW + 1)) == {}


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([NOW - 5, NOW], "in order"),
        ([NOW, NOW - 2 * HOUR_MS], "out of order: 1 record (50.0 %) older than an earlier record, by up to 2h (t-0)"),
        ([*range(NOW - 3000, NOW), NOW - 3000], "out of order: 1 record (less than 0.1 %)"),
        ([NOW * 1000], "the furthest the year 59,009 at t-0 offset 0 (written in microseconds?)"),
        ([NOW + DAY_MS], "future: 1 record stamped more than 1h ahead of now, the furthest 2027-01-16T08:00:00Z"),
        ([NOW // 1000], "before 2000: 1 record, the first at t-0 offset 0"),
        ([-1], "no time: 1 record without a timestamp"),
    ],
)
def test_profile_sentences_name_disorder_future_and_missing_times(times: list[int], words: str) -> None:
    assert words in said(profile_of(times))


@pytest.mark.parametrize(("times", "late"), [([NOW, NOW - 5], "1 record"), ([NOW], "0 records")])
def test_inexact_late_count_is_shown_as_a_lower_bound(times: list[int], late: str) -> None:
    found = profile_of(times)
    found.topics["t"].partitions[0].exact = False
    assert f"out of order: at least {late}" in said(found)


def test_profile_parquet_keeps_units_and_nulls(tmp_path: Path) -> None:
    found = profile_of([NOW, -1, NOW * 1000], [NOW - DAY_MS])
    file = tmp_path / "p.parquet"
    write_parquet(file, head(found), all_rows(found.topics.values()))
    table = arrow("pyarrow.parquet").read_table(file)
    assert table.schema.names == list(COLUMNS)
    assert json.loads(table.schema.metadata[FORMAT.encode()])["cluster"]["id"] == "id"
    rows = {(row["partition"], row["kind"]): row for row in table.to_pylist()}
    assert rows[0, "hour"]["hour"].timestamp() * 1000 == NOW
    assert [rows[0, "future"][name] for name in ("hour", "future", "newest_ms")] == [None, 1, NOW * 1000]
    assert (rows[0, "hour"]["future"], rows[0, "no-time"]["newest_ms"]) == (0, None)
    assert rows[1, "hour"]["no_event_time"] is None


def test_missing_pyarrow_is_named_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("importlib.import_module", without)
    assert "[parquet]'" in refusal(MissingPartError, schema)


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "last_ms", "found"),
    [(None, None, None, None), (5, None, None, 5), (None, None, 10, 90), (None, None, 1000, 0), (4, 5, None, 4)],
)
def test_profile_window_starts_at_its_option(
    from_ms: int | None, to_ms: int | None, last_ms: int | None, found: int | None
) -> None:
    assert TimeRange(from_ms, to_ms, last_ms).bounds(100) == (found, to_ms)


@pytest.mark.parametrize(("from_ms", "to_ms", "last_ms"), [(5, 5, None), (6, 5, None), (1, None, 1), (None, 1, 1)])
def test_empty_or_contradictory_window_is_a_usage_error(
    from_ms: int | None, to_ms: int | None, last_ms: int | None
) -> None:
    refusal(UsageError, TimeRange(from_ms, to_ms, last_ms).bounds, 100)


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("p.csv", "p.parquet"),
        ("no-such-folder/p.parquet", "there is no folder no-such-folder"),
        ("", "writes Parquet"),
    ],
)
def test_invalid_out_path_is_refused_before_reading(out: str, why: str) -> None:
    assert why in refusal(UsageError, check_out, Path(out))


def test_profile_page_documents_exactly_the_real_columns() -> None:
    table = (
        (Path(__file__).parents[3] / "docs" / "profile.md")
        .read_text(encoding="utf-8")
        .partition("| column |")[2]
        .partition("\n\n")[0]
    )
    assert tuple(line.split("`")[1] for line in table.splitlines()[2:]) == COLUMNS
