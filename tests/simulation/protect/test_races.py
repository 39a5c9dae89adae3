"""Operators that run at the same time: whoever comes last, the originals are restored in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.metadata import TopicConfig
from retention_cli.core.model import Sample, TopicPartition, Unknown
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import NOTHING, LogNow, Logs
from retention_cli.protect.run import carry_out, plan_protection, resume
from tests.simulation.clients import KilledError
from tests.simulation.protect.kafka import CHECK_MS
from tests.simulation.protect.world import HOUR, MAX_MS, ProtectWorld, die, run, sequence_of
from tests.support.says import refusal


def lagging(world: ProtectWorld) -> None:
    """Let topic b have unread records that will expire soon."""
    world.kafka.topics["b"].stamps += [world.kafka.now_ms] * 10
    world.kafka.pass_time(50 * CHECK_MS)


@pytest.fixture
def world() -> Iterator[ProtectWorld]:
    with ProtectWorld() as one:
        lagging(one)
        yield one


def once(world: ProtectWorld, places: list[str], what: Callable[[], None]) -> None:
    """Let something happen where a run has come to these places, in this order."""

    def hook(where: str) -> None:
        if where == places[0]:
            del places[0]
            if not places:
                world.kafka.hook = lambda _where: None
                what()

    world.kafka.hook = hook


def value(world: ProtectWorld) -> str | None:
    return world.kafka.topics["b"].own.get("retention.ms")


def check_restored(world: ProtectWorld) -> None:
    """Once all is read, topic b has its default again."""
    world.settle()
    assert value(world) is None


def test_value_that_was_raised_while_a_run_read_is_not_taken_for_another_clients(world: ProtectWorld) -> None:
    """P6: it read the setting before, and the record behind."""
    once(world, ["read"], lambda: world.protect(1, alone=False))
    world.protect(0, alone=False)
    assert value(world) is not None
    world.settle()


def test_records_of_a_partition_that_cannot_be_read_are_kept_up_to_max(world: ProtectWorld) -> None:
    """P3: its leader is away for hours; when it is back, its broker's next check comes before the next run."""
    world.kafka.topics["b"].away = True
    world.protect(0)
    assert value(world) == str(MAX_MS)
    world.kafka.topics["b"].away = False
    check_restored(world)


def test_position_beyond_the_end_of_its_leader_epoch_counts_as_nothing_read(world: ProtectWorld) -> None:
    """P3: others stand at these offsets since an unclean election, and the log is as long again."""
    topic = world.kafka.topics["b"]
    world.kafka.groups["g"], world.kafka.epochs["g", "b"] = {"b": 10}, 0
    topic.cut(5)
    topic.stamps += topic.stamps
    world.protect(0, alone=False)
    assert value(world) is not None
    check_restored(world)


def planned(world: ProtectWorld, commit: tuple[int, int | None]) -> None:
    """Let a plan have seen topic b, and this commit of g, as it stands now."""
    topic, place = world.kafka.topics["b"], TopicPartition("b", 0)
    end, epoch, world.ledger = len(topic.stamps), len(topic.ends), Ledger(None)
    world.ledger.begin({"b": topic.topic_id})
    world.ledger.saw_group("g", {"b": [(0, *commit)]}, world.kafka.now_ms, 0)
    world.ledger.judge(lambda: Logs([(place, LogNow(end, epoch))]), {"b"}, [])
    memory = world.ledger.partition("b", topic.topic_id, 0)
    memory.continue_at(epoch, 0, world.kafka.now_ms, last_epoch=epoch)
    memory.add_sample(Sample(world.kafka.now_ms, end))


def commit(world: ProtectWorld, offset: int, epoch: int | None) -> None:
    world.kafka.groups["g"] = {"b": offset}
    world.kafka.epochs.pop(("g", "b"), None)
    if epoch is not None:
        world.kafka.epochs["g", "b"] = epoch


@pytest.mark.parametrize("epoch", [0, None])
def test_commit_that_a_plan_has_refused_counts_as_nothing_read(world: ProtectWorld, epoch: int | None) -> None:
    """P3, F5: the log has grown past it since, so that nothing else shows that it is of another log."""
    commit(world, 30, epoch)
    planned(world, (30, epoch))
    world.kafka.topics["b"].stamps += [world.kafka.now_ms] * 30
    world.protect(0, alone=False)
    assert value(world) is not None
    commit(world, 31, epoch)
    world.protect(0, alone=False)
    assert value(world) is None, "it has committed again"


