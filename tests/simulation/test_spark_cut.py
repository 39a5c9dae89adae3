"""What the client of a Spark plan sees of a log that was cut, its tasks must see, too (F5), and the other way round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found
from retention_cli.core.model import Floor, Maybe, TopicPartition, Unknown
from retention_cli.decide.guards.limits import Amount
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.memory.interface import LogNow
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.lineage import Cut
from retention_cli.memory.shared_topic import SharedTopicError
from tests.simulation.runs import memories_of, reading_of, selection_of
from tests.simulation.scene import Operator
from tests.simulation.shared import SimSharedTopic
from tests.simulation.test_untold import CUT
from tests.simulation.world import World

if TYPE_CHECKING:
    from retention_cli.engines.spark.prepare import Prepared


def test_that_a_topic_is_create_time_is_noted_of_partitions_without_a_leader() -> None:
    pytest.importorskip("pyarrow")
    from retention_cli.engines.spark.prepare import Target, open_memory, prepare
    from retention_cli.engines.spark.remember import note_create_time

    with World("R4 G3") as world:
        world.apply(("no_leader", 0))
        one = world.operators[0]
        _, reader = reading_of(world, one)
        with closing(memories_of(world, one)) as memories:
            target = Target("", reader, selection_of(world, one), ConnectionRef, lambda _: Amount(), memories)
            prepared = prepare(target, one.clock.wall_ms())
            open_memory(prepared)
            note_create_time(prepared)
            topic_id = world.kafka.topics["a"].topic_id
            assert prepared.memory.partition("a", topic_id, 0).created


@pytest.mark.parametrize("end", [Found(6), RequestFailedError("timed out", retriable=True)], ids=["told", "untold"])
def test_a_memory_that_nobody_could_prove_stays_as_it_was(end: Answer) -> None:
    """Else the next run takes the log's new epoch for the one that it remembers, and does not ask again (M4)."""
    pytest.importorskip("pyarrow")
    from retention_cli.engines.spark.prepare import Target, open_memory, prepare
    from retention_cli.engines.spark.remember import SeenPartition, remember_partition

    with World("R1") as world:
        for step in CUT:
            world.apply(step)
        one = world.operators[0]
        _, reader = reading_of(world, one)
        with closing(memories_of(world, one)) as memories:
            target = Target("", reader, selection_of(world, one), ConnectionRef, lambda _: Amount(), memories)
            prepared = prepare(target, one.clock.wall_ms())
            open_memory(prepared)
            topic_id = world.kafka.topics["a"].topic_id
            row = SeenPartition(0, "a", topic_id, 0, 1, 0, 18, one.clock.wall_ms(), None, False, None)
            cut = remember_partition(prepared, row, {0: end})
            known = prepared.memory.partition("a", topic_id, 0)
            if isinstance(end, Found):
                assert isinstance(cut, Cut)
                assert (cut.offset, known.leader_epoch, known.high_watermark) == (6, 1, 18)
            else:
                assert (isinstance(cut, Unknown), known.leader_epoch, known.high_watermark) == (True, 0, 12)


@contextmanager
def _opened(world: World, one: Operator, meanwhile: Callable[[], None] | None = None) -> Iterator[Prepared]:
    """Yield what a Spark run knows once it has opened its ledger; ``meanwhile`` happens right after it looked into it."""
    from retention_cli.engines.spark.prepare import Target, open_memory, prepare

    _, reader = reading_of(world, one)
    with closing(memories_of(world, one)) as memories:
        target = Target("", reader, selection_of(world, one), ConnectionRef, lambda _: Amount(), memories)
        prepared = prepare(target, one.clock.wall_ms())
        ledger = memories.ledger(prepared.cluster)
        begin = ledger.begin

        def begun(topic_ids: Mapping[str, str]) -> None:
            nonlocal meanwhile
            begin(topic_ids)
            if meanwhile is not None:
                then, meanwhile = meanwhile, None
                then()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "begin", begun)
            open_memory(prepared)
        yield prepared


def test_groups_and_partitions_are_recalled_as_of_one_moment() -> None:
    """Else a cut that another run notes in between is seen by nobody: the commit is not refused, the log not cut."""
    pytest.importorskip("pyarrow")
    with World("R1 @one") as world:
        for step in CUT:
            world.apply(step)
        with _opened(world, world.operators[0], lambda: world.apply(("plan", 1, 0))) as prepared:
            at = prepared.job.places.position("a", 0)
            [proof] = prepared.recalled.at(np.array([at]))
            ledger = prepared.memory
            assert isinstance(ledger, Ledger)
            [plain] = [known[1] for name in ledger.groups() if (known := ledger.recalled_group(name)) is not None]
    assert proof is not None
    assert (proof.leader_epoch, plain) == (1, False)


