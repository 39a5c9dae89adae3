"""Plans over Spark, request by request: they are those of this process, whatever happened before or in between.

There is no Spark: the client's own functions and the tasks' run one after the other, and others act in between.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from greenlet import getcurrent

from retention_cli.brokers.errors import BrokerError
from retention_cli.decide.guards.limits import Amount
from retention_cli.engines.spark import plans, tasks
from retention_cli.engines.spark.shipping import ConnectionRef, SentFile, from_bytes, to_bytes
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.plan.value import Plan, row_as_json
from retention_cli.state.memories import Handed
from tests.simulation.reader import SimReader
from tests.simulation.run import sequence_of
from tests.simulation.scene import Operator
from tests.simulation.steps_runs import memories_of, planned, reading_of, selection_of
from tests.simulation.world import World

_RUNS: dict[Any, tuple[World, SimReader]] = {}
"""The run of each greenlet."""
_LARGEST_SLICE = 2


class Sender:
    """See :class:`retention_cli.engines.spark.shipping.Sender`."""

    def send(self, value: Any) -> Any:
        """Return what tasks are given (:class:`retention_cli.engines.spark.shipping.Sent`)."""
        load = functools.partial(from_bytes, to_bytes(value))
        return SimpleNamespace(load=load, load_once=load)

    def connection(self, _settings: object) -> ConnectionRef:
        return ConnectionRef(SentFile("simulated"))


def clock_since(_sent_ms: int) -> Callable[[], int]:
    """The clock of the machine on which a run is under way."""
    return _RUNS[getcurrent()][1].clock.wall_ms


def rows_of_tasks(sender: Any, whole: Any, own: Iterator[Any], *, again: bool = False) -> Generator[Any, None, None]:
    """Yield what all tasks yield: shares first, as a shuffle is between them and the slices.

    ``again``: Spark has lost what shares have read for the client, and reads it once more.
    """
    world, reader = _RUNS[getcurrent()]
    one, given = sender.send(whole).load(), cast(Any, reader)
    world.hub.pause("spark starts")
    with tempfile.TemporaryDirectory() as name:

        def shares(folder: str) -> list[Any]:
            return [
                row
                for share in range(one.shares)
                for row in tasks.read_share(
                    one, share, one.memories[share].load_once(), given, Path(name) / f"{folder}-{share}"
                )
            ]

        rows = [*own, *shares("share")]
        world.hub.pause("spark reads ends")
        for number, (_topics, sent) in enumerate(one.slices):
            floors = [(row["name"], from_bytes(row["content"])) for row in rows if row["slice"] == number]
            folder = Path(name) / f"slice-{number}"
            for row in tasks.plan_slice(one, sent.load_once(), floors, given, folder):
                yield {"name": None, **row, "slice": number}
        if again:
            world.hub.pause("spark loses a share")
            rows = shares("again")
    yield from ({"name": None, **row} for row in rows if row["slice"] < 0)
    world.hub.pause("spark remembers")


pytest.importorskip("pyarrow")

_NOT_OF_ONE_MOMENT: Final = frozenset(("fail", "lose_delete", "deposed", "loading", "clock", "forget", "registry"))
"""Steps of which the first of two runs has what the second has not: a request that fails, time that passes."""
_CHANGES: Final = ("produce", "read", "plan", "trim", "elect", "recreate", "late", "seek", "time", "delete_group")

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks read by the simulated reader and clock of their run."""
    monkeypatch.setattr(plans, "_rows_of_tasks", rows_of_tasks)
    monkeypatch.setattr(tasks, "clock_since", clock_since)


def _by_spark(world: World, one: Operator, sender: type[Sender] = Sender) -> Rows:
    """Make a plan, and remember what was seen."""
    reader, clock_ms = SimReader(world.kafka, one.clock), one.clock.wall_ms
    _RUNS[getcurrent()] = world, reader
    try:
        with closing(memories_of(world, one)) as memories:
            job = PlanJob(reader, selection_of(world, one), clock_ms(), lambda _: Amount(), memories, clock_ms)
            return _rows(plans.plan_giant(cast(Any, sender()), job, world.kafka.cluster_id, _LARGEST_SLICE, 1, 1))
    finally:
        del _RUNS[getcurrent()]


