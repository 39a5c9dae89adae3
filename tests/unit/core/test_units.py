"""Durations and sizes as people write them: exactly what they say, or an error that names the units."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.units import (
    UnitError,
    format_age,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_ms,
    parse_time_ms,
)

MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
BYTES = {
    "B": 1,
    **{f"{p}B": 1000**n for n, p in enumerate("KMGTP", 1)},
    **{f"{p}iB": 1024**n for n, p in enumerate("KMGTP", 1)},
}
spaces = st.sampled_from(["", " ", "  ", "\t"])


@given(st.integers(0, 10**30), st.sampled_from(sorted(MS)), spaces, spaces)
def test_whole_durations_are_exact(amount: int, unit: str, before: str, between: str) -> None:
    assert parse_duration_ms(f"{before}{amount}{between}{unit}{before}") == amount * MS[unit]


@given(st.integers(0, 10**30), st.sampled_from(sorted(BYTES)), spaces)
def test_whole_sizes_are_exact(amount: int, unit: str, between: str) -> None:
    assert parse_bytes(f"{amount}{between}{unit}") == amount * BYTES[unit]


@given(st.integers(0, 10**6), st.text("0123456789", min_size=1, max_size=40), st.sampled_from(sorted(MS)))
def test_fractions_are_exact_or_refused(whole: int, digits: str, unit: str) -> None:
    wanted = Fraction(f"{whole}.{digits}") * MS[unit]
    try:
        assert parse_duration_ms(f"{whole}.{digits}{unit}") == wanted
    except UnitError as error:
        assert wanted.denominator != 1
        assert "whole number of milliseconds" in str(error)


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_an_error_with_an_example(text: str) -> None:
    for parse, example in ((parse_duration_ms, "3d"), (parse_bytes, "50GiB")):
        try:
            assert parse(text) >= 0
        except UnitError as error:
            assert example in str(error) or "whole number" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "-3d",
        "+3d",
        "3 x",
        "d",
        "3D",
        "3d4h",
        "1e3s",
        "0x3d",
        "3,5h",
        ".5h",
        "5.h",
        "3dd",
        "inf s",
        "nan s",
        "∞d",
        "3kb",
    ],
)
def test_text_that_is_no_quantity_is_refused(text: str) -> None:
    for parse in (parse_duration_ms, parse_bytes):
        with pytest.raises(UnitError):
            parse(text)


def test_number_of_thousands_of_digits_is_refused_in_one_line() -> None:
    for text in ("9" * 5_000 + "d", "1." + "9" * 5_000 + "h", "3" + "d" * 5_000):
        for parse in (parse_duration_ms, parse_bytes, parse_time_ms):
            with pytest.raises(UnitError) as refused:
                parse(text)
            assert len(str(refused.value)) < 200
    with pytest.raises(UnitError):
        parse_time_ms("9" * 5_000)


@given(st.integers(0, 10**15))
def test_shown_duration_parses_back(ms: int) -> None:
    assert parse_duration_ms(format_duration(ms).replace(",", "")) == ms


@given(st.integers(0, 2**60))
def test_shown_size_is_within_its_last_digit(size: int) -> None:
    shown = format_bytes(size)
    number, unit = shown.split()
    assert len(number.replace(".", "")) <= 4
    assert abs(Fraction(number) * BYTES[unit] - size) * 100 <= max(size, 1)


def test_age_is_shown_in_its_two_largest_units() -> None:
    ages = (209_206_000, 3_600_000, 3_600_001, 86_400_000 + 5_000, 45_999, 1, 0)
    assert [format_age(ms) for ms in ages] == ["2d 10h", "1h", "1h", "1d", "45s", "1ms", "0ms"]