def _chunk(prepared: Prepared, row: Mapping[str, object]) -> object:
    import pyarrow as pa

    from retention_cli.engines.spark.schemas import CHUNK

    return pa.Table.from_pylist([{"doubt": False, **row}], schema=CHUNK)


def test_what_another_run_has_seen_while_tasks_read_is_no_cut_of_the_log() -> None:
    """Their look is the later one: a log that has grown meanwhile did not lose its tail, and their commits count."""
    pytest.importorskip("pyarrow")
    from retention_cli.engines.spark.remember import remember

    with World("R1 @one") as world:
        for step in CUT[:6]:
            world.apply(step)
        one, topic_id = world.operators[0], world.kafka.topics["a"].topic_id
        log = world.kafka.partition(("a", 0))
        assert log is not None
        with _opened(world, one) as prepared:
            at = prepared.job.places.position("a", 0)
            world.apply(("produce", 0, 5, 0, 0))
            row: dict[str, object] = {
                "at": at,
                "topic": "a",
                "topic_id": topic_id,
                "partition": 0,
                "leader_epoch": log.epoch,
            }
            row |= {"log_start": 0, "high_watermark": log.high_watermark, "read_ms": one.clock.wall_ms()}
            for step in (("produce", 0, 5, 0, 0), ("read", 0, 0, 7, 0), ("read", 0, 0, 7, 0), ("plan", 1, 0)):
                world.apply(step)
            remember(prepared, [_chunk(prepared, row)], [], dict)
        with closing(memories_of(world, one)) as memories:
            ledger = memories.ledger(prepared.cluster)
            ledger.begin({"a": topic_id})
            assert ledger.partition("a", topic_id, 0).high_watermark == log.high_watermark
            assert [group.refused for group in ledger.groups().values()] == [{}]


@pytest.mark.parametrize("first", [None, 7], ids=["new", "seen before"])
def test_a_group_that_another_run_has_seen_go_back_while_tasks_read_counts_there(first: int | None) -> None:
    """F6: once it is gone, it counts where it was seen last, not where the slower run had read it before."""
    pytest.importorskip("pyarrow")
    from retention_cli.engines.spark.remember import remember
    from retention_cli.engines.spark.slice_memory import KnownGroup, ReadCommits

    with World("R1 @one") as world:
        world.apply(("produce", 0, 5, 0, 0))
        one, topic_id = world.operators[0], world.kafka.topics["a"].topic_id

        def saw(offset: int, after_ms: int) -> None:
            with closing(memories_of(world, one)) as memories:
                ledger = memories.ledger(world.kafka.cluster_id)
                ledger.begin({"a": topic_id})
                ledger.saw_group("g", {"a": [(0, offset, 0)]}, now_ms + after_ms, 0)
                ledger.judge(lambda _place: LogNow(20, 0), ["a"], [])
                ledger.save(now_ms + after_ms)

        now_ms = one.clock.wall_ms()
        if first is not None:
            saw(first, 0)
        with _opened(world, one) as prepared:
            ledger = prepared.memory
            assert isinstance(ledger, Ledger)
            found = ledger.recalled_group("g")
            known = {} if found is None else {"g": KnownGroup(*found)}
            saw(2, 200_000)
            read = ReadCommits(now_ms + 100_000, b"", {"a": [(0, 9, 0)]})
            remember(prepared, [], [("g", read.as_bytes())], lambda: known)
        with closing(memories_of(world, one)) as memories:
            ledger = memories.ledger(world.kafka.cluster_id)
            ledger.begin({"a": topic_id})
            [(name, _, rows)] = ledger.gone_groups((), 0)
    assert (name, rows) == ("g", {"a": [(0, 2, 0)]})


