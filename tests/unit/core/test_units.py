"""Durations and sizes as people write them: exactly what they say, or an error that names the units."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kretain import reach
from retention_cli.core.commands import Reach, grant_line, kafka_tool, kretain
from retention_cli.core.consumers import forget_hint, who
from retention_cli.core.extras import MissingPartError, how_to_add, part
from retention_cli.core.printable import name_in_text, shell_word
from retention_cli.core.units import (
    UnitError,
    format_age,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_ms,
    parse_time_ms,
)
from tests.support.says import refusal

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
        refusal(UnitError, parse, text)


def test_number_of_thousands_of_digits_is_refused_in_one_line() -> None:
    texts = ("9" * 5_000 + "d", "1." + "9" * 5_000 + "h", "3" + "d" * 5_000, "9" * 5_000)
    for text, parse in product(texts, (parse_duration_ms, parse_bytes, parse_time_ms)):
        assert len(refusal(UnitError, parse, text)) < 200


@given(st.integers(0, 10**15))
def test_shown_duration_parses_back(ms: int) -> None:
    assert parse_duration_ms(format_duration(ms).replace(",", "")) == ms


@given(st.integers(0, 2**60))
def test_shown_size_is_within_its_last_digit(size: int) -> None:
    number, unit = format_bytes(size).split()
    assert len(number.replace(".", "")) <= 4
    assert abs(Fraction(number) * BYTES[unit] - size) * 100 <= max(size, 1)


@pytest.mark.parametrize(
    ("show", "given", "shown"),
    [
        (format_age, 209_206_000, "2d 10h"),
        (format_age, 3_600_000, "1h"),
        (format_age, 3_600_001, "1h"),
        (format_age, 86_400_000 + 5_000, "1d"),
        (format_age, 45_999, "45s"),
        (format_age, 1, "1ms"),
        (format_age, 0, "0ms"),
        (shell_word, "a", "a"),
        (shell_word, "a,", "'a,'"),
        (shell_word, "a.b", "a.b"),
        (shell_word, "a.", "'a.'"),
        (name_in_text, "a", "a"),
        (name_in_text, "", "''"),
        (name_in_text, " ", "' '"),
        (name_in_text, "a b", "a b"),
        (name_in_text, "a ", "'a '"),
        (who, "", "group ''"),
    ],
)
def test_age_has_its_two_largest_units_and_odd_names_are_quoted(show: Any, given: object, shown: str) -> None:
    assert show(given) == shown


# -- command lines to be copied (``core.commands``, ``core.extras``), and names in sentences --


REACH = Reach(
    ("--bootstrap-server", "b1:9092", "--command-config", "my file"), ("-b", "b1:9092", "-c", "my file", "-p", "a'b")
)


@pytest.mark.parametrize("name", ["billing", "", "-g", "--", "it's", "a,", "a.", " a"])
def test_quoted_name_is_one_shell_word(name: str) -> None:
    tool = REACH.complete(kafka_tool("kafka-consumer-groups.sh", "--delete", "--group", name))
    assert shlex.split(tool) == ["kafka-consumer-groups.sh", *REACH.kafka, "--delete", "--group", name]
    ours = shlex.split(REACH.complete(kretain("groups", "forget", names=(name,))))
    last = ["--", name] if name.startswith("-") else [name]
    assert ours == ["kretain", "groups", "forget", *REACH.ours, *last]
    assert name or forget_hint(name).endswith("kretain groups forget -b HOST:PORT ''")


def test_printed_commands_get_the_clusters_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_known", [])
    line = grant_line("Describe", "cluster")
    assert reach.completed({"a": [line]}) == {"a": [line]}
    reach.reaches("b:1", None, [("--context", "prod")], secured=False)
    assert reach.completed({"a": [line, 1, None]}) == {"a": [line.replace("HOST:PORT", "b:1"), 1, None]}
    assert reach.complete(kretain("init")) == "kretain init --context prod"
    reach.reaches("b:1", None, [], secured=True)
    assert "--bootstrap-server b:1 --command-config FILE" in reach.complete(line)


@pytest.mark.parametrize(
    ("receipt", "origin", "command"),
    [
        (None, None, "pip install 'kretain[parquet]'"),
        (None, {"url": "file://{}", "dir_info": {"editable": True}}, "pip install -e '{}[parquet]'"),
        (None, {"url": "file://{}", "dir_info": {}}, "pip install '{}[parquet]'"),
        (None, {"url": "file:///nowhere/kretain.whl", "archive_info": {}}, "pip install 'kretain[parquet]'"),
        (None, {"url": "https://example.org/kretain.whl", "archive_info": {}}, "pip install 'kretain[parquet]'"),
        (None, ["odd"], "pip install 'kretain[parquet]'"),
        ("pipx_metadata.json", None, "pipx install --force 'kretain[parquet]'"),
        ("pipx_metadata.json", {"url": "file://{}", "archive_info": {}}, "pipx install --force '{}[parquet]'"),
        ("uv-receipt.toml", None, "uv tool install --force 'kretain[parquet]'"),
    ],
)
def test_install_hint_matches_the_installer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: str | None, origin: object, command: str
) -> None:
    files = {} if origin is None else {"direct_url.json": json.dumps(origin).replace("//{}", f"//{tmp_path}")}
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _name: SimpleNamespace(read_text=files.get))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if receipt is not None:
        (tmp_path / receipt).write_text("")
    assert how_to_add("parquet") == command.replace("{}", str(tmp_path))


def test_missing_package_is_named_with_the_install_command() -> None:
    with pytest.raises(
        MissingPartError,
        match=r"metrics need prometheus_client: pip install .*\[metrics\]', or --listen off \(No module named",
    ):
        part("metrics", "no_such_module")
