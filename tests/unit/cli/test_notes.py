"""A note is printed once per cluster and day; a state directory that is of no use costs a repeat, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kretain.flows.notes import FILE_NAME, once_a_day

NOW = 1_763_900_000_000
DAY = 86_400_000


def printed(state: Path, now_ms: int, *texts: str, cluster: str = "c1") -> list[str]:
    """Return those of the notes that a run prints."""
    with once_a_day(state, cluster, now_ms) as is_new:
        return [text for text in texts if is_new(text)]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    for name in ("c1", "c2"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_note_is_printed_again_after_a_day_or_for_another_cluster(state: Path) -> None:
    assert printed(state, NOW, "clock", "first") == ["clock", "first"]
    assert printed(state, NOW + DAY - 1, "clock", "other") == ["other"]
    assert printed(state, NOW + DAY - 1, "clock", cluster="c2") == ["clock"]
    assert printed(state, NOW + DAY, "clock", "other") == ["clock"]
    assert len(json.loads((state / "c1" / FILE_NAME).read_text())) == 2, "what is older than a day is dropped"


def test_note_is_printed_again_if_the_clock_was_set_back(state: Path) -> None:
    printed(state, NOW, "clock")
    assert printed(state, NOW - 1, "clock") == ["clock"]


def test_note_that_is_repeated_within_a_run_is_printed_each_time(state: Path) -> None:
    assert printed(state, NOW, "clock", "clock") == ["clock", "clock"]


@pytest.mark.parametrize("content", ["", "[]", "null", '{"a": "b"}', "[" * 100_000, "x" * (1 << 21), "\udcff"])
def test_damaged_file_costs_a_repeat(state: Path, content: str) -> None:
    (state / "c1" / FILE_NAME).write_text(content, errors="surrogateescape")
    assert printed(state, NOW, "clock") == ["clock"]
    assert printed(state, NOW + 1, "clock") == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: (state / "c1").rmdir(),
        lambda state: (state / "c1" / FILE_NAME).mkdir(),
        lambda state: ((state / "c1").rmdir(), (state / "c1").write_text("no folder")),
    ],
)
def test_state_directory_that_cannot_be_written_prints_each_note(state: Path, spoil: Callable[[Path], object]) -> None:
    spoil(state)
    assert [printed(state, NOW + later, "clock") for later in (0, 1)] == [["clock"], ["clock"]]
