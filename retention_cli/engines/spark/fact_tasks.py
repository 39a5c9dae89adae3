"""Tasks that read slices of partitions at their leaders, in the safe order (docs/architecture.md, Observe)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import PartitionFacts, TopicPartition, Unknown
from retention_cli.engines.spark.connections import Readers
from retention_cli.engines.spark.fact_rows import Row
from retention_cli.engines.spark.jobs import ClusterJob, Recalled
from retention_cli.engines.spark.packing import Piece, Task
from retention_cli.engines.spark.parts import Part, Source, Sum
from retention_cli.engines.spark.sent import Sent
from retention_cli.engines.spark.slice_memory import SliceMemory
from retention_cli.engines.spark.values import from_bytes
from retention_cli.memory.documents import memory_as_bytes
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import Observation, Prepared, Request
from retention_cli.observe.topic_facts import bare_facts, configured, unread_facts

PARTITIONS_A_SLICE: Final = 2_000
"""So many are read at a time, and held in memory."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Some of the partitions that one broker leads, as a task has read them: facts in the order of their topics.

    ``told`` are columns of ``schemas.TOLD`` beside the facts: what the client remembers of each.
    """

    job: ClusterJob
    facts: Sequence[PartitionFacts]
    told: Mapping[str, Sequence[Any]]


Reading = Callable[[Iterator[Any]], Iterator[tuple[Piece, Iterator[Slice]]]]
"""Reads the pieces of the tasks that Arrow batches of ``schemas.READ`` are for, slice by slice."""


def slice_reader(
    jobs: Mapping[str, Sent[ClusterJob]],
    recalled: Mapping[str, Sent[Recalled]],
    tasks: Sequence[Task],
    sources: Mapping[str, Collection[Source]],
) -> Reading:
    """Return the function that reads slices. What can't be read is unknown, with its reason; nothing is left out.

    Each of a cluster's ``sources`` has sent a part to each task; where one is missing, floors are unknown (F3).

    Its rows are those of ``schemas.READ``: for each task a row of kind ``task``, and what its partitions' commits
    come to. Rows of one task must be in one partition of the frame.
    """

    def run(batches: Iterator[Any]) -> Iterator[tuple[Piece, Iterator[Slice]]]:
        arrived: dict[int, dict[str, list[Part]]] = {}
        for row in (row for batch in batches for row in batch.to_pylist()):
            of_task = arrived.setdefault(row["task"], {})
            if row["kind"] == "part":
                of_task.setdefault(row["cluster"], []).append(from_bytes(row["value"]))
        with Readers() as readers:
            for number, of_task in arrived.items():
                for cluster, pieces in itertools.groupby(tasks[number], lambda one: one.cluster):
                    if cluster not in recalled:  # it has failed since
                        continue
                    job, known = jobs[cluster].load(), recalled[cluster].load()
                    here, theirs = of_task.get(cluster, []), list(pieces)
                    places = {piece: job.places.of_piece(piece) for piece in theirs}
                    total = Sum(job.places, np.sort(np.concatenate([*places.values()])), here, sources[cluster])
                    for piece, positions in places.items():
                        yield piece, _slices(job, known, readers, total, positions)

    return run


def _slices(job: ClusterJob, known: Recalled, readers: Readers, total: Sum, positions: Any) -> Iterator[Slice]:
    for first in range(0, len(positions), PARTITIONS_A_SLICE):
        yield _read(job, known, readers, total, positions[first : first + PARTITIONS_A_SLICE])


def _read(job: ClusterJob, known: Recalled, readers: Readers, total: Sum, positions: Any) -> Slice:
    metadata, tps = job.places.metadata(positions), job.places.tps(positions)
    memory = SliceMemory(lost=None if known.lost is None else Unknown.because("ledger", known.lost))
    for there, tp in zip(known.at(positions), tps, strict=True):
        topic_id = metadata.topics[tp.topic].topic_id
        if topic_id is not None and there is not None:
            memory.partitions[topic_id, tp.partition] = there
    request = Request(
        job.settings.get,
        job.groups,
        job.now_ms,
        only=tps,
        sizes=job.unread or not job.ends_only,
        samples=job.unread,
        lookups=not job.ends_only,
        memory_for=lambda _cluster: memory,
        scan_all=True,
        adds=any(map(job.needs_memory, metadata.topics)),
        clock_ms=lambda: max(SYSTEM.wall_ms(), job.now_ms),  # this machine's clock may be behind (G3)
        prepared=Prepared(metadata, total.fold(positions, job.scopes(metadata.topics)), job.configs),
    )
    try:
        seen = observe(readers.opened(job.cluster, job.connection, job.timeout_s), request)
    except BrokerError as error:
        why = Unknown.because("offsets", f"could not be read: {error}")
        seen = Observation(job.cluster, 0, _unread(job, metadata, why), {}, {})
    told = {"at": positions.tolist(), **_told(seen, tps), "memory": _memories(job, metadata, tps, memory)}
    return Slice(job, [seen.facts[tp] for tp in tps], told)


def _memories(
    job: ClusterJob, metadata: ClusterMetadata, tps: Sequence[TopicPartition], memory: SliceMemory
) -> list[bytes | None]:
    """Return the records of those partitions whose rules need them, where a task has changed them."""
    found: list[bytes | None] = [None] * len(tps)
    needing = {name for name in metadata.topics if job.needs_memory(name)}
    for index, tp in enumerate(tps) if needing else ():
        topic_id = metadata.topics[tp.topic].topic_id
        if tp.topic in needing and topic_id is not None:
            one = memory.partition(tp.topic, topic_id, tp.partition)
            found[index] = memory_as_bytes(one) if one.changed else None
    return found


def _told(seen: Observation, tps: Sequence[TopicPartition]) -> dict[str, Sequence[Any]]:
    """Return what else the client remembers of each partition."""
    ends: dict[TopicPartition, list[Row]] = {}
    for (tp, epoch), answer in seen.epoch_ends.items():
        ends.setdefault(tp, []).append(_end_row(epoch, answer))
    return {
        "read_ms": [seen.ends_read_ms] * len(tps),
        "doubt": [tp in seen.doubts for tp in tps] if seen.doubts else [False] * len(tps),
        "ends": [ends.get(tp) for tp in tps] if ends else [None] * len(tps),
        "note": [seen.sizes_problem, *[None] * (len(tps) - 1)],  # once a slice
    }


def _end_row(epoch: int, answer: Answer) -> Row:
    row: Row = {"leader_epoch": epoch, "end": None, "text": None}
    if isinstance(answer, Found):
        row["end"] = answer.offset
    elif isinstance(answer, RequestFailedError):
        row["text"] = str(answer)
    return row


def _unread(job: ClusterJob, metadata: ClusterMetadata, why: Unknown) -> dict[TopicPartition, PartitionFacts]:
    topics = {name: configured(bare_facts(one), job.configs.get(name)) for name, one in metadata.topics.items()}
    places = metadata.places()
    return {tp: unread_facts(topics[tp.topic], tp.partition, one, why) for tp, one in places.items()}
