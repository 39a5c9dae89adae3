"""List an archive's contents, partition by partition, verify them, and join small segments into fewer, larger files.

What is joined is read and verified; the larger segment is written, read back, and gets its manifest; only then the
small ones are deleted. Killed at any step, every record is still in a segment that counts: at worst it is in two, and
the next compaction deletes what is left over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

from retention_cli.archive.layout import ArchiveError, DamagedError, Manifest, Part, Source, checksum_of, place_of
from retention_cli.archive.segment import (
    DEFAULT_SIZE,
    SegmentBuilder,
    SegmentSize,
    check_unchanged,
    commit,
    load,
    records_of,
    verify_files,
)
from retention_cli.archive.store import Store
from retention_cli.core.progress import Progress, adding, silent
from retention_cli.policy.model import matches


@dataclass(slots=True)
class ArchivedPartition:
    """One partition's segments in an archive. Each line in ``problems`` describes one damaged file."""

    source: Source
    segments: list[Manifest] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def start(self) -> int | None:
        """The first segment's start offset, None if there are no segments."""
        return min((one.start for one in self.segments), default=None)

    @property
    def end(self) -> int | None:
        """The last segment's end offset (exclusive), None if there are no segments."""
        return max((one.end for one in self.segments), default=None)

    @property
    def records(self) -> int:
        """The number of records; those in two overlapping segments count twice."""
        return sum(one.records for one in self.segments)

    @property
    def files(self) -> int:
        """The number of data files."""
        return sum(len(one.files) for one in self.segments)

    @property
    def size_bytes(self) -> int:
        """The size of the data files in bytes."""
        return sum(one.size_bytes for one in self.segments)

    @property
    def times(self) -> tuple[int | None, int | None]:
        """The smallest and the largest timestamp in Unix ms, each None if no record has one."""
        return (
            min((one.min_ms for one in self.segments if one.min_ms is not None), default=None),
            max((one.max_ms for one in self.segments if one.max_ms is not None), default=None),
        )

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The offset ranges (end exclusive) between segments: never archived, or deleted before they could be."""
        return stitched(self.segments)[1]


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The part of a segment that is used, from ``start`` to ``end`` (exclusive): segments may overlap."""

    manifest: Manifest
    start: int
    end: int


def stitched(segments: Iterable[Manifest]) -> tuple[list[SegmentRange], list[tuple[int, int]]]:
    """Return the ranges that cover one partition's segments without overlap, in order, and the gaps. Pure.

    An offset that several segments contain is in exactly one range.
    """
    ranges: list[SegmentRange] = []
    gaps: list[tuple[int, int]] = []
    position: int | None = None
    for one in sorted(segments, key=lambda one: (one.start, -one.end)):
        if position is not None and one.end <= position:
            continue
        if position is not None and one.start > position:
            gaps.append((position, one.start))
        ranges.append(SegmentRange(one, one.start if position is None else max(one.start, position), one.end))
        position = one.end
    return ranges, gaps


def read_catalog(
    store: Store, topics: Sequence[str] = (), progress: Progress = silent
) -> tuple[list[ArchivedPartition], list[str]]:
    """Read all manifests of the topics (names, globs, ``re:``; all topics if none are given).

    Returns the partitions in order, and the data files that no manifest lists: leftovers of a killed run.

    Raises:
        ArchiveError: nothing exists at the URL, or it can't be listed.
    """
    if not store.exists():
        raise ArchiveError(f"no archive at {store.url.partition('?')[0]}")
    paths = store.files()
    wanted = sorted(
        place
        for path in paths
        if (place := place_of(path)) is not None and (not topics or matches(topics, place.source.topic))
    )
    found: dict[Source, ArchivedPartition] = {}
    named: set[str] = set()
    for number, place in enumerate(wanted):
        progress("reading manifests", number, len(wanted))
        partition = found.setdefault(place.source, ArchivedPartition(place.source))
        try:
            manifest = load(store, place)
        except DamagedError as error:
            partition.problems.append(str(error))
        else:
            partition.segments.append(manifest)
            named.update(f"{place.source.folder}/{one.path}" for one in manifest.files)
    folders = {partition.folder for partition in found}
    loose = [
        path
        for path in paths
        if path.endswith(".parquet") and path not in named and "/".join(path.split("/")[:3]) in folders
    ]
    return [found[source] for source in sorted(found)], loose


