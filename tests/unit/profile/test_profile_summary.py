"""What a profile's hours come to, and how they are drawn: totals that add up, columns that fit, words that are true."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kretain.commands.profile import Window, check_out
from kretain.errors import UsageError
from kretain.render.profile import HEIGHT, columns_of, kept_of, picture, sentences
from retention_cli.core.extras import MissingPartError, arrow
from retention_cli.policy.settings import EventSource
from retention_cli.profile.hours import HOUR_MS, Frame, PartitionHours
from retention_cli.profile.reading import Profile, TopicHours, Wanted
from retention_cli.profile.rows import COLUMNS, FORMAT, all_rows, head, schema, write_parquet
from retention_cli.profile.summary import DAY_MS, RETENTIONS_MS, Summary, binned, summarize

NOW = 1_800_000_000_000 // HOUR_MS * HOUR_MS
ROOT = Path(__file__).parents[3]


def hours_of(times: list[int], size: int = 10) -> PartitionHours:
    hours = PartitionHours.begin(Frame(NOW), 0)
    hours.add(np.arange(len(times)), np.array(times, np.int64), np.full(len(times), size))
    return hours


def profile_of(*partitions: list[int], source: EventSource | None = None, **wanted: Any) -> Profile:
    topic = TopicHours("t", Frame(NOW), source, source is not None, {n: hours_of(p) for n, p in enumerate(partitions)})
    return Profile("id", "b:9092", Wanted(("t",), NOW, **wanted), {"t": topic})


def said(found: Profile) -> str:
    topic = found.topics["t"]
    return "\n".join(text for text, _ in sentences(found, topic, summarize(topic.partitions)))


STAMPS = st.lists(st.integers(NOW - 400 * DAY_MS, NOW), min_size=1, max_size=60)


@given(STAMPS, st.integers(20, 120), st.booleans())
def test_chart_bins_fit_and_count_every_record_or_report_it_as_left_out(
    times: list[int], most: int, of_bytes: bool
) -> None:
    summary = summarize({0: hours_of(times)})
    bins = binned(summary, most, of_bytes=of_bytes)
    assert bins is not None
    assert len(bins.values) <= most
    assert sum(bins.values) // (10 if of_bytes else 1) + bins.left_out == len(times)
    assert bins.start_ms % bins.bin_ms == 0
    inside = [one for one in times if bins.start_ms <= one < bins.end_ms]
    assert len(inside) >= len(times) - bins.left_out


@given(STAMPS, st.integers(20, 120))
def test_chart_fits_its_width_and_draws_every_nonempty_bin(times: list[int], width: int) -> None:
    summary = summarize({0: hours_of(times)})
    lines = picture(summary, width, of_bytes=False)
    assert all(len(line) <= width - 2 for line in lines[: HEIGHT + 1])
    bins = binned(summary, width - 4)
    assert bins is not None
    bottom = lines[HEIGHT - 1]
    wide = max(1, min((width - 4) // len(bins.values), 4))
    drawn = [bottom[n * wide : n * wide + 1].strip() != "" for n in range(len(bins.values))]
    assert drawn == [value > 0 for value in bins.values]


def test_distant_records_are_left_out_of_the_chart_with_a_note() -> None:
    times = [NOW - 3 * DAY_MS + n * 60_000 for n in range(4000)] + [NOW - 3000 * DAY_MS]
    summary = summarize({0: hours_of(times)})
    bins = binned(summary, 76)
    assert bins is not None
    assert bins.left_out == 1
    assert bins.bin_ms == HOUR_MS
    text = "\n".join(picture(summary, 80, of_bytes=False))
    assert "1 record far off not drawn" in text


@pytest.mark.parametrize("years", [30, 300])
def test_chart_bins_cover_any_number_of_years(years: int) -> None:
    hours = {-years * 365 * DAY_MS + NOW: 5, NOW: 5}
    summary = Summary(records=10)
    for hour, records in hours.items():
        summary.hours[hour // HOUR_MS * HOUR_MS] = type(summary.of_kind("hour"))(records, 1)
    bins = binned(summary, 20)
    assert bins is not None
    assert len(bins.values) <= 20
    assert sum(bins.values) == 10


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


def test_retention_keeps_records_without_an_age() -> None:
    found = profile_of([NOW - 40 * DAY_MS, NOW - 5 * DAY_MS, NOW - HOUR_MS, NOW * 1000, -1, NOW // 1000])
    kept = kept_of(found, found.topics["t"], summarize(found.topics["t"].partitions))
    assert [(one.retention_ms, one.records, one.size_bytes) for one in kept] == [
        (retention, number, number * 10) for retention, number in zip(RETENTIONS_MS, (3, 3, 4, 4), strict=True)
    ]


def test_retention_by_event_time_counts_from_the_newest_event_time() -> None:
    found = profile_of([NOW - 40 * DAY_MS, NOW - 41 * DAY_MS - HOUR_MS], source=EventSource("header", "et"))
    kept = kept_of(found, found.topics["t"], summarize(found.topics["t"].partitions))
    assert [one.records for one in kept] == [1, 2, 2, 2]
    assert "counted from the newest event time" in said(found)


def test_retention_beyond_the_window_is_not_estimated() -> None:
    found = profile_of([NOW - HOUR_MS], from_ms=NOW - 5 * DAY_MS)
    summary = summarize(found.topics["t"].partitions)
    assert [one.retention_ms for one in kept_of(found, found.topics["t"], summary)] == [DAY_MS, 3 * DAY_MS]
    assert not kept_of(profile_of([NOW], to_ms=NOW + 1), found.topics["t"], summary)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([NOW - 5, NOW], "in order"),
        ([NOW, NOW - 2 * HOUR_MS], "out of order: 1 record (50.0 %) older than one before them, by up to 2h (t-0)"),
        ([*range(NOW - 3000, NOW), NOW - 3000], "out of order: 1 record (less than 0.1 %)"),
        ([NOW * 1000], "the furthest the year 59,009 at t-0 offset 0 (written in microseconds?)"),
        ([NOW + DAY_MS], "future: 1 record stamped more than 1h ahead of now, the furthest 2027-01-16T08:00:00Z"),
        ([NOW // 1000], "before 2000: 1 record, the first at t-0 offset 0"),
        ([-1], "no time: 1 record without a timestamp"),
    ],
)
def test_profile_sentences_name_disorder_future_and_missing_times(times: list[int], words: str) -> None:
    assert words in said(profile_of(times))


def test_inexact_late_count_is_shown_as_a_lower_bound() -> None:
    found = profile_of([NOW, NOW - 5])
    found.topics["t"].partitions[0].exact = False
    assert "out of order: at least 1 record" in said(found)
    found = profile_of([NOW])
    found.topics["t"].partitions[0].exact = False
    assert "out of order: at least 0 records" in said(found)


def test_profile_parquet_keeps_units_and_nulls(tmp_path: Path) -> None:
    found = profile_of([NOW, -1, NOW * 1000], [NOW - DAY_MS])
    file = tmp_path / "p.parquet"
    write_parquet(file, head(found), all_rows(found.topics.values()))
    table = arrow("pyarrow.parquet").read_table(file)
    assert table.schema.names == list(COLUMNS)
    assert json.loads(table.schema.metadata[FORMAT.encode()])["cluster"]["id"] == "id"
    rows = {(row["partition"], row["kind"]): row for row in table.to_pylist()}
    assert rows[0, "hour"]["hour"].timestamp() * 1000 == NOW
    assert rows[0, "future"]["hour"] is None
    assert (rows[0, "future"]["future"], rows[0, "hour"]["future"]) == (1, 0)
    assert rows[0, "future"]["newest_ms"] == NOW * 1000
    assert rows[0, "no-time"]["newest_ms"] is None
    assert rows[1, "hour"]["no_event_time"] is None


def test_empty_profile_is_a_parquet_file_without_rows(tmp_path: Path) -> None:
    write_parquet(tmp_path / "p.parquet", {}, [])
    assert arrow("pyarrow.parquet").read_table(tmp_path / "p.parquet").num_rows == 0


def test_missing_pyarrow_is_named_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingPartError, match=r"pip install .*\[parquet\]'"):
        schema()


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "last_ms", "found"),
    [(None, None, None, None), (5, None, None, 5), (None, None, 10, 90), (None, None, 1000, 0), (4, 5, None, 4)],
)
def test_profile_window_starts_at_its_option(
    from_ms: int | None, to_ms: int | None, last_ms: int | None, found: int | None
) -> None:
    assert Window(from_ms, to_ms, last_ms).start(100) == found


@pytest.mark.parametrize(("from_ms", "to_ms", "last_ms"), [(5, 5, None), (6, 5, None), (1, None, 1), (None, 1, 1)])
def test_empty_or_contradictory_window_is_a_usage_error(
    from_ms: int | None, to_ms: int | None, last_ms: int | None
) -> None:
    with pytest.raises(UsageError):
        Window(from_ms, to_ms, last_ms).start(100)


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("p.csv", "p.parquet"),
        ("no-such-folder/p.parquet", "there is no folder no-such-folder"),
        ("", "writes Parquet"),
    ],
)
def test_invalid_out_path_is_refused_before_reading(out: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_out(Path(out))


def test_profile_page_documents_exactly_the_real_columns() -> None:
    page = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
    table = page.partition("| column |")[2].partition("\n\n")[0]
    assert tuple(line.split("`")[1] for line in table.splitlines()[2:]) == COLUMNS
