"""What an archive holds, partition by partition, and verifying it by reading all of it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from retention_cli.archive.errors import ArchiveError, DamagedError
from retention_cli.archive.layout import Manifest, Source, place_of
from retention_cli.archive.segment import load, verify_files
from retention_cli.archive.store import Store
from retention_cli.core.progress import Progress, silent
from retention_cli.policy.model import matches


@dataclass(slots=True)
class ArchivedPartition:
    """What an archive holds of one partition. ``problems`` are lines that name what is damaged."""

    source: Source
    segments: list[Manifest] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def start(self) -> int | None:
        """Where its first segment begins."""
        return min((one.start for one in self.segments), default=None)

    @property
    def end(self) -> int | None:
        """Where its last segment ends."""
        return max((one.end for one in self.segments), default=None)

    @property
    def records(self) -> int:
        """How many records there are; records in two overlapping segments count twice."""
        return sum(one.records for one in self.segments)

    @property
    def files(self) -> int:
        """How many data files it has."""
        return sum(len(one.files) for one in self.segments)

    @property
    def size_bytes(self) -> int:
        """The size of its files in bytes."""
        return sum(one.size_bytes for one in self.segments)

    @property
    def times(self) -> tuple[int | None, int | None]:
        """The smallest and the largest timestamp, Unix ms."""
        return (
            min((one.min_ms for one in self.segments if one.min_ms is not None), default=None),
            max((one.max_ms for one in self.segments if one.max_ms is not None), default=None),
        )

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The offset ranges between segments: never archived, or deleted before they could be."""
        return stitched(self.segments)[1]


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a segment that is used, as segments may overlap: from ``start`` to ``end`` (exclusive)."""

    manifest: Manifest
    start: int
    end: int


def stitched(segments: Iterable[Manifest]) -> tuple[list[Piece], list[tuple[int, int]]]:
    """Lay segments of one partition end to end; return the pieces in order, and the gaps between them. Pure.

    No offset is in two pieces. An offset in several segments is taken from one of them.
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
    """Read all manifests of the topics (names, globs, ``re:``; all if none are given), partition by partition.

    Returns the partitions in order, and the files that no manifest names: leftovers of a killed run.

    Raises:
        ArchiveError: there is nothing at the URL, or it can't be listed.
    """
    if not store.exists():
        raise ArchiveError(f"there is no archive at {store.url.partition('?')[0]}")
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
    """Read every file again, and add to each partition's ``problems`` what differs from its manifest.

    Raises:
        ArchiveError: the archive can't be reached (any longer).
    """
    everything = [(one, segment) for one in partitions for segment in one.segments]
    whole = sum(segment.records for _one, segment in everything)
    done = 0

    def on_records(more: int) -> None:
        nonlocal done
        done += more
        progress("verifying", done, whole)

    for one, segment in everything:
        one.problems += _problems(store, segment, on_records)


def _problems(store: Store, segment: Manifest, on_records: Callable[[int], None]) -> list[str]:
    """Return what is wrong with each of a segment's files."""
    found = []
    for file in segment.files:
        try:
            verify_files(store, segment, on_records, only=file)
        except DamagedError as error:
            found.append(str(error))
    return found
