"""Operators that run at the same time: whoever comes last, the originals are restored in the end."""

from __future__ import annotations

import threading

import pytest

from retention_cli.brokers.errors import BrokerError
from retention_cli.protect.run import carry_out, plan_protection, resume
from tests.simulation.protect.kafka import CHECK_MS, LIMITS
from tests.simulation.protect.world import HOUR, ProtectWorld


def lagging(world: ProtectWorld) -> None:
    """Let topic b have unread records that will expire soon."""
    world.kafka.topics["b"].stamps += [world.kafka.now_ms] * 10
    world.kafka.pass_time(50 * CHECK_MS)


def value(world: ProtectWorld) -> str | None:
    return world.kafka.topics["b"].own.get("retention.ms")


def test_value_that_was_raised_while_a_run_read_is_not_taken_for_another_clients() -> None:
    """P6: it read the setting before, and the record behind."""
    with ProtectWorld() as world:
        lagging(world)

        def hook(where: str) -> None:
            if where == "read":
                world.kafka.hook = lambda _where: None
                world.protect(1, alone=False)

        world.kafka.hook = hook
        world.protect(0, alone=False)
        assert value(world) is not None
        world.settle()


def test_record_of_a_change_that_was_made_stays_the_last_word() -> None:
    """P5: another operator writes while the setting is changed, and looks only later."""
    with ProtectWorld() as world:
        lagging(world)
        first = plan_protection(world.job(0))
        world.kafka.now_ms += 1_000
        second = plan_protection(world.job(1))
        wrote, made = threading.Event(), threading.Event()
        main = threading.current_thread()
        thread = threading.Thread(target=carry_out, args=(world.job(1), second))

        def hook(where: str) -> None:
            if threading.current_thread() is main:
                if where == "altered":
                    thread.start()
                    wrote.wait(10)
            elif where == "appended" and not wrote.is_set():
                wrote.set()
                made.wait(10)

        world.kafka.hook = hook
        carry_out(world.job(0), first)
        made.set()
        thread.join()
        world.kafka.hook = lambda _where: None
        assert value(world) is not None
        world.settle()


def test_topic_made_again_between_the_plan_and_the_change_is_left_alone() -> None:
    """P1: kretain protect waits for an answer meanwhile."""
    with ProtectWorld() as world:
        lagging(world)
        job = world.job(0)
        planned = plan_protection(job)
        world.begin("b")
        made = carry_out(job, planned)
        assert value(world) is None
        assert [one.problem for one in made.failed] == ["topic b was deleted or made again"]


@pytest.mark.parametrize("seen", [True, False])
def test_value_set_by_hand_outlives_restore(seen: bool) -> None:
    """P6: whether a pass has seen it or not."""
    with ProtectWorld() as world:
        lagging(world)
        world.protect(0)
        world.kafka.topics["b"].own["retention.ms"] = str(30 * HOUR)
        if seen:
            world.protect(0, alone=False)
        resume(world.job(0), "b", "restore")
        assert value(world) == str(30 * HOUR)


def test_value_is_not_removed_for_a_default_that_has_become_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """P2: the default was an hour when it was raised, and is five minutes by now."""
    with ProtectWorld() as world:
        lagging(world)
        world.protect(0)
        raised = value(world)
        world.kafka.topics["b"].stamps += [world.kafka.now_ms] * 10
        world.kafka.groups.setdefault("g", {})["b"] = 10
        world.kafka.pass_time(10 * CHECK_MS)
        monkeypatch.setitem(LIMITS, "retention.ms", "300000")
        world.protect(0)
        assert value(world) == raised
        world.protect(0)
        assert world.kafka.topics["b"].start <= 10
        world.settle()
        assert value(world) is None


def test_nothing_is_raised_that_would_be_forgotten() -> None:
    """P5: the topic of records deletes them, or an open transaction there hides what is written."""
    with ProtectWorld() as world:
        lagging(world)
        world.kafka.cleanup = "delete"
        with pytest.raises(BrokerError, match=r"--add-config cleanup\.policy=compact"):
            world.protect(0)
        world.kafka.cleanup, world.kafka.hidden = "compact", 1
        job = world.job(0)
        assert "can't be read" in str(carry_out(job, plan_protection(job)).failed[0].problem)
        assert value(world) is None
