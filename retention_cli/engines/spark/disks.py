"""R5, R6, R7 and whole segments over Spark (R5 to R7).

The client looks at the disks: how full they are, which replicas lie on them, where logs begin and end. That is
proportional to partitions. An inventory's segments, which are many more, stay with Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from retention_cli.brokers.log_offsets import Answer, Found, Spec
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import Maybe, PartitionFacts, Tail, TopicPartition, Unknown, known
from retention_cli.core.progress import Progress
from retention_cli.decide.decision import Limit
from retention_cli.disks.measure import BYTES, TOPIC_BYTES, DiskState, sized_topics
from retention_cli.disks.solve.outcome import DiskOutcome, Space
from retention_cli.engines.spark.fact_rows import Row, disk_facts_row, reason_rows, unknown_of
from retention_cli.engines.spark.frames import PLACE, as_frame
from retention_cli.engines.spark.inventory import SparkInventory, read_inventory
from retention_cli.engines.spark.oldest_first import oldest_first
from retention_cli.engines.spark.prepare import Prepared
from retention_cli.engines.spark.schemas import BASES, DISK_ASKED, REASON
from retention_cli.engines.spark.segment_rules import bases, log_bytes, tails
from retention_cli.memory.lineage import ask_epochs
from retention_cli.observe.recall import Remembered
from retention_cli.observe.topic_facts import bare_facts, configured
from retention_cli.policy.disks import needs_disks

_UNREAD: Final = Unknown.because("offsets", "not read")
_LED: Final = [
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("topic_id", pa.string()),
    ("leader", pa.int32()),
]
_SIZED: Final = pa.schema(
    [
        *_LED,
        ("log_start", pa.int64()),
        ("log_start_reasons", pa.list_(REASON)),
        ("max_bytes", pa.int64()),
        ("max_topic_bytes", pa.int64()),
    ]
)
_ASKED: Final = pa.schema(
    [("cluster", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("asked", DISK_ASKED)]
)


@dataclass(slots=True)
class ClusterDisks:
    """One cluster's disks, and what R6 asks of its partitions.

    Args:
        session: Spark's.
        prepared: the cluster, as far as the client has read it.
        state: what was seen of its disks.
        inventory: its segments, where somebody has scanned them.
    """

    session: Any
    prepared: Prepared
    state: DiskState
    inventory: SparkInventory | None
    _leaders: Mapping[TopicPartition, PartitionMetadata]
    _topics: set[str] = field(default_factory=set)

    @property
    def outcomes(self) -> Sequence[DiskOutcome]:
        """What each disk comes to, once it is decided."""
        return self.state.outcomes

    @property
    def space(self) -> Space | None:
        """What brokers give back after the plan, and when; None where no disk is decided about."""
        return self.state.space(self._topics)

    def close(self) -> None:
        """Let go of what Spark keeps."""
        if self.inventory is not None:
            self.inventory.close()

    def disk_facts(self, progress: Progress) -> dict[TopicPartition, Row]:
        """Return what each partition's own rules want to know of disks (``schemas.DISK_FACTS``)."""
        facts, settings = self.state.facts, self.prepared.settings
        usages = self.state.usages(facts.keys(), self._leaders)
        sized = sized_topics(settings)
        chosen = {tp: one for tp, one in facts.items() if tp.topic in sized}
        found: Mapping[TopicPartition, Mapping[str, Maybe[Tail]]] = {}
        target = self.prepared.target
        if chosen and self.inventory is not None:
            found = self._exact_tails(self.inventory, chosen)
        elif chosen and target.batches is not None:
            sizes = self.state.leading_bytes(chosen.keys())
            found = target.batches.tails(target.reader, chosen, settings, self._leaders, sizes, progress)
        elif chosen:
            found = self.state.estimated_tails(target.reader, chosen, settings, self.prepared.job.now_ms)
        return {tp: disk_facts_row(usages.get(tp), found.get(tp, {})) for tp in facts}

    def bases(self) -> Any | None:
        """Return a frame of each partition's base offsets (``schemas.BASES``); None where nobody wants any."""
        whole = {name for name, one in self.prepared.settings.items() if one.whole_segments}
        rows = [self._led(tp) for tp in self.state.facts if tp.topic in whole]
        if self.inventory is None or not rows:
            return None
        from pyspark.sql import functions as f

        found = bases(self.inventory, self._frame(rows, pa.schema(_LED)))
        return found.select(
            f.lit(self.prepared.cluster).alias("cluster"),
            "topic",
            "partition",
            f.col("bases"),
            f.col("reasons").alias("bases_reasons"),
        )

    def bytes_of(self, decided: Any) -> Any | None:
        """Return a frame of what goes by rows of ``schemas.DECIDED``; None where there is no inventory."""
        if self.inventory is None:
            return None
        from pyspark.sql import functions as f

        leaders = self._frame([self._led(tp) for tp in self.state.facts], pa.schema(_LED))
        mine = decided.where((decided.cluster == self.prepared.cluster) & decided.trim_to.isNotNull())
        trims = mine.select("topic", "partition", "log_start", "trim_to").join(leaders, ["topic", "partition"])
        found = log_bytes(self.inventory, trims)
        return found.withColumn("cluster", f.lit(self.prepared.cluster))

    def decide(self, limits: Any, now_ms: int) -> Iterator[Row]:
        """Carry out R6; yield what it asks of partitions. ``outcomes`` and ``space`` are then known.

        Args:
            limits: this cluster's rows of ``schemas.LIMITS``.
            now_ms: the clock of all cutoffs.
        """
        state, settings = self.state, self.prepared.settings
        self._topics = {row["topic"] for row in limits.where("not skipped").select("topic").distinct().collect()}
        if (missing := state.without_numpy(state.facts.keys())) is not None:
            yield from (self._asked(tp, None, why) for tp, why in missing.items())
            return
        tiered, left_alone = state.tiered(self.prepared.target.reader, self._topics, settings)
        if self.inventory is None:
            trims, most = _collected(limits, tiered)
            found = state.estimated(self.prepared.target.reader, trims, most, now_ms)
            outcomes, asked, unknown = found.outcomes, found.bounds, found.unknown
        else:
            state.say_age(self.inventory.age_ms(now_ms))
            partitions = self._walkable(limits, tiered)
            leaving = state.leaving_bytes()
            with oldest_first(self.inventory, state.disks, state.rules, partitions, leaving) as walked:
                outcomes = walked.outcomes
                asked = {_place(row): row["bound"] for row in walked.bounds.toLocalIterator()}
                unknown = {
                    _place(row): why
                    for row in walked.unknown.toLocalIterator()
                    if (why := unknown_of(row["reasons"])) is not None
                }
        state.settle(outcomes)
        for tp in asked.keys() | unknown.keys():
            yield self._asked(tp, asked.get(tp), None if tp.topic in left_alone else unknown.get(tp))

    def _asked(self, tp: TopicPartition, bound: int | None, stopped: Unknown | None) -> Row:
        asked: Row = {"bound": bound}
        if bound is not None:
            asked["why"] = self.state.why(tp).text
        if stopped is not None:
            asked["reasons"] = reason_rows(stopped)
        return {"cluster": self.prepared.cluster, "topic": tp.topic, "partition": tp.partition, "asked": asked}

    def _walkable(self, limits: Any, tiered: Mapping[str, Unknown]) -> Any:
        """Return the limits as the walk wants them; topics with remote storage may not be touched."""
        from pyspark.sql import functions as f

        rows = [{"topic": name, "tiered": reason_rows(why)} for name, why in tiered.items()]
        stopped = self._frame(rows, pa.schema([("topic", pa.string()), ("tiered", pa.list_(REASON))]))
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

    def _exact_tails(
        self, inventory: SparkInventory, facts: Mapping[TopicPartition, PartitionFacts]
    ) -> dict[TopicPartition, dict[str, Maybe[Tail]]]:
        rows = []
        for tp, one in facts.items():
            settings, start = self.prepared.settings[tp.topic], one.log_start
            row = self._led(tp) | {"max_bytes": settings.max_bytes, "max_topic_bytes": settings.max_topic_bytes}
            said = {"log_start_reasons": reason_rows(start)} if isinstance(start, Unknown) else {"log_start": start}
            rows.append(row | said)
        found: dict[TopicPartition, dict[str, Maybe[Tail]]] = {}
        for row in tails(inventory, self._frame(rows, _SIZED)).toLocalIterator():
            here = found.setdefault(_place(row), {})
            for key, tail, reasons in (
                (BYTES, row["bytes_tail"], row["bytes_reasons"]),
                (TOPIC_BYTES, row["topic_tail"], row["topic_reasons"]),
            ):
                if (why := unknown_of(reasons)) is not None:
                    here[key] = why
                elif tail is not None:
                    here[key] = Tail(tail, exact=True)
        return found

    def _led(self, tp: TopicPartition) -> Row:
        topic_id = known(self.state.facts[tp].topic.topic_id)
        return {
            "topic": tp.topic,
            "partition": tp.partition,
            "topic_id": topic_id,
            "leader": self._leaders[tp].leader,
        }

    def _frame(self, rows: Sequence[Row], schema: pa.Schema) -> Any:
        return as_frame(self.session, pa.Table.from_pylist(list(rows), schema))


