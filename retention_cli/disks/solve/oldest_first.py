"""R6 with an inventory: derive bounds and each disk's outcome from disks and decisions (R6). Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from retention_cli.core.model import Maybe, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.solve.blockers import Remaining, in_the_way
from retention_cli.disks.solve.dead import DeadReplicas, dead_replicas, still_there
from retention_cli.disks.solve.dictionary import EncodedSegments
from retention_cli.disks.solve.leaving import Leaving
from retention_cli.disks.solve.outcome import Blocker, DiskOutcome
from retention_cli.disks.solve.room import Disk, excess_bytes, mostly_others, named
from retention_cli.disks.solve.segments import NO_END, Flags, Ints, Segments
from retention_cli.disks.solve.water_level import NO_LEVEL, WaterLevel, water_level, wholly_below
from retention_cli.policy.settings import DiskRules

NO_SEGMENTS: Final = Unknown.because("R6", "the inventory has no segments of it: scan again")
NOTHING_HELD: Final[Mapping[TopicPartition, Unknown]] = {}
UNMANAGED: Final = Unknown.because("R6", "the policy does not manage it")


@dataclass(frozen=True, slots=True)
class SegmentTable:
    """The segments on the disks, and what is unknown of them.

    ``incomplete`` maps replicas (broker, topic, partition) of which something is unknown to the reason. ``ours`` is,
    for each row, whether its topic id is the cluster's current one: another topic's leftovers free nothing.
    ``log_bytes`` are the log files' bytes without indexes, as in the sizes that brokers report. ``covered`` are the
    (broker, dir) that were scanned, including those without segments.
    """

    encoded: EncodedSegments
    log_bytes: Ints
    incomplete: Mapping[tuple[int, str, int], str]
    ours: Flags
    covered: frozenset[tuple[int, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class OldestFirst:
    """R6's bounds, for the partitions that it trims, and each disk's outcome.

    ``unknown`` is why R6 could not judge managed partitions on disks that are, or may be, above their ceilings.
    """

    bounds: Mapping[TopicPartition, int]
    outcomes: Sequence[DiskOutcome]
    unknown: Mapping[TopicPartition, Unknown]


def oldest_first(
    segment_table: SegmentTable,
    disks: Sequence[Disk],
    rules: DiskRules,
    log_starts: Mapping[TopicPartition, int],
    decided: Mapping[TopicPartition, int],
    limits: Mapping[TopicPartition, Maybe[Limit]],
    leaving: Sequence[Leaving] = (),
    held: Mapping[TopicPartition, Unknown] = NOTHING_HELD,
) -> OldestFirst:
    """Return the bounds that bring each disk under its ceiling, the oldest segments first.

    Args:
        segment_table: the inventory's segments.
        disks: all disks that could be read.
        rules: the policy's disk rules; ``percent`` is set.
        log_starts: S of the partitions for which it is known.
        decided: the other rules' bounds, of the partitions that they trim.
        limits: how far R6 may trim the managed partitions. Others are not trimmed.
        leaving: per disk, the bytes that leave it without R6.
        held: partitions that may not be trimmed, and why.
    """
    encoded = segment_table.encoded
    names, dirs = encoded.partitions, encoded.dirs
    known_dirs = {(disk.broker, path): n for n, disk in enumerate(disks) for path in disk.dirs}
    nowhere = len(disks)  # for dirs that no broker reports (any longer)
    segments = encoded.on_disks([known_dirs.get((one.broker, one.path), nowhere) for one in dirs])
    if not segment_table.ours.all():
        segments = replace(segments, next_offset=np.where(segment_table.ours, segments.next_offset, NO_END))
    blocked: dict[int, Unknown] = {}
    limit = np.full(len(names), -1, dtype=np.int64)
    broken = {**broken_partitions(segment_table.incomplete), **held}
    for number, tp in enumerate(names):
        allowed = broken.get(tp) or limits.get(tp, UNMANAGED)
        if isinstance(allowed, Unknown):
            blocked[number] = allowed
        else:
            limit[number] = allowed.offset
    starts = np.array([log_starts.get(tp, 0) for tp in names], dtype=np.int64)
    start = np.array([max(log_starts.get(tp, 0), decided.get(tp, 0)) for tp in names], dtype=np.int64)
    unknown, above = above_ceilings(disks, rules, {*segment_table.covered, *((one.broker, one.path) for one in dirs)})
    excess = np.array([*above, 0], dtype=np.int64)
    scanned = np.zeros(len(names), dtype=np.bool_)
    scanned[segments.partition] = True
    below = wholly_below(segments, starts)
    dead = dead_bytes(dead_replicas(segments, segment_table.log_bytes, below), names, disks)
    if below.any():  # they are wholly below every bound, and counted already
        segments = replace(segments, size_bytes=np.where(below, 0, segments.size_bytes))
    del below
    possible = np.zeros(len(disks) + 1, dtype=np.int64)
    for n, away in enumerate(leaving):
        dead[n] += away.known_bytes
        possible[n] = away.uncertain_bytes
    result = water_level(segments, start, limit, excess - dead - possible)
    bounds = {names[n]: int(result.bound[n]) for n in np.flatnonzero(result.bound > start).tolist()}
    blockers = _blockers(segments, result, limit, names, blocked, limits)
    freed = FreedBytes(dead, result.already_freed, result.freed, result.short, result.level_ms)
    outcomes = outcomes_of(disks, rules, unknown, excess, leaving, freed, blockers)
    stopped = {names[n]: why for n, why in blocked.items()}
    present = frozenset(names[n] for n in np.flatnonzero(scanned).tolist())
    return OldestFirst(bounds, outcomes, unknown_partitions(outcomes, limits, stopped, present.__contains__))


def broken_partitions(incomplete: Mapping[tuple[int, str, int], str]) -> dict[TopicPartition, Unknown]:
    """Return why partitions can't be judged: something is unknown of one of their replicas."""
    return {
        TopicPartition(topic, partition): Unknown.because("R6", f"broker {broker}'s inventory: {why}")
        for (broker, topic, partition), why in incomplete.items()
    }


