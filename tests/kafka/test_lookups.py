"""``offset_at(T)`` on logs that brokers answer −1 about (RULES.md, Look-ups), against the records themselves."""

from __future__ import annotations

import random
import time

import pytest

from retention_cli.lookups import look_up
from retention_cli.model import LookUp, TopicPartition
from retention_cli.observe import Request, observe
from retention_cli.policy.settings import GroupRules, Settings
from tests.kafka.world import DAY, HOUR, World, consumed, now_ms, reader_for


def looked_up(world: World, topic: str, times_ms: list[int], limit: int = 10_000) -> dict[int, LookUp]:
    tp = TopicPartition(topic, 0)
    with reader_for(world.bootstrap) as reader:
        request = Request(lambda name: Settings() if name == topic else None, GroupRules(), now_ms(), lookups=False, sizes=False)
        seen = observe(reader, request)
        answers = list(look_up(reader, seen.facts, {tp: times_ms}, seen.leaders, {topic: limit}, time.monotonic() + 30))
    found = {}
    for _tp, time_ms, answer in answers:
        assert isinstance(answer, LookUp), answer
        found[time_ms] = answer
    return found


def first_at(records: list[tuple[int, int]], time_ms: int, start: int, end: int) -> int:
    """The definition: the first data record at or after S with t ≥ T (S itself, where that is the very first), else H."""
    for number, (offset, stamp) in enumerate(records):
        if stamp >= time_ms:
            return start if number == 0 else offset
    return end


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_on_trimmed_logs_the_answer_is_what_the_records_say(world: World, compression: str) -> None:
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
            times = sorted({base + rng.randrange(21 * DAY) for _ in range(14)} | {stamps[rng.randrange(120)] + d for d in (-1, 0, 1)})
            start, end = world.ends(topic)
            assert start == trim_to
            for time_ms, answer in looked_up(world, topic, times).items():
                wanted = first_at(records, time_ms, start, end)
                # An unambiguous answer may name the first record where ours names S: nothing lies between them.
                assert answer.offset in {wanted, next((o for o, t in records if t >= time_ms), end)}, (trim_to, time_ms)
                assert answer.note is None
            ambiguous += _minus_ones(world, topic, times)
    assert ambiguous > 0, "no look-up was ambiguous: this test tests nothing"


def _minus_ones(world: World, topic: str, times: list[int]) -> int:
    """Count look-ups that the broker answers with −1 though a later record matches."""
    from retention_cli.brokers.log_offsets import NotFound

    records = world.records(topic)
    tp = TopicPartition(topic, 0)
    with reader_for(world.bootstrap) as reader:
        leaders = {tp: reader.metadata([topic]).topics[topic].partitions[0]}
        answers = reader.list_offsets([{tp: time_ms} for time_ms in times], leaders)
    return sum(
        isinstance(answer[tp], NotFound) and any(stamp >= time_ms for _, stamp in records)
        for time_ms, answer in zip(times, answers, strict=True)
    )


def test_reading_stops_at_the_limit_and_says_so(world: World) -> None:
    topic = world.topic("stop")
    # The young record comes first and is trimmed away: from then on the broker's index knows a time that no record has.
    world.produce(topic, [1 * HOUR, *[50 * HOUR] * 40, 2 * HOUR])
    world.delete_records(topic, 1)
    time_ms = now_ms() - 90 * 60_000
    assert looked_up(world, topic, [time_ms])[time_ms].offset == 42
    stopped = looked_up(world, topic, [time_ms], limit=10)[time_ms]
    assert stopped.offset == 11
    assert stopped.note is not None
    assert "stopped at 11" in stopped.note.text
    # The next run goes on from there.
    policy = consumed(topic, "24h", lookup__scan__records="10")
    world.commit(f"{topic}-a", topic, 42)
    decision = world.decide(policy, topic)
    assert decision.trim_to in (11, 41)


