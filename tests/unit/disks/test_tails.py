"""R5, and rounding to whole segments: the smallest offset whose tail fits (R5, granularity)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import PartitionFacts, Reason, Tail, Unknown
from retention_cli.decide.decision import decide
from retention_cli.disks.inventory_view import exact_tails, exact_topic_tails
from retention_cli.disks.size_limits import estimated_tail
from retention_cli.policy.settings import Settings
from tests.support.disk_oracle import Row
from tests.support.disks import segments_of
from tests.support.facts import HOUR, NOW, Log

NOT_SWEPT = Unknown.because("R5", "its size has dead bytes in it")
BYTES = Settings(max_bytes=100, unconsumed="trim")
LOG = Log(10, [NOW - HOUR] * 10)


@given(st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 10**12), st.integers(0, 10**12))
def test_estimated_tail_is_the_first_offset_that_fits(start: int, records: int, size: int, most: int) -> None:
    end = start + records

    def fits(offset: int) -> bool:
        return size * (end - offset) <= most * records

    found = estimated_tail(start, end, size, most)
    assert start <= found <= end
    assert fits(found)
    assert found == start or not fits(found - 1)


logs = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20), st.integers(0, 5)), max_size=6), st.integers(0, 15)
    ),
    min_size=1,
    max_size=4,
)


def built(drawn: list[tuple[list[tuple[int, int, int]], int]]) -> tuple[list[Row], list[int]]:
    """Each partition's segments: (records, bytes, time); the last is active. And where each log starts."""
    rows, starts = [], []
    for partition, (segments, start) in enumerate(drawn):
        base = 0
        for number, (records, size, time) in enumerate(segments):
            rows.append(Row(0, partition, base, base + records, size, time, number == len(segments) - 1))
            base += records
        starts.append(min(start, base))
    return rows, starts


def live(rows: list[Row], partition: int, start: int) -> list[Row]:
    return [row for row in rows if row.partition == partition and (row.next > start or row.active)]


@given(logs, st.lists(st.integers(-1, 60), min_size=4, max_size=4))
def test_exact_tail_starts_at_a_segment_base(drawn: list, most: list[int]) -> None:
    rows, starts = built(drawn)
    segments = segments_of(rows)
    most = most[: len(starts)]
    found = exact_tails(segments, np.array(starts), np.array(most))
    for partition, (start, limit) in enumerate(zip(starts, most, strict=True)):
        own = live(rows, partition, start)
        fitting = [row.base for n, row in enumerate(own) if row.active or sum(one.size for one in own[n:]) <= limit]
        expected = start if limit < 0 or not own else max(start, min(fitting))
        assert found[partition] == expected


@given(logs, st.integers(-1, 120))
def test_topic_size_limit_trims_the_oldest_segments_until_it_fits(drawn: list, most: int) -> None:
    rows, starts = built(drawn)
    of_topic = [partition % 2 for partition in range(len(starts))]
    found = exact_topic_tails(segments_of(rows), np.array(starts), np.array(of_topic), np.array([most, -1]))
    assert [bound for n, bound in enumerate(found.tolist()) if of_topic[n]] == [
        start for n, start in enumerate(starts) if of_topic[n]
    ]
    bounds = list(starts)
    while most >= 0:
        left = [row for n in range(0, len(starts), 2) for row in live(rows, n, bounds[n])]
        may_go = [row for row in left if not row.active]
        if sum(row.size for row in left) <= most or not may_go:
            break

        def youngest_with(row: Row) -> tuple[int, int, int]:
            begun = live(rows, row.partition, starts[row.partition])
            return max(o.time for o in begun if not o.active and o.next <= row.next), row.partition, row.next

        oldest = min(may_go, key=youngest_with)
        bounds[oldest.partition] = oldest.next
    assert found.tolist()[::2] == bounds[::2]


def with_tails(**tails: Tail | Unknown) -> PartitionFacts:
    keys = {"each": "retention.bytes", "topic": "retention.topic.bytes"}
    return LOG.facts(BYTES)._replace(tails={keys[name]: tail for name, tail in tails.items()})


def test_larger_of_two_size_bounds_decides_and_names_its_source() -> None:
    both = replace(BYTES, max_topic_bytes=1000)
    found = decide(with_tails(each=Tail(12, exact=True), topic=Tail(15, exact=False)), both, NOW)
    assert (found.trim_to, found.rule) == (15, "size")
    assert "retention.topic.bytes" in found.reasons[0].text
    assert "estimated" in found.reasons[0].text
    found = decide(with_tails(each=Tail(16, exact=True), topic=NOT_SWEPT), both, NOW)
    assert (found.trim_to, found.reasons[-1]) == (16, NOT_SWEPT.reasons[0])
    assert "by the inventory" in found.reasons[0].text


def test_unknown_or_unread_size_holds() -> None:
    assert decide(with_tails(each=NOT_SWEPT), BYTES, NOW).reasons == NOT_SWEPT.reasons
    assert decide(LOG.facts(BYTES), BYTES, NOW).action == "hold"


def test_size_rule_stops_at_the_floor() -> None:
    """G2: R5 too trims nothing unread, unless the policy says so."""
    held = replace(BYTES, unconsumed="hold")
    facts = with_tails(each=Tail(18, exact=True))._replace(floor=replace(LOG, floor=13).facts(held).floor)
    found = decide(facts, held, NOW)
    assert (found.trim_to, found.limited_by) == (13, "G2")
    assert decide(facts, replace(held, max_bytes=None), NOW).action == "keep"


WHOLE = replace(BYTES, whole_segments=True)


@pytest.mark.parametrize(
    ("bases", "trim_to"), [([0, 14, 17], 14), ([15], 15), ([16, 20], None), ([0, 10], None), ([], None)]
)
def test_size_bound_is_rounded_down_to_a_segment_base(bases: list[int], trim_to: int | None) -> None:
    facts = with_tails(each=Tail(15, exact=True))._replace(segment_bases=bases)
    found = decide(facts, WHOLE, NOW)
    assert found.trim_to == trim_to
    assert found.action == ("keep" if trim_to is None else "trim")
    if trim_to is None:
        assert isinstance(found.reasons[-1], Reason)
        assert found.reasons[-1].code == "granularity"


def test_whole_segments_without_an_inventory_hold_and_name_the_scan_command() -> None:
    found = decide(with_tails(each=Tail(15, exact=True)), WHOLE, NOW)
    assert found.action == "hold"
    assert any("kretain segments scan" in reason.text for reason in found.reasons)
