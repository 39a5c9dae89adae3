"""R6's walk by slabs of whole partitions, in tasks (R6): what leaves without R6, what may go, and what goes in the end.

Three passes, by the functions that walk in one process; between tasks all of it is parcels.

1. :func:`first_pass`: what leaves each disk without R6, and how old its candidates are, in few steps.
2. :func:`candidates`: those that the walk can reach. :mod:`retention_cli.engines.spark.walk_disks` walks them.
3. :func:`last_pass`: what the walk's trims free on each disk, and what stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from retention_cli.disks.solve.ages import ages
from retention_cli.disks.solve.blockers import largest_first, stays
from retention_cli.disks.solve.dead import dead_replicas, dead_segments
from retention_cli.disks.solve.segments import NO_END, Flags, Ints, Segments, add_up
from retention_cli.disks.solve.steps import steps_of
from retention_cli.disks.solve.walk import candidates_of, narrow
from retention_cli.disks.solve.water_level import NO_LEVEL, bytes_on, wholly_below
from retention_cli.engines.spark.parcels import begins, rows_of
from retention_cli.engines.spark.slabs import Dirs, Partitions, Slab, Solve, equal_texts, partitions_of
from retention_cli.engines.spark.walk_rows import (
    DISK,
    FACTS,
    FIRST,
    GOING,
    LAST,
    OF_BROKEN,
    OF_FACTS,
    OF_TRIMS,
    PARTITION,
    REPLICA,
    by_disk,
    largest,
    of_disks,
    rows_of_kind,
)

_STEPS: Final = 8
"""In how many steps a slab tells how old a disk's candidates are."""


class Live(NamedTuple):
    """A slab with its partitions' facts, and its segments without dead ones.

    ``numbers`` are the partition numbers of the rows of other tables, by kind. ``held`` is the number of all segments
    by disk number, ``dead`` a mask of the dead ones of ``every`` one; ``gone`` one of ``segments`` that the other rules
    trim. ``absent`` are the numbers of managed partitions without segments.
    """

    partitions: Partitions
    numbers: Mapping[int, Ints]
    every: Segments
    log_bytes: Ints
    dead: Flags
    segments: Segments
    gone: Flags
    start: Ints
    limit: Ints
    held: Ints
    absent: Ints


def _live(slab: Slab, others: Mapping[int, Any], dirs: Dirs, disks: int) -> Live:
    """Open a slab.

    Args:
        slab: the slab.
        others: the other tables of its partitions, by kind.
        dirs: the disks' numbers.
        disks: how many there are; the number of dirs that are on none.
    """
    tables = {OF_FACTS: FACTS.empty_table(), **others}
    facts = tables[OF_FACTS]
    names = partitions_of(slab.runs, *tables.values())
    of_runs, *rest = names.numbers
    numbers = dict(zip(tables, rest, strict=True))
    of_facts, count = numbers[OF_FACTS], len(names)

    def fact(name: str, instead: int) -> Ints:
        found = np.full(count, instead, dtype=np.int64)
        found[of_facts] = facts[name].to_numpy()
        return found

    told = np.full(count, -1)
    told[of_facts] = np.arange(len(facts))
    known = [*facts["wanted_id"].to_pylist(), None]
    wanted = pa.array([known[n] for n in told[of_runs].tolist()], pa.string())
    ours = equal_texts(slab.runs["topic_id"], wanted)
    segments = slab.on_disks(slab.disks(dirs, disks), of_runs)
    if not ours.all():
        segments.next_offset[~np.repeat(ours, slab.counts)] = NO_END
    dead = dead_segments(segments, fact("log_start", 0))
    live = segments.take(np.flatnonzero(~dead)) if dead.any() else segments
    start = fact("start", 0)
    # a partition that is named twice counts twice: the number of all segments shows it
    times = np.maximum(1, np.bincount(of_facts, minlength=count))
    held = add_up(times[segments.partition], segments.disk, disks + 1)
    present = np.zeros(count, dtype=np.bool_)
    present[of_runs] = True
    absent = np.flatnonzero((fact("managed", 0) > 0) & ~present)
    gone = wholly_below(live, start)
    limit = fact("limit", -1)
    if OF_BROKEN in numbers:
        limit[numbers[OF_BROKEN]] = -1
    return Live(names, numbers, segments, slab.segments.log_bytes, dead, live, gone, start, limit, held, absent)


