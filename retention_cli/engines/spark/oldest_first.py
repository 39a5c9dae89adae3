"""R6 with an inventory, over Spark: the result of :mod:`retention_cli.disks.solve.oldest_first`, by its functions (R6).

Segments were shuffled by slab when they were read, and stay there: three passes over them, with what the walk can reach
shuffled once more, by disk (:mod:`retention_cli.engines.spark.walk_slabs`). This process gets a row per disk, the
largest blockers, and a row per partition that is trimmed or that has dead segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from retention_cli.core.model import Maybe, Reason, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.inventory.inventory import InventoryError
from retention_cli.disks.solve.blockers import WHY
from retention_cli.disks.solve.dead import still_there
from retention_cli.disks.solve.leaving import Leaving
from retention_cli.disks.solve.oldest_first import (
    NOTHING_HELD,
    UNMANAGED,
    FreedBytes,
    OldestFirst,
    above_ceilings,
    blocker,
    broken_partitions,
    concerned,
    outcomes_of,
    unknown_partitions,
)
from retention_cli.disks.solve.outcome import SHOWN, Blocker, DiskOutcome
from retention_cli.disks.solve.room import Disk
from retention_cli.disks.solve.segments import NO_END, Ints, add_up
from retention_cli.disks.solve.steps import Steps, reach, total
from retention_cli.disks.solve.water_level import NO_LEVEL
from retention_cli.engines.spark.frames import as_frame
from retention_cli.engines.spark.inventory import SparkInventory
from retention_cli.engines.spark.parcels import PARCELS, joined
from retention_cli.engines.spark.schemas import ddl
from retention_cli.engines.spark.shuffle_keys import keys
from retention_cli.engines.spark.slabs import Dirs, by_slab, of_kind, parcels_by_slab, solved
from retention_cli.engines.spark.walk_disks import join_first, join_last, walker
from retention_cli.engines.spark.walk_rows import (
    DISK,
    FIRST,
    LAST,
    OF_BROKEN,
    OF_FACTS,
    OF_TRIMS,
    PARTITION,
    REPLICA,
    STEP,
)
from retention_cli.engines.spark.walk_slabs import candidates, first_pass, last_pass
from retention_cli.policy.settings import DiskRules

TP: Final = ("topic", "partition")
_UNTOLD: Final = Unknown.because("R6", "how far it may go is not known")
_JOINING: Final = 4
"""How many tasks join what slabs come to."""
_SLABS_A_WALK: Final = 4
"""The candidates in reach of how many slabs a task walks."""


def oldest_first(
    inventory: SparkInventory,
    disks: Sequence[Disk],
    rules: DiskRules,
    partitions: Any,
    leaving: Sequence[Leaving] = (),
    held: Mapping[TopicPartition, Unknown] = NOTHING_HELD,
) -> OldestFirst:
    """Return the bounds that bring each disk under its ceiling, the oldest segments first.

    As :meth:`Walk.oldest_first` of a :class:`Walk` with these arguments.
    """
    with Walk(inventory, disks, rules, partitions, held) as work:
        return work.oldest_first(leaving)


@dataclass(slots=True)
class _First:
    """The first pass, by disk number: bytes below S that are still there, those of other rules' trims, candidates."""

    dead: Ints
    gone: Ints
    steps: Steps
    absent: frozenset[TopicPartition]


@dataclass(slots=True)
class _Last:
    """The last pass: bounds, and by disk number all bytes freed, levels, and what stays on disks that are short."""

    bounds: dict[TopicPartition, int]
    freed: Ints
    level: Ints
    stays: dict[int, list[tuple[TopicPartition, int, str]]] = field(default_factory=dict)
    many: dict[int, int] = field(default_factory=dict)


