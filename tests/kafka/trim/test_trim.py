"""Carrying a plan out on a real cluster: what changed since only ever narrows it; and who deleted what (docs/plan.md)."""

from __future__ import annotations

import dataclasses
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest

from retention_cli.brokers import deleter
from retention_cli.brokers.wire.connections import Wire
from retention_cli.core.model import TopicPartition
from retention_cli.core.state_dir import StateError, trim_lock
from retention_cli.policy.settings import Limits
from retention_cli.trim.batches import RefusedError
from retention_cli.trim.history import past_day
from retention_cli.trim.journal import AuditJournal
from retention_cli.trim.recheck import Recheck, Rechecks
from retention_cli.trim.run import PlanRefusedError
from tests.support.plain import before
from tests.support.says import json_of, pick, refusal, says
from tests.support.trims import audit, leave_unanswered, no_answer, only, read_topic
from tests.support.world import HOUR, OLD, LateClock, World, consumed, now_ms, reader_for, written


def test_planned_records_are_deleted_and_logged_and_a_dry_run_leaves_no_trace(world: World, topic: str) -> None:
    plan = world.plan(consumed(topic))
    # To make a deleter would be a call of None.
    row = only(world.trim(plan, consumed(topic), dry_run=True, deleter_for=None))
    assert pick(row, "outcome", "target", "log_start", "records") == ("would-trim", 8, 0, 8)
    assert world.ends(topic) == (0, 10)
    # The plan remembers what it saw; nothing of a trim.
    assert {path.name for path in world.state_dir.rglob("*") if path.is_file()} == {"ledger.sqlite"}
    report = world.trim(plan, consumed(topic))
    assert pick(only(report), "outcome", "target", "log_start", "records") == ("trimmed", 8, 8, 8)
    assert world.ends(topic) == (8, 10)
    lines = audit(world)
    assert [pick(line, "event", "run") for line in lines] == [
        (event, report.run) for event in ("run", "batch", "result", "end")
    ]
    run, batch, result, _ = lines
    assert run["planned"]["records"] == 8
    assert batch["partitions"][0] | {"topic_id": "", "bytes": 0} == {
        "topic": topic,
        "topic_id": "",
        "partition": 0,
        "log_start": 0,
        "min_commit": 8,
        "target": 8,
        "records": 8,
        "bytes": 0,
        "unconsumed": 0,
        "rule": "consumed",
    }
    assert result["partitions"] == [{"topic": topic, "partition": 0, "outcome": "trimmed", "log_start": 8}]


def recreate(world: World, topic: str) -> None:
    world.renew(topic)
    world.produce(topic, OLD)
    world.commit(f"{topic}-a", topic, 8)


@pytest.mark.parametrize(
    ("change", "more", "outcome", "start", "why"),
    [
        pytest.param(lambda world, topic: world.commit(f"{topic}-a", topic, 10), "", "trimmed", 8, "", id="reads on"),
        pytest.param(lambda w, name: w.commit(f"{name}-a", name, 3), "", "held", 0, "went back to 3", id="goes back"),
        pytest.param(lambda world, topic: world.commit(f"{topic}-late", topic, 1), "", "held", 0, "", id="is new"),
        pytest.param(recreate, "", "held", 0, "recreated", id="topic recreated"),
        pytest.param(None, 'hold: "case 4711"', "held", 0, "", id="hold"),
        pytest.param(None, "retention.commitoffset.ms: 40h", "unchanged", 0, "", id="longer"),
        pytest.param(None, "retention.commitoffset.enable: false", "unchanged", 0, "", id="off"),
        pytest.param(None, "groups.require: [billing]", "held", 0, "", id="required group"),
        pytest.param(None, "unconsumed: trim", "trimmed", 8, "", id="laxer"),
    ],
)
def test_changes_since_the_plan_only_narrow_it(
    world: World,
    topic: str,
    change: Callable[[World, str], object] | None,
    more: str,
    outcome: str,
    start: int,
    why: str,
) -> None:
    """A group of the topic commits, the topic is another, or today's policy has one more entry."""
    plan = world.plan(consumed(topic))
    if change is not None:
        change(world, topic)
    entry = f"\n  - {{match: {topic}, {more}}}\n" if more else ""
    row = only(world.trim(plan, consumed(topic) + entry))
    assert (row.outcome, world.ends(topic)) == (outcome, (start, 10))
    assert not why or why in row.reasons[0].text