def _here(world: World, one: Operator) -> Rows:
    reading, reader = reading_of(world, one)
    with closing(memories_of(world, one)) as memories:
        return _rows(planned(world, one, reading, reader, memories))


def _rows(plan: Plan) -> Rows:
    return [{**row_as_json(one), "bytes_exact": one.size_exact} for one in plan.decisions]


def _row(rows: Rows) -> dict[str, Any]:
    """Return that of the partition that a test is about."""
    [row] = [one for one in rows if (one["topic"], one["partition"]) == ("a", 0)]
    return row


@pytest.mark.parametrize(
    "seeds",
    [
        range(2),
        pytest.param(range(2, 6), marks=pytest.mark.thorough),
        pytest.param(range(6, 30), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_spark_plan_equals_the_local_plan_after_any_sequence(seeds: range) -> None:
    """Each has a memory of its own, of all its plans so far: what a plan over Spark remembers is the same, too."""
    for seed in seeds:
        rules, sequence = sequence_of(seed)
        with World(rules.partition(" @")[0]) as world:
            one = world.operators[0]
            spark, here = (replace(one, folder=world.root / name) for name in ("spark", "here"))
            for step in sequence:
                if step[0] in _NOT_OF_ONE_MOMENT:
                    continue
                world.apply(step)
                if step[0] in _CHANGES:
                    moment = world.kafka.now_ms, world.kafka.elapsed_s
                    expected = _here(world, here)
                    world.kafka.now_ms, world.kafka.elapsed_s = moment  # waiting for a rebalance takes time
                    assert _by_spark(world, spark) == expected, f"seed {seed}, at {step}"


@pytest.mark.parametrize("how", [_here, _by_spark], ids=["here", "spark"])
@pytest.mark.parametrize("after", ["list_groups 3", "read_commits", "metadata"])
def test_group_deleted_before_spark_reads_commits_again_counts(
    how: Callable[..., Rows], after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6: coordinators have moved (F9), and this run itself had seen it before."""
    monkeypatch.setattr("retention_cli.engines.spark.plans._SHARES_AT_MOST", 1)  # each share lists groups
    with World("R1") as world:
        world.apply(("produce", 0, 5, 4, 4), ("read", 0, 0, 5, 1), ("read", 1, 0, 1, 1))
        found: Rows = []
        run = world.hub.start("run", lambda: found.extend(how(world, world.operators[0])))
        run.until("list_groups 1")
        run.until(after)
        world.apply(("coordinator", 0, 0))
        while run.alive:
            run.step()
            if run.last == "list_groups 1":
                world.apply(("delete_group", 1))
    assert (found[0]["topic"], found[0]["partition"], found[0]["action"]) == ("a", 0, "hold")
    assert [one["code"] for one in found[0]["reasons"]] == ["F6"]


@pytest.mark.parametrize("memories", ["one", "cluster"])
def test_rewind_seen_by_another_run_during_the_read_counts(memories: str) -> None:
    """F6: a plan over Spark saw it unmoved before that, and remembers it after. Then the group is deleted."""
    rows: Rows = []
    with World(f"R1 @{memories}") as world:
        world.apply(("produce", 0, 5, 4, 4), ("read", 0, 0, 5, 1), ("read", 1, 0, 4, 1))
        here, there = world.operators
        _by_spark(world, here)
        world.apply(("time", 2))
        began_ms = here.clock.wall_ms()
        spark = world.hub.start("spark", lambda: rows.extend(_by_spark(world, here)))
        spark.until("spark reads ends")
        world.apply(("seek", 1, 0, 3, 1))
        back = world.kafka.groups["g1"].commits["a", 0][0]
        other = world.hub.start("other", lambda: rows.extend(_here(world, there)))
        other.until("list_offsets latest")  # it has read the commits
        world.apply(("time", 0), ("time", 0))
        spark.finish()
        with closing(memories_of(world, here)) as kept:
            assert kept.ledger(world.kafka.cluster_id).group("g0").seen_ms >= began_ms
        other.finish()
        world.apply(("delete_group", 1))
        row = _row(_here(world, there))
    assert (row["min_commit"], row["min_commit_by"]) == (back, "group:g1")


@pytest.mark.parametrize("how", [_here, _by_spark], ids=["here", "spark"])
@pytest.mark.parametrize("memories", ["one", "cluster"])
def test_truncation_below_another_runs_observation_is_found(how: Callable[..., Rows], memories: str) -> None:
    """M2: a plan over Spark notes a log end later than it was read: another's look in between saw the log grow."""
    rows: Rows = []

    def go_on(run: Any) -> None:
        run.step()
        while not run.last.startswith("list_offsets"):
            run.step()
        while run.last in ("list_offsets earliest", "list_offsets latest", "list_offsets last-stable"):
            run.step()

    with World(f"R1 @{memories}") as world:
        world.apply(("produce", 0, 5, 4, 4), ("read", 1, 0, 4, 0))
        here, there = world.operators
        first = world.hub.start("first", lambda: rows.extend(how(world, here)))
        go_on(first)
        world.apply(("time", 0), ("fall_behind", 0), ("produce", 0, 5, 4, 4), ("read", 1, 0, 7, 0))
        other = world.hub.start("other", lambda: rows.extend(_here(world, there)))
        go_on(other)
        world.apply(("time", 0))
        first.finish()
        other.finish()
        world.apply(("elect", 0, 0), *[("produce", 0, 5, 4, 4)] * 3, ("time", 2))
        row = _row(_here(world, there))
    assert (row["action"], [one["code"] for one in row["reasons"]]) == ("hold", ["F5"])


@pytest.mark.parametrize("how", [_here, _by_spark], ids=["here", "spark"])
def test_cut_found_in_a_log_that_changes_again_while_it_is_read_refuses_commits(how: Callable[..., Rows]) -> None:
    """F5: the partition's memory goes on from the cut, so no later plan finds it."""
    with World("R1") as world:
        world.apply(("produce", 0, 5, 4, 4), ("fall_behind", 0), ("produce", 0, 5, 4, 4), ("produce", 0, 5, 4, 4))
        world.apply(*[("read", 1, 0, 7, 0)] * 2)  # by commits without a leader epoch
        here, log = world.operators[0], world.kafka.partition(("a", 0))
        how(world, here)
        world.apply(("elect", 0, 0), *[("produce", 0, 5, 4, 4)] * 4, ("time", 2))
        rows: Rows = []
        run = world.hub.start("run", lambda: rows.extend(how(world, here)))
        run.until("epoch_ends")
        while run.last == "epoch_ends":
            run.step()
        log.catch_up()
        log.elect()
        run.finish()
        row = _row(_here(world, here))
    assert (row["action"], [one["code"] for one in row["reasons"]]) == ("hold", ["F5"])


def test_commit_that_spark_reads_again_after_the_log_ends_is_no_leftover(monkeypatch: pytest.MonkeyPatch) -> None:
    """F5: an executor was lost, and a group has moved on since its log's end was read. Then it stands still."""
    monkeypatch.setattr(plans, "_rows_of_tasks", functools.partial(rows_of_tasks, again=True))
    rows: Rows = []
    with World("R1") as world:
        world.apply(("produce", 0, 5, 4, 4), ("read", 0, 0, 4, 1), ("read", 1, 0, 2, 1))
        here = world.operators[0]
        run = world.hub.start("spark", lambda: rows.extend(_by_spark(world, here)))
        run.until("spark loses a share")
        world.apply(("produce", 0, 5, 4, 4), ("produce", 0, 5, 4, 4))
        commits = world.kafka.groups["g1"].commits
        commits["a", 0] = (stands := 9, commits["a", 0][1])  # beyond the end that was read
        run.finish()
        with closing(memories_of(world, here)) as kept:
            assert not kept.ledger(world.kafka.cluster_id).group("g1").refused
        ahead = world.kafka.groups["g0"].commits
        ahead["a", 0] = (stands + 5, ahead["a", 0][1])
        row = _row(_here(world, here))
    assert (row["min_commit"], row["min_commit_by"]) == (stands, "group:g1")


@pytest.mark.parametrize("lost", ["0:", "client"])
def test_slice_without_all_its_shares_is_not_planned(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """F3: it may have had the lowest commit of any partition."""
    honest = tasks.plan_slice

    def short(whole: Any, one: Any, arrived: Any, *rest: Any) -> Any:
        return honest(whole, one, [each for each in arrived if not each[0].startswith(lost)], *rest)

    monkeypatch.setattr(tasks, "plan_slice", short)
    with World("R1") as world:
        world.apply(("produce", 0, 5, 4, 4))
        with pytest.raises(BrokerError, match="Spark lost the commits of some groups"):
            _by_spark(world, world.operators[0])


def test_ledger_that_another_run_writes_while_it_is_cut_is_cut_again() -> None:
    """F6: parts of two revisions have a group's commits of one look, and its partitions of another."""
    sent = list[Handed]()

    class Noting(Sender):
        interrupted = False

        def send(self, value: Any) -> Any:
            if isinstance(value, Handed):
                sent.append(value)
                if self.interrupted and len(sent) == 1:
                    world.apply(("produce", 0, 5, 4, 4), ("read", 0, 0, 5, 1))
                    _here(world, there)
            return super().send(value)

    with World("R1 @one") as world:
        world.apply(("produce", 0, 5, 4, 4), ("read", 0, 0, 4, 1))
        here, there = world.operators
        _by_spark(world, here, Noting)
        shares = len(sent)
        sent.clear()
        Noting.interrupted = True
        _by_spark(world, here, Noting)
    assert len(sent) == 2 * shares
    assert sent[shares:] != sent[:shares], "the other run's look is in it"


def test_groups_latest_does_not_cover_a_partition_that_another_machine_saw_added_over_spark() -> None:
    """F2: a part of a ledger has no partitions, and a topic that has not grown yet no width either."""
    with World("R1 latest @cluster") as world:
        for group in (0, 1):
            world.apply(("produce", 0, 5, 4, 4), ("read", group, 0, 7, 1), ("read", group, 1, 0, 1))
        _here(world, world.operators[0])
        world.apply(("add_partition", 0), ("produce", 9, 5, 4, 4), ("read", 0, 9, 7, 1), ("time", 2))
        [added] = [one for one in _by_spark(world, world.operators[1]) if (one["topic"], one["partition"]) == ("a", 2)]
    assert (added["action"], [one["code"] for one in added["reasons"]]) == ("hold", ["F2"])


@pytest.mark.parametrize("how", ["many tasks", "one"])
def test_executor_whose_clock_is_ahead_forgets_no_group_that_is_gone(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """F6: how long a group is gone is reckoned by the client's clock."""
    ahead_ms = 400 * 86_400_000
    with World("R1 @one") as world:
        world.apply(("produce", 0, 5, 4, 4), ("read", 0, 0, 7, 1), ("read", 1, 0, 1, 1))
        one = world.operators[0]
        _here(world, one)
        world.apply(("delete_group", 1), ("time", 2))
        if how == "one":
            reader, clock_ms = reading_of(world, one)[1], one.clock.wall_ms
            with closing(memories_of(world, one)) as memories:
                job = PlanJob(reader, selection_of(world, one), clock_ms(), lambda _: Amount(), memories)
                row = _row(_rows(LocalPlanner().plan(replace(job, clock_ms=lambda: clock_ms() + ahead_ms))))
        else:
            monkeypatch.setattr(tasks, "clock_since", lambda sent_ms: lambda: clock_since(sent_ms)() + ahead_ms)
            row = _row(_by_spark(world, one))
    assert (row["min_commit_by"], [one["code"] for one in row["reasons"]]) == ("group:g1", ["F6"])


def test_r1_waits_over_spark_until_its_plans_have_watched_the_groups() -> None:
    """F10: the client notes the look of all shares, and slices go by what it noted before."""
    with World("R1 watched") as world:
        world.apply(("produce", 0, 5, 4, 4), ("read", 0, 0, 4, 1))
        one, seen = world.operators[0], []
        for _ in range(2):
            row = _row(_by_spark(world, one))
            seen.append((row["action"], [reason["code"] for reason in row["reasons"]]))
            world.apply(("time", 2))
    assert seen == [("hold", ["F10"]), ("trim", [])]
