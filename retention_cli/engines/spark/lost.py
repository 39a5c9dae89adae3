"""How many records would be trimmed before each consumer has read them, over Spark (G2).

As without Spark, commits are read a second time for it, and only if unread records would be trimmed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.clock import SYSTEM
from retention_cli.core.consumers import floor_by
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.progress import silent
from retention_cli.engines.spark.commit_tasks import begun_memory
from retention_cli.engines.spark.commits import CommitsRead, task_rows
from retention_cli.engines.spark.connections import Readers
from retention_cli.engines.spark.frames import ArrowTask
from retention_cli.engines.spark.jobs import ClusterJob, GroupsOf
from retention_cli.engines.spark.packing import GROUPS_A_TASK, Task, pack
from retention_cli.engines.spark.prepare import Prepared
from retention_cli.engines.spark.schemas import LOST, ddl
from retention_cli.engines.spark.sent import Sender, Sent
from retention_cli.observe.floors.fold import Commit
from retention_cli.observe.floors.kafka_groups import read_groups
from retention_cli.observe.floors.recall import Recall
from retention_cli.plan.kept import KeptRows
from retention_cli.plan.lost import LosingRows, lost_of


class Losing(NamedTuple):
    """What would be trimmed unread, and the ``groups`` that count."""

    rows: LosingRows
    groups: Collection[str]


class Lost:
    """Adds up what each group has not read (:class:`~retention_cli.observe.floors.fold.FloorSink`)."""

    def __init__(self, losing: Losing) -> None:
        self._losing = losing
        self.records: dict[str, int] = {}

    def add(self, group: str, commits: Mapping[str, Sequence[Commit]], reads: Iterable[str] = ()) -> None:
        """Add a group: its commits by topic."""
        del reads
        if group in self._losing.groups and (lost := lost_of(self._losing.rows, commits)):
            self.records[group] = self.records.get(group, 0) + lost

    def recall(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Add positions of a group whose commits are gone and still count (F6)."""
        del seen
        self.add(group, gone)

    def add_gone(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Do nothing: the client itself adds groups that are gone (:attr:`.prepare.Prepared.gone`)."""

    def refuse(self, group: str, refused: Mapping[tuple[str, int], tuple[int, int | None]]) -> None:
        """Do nothing: a refused commit is where the group will read on all the same."""

    def no_position(self, group: str, stored: Mapping[str, Mapping[int, int]]) -> None:
        """Add a group's stored offsets below zero: it has read nothing there that can be told."""
        self.add(group, {topic: [(*one, None) for one in offsets.items()] for topic, offsets in stored.items()})

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """Do nothing: the plan itself says what could not be read."""

    def fail_all(self, reason: Reason, topics: Iterable[str] | None = None) -> None:
        """Do nothing, likewise."""


def lost_by_group(sender: Sender, one: Prepared, commits: CommitsRead, kept: KeptRows) -> dict[str, int] | BrokerError:
    """Return, per consumer, how many records would be trimmed before it has read them, or why that is unknown.

    Only the partitions asked for are counted.
    """
    outside = {read.group for read in one.outside}
    rows: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partition, start, target in kept.losing():
        if one.selection.asks_for(TopicPartition(topic, partition)):
            rows.setdefault(topic, {})[partition] = (start, target)
    losing = Losing(rows, frozenset(commits.seen.get(one.cluster, {}).keys() | outside))
    own = Lost(losing)
    for read in one.outside:
        own.add(read.group, read.topics)
    found = own.records
    for group, gone in one.gone.lost(rows).items():
        found[group] = found.get(group, 0) + gone
    if (groups := commits.groups.get(one.cluster)) is not None:
        tasks = pack(groups.here().by_coordinator(one.cluster), GROUPS_A_TASK, commits.connections)
        reading = _reader(commits.jobs[one.cluster], groups, sender.send(losing), tasks)
        for row in task_rows(sender.session, tasks).mapInArrow(reading, ddl(LOST)).collect():
            if row["error"] is not None:
                return BrokerError(row["error"])
            found[row["group"]] = found.get(row["group"], 0) + row["lost"]
    return dict(sorted((floor_by(group), lost) for group, lost in found.items()))


def _reader(
    sent_job: Sent[ClusterJob], sent_groups: Sent[GroupsOf], sent_losing: Sent[Losing], tasks: Sequence[Task]
) -> ArrowTask:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        job, groups, losing = sent_job.load(), sent_groups.load(), sent_losing.load()
        with Readers() as readers:
            for piece in (piece for batch in batches for n in batch.column(0).to_pylist() for piece in tasks[n]):
                yield from _read(job, groups, groups.of_piece(piece), losing, readers)

    return run


def _read(
    job: ClusterJob, listed: GroupsOf, groups: Sequence[Any], losing: Losing, readers: Readers
) -> Iterator[pa.RecordBatch]:
    sink = Lost(losing)
    try:
        reader = readers.opened(job.cluster, job.connection, job.timeout_s)
        recall = Recall(begun_memory(job, listed), job.groups, max(SYSTEM.wall_ms(), job.now_ms))
        read_groups(reader, groups, {}, sink, job.timeout_s, silent, None, recall)
    except BrokerError as error:
        yield pa.RecordBatch.from_pylist([{"error": str(error)}], schema=LOST)
        return
    rows = [{"group": group, "lost": lost} for group, lost in sink.records.items()]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=LOST)
