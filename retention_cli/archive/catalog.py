"""List an archive's contents, partition by partition, and verify them by reading every file again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from retention_cli.archive.layout import ArchiveError, DamagedError, Manifest, Source, place_of
from retention_cli.archive.segment import load, verify_files
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
class Piece:
    """The part of a segment that is used, from ``start`` to ``end`` (exclusive): segments may overlap."""

    manifest: Manifest
    start: int
    end: int


def stitched(segments: Iterable[Manifest]) -> tuple[list[Piece], list[tuple[int, int]]]:
    """Return the pieces that cover one partition's segments without overlap, in order, and the gaps. Pure.

    An offset that several segments contain is in exactly one piece.
    """
    pieces: list[Piece] = []
    gaps: list[tuple[int, int]] = []
    position: int | None = None
    for one in sorted(segments, key=lambda one: (one.start, -one.end)):
        if position is not None and one.end <= position:
            continue
        if position is not None and one.start > position:
            gaps.append((position, one.start))
        start = one.start if position is None else max(one.start, position)
        pieces.append(Piece(one, start, one.end))
        position = one.end
    return pieces, gaps


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
    places = [place for path in paths if (place := place_of(path)) is not None]
    wanted = sorted(place for place in places if not topics or matches(topics, place.source.topic))
    found: dict[Source, ArchivedPartition] = {}
    named: set[str] = set()
    for number, place in enumerate(wanted):
        progress("reading manifests", number, len(wanted))
        partition = found.setdefault(place.source, ArchivedPartition(place.source))
        try:
            manifest = load(store, place)
        except DamagedError as error:
            partition.problems.append(str(error))
            continue
        partition.segments.append(manifest)
        named.update(f"{place.source.folder}/{one.path}" for one in manifest.files)
    folders = {partition.folder for partition in found}
    loose = [
        path
        for path in paths
        if path.endswith(".parquet") and path not in named and "/".join(path.split("/")[:3]) in folders
    ]
    return [found[source] for source in sorted(found)], loose


def verify_catalog(store: Store, partitions: Iterable[ArchivedPartition], progress: Progress = silent) -> None:
    """Read every file again, and add each difference from its manifest to the partition's ``problems``.

    Raises:
        ArchiveError: the archive can't be reached, or no longer.
    """
    everything = [(one, segment) for one in partitions for segment in one.segments]
    whole = sum(segment.records for _one, segment in everything)
    on_records = adding(progress, "verifying", whole)
    for one, segment in everything:
        try:
            verify_files(store, segment, on_records)
        except DamagedError as error:
            one.problems.append(str(error))