def test_commit_that_another_machine_has_refused_counts_as_nothing_read(world: ProtectWorld) -> None:
    """P3: this one looked before it was there, with a clock that is ahead, so what both know is a doubt."""
    commit(world, 30, None)
    planned(world, (30, None))
    later = GroupMemory()
    later.update(NOTHING, {}, b"", world.kafka.now_ms + 5_000)
    both = world.ledger.group("g").merged(later)
    assert ("b", 0) in both.doubted

    class Shared(Ledger):
        def group(self, name: str) -> GroupMemory:
            return both if name == "g" else super().group(name)

    world.ledger = Shared(None)
    world.kafka.topics["b"].stamps += [world.kafka.now_ms] * 30
    world.protect(0, alone=False)
    assert value(world) is not None


def test_commit_on_a_topic_recreated_since_the_last_plan_counts_as_nothing_read(world: ProtectWorld) -> None:
    commit(world, 10, 0)
    planned(world, (10, 0))
    world.ledger.begin({"b": "another id"})
    world.kafka.topics["b"].topic_id = "another id"
    world.protect(0, alone=False)
    assert value(world) is not None


@pytest.mark.parametrize(("offset", "lost"), [(10, True), (4, False)])
def test_commit_without_an_epoch_beyond_a_cut_counts_as_nothing_read(
    world: ProtectWorld, offset: int, lost: bool
) -> None:
    """P3, M2: others have the offsets of the records that it had read."""
    commit(world, offset, None)
    planned(world, (offset, None))
    topic = world.kafka.topics["b"]
    topic.cut(4)
    topic.stamps += [world.kafka.now_ms - 50 * CHECK_MS] * 6
    [row] = [one for one in world.carried_out(0).rows if (one.topic, one.setting) == ("b", "retention.ms")]
    assert any("may have been cut" in one.text for one in row.reasons) == lost
    assert value(world) is not None


def test_lost_ledger_lowers_nothing(world: ProtectWorld) -> None:
    """P3: which commits are of another log is not known."""
    world.protect(0, alone=False)
    raised = value(world)
    commit(world, 10, 0)
    world.ledger = Ledger(None, lost=Unknown.because("ledger", "it is damaged"))
    world.protect(0, alone=False)
    assert (raised is not None, value(world)) == (True, raised)


def test_value_that_only_some_brokers_have_heard_of_is_not_overwritten(world: ProtectWorld) -> None:
    """P6: the broker that is asked is late, and says that the topic has no value of its own."""
    topic = world.kafka.topics["b"]
    while not any(row.action == "raise" and row.topic == "b" for row in plan_protection(world.job(0))[0].rows):
        world.kafka.pass_time(CHECK_MS)
    topic.late, topic.own["retention.ms"] = dict(topic.own), str(9 * MAX_MS)
    [failed] = world.carried_out(0).failed
    assert "another client has just set it" in str(failed.problem)
    assert value(world) == str(9 * MAX_MS)
    topic.late = None
    assert not world.carried_out(0).failed
    assert value(world) == str(9 * MAX_MS)


def test_value_of_a_broker_that_is_late_is_not_taken_for_another_clients(world: ProtectWorld) -> None:
    """P6: it was frozen while kretain raised the value. Left alone, what is unread would expire."""
    topic = world.kafka.topics["b"]
    before = dict(topic.own)
    world.protect(0)
    topic.late = before
    world.protect(1, alone=False)
    topic.late, raised = None, value(world)
    world.kafka.pass_time(20 * CHECK_MS)
    world.protect(0)
    assert int(value(world) or 0) > int(raised or 0) > 0
    check_restored(world)


def test_last_record_of_a_run_does_not_count_if_another_run_went_on_from_its_first(world: ProtectWorld) -> None:
    """P5: it was paused between its change and that record, and the other raised the value further."""

    def other() -> None:
        world.kafka.pass_time(20 * CHECK_MS)
        world.protect(1, alone=False)

    once(world, ["altered", "append"], other)
    first = world.carried_out(0)
    assert "another kretain is changing retention.ms of topic b" in str(first.failed[0].problem)
    assert value(world) != str(first.rows[2].new)
    check_restored(world)


def test_run_that_planned_before_another_ones_change_takes_no_original_from_it(world: ProtectWorld) -> None:
    """P5: what it reads later, while it changes another setting, is not what it planned with."""
    world.kafka.topics["a"].stamps += [world.kafka.topics["b"].stamps[0]] * 10
    job = world.job(0)
    planned = plan_protection(job)
    world.protect(1)
    assert len(carry_out(job, *planned).failed) == 2
    check_restored(world)


