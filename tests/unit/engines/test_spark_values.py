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
    Unknown,
    Usage,
    Watermark,
)
from retention_cli.engines.spark.shipping import from_bytes, to_bytes

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
def test_partition_facts_survive_spark_serialization(facts: PartitionFacts) -> None:
    """A fact more, or a part of one, needs no line of Spark's: that a topic has remote storage had been left behind."""
    assert from_bytes(to_bytes(facts)) == facts
