"""A cluster's plan in one task: clusters that fail, tasks that are killed, and clusters that are too large for one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.progress import Progress, silent
from retention_cli.engines.spark import tasks
from retention_cli.engines.spark.plans import Target, make_plans
from retention_cli.engines.spark.shipping import ConnectionRef, Sender, SentFile
from retention_cli.plan import saved
from retention_cli.plan.make import PlanJob
from retention_cli.plan.value import Plan
from retention_cli.state.memories import Memories
from tests.support.clusters import EmbeddedKafka
from tests.support.facts import known
from tests.support.spark.engines import Engines, past_day
from tests.support.world import HOUR, World, consumed, now_ms, reader_for


@pytest.fixture
def engines(local_spark: Any, world: World, tmp_path: Path) -> Engines:
    return Engines(local_spark, world, tmp_path)


def ready(world: World, partitions: int = 1) -> str:
    """Return a new topic of ten records a partition, of which a group has read four."""
    topic = world.topic(partitions=partitions)
    for partition in range(partitions):
        world.produce(topic, [5 * HOUR] * 10, partition)
    world.commit(f"{topic}-g", topic, dict.fromkeys(range(partitions), 4))
    return topic


def planned(
    engines: Engines,
    addresses: Sequence[str],
    policy: str,
    done: list[str],
    *,
    a_task: int = 100,
    sender: type[Sender] = Sender,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Plan clusters at these addresses, by the names 0, 1, …; ``done`` gets those that are done."""
    with ExitStack() as stack:
        targets = []
        for number, address in enumerate(addresses):
            reader = stack.enter_context(reader_for(address, timeout_s=5))
            memories = Memories(engines.folder / f"state-{number}")
            stack.callback(memories.close)
            job = PlanJob(reader, engines.selection(policy), now_ms(), past_day, memories)
            targets.append(Target(str(number), job, done=partial(done.append, str(number))))
        return dict(make_plans(lambda _: sender(engines.session, engines.folder), targets, progress, a_task=a_task))


def workers() -> list[int]:
    daemons = {one.pid for one in psutil.Process().children(recursive=True) if "pyspark.daemon" in one.cmdline()}
    return [pid for pid in daemons if psutil.Process(pid).ppid() in daemons]


def test_killed_task_is_retried_and_holds_nothing(engines: Engines, kafka: EmbeddedKafka) -> None:
    """A broker is frozen meanwhile, so that the task is under way when its Python worker is killed."""
    topic = ready(engines.world, partitions=3)
    assert [one.trim_to for one in engines.spark(consumed(topic), now_ms()).decisions] == [4, 4, 4]
    plans: list[Plan] = []
    kafka.node(2).freeze()
    try:
        thread = threading.Thread(target=lambda: plans.append(engines.spark(consumed(topic), now_ms())))
        thread.start()
        time.sleep(1.5)
        killed = workers()
        assert killed, "there was a worker to kill"
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
    finally:
        kafka.node(2).thaw()
    thread.join(120)
    [plan] = plans
    assert [(one.action, one.trim_to) for one in plan.decisions] == [("trim", 4)] * 3, plan.decisions


def test_cluster_unreachable_from_a_task_fails_alone(engines: Engines) -> None:
    class Losing(Sender):
        """The other cluster's settings are not where its task runs."""

        def connection(self, settings: ConnectionSettings) -> ConnectionRef:
            lost = settings.bootstrap == other.bootstrap
            return ConnectionRef(SentFile("gone")) if lost else Sender.connection(self, settings)

    with EmbeddedKafka(1) as other:
        topic, done = ready(engines.world), list[str]()
        made = planned(engines, [other.bootstrap, engines.world.bootstrap], consumed(topic), done, sender=Losing)
    assert sorted(done) == ["0", "1"]
    assert made["1"].decisions[0].trim_to == 4
    assert "the connection's file gone can't be read here" in str(made["0"])


def test_error_in_a_task_equals_the_local_engines(engines: Engines) -> None:
    from retention_cli.policy.selection import NothingMatchesError

    failure = known(planned(engines, [engines.world.bootstrap], consumed("no-such-topic"), [])["0"])
    with pytest.raises(NothingMatchesError) as local:
        engines.local(consumed("no-such-topic"), now_ms())
    assert failure.problems == local.value.problems


def test_executor_with_a_slow_clock_is_refused() -> None:
    """Else what it remembers would be forgotten too soon (F6), and be older than it is (G3)."""
    tasks.check_clock(now_ms() + 50_000)
    with pytest.raises(BrokerError, match=r"3,5\d\d s behind that of this machine: correct it"):
        tasks.check_clock(now_ms() + 3_590_000)


def test_remembered_time_is_never_before_the_clients() -> None:
    sent_ms = now_ms() + 30_000
    assert sent_ms <= tasks.clock_since(sent_ms)() < sent_ms + 10_000
    assert abs(tasks.clock_since(0)() - now_ms()) < 10_000


def test_invalid_answer_of_a_task_fails_its_cluster(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client takes no plan of which rows are missing."""
    topic = ready(engines.world)
    monkeypatch.setattr(saved, "decisions_in", lambda _rows, _plans: ())
    assert "rows are missing" in str(planned(engines, [engines.world.bootstrap], consumed(topic), [])["0"])
