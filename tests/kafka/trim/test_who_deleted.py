"""Who deleted it, when others move log starts too, requests get no answer, and batches are late (docs/plan.md).

Each test steps in right before the request goes out, as they would.
"""

from __future__ import annotations

import math
import signal
import threading
from typing import Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest

from retention_cli.brokers import deleter
from retention_cli.brokers.wire.connections import Wire
from retention_cli.policy.settings import Limits
from retention_cli.trim import batches
from retention_cli.trim.history import past_day
from retention_cli.trim.journal import AuditJournal
from retention_cli.trim.report import TrimReport
from tests.support.plain import before
from tests.support.says import json_of, pick
from tests.support.trims import audit, leave_unanswered, no_answer, only
from tests.support.world import HOUR, OLD, LateClock, World, consumed, now_ms


def counts_for_nothing(world: World, report: TrimReport) -> None:
    """Neither in the report's totals nor in the audit log, nor in what limits per day go by."""
    assert (report.trimmed.records, report.count("unchanged")) == (0, 1)
    _run, _batch, result, end = audit(world)
    assert result["partitions"][0]["outcome"] == "unchanged"
    assert pick(end["totals"], "records", "trimmed", "unchanged") == (0, 0, 1)
    assert past_day(world.state_dir, report.cluster_id, now_ms(), Limits()).records == 0
    assert pick(json_of(world, "history")["runs"][0], "records", "trimmed") == (0, 0)
    one = json_of(world, "history", "--run", report.run)["partitions"][0]
    assert pick(one, "outcome", "records", "bytes") == ("unchanged", 0, 0)
    assert "not this trim" in one["reason"]


@pytest.mark.parametrize(
    ("other", "request_is", "outcome", "start", "records"),
    [
        (9, "answered", "unchanged", 9, 0),  # success, and a log start beyond the target
        (5, "answered", "trimmed", 8, 8),  # what of it was retention's share can't be known
        (8, "refused", "unchanged", 8, 0),
        (9, "refused", "unchanged", 9, 0),
        (8, "unanswered", "trimmed", 8, 8),
        (9, "unanswered", "unverified", 9, 8),
        (3, "unanswered", "unverified", 3, 8),
    ],
)
def test_trim_claims_what_nobody_else_has_deleted(
    world: World,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    other: int,
    request_is: str,
    outcome: str,
    start: int,
    records: int,
) -> None:
    """Another trimmer deletes up to ``other`` right before the request, whose target is 8."""
    if request_is == "unanswered":
        monkeypatch.setattr(deleter.Deleter, "delete", lambda _, *given, **_times: no_answer(*given, retriable=False))
    before(monkeypatch, deleter.Deleter, "delete", lambda: world.delete_records(topic, other))
    if request_is == "refused":  # the broker is asked for an offset that it can't have
        honest = deleter.delete_request
        monkeypatch.setattr(deleter, "delete_request", lambda offsets, t: honest(dict.fromkeys(offsets, 10**6), t))
    report = world.trim(world.plan(consumed(topic)), consumed(topic))
    row = only(report)
    assert pick(row, "outcome", "target", "log_start", "records") == (outcome, 8, start, records)
    if outcome == "unchanged":
        why = "OFFSET_OUT_OF_RANGE" if request_is == "refused" else "starts at 9"
        assert (row.reasons[0].code, why in row.reasons[0].text) == ("gone", True), row
        counts_for_nothing(world, report)
        return
    assert report.trimmed.records == (8 if outcome == "trimmed" else 0)
    past = past_day(world.state_dir, report.cluster_id, now_ms(), Limits())
    assert past.records == 8, "what may have gone counts for limits"
    assert outcome == "trimmed" or "may have moved it" in row.reasons[0].text or "may still move" in row.reasons[0].text


