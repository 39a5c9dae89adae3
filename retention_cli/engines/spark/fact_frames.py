"""Facts between tasks, where R6 has the last word over all partitions of a cluster: read, limited, then decided."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from retention_cli.core.model import Decision, PartitionFacts, Reason, TopicPartition, Unknown
from retention_cli.decide.decision import after_disks, decide, disk_limit
from retention_cli.engines.spark.decided import decisions_batch
from retention_cli.engines.spark.fact_rows import Row, reason_rows
from retention_cli.engines.spark.fact_tasks import PARTITIONS_A_SLICE, Reading
from retention_cli.engines.spark.frames import ArrowTask, batches_of
from retention_cli.engines.spark.jobs import ClusterJob
from retention_cli.engines.spark.schemas import DECIDED, FACTS, LIMITS, TOLD
from retention_cli.engines.spark.sent import Sent
from retention_cli.engines.spark.values import from_bytes, to_bytes

Jobs = Mapping[str, Sent[ClusterJob]]
OfDisks = tuple[tuple[int, Reason] | None, Unknown | None]
"""R6's bound of a partition with its reason, and why R6 is unknown (:class:`retention_cli.disks.decide.Measured`)."""
Asked = Mapping[TopicPartition, OfDisks]


class ReadPartition(NamedTuple):
    """A partition as read by a task, including its floor and the facts about disks.

    ``told`` is returned to the client with the decision: columns of ``schemas.TOLD``.
    """

    cluster: str
    facts: PartitionFacts
    told: tuple[Any, ...]


def fact_reader(read: Reading) -> ArrowTask:
    """Return the task from slices to rows of ``schemas.FACTS``, for later tasks."""

    def rows(batches: Iterator[Any]) -> Iterator[Row]:
        for piece, slices in read(batches):
            for one in slices:
                told = zip(*(one.told[field.name] for field in TOLD), strict=True)
                for facts, theirs in zip(one.facts, told, strict=True):
                    value = to_bytes(ReadPartition(piece.cluster, facts, theirs))
                    place = {"topic": facts.topic.name, "partition": facts.partition}
                    yield {"cluster": piece.cluster, **place, "read": value}

    return lambda batches: batches_of(rows(batches), FACTS)


def _read_before(batches: Iterator[Any]) -> Iterator[ReadPartition]:
    """Yield the partitions in rows of ``schemas.FACTS``."""
    for batch in batches:
        for raw in batch.column("read").to_pylist():
            one: ReadPartition = from_bytes(raw)
            yield one


def decider(jobs: Jobs, asked: Mapping[str, Sent[Asked]]) -> ArrowTask:
    """Return the task from rows of ``schemas.FACTS`` to ``schemas.DECIDED``; ``asked`` are R6's results. Pure."""

    def decided(one: ReadPartition) -> Decision:
        of_disks = asked[one.cluster].load().get(one.facts.tp) if one.cluster in asked else None
        return _decided(jobs[one.cluster].load(), one.facts, of_disks)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        waiting = _read_before(batches)
        while some := list(itertools.islice(waiting, PARTITIONS_A_SLICE)):
            rows = decisions_batch(map(decided, some))
            told = zip(*(one.told for one in some), strict=True)
            columns = [pa.array(column, field.type) for column, field in zip(told, TOLD, strict=True)]
            clusters = pa.array([one.cluster for one in some], pa.string())
            yield pa.RecordBatch.from_arrays([clusters, *rows.columns, *columns], schema=DECIDED)

    return run


def limiter(jobs: Jobs) -> ArrowTask:
    """Return the task from rows of ``schemas.FACTS`` to rows of ``schemas.LIMITS``. Pure."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        return batches_of((_limited(jobs[one.cluster].load(), one) for one in _read_before(batches)), LIMITS)

    return run


def _decided(job: ClusterJob, facts: PartitionFacts, asked: OfDisks | None) -> Decision:
    settings = job.settings[facts.topic.name]
    decision = decide(facts, settings, job.now_ms)
    if asked is None:
        return decision
    return after_disks(facts, settings, decision, disk_limit(facts, settings, job.now_ms), *asked)


def _limited(job: ClusterJob, one: ReadPartition) -> Row:
    settings = job.settings[one.facts.topic.name]
    decision, limit = decide(one.facts, settings, job.now_ms), disk_limit(one.facts, settings, job.now_ms)
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
