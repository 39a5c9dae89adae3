"""Tasks that read a slice of partitions, and tasks that decide (docs/architecture.md, Observe)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.core.model import Decision, Floor, Maybe, PartitionFacts, Reason, TopicPartition, Unknown
from retention_cli.decide.decision import after_disks, decide, disk_limit
from retention_cli.engines.spark.connections import Readers
from retention_cli.engines.spark.fact_rows import (
    Row,
    facts_of,
    facts_row,
    memory_of,
    memory_row,
    proof_of,
    reason_rows,
    unknown_of,
    with_disk_facts,
)
from retention_cli.engines.spark.jobs import ClusterJob, SettingsCache
from retention_cli.engines.spark.schemas import BASES, DECIDED, FACTS, LIMITS, STANDING
from retention_cli.engines.spark.slice_memory import SliceMemory
from retention_cli.engines.spark.slices import by_slice
from retention_cli.memory.lineage import EpochEnds
from retention_cli.memory.partition import PartitionMemory
from retention_cli.observe.cluster import observe
from retention_cli.observe.floors.kafka_groups import end_of_epoch
from retention_cli.observe.floors.standing import CUT_UNTOLD, Best, EpochEnd, GoneCommit, Refused, Standing, floor_of
from retention_cli.observe.request import Prepared, Request
from retention_cli.observe.topic_facts import bare_facts, configured
from retention_cli.plan.columns import row_to_keep
from retention_cli.policy.settings import Settings

ROWS_A_BATCH: Final = 5_000
CARRIED: Final = (*STANDING.names, "disk_facts", *(name for name, _ in BASES))
"""What a slice's rows have that facts' rows have, too."""
FACTS_AND_STANDING: Final = pa.schema([*FACTS, *STANDING])


def standing_of(row: Mapping[str, Any], require: Iterable[str]) -> Standing:
    """Return a partition's standing from its row of ``schemas.STANDING``."""
    best = None if row["low"] is None else Best(row["low"], row["low_by"], row["high"], row["high_by"])
    missing, now, cut = row["missing"], row["leader_epoch"], row["cut"]
    refused = [Refused(one["offset"], one["leader_epoch"], one["group"]) for one in row["refused"] or ()]
    ahead = [one for one in refused if one.epoch is not None and one.epoch > now]
    return Standing(
        leader_epoch=now,
        best=best,
        failed=_reasons(row["failed"]),
        failed_topic=_reasons(row["failed_topic"]),
        epochs={one["leader_epoch"]: (one["offset"], one["group"]) for one in row["epochs"] or ()},
        ends={
            one["leader_epoch"]: one["end"] if one["text"] is None else Unknown.because("F5", one["text"])
            for one in row["ends"] or ()
        },
        refused=min(refused, key=lambda one: one.rank, default=None),
        ahead=min(ahead, key=lambda one: one.rank, default=None),
        missing=[(one["group"], one["text"]) for one in missing] if missing else (),
        missing_count=row["missing_count"] or 0,
        absent=[group for group in require if group not in (row["present"] or ())],
        gone={one["leader_epoch"]: _gone(one) for one in row["gone"] or ()},
        unproven=None if row["unproven"] is None else _gone(row["unproven"]),
        bare=bool(row["bare"]),
        cut=None if cut is None else CUT_UNTOLD if cut["offset"] is None else (cut["offset"], cut["leader_epoch"]),
    )


def _gone(row: Mapping[str, Any]) -> GoneCommit:
    return GoneCommit(row["offset"], row["group"], row["seen"])


def _end_row(epoch: int, end: EpochEnd) -> Row:
    if isinstance(end, Unknown):
        return {"leader_epoch": epoch, "end": None, "text": end.reasons[0].text}
    return {"leader_epoch": epoch, "end": end, "text": None}


def _reasons(rows: Iterable[Mapping[str, str]] | None) -> set[Reason]:
    return {Reason(one["code"], one["text"]) for one in rows} if rows else set()