def unknown_partitions(
    outcomes: Sequence[DiskOutcome],
    managed: Container[TopicPartition],
    stopped: Mapping[TopicPartition, Unknown],
    present: Callable[[TopicPartition], bool],
) -> dict[TopicPartition, Unknown]:
    """Return why R6 could not judge managed partitions, on disks that are, or may be, above their ceilings.

    Args:
        outcomes: the result for each disk.
        managed: the partitions that R6 may trim.
        stopped: the inventory's partitions that it must not trim, or of which that is unknown, with the reason.
        present: returns whether the inventory has any segment of a partition.
    """
    found: dict[TopicPartition, Unknown] = {}
    for one in outcomes:
        if not concerned(one):
            continue
        for tp in one.disk.replicas:
            if tp not in managed:
                continue
            if one.unknown is not None:
                why: Unknown | None = named(one.disk, one.unknown)
            elif not present(tp):
                why = NO_SEGMENTS
            else:
                why = stopped.get(tp) or (None if one.waits is None else named(one.disk, one.waits))
            if why is not None:
                found.setdefault(tp, why)
    return found


def concerned(one: DiskOutcome) -> bool:
    """Return whether R6 has, or may have, to free bytes on a disk."""
    return one.unknown is not None or one.excess_bytes > one.dead_bytes + one.other_rules_bytes


def above_ceilings(
    disks: Sequence[Disk], rules: DiskRules, covered: AbstractSet[tuple[int, str]]
) -> tuple[dict[int, Unknown], list[int]]:
    """Return, by disk number, why R6 can't judge a disk, and each disk's excess bytes (0 if it can't be judged).

    Args:
        disks: all disks that could be read.
        rules: the policy's disk rules.
        covered: the (broker, dir) that the inventory covers.
    """
    percent = 100.0 if rules.percent is None else rules.percent
    unknown = {n: why for n, disk in enumerate(disks) if (why := _unknown(disk, rules, covered)) is not None}
    above = [
        0 if n in unknown or isinstance(disk.room, Unknown) else excess_bytes(disk.room, percent)
        for n, disk in enumerate(disks)
    ]
    return unknown, above


def _unknown(disk: Disk, rules: DiskRules, covered: AbstractSet[tuple[int, str]]) -> Unknown | None:
    """Return why R6 can't judge a disk, None if it can."""
    if isinstance(disk.room, Unknown):
        return disk.room
    if excess_bytes(disk.room, 100.0 if rules.percent is None else rules.percent) <= 0:
        return None  # below its ceiling, whoever uses it
    if (others := mostly_others(disk.room, rules)) is not None:
        return others
    missing = [path for path in disk.dirs if (disk.broker, path) not in covered]
    if missing and disk.replicas:
        return Unknown.because(
            "R6",
            f"the inventory has nothing of {', '.join(missing)} on broker {disk.broker}: scan it there with kretain "
            "segments scan, by the path that the broker uses",
        )
    return None