def looks_at_disks(prepared: Prepared) -> bool:
    """Return whether a rule speaks of disks, or an inventory is given."""
    return bool(prepared.target.inventory) or needs_disks(prepared.selection.policy)


def look(session: Any, prepared: Prepared) -> ClusterDisks:
    """Look at a cluster's disks, after its commits were read (:func:`looks_at_disks`).

    Raises:
        BrokerError: the brokers could not be asked.
        InventoryError: the inventory can't be used, or is another cluster's.
    """
    policy, target = prepared.selection.policy, prepared.target
    inventory = None
    if target.inventory:
        inventory = read_inventory(session, target.inventory)
        inventory.check_cluster(prepared.cluster)
    facts, leaders = _ends(prepared)
    remembered = Remembered(prepared.memory, prepared.settings, leaders, SYSTEM.wall_ms(), prepared.job.now_ms)
    remembered.open({tp.topic: one.topic.topic_id for tp, one in facts.items()})
    there = {tp: one for tp, one in leaders.items() if one.leader is not None}
    before = {tp: replace(one) for tp, one in remembered.partitions.items()}
    remembered.prove(ask_epochs(target.reader, remembered.epochs_to_check(facts), there), facts)
    prepared.before_cuts = {tp: before[tp] for tp in remembered.cuts}
    prepared.cuts = remembered.cuts
    state = DiskState(policy.disks, exact=inventory is not None)
    state.look(target.reader, facts, prepared.settings, leaders, remembered, SYSTEM.wall_ms)
    return ClusterDisks(session, prepared, state, inventory, leaders)