def unlisted(found: list[ArchivedPartition], written: Iterable[str], topics: Sequence[str] = ()) -> None:
    """Add to the partitions' ``problems`` the segments that an audit log names and no manifest lists any more.

    Args:
        found: the partitions of an archive; partitions without any segment left are added.
        written: the paths of the manifests that the audit log says were written there.
        topics: as in :func:`read_catalog`.
    """
    by_source = {one.source: one for one in found}
    listed = {place for path in written if (place := place_of(path)) is not None}
    for place in sorted(one for one in listed if not topics or matches(topics, one.source.topic)):
        one = by_source.setdefault(place.source, ArchivedPartition(place.source))
        gaps = [*one.gaps, (0, one.start or 0), (one.end or 0, place.end)]  # segments may have been joined
        lacks = any(max(first, place.start) < min(last, place.end) for first, last in gaps)
        if lacks and not any(place.path in text for text in one.problems):
            one.problems.append(f"{place.path} is missing: by the audit log it was written")
    found[:] = [by_source[source] for source in sorted(by_source)]


def verify_catalog(store: Store, partitions: Iterable[ArchivedPartition], progress: Progress = silent) -> None:
    """Read every file again, and add each difference from its manifest to the partition's ``problems``.

    Raises:
        ArchiveError: the archive can't be reached, or no longer.
    """
    everything = [(one, segment) for one in partitions for segment in one.segments]
    on_records = adding(progress, "verifying", sum(segment.records for _one, segment in everything))
    for one, segment in everything:
        try:
            verify_files(store, segment, on_records)
        except DamagedError as error:
            one.problems.append(str(error))


@dataclass(frozen=True, slots=True)
class Work:
    """What a compaction does to one partition's segments.

    ``joins`` are runs of adjacent segments, each of which becomes one; ``leftovers`` are pairs of a joined segment and
    one of its parts, which a killed compaction did not get to delete.
    """

    joins: tuple[tuple[Manifest, ...], ...] = ()
    leftovers: tuple[tuple[Manifest, Manifest], ...] = ()

    @property
    def removed(self) -> tuple[Manifest, ...]:
        """The segments that this deletes."""
        return tuple(one for join in self.joins for one in join) + tuple(part for _joined, part in self.leftovers)


@dataclass(slots=True)
class Compacted:
    """One partition's result. Each line in ``problems`` names a damaged segment, whose run is left unchanged.

    Those of the partition come first.
    """

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
    """Join one partition's segments. Runs that contain a damaged segment stay as they are, and are named.

    Args:
        store: the archive.
        partition: the partition, as given to :func:`plan_compaction`.
        work: its result.
        clock: returns the current time in the manifests' format.
        on_records: called with the number of records that were written since the last call.

    Raises:
        ArchiveError: the archive can't be read or written any longer. What is done stays.
    """
    done = Compacted(partition, problems=list(partition.problems))
    for joined, part in work.leftovers:
        try:
            verify_files(store, joined)
            _remove(store, joined, [part])
        except DamagedError as error:
            done.problems.append(f"{error}: the smaller segments of that range are kept")
        else:
            done.deleted.append(part)
    for parts in work.joins:
        try:
            joined = _join(store, parts, clock, on_records)
        except DamagedError as error:
            done.problems.append(f"{error}: other files there are unchanged")
        else:
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
        for record in records_of(store, part, on_records=on_records):
            building.add(record)
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

    In this order, what a killed run leaves over is still named by a manifest, and the next run finds it. A part stays
    if a trim has replaced it meanwhile under the same name: the log may have other records by now.

    Raises:
        DamagedError: the joined segment's manifest is not in the archive.
        ArchiveError: a file can't be deleted.
    """
    check_unchanged(store, joined)
    remaining = {one.path for one in joined.files}
    for part in parts:
        for file in part.files:
            if file.path not in remaining and _is_still(store, part):
                store.delete(f"{part.source.folder}/{file.path}")
        if _is_still(store, part):
            store.delete(part.path)


def _is_still(store: Store, part: Manifest) -> bool:
    """Return whether a part is unchanged: not replaced by another trim, and not deleted by another compaction."""
    with suppress(DamagedError):
        if store.size(part.path) is not None:
            check_unchanged(store, part)
            return True
    return False


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
