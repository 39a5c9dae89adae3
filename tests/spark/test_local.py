"""``--spark`` gives the plan that this process gives by itself, R6's too; clusters that fail, tasks that are killed; replays and profiles."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pytest

from kretain.render.history import print_replayed
from kretain.render.profile import print_profile
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.model import TopicPartition
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount
from retention_cli.engines.spark import tasks
from retention_cli.engines.spark.plans import Target, make_plans
from retention_cli.engines.spark.profile import SparkReading
from retention_cli.engines.spark.replay import replay_over
from retention_cli.engines.spark.session import DRIVER_MEMORY, SparkError, probe
from retention_cli.engines.spark.shipping import ConnectionRef, Sender, SentFile
from retention_cli.evidence.replay import recorded, replay
from retention_cli.plan.make import PlanJob
from retention_cli.plan.value import Plan
from retention_cli.policy.load import parse_policy
from retention_cli.profile.hours import summarize
from retention_cli.profile.reading import Profile, Wanted, all_rows, fill, head, prepare, write_parquet
from retention_cli.state.memories import Memories
from tests.support.clusters import EmbeddedKafka
from tests.support.evidence import several_runs
from tests.support.facts import known, policy
from tests.support.fleet import Fleet
from tests.support.spark.clusters import QUICK_START
from tests.support.spark.commands import Engines, past_day, reasons_of
from tests.support.volumes import RECORD, await_copies, scan_all, used
from tests.support.world import DAY, HOUR, MIB, World, consumed, now_ms, reader_for


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.long)], ids=["in parts", "one task"])
def engines(local_spark: Any, world: World, tmp_path: Path, request: pytest.FixtureRequest) -> Engines:
    return Engines(local_spark, world, tmp_path, in_parts=request.param)


@pytest.mark.parametrize(("seed", "in_memory"), [pytest.param(11, 50_000, marks=pytest.mark.long), (12, 0)])
def test_spark_plan_of_random_topics_equals_the_local_one(
    engines: Engines, seed: int, in_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the client keeps its rows in a file, as it does with many."""
    monkeypatch.setattr("retention_cli.plan.value.IN_MEMORY", in_memory)
    with closing(Fleet(engines.world, seed, topics=12)) as fleet:
        fleet.build()
        with fleet.members():
            plan = engines.same(fleet.policy(), now_ms)
    assert {one.action for one in plan.decisions} == {"trim", "keep", "hold", "skip"}


def test_spark_plan_reads_event_times_from_headers(engines: Engines) -> None:
    """R2: a scan in a task goes on where the last one ended."""
    world = engines.world
    topic = world.topic(message_timestamp_type="LogAppendTime")
    stamps = [now_ms() - (20 - n) * HOUR for n in range(20)]
    world.produce_at(topic, stamps, headers=lambda n: [("at", str(stamps[n]).encode())])
    policy = (
        f"version: 1\ntopics:\n  - match: {topic}\n    retention.max.eventtime.ms: {5 * HOUR}\n"
        "    retention.eventtime.source: header:at\n    unconsumed: trim\n"
    )
    plan = engines.same(policy, now_ms)
    assert plan.decisions[0].rule == "event-time"
    assert engines.same(policy, now_ms).decisions == plan.decisions


def test_spark_plan_counts_unread_records_by_group(engines: Engines) -> None:
    """G2: and a limit that the plan breaks is a refusal, whoever counted (G6)."""
    world = engines.world
    topic = world.filled([40 * DAY] * 9, {"g": {0: 4, 1: 7}}, 2)
    policy = f"version: 1\nlimits: {{max.records: 3}}\ntopics:\n  - match: {topic}\n    retention.ms: {DAY}\n"
    plan = engines.same(policy, now_ms)
    assert plan.unconsumed_by == {f"group:{topic}-g": 5 + 2}
    assert plan.refusals
    assert replace(engines, named=(f"{topic}:0",)).same(policy, now_ms).unconsumed_by == {f"group:{topic}-g": 5}
    world.commit(f"{topic}-gone", topic, {0: 8, 1: 8})
    engines.same(policy, now_ms)
    world.delete_group(f"{topic}-gone")
    assert engines.same(policy, now_ms).unconsumed_by == {f"group:{topic}-g": 5 + 2, f"group:{topic}-gone": 2}


def test_broken_audit_log_fails_only_its_cluster(engines: Engines) -> None:
    """G6: the plans of a fleet's other clusters are made all the same."""

    def broken(_cluster: str) -> Amount:
        raise StateError("its chain is broken")

    topic = engines.world.topic()
    selection = engines.world.selection(f"version: 1\ntopics:\n  - match: {topic}\n    retention.ms: {DAY}\n")
    with reader_for(engines.world.bootstrap) as reader, closing(Memories(engines.folder / "broken")) as memories:
        target = Target("eu", PlanJob(reader, selection, now_ms(), broken, memories))
        [(_name, failure)] = make_plans(lambda _: engines.sender, [target])
    assert str(failure) == "its chain is broken"