@pytest.mark.parametrize("memories", ["one", "cluster"])
def test_a_task_recalls_a_commit_that_is_gone_for_as_long_as_one_process_does(
    memories: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6: a shared ledger notes once an hour that a group was seen, so it was seen up to an hour later than that."""
    pytest.importorskip("pyarrow")
    from retention_cli.engines.spark.commit_tasks import begun_memory
    from retention_cli.engines.spark.prepare import groups_of, list_groups

    with _read_by(memories, 5, 0) as (world, prepared):
        ledger, now_ms = prepared.memory, world.operators[0].clock.wall_ms()
        assert isinstance(ledger, Ledger)
        ledger.saw_group("g0", {"a": [(0, 5, 0), (1, 7, 0)]}, now_ms, 0)
        ledger.saw_group("g0", {"a": [(0, 5, 0)]}, now_ms + 1, 0)
        list_groups(prepared)
        assert prepared.listing is not None
        monkeypatch.setattr(prepared.target.reader, "coordinators", lambda _names: {})
        task = begun_memory(prepared.job, groups_of(prepared, prepared.listing))
        for after_ms in (-1, 0, 1, 3_599_999, 3_600_000, 3_600_001):
            since_ms = now_ms + after_ms
            found = ledger.saw_group("g0", {"a": [(0, 5, 0)]}, now_ms + 2, since_ms)
            assert task.saw_group("g0", {"a": [(0, 5, 0)]}, now_ms + 2, since_ms) == found


@contextmanager
def _read_by(memories: str, count: int, carry: int) -> Iterator[tuple[World, Prepared]]:
    """Yield a world in which one group has read (``steps_groups.do_read``), and what a Spark run knows of it then."""
    with World(f"R1 @{memories}") as world:
        for step in (("produce", 0, 5, 0, 0), ("read", 0, 0, count, carry)):
            world.apply(step)
        with _opened(world, world.operators[0]) as prepared:
            yield world, prepared


def _floor_once_listed(world: World, prepared: Prepared) -> Maybe[Floor]:
    """Return the floor of the first partition from groups that are listed now, as a Spark run and its tasks fold it."""
    from retention_cli.engines.spark.commit_tasks import begun_memory
    from retention_cli.engines.spark.commits import listed_now
    from retention_cli.engines.spark.prepare import own_fold
    from retention_cli.observe.floors.recall import Recall

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared.target.reader, "coordinators", lambda _names: {})
        listed = listed_now([prepared])
    fold = own_fold(prepared)
    for one in listed.values():
        recall = Recall(begun_memory(prepared.job, one), prepared.job.groups, world.operators[0].clock.wall_ms())
        for name, group in world.kafka.groups.items():
            commits: dict[str, list[tuple[int, int, int | None]]] = {}
            for (topic, number), (offset, epoch) in group.commits.items():
                commits.setdefault(topic, []).append((number, offset, epoch))
            recall.complete(fold, name, commits)
            fold.add(name, commits)
    return fold.floor(TopicPartition("a", 0), 0, 99)


@pytest.mark.parametrize("memories", ["one", "cluster"])
@pytest.mark.parametrize("gone", ["the group", "its commits on the topic"])
def test_a_group_that_another_run_has_seen_come_and_go_while_spark_starts_counts(memories: str, gone: str) -> None:
    """F6: the ledger is opened before Spark is up, and groups are listed after: in between are minutes."""
    pytest.importorskip("pyarrow")
    with _read_by(memories, 4, 1) as (world, prepared):
        world.apply(("read", 1, 0, 1, 1))
        world.apply(("plan", 1, 0))
        slow = world.kafka.groups["g1"].commits
        assert slow == {("a", 0): (2, 0)}
        slow["elsewhere", 0] = (1, 0)
        world.apply(("delete_group", 1) if gone == "the group" else ("delete_offsets", 1, 0))
        floor = _floor_once_listed(world, prepared)
    assert isinstance(floor, Floor)
    assert (floor.offset, floor.by) == (2, "group:g1")


@pytest.mark.parametrize("memories", ["one", "cluster"])
def test_a_ledger_that_can_not_be_read_any_more_once_spark_is_up_holds(
    memories: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6: what another run has written since is unknown."""
    pytest.importorskip("pyarrow")
    with _read_by(memories, 4, 1) as (world, prepared):
        if memories == "cluster":

            def lost(_topic: SimSharedTopic) -> None:
                raise SharedTopicError("timed out")

            monkeypatch.setattr(SimSharedTopic, "extent", lost)
        else:
            assert isinstance(prepared.memory, Ledger)
            prepared.memory.db.execute("DROP TABLE meta")
        floor = _floor_once_listed(world, prepared)
    assert isinstance(floor, Unknown)
    assert [reason.code for reason in floor.reasons] == ["F6"]
