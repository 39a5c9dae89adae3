"""A table of situations on a real cluster, each with the exact action and trim_to; and the worked cases of docs/rules.md.

Holding where all facts are there is as much a defect as trimming too far: every row says which it must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from retention_cli.core.units import format_time
from tests.support.clusters import EmbeddedKafka
from tests.support.says import pick
from tests.support.world import DAY, HOUR, MINUTE, World, now_ms, wait_until


@dataclass
class Scenario:
    """Records (ages in hours, in offset order), commits by group, and what must come of it."""

    name: str
    ages_h: Sequence[float]
    commits: dict[str, int]
    policy: str
    action: str
    trim_to: int | None = None
    rule: str | None = None
    limited_by: str | None = None
    unconsumed: int = 0
    codes: tuple[str, ...] = ()
    config: dict[str, str] = field(default_factory=dict)
    groups: str = ""
    text: str = ""


R1 = "retention.commitoffset.enable: true, retention.commitoffset.ms: 24h"
R2 = "retention.max.eventtime.ms: 24h, unconsumed: trim"
R3 = "log.retention.min.timestamp"


def hours_ago(hours: int) -> str:
    return format_time(now_ms() - hours * HOUR)


OLD3_NEW2 = [72, 60, 48, 2, 1]

SCENARIOS = [
    Scenario("R1 stops at the floor", OLD3_NEW2, {"a": 2}, R1, "trim", 2, "consumed"),
    Scenario("R1 stops at the age", OLD3_NEW2, {"a": 5}, R1, "trim", 3, "consumed"),
    Scenario("R1 takes the smallest of all groups", OLD3_NEW2, {"a": 5, "b": 1}, R1, "trim", 1, "consumed"),
    Scenario("R1 with a group at the start", OLD3_NEW2, {"a": 5, "b": 0}, R1, "keep"),
    Scenario("R1 with nothing old enough", [3, 2, 1], {"a": 3}, R1, "keep"),
    Scenario("R1 with everything old and read", [72, 60, 48], {"a": 3}, R1, "trim", 3, "consumed"),
    Scenario("R1 without any group", OLD3_NEW2, {}, R1, "hold", codes=("F4",)),
    Scenario("R1 with an ignored group alone", OLD3_NEW2, {"console-consumer-1": 5}, R1, "hold", codes=("F4",)),
    Scenario(
        "an ignored group does not count", OLD3_NEW2, {"a": 3, "console-consumer-1": 0}, R1, "trim", 3, "consumed"
    ),
    Scenario(
        "a list of one's own replaces the ignored",
        OLD3_NEW2,
        {"a": 3, "console-consumer-1": 1, "tmp-x": 0},
        R1,
        "trim",
        1,
        "consumed",
        groups='ignore: ["tmp-*"]',
    ),
    Scenario("a commit beyond H is a leftover", OLD3_NEW2, {"a": 3, "old": 99}, R1, "hold", codes=("F5",)),
    Scenario(
        "out of order: the first young record ends the prefix", [72, 2, 72, 72, 1], {"a": 5}, R1, "trim", 1, "consumed"
    ),
    Scenario("out of order: a young first record keeps all", [1, 72, 72, 72], {"a": 4}, R1, "keep"),
    Scenario("an empty partition is a keep, group or none", [], {}, R1, "keep"),
    Scenario(
        "a required group that is missing", OLD3_NEW2, {"a": 5}, R1, "hold", codes=("F4",), groups="require: [billing]"
    ),
    Scenario(
        "a required group that is there",
        OLD3_NEW2,
        {"billing": 2},
        R1,
        "trim",
        2,
        "consumed",
        groups="require: [billing]",
    ),
    Scenario(
        "a required group on the entry", OLD3_NEW2, {"a": 5}, R1 + ", groups.require: [billing]", "hold", codes=("F4",)
    ),
    Scenario(
        "R1 longer than the live retention.ms",
        OLD3_NEW2,
        {"a": 5},
        R1,
        "hold",
        codes=("R1",),
        config={"retention.ms": str(12 * HOUR)},
    ),
    Scenario(
        "R1 equal to the live retention.ms",
        [20, 2],
        {"a": 2},
        "retention.commitoffset.enable: true, retention.commitoffset.hours: 12",
        "trim",
        1,
        "consumed",
        config={"retention.ms": str(12 * HOUR)},
    ),
    Scenario(
        "R1 longer than R4",
        OLD3_NEW2,
        {"a": 5},
        R1 + ", retention.ms: 12h",
        "trim",
        3,
        "forced-age",
        codes=("R1",),
        unconsumed=0,
    ),
    Scenario(
        "R4 does not ask who has read", OLD3_NEW2, {"a": 1}, "retention.ms: 24h", "trim", 3, "forced-age", unconsumed=2
    ),
    Scenario("R4 without any group", OLD3_NEW2, {}, "retention.ms: 24h", "trim", 3, "forced-age", unconsumed=3),
    Scenario("R4 off", OLD3_NEW2, {"a": 5}, "retention.ms: -1", "keep"),
    Scenario("R4 with nothing old", [2, 1], {}, "retention.ms: 24h", "keep"),
    Scenario(
        "two levels: R1 first, where read",
        [200, 100, 80, 2],
        {"a": 3},
        "retention.commitoffset.enable: true, retention.commitoffset.hours: 72, retention.ms: 7d",
        "trim",
        3,
        "consumed",
    ),
    Scenario(
        "two levels: R4 takes what R1 must leave",
        [200, 190, 80, 2],
        {"a": 1},
        "retention.commitoffset.enable: true, retention.commitoffset.hours: 72, retention.ms: 7d",
        "trim",
        2,
        "forced-age",
        unconsumed=1,
    ),
    Scenario(
        "two levels: R4 goes on where R1's floor is unknown",
        [200, 190, 80, 2],
        {},
        "retention.commitoffset.enable: true, retention.commitoffset.hours: 72, retention.ms: 7d",
        "trim",
        2,
        "forced-age",
        unconsumed=2,
        codes=("F4",),
    ),
    Scenario(
        "two levels come to the same bound: the first rule is named",
        [200, 190, 2],
        {"a": 2},
        "retention.commitoffset.enable: true, retention.commitoffset.hours: 72, retention.ms: 7d",
        "trim",
        2,
        "consumed",
    ),
    Scenario("no rule on", OLD3_NEW2, {"a": 5}, "unconsumed: hold", "keep"),
    Scenario("frozen", OLD3_NEW2, {"a": 5}, R1 + ', hold: "case 4711"', "hold", codes=("G7",)),
    Scenario("frozen, though empty", [], {}, R1 + ', hold: "case 4711"', "hold", codes=("G7",)),
    Scenario(
        "compact alone is never touched",
        [72, 48, 1],
        {"a": 3},
        R1,
        "skip",
        codes=("G5",),
        config={"cleanup.policy": "compact"},
    ),
    Scenario(
        "compact,delete is never touched unasked",
        [72, 48, 1],
        {"a": 3},
        R1,
        "skip",
        codes=("G5",),
        config={"cleanup.policy": "compact,delete"},
    ),
    Scenario(
        "compact,delete where the entry says so",
        [72, 48, 1],
        {"a": 3},
        R1 + ", compacted: trim",
        "trim",
        2,
        "consumed",
        config={"cleanup.policy": "compact,delete"},
    ),
    Scenario("seconds for milliseconds at the front", [], {"a": 2}, R1, "hold", codes=("G9",)),
    Scenario(
        "seconds for milliseconds, vouched for", [], {"a": 2}, R1 + ", allow.ancient: true", "trim", 2, "consumed"
    ),
    Scenario("seconds for milliseconds hold R4 too", [], {"a": 2}, "retention.ms: 24h", "hold", codes=("G9",)),
    Scenario(
        "LogAppendTime: young whatever the producer says",
        [72, 72],
        {"a": 2},
        R1,
        "keep",
        config={"message.timestamp.type": "LogAppendTime"},
    ),
    Scenario(
        "LogAppendTime: older than no time at all",
        [72, 72],
        {"a": 2},
        "retention.commitoffset.enable: true, retention.commitoffset.ms: 0",
        "trim",
        2,
        "consumed",
        config={"message.timestamp.type": "LogAppendTime"},
    ),
    Scenario("R2 by the newest record", [72, 60, 48, 10, 1], {}, R2, "trim", 3, "event-time", unconsumed=3),
    Scenario("R2 idle for days", [172, 160, 148, 110, 101], {}, R2, "trim", 3, "event-time", unconsumed=3),
    Scenario("R2 out of order", [72, 1, 60, 48], {}, R2, "trim", 1, "event-time", unconsumed=1),
    Scenario("R2 with a young first record", [1, 72, 60], {}, R2, "keep"),
    Scenario("R2 with nothing old", [5, 4, 3], {}, R2, "keep"),
    Scenario(
        "R2 by append times needs a source",
        [0, 0, 0],
        {},
        R2,
        "hold",
        codes=("R2",),
        config={"message.timestamp.type": "LogAppendTime"},
        text="retention.eventtime.source",
    ),
    Scenario("R3 by a date", [72, 48, 2], {"a": 3}, f"{R3}: {hours_ago(24)}", "trim", 2, "min-timestamp"),
    Scenario("R3 moved back", [72, 48, 2], {"a": 3}, f"{R3}: {hours_ago(60)}", "trim", 1, "min-timestamp"),
    Scenario("R3 off", [72, 48, 2], {"a": 3}, f"{R3}: 0", "keep"),
]


@pytest.fixture(scope="module")
def topics(kafka: EmbeddedKafka) -> dict[str, str]:
    """All scenarios at once on the cluster, each with a topic of its own."""
    world, made = World(kafka.bootstrap, Path()), {}
    for number, one in enumerate(SCENARIOS):
        topic = made[one.name] = world.topic(f"scenario{number}", **dict[str, Any](one.config))
        if "seconds for milliseconds" in one.name:
            world.produce_at(topic, [now_ms() // 1000, now_ms() // 1000 + 1])
        else:
            world.produce(topic, [int(age * HOUR) for age in one.ages_h])
    return made


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_scenario_leads_to_its_expected_action_and_target(
    world: World, scenario: Scenario, topics: dict[str, str]
) -> None:
    topic = topics[scenario.name]
    for group, offset in scenario.commits.items():
        world.commit(group if group.startswith(("console", "tmp", "billing")) else f"{topic}-{group}", topic, offset)
    groups = f"groups: {{{scenario.groups}}}\n" if scenario.groups else ""
    decision = world.decide(f"version: 1\n{groups}topics:\n  - {{match: {topic}, {scenario.policy}}}\n", topic)
    looked_at = ("action", "trim_to", "rule", "limited_by", "unconsumed")
    assert pick(decision, *looked_at) == pick(scenario, *looked_at)
    assert {reason.code for reason in decision.reasons} >= set(scenario.codes), decision.reasons
    assert scenario.text in str(decision.reasons)
    if scenario.action == "trim":
        assert (decision.records, decision.size_bytes is not None) == (scenario.trim_to, True)
    if scenario.action == "keep":
        assert {reason.code for reason in decision.reasons} <= {"F5", "G1", "G2"}


@pytest.mark.parametrize(
    ("wanted", "retention", "keeps_at_most"),
    [
        ("1 hour", HOUR, 25 * HOUR),
        ("5 days", 5 * DAY, 6 * DAY),
    ],
)
def test_kretain_trims_within_a_run_where_the_broker_keeps_a_segment_longer(
    world: World, wanted: str, retention: int, keeps_at_most: int
) -> None:
    topic = world.topic("guide", retention_ms=str(retention), segment_ms=str(DAY))
    witness = world.topic("witness", retention_ms="1000", segment_ms="1000")
    # From the oldest that the broker may still have to one that is not expired: no segment spans more than a day.
    world.produce(
        topic, [keeps_at_most - 6 * MINUTE, retention + 2 * HOUR, retention + 5 * MINUTE, retention - 3 * MINUTE]
    )
    world.produce(witness, [HOUR])
    wait_until(lambda: world.ends(witness) == (1, 1), "the broker's retention check to have come by")
    world.produce(witness, [HOUR])
    wait_until(lambda: world.ends(witness) == (2, 2), "the check to have come by once more")
    assert world.ends(topic) == (0, 4), f"the broker keeps what is {wanted} old for a segment longer"
    policy = f"version: 1\ntopics: [{{match: {topic}, retention.ms: {retention}}}]"
    assert [(row.outcome, row.log_start) for row in world.trim(world.plan(policy), policy).rows] == [("trimmed", 3)]
    assert [offset for offset, _ in world.records(topic)] == [3]
