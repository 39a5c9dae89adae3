"""Tasks that each read the committed offsets of a coordinator's groups, and fold them (F1–F6)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.clock import SYSTEM
from retention_cli.core.consumers import group_key
from retention_cli.core.progress import silent
from retention_cli.engines.spark.connections import Readers
from retention_cli.engines.spark.frames import ArrowTask
from retention_cli.engines.spark.jobs import ClusterJob, GroupsOf
from retention_cli.engines.spark.packing import Piece, Task, task_of
from retention_cli.engines.spark.parts import Source, cut
from retention_cli.engines.spark.schemas import COMMITS, READ
from retention_cli.engines.spark.sent import Sent
from retention_cli.engines.spark.shuffle_keys import keys
from retention_cli.engines.spark.slice_memory import SliceMemory
from retention_cli.engines.spark.values import to_bytes
from retention_cli.observe.floors.fold import Both, FloorFold, FloorSink
from retention_cli.observe.floors.kafka_groups import read_groups
from retention_cli.observe.floors.latest import Latest
from retention_cli.observe.floors.recall import Recall
from retention_cli.observe.floors.rows import CommitRow, CommitRows

ROWS_A_BATCH: Final = 20_000


class CommitBatches(CommitRows):
    """Packs rows into Arrow batches as they arrive: a fraction of the memory of Python objects."""

    def __init__(self, job: ClusterJob, latest: Latest) -> None:
        super().__init__(job.partitions, latest)
        self._cluster = job.cluster
        self._batches: list[pa.RecordBatch] = []

    def add(self, group: str, commits: Any, reads: Iterable[str] = ()) -> None:
        """See :class:`~retention_cli.observe.floors.fold.FloorSink`."""
        super().add(group, commits, reads)
        if len(self) >= ROWS_A_BATCH:
            self._pack()

    def all(self) -> list[pa.RecordBatch]:
        """Return all rows as batches of ``schemas.READ``."""
        self._pack()
        return self._batches

    def _pack(self) -> None:
        if rows := self.take():
            batch = commit_batch(self._cluster, rows)
            more = (pa.nulls(len(rows), one.type) for one in list(READ)[len(COMMITS) :])
            self._batches.append(pa.RecordBatch.from_arrays([*batch.columns, *more], schema=READ))


def commit_batch(cluster: str, rows: Sequence[CommitRow]) -> pa.RecordBatch:
    """Return rows as a batch of ``schemas.COMMITS``."""
    group, topic, partition, kind, offset, epoch, code, text = zip(*rows, strict=True)
    columns = ([cluster] * len(rows), group, topic, partition, kind, offset, epoch, code, text)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, COMMITS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=COMMITS)


def commit_reader(
    jobs: Mapping[str, Sent[ClusterJob]],
    groups: Mapping[str, Sent[GroupsOf]],
    tasks: Sequence[Task],
    readers_of: Sequence[Task],
    *,
    reading: int = 1,
    rows: bool = False,
) -> ArrowTask:
    """Return the task for ``mapInArrow``: from tasks' numbers to ``schemas.READ``.

    Args:
        jobs: the clusters, by id.
        groups: their groups.
        tasks: what each of these tasks reads.
        readers_of: what each of the tasks that read partitions does.
        reading: which reading of these groups it is.
        rows: whether to return the commits, too.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        with Readers() as readers:
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                for piece in tasks[number]:
                    job = jobs[piece.cluster].load()
                    listed = groups[piece.cluster].load()
                    yield from read_piece(job, listed, readers, piece, reading, readers_of, rows=rows)

    return run


def read_piece(
    job: ClusterJob,
    listed: GroupsOf,
    readers: Readers,
    piece: Piece,
    reading: int,
    readers_of: Sequence[Task],
    *,
    rows: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield what one piece of the groups comes to, as batches of ``schemas.READ``; see :func:`commit_reader`."""
    groups = listed.of_piece(piece)
    memory = begun_memory(job, listed)
    fold, batches, sink = _begun(job, listed, rows=rows)
    try:
        reader = readers.opened(job.cluster, job.connection, job.timeout_s)
        recall = Recall(memory, job.groups, max(SYSTEM.wall_ms(), job.now_ms))
        read_groups(reader, groups, job.partitions, sink, job.timeout_s, silent, None, recall)
    except BrokerError as error:
        memory = SliceMemory()  # what was read until then proves nothing about the rest: all of it is unknown
        fold, batches, sink = _begun(job, listed, rows=rows)
        for group in groups:
            sink.fail(group_key(group.kind, group.name), str(error), None)
    source = source_of(piece, reading)._replace(run=uuid.uuid4().hex)
    yield from part_batches(fold, job, readers_of, source)
    told = {"offset": [source.broker], "partition": [source.part], "text": [source.run]}
    yield read_batch(1, cluster=[job.cluster], kind=["source"], **told)
    if batches is not None:
        yield from batches.all()
    if memory.seen:
        names = list(memory.seen)
        yield read_batch(
            len(names),
            cluster=[job.cluster] * len(names),
            kind=["memory"] * len(names),
            group=names,
            value=list(memory.seen.values()),
        )


def begun_memory(job: ClusterJob, listed: GroupsOf) -> SliceMemory:
    """Return what a task knows of groups before it reads their commits."""
    memory = SliceMemory(groups=listed.memories or {}, remembers=listed.memories is not None, slack_ms=listed.slack_ms)
    memory.begin(job.topic_ids)
    return memory


def _begun(job: ClusterJob, listed: GroupsOf, *, rows: bool) -> tuple[FloorFold, CommitBatches | None, FloorSink]:
    fold = FloorFold(job.scopes(), listed.latest)
    if not rows:
        return fold, None, fold
    batches = CommitBatches(job, listed.latest)
    return fold, batches, Both(fold, batches)


def source_of(piece: Piece, reading: int) -> Source:
    """Return what the parts of a piece's groups are named after, whichever run of a task has read them."""
    return Source(reading, piece.broker, piece.part)


def part_batches(
    fold: FloorFold, job: ClusterJob, readers_of: Sequence[Task], source: Source
) -> Iterator[pa.RecordBatch]:
    """Yield what a source's fold comes to as batches of ``schemas.READ``, one per task that reads partitions of it."""
    key = keys(len(readers_of))
    for task, part in cut(fold, job.places, job.places.tasks(task_of(readers_of)), source):
        yield read_batch(1, cluster=[job.cluster], kind=["part"], task=[task], key=[key[task]], value=[to_bytes(part)])


def read_batch(count: int, **columns: Any) -> pa.RecordBatch:
    """Return a batch of ``schemas.READ`` with these columns (lists or arrays); the others are null."""
    arrays = [
        pa.array(columns[one.name], one.type) if one.name in columns else pa.nulls(count, one.type) for one in READ
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=READ)
