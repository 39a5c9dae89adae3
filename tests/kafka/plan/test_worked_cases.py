"""docs/rules.md, Worked cases (the retention guide's table), on a real broker with a real segment.ms of a day.

The broker keeps what is long expired, because its segment is still written to; kretain's next run has it gone.
"""

from __future__ import annotations

import pytest

from tests.support.world import DAY, HOUR, World, wait_until


@pytest.mark.parametrize(
    ("wanted", "retention", "keeps_at_most"),
    [
        ("1 hour", HOUR, 25 * HOUR),
        ("12 hours", 12 * HOUR, 36 * HOUR),
        ("1 day", DAY, 2 * DAY),
        ("5 days", 5 * DAY, 6 * DAY),
    ],
)
def test_kretain_trims_within_a_run_where_the_broker_keeps_a_segment_longer(
    world: World, wanted: str, retention: int, keeps_at_most: int
) -> None:
    minute = 60_000
    topic = world.topic("guide", retention_ms=str(retention), segment_ms=str(DAY))
    witness = world.topic("witness", retention_ms="1000", segment_ms="1000")
    # From the oldest that the broker may still have to one that is not expired: no segment spans more than a day.
    ages = [keeps_at_most - 6 * minute, retention + 2 * HOUR, retention + 5 * minute, retention - 3 * minute]
    world.produce(topic, ages)
    world.produce(witness, [HOUR])
    wait_until(lambda: world.ends(witness) == (1, 1), "the broker's retention check to have come by")
    world.produce(witness, [HOUR])
    wait_until(lambda: world.ends(witness) == (2, 2), "the check to have come by once more")
    assert world.ends(topic) == (0, 4), f"the broker keeps what is {wanted} old for a segment longer"
    policy = f"version: 1\ntopics: [{{match: {topic}, retention.ms: {retention}}}]"
    report = world.trim(world.plan(policy), policy)
    assert [(row.outcome, row.log_start) for row in report.rows] == [("trimmed", 3)]
    assert [offset for offset, _ in world.records(topic)] == [3]
