"""What was archived on another machine, looked at from this one: its word is compared with what is seen from here.

A path there may be another disk than the same path here, and an archive that the client does not see is none. What
the other has read back by its records is compared here by its bytes: the same bytes hold the same records.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from retention_cli.archive.catalog import stitched
from retention_cli.archive.errors import ArchiveError, DamagedError
from retention_cli.archive.layout import Manifest, Source, manifest_text, place_at
from retention_cli.archive.segment import load, verify_files
from retention_cli.archive.store import Store, digest_of
from retention_cli.archive.writer import Archived
from retention_cli.core.extras import arrow


class NotingStore(Store):
    """A store that notes which bytes each file had when it was last read to be compared with its manifest."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._noted: dict[str, str] = {}

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[Any]:
        """See :meth:`Store.opened`. The file is read at once, so that what is noted is what is compared."""
        content = self.read(path)
        self._noted[path] = digest_of(content)
        yield arrow().BufferReader(content)

    def word_on(self, done: Archived) -> RemoteReport:
        """Return what is to be told of a partition that was archived through this store."""
        said = []
        for one in done.segments:
            files = {file.path: self._noted.get(f"{one.source.folder}/{file.path}", "") for file in one.files}
            said.append(ReportedSegment(one.start, one.end, substance(one), files))
        return RemoteReport(done.start, tuple(said), done.notes)


@dataclass(frozen=True, slots=True)
class ReportedSegment:
    """A segment that another has read back: its manifest's checksum, and those of its files' bytes, by their paths."""

    start: int
    end: int
    manifest: str
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoteReport:
    """What another has archived of a partition, whose log began at ``start``."""

    start: int
    segments: tuple[ReportedSegment, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """Every data record from ``start`` to ``end`` (exclusive) lies in these segments, as seen from here."""

    start: int
    end: int
    manifests: tuple[Manifest, ...]


class StoppedError(ArchiveError):
    """Looking was interrupted."""


def substance(manifest: Manifest) -> str:
    """Return a checksum over all that a manifest says, but for when it was written. Pure."""
    text = manifest_text(replace(manifest, written_at="-"))
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def look(
    store: Store, source: Source, end: int, word: RemoteReport, stopped: Callable[[], bool] = lambda: False
) -> Seen:
    """Compare another's word on a partition with what is seen from here.

    What is covered is told by the manifests alone: from behind the last offset that none of them has, to ``end`` at
    the least. Whoever trims must find the log beginning there or later.

    Args:
        store: this machine's own view of the archive.
        source: the partition that was to be archived.
        end: up to which offset (exclusive).
        word: what the other said.
        stopped: whether to give up.

    Raises:
        ArchiveError: not all of it is there as it was said; the text says what is not.
        StoppedError: it was given up.
    """
    manifests = []
    for one in word.segments:
        manifest = load(store, place_at(source, one.start, one.end))
        if substance(manifest) != one.manifest:
            raise DamagedError(f"{store.shown(manifest.path)} is another one than was written")
        for file in manifest.files:
            if stopped():
                raise StoppedError("interrupted")
            if store.digest(f"{source.folder}/{file.path}") != one.files.get(file.path):
                verify_files(store, manifest, only=file)  # other bytes may hold the same records
        manifests.append(manifest)
    pieces, gaps = stitched(manifests)
    if not pieces and word.start >= end:  # nothing of it was in the log any more; that is for the next recheck to see
        return Seen(end, end, ())
    reached = pieces[-1].end if pieces else word.start
    if reached < end:
        raise ArchiveError(f"{store.shown(source.manifests)} goes to {reached:,} alone, and not to {end:,}")
    return Seen(gaps[-1][1] if gaps else pieces[0].start, reached, tuple(manifests))