def test_late_log_start_beyond_an_unanswered_request_is_not_claimed(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next recheck has nothing left to trim, and can't tell whose doing that is."""
    leave_unanswered(monkeypatch)
    clock = LateClock(meanwhile=lambda _seconds: world.delete_records(topic, 9))
    report = world.trim(world.plan(consumed(topic)), consumed(topic), clock=clock)
    row = only(report)
    assert (row.outcome, row.log_start, report.trimmed.records) == ("unverified", 9, 0)
    assert "may have moved it" in row.reasons[0].text


@pytest.mark.parametrize("answered", [True, False])
def test_second_request_recognises_that_the_first_was_executed(
    world: World, monkeypatch: pytest.MonkeyPatch, *, answered: bool
) -> None:
    """No answer came to the first; the policy becomes stricter, the second asks for less, and the first comes late."""
    name = world.filled([30 * HOUR] * 5 + [2 * HOUR] * 5, {"a": 8})
    honest = deleter.Deleter.delete
    lost: list[Any] = []

    def delete(self: deleter.Deleter, by_leader: Any, on_outcome: Any, **times: float) -> None:
        if lost:
            honest(self, lost[0], lambda *_: None, **(times | {"good_until": math.inf}))
            if answered:
                honest(self, by_leader, on_outcome, **times)
                return
        lost.append(by_leader)
        no_answer(by_leader, on_outcome)

    monkeypatch.setattr(deleter.Deleter, "delete", delete)
    clock = LateClock(meanwhile=lambda _seconds: None)
    report = world.trim(
        world.plan(consumed(name)), lambda: consumed(name, "10h") if lost else consumed(name), clock=clock
    )
    assert [line["partitions"][0]["target"] for line in audit(world) if line["event"] == "batch"] == [8, 5]
    assert pick(only(report), "outcome", "target", "log_start", "records") == ("trimmed", 8, 8, 8)
    assert past_day(world.state_dir, report.cluster_id, now_ms(), Limits()).records == 8


def test_delete_that_timed_out_at_followers_still_counts_as_trimmed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REQUEST_TIMED_OUT comes after the leader has moved its log start: an error, and no refusal."""
    name = world.filled(OLD, {"a": 8}, replicas=3)
    plan = world.plan(consumed(name))
    said: list[str] = []
    honest_delete, honest_request = deleter.Deleter.delete, deleter.delete_request

    def impatient(offsets: Any, timeout_s: float) -> Any:
        request = honest_request(offsets, timeout_s)
        request.timeout_ms = 1
        return request

    def delete(self: deleter.Deleter, by_leader: Any, on_outcome: Any, **times: float) -> None:
        def hear(tp: Any, outcome: Any) -> None:
            said.append(str(outcome))
            on_outcome(tp, outcome)

        honest_delete(self, by_leader, hear, **times)

    monkeypatch.setattr(deleter, "delete_request", impatient)
    monkeypatch.setattr(deleter.Deleter, "delete", delete)
    row = only(world.trim(plan, consumed(name)))
    assert said == ["the broker did not finish in time (REQUEST_TIMED_OUT)"]
    assert pick(row, "outcome", "log_start", "records") == ("trimmed", 8, 8)


@pytest.mark.parametrize("held", [False, True])
def test_unanswered_request_executed_late_is_reported_as_trimmed(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch, *, held: bool
) -> None:
    """By the time of the next recheck there is nothing left to trim, or the policy holds it: what went is said all the same."""
    asked = leave_unanswered(monkeypatch)
    clock = LateClock(meanwhile=lambda _seconds: world.delete_records(topic, 8))
    more = f"\n  - {{match: {topic}, hold: a case}}\n"
    report = world.trim(
        world.plan(consumed(topic)), lambda: consumed(topic) + (more if held and asked else ""), clock=clock
    )
    assert pick(only(report), "outcome", "log_start", "records") == ("trimmed", 8, 8)
    assert (world.ends(topic), report.trimmed.records) == ((8, 10), 8)
    lines = audit(world)
    assert [line["event"] for line in lines] == ["run", "batch", "result", "result", "end"]
    _run, _batch, first, found, end = lines
    assert [line["partitions"][0]["outcome"] for line in (first, found)] == ["unverified", "trimmed"]
    assert (found["batch"], found["partitions"][0]["log_start"], end["totals"]["records"]) == (1, 8, 8)
    assert "unverified" not in world.cli("history", "--run", report.run, check=0).out


def test_unanswered_request_stays_unverified_while_it_may_execute(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not held, not failed: the broker may still have it."""
    sent = leave_unanswered(monkeypatch)
    monkeypatch.setattr(batches, "AGAIN_AFTER_S", (0.01,))
    more = f"\n  - {{match: {topic}, hold: a case}}\n"
    row = only(world.trim(world.plan(consumed(topic)), lambda: consumed(topic) + (more if sent else "")))
    assert (row.outcome, row.log_start, len(sent)) == ("unverified", 0, 1)


def test_batch_announced_too_slowly_is_rechecked_before_it_is_sent(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recheck is at most 30 s old when the request goes out, also where the disk of the audit log stalls."""
    clock = LateClock()

    def stall() -> None:
        world.commit(f"{topic}-a", topic, 3)
        clock.passed.append(31)

    plan = world.plan(consumed(topic))
    before(monkeypatch, AuditJournal, "batch", stall)
    monkeypatch.setattr(batches, "AGAIN_AFTER_S", (0.01,))
    row = only(world.trim(plan, consumed(topic), clock=clock))
    assert world.ends(topic) == (0, 10), "the group went back while the disk stalled"
    assert row.outcome != "trimmed"
    result = audit(world)[2]["partitions"][0]
    assert (result["outcome"], result["reason"][:8]) == ("failed", "not sent")


def test_answer_during_an_interrupt_is_still_recorded(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before the log start that is read back: without it nobody knew whose trim had moved that."""
    honest = Wire.send

    def send(self: Wire, request: Any, node: int | None, timeout_s: float | None = None) -> Any:
        if isinstance(request, DeleteRecordsRequest):
            world.delete_records(topic, 9)  # another trimmer, which goes farther
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return honest(self, request, node, timeout_s)

    monkeypatch.setattr(Wire, "send", send)
    report = world.trim(world.plan(consumed(topic)), consumed(topic))
    row = only(report)
    assert (report.interrupted, row.outcome, row.log_start) == (True, "unchanged", 9)
    assert [reason.code for reason in row.reasons] == ["gone"]