def test_change_that_is_under_way_is_left_to_its_run_for_a_minute(world: ProtectWorld) -> None:
    """P5: that run died right before its request, or the request waits in a broker."""
    once(world, ["alter"], die)
    with pytest.raises(KilledError):
        world.protect(0)
    assert value(world) is None
    assert len(world.carried_out(1).failed) == 1
    world.kafka.pass_time(CHECK_MS)
    world.protect(1)
    assert value(world) is not None


def test_request_is_not_sent_long_after_its_record(world: ProtectWorld) -> None:
    """P5: by then another run may have gone on from there."""
    once(world, ["appended", "look"], lambda: world.kafka.pass_time(CHECK_MS))
    assert [one.problem for one in world.carried_out(0).failed] == ["not sent"]
    assert value(world) is None


@pytest.mark.parametrize("goes_on", [False, True])
def test_record_that_counts_survives_compaction(world: ProtectWorld, goes_on: bool) -> None:
    """P5: a run that knew less wrote last, and the one that counts was put back behind that.

    What was read before compaction of that segment, and goes on from there, counts for those who read only what is left.
    """
    job = world.job(0)
    planned = plan_protection(job)
    world.kafka.pass_time(CHECK_MS)
    world.protect(1)
    assert len(carry_out(job, *planned).failed) == 1
    rolled, raised = len(world.kafka.messages), value(world)
    if goes_on:
        world.kafka.pass_time(20 * CHECK_MS)
        world.protect(1)
        assert value(world) != raised
    world.kafka.compact(rolled)
    check_restored(world)


def test_resume_leaves_a_value_that_kretain_itself_has_raised(world: ProtectWorld) -> None:
    """P5: another setting of the topic was set by hand; this one's original would be forgotten."""
    world.protect(0)
    assert ["continues from there" in one for one in resume(world.job(0), "b", "resume")] == [True]
    check_restored(world)


@pytest.mark.parametrize("late", [False, True])
def test_topic_made_again_between_the_plan_and_the_change_is_left_alone(world: ProtectWorld, late: bool) -> None:
    """P1: kretain protect waits for an answer meanwhile, or has just looked at the value."""
    job = world.job(0)
    planned = plan_protection(job)
    if late:
        once(world, ["appended", "look"], lambda: world.begin("b"))
    else:
        world.begin("b")
    made = carry_out(job, *planned)
    assert value(world) is None
    assert [one.problem for one in made.failed] == ["topic b was deleted or recreated"]


def test_topic_made_again_while_it_is_raised_is_protected_as_a_new_one(world: ProtectWorld) -> None:
    """P5: the record is about the topic that was deleted."""
    world.protect(0)
    world.begin("b")
    lagging(world)
    world.protect(0)
    assert value(world) is not None
    check_restored(world)


def test_value_set_by_hand_after_a_refused_change_is_raised_like_any_other(world: ProtectWorld) -> None:
    """P5: the change that was left open is recorded as not made, so what people set later is the original."""
    world.kafka.refused = 1
    world.protect(0, alone=False)
    world.kafka.groups["g"] = {"b": len(world.kafka.topics["b"].stamps)}
    world.kafka.pass_time(CHECK_MS)
    world.protect(1)
    world.hand["b", "retention.ms"] = world.kafka.topics["b"].own["retention.ms"] = str(HOUR + 1)
    lagging(world)
    world.protect(0)
    assert value(world) != str(HOUR + 1)
    world.settle()


@pytest.mark.parametrize("seen", [True, False])
def test_value_set_by_hand_outlives_restore(world: ProtectWorld, seen: bool) -> None:
    """P6: whether a pass has seen it or not."""
    world.protect(0)
    world.kafka.topics["b"].own["retention.ms"] = str(30 * HOUR)
    if seen:
        world.protect(0, alone=False)
    resume(world.job(0), "b", "restore")
    assert value(world) == str(30 * HOUR)


@pytest.mark.parametrize(
    ("other", "named", "why"),
    [(HOUR, True, None), (2 * HOUR, True, "brokers have different ones"), (HOUR, False, "has its own")],
)
def test_restore_removes_a_value_only_for_a_default_that_is_known(
    world: ProtectWorld, other: int, named: bool, why: str | None
) -> None:
    """P3: what is unknown never lowers a setting, though a person asks for it."""
    world.protect(0)
    raised = value(world)
    world.kafka.other_limits = world.kafka.limits | {"retention.ms": str(other)}
    world.kafka.names_defaults = named
    if why is None:
        assert resume(world.job(0), "b", "restore") == ["retention.ms of topic b: restored to the default"]
        assert value(world) is None
    else:
        assert why in refusal(RequestFailedError, resume, world.job(0), "b", "restore")
        assert value(world) == raised


