"""Requests that nobody answers, and batches that are late: what is said of them, and what is sent."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest

from retention_cli.brokers.wire.connections import Wire
from retention_cli.trim import batches
from retention_cli.trim.journal import AuditJournal
from tests.support.trims import audit, leave_unanswered, only
from tests.support.world import LateClock, World, consumed


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
    honest = AuditJournal.batch

    def stall_once(self: AuditJournal, number: int, targets: Any) -> None:
        honest(self, number, targets)
        if not clock.passed:
            world.commit(f"{topic}-a", topic, 3)
            clock.passed.append(31)

    monkeypatch.setattr(AuditJournal, "batch", stall_once)
    plan = world.plan(consumed(topic))
    monkeypatch.setattr(batches, "AGAIN_AFTER_S", (0.01,))
    row = only(world.trim(plan, consumed(topic), clock=clock))
    assert world.ends(topic) == (0, 10), "the group went back while the disk stalled"
    assert row.outcome != "trimmed"
    assert audit(world)[2]["partitions"][0]["outcome"] == "failed"
    assert audit(world)[2]["partitions"][0]["reason"].startswith("not sent")


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
    assert report.interrupted
    assert (row.outcome, row.log_start, [reason.code for reason in row.reasons]) == ("unchanged", 9, ["gone"])
