"""Topics that brokers keep forever, and that only a pattern brings under a rule of age or size (G5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from retention_cli.core.model import TopicFacts
from retention_cli.plan.kept_forever import reached_by_pattern
from retention_cli.policy.settings import Settings
from tests.support.facts import HOUR, topic
from tests.support.policies import policy

ALONE = "version: 1\ntopics: [{match: '*', retention.ms: 1d}]\n"
R4 = Settings(forced_age_ms=HOUR)


@pytest.mark.parametrize(
    ("about", "chosen", "noted"),
    [
        (topic(), R4, True),
        (topic(), Settings(max_bytes=1), True),
        (topic(), Settings(max_topic_bytes=1), True),
        (topic(), Settings(consumed_after_ms=HOUR), False),
        (topic(), replace(R4, named_in_full=True), False),
        (topic(retention_ms=HOUR), R4, False),
        (topic("_schemas"), R4, False),  # it is not touched at all
    ],
)
def test_keep_forever_topic_matched_by_a_pattern_is_named(about: TopicFacts, chosen: Settings, *, noted: bool) -> None:
    notes = reached_by_pattern([about], {about.name: chosen}, policy(ALONE))
    assert [(one.code, about.name in one.text) for one in notes] == ([("G5", True)] if noted else [])


def test_disk_rule_note_lists_topics_kept_forever_by_a_pattern() -> None:
    disks = policy(
        "version: 1\ndisks: {log.retention.disk.usage.percent: 80, capacity: 1TiB}\ntopics: [{match: '*'}]\n"
    )
    assert disks.disks.percent is not None
    topics = [topic(f"t{number}") for number in range(9)]
    (note,) = reached_by_pattern(topics, {one.name: Settings() for one in topics}, disks)
    assert note.text.startswith("t0, t1, t2 and 6 more: retention.ms is -1")
