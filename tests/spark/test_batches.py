"""A fleet is planned in batches of clusters: the plans, the ledgers and the failures are those of one batch."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.seed import Shape
from bench.synthetic.start import synthetic
from retention_cli.brokers.errors import BrokerError
from retention_cli.core.state_dir import cluster_folder
from retention_cli.engines.fleet.planning import SameClusterError
from retention_cli.engines.spark.cluster_plans import SparkPlans
from retention_cli.engines.spark.connections import ConnectionRef, write_connection
from retention_cli.engines.spark.engine import plan_in_parts
from retention_cli.engines.spark.fact_tasks import slice_reader
from retention_cli.engines.spark.gather import received
from retention_cli.engines.spark.prepare import Prepared, Target, list_groups, prepare
from retention_cli.engines.spark.remember import remember
from retention_cli.engines.spark.sent import Sender
from retention_cli.engines.spark.session import SparkError
from retention_cli.memory.stores import Memories
from retention_cli.observe.floors.kafka_groups import changed_since
from retention_cli.plan.value import Plan, plan_text
from retention_cli.policy.load import parse_policy
from retention_cli.policy.selection import Selection
from tests.kafka.world import consumed, now_ms, reader_for
from tests.spark.engines import past_day

SHAPES = [Shape(topics, 3, 4, 2, prefix="batch") for topics in (4, 2, 5)]
NAMES = ["big", "small", "last"]
ONE_EACH = 1
ENGINE = "retention_cli.engines.spark"
ALL = 10**9


@pytest.fixture(scope="module")
def fleet() -> Iterator[list[str]]:
    """The addresses of three synthetic clusters, of which no two are alike."""
    with contextlib.ExitStack() as stack:
        served = [
            stack.enter_context(synthetic(shape, number=number, moving=number == 1))
            for number, shape in enumerate(SHAPES)
        ]
        yield [one.bootstrap for one in served]


def _same(where: ConnectionRef) -> ConnectionRef:
    return where


Plans = Callable[..., SparkPlans]


@pytest.fixture
def plans(local_spark: Any, tmp_path: Path) -> Plans:
    """Plans clusters at these addresses, in batches of so many partitions, with ledgers in a folder."""

    def make(
        addresses: Sequence[str],
        state: str,
        partitions: int,
        now: int | None = None,
        names: Any = None,
        done: Any = None,
    ) -> SparkPlans:
        with contextlib.ExitStack() as stack:
            targets = []
            for number, (name, address) in enumerate(zip(names or NAMES, addresses, strict=True)):
                reader = reader_for(address, timeout_s=3)
                file = tmp_path / f"connection-{state}-{number}-{time.monotonic_ns()}"
                where = ConnectionRef(path=str(write_connection(reader.settings, tmp_path, file.name)))
                memories = Memories(tmp_path / state)
                stack.callback(memories.close)
                policy = Selection(parse_policy(consumed("batch-*"), "policy.yaml", "sha256:test"), ())
                closed = partial(done or (lambda _name: None), name)
                opened = stack.enter_context(reader)
                targets.append(Target(name, opened, policy, partial(_same, where), past_day, memories, done=closed))
            sender = Sender(local_spark, tmp_path)
            made = SparkPlans()
            plan_in_parts(sender, targets, now or now_ms(), made, partitions=partitions)
            return made

    return make


def text(plan: Plan) -> str:
    """The plan, but for when its ledger was begun."""
    return plan_text(replace(plan, memory_since_ms=None))


def rows(folder: Path) -> list[Any]:
    """What the ledgers in a folder have, but for when it was seen."""
    found: list[Any] = []
    for file in sorted(folder.glob("*/ledger.sqlite")):
        with contextlib.closing(sqlite3.connect(file)) as db:
            found.append(
                db.execute(
                    "SELECT topic_id, partition, leader_epoch, log_start FROM partitions ORDER BY 1, 2"
                ).fetchall()
            )
            found.append(db.execute("SELECT name, digest, plain, open FROM groups ORDER BY name").fetchall())
            found.append(db.execute("SELECT value FROM meta WHERE key = 'revision'").fetchall())
    return found


def test_batches_make_the_plans_and_the_ledgers_that_one_makes(fleet: list[str], plans: Plans, tmp_path: Path) -> None:
    """A first plan, and one that finds what the first has remembered."""
    for _ in range(2):
        now = now_ms()
        whole, each = plans(fleet, "whole", ALL, now), plans(fleet, "each", ONE_EACH, now)
        assert not whole.failures
        assert not each.failures
        still = [name for name in NAMES if name != "small"]  # its groups commit anew whenever they are listed
        assert [text(each.plans[name]) for name in still] == [text(whole.plans[name]) for name in still]
        assert [len(each.plans[name].decisions) for name in NAMES] == [12, 6, 15]
    assert sorted(map(len, rows(tmp_path / "each"))) == [1, 1, 1, 4, 4, 4, 6, 12, 15]
    partitions = [some for some in rows(tmp_path / "each") if len(some) != 4]
    assert partitions == [some for some in rows(tmp_path / "whole") if len(some) != 4]


@pytest.mark.parametrize("partitions", [ONE_EACH, ALL])
def test_a_cluster_that_can_not_be_read_holds_no_other(
    fleet: list[str], plans: Plans, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    def read(target: Target, now: int) -> Prepared:
        if target.name == "small":
            raise BrokerError("it does not answer")
        return prepare(target, now)

    monkeypatch.setattr(f"{ENGINE}.preparing.prepare", read)
    closed: list[str] = []
    made = plans(fleet, "state", partitions, done=closed.append)
    assert sorted(closed) == sorted(NAMES)
    assert (list(made.plans), list(made.failures)) == (["big", "last"], ["small"])


def test_two_names_of_one_cluster_are_refused_before_anything_is_remembered(
    fleet: list[str], plans: Plans, tmp_path: Path
) -> None:
    """Also where the second is the last of a fleet, of which other clusters would be done by then."""
    addresses, names = [fleet[0], fleet[1], fleet[2], fleet[0]], ["big", "small", "last", "again"]
    with pytest.raises(SameClusterError, match="big and again are one cluster"):
        plans(addresses, "state", ONE_EACH, names=names)
    assert [some for some in rows(tmp_path / "state") if some != [(0,)]] in ([], [[]] * 6, [[]] * 4, [[]] * 2)


def test_a_cluster_that_is_another_one_by_the_time_it_is_read_fails_alone(
    fleet: list[str], plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address may lead elsewhere by then: to a cluster that has its own name, and its own policy, in the fleet."""

    def moved(target: Target, now: int) -> Prepared:
        found = prepare(target, now)
        if target.name == "last":
            elsewhere = replace(found.job.places, cluster="another")
            found.job = replace(found.job, places=elsewhere)
        return found

    monkeypatch.setattr(f"{ENGINE}.preparing.prepare", moved)
    made = plans(fleet, "state", ONE_EACH)
    assert list(made.plans) == ["big", "small"]
    assert "when it was asked first" in str(made.failures["last"])


