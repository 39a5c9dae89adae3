"""Check from this machine what another machine archived, by comparing its report with the archive as seen from here.

The same path may be on another disk on the other machine, and an archive that this client can't see does not count.
The other machine read its files back record by record; this one compares their bytes, as equal bytes hold equal
records.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from retention_cli.archive.catalog import stitched
from retention_cli.archive.layout import ArchiveError, DamagedError, Manifest, Place, Source, checksum_of
from retention_cli.archive.segment import load, verify_files
from retention_cli.archive.store import Store, digest_of
from retention_cli.archive.writer import Archived
from retention_cli.core.extras import arrow


class NotingStore(Store):
    """A store that remembers a checksum of each file's bytes when the file was last compared with its manifest."""

    def __init__(self, url: str, keys: Sequence[str] = ()) -> None:
        super().__init__(url, keys=keys)
        self._noted: dict[str, str] = {}

    @contextlib.contextmanager
    def raw(self, path: str) -> Iterator[Any]:
        """See :meth:`Store.raw`. The file is read once, so the checksum is of the bytes that are compared."""
        content = self.read(path)
        self._noted[path] = digest_of(content)
        yield arrow().BufferReader(content)

    def report(self, done: Archived) -> RemoteReport:
        """Return the report for a partition that was archived through this store."""
        said = []
        for one in done.segments:
            files = {file.path: self._noted.get(f"{one.source.folder}/{file.path}", "") for file in one.files}
            said.append(ReportedSegment(one.start, one.end, substance(one), files))
        return RemoteReport(done.start, tuple(said), done.notes)


@dataclass(frozen=True, slots=True)
class ReportedSegment:
    """A segment that another machine read back: checksums of its manifest, and of its files' bytes by path."""

    start: int
    end: int
    manifest: str
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoteReport:
    """The segments of a partition that another machine archived; its log began at ``start``."""

    start: int
    segments: tuple[ReportedSegment, ...] = ()
    notes: tuple[str, ...] = ()

    def as_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RemoteReport:
        """Return the report that :meth:`as_json` wrote."""
        said = json.loads(text)
        return cls(said["start"], tuple(ReportedSegment(**one) for one in said["segments"]), tuple(said["notes"]))


class StoppedError(ArchiveError):
    """The check was interrupted."""


def substance(manifest: Manifest) -> str:
    """Return a checksum over a manifest, ignoring when it was written. Pure."""
    return checksum_of(replace(manifest, written_at="-"))


def check_report(
    store: Store, source: Source, end: int, report: RemoteReport, stopped: Callable[[], bool] = lambda: False
) -> Archived:
    """Compare another machine's report on a partition with the archive as seen from here; return what is there.

    The range covered is determined by the manifests alone: from the end of the last gap between them to at least
    ``end``. Before trimming, the caller must check that the log starts there or later.

    Args:
        store: this machine's own view of the archive.
        source: the partition that was to be archived.
        end: the offset (exclusive) up to which it was to be archived.
        report: the other machine's report.
        stopped: returns whether to give up.

    Raises:
        ArchiveError: something differs from the report; the text names it.
        StoppedError: ``stopped`` returned true.
    """
    manifests = []
    for one in report.segments:
        manifest = load(store, Place(source, one.start, one.end))
        if substance(manifest) != one.manifest:
            raise DamagedError(f"{store.shown(manifest.path)} differs from what was written")
        for file in manifest.files:
            if stopped():
                raise StoppedError("interrupted")
            if store.digest(f"{source.folder}/{file.path}") != one.files.get(file.path):
                verify_files(store, manifest)  # other bytes may hold the same records
        manifests.append(manifest)
    pieces, gaps = stitched(manifests)
    if not pieces and report.start >= end:  # the log no longer had any of it; the next recheck will find that
        return Archived(source, store.url, end, end, notes=report.notes)
    reached = pieces[-1].end if pieces else report.start
    if reached < end:
        raise ArchiveError(f"{store.shown(source.manifests)} goes to {reached:,} alone, and not to {end:,}")
    start = gaps[-1][1] if gaps else pieces[0].start
    return Archived(source, store.url, start, reached, found=tuple(manifests), notes=report.notes)