def test_executor_check_keeps_the_warm_python(local_spark: Any) -> None:
    """Spark ends a worker that leaves input unread: each check, and each plan after it, imported all for seconds."""

    def where(batches: Iterator[Any]) -> Iterator[Any]:
        for found in probe(batches):
            yield found.set_column(0, "host", pa.array([str(os.getpid())]))

    schema = "host string, python string, missing string"
    checked = [local_spark.range(0, 1, 1, 1).mapInArrow(where, schema).collect()[0] for _ in range(6)]
    assert {one["missing"] for one in checked} == {""}
    assert len({one["host"] for one in checked}) < len(checked)


def test_session_has_kretains_settings_and_keeps_the_users(local_spark: Any) -> None:
    """Rows are not summed up by Spark, which takes ten times the work for rows as wide as ours.

    By Spark's default a standalone cluster's driver has 1 GiB: it must be set before its JVM starts.
    """
    conf = local_spark.conf
    assert conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == str(2**31 - 1)
    assert conf.get("spark.driver.memory") == DRIVER_MEMORY == "2g"
    jvm = local_spark.sparkContext._jvm  # noqa: SLF001  (nothing else tells what the JVM was started with)
    assert jvm.java.lang.Runtime.getRuntime().maxMemory() > 1.9 * 2**30
    options = conf.get("spark.driver.extraJavaOptions")
    assert "-Dlog4j2.configurationFile=" in options
    assert options.endswith(QUICK_START)


# -- ``kretain replay --spark`` finds what this process finds by itself, byte for byte --

POLICY = policy("version: 1\ntopics:\n- match: '*'\n  retention.ms: 1h\n")