def with_bases(slices: Any, disks: Iterable[ClusterDisks]) -> Any:
    """Return rows of ``schemas.SLICES`` with the segments' base offsets, where rules want them."""
    for one in disks:
        if (found := one.bases()) is not None:  # an inventory is of one cluster
            return slices.drop(*(name for name, _ in BASES)).join(found, [*PLACE], "left")
    return slices


def with_bytes(decided: Any, disks: Iterable[ClusterDisks]) -> Any:
    """Return rows of ``schemas.DECIDED`` with the bytes that an inventory says; persist them first, for two reads."""
    from pyspark.sql import functions as f

    for one in disks:
        if (found := one.bytes_of(decided)) is not None:  # an inventory is of one cluster
            exact = f.coalesce("exact", "bytes_exact").alias("bytes_exact")
            told = {"bytes": f.coalesce("size", "bytes").alias("bytes"), "bytes_exact": exact}
            return decided.join(found, [*PLACE], "left").select(*(told.get(name, name) for name in decided.columns))
    return decided


def with_asked(session: Any, facts: Any, limits: Any, disks: Sequence[ClusterDisks], now_ms: int) -> Any:
    """Return facts with what R6 asks of them (``schemas.DISK_ASKED``).

    Args:
        session: Spark's.
        facts: rows of ``schemas.FACTS`` with their standing.
        limits: rows of ``schemas.LIMITS``.
        disks: of the clusters whose policy has a ceiling.
        now_ms: the clock of all cutoffs.
    """
    rows = [row for one in disks for row in one.decide(limits.where(limits.cluster == one.prepared.cluster), now_ms)]
    if not rows:
        return facts
    return facts.join(as_frame(session, pa.Table.from_pylist(rows, _ASKED)), [*PLACE], "left")


def _ends(
    prepared: Prepared,
) -> tuple[dict[TopicPartition, PartitionFacts], dict[TopicPartition, PartitionMetadata]]:
    """Read S and H of the partitions that may be touched."""
    job, topics = prepared.job, prepared.metadata.topics
    leaders = {
        TopicPartition(name, number): one
        for name in job.partitions
        for number, one in sorted(topics[name].partitions.items())
    }
    specs: tuple[Spec, ...] = ("earliest", "latest")
    starts, ends = prepared.target.reader.list_offsets([dict.fromkeys(leaders, spec) for spec in specs], leaders)
    about = {name: configured(bare_facts(topics[name]), job.configs.get(name)) for name in job.partitions}
    facts = {
        tp: PartitionFacts(
            topic=about[tp.topic],
            partition=tp.partition,
            log_start=_end("start", starts[tp]),
            high_watermark=_end("high watermark", ends[tp]),
            last_stable_offset=_UNREAD,
            floor=_UNREAD,
            has_leader=one.leader is not None,
        )
        for tp, one in leaders.items()
    }
    return facts, leaders


def _end(name: str, answer: Answer) -> Maybe[int]:
    if isinstance(answer, Found):
        return answer.offset
    error = answer if isinstance(answer, Exception) else "the broker names none"
    return Unknown.because("offsets", f"the {name} could not be read: {error}")


def _collected(
    limits: Any, tiered: Mapping[str, Unknown]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Maybe[Limit]]]:
    """Return where other rules trim to, and how far R6 may go."""
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
