"""Partitions that R1 alone decides, and whatever may be odd about one: drawn, or one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from retention_cli.core.model import (
    ANCIENT_MS,
    Floor,
    LookUp,
    PartitionFacts,
    Reason,
    TopicFacts,
    Unknown,
    Usage,
    Watermark,
)
from retention_cli.policy.settings import Settings
from tests.support.facts import HOUR, NOW, UNKNOWN, topic

R1 = Settings(consumed_after_ms=24 * HOUR)
THEN = NOW - 24 * HOUR
WHY = Unknown.because("offsets", "nobody answered")
ODD = Reason("F5", "group b stands at 1: 2 records were gone before it read them")

offsets = st.integers(0, 12)
stamps = st.sampled_from([None, THEN + 1, NOW])


@st.composite
def partitions(draw: st.DrawFn, about: TopicFacts, number: int) -> PartitionFacts:
    """Draw a partition that R1 alone decides, and then perhaps something about it that is not plain."""
    start, high, floor, old = (draw(offsets) for _ in range(4))
    high = max(start, high)
    one = PartitionFacts(
        topic=about,
        partition=number,
        log_start=start,
        high_watermark=high,
        last_stable_offset=high,
        floor=Floor(min(floor, high), draw(st.sampled_from(["group:a", "file:b"]))),
        lookups={THEN: LookUp(old, None, draw(stamps)), ANCIENT_MS: LookUp(draw(st.integers(0, start)))},
        size_bytes=draw(st.integers(0, 2**62)),
        leader_epoch=draw(st.none() | st.integers(0, 5)),
    )
    oddity = draw(st.sampled_from(["", "", *ODDITIES]))
    return one if not oddity else ODDITIES[oddity](one, draw)


def looked(one: PartitionFacts, time_ms: int, answer: Any) -> PartitionFacts:
    return one._replace(lookups={**one.lookups, time_ms: answer})


ODDITIES: dict[str, Callable[[PartitionFacts, Any], PartitionFacts]] = {
    "an open transaction": lambda one, draw: one._replace(last_stable_offset=draw(offsets)),
    "an unknown log start": lambda one, _: one._replace(log_start=WHY),
    "an unknown end": lambda one, _: one._replace(high_watermark=WHY),
    "an unknown stable offset": lambda one, _: one._replace(last_stable_offset=WHY),
    "no floor": lambda one, _: one._replace(floor=UNKNOWN),
    "a floor with a note": lambda one, _: one._replace(floor=Floor(1, "group:b", (ODD,))),
    "a floor beyond the end": lambda one, draw: one._replace(floor=Floor(draw(offsets), "group:c")),
    "a watermark": lambda one, _: one._replace(usage=Usage("disk", 95, Watermark(90, 0.5, HOUR))),
    "a clock that is wrong": lambda one, _: one._replace(clock=WHY),
    "no size": lambda one, _: one._replace(size_bytes=WHY),
    "no look-up": lambda one, _: one._replace(lookups={}),
    "a look-up that failed": lambda one, _: looked(one, THEN, WHY),
    "a look-up that stopped": lambda one, draw: looked(one, THEN, LookUp(draw(offsets), Reason("lookup", "stopped"))),
    "a record in the future": lambda one, draw: looked(one, THEN, LookUp(draw(offsets), None, NOW + 2 * HOUR)),
    "an old stamp": lambda one, draw: looked(one, ANCIENT_MS, LookUp(draw(offsets), None, 5, draw(offsets))),
    "an unknown first stamp": lambda one, _: looked(one, ANCIENT_MS, WHY),
    "no first stamp": lambda one, _: one._replace(lookups={THEN: one.lookups[THEN]}),
}


plain = [
    topic("plain"),
    topic("kept", retention_ms=7 * 24 * HOUR),
]
odd = [
    topic("nameless", topic_id=WHY),
    topic("short", retention_ms=HOUR),
    topic("unread", cleanup_policy=WHY),
    topic("compacted", cleanup_policy=frozenset({"compact"})),
    topic("_inner"),
    topic("__offsets", internal=True),
]
SETTINGS = [
    R1,
    replace(R1, allow_ancient=True),
    replace(R1, max_ahead_ms=3 * HOUR),
    replace(R1, hold="legal"),
    replace(R1, whole_segments=True),
    replace(R1, unsettled=WHY),
    replace(R1, min_wallclock_ms=HOUR),
    replace(R1, forced_age_ms=48 * HOUR),
    replace(R1, forced_age_ms=HOUR),
    replace(R1, event_time_ms=48 * HOUR),
    replace(R1, min_timestamp_ms=NOW - HOUR),
    replace(R1, max_bytes=10),
    replace(R1, consumed_after_ms=NOW),
    Settings(),
]
chosen = st.sampled_from([*[R1] * 12, *SETTINGS])


@st.composite
def slices(draw: st.DrawFn) -> tuple[list[PartitionFacts], dict[str, Settings]]:
    """Draw the partitions of some topics, and the topics' settings."""
    topics = draw(st.lists(st.sampled_from([*plain * 3, *odd]), max_size=4, unique_by=lambda one: one.name))
    facts = [draw(partitions(one, number)) for one in topics for number in range(draw(st.integers(1, 9)))]
    return facts, {one.name: draw(chosen) for one in topics}


BARE = PartitionFacts(
    topic("plain"), 0, 0, 10, 10, Floor(9, "group:a"), {THEN: LookUp(8), ANCIENT_MS: LookUp(0)}, size_bytes=100
)
PLAIN = [
    BARE,
    BARE._replace(partition=1, floor=Floor(0, "group:a"), lookups={}),
    BARE._replace(partition=2, lookups={THEN: LookUp(0), ANCIENT_MS: LookUp(0)}),
    BARE._replace(partition=3, log_start=10, floor=UNKNOWN, lookups={}),
]
"""A trim, a floor at the log start, records too young, an empty partition."""
