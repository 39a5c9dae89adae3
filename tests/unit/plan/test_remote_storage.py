"""Topics that rules reach and that are not on disks alone: what a plan and `policy check` say of them (KIP-405, KIP-1150)."""

from __future__ import annotations

import pytest

from retention_cli.core.model import TopicFacts
from retention_cli.plan.notes import OffDisks, off_disks
from retention_cli.policy.settings import Settings
from tests.support.facts import HOUR, topic

REACHED = Settings(consumed_after_ms=HOUR)
CONFIRMED = Settings(consumed_after_ms=HOUR, trim_tiered=True)
NONE = OffDisks([], [], [])


@pytest.mark.parametrize(
    ("about", "chosen", "found"),
    [
        (topic(), REACHED, NONE),
        (topic(tiered=True), Settings(), NONE),  # no rule reaches it
        (topic("_schemas", tiered=True), REACHED, NONE),  # it is not touched at all
        (topic(tiered=True), REACHED, OffDisks(["orders"], [], [])),
        (topic(tiered=True), Settings(event_time_ms=HOUR), OffDisks(["orders"], [], [])),
        (topic(tiered=True), Settings(min_timestamp_ms=1), OffDisks(["orders"], [], [])),
        (topic(tiered=True), Settings(forced_age_ms=HOUR), OffDisks(["orders"], [], [])),
        (topic(tiered=True), Settings(max_bytes=1), OffDisks(["orders"], [], [])),
        (topic(tiered=True), Settings(max_topic_bytes=1), OffDisks(["orders"], [], [])),
        (topic(tiered=True), CONFIRMED, OffDisks([], ["orders"], [])),
        (topic(diskless=True), REACHED, OffDisks([], [], ["orders"])),
        (topic(tiered=True, diskless=True), REACHED, OffDisks(["orders"], [], ["orders"])),
    ],
)
def test_topic_off_disks_is_named_where_a_rule_reaches_it(about: TopicFacts, chosen: Settings, found: OffDisks) -> None:
    assert off_disks([about], {about.name: chosen}) == found
    assert [about.name in note.text for note in found.notes()] == [True] * len(found.notes())


def test_notes_name_three_topics_and_how_to_confirm() -> None:
    topics = [topic(f"t{number}", tiered=True) for number in range(9)]
    (note,) = off_disks(topics, {one.name: REACHED for one in topics}).notes()
    assert note.text.startswith("t0, t1, t2 and 6 more: ")
    assert "tiered: trim" in note.text
    (confirmed,) = off_disks(topics, {one.name: CONFIRMED for one in topics}).notes()
    assert "tiered: trim" not in confirmed.text
