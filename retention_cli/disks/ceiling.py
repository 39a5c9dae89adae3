"""R6: bring each disk under its ceiling, the oldest segments first, whatever the segments were read from. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from retention_cli.core.codes import Code
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Maybe, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.disk import Blocker, Disk, DiskOutcome, above_ceiling, excess_bytes, mostly_others, named
from retention_cli.disks.pending_deletes import Leaving
from retention_cli.disks.segments import Ints, Segments
from retention_cli.disks.water_level import NO_LEVEL, Remaining, in_the_way, water_level
from retention_cli.policy.settings import DiskRules

NO_SEGMENTS: Final = Unknown.because(Code.R6, "the inventory has no segments of it: scan again")
UNMANAGED: Final = Unknown.because(Code.R6, "the policy does not manage it")


@dataclass(frozen=True, slots=True)
class DiskSegments:
    """The segments on the disks: from an inventory, or estimated.

    ``segments.disk`` is the number of a disk, or the number after the last for dirs that no broker reports (any
    longer). Dead segments have no bytes: ``dead_bytes`` are, by disk number, the bytes of those that are likely still
    there. ``covered`` are the (broker, dir) that were scanned; None if no scan is needed. ``doubts`` are, by disk
    number and partition, why a replica's size may include dead bytes.

    ``dated`` is set for an estimate: it returns the segments with their times, given each partition's bound without R6
    and its limit, and the bytes that each disk must lose.
    """

    segments: Segments
    partitions: Sequence[TopicPartition]
    dead_bytes: Ints
    covered: AbstractSet[tuple[int, str]] | None = None
    doubts: Mapping[tuple[int, TopicPartition], Unknown] = field(default_factory=dict)
    dated: Callable[[Segments, Ints, Ints, Ints], Segments] | None = None


@dataclass(frozen=True, slots=True)
class OldestFirst:
    """R6's bounds, for the partitions that it trims, and each disk's outcome.

    ``unknown`` is why R6 could not judge managed partitions on disks that are, or may be, above their ceilings.
    """

    bounds: Mapping[TopicPartition, int]
    outcomes: Sequence[DiskOutcome]
    unknown: Mapping[TopicPartition, Unknown]


def oldest_first(
    found: DiskSegments,
    disks: Sequence[Disk],
    rules: DiskRules,
    starts: Mapping[TopicPartition, int],
    limits: Mapping[TopicPartition, Maybe[Limit]],
    leaving: Sequence[Leaving],
) -> OldestFirst:
    """Return the bounds that bring each disk under its ceiling, the oldest segments first.

    Args:
        found: the segments on the disks.
        disks: all disks that could be read.
        rules: the policy's disk rules; ``percent`` is set.
        starts: the other rules' bounds, or S, of the partitions for which it is known.
        limits: how far R6 may trim the managed partitions. Others are not trimmed.
        leaving: per disk, the bytes that leave it without R6, except those in ``found``.
    """
    names, segments = found.partitions, found.segments
    allowed = [limits.get(tp, UNMANAGED) for tp in names]
    limit = np.array([-1 if isinstance(one, Unknown) else one.offset for one in allowed], dtype=np.int64)
    start = np.array([starts.get(tp, 0) for tp in names], dtype=np.int64)
    unknown = {n: why for n, disk in enumerate(disks) if (why := _unknown(disk, rules, found.covered)) is not None}
    excess = [
        0 if n in unknown or isinstance(disk.room, Unknown) else excess_bytes(disk.room, rules.percent)
        for n, disk in enumerate(disks)
    ]
    dead = found.dead_bytes + np.array([*(one.known_bytes for one in leaving), 0], dtype=np.int64)
    possible = np.array([*(one.uncertain_bytes for one in leaving), 0], dtype=np.int64)
    above = np.array([*excess, 0], dtype=np.int64) - dead - possible
    if found.dated is not None:
        segments = found.dated(segments, start, limit, above)
    result = water_level(segments, start, limit, above)
    blockers = by_key(
        (row.disk, _blocker(row, names[row.partition], allowed[row.partition]))
        for row in in_the_way(segments, result, limit)
    )
    outcomes = [
        DiskOutcome(
            disk=disk,
            percent=rules.percent,
            unknown=unknown.get(n),
            excess_bytes=max(0, excess[n]),
            dead_bytes=int(dead[n]),
            other_rules_bytes=int(result.already_freed[n]),
            freed_bytes=int(result.freed[n]),
            short_bytes=int(result.short[n]),
            level_ms=None if result.level_ms[n] == NO_LEVEL else int(result.level_ms[n]),
            in_the_way=tuple(blockers.get(n, ())),
            estimated=found.dated is not None,
            doubtful_bytes=leaving[n].uncertain_bytes,
            unexplained_bytes=leaving[n].possible_bytes,
        )
        for n, disk in enumerate(disks)
    ]
    present = {names[n] for n in np.unique(segments.partition).tolist()}
    bounds = {names[n]: int(result.bound[n]) for n in np.flatnonzero(result.bound > start).tolist()}
    return OldestFirst(bounds, outcomes, _unknown_partitions(outcomes, limits, found.doubts, present))


def _unknown_partitions(
    outcomes: Sequence[DiskOutcome],
    limits: Mapping[TopicPartition, Maybe[Limit]],
    doubts: Mapping[tuple[int, TopicPartition], Unknown],
    present: AbstractSet[TopicPartition],
) -> dict[TopicPartition, Unknown]:
    """Return why R6 could not judge managed partitions, on disks that are, or may be, above their ceilings."""
    found: dict[TopicPartition, Unknown] = {}
    for n, one in enumerate(outcomes):
        asks = one.excess_bytes > one.dead_bytes + one.other_rules_bytes
        for tp in one.disk.replicas if asks or one.excess_bytes or one.unknown is not None else ():
            if (limit := limits.get(tp)) is None:
                continue
            why = doubts.get((n, tp))
            if one.unknown is not None:
                why = named(one.disk, one.unknown)
            elif asks and tp not in present:
                why = NO_SEGMENTS
            elif asks and why is None:
                why = limit if isinstance(limit, Unknown) else one.waits and named(one.disk, one.waits)
            if why is not None:
                found.setdefault(tp, why)
    return found


def _unknown(disk: Disk, rules: DiskRules, covered: AbstractSet[tuple[int, str]] | None) -> Unknown | None:
    """Return why R6 can't judge a disk, None if it can."""
    if isinstance(disk.room, Unknown):
        return disk.room
    if not above_ceiling(disk, rules):
        return None  # below its ceiling, whoever uses it
    if (others := mostly_others(disk.room, rules)) is not None:
        return others
    missing = [path for path in disk.dirs if covered is not None and (disk.broker, path) not in covered]
    if missing and disk.replicas:
        return Unknown.because(
            Code.R6,
            f"the inventory has nothing of {', '.join(missing)} on broker {disk.broker}: scan it there with kretain "
            "segments scan, by the path that the broker uses",
        )
    return None


def _blocker(row: Remaining, tp: TopicPartition, allowed: Maybe[Limit]) -> Blocker:
    """Return the bytes that stay, with a code and a text for the reason. ``allowed`` is how far R6 may trim."""
    if row.why == "active":
        return Blocker(tp, row.size_bytes, "active", "the active segment frees nothing")
    if isinstance(allowed, Unknown):
        return Blocker(tp, row.size_bytes, allowed.reasons[0].code, allowed.reasons[0].text)
    if row.why == "undated":
        return Blocker(tp, row.size_bytes, "undated", "a segment's newest timestamp is not known")
    return Blocker(tp, row.size_bytes, allowed.guard, allowed.text)
