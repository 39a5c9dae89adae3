"""One segment of an archive: its file is written, then read back, and only then its manifest is written."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from retention_cli.archive.digest import Digest
from retention_cli.archive.errors import ArchiveError, DamagedError
from retention_cli.archive.layout import (
    FileEntry,
    Manifest,
    Place,
    Source,
    data_path,
    day_of,
    manifest_text,
    place_at,
    read_manifest,
    stored_day,
    with_files,
)
from retention_cli.archive.parquet import as_batch, as_file, read_file
from retention_cli.archive.store import Store
from retention_cli.brokers.content import Record

SEGMENT_BYTES: Final = 64 * 2**20
"""The approximate content of a segment: archiving a partition holds about twice that in memory."""
SEGMENT_RECORDS: Final = 200_000
_WAITING_BYTES: Final = 8 * 2**20
_WAITING_RECORDS: Final = 20_000
"""At most this many records are held as Python objects before they are converted to Arrow."""


@dataclass(slots=True)
class SegmentBuilder:
    """Collects the records of one segment.

    ``start`` is the segment's first offset; ``last`` is the last record's offset and leader epoch; ``epochs`` maps
    each leader epoch to its last offset.
    """

    source: Source
    start: int
    records: int = 0
    content_bytes: int = 0
    min_ms: int | None = None
    max_ms: int | None = None
    last: tuple[int, int | None] | None = None
    epochs: dict[int, int] = field(default_factory=dict)
    _digest: Digest = field(default_factory=Digest)
    _batches: list[Any] = field(default_factory=list)
    _waiting: list[Record] = field(default_factory=list)
    _waiting_bytes: int = 0

    def add(self, record: Record) -> None:
        """Add the next record, in offset order.

        Raises:
            ArchiveError: it is out of order; brokers return records in order.
        """
        if record.offset < self.start or (self.last is not None and record.offset <= self.last[0]):
            raise ArchiveError(f"offset {record.offset:,} came out of order")
        size = self._digest.add(record)
        self._waiting.append(record)
        self._waiting_bytes += size
        if self._waiting_bytes >= _WAITING_BYTES or len(self._waiting) >= _WAITING_RECORDS:
            self._pack()
        self.records += 1
        self.content_bytes += size
        if record.timestamp is not None:
            self.min_ms = record.timestamp if self.min_ms is None else min(self.min_ms, record.timestamp)
            self.max_ms = record.timestamp if self.max_ms is None else max(self.max_ms, record.timestamp)
        self.last = record.offset, record.leader_epoch
        if record.leader_epoch is not None:
            self.epochs[record.leader_epoch] = record.offset

    def write(
        self, store: Store, end: int, partitions: int, written_at: str, leader_epoch: int | None = None
    ) -> Manifest:
        """Write the file, read it back, and return its manifest, which is not yet written. No records, no file.

        Raises:
            ArchiveError: the file can't be written, or differs when read back.
        """
        files = []
        self._pack()
        if self._batches:
            path = data_path(self.source.partition, self.start, end)
            content = as_file(self._batches, self.content_bytes)
            self._batches.clear()
            store.write(f"{self.source.folder}/{path}", content)
            files.append(FileEntry(path, len(content), self._digest.records, self._digest.text))
            del content
        manifest = Manifest(
            source=self.source,
            start=self.start,
            end=end,
            partitions=partitions,
            written_at=written_at,
            content_bytes=self.content_bytes,
            min_ms=self.min_ms,
            max_ms=self.max_ms,
            last_offset=None if self.last is None else self.last[0],
            last_epoch=None if self.last is None else self.last[1],
            leader_epoch=leader_epoch,
        )
        manifest = with_files(manifest, files)
        if manifest.records != self.records:
            raise ArchiveError(f"{manifest.path}: {self.records:,} records came and {manifest.records:,} were written")
        verify_files(store, manifest)
        return manifest

    def _pack(self) -> None:
        if self._waiting:
            self._batches.append(as_batch(self._waiting, self.source))
            self._waiting = []
            self._waiting_bytes = 0


def commit(store: Store, manifest: Manifest) -> None:
    """Write a segment's manifest, which makes the segment count, and read it back.

    Another process that archives the same segment may have written the manifest meanwhile: it then differs only in
    the time and the leader epoch.

    Raises:
        ArchiveError: it can't be written, or differs when read back.
    """
    store.write(manifest.path, manifest_text(manifest).encode())
    found = load(store, place_at(manifest.source, manifest.start, manifest.end))
    if replace(found, written_at=manifest.written_at, leader_epoch=manifest.leader_epoch) != manifest:
        raise ArchiveError(f"{store.shown(manifest.path)} was written, and does not read back as it was")


def load(store: Store, place: Place) -> Manifest:
    """Read a manifest. The files that it lists are not checked.

    Raises:
        DamagedError: it is damaged.
        ArchiveError: it can't be read.
    """
    try:
        return read_manifest(store.read(place.path), place)
    except DamagedError as error:
        raise DamagedError(store.shown(str(error))) from None


def verify_files(
    store: Store, manifest: Manifest, on_records: Callable[[int], None] | None = None, *, only: FileEntry | None = None
) -> None:
    """Read all of a segment's files (or one), and check sizes, counts, checksums, and each record's offset (and day).

    Raises:
        DamagedError: a file differs; the text names the first such file and the difference.
    """
    for file in manifest.files if only is None else (only,):
        for _ in _checked(store, manifest, file, on_records):
            pass


def records_of(store: Store, manifest: Manifest, start: int = 0) -> Iterator[Record]:
    """Yield a segment's records from an offset on, in offset order.

    A file's checksum is compared only after its last record: where damaged records must not be used, call
    :func:`verify_files` first.

    Raises:
        DamagedError: a file differs from the manifest.
    """
    files = [_checked(store, manifest, file, None) for file in manifest.files]
    for record in heapq.merge(*files, key=lambda one: one.offset):
        if record.offset >= start:
            yield record


def _checked(
    store: Store, manifest: Manifest, file: FileEntry, on_records: Callable[[int], None] | None
) -> Iterator[Record]:
    path = f"{manifest.source.folder}/{file.path}"
    shown = store.shown(path)
    size = store.size(path)
    if size is None:
        raise DamagedError(f"{shown} is missing")
    if size != file.size_bytes:
        raise DamagedError(f"{shown} has {size:,} bytes, its manifest says {file.size_bytes:,}")
    digest = Digest()
    day = stored_day(file.path)
    position = manifest.start
    for record in read_file(store, path):
        if not position <= record.offset < manifest.end or (day is not None and day_of(record.timestamp) != day):
            raise DamagedError(f"{shown}: offset {record.offset:,} does not belong there")
        position = record.offset + 1
        try:
            digest.add(record)
        except (KeyError, OverflowError, AttributeError, TypeError, ValueError, struct.error):
            raise DamagedError(f"{shown}: offset {record.offset:,} is no record: the file is damaged") from None
        if on_records is not None and digest.records % 10_000 == 0:
            on_records(10_000)
        yield record
    if on_records is not None:
        on_records(digest.records % 10_000)
    if (digest.records, digest.text) != (file.records, file.checksum):
        raise DamagedError(
            f"{shown}: its checksum is another ({digest.records:,} of {file.records:,} records): it was damaged or "
            f"changed"
        )
