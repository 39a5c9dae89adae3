"""What the client of a Spark plan sees of a log that was cut, its tasks must see, too (F5), and the other way round."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found
from retention_cli.core.model import Unknown
from retention_cli.decide.guards.limits import Amount
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.memory.lineage import Cut
from tests.simulation.runs import memories_of, reading_of, selection_of
from tests.simulation.test_untold import CUT
from tests.simulation.world import World


def test_tasks_see_a_cut_that_the_client_came_upon_while_it_looked_at_disks() -> None:
    pytest.importorskip("pyarrow")
    from retention_cli.engines.spark.disks import look
    from retention_cli.engines.spark.prepare import Target, open_memory, prepare

    with World("R1") as world:
        for step in CUT:
            world.apply(step)
        one = world.operators[0]
        _, reader = reading_of(world, one)
        with closing(memories_of(world, one)) as memories:
            target = Target("", reader, selection_of(world, one), ConnectionRef, lambda _: Amount(), memories)
            prepared = prepare(target, one.clock.wall_ms())
            open_memory(prepared)
            prepared.metadata = reader.metadata()  # as where rules speak of disks
            look(None, prepared)
            at = prepared.job.places.position("a", 0)
            assert at is not None
            [proof] = prepared.recalled.at(np.array([at]))
    assert proof is not None
    assert (prepared.job.places.epochs[at], proof.leader_epoch, proof.high_watermark) == (1, 0, 12)


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