def first_pass(dirs: Dirs, above: Flags, keys: Ints) -> Solve:
    """Return what a task makes of a slab: rows of :data:`FIRST` in parcels, by groups of disks.

    Args:
        dirs: the disks' numbers.
        above: by disk number, whether a disk is above its ceiling; the last one is for dirs that no disk has.
        keys: the groups' keys.
    """

    def solve(slab: Slab, others: Mapping[int, Any]) -> Any:
        live = _live(slab, others, dirs, len(above) - 1)
        rows, age, _ = ages(live.segments, live.gone, live.limit, above)
        driving = above[live.segments.disk[rows]]
        rows, age = rows[driving], age[driving]
        steps = steps_of(live.segments.disk[rows], age, live.segments.size_bytes[rows], _STEPS)
        disk = np.flatnonzero(live.held)
        gone = bytes_on(live.segments, live.gone, len(above))
        dead = dead_replicas(live.every, live.log_bytes, live.dead)
        names, of_replicas = live.partitions.names, {"below": dead.below_bytes, "above": dead.above_bytes}
        found = [
            of_disks(disk, live.held[disk], gone[disk], steps),
            rows_of_kind(FIRST, REPLICA, dead.disk, **names(dead.partition), **of_replicas),
            rows_of_kind(FIRST, PARTITION, np.arange(len(live.absent)), **names(live.absent)),
        ]
        return by_disk(pa.concat_tables(found), keys)

    return solve


def candidates(dirs: Dirs, remaining: Ints, youngest: Ints, keys: Ints) -> Solve:
    """Return what a task makes of a slab: rows of :data:`GOING` in parcels, by groups of disks.

    Args:
        dirs: the disks' numbers.
        remaining: by disk number, the bytes that R6 must free.
        youngest: by disk number, the age that the walk does not exceed.
        keys: the groups' keys.
    """

    def solve(slab: Slab, others: Mapping[int, Any]) -> Any:
        live = _live(slab, others, dirs, len(remaining) - 1)
        rows, age, _ = ages(live.segments, live.gone, live.limit, remaining > 0)
        disk = live.segments.disk[rows]
        reached = np.flatnonzero((remaining[disk] > 0) & (age <= youngest[disk]))
        found = candidates_of(live.segments, rows[reached], age[reached])
        found = found.take(np.argsort(narrow(found.disk), kind="stable"))  # ages are by (partition, next offset)
        first = np.flatnonzero(begins(found.disk, found.partition))
        offsets = pa.array(np.append(first, len(found.disk)).astype(np.int32))
        lists = {"next": found.next_offset, "bytes": found.size_bytes, "age": found.age}
        going = rows_of(
            GOING,
            len(first),
            disk=found.disk[first],
            **live.partitions.names(found.partition[first]),
            **{name: pa.ListArray.from_arrays(offsets, pa.array(one.astype(np.int64))) for name, one in lists.items()},
        )
        return by_disk(going, keys)

    return solve


def last_pass(dirs: Dirs, short: Flags, keys: Ints) -> Solve:
    """Return what a task makes of a slab and its :data:`WALKED`: rows of :data:`LAST` in parcels, by groups of disks.

    Args:
        dirs: the disks' numbers.
        short: by disk number, whether R6 can't free enough on it; the last one is for dirs that no disk has.
        keys: the groups' keys.
    """
    count = len(short)

    def solve(slab: Slab, others: Mapping[int, Any]) -> Any:
        live = _live(slab, others, dirs, count - 1)
        bound, level = live.start.copy(), np.full(count, NO_LEVEL, dtype=np.int64)
        if (trims := others.get(OF_TRIMS)) is not None:
            np.maximum.at(bound, live.numbers[OF_TRIMS], trims["next"].to_numpy())
            np.maximum.at(level, trims["disk"].to_numpy(), trims["age"].to_numpy())
        found = largest_first(stays(live.segments, bound, live.limit, short))
        many = np.bincount(found.disk, minlength=count)
        freed = bytes_on(live.segments, wholly_below(live.segments, bound), count)
        disk = np.flatnonzero(live.held)
        few = largest(found.disk)
        trimmed = np.flatnonzero(bound > live.start)
        sums = {"rows": live.held, "freed": freed, "level": level, "many": many}
        of_replicas = {"why": found.why[few], "bytes": found.size_bytes[few]}
        names = live.partitions.names
        rows = [
            rows_of_kind(LAST, DISK, disk, **{name: column[disk] for name, column in sums.items()}),
            rows_of_kind(LAST, REPLICA, found.disk[few], **names(found.partition[few]), **of_replicas),
            rows_of_kind(LAST, PARTITION, np.arange(len(trimmed)), **names(trimmed), bound=bound[trimmed]),
        ]
        return by_disk(pa.concat_tables(rows), keys)

    return solve