def test_replay_over_spark_prints_the_same_bytes(
    local_spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several_runs(tmp_path)
    runs = recorded(tmp_path)
    for output in ("table", "json", "csv"):
        for found in (replay(runs, POLICY), replay_over(Sender(local_spark, tmp_path), runs, POLICY)):
            print_replayed(found, "policy.yaml", output)
            assert found.totals["earlier"] > 0
        shown = capsys.readouterr().out
        assert shown[: len(shown) // 2] == shown[len(shown) // 2 :] != ""


def test_evidence_that_executors_can_not_read_is_an_error(tmp_path: Path) -> None:
    several_runs(tmp_path)
    with pytest.raises(SparkError, match=r"cluster-0/evidence is on this machine: copy it to"):
        replay_over(Sender(SimpleNamespace(_jsc=None), tmp_path), recorded(tmp_path), POLICY)


@pytest.fixture
def one_task(local_spark: Any, world: World, tmp_path: Path) -> Engines:
    return Engines(local_spark, world, tmp_path)


def ready(world: World, partitions: int = 1) -> str:
    """Return a new topic of ten records a partition, of which a group has read four."""
    return world.filled([5 * HOUR] * 10, {"g": 4}, partitions)


def planned(
    one_task: Engines,
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
            memories = stack.enter_context(closing(Memories(one_task.folder / f"state-{number}")))
            job = PlanJob(reader, one_task.selection(policy), now_ms(), past_day, memories)
            targets.append(Target(str(number), job, done=partial(done.append, str(number))))
        return dict(make_plans(lambda _: sender(one_task.session, one_task.folder), targets, progress, a_task=a_task))


def workers() -> list[int]:
    parents: dict[int, int] = {}
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it may end meanwhile
            if "pyspark.daemon" in one.cmdline():
                parents[one.pid] = one.ppid()
    return [pid for pid, parent in parents.items() if parent in parents]


def test_killed_task_is_retried_and_holds_nothing(one_task: Engines, kafka: EmbeddedKafka) -> None:
    """A broker is frozen meanwhile, so that the task is under way when its Python worker is killed."""
    topic = ready(one_task.world, partitions=3)
    assert [one.trim_to for one in one_task.spark(consumed(topic), now_ms()).decisions] == [4, 4, 4]
    plans: list[Plan] = []
    kafka.node(2).freeze()
    try:
        thread = threading.Thread(target=lambda: plans.append(one_task.spark(consumed(topic), now_ms())))
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
    one_task.world.delete_group(f"{topic}-g")
    gone = one_task.spark(consumed(topic), now_ms())
    assert [one.trim_to for one in gone.decisions] == [4] * 3, "what tasks have seen is remembered (F6)"


def test_cluster_unreachable_from_a_task_fails_alone(one_task: Engines) -> None:
    class Losing(Sender):
        """The other cluster's settings are not where its task runs."""

        def connection(self, settings: ConnectionSettings) -> ConnectionRef:
            lost = settings.bootstrap == other.bootstrap
            return ConnectionRef(SentFile("gone")) if lost else Sender.connection(self, settings)

    with EmbeddedKafka(1) as other:
        topic, done = ready(one_task.world), list[str]()
        made = planned(one_task, [other.bootstrap, one_task.world.bootstrap], consumed(topic), done, sender=Losing)
    assert sorted(done) == ["0", "1"]
    assert made["1"].decisions[0].trim_to == 4
    assert "the connection's file gone can't be read here" in str(made["0"])


def test_error_in_a_task_equals_the_local_engines(one_task: Engines) -> None:
    from retention_cli.policy.selection import NothingMatchesError

    failure = known(planned(one_task, [one_task.world.bootstrap], consumed("no-such-topic"), [])["0"])
    with pytest.raises(NothingMatchesError) as local:
        one_task.local(consumed("no-such-topic"), now_ms())
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


def test_invalid_answer_of_a_task_fails_its_cluster(one_task: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client takes no plan of which rows are missing."""
    topic = ready(one_task.world)
    monkeypatch.setattr("retention_cli.plan.saved.decisions_in", lambda _rows, _plans: ())
    assert "rows are missing" in str(planned(one_task, [one_task.world.bootstrap], consumed(topic), [])["0"])


def policy_of(world: World, names: list[str], untouched: str) -> str:
    """The other rules speak of one topic each, and free less than the ceiling asks for."""
    return "\n".join(
        [
            "version: 1",
            *ceiling(world),
            "  watermarks: [{percent: 16, factor: 0.5, minimum: 1d}]",
            "topics:",
            f"  - {{match: {names[0]}, retention.topic.bytes: {4 * MIB}}}",
            f"  - {{match: {names[1]}, granularity: segment}}",
            f"  - {{match: {names[2]}, retention.ms: {30 * DAY}}}",
            f"  - {{match: {names[3]}, retention.bytes: {3 * MIB}}}",
            f"  - {{match: {untouched}, retention.ms: {DAY}}}",
            "",
        ]
    )


def rules_of(plan: Plan) -> dict[str, str | None]:
    return {one.topic: one.rule for one in plan.decisions}


@pytest.mark.timeout(900)  # brokers' own topics may change under several pairs of looks
def test_spark_disk_plan_equals_the_local_one(one_task: Engines, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    world = one_task.world
    names = topics_of_ages(world, 40, 30, 20, 10)
    compacted = world.topic("compacted", cleanup_policy="compact,delete", segment_ms=str(1000 * DAY))
    world.produce_at(compacted, [now_ms()] * 20)
    policy = policy_of(world, names, compacted)
    guess = one_task.same(policy, now_ms)
    assert rules_of(guess)[names[0]] == "disk-usage", reasons_of(guess, names[0]) + str(guess.notes)
    assert "estimated" in reasons_of(guess, names[0])
    assert rules_of(guess)[names[2]] == "forced-age"  # 15 days of 30: R7
    assert rules_of(guess)[names[3]] == "size"
    assert "G5" in reasons_of(guess, compacted)  # but it lies on a disk above its ceiling
    assert len(guess.disks) == 3
    one_task.inventory = scan_all(kafka, tmp_path / "inventory")
    exact = one_task.same(policy, now_ms)
    assert {rules_of(exact)[name] for name in names[:2]} == {"disk-usage"}
    assert "estimated" not in reasons_of(exact, names[0])
    assert exact.space is not None
    first = now_ms() - 18 * DAY  # written since, and trimmed by R4 together with what was scanned
    world.produce_at(names[2], [first + 1000 * n for n in range(COUNT)], value=lambda: os.urandom(RECORD), batch=20)
    stale = one_task.same(policy, now_ms)
    assert min(one.doubtful_bytes for one in stale.disks) > 4 * MIB
    assert "A fresh scan shows which" in str(stale.notes)


COUNT = 6 * MIB // RECORD


def topics_of_ages(world: World, *ages_days: int) -> list[str]:
    """Return topics of several segments on every broker, the oldest first; a group has read all of it."""
    names = []
    for days in ages_days:
        name = world.topic("disk", replicas=3, segment_bytes=str(MIB))
        first = now_ms() - days * DAY
        world.produce_at(name, [first + 1000 * n for n in range(COUNT)], value=lambda: os.urandom(RECORD), batch=20)
        world.commit(f"{name}-g", name, COUNT)
        names.append(name)

    await_copies(world, names, 5 * MIB)
    return names


def ceiling(world: World) -> list[str]:
    """A ceiling 16 MiB below what lies on each broker's disk, or at a quarter of it; the disk is five times as large."""
    capacity = {f"{broker}:{path}": 5 * max(size // 4, size - 16 * MIB) for broker, (path, size) in used(world).items()}
    return ["disks:", "  log.retention.disk.usage.percent: 20", f"  capacity: {json.dumps(capacity)}"]


# -- kretain profile --spark -------------------------------------------------------------------


ANY_STAMP = str(2**63 - 1)


def profiled(world: World, wanted: Wanted, sender: Sender | None = None, most: int = 1) -> Profile:
    with reader_for(world.bootstrap) as reader:
        found = prepare(reader, wanted)
        fill(reader, found, read=None if sender is None else SparkReading(sender, reader, most))
    return found


@pytest.fixture(scope="module")
def odd(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    """Out of order over every seam, stamps of all kinds, headers, transactions that ended, one that is open, nothing."""
    world = World(kafka.bootstrap, tmp_path_factory.mktemp("odd") / "state")
    topic = world.topic("odd", partitions=4, message_timestamp_after_max_ms=ANY_STAMP)
    now, chance = now_ms(), random.Random(5)
    stamps = [now - DAY + n * 20_000 - chance.choice((0, 0, 0, 1, 60_000, 2 * HOUR)) for n in range(3000)]
    for place, stamp in ((500, now * 1000), (1400, now // 1000), (2100, now + 2 * HOUR)):
        stamps[place] = stamp
    world.produce_at(
        topic, stamps, 0, headers=lambda n: [("at", str(stamps[n] - HOUR).encode())] if n % 3 else None, batch=100
    )
    world.delete_records(topic, 37)
    world.transaction(topic, [now - HOUR] * 40, end="commit", partition=1)
    world.transaction(topic, [now - HOUR] * 40, end="abort", partition=1)
    world.produce_at(topic, [now - 2 * HOUR] * 150, 1)
    world.produce_at(topic, [now - HOUR] * 130, 2)
    open_one = world.transaction(topic, [now] * 90, end="open", partition=2)
    yield world, topic
    open_one.abort_transaction(30)


@pytest.mark.parametrize("how", ["stamps", "event times", "window"])
def test_spark_profile_equals_the_local_one(
    how: str, local_spark: Any, odd: tuple[World, str], tmp_path: Path, capsys: Any
) -> None:
    """However the partitions are cut: in the terminal, as JSON and as Parquet."""
    world, topic = odd
    now = now_ms()
    policy = parse_policy(
        f'version: 1\ntopics: [{{match: {topic}, retention.eventtime.source: "header:at", retention.ms: 1d}}]',
        "policy.yaml",
        "sha256:test",
    )
    wanted = {
        "stamps": Wanted((topic,), now),
        "event times": Wanted((topic,), now, policy, by_event_time=True),
        "window": Wanted((topic,), now, policy, from_ms=now - 20 * HOUR, to_ms=now - 3 * HOUR),
    }[how]
    told = []
    for found in (profiled(world, wanted), profiled(world, wanted, Sender(local_spark, tmp_path), 170)):
        for output in ("table", "json"):
            print_profile(found, output, of_bytes=False)
        file = tmp_path / "profile.parquet"
        write_parquet(file, head(found), all_rows(found.topics.values()))
        told.append((capsys.readouterr().out, file.read_bytes()))
    assert told[0] == told[1]
    assert "an open transaction begins at offset 130" in told[0][0]
    assert summarize(found.topics[topic].partitions).late_exact


def test_spark_profile_names_partitions_that_executors_cannot_reach(
    local_spark: Any, world: World, tmp_path: Path
) -> None:
    topic = world.filled([HOUR] * 10, partitions=2)
    sender = Sender(local_spark, tmp_path, str(tmp_path / "no.properties"))
    (unread,) = profiled(world, Wanted((topic,), now_ms()), sender, 5).unread
    assert (unread.tp, unread.reached, unread.end) == (TopicPartition(topic, 0), 0, 10)
    assert "no.properties" in unread.text


def test_interrupted_spark_profile_shows_what_was_merged(
    local_spark: Any, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention_cli.engines.spark.profile.SLICES_A_JOB", 1)
    monkeypatch.setattr("retention_cli.engines.spark.profile.JOBS_AT_ONCE", 2)
    topic = world.filled([HOUR] * 1000)
    told: list[str] = []

    def progress(phase: str, done: int = 0, total: int | None = None) -> None:
        if done:
            told.append(phase)

    with reader_for(world.bootstrap) as reader:
        found = prepare(reader, Wanted((topic,), now_ms()))
        fill(reader, found, progress, lambda: bool(told), SparkReading(Sender(local_spark, tmp_path), reader, 25))
    assert found.interrupted
    (unread,) = found.unread
    assert unread.text == "reading was interrupted"
    assert unread.reached is not None
    assert unread.reached % 25 == 0
    assert summarize(found.topics[topic].partitions).records == unread.reached < 1000
