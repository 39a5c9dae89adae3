"""``offset_at(T)`` on logs that brokers answer −1 about (docs/rules.md, Look-ups), against the records themselves; also by older brokers."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Search
from retention_cli.core.model import LookUp, TopicPartition
from retention_cli.decide.topic_rules import Wanted
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import Request
from retention_cli.observe.times import look_up
from retention_cli.policy.settings import GroupRules, Settings
from tests.conftest import QUICK
from tests.support.clusters import EmbeddedKafka
from tests.support.facts import known
from tests.support.says import held, json_of, pick, rows_of
from tests.support.world import DAY, HOUR, World, consumed, now_ms, reader_for, written


def looked_up(world: World, topic: str, times_ms: list[int], limit: int = 10_000) -> dict[int, LookUp]:
    wanted = [(TopicPartition(topic, 0), Wanted(frozenset(times_ms)))]
    with reader_for(world.bootstrap) as reader:
        seen = observe(
            reader, Request(lambda name: Settings() if name == topic else None, GroupRules(), now_ms(), decides=False)
        )
        answers = look_up(reader, seen.facts, wanted, seen.leaders, {topic: limit}, time.monotonic() + 30)
        return {time_ms: known(answer) for _tp, time_ms, answer, _data in answers}


def leader_of(reader: ClusterReader, topic: str) -> PartitionMetadata:
    return reader.metadata([topic]).topics[topic].partitions[0]


def first_at(records: list[tuple[int, int]], time_ms: int, start: int, end: int) -> int:
    """The definition: the first data record at or after S with t ≥ T (S itself, where that is the very first), else H."""
    places = [start, *(offset for offset, _ in records[1:])]
    return next((at for at, (_, stamp) in zip(places, records, strict=False) if stamp >= time_ms), end)


@pytest.mark.parametrize(
    "compression", ["none", *(pytest.param(one, marks=pytest.mark.long) for one in ("gzip", "zstd"))]
)
def test_look_up_on_a_trimmed_log_matches_its_records(world: World, compression: str) -> None:
    """Random and in-order stamps, several segments, trims into the middle of batches: hundreds of look-ups a codec."""
    rng = random.Random(f"look-ups {compression}")
    base = now_ms() - 30 * DAY
    ambiguous = 0
    for in_order in (True, False):
        topic = world.topic("lookup", segment_bytes="1048576")
        stamps = [base + rng.randrange(20 * DAY) for _ in range(120)]
        stamps = sorted(stamps) if in_order else stamps
        # Random bytes don't compress: each segment holds 24 records, in any codec.
        world.produce_at(topic, stamps, value=lambda: rng.randbytes(40_000), compression=compression, batch=4)
        for trim_to in (0, 22, 47, 70, 94):  # into the middle of batches, near the ends of segments
            world.delete_records(topic, trim_to)
            records = world.records(topic)
            times = sorted(
                {base + rng.randrange(21 * DAY) for _ in range(14)}
                | {stamps[rng.randrange(120)] + d for d in (-1, 0, 1)}
            )
            start, end = world.ends(topic)
            assert start == trim_to
            for time_ms, answer in looked_up(world, topic, times).items():
                wanted = first_at(records, time_ms, start, end)
                # An unambiguous answer may name the first record where ours names S: nothing lies between them.
                assert answer.offset in {wanted, next((o for o, t in records if t >= time_ms), end)}, (trim_to, time_ms)
                assert answer.note is None
            ambiguous += _minus_ones(world, topic, times, records)
    assert ambiguous > 0, "no look-up was ambiguous: this test tests nothing"


def _minus_ones(world: World, topic: str, times: list[int], records: list[tuple[int, int]]) -> int:
    """Count look-ups that the broker answers with −1 though a later record matches."""
    tp = TopicPartition(topic, 0)
    with reader_for(world.bootstrap) as reader:
        answers = reader.list_offsets([{tp: time_ms} for time_ms in times], {tp: leader_of(reader, topic)})
    return sum(
        isinstance(answer[tp], NotFound) and any(stamp >= time_ms for _, stamp in records)
        for time_ms, answer in zip(times, answers, strict=True)
    )


def test_look_up_stops_at_its_scan_limit_with_a_note(world: World) -> None:
    topic = world.topic("stop")
    # The young record comes first and is trimmed away: from then on the broker's index knows a time that no record has.
    world.produce(topic, [1 * HOUR, *[50 * HOUR] * 40, 2 * HOUR])
    world.delete_records(topic, 1)
    time_ms = now_ms() - 90 * 60_000
    assert looked_up(world, topic, [time_ms])[time_ms].offset == 42
    stopped = looked_up(world, topic, [time_ms], limit=10)[time_ms]
    assert (stopped.offset, "stopped at 11" in known(stopped.note).text) == (11, True), stopped
    # The next run goes on from there.
    policy = consumed(topic, "24h", lookup__scan__records="10")
    world.commit(f"{topic}-a", topic, 42)
    assert world.decide(policy, topic).trim_to in (11, 41)


def test_look_up_stops_at_an_open_transaction(world: World) -> None:
    topic = world.filled([30 * HOUR] * 3, stem="tx")
    producer = world.transaction(topic, [now_ms() - 30 * HOUR] * 2, end="open")
    world.produce(topic, [30 * HOUR] * 2)
    world.commit(f"{topic}-a", topic, 7)  # a reader of uncommitted records
    decision = world.decide(consumed(topic), topic)
    assert pick(decision, "last_stable_offset", "high_watermark") == (3, 7)
    assert pick(decision, "action", "trim_to", "limited_by") == ("trim", 3, "G1")
    forced = f"version: 1\ntopics: [{{match: {topic}, retention.ms: 1h}}]"
    assert pick(world.decide(forced, topic), "trim_to", "limited_by") == (3, "G1")
    world.delete_records(topic, 3)
    decision = world.decide(consumed(topic), topic)
    assert decision.action == "keep"
    said = re.fullmatch(
        r"consumed would trim to 7, but an open transaction begins at 3, of transactional.id tx-\S+ \(producer \d+\), open "
        r"since (\S+)",
        decision.reasons[0].text,
    )
    assert said is not None, decision.reasons
    assert abs(datetime.fromisoformat(said[1]).timestamp() * 1000 - now_ms()) < HOUR
    producer.commit_transaction(30)
    assert world.decide(consumed(topic), topic).action == "trim"


def test_look_up_never_asks_for_a_time_before_1970(world: World) -> None:
    """A cutoff of −1 is Kafka's word for "the end", −2 for "the start": a time so early is older than every record."""
    topic = world.filled([HOUR] * 5, {"a": 5}, stem="early")
    at_ms = now_ms()
    for sentinel in (-1, -2, -3, -4, -5, -6, -(2**61)):
        forced = f"version: 1\ntopics: [{{match: {topic}, retention.ms: {at_ms - sentinel}, allow.ancient: true}}]"
        decision = world.decide(forced, topic, at_ms=at_ms)
        assert pick(decision, "action", "trim_to", "reasons") == ("keep", None, ()), sentinel
    tp = TopicPartition(topic, 0)
    with reader_for(world.bootstrap) as reader, pytest.raises(ValueError, match="not a time to look up"):
        reader.list_offsets([{tp: -1}], {tp: leader_of(reader, topic)})


