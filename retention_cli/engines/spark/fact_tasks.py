"""Tasks that read a slice of partitions, and tasks that decide (docs/architecture.md, Observe)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import PartitionFacts, Reason, TopicPartition, Unknown
from retention_cli.decide.decision import after_disks, decide, disk_limit
from retention_cli.engines.spark.connections import Readers
from retention_cli.engines.spark.fact_rows import Row, reason_rows, unknown_of
from retention_cli.engines.spark.frames import batches_of, standing_of
from retention_cli.engines.spark.jobs import ClusterJob, SettingsCache
from retention_cli.engines.spark.schemas import DECIDED, FACTS, LIMITS
from retention_cli.engines.spark.slice_memory import SliceMemory
from retention_cli.engines.spark.slices import by_slice
from retention_cli.engines.spark.values import from_bytes, to_bytes
from retention_cli.memory.documents import memory_as_bytes, memory_from_bytes
from retention_cli.observe.cluster import observe
from retention_cli.observe.floors.folded import FoldedFloors
from retention_cli.observe.request import Observation, Prepared, Request
from retention_cli.observe.topic_facts import bare_facts, configured, unread_facts
from retention_cli.plan.columns import row_to_keep
from retention_cli.policy.settings import Settings

Task = Callable[[Iterator[Any]], Iterator[Any]]
"""A function for ``mapInArrow``."""


class ReadPartition(NamedTuple):
    """A partition as read by a task, including its floor and the facts about disks.

    ``told`` is returned to the client with the decision: columns of ``schemas.TOLD``. ``asked`` is R6's bound with its
    reason, and why R6 is unknown; None if R6 does not concern the partition, or was not decided yet.
    """

    cluster: str
    facts: PartitionFacts
    told: Row
    asked: tuple[tuple[int, Reason] | None, Unknown | None] | None = None


Reading = Callable[[Iterator[Any]], Iterator[ReadPartition]]
"""Yields the partitions in Arrow batches: reads them from brokers, or takes them from an earlier task's rows."""


class SliceDisks:
    """The client's facts about disks, and an inventory's (:class:`retention_cli.observe.request.Disks`)."""

    def __init__(self, rows: Mapping[TopicPartition, Row]) -> None:
        self._rows = rows

    def with_disks(
        self, reader: Any, facts: Mapping[TopicPartition, PartitionFacts], *_more: object
    ) -> dict[TopicPartition, PartitionFacts]:
        """Return the facts with the slice's facts about disks."""
        del reader
        return {tp: self._with_row(one, self._rows[tp]) for tp, one in facts.items()}

    def _with_row(self, facts: PartitionFacts, row: Row) -> PartitionFacts:
        bases = unknown_of(row["bases_reasons"]) or row["bases"]
        if bases is not None:
            facts = facts._replace(segment_bases=bases)
        if row["disk_facts"] is None:
            return facts
        usage, tails = from_bytes(row["disk_facts"])
        return facts._replace(usage=usage, tails=tails)


def slice_reader(jobs: Mapping[str, ClusterJob]) -> Reading:
    """Return the function that reads slices: rows of ``schemas.SLICES`` with their standing, in Arrow batches.

    A slice's rows must be adjacent. What can't be read is unknown, with its reason; nothing is left out.
    """

    def run(batches: Iterator[Any]) -> Iterator[ReadPartition]:
        settings = SettingsCache(jobs)
        with Readers({name: (one.connection, one.timeout_s) for name, one in jobs.items()}) as readers:
            for (cluster, _slice), some in by_slice(batches):
                rows = {TopicPartition(row["topic"], row["partition"]): row for row in some}
                yield from _read(jobs[cluster], readers, settings, rows)

    return run


def _read(
    job: ClusterJob, readers: Readers, settings: SettingsCache, rows: dict[TopicPartition, Row]
) -> Iterator[ReadPartition]:
    metadata, disks = _metadata(job, rows), SliceDisks(rows)
    memory = SliceMemory(lost=None if job.lost is None else Unknown.because("ledger", job.lost))
    for tp, row in rows.items():
        if (known := row["memory"] or row["proof"]) is not None:
            memory.partitions[row["topic_id"], tp.partition] = memory_from_bytes(known)

    def require(topic: str) -> tuple[str, ...]:
        found = settings(job.cluster, topic)
        return () if found is None else found.require_groups

    request = Request(
        lambda topic: settings(job.cluster, topic),
        job.policy.groups,
        job.now_ms,
        only=rows.keys(),
        sizes=job.unread or not job.ends_only,
        samples=job.unread,
        lookups=not job.ends_only,
        memory_for=lambda _cluster: memory,
        scan_all=True,
        clock_ms=lambda: max(SYSTEM.wall_ms(), job.now_ms),  # this machine's clock may be behind (G3)
        prepared=Prepared(
            metadata,
            FoldedFloors({tp: standing_of(row, require(tp.topic)) for tp, row in rows.items()}),
            job.configs,
        ),
        disks=disks,
    )
    try:
        seen = observe(readers.get(job.cluster), request)
    except BrokerError as error:
        why = Unknown.because("offsets", f"could not be read: {error}")
        seen = Observation(job.cluster, 0, disks.with_disks(None, _unread(job, metadata, why)), {}, {})
    ends: dict[TopicPartition, list[Row]] = {}
    for (tp, epoch), answer in seen.epoch_ends.items():
        ends.setdefault(tp, []).append(_end_row(epoch, answer))
    note = seen.sizes_problem
    for tp, row in rows.items():
        sent = None if row["memory"] is None else memory.partition(tp.topic, row["topic_id"], tp.partition)
        told: Row = {
            "read_ms": seen.ends_read_ms,
            "memory": memory_as_bytes(sent) if sent is not None and sent.changed else None,
            "doubt": tp in seen.doubts,
            "ends": ends.get(tp),
            "note": note,
        }
        yield ReadPartition(job.cluster, seen.facts[tp], told)
        note = None  # only in the first row of a slice


