"""Older brokers: what they can't say is unknown or read from the records, and every decision is exact all the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.core.model import TopicPartition
from tests.conftest import QUICK
from tests.support.clusters import EmbeddedKafka
from tests.support.says import held, json_of, pick, rows_of
from tests.support.world import HOUR, World, now_ms, reader_for, written

pytestmark = pytest.mark.timeout(900)

LOOK_UPS_BY_READING = "2.8.2"
"""Has no MAX_TIMESTAMP: it answers the first record instead, without an error."""


@dataclass(frozen=True)
class Case:
    """A log (ages in hours), its start, who has read how far, and what must come of a day's R1 (or of its own rule)."""

    name: str
    ages_h: tuple[float, ...]
    commit: int | None
    action: str
    trim_to: int | None
    start: int = 0
    rule: str = "retention.commitoffset.enable: true, retention.commitoffset.ms: 24h"
    codes: frozenset[str] = frozenset()


DEAD_YOUNG = (2.0, *[50.0] * 29, 2.0, 50.0)
"""The first record is trimmed away; its segment's index still knows its time, so a look-up says −1, though one at 30 matches."""

CASES = (
    Case("in-order-age", (72, 60, 48, 2, 1), 5, "trim", 3),
    Case("in-order-floor", (72, 60, 48, 2, 1), 2, "trim", 2),
    Case("all-old", (72, 60, 48), 3, "trim", 3),
    Case("out-of-order", (72, 2, 72, 72, 1), 5, "trim", 1),
    Case("young-first", (1, 72, 72), 3, "keep", None),
    Case("largest-stamp-in-the-middle", (72, 50, 90, 80), 4, "trim", 4),
    Case("trimmed-then-all-old", (2, 72, 72, 72), 4, "trim", 4, start=1),
    Case("trimmed-then-a-later-match", DEAD_YOUNG, 32, "trim", 30, start=1),
    Case("nobody", (72, 60), None, "hold", None, codes=frozenset({"F4"})),
    Case("beyond-the-end", (72, 60), 9, "hold", None, codes=frozenset({"F5"})),
    Case("forced-age", (72, 60, 2), 1, "trim", 2, rule="retention.ms: 24h"),
)


@dataclass
class Old:
    version: str
    world: World
    topics: dict[str, str]
    policy: Path

    def plan(self) -> dict[str, Any]:
        rows = rows_of(self.world, "plan", "-p", str(self.policy), check=None)
        return {name: rows[topic] for name, topic in self.topics.items()}


VERSIONS = [
    *(pytest.param(version, marks=pytest.mark.long) for version in ("4.3.0", "3.9.1", "3.6.2", "3.3.2")),
    "2.8.2",
]


@pytest.fixture(scope="module", params=VERSIONS)
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Old]:
    home = tmp_path_factory.mktemp("old")
    with EmbeddedKafka(1, version=request.param, settings=QUICK) as kafka:
        world = World(kafka.bootstrap, home / "state")
        rng = random.Random(request.param)
        topics = {}
        for case in CASES:
            topic = topics[case.name] = world.topic(case.name, segment_bytes="1048576")
            stamps = [now_ms() - int(age * HOUR) for age in case.ages_h]
            # Random bytes don't compress: a segment holds 26 records.
            world.produce_at(topic, stamps, value=lambda: rng.randbytes(40_000), batch=1)
            if case.start:
                world.delete_records(topic, case.start)
            if case.commit is not None:
                world.commit(f"{topic}-a", topic, case.commit)
        entries = [f"  - {{match: {topics[case.name]}, {case.rule}}}" for case in CASES]
        policy = written(home / "policy.yaml", "\n".join(["version: 1", "topics:", *entries]))
        yield Old(request.param, world, topics, policy)


def test_old_version_plan_matches_the_expected_actions_and_targets(old: Old) -> None:
    """docs/rules.md, Look-ups: −1 is never taken at its word, and MAX_TIMESTAMP is not asked where it would lie."""
    rows = old.plan()
    decided = {name: pick(row, "action", "trim_to") for name, row in rows.items()}
    assert decided == {case.name: (case.action, case.trim_to) for case in CASES}
    for case in CASES:
        assert {reason["code"] for reason in rows[case.name]["reasons"]} >= case.codes
        assert rows[case.name]["topic_id"], "a decision belongs to a topic's id"


def test_old_version_answers_minus_one_where_a_record_matches(old: Old) -> None:
    """Else the case of the later match would test nothing."""
    tp = TopicPartition(old.topics["trimmed-then-a-later-match"], 0)
    with reader_for(old.world.bootstrap) as reader:
        leaders = {tp: reader.metadata([tp.topic]).topics[tp.topic].partitions[0]}
        specs: tuple[Any, ...] = (now_ms() - 24 * HOUR, "max-timestamp")
        at_time, newest = (reader.list_offsets([{tp: spec}], leaders)[0][tp] for spec in specs)
    assert isinstance(at_time, NotFound)
    assert isinstance(newest, Found) == (old.version != LOOK_UPS_BY_READING)


def test_doctor_names_what_an_old_version_lacks(old: Old) -> None:
    said = json_of(old.world, "doctor")
    release = old.version.rpartition(".")[0]
    assert said["platform"]["kafka_apis"] == (release if release != "4.3" else "4.3 or later")
    lacking = {check["text"].split(" (")[0] for check in said["checks"] if check["check"] == "versions"}
    if old.version == LOOK_UPS_BY_READING:
        assert "a broker lacks ListOffsets 7" in lacking
        assert pick(said["commands"], "plan", "trim") == ("limited", "limited")
    else:
        assert (lacking, said["commands"]["trim"]) == ({"all brokers support the required APIs"}, "good")


def test_old_version_live_member_without_a_commit_holds(old: Old) -> None:
    """F2, where group listings may name no states or types."""
    topic = old.world.filled([72 * HOUR, 60 * HOUR], {"a": 2}, stem="member")
    policy = f"version: 1\ntopics: [{{match: {topic}, {CASES[0].rule}}}]"
    assert old.world.decide(policy, topic).trim_to == 2
    with closing(old.world.member(f"{topic}-b", [topic])):
        held(old.world.decide(policy, topic), "F2")


def test_old_version_trim_deletes_the_planned_records_once(old: Old) -> None:
    before = {case.name: old.world.records(old.topics[case.name]) for case in CASES}
    rows = rows_of(old.world, "trim", "-p", str(old.policy), "--yes")
    for case in CASES:
        kept = case.start if case.trim_to is None else case.trim_to
        topic = old.topics[case.name]
        assert old.world.records(topic) == [one for one in before[case.name] if one[0] >= kept], case.name
        assert rows[topic]["outcome"] == {"trim": "trimmed", "hold": "held", "keep": "unchanged"}[case.action]
    assert {name: row["action"] for name, row in old.plan().items()} == {
        case.name: "hold" if case.action == "hold" else "keep" for case in CASES
    }