def test_open_transaction_before_the_log_start_is_not_awaited(world: World) -> None:
    """Brokers let anybody trim past L. From S > L nothing committed can be read, and nothing may go (G1)."""
    topic = world.filled([50 * HOUR] * 2, stem="beyond")
    producer = world.transaction(topic, [1 * HOUR, *[50 * HOUR] * 5], end="open")
    world.delete_records(topic, 4)
    began = time.monotonic()
    decision = world.decide(f"version: 1\ntopics: [{{match: {topic}, retention.ms: 24h}}]", topic)
    assert pick(decision, "log_start", "last_stable_offset", "action") == (4, 2, "keep")
    assert time.monotonic() - began < 25
    producer.abort_transaction(30)


@pytest.mark.parametrize(("gone", "seconds"), [(0, 0), (4, 20)], ids=["it times out", "another trim was quicker"])
def test_look_up_that_cannot_read_its_records_is_unknown(world: World, gone: int, seconds: float) -> None:
    """G9 asks whether the record at S is old: silence is no answer, and reading on elsewhere passes over records."""
    topic = world.filled([50 * HOUR] * 6, stem="unread")
    world.delete_records(topic, gone)
    tp = TopicPartition(topic, 0)
    with reader_for(world.bootstrap) as reader:
        reached = reader.search_records({tp: Search(0, 6, now_ms(), 100)}, seconds)
    assert isinstance(reached[tp], RequestFailedError)