def test_nothing_is_remembered_on_account_of_a_batch_that_failed(
    fleet: list[str], plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark lost may be anything. A cluster whose plan was made by then was seen whole."""
    seen: list[str] = []

    def lost(written: Any, folder: Path) -> Any:
        found = received(written, folder)
        seen.extend(found)
        if len(seen) == 2:
            found[seen[1]] = found[seen[1]][1:]
        return found

    monkeypatch.setattr(f"{ENGINE}.engine.received", lost)
    with pytest.raises(SparkError, match="not whole"):
        plans(fleet, "state", ONE_EACH)
    counts = [_counts(tmp_path / "state", cluster) for cluster in seen]
    assert (counts[0], {*counts[1:]}) == ((12, 4), {(0, 0)})


def _counts(state_dir: Path, cluster: str) -> tuple[int, int]:
    with contextlib.closing(sqlite3.connect(cluster_folder(state_dir, cluster) / "ledger.sqlite")) as db:
        return db.execute("SELECT (SELECT count(*) FROM partitions), (SELECT count(*) FROM groups)").fetchone()  # type: ignore[no-any-return]


def test_each_cluster_is_read_in_the_safe_order_and_after_the_one_before_it(
    fleet: list[str], plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups listed, then all commits, then log ends (F1, F5)."""
    told: list[tuple[str, str]] = []
    names: dict[Any, str] = {}

    def listed(one: Prepared) -> None:
        names[one.target.reader] = names[one.cluster] = one.target.name
        told.append(("listed", one.target.name))
        list_groups(one)

    def compared(reader: Any, before: Any) -> Any:
        told.append(("commits", names[reader]))  # they have been read
        return changed_since(reader, before)

    def ends(jobs: Any, *more: Any) -> Any:
        told.extend(("ends", names[cluster]) for cluster in jobs)
        return slice_reader(jobs, *more)

    def planned(one: Prepared, *more: Any) -> None:
        told.append(("plan", one.target.name))
        remember(one, *more)

    def done(name: str) -> None:
        told.append(("done", name))

    monkeypatch.setattr(f"{ENGINE}.commits.list_groups", listed)
    monkeypatch.setattr(f"{ENGINE}.commits.changed_since", compared)
    monkeypatch.setattr(f"{ENGINE}.engine.slice_reader", ends)
    monkeypatch.setattr(f"{ENGINE}.engine.remember", planned)
    assert len(plans(fleet, "state", ONE_EACH, done=done).plans) == 3
    for name in NAMES:
        assert [what for what, whose in told if whose == name] == ["listed", "commits", "ends", "plan", "done"]
    put_together = [one for one in told if one[0] in ("plan", "done")]
    assert put_together == [(what, name) for name in NAMES for what in ("plan", "done")]  # not all at the end


def test_memory_that_was_freed_is_given_back_after_each_step_of_a_batch(
    fleet: list[str], plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what the largest step of any batch had taken would stay with this process to its end."""
    given: list[str] = []
    monkeypatch.setattr(
        "retention_cli.engines.spark.engine.give_back", lambda: given.append(threading.current_thread().name)
    )
    assert not plans(fleet, "state", ONE_EACH).failures
    assert given.count(threading.main_thread().name) == len(NAMES), "a batch was put together"
    assert len(given) == 3 * len(NAMES), "its commits were read, and its log ends"


def test_ctrl_c_ends_the_jobs_of_every_batch(
    fleet: list[str], plans: Plans, local_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = threading.Event()

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        time.sleep(60)
        yield from batches

    def waits(written: Any, folder: Path) -> Any:
        if running.is_set():
            local_spark.range(0, 1, 1, 1).mapInArrow(slow, "id long").collect()
        running.set()
        return received(written, folder)

    def pressed(*_: Any) -> Any:
        tracker = local_spark.sparkContext.statusTracker()
        until = time.monotonic() + 30
        while not tracker.getActiveJobsIds() and time.monotonic() < until:
            time.sleep(0.1)
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{ENGINE}.engine.received", waits)
    monkeypatch.setattr(f"{ENGINE}.engine.remember", pressed)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        plans(fleet, "state", ONE_EACH)
    assert time.monotonic() - began < 50
    until = time.monotonic() + 20
    while local_spark.sparkContext.statusTracker().getActiveJobsIds() and time.monotonic() < until:
        time.sleep(0.1)
    assert not local_spark.sparkContext.statusTracker().getActiveJobsIds()
