"""Tasks that each read the committed offsets of one slice of a cluster's groups (F1–F3)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.groups import ListedGroup
from retention_cli.core.clock import SYSTEM
from retention_cli.core.consumers import group_key
from retention_cli.core.progress import silent
from retention_cli.engines.spark.connections import Readers
from retention_cli.engines.spark.jobs import ClusterJob
from retention_cli.engines.spark.schemas import COMMITS
from retention_cli.engines.spark.slice_memory import SliceMemory
from retention_cli.engines.spark.slices import by_slice
from retention_cli.memory.group import GroupMemory
from retention_cli.observe.floors.kafka_groups import read_groups
from retention_cli.observe.floors.recall import Recall
from retention_cli.observe.floors.rows import CommitRow, CommitRows

ROWS_A_BATCH: Final = 20_000
GROUPS: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("broker", pa.int32()),
        ("slice", pa.int32()),
        ("name", pa.string()),
        ("kind", pa.string()),
        ("protocol_type", pa.string()),
        ("state", pa.string()),
        ("memory", pa.binary()),
    ]
)
"""The groups that count, and which slice reads each. ``memory`` is the ledger's record of the group."""


class _Batches(CommitRows):
    """Packs rows into Arrow batches as they arrive: a fraction of the memory of Python objects."""

    def __init__(self, job: ClusterJob) -> None:
        super().__init__(job.partitions, job.latest)
        self._cluster = job.cluster
        self.batches: list[pa.RecordBatch] = []

    def add(self, group: str, commits: Any, reads: Iterable[str] = ()) -> None:
        super().add(group, commits, reads)
        if len(self) >= ROWS_A_BATCH:
            self.pack()

    def pack(self) -> None:
        """Pack the rows that have arrived."""
        if rows := self.take():
            self.batches.append(commit_batch(self._cluster, rows))


def commit_batch(cluster: str, rows: list[CommitRow]) -> pa.RecordBatch:
    """Return rows as a batch of ``schemas.COMMITS``."""
    group, topic, partition, kind, offset, epoch, code, text = zip(*rows, strict=True)
    columns = ([cluster] * len(rows), group, topic, partition, kind, offset, epoch, code, text)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, COMMITS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=COMMITS)


def commit_reader(jobs: Mapping[str, ClusterJob]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the task for ``mapInArrow``: from rows of :data:`GROUPS`, adjacent by slice, to ``schemas.COMMITS``.

    In rows of kind ``memory``, ``text`` is the group's new record for the ledger (base64); null: the group was seen,
    and nothing changed. A slice that fails is unknown (F3) for each of its groups.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        with Readers({name: (one.connection, one.timeout_s) for name, one in jobs.items()}) as readers:
            for (cluster, _slice), rows in by_slice(batches):
                yield from _read(jobs[cluster], readers, list(rows))

    return run


def _read(job: ClusterJob, readers: Readers, rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    remembered = {group_key(row["kind"], row["name"]): row["memory"] for row in rows if row["memory"]}
    memory = SliceMemory(groups={key: GroupMemory.from_bytes(raw) for key, raw in remembered.items()})
    memory.begin(job.topic_ids)
    groups = [ListedGroup(row["name"], row["kind"], row["protocol_type"], row["state"]) for row in rows]
    sink = _Batches(job)
    try:
        reader = readers.get(job.cluster)
        recall = Recall(memory, job.policy.groups, max(SYSTEM.wall_ms(), job.now_ms))
        read_groups(reader, groups, sink, job.timeout_s, silent, None, recall)
    except BrokerError as error:
        sink = _Batches(job)  # a part of the slice proves nothing about the rest: all of it is unknown
        memory.seen.clear()
        for group in groups:
            sink.fail(group_key(group.kind, group.name), str(error), None)
    sink.pack()
    yield from sink.batches
    if memory.seen:
        yield commit_batch(job.cluster, [_remembered(name, memory) for name in sorted(memory.seen)])


def _remembered(name: str, memory: SliceMemory) -> CommitRow:
    text = base64.b64encode(memory.groups[name].as_bytes()).decode() if name in memory.changed else None
    return CommitRow(name, None, None, "memory", text=text)
