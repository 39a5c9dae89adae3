"""``offset_at(T)`` on logs that brokers answer −1 about (docs/rules.md, Look-ups), against the records themselves."""

from __future__ import annotations

import random
import re
import time
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from retention_cli.brokers import log_offsets
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Search
from retention_cli.core.model import LookUp, TopicPartition
from retention_cli.decide.lookups import Wanted
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import Request
from retention_cli.observe.times import look_up
from retention_cli.policy.settings import GroupRules, Settings
from tests.support.facts import known
from tests.support.says import pick
from tests.support.world import DAY, HOUR, World, consumed, now_ms, reader_for


def looked_up(world: World, topic: str, times_ms: list[int], limit: int = 10_000) -> dict[int, LookUp]:
    wanted = [(TopicPartition(topic, 0), Wanted(frozenset(times_ms)))]
    with reader_for(world.bootstrap) as reader:
        request = Request(lambda name: Settings() if name == topic else None, GroupRules(), now_ms(), decides=False)
        seen = observe(reader, request)
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
    monkeypatch.setattr(log_offsets, "PARTITIONS_A_REQUEST", 1)
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
