"""Requests that nobody answers, and batches that are late: what is said of them, and what is sent."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest

from retention_cli.brokers import deleter
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.wire.connections import Job
from tests.kafka.test_trim import OLD, audit, only
from tests.kafka.world import LateClock, World, consumed, reader_for


@pytest.fixture
def topic(world: World) -> str:
    """Ten old records; group a has read eight."""
    name = world.topic()
    world.produce(name, OLD)
    world.commit(f"{name}-a", name, 8)
    return name


@pytest.mark.parametrize("held", [False, True])
def test_a_request_that_nobody_answered_and_that_was_carried_out_late_is_told_as_trimmed(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch, *, held: bool
) -> None:
    """By the time of the next recheck there is nothing left to trim, or the policy holds it: what went is said all the same."""
    late: list[Any] = []
    honest = deleter.Deleter.delete

    def unanswered(self: deleter.Deleter, by_leader: Any, on_outcome: Any, *, timeout_s: float) -> None:
        late.append(lambda: honest(self, by_leader, lambda *_: None, timeout_s=timeout_s))
        for offsets in by_leader.values():
            for tp in offsets:
                on_outcome(tp, RequestFailedError("timed out", retriable=True))

    monkeypatch.setattr(deleter.Deleter, "delete", unanswered)
    carried: list[Any] = []

    def carry_out_meanwhile(_seconds: float) -> None:
        if late:
            carried.append(late.pop()())

    clock = LateClock(meanwhile=carry_out_meanwhile)
    more = f"\n  - {{match: {topic}, hold: a case}}\n"
    report = world.trim(
        world.plan(consumed(topic)), lambda: consumed(topic) + (more if held and carried else ""), clock=clock
    )
    row = only(report)
    assert world.ends(topic) == (8, 10)
    assert (row.outcome, row.log_start, row.records) == ("trimmed", 8, 8)
    assert report.trimmed.records == 8
    *before, found, end = audit(world)
    assert end["totals"]["records"] == 8
    assert [line["event"] for line in before] == ["run", "batch", "result"]
    assert [line["partitions"][0]["outcome"] for line in (before[-1], found)] == ["unverified", "trimmed"]
    assert (found["event"], found["batch"], found["partitions"][0]["log_start"]) == ("result", 1, 8)
    assert "unverified" not in world.cli("history", "--run", report.run, check=0).out


def test_a_request_that_nobody_answered_stays_unverified_where_it_may_yet_be_carried_out(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not held, not failed: the broker may still have it."""
    import retention_cli.trim.batches as trimming

    sent: list[int] = []

    def unanswered(self: deleter.Deleter, by_leader: Any, on_outcome: Any, *, timeout_s: float) -> None:
        sent.append(1)
        for offsets in by_leader.values():
            for tp in offsets:
                on_outcome(tp, RequestFailedError("timed out", retriable=True))

    monkeypatch.setattr(deleter.Deleter, "delete", unanswered)
    monkeypatch.setattr(trimming, "AGAIN_AFTER_S", (0.01,))
    more = f"\n  - {{match: {topic}, hold: a case}}\n"
    row = only(world.trim(world.plan(consumed(topic)), lambda: consumed(topic) + (more if sent else "")))
    assert (row.outcome, row.log_start, len(sent)) == ("unverified", 0, 1)


def test_a_batch_whose_announcement_took_too_long_is_rechecked_not_sent(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recheck is at most 30 s old when the request goes out, also where the disk of the audit log stalls."""
    import retention_cli.trim.batches as trimming
    from retention_cli.trim.journal import AuditJournal

    clock = LateClock()
    honest = AuditJournal.batch

    def stall_once(self: AuditJournal, number: int, targets: Any) -> None:
        honest(self, number, targets)
        if not clock.passed:
            world.commit(f"{topic}-a", topic, 3)
            clock.passed.append(31)

    monkeypatch.setattr(AuditJournal, "batch", stall_once)
    plan = world.plan(consumed(topic))
    monkeypatch.setattr(trimming, "AGAIN_AFTER_S", (0.01,))
    row = only(world.trim(plan, consumed(topic), clock=clock))
    assert world.ends(topic) == (0, 10), "the group went back while the disk stalled"
    assert row.outcome != "trimmed"
    assert audit(world)[2]["partitions"][0]["outcome"] == "failed"
    assert audit(world)[2]["partitions"][0]["reason"].startswith("not sent")


@pytest.mark.parametrize(("waits_ms", "answered"), [(400, 4), (3_000, 0)])
def test_the_time_of_a_request_begins_when_those_before_it_are_answered(
    world: World, waits_ms: int, answered: int
) -> None:
    """A broker answers a connection's requests one by one: a slow one is not taken for a dead one, nor that for slow."""
    name = world.topic()
    replies: list[Any] = []
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1_000
    )
    with reader_for(world.bootstrap) as reader:
        leader = reader.metadata([name]).topics[name].partitions[0].leader
        assert leader is not None
        jobs = [
            Job(
                FetchRequest(
                    max_wait_ms=waits_ms,  # there is nothing to read
                    min_bytes=1,
                    max_bytes=1_000,
                    topics=[FetchRequest.FetchTopic(topic=name, partitions=[partition])],
                    forgotten_topics_data=[],
                    rack_id="",
                    min_version=4,
                    max_version=12,
                ),
                number,
            )
            for number in range(4)
        ]
        began = time.monotonic()
        reader.wire.run(
            lambda: reader.wire.fan_out({leader: jobs}, lambda _, reply: replies.append(reply), timeout_s=1.0)
        )
        seconds = time.monotonic() - began
    assert sum(not isinstance(reply, RequestFailedError) for reply in replies) == answered
    assert len(replies) == 4
    assert 1.0 < seconds < 2.9
