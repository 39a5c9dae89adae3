"""The committed offsets of all clusters, read and folded by tasks (F1–F9)."""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.pool import ThreadPool
from typing import Any, Final

import pyarrow as pa

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.progress import Progress
from retention_cli.engines.spark.commit_tasks import CommitBatches, commit_reader, part_batches, read_batch, source_of
from retention_cli.engines.spark.frames import as_frame, kept
from retention_cli.engines.spark.jobs import ClusterJob, GroupsOf
from retention_cli.engines.spark.packing import GROUPS_A_TASK, PARTITIONS_A_TASK, Task, pack
from retention_cli.engines.spark.parts import CLIENT, Source
from retention_cli.engines.spark.prepare import (
    CLIENTS,
    Prepared,
    groups_of,
    latest_of,
    list_groups,
    own_fold,
    recall_again,
)
from retention_cli.engines.spark.remember import saw_groups
from retention_cli.engines.spark.schemas import COMMITS, READ, ddl
from retention_cli.engines.spark.sent import Sender, Sent
from retention_cli.engines.spark.shuffle_keys import keys
from retention_cli.engines.spark.slice_memory import KnownGroup
from retention_cli.observe.floors.kafka_groups import changed_since, not_listed

_ATTEMPTS: Final = 3
_ARRIVES: Final = ("cluster", "kind", "task", "key", "value")
"""The columns of ``schemas.READ`` that tasks which read partitions get."""


@dataclass(slots=True)
class CommitsRead:
    """The commits of all clusters (``schemas.READ``), kept by Spark, and how the partitions are read next.

    ``jobs`` are the clusters, ``groups`` their groups, ``tasks`` those that read partitions. ``seen`` are the groups
    that were read, with whether their commits have changed. ``own`` are the client's rows. ``sources`` are those of a
    cluster's parts, of which each of its tasks must get one.
    """

    session: Any
    jobs: Mapping[str, Sent[ClusterJob]]
    tasks: Sequence[Task]
    connections: int
    groups: dict[str, Sent[GroupsOf]] = field(default_factory=dict)
    seen: dict[str, dict[str, bool]] = field(default_factory=dict)
    frames: list[Any] = field(default_factory=list)
    own: list[pa.RecordBatch] = field(default_factory=list)
    sources: dict[str, set[Source]] = field(default_factory=dict)

    def rows(self) -> Any:
        """Return all rows as a frame."""
        rows = as_frame(self.session, pa.Table.from_batches(self.own, READ))
        for one in self.frames:
            rows = rows.unionByName(one)
        return rows

    def of_groups(self) -> Any:
        """Return the rows of commits alone, if they were wanted (``schemas.COMMITS``)."""
        return self.rows().where("kind not in ('part', 'memory', 'source')").select(*COMMITS.names)

    def arrived(self, more: Iterable[Any] = ()) -> Any:
        """Return what each task that reads partitions must know, in one partition of the frame for each.

        ``more`` are frames of further rows.
        """
        wanted = self.rows().where("kind = 'part'").select(*_ARRIVES)
        for one in more:
            wanted = wanted.unionByName(one.select(*_ARRIVES))
        numbers = list(range(len(self.tasks)))
        heads = read_batch(len(numbers), kind=["task"] * len(numbers), task=numbers, key=keys(len(numbers)))
        heads = as_frame(self.session, pa.Table.from_batches([heads])).select(*_ARRIVES)
        return heads.unionByName(wanted).repartition(max(1, len(numbers)), "key")

    def seen_groups(self, cluster: str) -> Iterator[tuple[str, bytes | None]]:
        """Yield the groups of a cluster that were read, with the commits of those that have changed."""
        return self.seen_in(self.rows(), cluster)

    def seen_in(self, rows: Any, cluster: str) -> Iterator[tuple[str, bytes | None]]:
        """Yield the same of these rows alone: those of the reading that was the last of the cluster."""
        seen = self.seen.get(cluster, {})
        yield from ((group, None) for group, moved in seen.items() if not moved)
        if any(seen.values()):
            rows = rows.where("kind = 'memory' and value is not null")
            for row in rows.where(rows.cluster == cluster).select("group", "value").collect():
                yield row["group"], row["value"]

    def known_groups(self, cluster: str) -> Mapping[str, KnownGroup]:
        """Return what the ledger had of a cluster's groups when they were read."""
        groups = self.groups.get(cluster)
        return {} if groups is None else groups.here().memories or {}