class Walk:
    """R6's walk over an inventory, which can be repeated. A context manager: on exit it frees the frames Spark keeps.

    Args:
        inventory: the cluster's inventory.
        disks: all disks that could be read.
        rules: the policy's disk rules; ``percent`` is set.
        partitions: a frame of topic, partition, topic_id, managed (bool: R6 may trim it), log_start, trim_to (the other
            rules' bound), limit_offset, limit_guard, limit_text (how far R6 may trim), limit_reasons
            (array<struct<code,text>>: why that is unknown); all but the first two may be null. One row each. Partitions
            that are only in the inventory are not managed.
        held: partitions that must not be trimmed, and why.
    """

    def __init__(
        self,
        inventory: SparkInventory,
        disks: Sequence[Disk],
        rules: DiskRules,
        partitions: Any,
        held: Mapping[TopicPartition, Unknown] = NOTHING_HELD,
    ) -> None:
        self._inventory, self._disks, self._rules, self._partitions = inventory, disks, rules, partitions
        self._broken = {**broken_partitions(inventory.incomplete), **held}
        self._dirs: Dirs = {(disk.broker, path): n for n, disk in enumerate(disks) for path in disk.dirs}
        self._unknown, excess = above_ceilings(disks, rules, inventory.dirs)
        self._excess: Ints = np.array([*excess, 0], dtype=np.int64)
        self._facts = self._facts_of_partitions().persist()
        self._once: _First | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._facts.unpersist()

    def oldest_first(self, leaving: Sequence[Leaving] = ()) -> OldestFirst:
        """Return the bounds that bring each disk under its ceiling, the oldest segments first.

        The outcomes have each disk's largest blockers (:data:`~retention_cli.disks.solve.outcome.SHOWN`), and count the
        others.

        Args:
            leaving: per disk, what is leaving it other than a live replica's bytes.

        Raises:
            InventoryError: the inventory changed while it was read, or ``partitions`` has a partition twice.
        """
        if self._once is None:
            self._once = self._first()
        first = self._once
        dead, possible = first.dead.copy(), np.zeros_like(first.dead)
        for n, away in enumerate(leaving):
            dead[n] += away.known_bytes
            possible[n] = away.uncertain_bytes
        remaining = self._excess - dead - possible - first.gone
        # what goes for another disk's sake is a candidate of this disk, too: so all of them tell whether it is short
        short = np.maximum(0, remaining - total(first.steps, len(remaining)))
        last = _Last({}, first.gone, np.full(len(remaining), NO_LEVEL))
        if (remaining > 0).any():
            last = self._last(remaining, reach(first.steps, remaining), short)
        rest = np.maximum(0, remaining - (last.freed - first.gone))
        freed = FreedBytes(dead, first.gone, last.freed - first.gone, rest, last.level)
        told = (self._disks, self._rules, self._unknown, self._excess, leaving, freed)
        outcomes = outcomes_of(*told, blockers={})
        limits = self._limits(outcomes, {tp for some in last.stays.values() for tp, _, _ in some})
        allowed = {**limits, **self._broken}
        blockers = {n: [_blocker(one, allowed) for one in some] for n, some in last.stays.items()}
        unnamed = {n: max(0, many - SHOWN) for n, many in last.many.items()}
        stopped = {tp: one for tp, one in limits.items() if isinstance(one, Unknown)}
        managed = limits.keys() | first.absent
        unknown = unknown_partitions(outcomes, managed, stopped, lambda tp: tp not in first.absent)
        return OldestFirst(last.bounds, outcomes_of(*told, blockers, unnamed), unknown)

    def _facts_of_partitions(self) -> Any:
        """Return how far each partition may be trimmed: -1 if it must not be, or if that is unknown."""
        from pyspark.sql import functions as f

        known = f.col("managed") & f.col("limit_reasons").isNull()
        log_start = _offset("log_start", 0)
        facts = self._partitions.select(
            *TP,
            f.col("topic_id").alias("wanted_id"),
            f.coalesce("managed", f.lit(False)).alias("managed"),
            log_start.alias("log_start"),
            f.greatest(log_start, _offset("trim_to", 0)).alias("start"),
            f.when(known, _offset("limit_offset", -1)).otherwise(-1).cast("bigint").alias("limit"),
        )
        found = by_slab(facts, self._inventory.keys, OF_FACTS)
        if self._broken:
            broken = pa.Table.from_batches([parcels_by_slab(_places(self._broken), self._inventory.keys)])
            found = found.unionByName(of_kind(as_frame(self._session, broken), OF_BROKEN))
        return found

    @property
    def _session(self) -> Any:
        return self._inventory.slabs.sparkSession

    def _first(self) -> _First:
        groups = keys(min(_JOINING, len(self._inventory.keys)))
        found = solved(self._inventory.slabs, self._facts, first_pass(self._dirs, self._excess > 0, groups), PARCELS)
        rows = _by_kind(joined(found, len(groups), join_first, FIRST))
        disks, steps, replicas = rows[DISK], rows[STEP], rows[REPLICA]
        self._check(disks)
        count = len(self._excess)
        dead = np.zeros(count, dtype=np.int64)
        some = zip(*_lists(replicas, "disk"), _tps(replicas), *_lists(replicas, "below", "above"), strict=True)
        for n, tp, below, above in some:
            if n < len(self._disks):
                dead[n] += still_there(below, above, self._disks[n].replicas.get(tp, 0))
        gone = add_up(disks["gone"].to_numpy(), disks["disk"].to_numpy(), count)
        of_steps = Steps(*(steps[name].to_numpy() for name in ("disk", "age", "bytes")))
        return _First(dead, gone, of_steps, frozenset(_tps(rows[PARTITION])))

    def _last(self, remaining: Ints, youngest: Ints, short: Ints) -> _Last:
        slabs, dirs = self._inventory.slabs, self._dirs
        walks = keys(max(1, min(len(self._inventory.keys) // _SLABS_A_WALK, len(self._disks))))
        groups = keys(min(_JOINING, len(self._inventory.keys)))
        going = solved(slabs, self._facts, candidates(dirs, remaining, youngest, walks), PARCELS)
        walked = going.repartition(len(walks), "key").mapInArrow(walker(remaining, self._inventory.keys), ddl(PARCELS))
        told = self._facts.unionByName(of_kind(walked, OF_TRIMS))
        trimmed = solved(slabs, told, last_pass(dirs, short > 0, groups), PARCELS)
        rows = _by_kind(joined(trimmed, len(groups), join_last, LAST))
        disks, replicas, partitions = rows[DISK], rows[REPLICA], rows[PARTITION]
        self._check(disks)
        freed, level = np.zeros_like(remaining), np.full(len(remaining), NO_LEVEL)
        disk = disks["disk"].to_numpy()
        freed[disk], level[disk] = disks["freed"].to_numpy(), disks["level"].to_numpy()
        found = _Last(dict(zip(_tps(partitions), *_lists(partitions, "bound"), strict=True)), freed, level)
        found.many = {n: many for n, many in zip(*_lists(disks, "disk", "many"), strict=True) if many}
        some = zip(*_lists(replicas, "disk"), _tps(replicas), *_lists(replicas, "bytes", "why"), strict=True)
        for n, tp, size, why in sorted(some, key=lambda one: (one[0], -one[2], one[1], one[3])):
            found.stays.setdefault(n, []).append((tp, size, WHY[why]))
        return found

    def _check(self, of_disks: Any) -> None:
        seen, rows = sum(of_disks["rows"].to_pylist()), self._inventory.rows
        if seen != rows:
            raise InventoryError(
                f"the inventory had {rows:,} rows and has {seen:,} now: it was changed while it was read"
            )

    def _limits(
        self, outcomes: Sequence[DiskOutcome], named: set[TopicPartition]
    ) -> dict[TopicPartition, Maybe[Limit]]:
        """Return how far R6 may trim managed partitions: those whose limit is unknown, those that are named, or all.

        All are needed if a disk's result is unknown: so is that of all partitions on it.
        """
        from pyspark.sql import functions as f

        judged = [one for one in outcomes if concerned(one)]
        if not judged and not named:
            return {}
        rows = self._partitions.where("managed")
        if all(one.unknown is None and one.waits is None for one in judged):
            wanted = f.col("limit_reasons").isNotNull() | f.col("limit_offset").isNull()
            if asked := named | self._broken.keys():
                places = f.broadcast(as_frame(self._session, _places(asked)).withColumn("asked", f.lit(True)))
                rows, wanted = rows.join(places, [*TP], "left"), wanted | f.col("asked").isNotNull()
            rows = rows.where(wanted)
        columns = ("limit_offset", "limit_guard", "limit_text", "limit_reasons")
        found = rows.select(*TP, *columns).toArrow()
        limits = map(_limit, *_lists(found, *columns))
        return {tp: self._broken.get(tp) or one for tp, one in zip(_tps(found), limits, strict=True)}


def _offset(name: str, instead: int) -> Any:
    """Return an offset (``instead`` if it is null) that is below the end of a segment whose end is unknown."""
    from pyspark.sql import functions as f

    return f.least(f.coalesce(name, f.lit(instead)), f.lit(NO_END - 1)).cast("bigint")


def _places(tps: Iterable[TopicPartition]) -> Any:
    some = [*tps]
    topics = pa.array([tp.topic for tp in some], pa.string())
    return pa.table({"topic": topics, "partition": pa.array([tp.partition for tp in some], pa.int32())})


def _by_kind(table: Any) -> dict[int, Any]:
    """Return a table's rows by kind."""
    kinds = table["kind"].to_numpy()
    return {kind: table.filter(pa.array(kinds == kind)) for kind in (DISK, STEP, REPLICA, PARTITION)}


def _lists(table: Any, *names: str) -> list[list[Any]]:
    return [table[name].to_pylist() for name in names]


def _tps(table: Any) -> list[TopicPartition]:
    return list(map(TopicPartition, *_lists(table, *TP)))


def _blocker(one: tuple[TopicPartition, int, str], allowed: Mapping[TopicPartition, Maybe[Limit]]) -> Blocker:
    tp, size_bytes, why = one
    return blocker(tp, size_bytes, why, allowed.get(tp, UNMANAGED))


def _limit(offset: int | None, guard: Any, text: str, reasons: Sequence[Mapping[str, str]] | None) -> Maybe[Limit]:
    if reasons:
        return Unknown(tuple(Reason(one["code"], one["text"]) for one in reasons))
    if reasons is not None or offset is None:
        return _UNTOLD
    return Limit(offset, guard, text)
