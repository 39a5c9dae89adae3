"""R5, R6, R7 and whole segments over Spark (R5 to R7).

The client reads the disks: their usage, their replicas, and where logs begin and end. That is proportional to the
number of partitions. An inventory's segments, of which there are many more, stay in Spark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from retention_cli.brokers.log_offsets import Spec
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import Maybe, PartitionFacts, Tail, TopicPartition, Unknown, known
from retention_cli.core.progress import Progress
from retention_cli.decide.decision import Limit
from retention_cli.disks.batch_sizes import tails_without_inventory
from retention_cli.disks.decide import Measured
from retention_cli.disks.measure import DiskState
from retention_cli.disks.solve.leaving import Leaving
from retention_cli.disks.solve.oldest_first import OldestFirst
from retention_cli.disks.tiered import tiered_topics
from retention_cli.engines.spark.commit_tasks import read_batch
from retention_cli.engines.spark.commits import CommitsRead
from retention_cli.engines.spark.fact_frames import Asked
from retention_cli.engines.spark.fact_rows import Row, reason_rows, unknown_of
from retention_cli.engines.spark.frames import PLACE, ArrowTask, frame_of
from retention_cli.engines.spark.inventory import SparkInventory, read_inventory
from retention_cli.engines.spark.jobs import ClusterJob
from retention_cli.engines.spark.oldest_first import Walk
from retention_cli.engines.spark.packing import Task, task_of
from retention_cli.engines.spark.prepare import Prepared
from retention_cli.engines.spark.scanned_replicas import scanned_replicas
from retention_cli.engines.spark.schemas import READ, REASON, ddl
from retention_cli.engines.spark.segment_rules import LED, bases, log_bytes
from retention_cli.engines.spark.segment_rules import tails as exact_tails
from retention_cli.engines.spark.sent import Sent
from retention_cli.engines.spark.shuffle_keys import keys
from retention_cli.engines.spark.values import to_bytes
from retention_cli.memory.lineage import ask_epochs
from retention_cli.observe.recall import Remembered
from retention_cli.observe.topic_facts import bare_facts, configured, end_of, unread_facts
from retention_cli.policy.disks import sized_topics

PARTITION: Final = ("topic", "partition")
_STARTS: Final = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("log_start", pa.int64())])
_ELSEWHERE: Final = pa.schema([*_STARTS, ("topic_id", pa.string()), ("managed", pa.bool_())])
_UNREAD: Final = Unknown.because("offsets", "not read")


@dataclass(slots=True)
class ClusterDisks:
    """One cluster's disks, and R6's results for its partitions.

    Args:
        session: the Spark session.
        prepared: the cluster, as far as the client has read it.
        state: its disks.
        inventory: its segments, if they were scanned.
    """

    session: Any
    prepared: Prepared
    state: DiskState
    inventory: SparkInventory | None
    _leaders: Mapping[TopicPartition, PartitionMetadata]

    def close(self) -> None:
        """Free the frames that Spark keeps."""
        if self.inventory is not None:
            self.inventory.close()

    def disk_facts(self, progress: Progress) -> dict[TopicPartition, tuple[Any, Any]]:
        """Return, for tasks, the facts about disks that each partition's own rules need: usage and tails."""
        state, settings, target = self.state, self.prepared.job.settings, self.prepared.target
        usages, sized = state.usages(state.facts.keys(), self._leaders), sized_topics(settings)
        tails: Mapping[TopicPartition, Mapping[str, Maybe[Tail]]] = {}
        if chosen := {tp: one for tp, one in state.facts.items() if tp.topic in sized}:
            if self.inventory is not None:
                tails = exact_tails(self.inventory, chosen, settings, state.leading(), state.topic_ids())
            else:
                now_ms = self.prepared.job.now_ms
                tails = tails_without_inventory(
                    target.reader, state, chosen, settings, self._leaders, target.batches, now_ms, progress
                )
        told = usages.keys() | tails.keys()
        return {tp: (usages.get(tp), tails.get(tp, {})) for tp in state.facts if tp in told}

    def bases(self) -> Any | None:
        """Return a frame of each partition's base offsets, or why they are unknown; None if no rule needs them."""
        whole = {name for name, one in self.prepared.job.settings.items() if one.whole_segments}
        rows = [self._led(tp) for tp in self.state.facts if tp.topic in whole]
        if self.inventory is None or not rows:
            return None
        return bases(self.inventory, frame_of(self.session, rows, LED)).select("topic", "partition", "bases", "reasons")

    def bytes_of(self, decided: Any) -> Any | None:
        """Return a frame of the bytes trimmed by rows of ``schemas.DECIDED``; None if there is no inventory."""
        if self.inventory is None:
            return None
        from pyspark.sql import functions as f

        leaders = frame_of(self.session, [self._led(tp) for tp in self.state.facts], LED)
        mine = decided.where((decided.cluster == self.prepared.cluster) & decided.trim_to.isNotNull())
        trims = mine.select("topic", "partition", "log_start", "trim_to").join(leaders, ["topic", "partition"])
        found = log_bytes(self.inventory, trims)
        return found.withColumn("cluster", f.lit(self.prepared.cluster))

    def decide(self, limits: Any, now_ms: int) -> Asked:
        """Decide R6; return its results by partition. The state's outcomes are then set.

        Args:
            limits: this cluster's rows of ``schemas.LIMITS``.
            now_ms: the time from which all cutoffs are calculated.
        """
        state, reader = self.state, self.prepared.target.reader
        state.topics = {row["topic"] for row in limits.where("not skipped").select("topic").distinct().collect()}
        if (missing := state.without_numpy(state.facts.keys())) is not None:
            measured = Measured(unknown=missing)
        else:
            tiered, left_alone = tiered_topics(reader, state.topics, self.prepared.job.settings)
            if self.inventory is None:
                found = state.estimated(reader, *_collected(limits, tiered), now_ms)
            else:
                found = self._walked(self.inventory, self._walkable(limits, tiered), now_ms)
            measured = state.measured(reader, found, {}, left_alone)
        concerned = measured.asked.keys() | measured.unknown.keys()
        return {tp: (measured.asked.get(tp), measured.unknown.get(tp)) for tp in concerned}

    def _walked(self, inventory: SparkInventory, partitions: Any, now_ms: int) -> OldestFirst:
        """Walk the inventory's segments."""
        state = self.state
        state.say_age(inventory.age_ms(now_ms))
        trims = partitions.where("trim_to is not null").select(*PARTITION, "trim_to")
        decided = {_place(row): row["trim_to"] for row in trims.toLocalIterator(prefetchPartitions=True)}
        partitions = self._with_elsewhere(partitions)

        with contextlib.ExitStack() as stack:
            walks: list[Walk] = []

            def walk(leaving: Sequence[Leaving], held: Mapping[TopicPartition, Unknown]) -> OldestFirst:
                if not walks:  # what is held stays the same
                    walks.append(stack.enter_context(Walk(inventory, state.disks, state.rules, partitions, held)))
                return walks[0].oldest_first(leaving)

            return state.walked(decided, walk)

    def _walkable(self, limits: Any, tiered: Mapping[str, Unknown]) -> Any:
        """Return the limits in the walk's form; topics with remote storage must not be trimmed."""
        from pyspark.sql import functions as f

        rows = [{"topic": name, "tiered": reason_rows(why)} for name, why in tiered.items()]
        stopped = frame_of(self.session, rows, pa.schema([("topic", pa.string()), ("tiered", pa.list_(REASON))]))
        free = f.col("tiered").isNull()
        return limits.join(f.broadcast(stopped), "topic", "left").select(
            "topic",
            "partition",
            "topic_id",
            f.lit(True).alias("managed"),
            "log_start",
            "trim_to",
            *(f.when(free, f.col(name)).alias(name) for name in ("limit_offset", "limit_guard", "limit_text")),
            f.coalesce("tiered", "limit_reasons").alias("limit_reasons"),
        )

    def _with_elsewhere(self, partitions: Any) -> Any:
        """Add what was read of partitions that are not managed, or never touched (G5): only their dead bytes count."""
        from pyspark.sql import functions as f

        starts, ids, places = self.state.log_starts(), self.state.topic_ids(), self.prepared.job.places
        mine: list[Row] = []
        others: list[Row] = []
        for tp in self.state.elsewhere.facts:
            row = {"topic": tp.topic, "partition": tp.partition, "log_start": starts.get(tp)}
            if places.position(*tp) is None:
                others.append(row | {"topic_id": ids.get(tp), "managed": False})
            else:  # there is one row of each partition
                mine.append(row)
        if mine:
            told = frame_of(self.session, mine, _STARTS).withColumnRenamed("log_start", "told")
            joined = partitions.join(f.broadcast(told), [*PARTITION], "left")
            partitions = joined.withColumn("log_start", f.coalesce("log_start", "told")).drop("told")
        return partitions.unionByName(frame_of(self.session, others, _ELSEWHERE), allowMissingColumns=True)

    def _led(self, tp: TopicPartition) -> Row:
        topic_id = known(self.state.facts[tp].topic.topic_id)
        return {
            "topic": tp.topic,
            "partition": tp.partition,
            "topic_id": topic_id,
            "leader": self._leaders[tp].leader,
        }


