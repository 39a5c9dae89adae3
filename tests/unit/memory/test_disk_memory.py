"""How full disks were, and so how fast they grow: what ``kretain disk`` tells of the ledger's samples."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kretain.render.output import about
from retention_cli.core.model import Unknown
from retention_cli.memory import documents as docs
from retention_cli.memory.disk import DAY_MS, LEAST_MS, LOOKS_AT_MOST, DiskMemory, Growth, Look, growth, pack, unpack
from retention_cli.memory.ledger import Ledger
from retention_cli.state import messages

HOUR = 3_600_000
NOW = 1_800_000_000_000
GIB = 1 << 30


def ago(ms: int, used: int, total: int = 100 * GIB) -> Look:
    return Look(NOW - ms, used, total)


@pytest.mark.parametrize(
    ("looks", "used", "expected"),
    [
        ([ago(DAY_MS, 40 * GIB)], 50 * GIB, Growth(10 * GIB, DAY_MS, 5 * DAY_MS)),
        ([ago(12 * HOUR, 40 * GIB)], 50 * GIB, Growth(20 * GIB, 12 * HOUR, 60 * HOUR)),
        ([ago(DAY_MS, 60 * GIB)], 50 * GIB, Growth(-10 * GIB, DAY_MS, None)),
        ([ago(DAY_MS, 50 * GIB)], 50 * GIB, Growth(0, DAY_MS, None)),
        ([ago(DAY_MS, 90 * GIB)], 100 * GIB, Growth(10 * GIB, DAY_MS, 0)),
        ([ago(30 * DAY_MS, 0), ago(2 * DAY_MS, 40 * GIB)], 50 * GIB, Growth(5 * GIB, 2 * DAY_MS, 10 * DAY_MS)),
        ([ago(40 * DAY_MS, 0), ago(30 * DAY_MS, 20 * GIB)], 50 * GIB, Growth(GIB, 30 * DAY_MS, 50 * DAY_MS)),
        ([ago(3 * DAY_MS, 9 * GIB, 10 * GIB), ago(DAY_MS, 40 * GIB)], 50 * GIB, Growth(10 * GIB, DAY_MS, 5 * DAY_MS)),
    ],
    ids=[
        "a day",
        "half a day",
        "it shrinks",
        "it stands still",
        "it is full",
        "the last seven days alone",
        "after a longer pause, since the last look",
        "from another size on",
    ],
)
def test_disk_growth_is_computed_from_two_looks(looks: list[Look], used: int, expected: Growth) -> None:
    assert growth(looks, ago(0, used)) == expected


@pytest.mark.parametrize(
    "looks",
    [[], [ago(LEAST_MS - 1, 0)], [ago(-HOUR, 0)], [ago(DAY_MS, 0, 50 * GIB)]],
    ids=["never seen", "just now", "a clock that was set back", "of another size"],
)
def test_disk_growth_is_unknown_until_two_looks_are_an_hour_apart(looks: list[Look]) -> None:
    found = growth(looks, ago(0, GIB))
    assert isinstance(found, Unknown)
    assert "1 h apart" in found.reasons[0].text


def test_disk_looks_are_bounded_and_those_close_together_count_as_one() -> None:
    memory = DiskMemory()
    for minute in range(2_000):
        memory.add(Look(NOW + 60_000 * minute, minute, 9))
        memory.add(Look(NOW + 60_000 * minute + 59_999, minute, 9))
    memory.add(Look(NOW + 60_000 * 2_000, 7, 8))
    assert len(memory.looks) <= LOOKS_AT_MOST
    assert (memory.looks[0].used_bytes, memory.looks[-1]) == (0, Look(NOW + 60_000 * 2_000, 7, 8))
    assert growth(memory.looks, Look(NOW + 60_000 * 1_999, 1_999, 9)) != growth([], ago(0, 0))


_looks = st.lists(st.builds(Look, st.integers(0, 9_000_000), st.integers(0, 9), st.just(9)), max_size=90).map(
    lambda rows: sorted(set(rows))
)


@given(_looks, _looks)
def test_disk_memories_merge_to_the_same_in_either_order(first: list[Look], second: list[Look]) -> None:
    one, other = DiskMemory(pack(first)), DiskMemory(pack(second))
    both = one.merged(other)
    assert both.packed == other.merged(one).packed
    assert len(both.looks) <= LOOKS_AT_MOST
    assert both.covers(both)


def test_disk_looks_survive_the_ledger_and_its_documents(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.disk("1:/a").add(ago(0, 5))
        ledger.save(NOW)
    with Ledger(tmp_path) as mine, Ledger(tmp_path) as theirs:
        assert mine.disk("1:/a").looks == (ago(0, 5),)
        mine.disk("1:/a").add(ago(-HOUR, 6))
        theirs.disk("1:/a").add(ago(-2 * HOUR, 7))
        mine.save(NOW)
        theirs.save(NOW)
    with Ledger(tmp_path) as ledger:
        assert [look.used_bytes for look in ledger.disk("1:/a").looks] == [5, 6, 7]
        ledger.prune(NOW)
        assert ledger.disk("1:/a").looks
        ledger.prune(NOW + 3 * HOUR)
        assert not ledger.disk("1:/a").looks
    one, written = docs.DiskDocument("1:/a+/b", DiskMemory(pack([ago(0, 5)]))), messages.Written(5, 1)
    key = docs.DISK + one.name
    assert messages.decode(key, messages.encode(one, written)) == (one, written)
    with pytest.raises(messages.DocumentError, match="another disk"):
        messages.decode(docs.DISK + "2:/a", messages.encode(one, written))
    with pytest.raises(ValueError, match="cut short"):
        unpack(pack([ago(0, 5)])[:-1])


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 min"),
        (HOUR, "60 min"),
        (5 * HOUR, "5 h"),
        (47 * HOUR, "47 h"),
        (48 * HOUR, "2 d"),
        (10**15, "> 10 years"),
    ],
)
def test_time_span_is_shown_in_its_largest_unit(ms: int, text: str) -> None:
    assert about(ms) == text