def dead_bytes(found: DeadReplicas, names: Sequence[TopicPartition], disks: Sequence[Disk]) -> Ints:
    """Return, by disk number, how many dead bytes are likely still on the disk; the last number is no disk's.

    Args:
        found: the replicas with dead segments.
        names: the partitions by number.
        disks: all disks, with their replicas' current sizes.
    """
    total = np.zeros(len(disks) + 1, dtype=np.int64)
    for disk, partition, below, above in zip(*(column.tolist() for column in found), strict=True):
        if disk < len(disks):
            total[disk] += still_there(below, above, disks[disk].replicas.get(names[partition], 0))
    return total


def _blockers(
    segments: Segments,
    result: WaterLevel,
    limit: Ints,
    names: Sequence[TopicPartition],
    blocked: Mapping[int, Unknown],
    limits: Mapping[TopicPartition, Maybe[Limit]],
) -> dict[int, list[Blocker]]:
    found: dict[int, list[Blocker]] = {}
    for one in in_the_way(segments, result, limit):
        found.setdefault(one.disk, []).append(_blocker(one, names[one.partition], blocked.get(one.partition), limits))
    return found


def _blocker(
    one: Remaining, tp: TopicPartition, blocked: Unknown | None, limits: Mapping[TopicPartition, Maybe[Limit]]
) -> Blocker:
    return blocker(tp, one.size_bytes, one.why, blocked or limits.get(tp, UNMANAGED))


def blocker(tp: TopicPartition, size_bytes: int, why: str, allowed: Maybe[Limit]) -> Blocker:
    """Return the bytes that stay, with a code and a text for the reason.

    Args:
        tp: the partition.
        size_bytes: how many of its bytes stay.
        why: as in :class:`~retention_cli.disks.solve.blockers.Remaining`.
        allowed: how far R6 may trim the partition.
    """
    if why == "active":
        return Blocker(tp, size_bytes, "active", "the active segment frees nothing")
    if isinstance(allowed, Unknown):
        return Blocker(tp, size_bytes, allowed.reasons[0].code, allowed.reasons[0].text)
    if why == "undated":
        return Blocker(tp, size_bytes, "undated", "a segment's newest timestamp is not known")
    return Blocker(tp, size_bytes, allowed.guard, allowed.text)


class FreedBytes(NamedTuple):
    """The bytes that leave each disk, by disk number; as in ``DiskOutcome``. ``level_ms``: ``NO_LEVEL`` for none."""

    dead: Ints
    other_rules: Ints
    freed: Ints
    short: Ints
    level_ms: Ints


def outcomes_of(
    disks: Sequence[Disk],
    rules: DiskRules,
    unknown: Mapping[int, Unknown],
    excess: Ints,
    leaving: Sequence[Leaving],
    freed: FreedBytes,
    blockers: Mapping[int, Sequence[Blocker]],
) -> list[DiskOutcome]:
    """Return what R6 comes to on each disk.

    Args:
        disks: all disks that could be read.
        rules: the policy's disk rules.
        unknown: why disks can't be judged, by disk number.
        excess: the bytes by which each disk is above its ceiling.
        leaving: per disk, the bytes that leave it without R6.
        freed: the bytes that leave each disk.
        blockers: the bytes that stay on the disks that are short, the largest first.
    """
    away = [*leaving, *(Leaving() for _ in disks)]
    return [
        DiskOutcome(
            disk=disk,
            percent=rules.percent,
            unknown=unknown.get(n),
            excess_bytes=max(0, int(excess[n])),
            dead_bytes=int(freed.dead[n]),
            other_rules_bytes=int(freed.other_rules[n]),
            freed_bytes=int(freed.freed[n]),
            short_bytes=0 if n in unknown else int(freed.short[n]),
            level_ms=None if int(freed.level_ms[n]) == NO_LEVEL else int(freed.level_ms[n]),
            in_the_way=tuple(blockers.get(n, ())),
            doubtful_bytes=away[n].uncertain_bytes,
            unexplained_bytes=away[n].possible_bytes,
        )
        for n, disk in enumerate(disks)
    ]