def look(session: Any, prepared: Prepared) -> ClusterDisks:
    """Read a cluster's disks, after its commits were read (:attr:`.prepare.Prepared.looks_at_disks`).

    Raises:
        BrokerError: a request to the brokers failed.
        InventoryError: the inventory can't be used, or is another cluster's.
    """
    policy, target = prepared.selection.policy, prepared.target
    inventory = None
    if target.inventory:
        inventory = read_inventory(session, target.inventory)
        inventory.check_cluster(prepared.cluster)
    facts, leaders = _ends(prepared)
    remembered = Remembered(prepared.memory, prepared.job.settings, leaders, SYSTEM.wall_ms(), prepared.job.now_ms)
    remembered.open({tp.topic: one.topic.topic_id for tp, one in facts.items()})
    there = {tp: one for tp, one in leaders.items() if one.leader is not None}
    remembered.prove(ask_epochs(target.reader, remembered.epochs_to_check(facts), there), facts)
    prepared.cuts = remembered.cuts
    state = DiskState.of(policy.disks, inventory)
    state.look(target.reader, facts, prepared.job.settings, leaders, remembered, SYSTEM.wall_ms)
    if inventory is not None:
        doubts = state.unproven(target.reader, list(scanned_replicas(inventory, state.log_starts())))
        inventory = replace(inventory, incomplete={**doubts, **inventory.incomplete})
    return ClusterDisks(session, prepared, state, inventory, leaders)


