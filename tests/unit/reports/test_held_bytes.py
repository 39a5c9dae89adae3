"""Who blocks what: bytes that a group has yet to read, and those of them that nobody else has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import TopicPartition
from retention_cli.reports.groups import GroupSummary, Standings

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
Positions = dict[str, dict[TopicPartition, int]]


def laid(positions: Positions, *, everyone: bool = True, **others: GroupSummary) -> dict[str, tuple[int | None, ...]]:
    """Two logs of 100 records, the first from 100 on, with 10 bytes a record."""
    held = Standings({A: 100, B: 0}, {A: 200, B: 100}, {A: 1000, B: 1000})
    groups = {name: GroupSummary(name, "classic", "consumer", "", "counts") for name in positions} | others
    for name, rows in positions.items():
        for tp, offset in rows.items():
            held.hold(name, tp, offset)
    held.lay_into(groups, everyone=everyone)
    return {name: (one.lag_bytes, one.alone_bytes) for name, one in groups.items()}


def test_group_alone_holds_the_bytes_up_to_the_next_group() -> None:
    found = laid({"slow": {A: 120, B: 90}, "fast": {A: 170, B: 40}})
    assert found == {"slow": (800 + 100, 500), "fast": (300 + 600, 500)}
    assert laid({"only": {A: 120}}) == {"only": (800, 800)}
    assert laid({"one": {A: 120}, "two": {A: 120}}) == {"one": (800, 0), "two": (800, 0)}


def test_position_outside_the_log_counts_at_its_end() -> None:
    assert laid({"lost": {A: 3}, "ahead": {A: 900}}) == {"lost": (1000, 1000), "ahead": (0, 0)}


def test_unknown_position_gives_unknown_bytes() -> None:
    unreadable = GroupSummary("x", "classic", "consumer", "", "counts", lag=None)
    assert laid({"slow": {A: 120}}, x=unreadable) == {"slow": (800, None), "x": (None, None)}
    assert laid({"slow": {A: 120}}, everyone=False) == {"slow": (800, None)}
    assert laid({"slow": {A: 120, TopicPartition("unknown", 0): 5}}) == {"slow": (None, None)}
    ignored = GroupSummary("tool", "classic", "consumer", "", "ignored (groups.ignore)")
    assert laid({"slow": {A: 120}}, tool=ignored)["tool"] == (None, None)


@given(
    st.dictionaries(
        st.sampled_from("vwxyz"), st.dictionaries(st.sampled_from([A, B]), st.integers(0, 220), min_size=1), min_size=1
    )
)
def test_held_alone_equals_what_the_floor_releases(positions: Positions) -> None:
    """As brute force has it; in whatever order groups come."""

    def held(rows: Positions) -> int:
        """What lies behind the floors."""
        behind = 0
        for tp, start in ((A, 100), (B, 0)):
            here = [min(max(one[tp], start), start + 100) for one in rows.values() if tp in one]
            behind += 10 * (start + 100 - min(here, default=start + 100))
        return behind

    found = laid(positions)
    assert found == laid(dict(reversed(positions.items())))
    for name, (_, alone) in found.items():
        caught_up = {**positions, name: dict.fromkeys(positions[name], 10**9)}
        assert alone == held(positions) - held(caught_up)
