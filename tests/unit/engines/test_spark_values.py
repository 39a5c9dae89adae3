"""What Spark's tasks hand to each other: facts come out as they went in, whatever is in them."""

from __future__ import annotations

import pytest

from retention_cli.core.model import (
    EventMax,
    Floor,
    LookUp,
    PartitionFacts,
    Reason,
    Sample,
    Tail,
    TopicFacts,
    TopicPartition,
    Unknown,
    Usage,
    Watermark,
)
from retention_cli.engines.spark.values import from_bytes, to_bytes
from retention_cli.observe.floors.fold import FloorFold, TopicScope
from retention_cli.observe.floors.folded import FoldedFloors
from retention_cli.observe.floors.standing import Best, GoneCommit, Standing

WHY = Unknown((Reason("offsets", "nobody answered"), Reason("F3", "nor did a group")))
TOPIC = TopicFacts("orders", "id", internal=False, cleanup_policy=frozenset({"delete"}), retention_ms=WHY, tiered=True)
BARE = PartitionFacts(TOPIC, 3, 0, 9, 9, Floor(4, "group:g", (Reason("F5", "odd"),)))


@pytest.mark.parametrize(
    "facts",
    [
        BARE,
        BARE._replace(log_start=WHY, high_watermark=WHY, floor=WHY, size_bytes=WHY, samples=WHY, segment_bases=WHY),
        BARE._replace(
            lookups={5: LookUp(2, Reason("lookup", "stopped"), 4, 1), 6: WHY},
            data_lookups={5: WHY},
            newest=EventMax(7, 3, exact=False),
            samples=(Sample(1, 2),),
            usage=Usage("disk", 91.5, Watermark(90, 0.5, 1)),
            tails={"retention.bytes": Tail(4, exact=True), "retention.topic.bytes": WHY},
            segment_bases=(0, 4),
        ),
    ],
)
def test_facts_travel_whole(facts: PartitionFacts) -> None:
    """A fact more, or a part of one, needs no line of Spark's: that a topic has remote storage had been left behind."""
    assert from_bytes(to_bytes(facts)) == facts


def test_what_was_folded_elsewhere_asks_and_answers_as_the_fold_does() -> None:
    """F5, F6: which leader epochs are asked about, and what their ends and a cut come to."""
    tp = TopicPartition("orders", 0)

    def fold() -> FloorFold:
        made = FloorFold({"orders": TopicScope([7])})
        made.add("bare", {"orders": [(0, 4, None)]})
        made.add("g", {"orders": [(0, 5, 6)]})
        made.add_gone("left", {"orders": [(0, 3, 5)]}, "on Monday")
        return made

    standing = Standing(
        7,
        Best(4, "bare", 5, "g"),
        epochs={6: (5, "g")},
        gone={5: GoneCommit(3, "left", "on Monday")},
        bare=True,
    )
    for cut in (None, (4, 6), "untold"):
        both: tuple[FloorFold, FoldedFloors] = fold(), FoldedFloors({tp: standing})
        for floors in both:
            assert floors.epochs_to_check() == [(tp, 5), (tp, 6)]
            floors.epoch_ends_at(tp, 6, 4)
            floors.epoch_ends_at(tp, 5, None)
            if isinstance(cut, tuple):
                floors.cut_at(tp, *cut)
            elif cut is not None:
                floors.cut_untold(tp)
        one, other = (floors.floor(tp, 0, 9) for floors in both)
        assert one == other
        assert isinstance(one, Unknown)
        assert len(one.reasons) == (2 if cut is None else 3)