def with_bases(commits: CommitsRead, disks: Iterable[ClusterDisks]) -> Any:
    """Return what tasks that read partitions must know, with the segments' base offsets if rules need them."""
    found = [(one.prepared.cluster, one.bases()) for one in disks]
    return commits.arrived(
        bases.mapInArrow(_base_rows(commits.jobs[cluster], commits.tasks), ddl(READ))
        for cluster, bases in found
        if bases is not None
    )


def _base_rows(sent: Sent[ClusterJob], tasks: Sequence[Task]) -> ArrowTask:
    """Return the task that gives base offsets to those tasks that read the partitions (``schemas.READ``)."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        job = sent.load()
        tasks_at, key = job.places.tasks(task_of(tasks)), keys(len(tasks))
        for batch in batches:
            found: dict[int, dict[int, Maybe[Sequence[int]]]] = {}
            for row in batch.to_pylist():
                if (position := job.places.position(row["topic"], row["partition"])) is not None:
                    told = unknown_of(row["reasons"]) or row["bases"]
                    if told is not None:
                        found.setdefault(int(tasks_at[position]), {})[position] = told
            for task, some in found.items():
                yield read_batch(
                    1, cluster=[job.cluster], kind=["bases"], task=[task], key=[key[task]], value=[to_bytes(some)]
                )

    return run


def with_bytes(decided: Any, disks: Iterable[ClusterDisks]) -> Any:
    """Return rows of ``schemas.DECIDED`` with an inventory's bytes; persist them first, as they are read twice."""
    from pyspark.sql import functions as f

    for one in disks:
        if (found := one.bytes_of(decided)) is not None:  # an inventory is of one cluster
            exact = f.coalesce("exact", "bytes_exact").alias("bytes_exact")
            told = {"bytes": f.coalesce("size", "bytes").alias("bytes"), "bytes_exact": exact}
            return decided.join(found, [*PLACE], "left").select(*(told.get(name, name) for name in decided.columns))
    return decided


def _ends(
    prepared: Prepared,
) -> tuple[dict[TopicPartition, PartitionFacts], dict[TopicPartition, PartitionMetadata]]:
    """Read S and H of the partitions that may be trimmed."""
    job, topics = prepared.job, prepared.metadata.topics
    leaders = prepared.metadata.places(job.partitions)
    specs: tuple[Spec, ...] = ("earliest", "latest")
    starts, ends = prepared.target.reader.list_offsets([dict.fromkeys(leaders, spec) for spec in specs], leaders)
    about = {name: configured(bare_facts(topics[name]), job.configs.get(name)) for name in job.partitions}
    facts = {
        tp: unread_facts(about[tp.topic], tp.partition, one, _UNREAD)._replace(
            log_start=end_of("start", starts[tp]), high_watermark=end_of("high watermark", ends[tp])
        )
        for tp, one in leaders.items()
    }
    return facts, leaders


def _collected(
    limits: Any, tiered: Mapping[str, Unknown]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Maybe[Limit]]]:
    """Return the other rules' bounds, and how far R6 may trim each partition."""
    trims: dict[TopicPartition, int] = {}
    most: dict[TopicPartition, Maybe[Limit]] = {}
    for row in limits.toLocalIterator(prefetchPartitions=True):
        tp = _place(row)
        if row["trim_to"] is not None:
            trims[tp] = row["trim_to"]
        stopped = tiered.get(tp.topic) or unknown_of(row["limit_reasons"])
        most[tp] = stopped or Limit(row["limit_offset"], row["limit_guard"], row["limit_text"])
    return trims, most


def _place(row: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])