def test_hold_set_during_a_trim_stops_the_next_batch(world: World, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy is read again before every recheck: a legal hold freezes what is not yet sent."""
    monkeypatch.setattr(
        "retention_cli.trim.batches.RECHECK_SECONDS", 0.0
    )  # every recheck is too old by then: each round sends nothing
    monkeypatch.setattr("retention_cli.trim.batches.AGAIN_AFTER_S", (0.01,))
    policies = iter([consumed(topic), consumed(topic), consumed(topic, hold='"case 4711"')])
    row = only(world.trim(world.plan(consumed(topic)), lambda: next(policies)))
    assert (row.outcome, row.reasons[0].code, world.ends(topic)) == ("held", "G7", (0, 10))
    assert next(policies, None) is None, "it was read three times"


@pytest.mark.parametrize(
    ("slow_from", "sizes", "outcome"), [(3, [4, 2, 2], "trimmed"), (1, [4, 2, 1, 1, 1, 1], "failed")]
)
def test_slow_recheck_is_followed_by_one_of_half_the_size_until_it_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch, slow_from: int, sizes: list[int], outcome: str
) -> None:
    """A trim of very many partitions goes on, if all of them can't be decided within 30 s; four tries of one are enough."""
    clock = LateClock(meanwhile=lambda _seconds: None)
    asked: list[int] = []
    quick = Rechecks.recheck

    def slow(rechecks: Rechecks, partitions: Collection[TopicPartition]) -> Recheck:
        fresh = quick(rechecks, partitions)
        asked.append(len(partitions))
        clock.passed.append(31.0 if len(partitions) >= slow_from else 0.0)
        return fresh

    monkeypatch.setattr("retention_cli.trim.batches.FEWEST", 1)
    monkeypatch.setattr(Rechecks, "recheck", slow)
    name = read_topic(world, 4)
    report = world.trim(world.plan(consumed(name)), consumed(name), clock=clock)
    assert (asked, [row.outcome for row in report.rows]) == (sizes, [outcome] * 4)
    assert all("took longer than" in row.reasons[0].text for row in report.rows if outcome == "failed")
    assert world.ends(name) == (7 if outcome == "trimmed" else 0, 10)


def test_r4_deletes_unread_records_up_to_the_shown_target(world: World, topic: str) -> None:
    policy = f"version: 1\ntopics: [{{match: {topic}, retention.ms: 1h}}]"
    plan = world.plan(policy)
    assert (plan.totals.unconsumed, dict(plan.unconsumed_by)) == (2, {f"group:{topic}-a": 2})
    row = only(world.trim(dataclasses.replace(plan, decisions=(plan.decisions[0]._replace(unconsumed=0),)), policy))
    assert (row.outcome, "the plan showed 0" in row.reasons[0].text) == ("held", True), row
    assert only(world.trim(plan, policy)).log_start == 10


def test_named_partitions_are_trimmed_alone(world: World, tmp_path: Path) -> None:
    """All of the topic is decided; what is shown, saved and trimmed is of these partitions."""
    name = read_topic(world, 4, {0: 5, 1: 6, 2: 7, 3: 8})
    flags = ("--consumed-after", "1h")
    rows = json_of(world, "plan", f"{name}:1", f"{name}:3", *flags)
    every = json_of(world, "plan", name, *flags)["partitions"]
    assert rows["policy"]["topics"] == [f"{name}:1", f"{name}:3"]
    assert (rows["partitions"], rows["totals"]["records"]) == ([every[1], every[3]], 14)
    done = json_of(world, "trim", f"{name}:1", *flags, "--yes")["partitions"]
    assert [pick(row, "partition", "outcome", "log_start") for row in done] == [(1, "trimmed", 6)]
    file, policy = str(tmp_path / "plan.json"), str(written(tmp_path / "p.yaml", consumed(name)))
    world.cli("plan", f"{name}:2", f"{name}:3", *flags, "--out", file, check=0)
    assert "other one-off" not in world.cli("trim", "--plan", file, name, *flags, "--yes", check=6).err
    world.cli("trim", "--plan", file, f"{name}:2", f"{name}:3", *flags, "--dry-run", check=0)
    world.cli("plan", name, "-p", policy, "--out", file, check=0)
    world.cli("trim", "--plan", file, f"{name}:3", "-p", policy, "--yes", check=0)
    assert [world.ends(name, partition)[0] for partition in range(4)] == [0, 6, 0, 8]
    assert "has no partition 9" in world.cli("plan", f"{name}:9", *flags, check=1).err


def limited(topic: str, limits: str) -> str:
    return consumed(topic).replace("version: 1", f"version: 1\nlimits: {{{limits}}}")


def test_daily_limit_counts_earlier_runs_and_refuses_the_entire_plan(world: World, topic: str) -> None:
    """G6, also of a dry run. A plan that just reaches the limit goes."""
    policy = limited(topic, "max.records: 8")
    assert only(world.trim(world.plan(policy), policy)).records == 8
    world.commit(f"{topic}-a", topic, 10)
    plan = world.plan(policy)
    for dry_run in (False, True):
        assert "8 in the last 24 hours" in refusal(RefusedError, world.trim, plan, policy, dry_run=dry_run)
    assert (world.ends(topic), audit(world)[-1]["event"]) == ((8, 10), "end")


def test_audit_log_failure_during_a_trim_ends_it_and_reports_deletes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was done is told, nothing more is trimmed, and it is no success."""
    topic = read_topic(world, 2, 4)

    def full(*_: object) -> None:
        raise StateError("audit.jsonl can't be written: No space left on device")

    def one_by_one(targets: Any, _leaders: object) -> list[Any]:
        return [{tp: targets[tp]} for tp in sorted(targets)]

    monkeypatch.setattr("retention_cli.trim.batches.batches_of", one_by_one)
    monkeypatch.setattr("retention_cli.trim.journal.AuditJournal.result", full)
    report = world.trim(world.plan(consumed(topic)), consumed(topic))
    assert [row.outcome for row in report.rows] == ["trimmed", "failed"]
    assert "No space left" in (report.audit_problem or "")
    assert [world.ends(topic, partition)[0] for partition in (0, 1)] == [4, 0]


def test_unreadable_audit_log_stops_before_any_request(world: World, topic: str) -> None:
    world.trim(world.plan(consumed(topic)), consumed(topic), max_partitions=1)
    world.produce(topic, OLD)
    world.commit(f"{topic}-a", topic, 12)
    log = next(world.state_dir.glob("*/audit.jsonl"))
    log.write_text(log.read_text().replace('"event":"batch"', '"event":'))
    assert "audit.jsonl:3: a broken line" in refusal(
        StateError, world.trim, world.plan(consumed(topic)), consumed(topic)
    )
    assert world.ends(topic)[0] == 8


def test_broken_audit_chain_refuses_daily_limits_and_else_warns_once(world: World, topic: str, tmp_path: Path) -> None:
    """G6: an edited line could hide what was trimmed today. Nothing is sent, nothing is planned; the log goes on."""
    policy = limited(topic, "max.records: 9")
    world.trim(world.plan(policy), policy)
    log = next(world.state_dir.glob("*/audit.jsonl"))  # the day's records fewer, as who wants to trim more would
    log.write_text(log.read_text().replace('"target":8,"records":8', '"target":8,"records":1'))
    world.commit(f"{topic}-a", topic, 9)
    plan = world.plan(policy)
    for dry_run in (False, True):
        refused = refusal(StateError, world.trim, plan, policy, dry_run=dry_run)
        says(refused, "audit.jsonl:3: edited", "kretain history --verify")
    file = str(written(tmp_path / "policy.yaml", policy))
    for command in ("plan", "trim"):
        refused = world.cli(command, "-p", file, check=1).err
        assert (refused.count("\n"), "audit.jsonl:3: edited" in refused) == (1, True), refused
    assert world.ends(topic)[0] == 8
    done = world.cli("trim", topic, "--consumed-after", "1h", "--yes", "-o", "json", check=0)
    report = done.json()
    assert (report["totals"]["trimmed"], "audit.jsonl:3: edited" in report["audit_broken"]) == (1, True), report
    (warned,) = [line for line in done.err.splitlines() if "audit log" in line]
    assert warned.startswith("kretain: the audit log is broken: ")
    assert [line["event"] for line in audit(world)][-4:] == ["run", "batch", "result", "end"], "the log goes on"
    assert world.cli("history", "--verify", check=1).out.count("\n") == 1


def test_saved_plan_that_expired_behind_the_lock_is_refused(world: World, topic: str) -> None:
    plan = world.plan(consumed(topic))
    with ThreadPoolExecutor(1) as other:
        with trim_lock(world.state_dir / plan.cluster_id, "then"):
            waiting = other.submit(world.trim, plan, consumed(topic), wait_lock_s=30.0, max_age_ms=500)
            time.sleep(0.8)
        assert "run kretain plan again" in refusal(PlanRefusedError, waiting.result, 30)
    assert world.ends(topic) == (0, 10)
    assert world.trim(plan, consumed(topic), max_age_ms=600_000).count("trimmed") == 1


def ask_for(monkeypatch: pytest.MonkeyPatch, offset: int, only_of: int | None = None) -> None:
    """Ask brokers for this offset instead, of all partitions or of one."""
    honest = deleter.delete_request

    def other(offsets: dict[TopicPartition, int], timeout_s: float) -> object:
        return honest(offsets | {tp: offset for tp in offsets if only_of in (None, tp.partition)}, timeout_s)

    monkeypatch.setattr(deleter, "delete_request", other)


def test_partition_rejected_by_the_broker_fails_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition's error is not the others': here the broker is asked for one offset that it can't have."""
    name = read_topic(world, 2, 8)
    ask_for(monkeypatch, 10**6, only_of=1)
    rows = world.trim(world.plan(consumed(name)), consumed(name)).rows
    assert [(row.outcome, row.log_start) for row in rows] == [("trimmed", 8), ("failed", 0)]
    assert rows[1].reasons[0].text == "the log does not have that offset (OFFSET_OUT_OF_RANGE)"
    assert audit(world)[2]["partitions"][1]["reason"].endswith("(OFFSET_OUT_OF_RANGE)")


def test_successful_delete_answer_is_verified(world: World, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An offset below S succeeds and changes nothing: only reading back tells."""
    ask_for(monkeypatch, 0)
    row = only(world.trim(world.plan(consumed(topic)), consumed(topic)))
    assert (*pick(row, "outcome", "log_start"), "still starts at 0" in row.reasons[0].text) == ("failed", 0, True)


def test_offset_minus_one_is_never_sent(world: World) -> None:
    with reader_for(world.bootstrap) as reader, pytest.raises(ValueError, match="not an offset to trim to"):
        deleter.Deleter(reader).delete({1: {TopicPartition("t", 0): -1}}, lambda *_: None, timeout_s=1, good_until=0)


def test_each_leader_has_one_delete_in_flight(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its connections see it, over several batches: to delete at every commit would flood brokers."""
    monkeypatch.setattr("retention_cli.trim.narrow.PARTITIONS_A_LEADER", 2)
    topic = read_topic(world, 12, 6)
    send, settle = Wire.send, Wire.settle
    of: dict[int, int | None] = {}
    most: list[Counter[int | None]] = []

    def sending(self: Wire, request: Any, node: int | None, timeout_s: float | None = None) -> Any:
        sent = send(self, request, node, timeout_s)
        if isinstance(request, DeleteRecordsRequest):
            of[id(sent)] = node
            most.append(Counter(of.values()))
        return sent

    async def settling(self: Wire, sent: Any) -> Any:
        try:
            return await settle(self, sent)
        finally:
            of.pop(id(sent), None)

    monkeypatch.setattr(Wire, "send", sending)
    monkeypatch.setattr(Wire, "settle", settling)
    assert {row.outcome for row in world.trim(world.plan(consumed(topic)), consumed(topic)).rows} == {"trimmed"}
    of_a_leader, at_once = max(max(one.values()) for one in most), max(map(len, most))
    # three leaders, two batches; leaders wait for each other between batches alone
    assert (len(most), of_a_leader, at_once) == (6, 1, 3)
    assert [line["event"] for line in audit(world)] == ["run", "batch", "result", "batch", "result", "end"]


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
        ask_for(monkeypatch, 10**6)
    report = world.trim(world.plan(consumed(topic)), consumed(topic))
    row = only(report)
    assert pick(row, "outcome", "target", "log_start", "records") == (outcome, 8, start, records)
    if outcome == "unchanged":
        why = "OFFSET_OUT_OF_RANGE" if request_is == "refused" else "starts at 9"
        assert (row.reasons[0].code, why in row.reasons[0].text) == ("gone", True), row
        # It counts neither in the report's totals nor in the audit log, nor in what limits per day go by.
        assert (report.trimmed.records, report.count("unchanged")) == (0, 1)
        _run, _batch, result, end = audit(world)
        assert result["partitions"][0]["outcome"] == "unchanged"
        assert pick(end["totals"], "records", "trimmed", "unchanged") == (0, 0, 1)
        assert past_day(world.state_dir, report.cluster_id, now_ms(), Limits()).records == 0
        assert pick(json_of(world, "history")["runs"][0], "records", "trimmed") == (0, 0)
        one = json_of(world, "history", "--run", report.run)["partitions"][0]
        assert pick(one, "outcome", "records", "bytes") == ("unchanged", 0, 0)
        assert "not this trim" in one["reason"]
        return
    assert report.trimmed.records == (8 if outcome == "trimmed" else 0)
    gone = past_day(world.state_dir, report.cluster_id, now_ms(), Limits()).records
    assert gone == 8, "what may have gone counts for limits"
    assert outcome == "trimmed" or "may have moved it" in row.reasons[0].text or "may still move" in row.reasons[0].text


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
    report = world.trim(
        world.plan(consumed(name)),
        lambda: consumed(name, "10h") if lost else consumed(name),
        clock=LateClock(meanwhile=lambda _seconds: None),
    )
    assert [line["partitions"][0]["target"] for line in audit(world) if line["event"] == "batch"] == [8, 5]
    assert pick(only(report), "outcome", "target", "log_start", "records") == ("trimmed", 8, 8, 8)
    assert past_day(world.state_dir, report.cluster_id, now_ms(), Limits()).records == 8


def test_request_that_was_executed_late_is_not_followed_by_a_farther_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G6: no answer came to the first, and the policy becomes laxer. Of two requests only one would count."""
    name = world.filled([40 * HOUR] * 4 + [30 * HOUR] * 4 + [0] * 2, {"a": 10})
    forced = "version: 1\nlimits: {{max.records: 5}}\ntopics: [{{match: {}, retention.ms: {}h}}]\n"
    leave_unanswered(monkeypatch)

    def today() -> str:
        if len(audit(world)) < 3:  # nothing was sent yet
            return forced.format(name, 35)
        world.delete_records(name, 4)
        monkeypatch.undo()
        return forced.format(name, 25)

    report = world.trim(world.plan(forced.format(name, 25)), today)
    assert pick(only(report), "outcome", "target", "log_start", "records") == ("trimmed", 4, 4, 4)
    assert world.ends(name) == (4, 10)
    assert past_day(world.state_dir, report.cluster_id, now_ms(), Limits()).records == 4


def test_request_that_may_yet_go_farther_is_not_settled_by_one_before_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G6: no answer came to either; the first is carried out, and the second may be once the report is written."""
    name = world.filled([40 * HOUR] * 4 + [30 * HOUR] * 4 + [0] * 2, {"a": 10})
    forced = "version: 1\ntopics: [{{match: {}, retention.ms: {}h}}]\n"
    sent: list[Any] = []

    def delete(_self: deleter.Deleter, by_leader: Any, on_outcome: Any, **_times: float) -> None:
        sent.append(by_leader)
        if len(sent) == 2:
            world.delete_records(name, 4)
        no_answer(by_leader, on_outcome)

    monkeypatch.setattr(deleter.Deleter, "delete", delete)
    report = world.trim(world.plan(forced.format(name, 25)), lambda: forced.format(name, 25 if sent else 35))
    assert [line["partitions"][0]["target"] for line in audit(world) if line["event"] == "batch"] == [4, 8]
    assert pick(only(report), "outcome", "target", "log_start", "records") == ("unverified", 8, 4, 8)
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


@pytest.mark.parametrize(
    ("start", "outcome", "held"),
    [(8, "trimmed", False), (8, "trimmed", True), (9, "unverified", False)],
    ids=["nothing is left", "the policy holds", "the log start is beyond it"],
)
def test_unanswered_request_executed_late_is_reported_as_trimmed_unless_the_log_start_is_beyond_it(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch, start: int, outcome: str, held: bool
) -> None:
    """The next recheck has nothing left to trim, or the policy holds it. Whose doing a start beyond is, it can't tell."""
    asked = leave_unanswered(monkeypatch)
    clock = LateClock(meanwhile=lambda _seconds: world.delete_records(topic, start))
    more = f"\n  - {{match: {topic}, hold: a case}}\n"
    report = world.trim(
        world.plan(consumed(topic)), lambda: consumed(topic) + (more if held and asked else ""), clock=clock
    )
    row = only(report)
    assert pick(row, "outcome", "log_start", "records") == (outcome, start, 8)
    assert (world.ends(topic), report.trimmed.records) == ((start, 10), 8 if outcome == "trimmed" else 0)
    if outcome == "unverified":
        assert "may have moved it" in row.reasons[0].text
        return
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
    monkeypatch.setattr("retention_cli.trim.batches.AGAIN_AFTER_S", (0.01,))
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
    monkeypatch.setattr("retention_cli.trim.batches.AGAIN_AFTER_S", (0.01,))
    row = only(world.trim(plan, consumed(topic), clock=clock))
    assert world.ends(topic) == (0, 10), "the group went back while the disk stalled"
    assert row.outcome != "trimmed"
    result = audit(world)[2]["partitions"][0]
    assert (result["outcome"], result["reason"][:8]) == ("failed", "not sent")


def test_answer_during_an_interrupt_is_still_recorded(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before the log start is read back, and says whose trim moved that."""
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