class SliceFloors:
    """The floors of a slice's partitions (:class:`retention_cli.observe.request.Floors`)."""

    def __init__(self, rows: Mapping[TopicPartition, Row], require: Callable[[str], Iterable[str]]) -> None:
        self._rows = rows
        self._require = require

    def floor(self, tp: TopicPartition, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
        """Return the partition's floor."""
        return floor_of(standing_of(self._rows[tp], self._require(tp.topic)), log_start, high_watermark)

    def epochs_to_check(self) -> list[tuple[TopicPartition, int]]:
        """Return the leader epochs of commits, gone ones too, that are not the partition's current one (F5, F6)."""
        return sorted(
            {
                (tp, one["leader_epoch"])
                for tp, row in self._rows.items()
                for one in (*(row["epochs"] or ()), *(row["gone"] or ()))
                if one["leader_epoch"] != row["leader_epoch"]
            }
        )

    def epoch_ends_at(self, tp: TopicPartition, epoch: int, end: EpochEnd) -> None:
        """Take the end of such an epoch; None where the leader doesn't know it."""
        self._rows[tp]["ends"] = [*(self._rows[tp]["ends"] or ()), _end_row(epoch, end)]

    def cut_at(self, tp: TopicPartition, cut: int, epoch: int | None) -> None:
        """Note that the log was cut since the last pass, and which epoch ended there."""
        self._rows[tp]["cut"] = {"offset": cut, "leader_epoch": epoch}

    def cut_untold(self, tp: TopicPartition) -> None:
        """Note that nobody can say now whether it was (M4)."""
        self._rows[tp]["cut"] = {"offset": None, "leader_epoch": None}


class SliceDisks:
    """What the client has seen of disks, and what an inventory says (:class:`retention_cli.observe.request.Disks`)."""

    def __init__(self, rows: Mapping[TopicPartition, Row]) -> None:
        self._rows = rows

    def with_disks(
        self, reader: Any, facts: Mapping[TopicPartition, PartitionFacts], *_more: object
    ) -> dict[TopicPartition, PartitionFacts]:
        """Return the facts with what the slice says of disks."""
        del reader
        return {tp: with_disk_facts(one, self._rows[tp]) for tp, one in facts.items()}


def fact_reader(jobs: Mapping[str, ClusterJob]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the task for ``mapInArrow``: rows of ``schemas.SLICES`` with their standing, to facts with theirs.

    A slice's rows must come together. What can't be read is unknown, with its reason; nothing is left out.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        settings = SettingsCache(jobs)
        with Readers({name: (one.connection, one.timeout_s) for name, one in jobs.items()}) as readers:
            for (cluster, _slice), some in by_slice(batches):
                slice_rows = {TopicPartition(row["topic"], row["partition"]): row for row in some}
                yield from _read(jobs[cluster], readers, settings, slice_rows)

    return run


def _read(
    job: ClusterJob, readers: Readers, settings: SettingsCache, rows: dict[TopicPartition, Row]
) -> Iterator[pa.RecordBatch]:
    metadata = _metadata(job, rows)
    memory = SliceMemory(lost=None if job.lost is None else Unknown.because("ledger", job.lost))
    sent = {}
    for tp, row in rows.items():
        row["ends"] = row["cut"] = None  # also where Spark reads a slice once more
        if row["memory"] is not None:
            sent[tp] = memory.partitions[tp] = memory_of(row["memory"])
        elif row["proof"] is not None:
            memory.partitions[tp] = proof_of(row["proof"])

    def require(topic: str) -> tuple[str, ...]:
        found = settings(job.cluster, topic)
        return () if found is None else found.require_groups

    floors = SliceFloors(rows, require)
    request = Request(
        lambda topic: settings(job.cluster, topic),
        job.policy.groups,
        job.now_ms,
        only=rows.keys(),
        sizes=not job.ends_only,
        lookups=not job.ends_only,
        memory_for=lambda _cluster: memory,
        scan_all=True,
        prepared=Prepared(metadata, floors, job.configs),
        disks=SliceDisks(rows),
    )
    note, read_ms = None, 0
    doubts: Collection[TopicPartition] = ()
    facts: Mapping[TopicPartition, PartitionFacts]
    try:
        observation = observe(readers.get(job.cluster), request)
        facts, note, read_ms = observation.facts, observation.sizes_problem, observation.ends_read_ms
        doubts = observation.doubts
        _note_ends(rows, observation.epoch_ends)
    except BrokerError as error:
        facts = _unread(job, metadata, rows, Unknown.because("offsets", f"could not be read: {error}"))
    yield from _batches(job, rows, facts, sent, doubts, read_ms, note)


def _note_ends(rows: Mapping[TopicPartition, Row], ends: EpochEnds) -> None:
    """Add, for the client, where the epochs of what is remembered end: commits' are there already."""
    for (tp, epoch), answer in ends.items():
        row = rows[tp]
        if all(one["leader_epoch"] != epoch for one in row["ends"] or ()):
            row["ends"] = [*(row["ends"] or ()), _end_row(epoch, end_of_epoch(epoch, answer))]


def _metadata(job: ClusterJob, rows: Mapping[TopicPartition, Row]) -> ClusterMetadata:
    """Return the first metadata read, as far as the slice goes."""
    topics: dict[str, TopicMetadata] = {}
    for tp, row in rows.items():
        topic = topics.setdefault(tp.topic, TopicMetadata(tp.topic, row["topic_id"], row["internal"], {}))
        leader = PartitionMetadata(row["leader"], row["leader_epoch"])
        assert isinstance(topic.partitions, dict)  # noqa: S101  (made two lines above)
        topic.partitions[tp.partition] = leader
    return ClusterMetadata(job.cluster, frozenset(), topics)


def _unread(
    job: ClusterJob, metadata: ClusterMetadata, rows: Mapping[TopicPartition, Row], why: Unknown
) -> dict[TopicPartition, PartitionFacts]:
    return {
        tp: PartitionFacts(
            topic=configured(bare_facts(metadata.topics[tp.topic]), job.configs.get(tp.topic)),
            partition=tp.partition,
            log_start=why,
            high_watermark=why,
            last_stable_offset=why,
            floor=why,
            has_leader=row["leader"] is not None,
        )
        for tp, row in rows.items()
    }


def _batches(
    job: ClusterJob,
    rows: Mapping[TopicPartition, Row],
    facts: Mapping[TopicPartition, PartitionFacts],
    sent: Mapping[TopicPartition, PartitionMemory],
    doubts: Collection[TopicPartition],
    read_ms: int,
    note: str | None,
) -> Iterator[pa.RecordBatch]:
    found: list[Row] = []
    for tp, row in rows.items():
        memory = sent.get(tp)
        found.append(
            {
                **{name: row[name] for name in CARRIED},
                **facts_row(facts[tp]),
                "cluster": job.cluster,
                "leader": row["leader"],
                "leader_epoch": row["leader_epoch"],
                "read_ms": read_ms,
                "memory": memory_row(memory) if memory is not None and memory.changed else None,
                "doubt": tp in doubts,
                "note": note,
            }
        )
        note = None  # once a slice
        if len(found) >= ROWS_A_BATCH:
            yield _batch(found, FACTS_AND_STANDING)
            found = []
    if found:
        yield _batch(found, FACTS_AND_STANDING)


def floored(row: Row, require: Iterable[str]) -> PartitionFacts:
    """Return the facts of a row of :data:`FACTS_AND_STANDING`, with the floor that its standing comes to."""
    return facts_of(row, partial(floor_of, standing_of(row, require)))


def _batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def decider(jobs: Mapping[str, ClusterJob]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the task for ``mapInArrow``: facts with their standing to rows of ``schemas.DECIDED``. Pure.

    Where the rows have R6's word (``asked``, ``schemas.DISK_ASKED``), it is the last.
    """
    return _each(jobs, _decided, DECIDED)


def limiter(jobs: Mapping[str, ClusterJob]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the task for ``mapInArrow``: facts with their standing to rows of ``schemas.LIMITS``. Pure."""
    return _each(jobs, _limited, LIMITS)


def _each(
    jobs: Mapping[str, ClusterJob], one: Callable[[Row, Weighing], Row], schema: pa.Schema
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        settings = SettingsCache(jobs)
        for batch in batches:
            for start in range(0, batch.num_rows, ROWS_A_BATCH):
                rows = batch.slice(start, ROWS_A_BATCH).to_pylist()
                yield _batch([one(row, _weighing(row, jobs, settings)) for row in rows], schema)

    return run


class Weighing(NamedTuple):
    """A partition's facts with its floor, and what the other rules than R6 come to."""

    facts: PartitionFacts
    settings: Settings
    now_ms: int
    decision: Decision


def _weighing(row: Row, jobs: Mapping[str, ClusterJob], settings_for: SettingsCache) -> Weighing:
    cluster = row["cluster"]
    settings = settings_for(cluster, row["topic"])
    assert settings is not None, f"{row['topic']} is not managed"  # noqa: S101  (no slice has it)
    facts, now_ms = floored(row, settings.require_groups), jobs[cluster].now_ms
    return Weighing(facts, settings, now_ms, decide(facts, settings, now_ms))


def _decided(row: Row, one: Weighing) -> Row:
    facts, settings, now_ms, decision = one
    if (disks := row.get("asked")) is not None:
        asked = None if disks["bound"] is None else (disks["bound"], Reason("R6", disks["why"]))
        limit = disk_limit(facts, settings, now_ms)
        decision = after_disks(facts, settings, decision, limit, asked, unknown_of(disks["reasons"]))
    return {
        **row_to_keep(decision),
        "cluster": row["cluster"],
        "read_ms": row["read_ms"],
        "memory": row["memory"],
        "doubt": row["doubt"],
        "ends": row["ends"],
        "cut": row["cut"],
        "note": row["note"],
    }


def _limited(row: Row, one: Weighing) -> Row:
    limit = disk_limit(one.facts, one.settings, one.now_ms)
    found: Row = {
        "cluster": row["cluster"],
        "topic": row["topic"],
        "partition": row["partition"],
        "topic_id": row["topic_id"],
        "skipped": one.decision.action == "skip",
        "log_start": row["log_start"],
        "trim_to": one.decision.trim_to,
    }
    if isinstance(limit, Unknown):
        return found | {"limit_reasons": reason_rows(limit)}
    return found | {"limit_offset": limit.offset, "limit_guard": limit.guard, "limit_text": limit.text}