@pytest.mark.parametrize("late", [False, True])
def test_value_is_not_removed_for_a_default_that_has_become_too_short(world: ProtectWorld, late: bool) -> None:
    """P2: the default was an hour when it was raised, and is five minutes by now, or right before the request."""
    world.protect(0)
    raised = value(world)
    world.kafka.topics["b"].stamps += [world.kafka.now_ms] * 10
    world.kafka.groups.setdefault("g", {})["b"] = 10
    world.kafka.pass_time(10 * CHECK_MS)
    job = world.job(0)
    if not late:
        world.kafka.limits["retention.ms"] = "300000"
    planned = plan_protection(job)
    world.kafka.limits["retention.ms"] = "300000"
    failed = carry_out(job, *planned).failed
    assert [str(one.problem)[:29] for one in failed] == (["the default is 300000 by now:"] if late else [])
    assert value(world) == raised
    world.protect(0)
    assert world.kafka.topics["b"].start <= 10
    world.settle()
    assert value(world) is None


@pytest.mark.parametrize("default", [3 * HOUR, MAX_MS, -1])
def test_value_is_removed_once_the_default_is_larger_or_the_same(world: ProtectWorld, default: int) -> None:
    """P4: no value stays below the original, though the oldest unread record still needs more than it was."""
    world.protect(0)
    while value(world) != str(MAX_MS):
        world.kafka.pass_time(5 * CHECK_MS)
        world.protect(0)
    world.kafka.limits["retention.ms"] = str(default)
    world.protect(0)
    assert value(world) is None


@pytest.mark.parametrize("default", [3 * HOUR, MAX_MS, -1, HOUR // 2])
def test_value_stays_while_brokers_have_different_defaults(world: ProtectWorld, default: int) -> None:
    """P3: the broker that is asked already has the new default, and the one that leads the topic has not."""
    world.protect(0)
    raised = int(value(world) or 0)
    world.kafka.other_limits = world.kafka.limits | {"retention.ms": str(default)}
    for _ in range(10):
        world.kafka.pass_time(CHECK_MS)
        world.protect(0)
        assert int(value(world) or 0) >= raised
    assert world.kafka.topics["b"].start == 0
    world.settle()


@pytest.mark.parametrize(("default", "raised"), [(HOUR + 1, True), (MAX_MS, True), (MAX_MS + 1, False), (-1, False)])
def test_raise_takes_nothing_from_a_broker_with_a_larger_default(
    world: ProtectWorld, default: int, raised: bool
) -> None:
    """P4: what is due on one broker must not cost what another one keeps."""
    world.kafka.other_limits = world.kafka.limits | {"retention.ms": str(default)}
    for _ in range(20):
        world.kafka.pass_time(CHECK_MS)
        world.protect(0)
    assert (value(world) is not None and int(value(world) or 0) >= default) == raised
    world.settle()


def test_nothing_is_raised_that_would_be_forgotten(world: ProtectWorld) -> None:
    """P5: the topic deletes records, has no time of the brokers, or an open transaction hides what is written."""
    world.kafka.cleanup = "delete"
    assert "--add-config cleanup.policy=compact" in refusal(BrokerError, world.protect, 0)
    world.kafka.cleanup, world.kafka.stamped = "compact", "CreateTime"
    assert "--add-config message.timestamp.type=LogAppendTime" in refusal(BrokerError, world.protect, 0)
    world.kafka.no_configs = RequestFailedError("not authorized", retriable=False)
    assert "_kretain_protected can't be read: not authorized" in refusal(BrokerError, world.protect, 0)
    world.kafka.no_configs = TopicConfig(frozenset({"compact"}), -1, "LogAppendTime")  # brokers do otherwise
    assert "don't stamp" in str(world.carried_out(0).failed[0].problem)
    world.kafka.messages.clear()
    world.kafka.stamped, world.kafka.hidden = "LogAppendTime", 1
    assert "an open transaction hides _kretain_protected-0 from offset" in refusal(BrokerError, world.protect, 0)
    assert value(world) is None


def test_protect_sequences_of_seeds_break_no_rule() -> None:
    counts = run(sequence_of(0)).counts
    for seed in range(1, 40):
        counts.update(run(sequence_of(seed)).counts)
    assert counts["raise"] > 5
    assert counts["restore"] > 5
    assert counts["killed"] > 0
    assert counts["met"] > 0