def test_record_stamped_exactly_at_the_cutoff_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """MAX_TIMESTAMP bears a −1 out only where it is smaller than T: here it is T itself."""
    topic = world.topic("exact")
    stamp = now_ms() - 24 * HOUR
    world.produce_at(topic, [stamp - HOUR, stamp - HOUR, stamp])
    honest, silenced = ClusterReader.list_offsets_soon, list[int]()

    def silent(self: ClusterReader, wanted: Any, leaders: Any) -> Any:
        answers = honest(self, wanted, leaders).result()
        silenced.extend(time_ms for asked in wanted for time_ms in asked.values() if isinstance(time_ms, int))
        quiet = [
            {tp: NotFound() if isinstance(asked[tp], int) else answer for tp, answer in one.items()}
            for asked, one in zip(wanted, answers, strict=True)
        ]
        return SimpleNamespace(result=lambda: quiet)

    monkeypatch.setattr(ClusterReader, "list_offsets_soon", silent)  # as after a trim (FACTS: 621 of 1,302)
    for cutoff, wanted in ((stamp, 2), (stamp + 1, 3), (stamp - HOUR, 0), (stamp - HOUR + 1, 2)):
        assert looked_up(world, topic, [cutoff])[cutoff].offset == wanted
        assert cutoff in silenced


def test_concurrent_look_ups_are_not_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first plan asks two times of each partition, some calls at once: more than kafka-python takes by default."""
    monkeypatch.setattr("retention_cli.brokers.log_offsets.PARTITIONS_A_REQUEST", 1)
    topic = world.topic("many", partitions=8)
    with reader_for(world.bootstrap) as reader:
        about = reader.metadata([topic]).topics[topic].partitions
        leaders = {TopicPartition(topic, number): one for number, one in about.items()}
        calls = [reader.list_offsets_soon([dict.fromkeys(leaders, "latest")], leaders) for _ in range(8)]
        answers = [answer for call in calls for answer in call.result()[0].values()]
    assert answers == [Found(0)] * 64


def test_answer_for_a_foreign_leader_epoch_is_an_error_and_never_an_offset(world: World) -> None:
    """Else a leader that we have not heard of yet might say −1, nothing is so young, and H would be the bound."""
    topic = world.filled([DAY] * 3, stem="epoch")
    tp = TopicPartition(topic, 0)
    specs: list[Any] = ["earliest", "latest", "last-stable", "max-timestamp", now_ms()]
    with reader_for(world.bootstrap) as reader:
        there = leader_of(reader, topic)
        leaders = {tp: replace(there, leader_epoch=there.leader_epoch + 5)}
        answers: list[Any] = [one[tp] for one in reader.list_offsets([{tp: spec} for spec in specs], leaders)]
        answers.append(reader.epoch_ends([(tp, 0)], leaders)[tp, 0])
    for answer in answers:
        assert isinstance(answer, RequestFailedError), answer
        assert (answer.retriable, "UNKNOWN_LEADER_EPOCH" in str(answer)) == (True, True), answer


# -- older brokers -----------------------------------------------------------------------------


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
            # Random bytes don't compress: a segment holds 26 records.
            world.produce_at(
                topic, [now_ms() - int(age * HOUR) for age in case.ages_h], value=lambda: rng.randbytes(40_000), batch=1
            )
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
    assert {name: pick(row, "action", "trim_to") for name, row in rows.items()} == {
        case.name: (case.action, case.trim_to) for case in CASES
    }
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
