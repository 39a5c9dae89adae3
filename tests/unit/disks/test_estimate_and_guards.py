"""R6 without an inventory, disks and decisions together: what goes, what holds, what is said (R6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.core.codes import Code
from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.disk import Disk, Leaving, Room
from retention_cli.disks.estimate import Known, estimate
from retention_cli.disks.water_level import OldestFirst
from retention_cli.policy.settings import DiskRules

OLD, NEW, OTHER = TopicPartition("old", 0), TopicPartition("new", 0), TopicPartition("other", 0)
NOW = 1_800_000_000_000
MINUTE = 60_000
SEGMENT = 1_000
R6 = DiskRules(percent=50)
DOUBT = Unknown.because("R6", "its log start has moved since its size last fell")


@dataclass
class Brokers:
    """Partitions of 100 records, one a minute, 100 bytes each; ``old`` ends where ``new`` begins."""

    wrong: Mapping[TopicPartition, Answer] = field(default_factory=dict)
    silent: frozenset[TopicPartition] = frozenset()
    """Whose MAX_TIMESTAMP is not answered."""
    times: list[int] = field(default_factory=list)

    def stamp(self, tp: TopicPartition, offset: int) -> int:
        return NOW - MINUTE * ({OLD: 200, NEW: 100, OTHER: 150}[tp] - offset)

    def list_offsets(self, wanted: Sequence[Mapping[TopicPartition, Any]], _: object) -> list[dict[Any, Answer]]:
        return [{tp: self.answer(tp, spec) for tp, spec in one.items()} for one in wanted]

    def answer(self, tp: TopicPartition, spec: Any) -> Answer:
        if spec == "max-timestamp":
            return NotFound() if tp in self.silent else Found(0, max(self.stamp(tp, n) for n in range(100)))
        self.times.append(spec)  # 0 asks for the first record
        if tp in self.wrong:
            return self.wrong[tp]
        return next((Found(n) for n in range(100) if self.stamp(tp, n) >= spec), NotFound())


def walked(
    used: int = 20_000,
    brokers: Brokers | None = None,
    *,
    total: int = 20_000,
    room: Unknown | None = None,
    leaving: int = 0,
    **facts: Any,
) -> OldestFirst:
    """One disk of 20,000 bytes with ``old`` and ``new`` on it: half of them must go."""
    disk = Disk(1, ("/a",), room or Room(total, used, 20_000), {OLD: 10_000, NEW: 10_000})
    free = Limit(100, Code.G1, "the high watermark")
    doubts = {(0, tp): why for tp, why in facts.pop("doubts", {}).items()}
    usual: dict[str, Any] = {
        "ends": {OLD: (0, 100), NEW: (0, 100)},
        "decided": {},
        "limits": {OLD: free, NEW: free},
        "segment_bytes": {"old": SEGMENT, "new": SEGMENT},
        "doubts": doubts,
        "dead_bytes": dict.fromkeys(doubts, facts.pop("dead", 0)),
        "doubtful_bytes": dict.fromkeys(doubts, facts.pop("doubtful", 0)),
        "leaving": [Leaving(leaving)],
    }
    known = Known(**(usual | facts))
    reader: Any = brokers or Brokers()
    return estimate(reader, [disk], R6, known, dict.fromkeys((OLD, NEW)), NOW)  # type: ignore[arg-type]


def test_oldest_partition_is_trimmed_to_its_last_segment_before_the_next() -> None:
    found = walked()
    assert found.bounds == {OLD: 90, NEW: 13}  # a segment is 10 records, and a quarter more for good measure
    [one] = found.outcomes
    assert (one.excess_bytes, one.freed_bytes, one.short_bytes, one.estimated) == (10_000, 10_000, 0, True)
    assert found.unknown == {}
    assert walked(15_000).bounds == {OLD: 53}


def test_look_up_times_of_an_estimate_are_deterministic() -> None:
    one, other = Brokers(), Brokers()
    walked(brokers=one)
    walked(brokers=other)
    assert one.times == other.times
    assert {time % 512 for time in one.times} == {0}


def test_times_covered_by_an_earlier_look_up_are_not_looked_up_again() -> None:
    """Of ``new`` all is younger than the level, of ``old`` a part: few of the 32 rounds have anything to ask."""
    brokers = Brokers()
    assert walked(15_000, brokers).bounds == {OLD: 53}
    assert len(brokers.times) <= 44, "of 64"


def test_young_record_out_of_order_ends_the_trimmed_prefix() -> None:
    """Only what stands before every record that is not older may go."""

    class Shuffled(Brokers):
        def stamp(self, tp: TopicPartition, offset: int) -> int:
            return NOW if (tp, offset) == (OLD, 30) else super().stamp(tp, offset)

    assert walked(15_000, Shuffled()).bounds == {OLD: 23, NEW: 33}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"limits": {NEW: Limit(100, Code.G1, "")}}, None),
        ({"limits": {NEW: Limit(100, Code.G1, ""), OLD: Unknown.because("F4", "no group")}}, "F4"),
        ({"segment_bytes": {"new": SEGMENT}}, "R6"),
        ({"doubts": {OLD: DOUBT}}, "R6"),
    ],
    ids=["not managed", "floor unknown", "segments of unknown size", "perhaps dead bytes in it"],
)
def test_partition_that_must_not_be_trimmed_is_not_estimated(change: dict[str, Any], why: str | None) -> None:
    found = walked(**change)
    assert OLD not in found.bounds
    assert [reason.code for one in found.unknown.values() for reason in one.reasons] == ([] if why is None else [why])
    [one] = found.outcomes
    assert one.short_bytes == 1_000
    assert sum(row.size_bytes for row in one.in_the_way if row.tp == OLD) == 10_000
    assert sum(row.size_bytes for row in one.in_the_way if row.tp == NEW) == 1_000


def test_estimate_never_trims_past_a_limit() -> None:
    """G2."""
    held = Limit(35, Code.G2, "group:a has read up to 35")
    found = walked(limits={OLD: held, NEW: held})
    assert found.bounds == {OLD: 33, NEW: 33}
    [one] = found.outcomes
    assert one.short_bytes == 4_000
    assert {row.code: row.size_bytes for row in one.in_the_way} == {"G2": 6_000, "active": 1_000}


@pytest.mark.parametrize("way", ["dead", "doubtful", "leaving"])
def test_bytes_leaving_or_doubtful_are_not_trimmed_from_other_topics(way: str) -> None:
    """R5, R6: else each pass would trim again what the last one has."""
    more: dict[str, Any] = {way: 5_000} if way == "leaving" else {"doubts": {NEW: DOUBT}, way: 5_000}
    found = walked(15_000, **more)
    assert found.bounds == {}
    waiting = {"dead": {NEW}, "doubtful": {NEW, OLD}, "leaving": set()}  # unknown, though nothing more is wanted
    assert found.unknown.keys() == waiting[way]
    assert walked(16_000, **more).bounds == {OLD: 13}
    assert walked(10_000, **more).unknown == {}  # R6 asks for nothing there


def test_bytes_that_other_rules_trim_are_not_freed_again() -> None:
    found = walked(15_000, decided={NEW: 50})
    assert found.bounds == {}
    assert found.outcomes[0].other_rules_bytes == 5_000


def test_trim_below_one_full_segment_by_other_rules_counts_as_doubtful_bytes() -> None:
    """Nobody knows where they end: half of a partition goes, which frees nothing, or half of its bytes."""
    found = walked(15_000, decided={NEW: 50}, segment_bytes={"old": SEGMENT, "new": 1 << 30})
    assert found.bounds == {}
    [one] = found.outcomes
    assert (one.other_rules_bytes, one.doubtful_bytes, one.short_bytes) == (0, 5_000, 0)
    assert "may be dead or trimmed by other rules" in one.notes()[0].text


@pytest.mark.parametrize(
    "answer", [NotFound(), RequestFailedError("moved", retriable=True)], ids=["minus one", "an error"]
)
@pytest.mark.parametrize("silent", [True, False])
def test_partition_with_unanswered_look_ups_is_trimmed_only_if_its_newest_record_is_known(
    answer: Answer, *, silent: bool
) -> None:
    """docs/rules.md, Look-ups: it means H only where MAX_TIMESTAMP bears it out; else nothing goes."""
    brokers = Brokers({OLD: answer}, frozenset({OLD} if silent else ()))
    # after its newest record its end is known without an answer; where that is not known either, others must do
    assert walked(15_000, brokers).bounds == ({NEW: 53} if silent else {OLD: 53})


def test_unknown_disk_holds_every_partition_on_it() -> None:
    found = walked(room=Unknown.because("disk", "offline"))
    assert found.bounds == {}
    assert found.unknown.keys() == {OLD, NEW}
    shared = walked(50_000, total=60_000)
    assert shared.bounds == {}
    assert "disks.shared" in shared.unknown[OLD].reasons[0].text
