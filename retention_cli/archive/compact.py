"""Join an archive's small segments: the same records in fewer, larger files.

What is joined is read and verified; the larger segment is written, read back, and gets its manifest; only then the
small ones are deleted. Killed at any step, every record is still in a segment that counts: at worst it is in two, and
the next compaction deletes what is left over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from retention_cli.archive.catalog import ArchivedPartition
from retention_cli.archive.layout import DamagedError, Manifest, Part, checksum_of
from retention_cli.archive.segment import (
    DEFAULT_SIZE,
    SegmentBuilder,
    SegmentSize,
    check_unchanged,
    commit,
    records_of,
    verify_files,
)
from retention_cli.archive.store import Store


@dataclass(frozen=True, slots=True)
class Work:
    """What a compaction does to one partition's segments.

    ``joins`` are runs of adjacent segments, each of which becomes one; ``leftovers`` are pairs of a joined segment and
    one of its parts that is still there, as a compaction was killed before it deleted that.
    """

    joins: tuple[tuple[Manifest, ...], ...] = ()
    leftovers: tuple[tuple[Manifest, Manifest], ...] = ()

    @property
    def removed(self) -> tuple[Manifest, ...]:
        """The segments that this deletes."""
        return tuple(one for join in self.joins for one in join) + tuple(part for _joined, part in self.leftovers)


@dataclass(slots=True)
class Compacted:
    """One partition's result. Each line in ``problems`` names a damaged segment, whose run was left as it was."""

    partition: ArchivedPartition
    written: list[Manifest] = field(default_factory=list)
    deleted: list[Manifest] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def plan_compaction(segments: Iterable[Manifest], size: SegmentSize = DEFAULT_SIZE) -> Work:
    """Return what to join of one partition, so that no segment gets larger than ``size``. Pure.

    Segments are joined if they follow each other without a gap in one log (leader epochs never fall). A segment that
    overlaps another, or is more than half full, is left alone.
    """
    ordered = sorted(segments, key=lambda one: (one.start, one.end))
    known = {(one.start, one.end, checksum_of(one)): one for one in ordered}
    leftovers = tuple(
        (joined, known[part.start, part.end, part.checksum])
        for joined in ordered
        for part in joined.parts
        if (part.start, part.end, part.checksum) in known
    )
    over = {id(part) for _joined, part in leftovers}
    ordered = [one for one in ordered if id(one) not in over]
    crossed = _overlapping(ordered)
    joins: list[tuple[Manifest, ...]] = []
    run: list[Manifest] = []
    for one in ordered:
        small = id(one) not in crossed and _fits((one,), size, share=0.5)
        if run and not (small and _follows(run[-1], one) and _fits((*run, one), size)):
            joins.append(tuple(run))
            run = []
        if small:
            run.append(one)
    joins.append(tuple(run))
    return Work(tuple(join for join in joins if len(join) > 1), leftovers)


def compact(
    store: Store,
    partition: ArchivedPartition,
    work: Work,
    clock: Callable[[], str],
    on_records: Callable[[int], None] = lambda _: None,
) -> Compacted:
    """Join one partition's segments. A run of segments one of which is damaged is left as it is, and named.

    Args:
        store: the archive.
        partition: the partition, as :func:`plan_compaction` had it.
        work: its result.
        clock: returns the current time in the manifests' format.
        on_records: called with the number of records that were written since the last call.

    Raises:
        ArchiveError: the archive can't be read or written any longer. What is done stays.
    """
    done = Compacted(partition)
    for joined, part in work.leftovers:
        try:
            verify_files(store, joined)
            _remove(store, joined, [part])
        except DamagedError as error:
            done.problems.append(f"{error}: the smaller segments of that range are kept")
            continue
        done.deleted.append(part)
    for parts in work.joins:
        try:
            joined = _join(store, parts, clock, on_records)
        except DamagedError as error:
            done.problems.append(f"{error}: other files there are unchanged")
            continue
        done.written.append(joined)
        _remove(store, joined, parts)
        done.deleted += parts
    return done


def _join(
    store: Store, parts: Sequence[Manifest], clock: Callable[[], str], on_records: Callable[[int], None]
) -> Manifest:
    """Write the segment that holds all records of these, with its manifest; both are read back.

    Raises:
        DamagedError: a part is damaged, or changed meanwhile; no manifest was written.
        ArchiveError: reading or writing failed.
    """
    first, last = parts[0], parts[-1]
    building = SegmentBuilder(first.source, first.start)
    for part in parts:
        told = 0
        for record in records_of(store, part):
            building.add(record)
            told += 1
        on_records(told)
    written = building.write(store, last.end, max(one.partitions for one in parts), clock(), last.leader_epoch)
    joined = replace(
        written,
        parts=tuple(Part(one.start, one.end, checksum_of(one)) for one in parts),
        inner=_inner(parts, written),
    )
    if joined.records != sum(one.records for one in parts):
        raise DamagedError(f"{store.shown(joined.path)}: {joined.records:,} records are not those of its parts")
    commit(store, joined)
    return joined


def _inner(parts: Sequence[Manifest], joined: Manifest) -> tuple[tuple[int, int], ...]:
    """Return each leader epoch's last mark, where the joined segment's own do not cover it: none is lost (M1)."""
    latest = {epoch: offset for part in parts for offset, epoch in sorted(part.marks)}
    own = {epoch: offset for offset, epoch in sorted(joined.marks)}
    return tuple(sorted((offset, epoch) for epoch, offset in latest.items() if own.get(epoch, -1) < offset))


def _remove(store: Store, joined: Manifest, parts: Iterable[Manifest]) -> None:
    """Delete segments whose records are all in ``joined``: their files, then their manifests.

    In this order, what a killed run leaves over is still named by a manifest, and the next run finds it. A part that a
    trim has archived anew meanwhile, under the same name, stays: the log may have other records by now.

    Raises:
        DamagedError: the joined segment's manifest is not in the archive.
        ArchiveError: a file can't be deleted.
    """
    check_unchanged(store, joined)
    kept = {one.path for one in joined.files}
    for part in parts:
        for file in part.files:
            if file.path not in kept and _is_still(store, part):
                store.delete(f"{part.source.folder}/{file.path}")
        if _is_still(store, part):
            store.delete(part.path)


def _is_still(store: Store, part: Manifest) -> bool:
    """Return whether a part is as it was read: not archived anew meanwhile, nor deleted by another compaction."""
    try:
        if store.size(part.path) is None:
            return False
        check_unchanged(store, part)
    except DamagedError:
        return False
    return True


def _overlapping(ordered: Sequence[Manifest]) -> set[int]:
    """Return the ids of segments that share offsets with another."""
    found: set[int] = set()
    furthest: Manifest | None = None
    for one in ordered:
        if furthest is not None and one.start < furthest.end:
            found |= {id(one), id(furthest)}
        if furthest is None or one.end > furthest.end:
            furthest = one
    return found


def _follows(before: Manifest, one: Manifest) -> bool:
    """Return whether two segments are adjacent, and of one log as far as their marks show."""
    epochs = [epoch for part in (before, one) for _offset, epoch in sorted(part.marks)]
    return before.end == one.start and all(earlier <= later for earlier, later in pairwise(epochs))


def _fits(parts: Sequence[Manifest], size: SegmentSize, share: float = 1.0) -> bool:
    content, records = sum(one.content_bytes for one in parts), sum(one.records for one in parts)
    return content <= size.content_bytes * share and records <= size.records * share