@contextlib.contextmanager
def read_commits(
    sender: Sender, prepared: Sequence[Prepared], progress: Progress, connections: int, *, rows: bool = False
) -> Iterator[CommitsRead]:
    """Read every group's commits; read a cluster's once more if coordinators moved meanwhile (F9).

    With ``rows`` the commits themselves are among the rows.
    """
    sizes = {leader: count for one in prepared for leader, count in one.job.places.by_leader().items()}
    jobs = {one.cluster: sender.send(one.job) for one in prepared}
    read = CommitsRead(sender.session, jobs, pack(sizes, PARTITIONS_A_TASK, connections), connections)
    with contextlib.ExitStack() as stack:
        pending = list(prepared)
        for attempt in range(1, _ATTEMPTS + 1):
            progress("consumer groups")
            groups = listed_now(pending)
            progress(f"committed offsets of {sum(len(one.groups) for one in groups.values()):,} groups")
            frame, sources = _read(sender, read, groups, attempt, stack, rows=rows)
            doubtful = [one for one in pending if one.listing is not None and coordinators_moved(one)]
            again = doubtful if attempt < _ATTEMPTS else []
            sound = {one.cluster for one in pending if one not in again}
            for one in again if frame is not None else ():  # one that is gone by the next reading counts (F6)
                seen = read.seen_in(frame, one.cluster)
                deque(saw_groups(one, seen, functools.partial(read.known_groups, one.cluster)), 0)
            if frame is not None and sound:
                read.frames.append(frame.where(frame.cluster.isin(*sound)))
            for cluster in sound:
                read.sources[cluster] = {CLIENT, *sources.get(cluster, ())}
            pending = again
            if not pending:
                break
        for one in prepared:
            read.own += own_parts(one, read.tasks, rows=rows)
        yield read


def listed_now(prepared: Sequence[Prepared]) -> dict[str, GroupsOf]:
    """Return the groups of each cluster, listed now: of one that first commits later, nothing is read (F1).

    So it is done right before commits are read, and not while Spark starts. What is remembered of groups is as of then,
    too: one that came and went since is remembered by those who saw it (F6).
    """

    def listed(one: Prepared) -> GroupsOf | None:
        if one.job.partitions:
            list_groups(one)
            recall_again(one)
        return None if one.listing is None else groups_of(one, one.listing)

    with ThreadPool(max(1, min(CLIENTS, len(prepared)))) as pool:
        found = pool.map(listed, prepared, chunksize=1)
    return {one.cluster: groups for one, groups in zip(prepared, found, strict=True) if groups is not None}


def _read(
    sender: Sender,
    read: CommitsRead,
    groups: Mapping[str, GroupsOf],
    reading: int,
    stack: contextlib.ExitStack,
    *,
    rows: bool,
) -> tuple[Any | None, Mapping[str, Collection[Source]]]:
    """Have tasks read these groups, by cluster; return the frame of what they return, None if there are no groups.

    Beside it are the sources of each cluster's parts.

    Asking for the groups that were read forces all to be read before any log end is. A block that Spark loses later it
    reads again, when nobody checks any more whether coordinators moved (F9) or who is gone since (F6): what another run
    of a task has read is not of these sources.
    """
    sizes = {at: count for cluster, one in groups.items() for at, count in one.by_coordinator(cluster).items()}
    read.seen |= {cluster: {} for cluster in groups}
    if not sizes:
        return None, {}
    tasks = pack(sizes, GROUPS_A_TASK, read.connections)
    sent = {cluster: sender.send(one) for cluster, one in groups.items()}
    reader = commit_reader(read.jobs, sent, tasks, read.tasks, reading=reading, rows=rows)
    frame = kept(task_rows(sender.session, tasks).mapInArrow(reader, ddl(READ)), stack)
    told = ("cluster", "kind", "`group`", "value IS NOT NULL AS moved", "offset", "partition", "text")
    seen = frame.where("kind in ('memory', 'source')").selectExpr(*told)
    sources: dict[str, dict[Source, Source]] = {cluster: {} for cluster in groups}
    for piece in (piece for task in tasks for piece in task):  # one of which nothing is heard is missing, too
        one = source_of(piece, reading)
        sources[piece.cluster][one] = one
    for row in seen.collect():
        if row["kind"] == "memory":
            read.seen[row["cluster"]][row["group"]] = row["moved"]
        else:
            one = Source(reading, row["offset"], row["partition"])
            sources[row["cluster"]][one] = one._replace(run=row["text"])
    read.groups |= sent
    return frame, {cluster: theirs.values() for cluster, theirs in sources.items()}


def task_rows(session: Any, tasks: Sequence[Task]) -> Any:
    """Return a frame with the numbers of these tasks, each in a partition of its own."""
    return session.range(0, len(tasks), 1, len(tasks))


def own_parts(one: Prepared, tasks: Sequence[Task], *, rows: bool) -> list[pa.RecordBatch]:
    """Return what the client adds to the groups that tasks read, as batches of ``schemas.READ``."""
    batches = CommitBatches(one.job, latest_of(one)) if rows else None
    fold = own_fold(one, batches)
    return [*part_batches(fold, one.job, tasks, CLIENT), *(() if batches is None else batches.all())]


def coordinators_moved(prepared: Prepared) -> bool:
    """Return whether coordinators moved since the listing; ``doubt`` is set if they did, or if that is unknown."""
    assert prepared.before is not None  # noqa: S101  (every listing sets it)
    try:
        prepared.doubt = changed_since(prepared.target.reader, prepared.before)
    except BrokerError as error:
        prepared.doubt = not_listed(error)
    return prepared.doubt is not None