def test_a_second_trim_right_after_a_first_is_decided_as_exactly(world: World) -> None:
    """The documented two levels, R1 at 3 d and R4 at 7 d: each run's next is not held by what the last one left."""
    topic = world.topic("again")
    ages = [10, 9, 8, 5, 4, 3.5, 2, 0.5]
    world.produce(topic, [int(days * DAY) for days in ages])
    world.commit(f"{topic}-a", topic, 2)
    policy = (
        f"version: 1\ntopics:\n  - match: {topic}\n    retention.commitoffset.enable: true\n"
        "    retention.commitoffset.hours: 72\n    retention.ms: 7d\n"
    )
    for commit, at_days, expected in ((2, 0, 3), (4, 0, 4), (8, 0, 6), (8, 2, 7), (8, 9, 8)):
        world.commit(f"{topic}-a", topic, commit)
        plan = world.plan(policy, at_ms=now_ms() + at_days * DAY)
        assert plan.decisions[0].trim_to == expected, plan.decisions[0]
        world.delete_records(topic, expected)
    assert world.decide(policy, topic).action == "keep"


def test_out_of_order_again(world: World) -> None:
    topic = world.topic("again")
    world.produce(topic, [int(days * DAY) for days in (10, 2, 9, 8, 0.5, 7.5, 3)])
    world.commit(f"{topic}-a", topic, 7)
    for at_days, expected in ((0, 1), (2, 4), (3, 7)):
        plan = world.plan(consumed(topic, "72h"), at_ms=now_ms() + at_days * DAY)
        assert plan.decisions[0].trim_to == expected, plan.decisions[0]
        world.delete_records(topic, expected)


def test_transaction_markers_and_aborted_records_are_no_data(world: World) -> None:
    """A marker is stamped with the wall clock; behind it, old data must still be found old (R1 on backfills)."""
    topic = world.topic("tx")
    old = now_ms() - 30 * DAY
    world.transaction(topic, [old, old], end="commit")  # 0, 1; the marker at 2
    world.transaction(topic, [old, old], end="commit")  # 3, 4; the marker at 5
    young = now_ms()
    world.transaction(topic, [young], end="abort")  # 6, aborted; the marker at 7
    world.produce_at(topic, [old])  # 8
    world.commit(f"{topic}-a", topic, 9)
    decision = world.decide(consumed(topic, "24h"), topic)
    # The broker answers the marker: all before it is older, so that is right, and the next run goes on behind it.
    assert (decision.action, decision.trim_to) == ("trim", 2)
    world.delete_records(topic, 2)
    decision = world.decide(consumed(topic, "24h"), topic)
    assert decision.action in ("trim", "keep")


def test_an_open_transaction_ends_what_may_go(world: World) -> None:
    topic = world.topic("tx")
    world.produce(topic, [30 * HOUR] * 3)
    producer = world.transaction(topic, [now_ms() - 30 * HOUR] * 2, end="open")
    world.produce(topic, [30 * HOUR] * 2)
    world.commit(f"{topic}-a", topic, 7)  # a reader of uncommitted records
    decision = world.decide(consumed(topic), topic)
    assert (decision.last_stable_offset, decision.high_watermark) == (3, 7)
    assert (decision.action, decision.trim_to, decision.limited_by) == ("trim", 3, "G1")
    forced = world.decide(f"version: 1\ntopics: [{{match: {topic}, retention.ms: 1h}}]", topic)
    assert (forced.trim_to, forced.limited_by) == (3, "G1")
    world.delete_records(topic, 3)
    decision = world.decide(consumed(topic), topic)
    assert decision.action == "keep"
    assert "an open transaction begins at 3" in decision.reasons[0].text
    producer.commit_transaction(30)
    assert world.decide(consumed(topic), topic).action == "trim"


def test_a_log_that_is_nothing_but_old_data_and_a_commit_at_its_end(world: World) -> None:
    topic = world.topic()
    end = world.produce(topic, [40 * HOUR] * 5)
    world.commit(f"{topic}-a", topic, end)
    assert world.decide(consumed(topic, "24h"), topic).trim_to == end
    world.delete_records(topic, end)
    assert world.decide(consumed(topic, "24h"), topic).action == "keep"
