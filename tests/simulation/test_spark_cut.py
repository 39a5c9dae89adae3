"""What the client of a Spark plan sees of a log that was cut, its tasks must see, too (F5), and the other way round."""

from __future__ import annotations

from contextlib import closing

import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found
from retention_cli.core.model import Unknown
from retention_cli.decide.guards.limits import Amount
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.memory.documents import memory_from_bytes
from retention_cli.memory.lineage import Cut
from tests.simulation.runs import memories_of, reading_of, selection_of
from tests.simulation.test_untold import CUT
from tests.simulation.world import World


def test_tasks_see_a_cut_that_the_client_came_upon_while_it_looked_at_disks() -> None:
    pytest.importorskip("pyarrow")
    from retention_cli.engines.spark.disks import look
    from retention_cli.engines.spark.prepare import Target, prepare, recall, slice_rows

    with World("R1") as world:
        for step in CUT:
            world.apply(step)
        one = world.operators[0]
        _, reader = reading_of(world, one)
        with closing(memories_of(world, one)) as memories:
            target = Target("", reader, selection_of(world, one), ConnectionRef(), lambda _: Amount(), memories)
            prepared = prepare(target, one.clock.wall_ms())
            recall(prepared)
            look(None, prepared)
            row = next(row for row in slice_rows(prepared, {}) if row["partition"] == 0)
    proof = memory_from_bytes(row["proof"])
    assert (row["leader_epoch"], proof.leader_epoch, proof.high_watermark) == (1, 0, 12)


def test_that_a_topic_is_create_time_is_noted_of_partitions_without_a_leader() -> None:
    pytest.importorskip("pyarrow")
    from retention_cli.engines.spark.prepare import Target, prepare, recall
    from retention_cli.engines.spark.remember import note_create_time

    with World("R4 G3") as world:
        world.apply(("no_leader", 0))
        one = world.operators[0]
        _, reader = reading_of(world, one)
        with closing(memories_of(world, one)) as memories:
            target = Target("", reader, selection_of(world, one), ConnectionRef(), lambda _: Amount(), memories)
            prepared = prepare(target, one.clock.wall_ms())
            recall(prepared)
            note_create_time(prepared)
            topic_id = world.kafka.topics["a"].topic_id
            assert prepared.memory.partition("a", topic_id, 0).created


@pytest.mark.parametrize("end", [Found(6), RequestFailedError("timed out", retriable=True)], ids=["told", "untold"])
def test_a_memory_that_nobody_could_prove_stays_as_it_was(end: Answer) -> None:
    """Else the next run takes the log's new epoch for the one that it remembers, and does not ask again (M4)."""
    pytest.importorskip("pyarrow")
    from retention_cli.engines.spark.prepare import Target, prepare, recall
    from retention_cli.engines.spark.remember import remember_partition

    with World("R1") as world:
        for step in CUT:
            world.apply(step)
        one = world.operators[0]
        _, reader = reading_of(world, one)
        with closing(memories_of(world, one)) as memories:
            target = Target("", reader, selection_of(world, one), ConnectionRef(), lambda _: Amount(), memories)
            prepared = prepare(target, one.clock.wall_ms())
            recall(prepared)
            topic_id = world.kafka.topics["a"].topic_id
            row = {
                "topic": "a",
                "topic_id": topic_id,
                "partition": 0,
                "leader_epoch": 1,
                "memory": None,
                "log_start": 0,
                "high_watermark": 18,
                "read_ms": one.clock.wall_ms(),
            }
            cut = remember_partition(prepared, row, {0: end})
            known = prepared.memory.partition("a", topic_id, 0)
            if isinstance(end, Found):
                assert isinstance(cut, Cut)
                assert (cut.offset, known.leader_epoch, known.high_watermark) == (6, 1, 18)
            else:
                assert (isinstance(cut, Unknown), known.leader_epoch, known.high_watermark) == (True, 0, 12)