def _end_row(epoch: int, answer: Answer) -> Row:
    row: Row = {"leader_epoch": epoch, "end": None, "text": None}
    if isinstance(answer, Found):
        row["end"] = answer.offset
    elif isinstance(answer, RequestFailedError):
        row["text"] = str(answer)
    return row


def _metadata(job: ClusterJob, rows: Mapping[TopicPartition, Row]) -> ClusterMetadata:
    """Return the client's first metadata read, limited to the slice."""
    partitions: dict[str, dict[int, PartitionMetadata]] = {}
    topics: dict[str, TopicMetadata] = {}
    for tp, row in rows.items():
        here = partitions.setdefault(tp.topic, {})
        here[tp.partition] = PartitionMetadata(row["leader"], row["leader_epoch"])
        topics.setdefault(tp.topic, TopicMetadata(tp.topic, row["topic_id"], row["internal"], here))
    return ClusterMetadata(job.cluster, frozenset(), topics)


def _unread(job: ClusterJob, metadata: ClusterMetadata, why: Unknown) -> dict[TopicPartition, PartitionFacts]:
    topics = {name: configured(bare_facts(one), job.configs.get(name)) for name, one in metadata.topics.items()}
    places = metadata.places()
    return {tp: unread_facts(topics[tp.topic], tp.partition, one, why) for tp, one in places.items()}


def fact_reader(jobs: Mapping[str, ClusterJob]) -> Task:
    """Return the task from slices (:func:`slice_reader`) to rows of ``schemas.FACTS``, for later tasks."""
    read = slice_reader(jobs)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        return batches_of((_fact_row(one) for one in read(batches)), FACTS)

    return run


def _fact_row(one: ReadPartition) -> Row:
    tp = one.facts.tp
    return {"cluster": one.cluster, "topic": tp.topic, "partition": tp.partition, "read": to_bytes(one)}


def read_before(batches: Iterator[Any]) -> Iterator[ReadPartition]:
    """Yield the partitions in rows of ``schemas.FACTS``, with R6's results if the rows have ``schemas.ASKED``, too."""
    for row in (row for batch in batches for row in batch.to_pylist()):
        one: ReadPartition = from_bytes(row["read"])
        asked = row.get("asked")
        yield one if asked is None else one._replace(asked=from_bytes(asked))


def decider(jobs: Mapping[str, ClusterJob], read: Reading) -> Task:
    """Return the task that decides the partitions it reads: to rows of ``schemas.DECIDED``."""
    return _each(jobs, read, _decided, DECIDED)


def limiter(jobs: Mapping[str, ClusterJob]) -> Task:
    """Return the task from rows of ``schemas.FACTS`` to rows of ``schemas.LIMITS``. Pure."""
    return _each(jobs, read_before, _limited, LIMITS)


def _each(
    jobs: Mapping[str, ClusterJob],
    read: Reading,
    row_of: Callable[[ReadPartition, Settings, int], Row],
    schema: pa.Schema,
) -> Task:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        known = SettingsCache(jobs)

        def row(one: ReadPartition) -> Row:
            return row_of(one, known.managed(one.cluster, one.facts.topic.name), jobs[one.cluster].now_ms)

        return batches_of(map(row, read(batches)), schema)

    return run


def _decided(one: ReadPartition, settings: Settings, now_ms: int) -> Row:
    decision = decide(one.facts, settings, now_ms)
    if one.asked is not None:
        limit = disk_limit(one.facts, settings, now_ms)
        decision = after_disks(one.facts, settings, decision, limit, *one.asked)
    return {**row_to_keep(decision), "cluster": one.cluster, **one.told}


def _limited(one: ReadPartition, settings: Settings, now_ms: int) -> Row:
    decision, limit = decide(one.facts, settings, now_ms), disk_limit(one.facts, settings, now_ms)
    found: Row = {
        "cluster": one.cluster,
        "topic": decision.topic,
        "partition": decision.partition,
        "topic_id": decision.topic_id,
        "skipped": decision.action == "skip",
        "log_start": decision.log_start,
        "trim_to": decision.trim_to,
    }
    if isinstance(limit, Unknown):
        return found | {"limit_reasons": reason_rows(limit)}
    return found | {"limit_offset": limit.offset, "limit_guard": limit.guard, "limit_text": limit.text}
