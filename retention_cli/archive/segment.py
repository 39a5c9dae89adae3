"""One segment of an archive: its file is written, then read back, and only then its manifest is written.

Records become Parquet and come back without loss: the same values and order, null distinct from empty. Their checksum
does not depend on how they are stored: each record has one canonical encoding, and no two different records share one.
Numbers have a fixed width there, all other fields are prefixed with their length.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from retention_cli.archive.layout import (
    ArchiveError,
    DamagedError,
    FileEntry,
    Manifest,
    Place,
    Source,
    data_path,
    manifest_text,
    read_manifest,
)
from retention_cli.archive.store import KeyMissingError, Store
from retention_cli.brokers.records import Record
from retention_cli.core.extras import arrow
from retention_cli.core.file_problems import parquet_problem

_WAITING_BYTES: Final = 8 * 2**20
_WAITING_RECORDS: Final = 20_000
"""At most this many records are held as Python objects before they are converted to Arrow."""
ROW_GROUP_BYTES: Final = 8 * 2**20
"""The approximate content of a row group: reading back holds one in memory at a time."""
_ROWS_AT_ONCE: Final = 10_000
_FIXED: Final = struct.Struct(">q?i?qB")
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_TYPES: Final = {None: 0, "CreateTime": 1, "LogAppendTime": 2}


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """When a segment counts as full. Archiving a partition holds about twice its content in memory."""

    content_bytes: int = 64 * 2**20
    records: int = 200_000


DEFAULT_SIZE: Final = SegmentSize()


def encoded(record: Record) -> bytes:
    """Return the record's canonical encoding."""
    offset, epoch, stamp, kind, key, value, headers = record
    length = _LENGTH.pack
    parts = [
        _FIXED.pack(offset, epoch is not None, epoch or 0, stamp is not None, stamp or 0, _TYPES[kind]),
        _NULL if key is None else length(len(key)) + key,
        _NULL if value is None else length(len(value)) + value,
        length(len(headers)),
    ]
    for name, content in headers:
        named = name.encode()
        parts += (length(len(named)), named, _NULL if content is None else length(len(content)) + content)
    return b"".join(parts)


def _new_checksum() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=32)


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
    _checksum: hashlib.blake2b = field(default_factory=_new_checksum)
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
        content = encoded(record)
        size = len(content)
        self._checksum.update(content)
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

    def write(self, store: Store, end: int, partitions: int, written_at: str, leader_epoch: int) -> Manifest:
        """Write the file, read it back, and return its manifest, which is not yet written. No records, no file.

        Raises:
            ArchiveError: the file can't be written, or differs when read back.
        """
        files: tuple[FileEntry, ...] = ()
        self._pack()
        if self._batches:
            path = data_path(self.source.partition, self.start, end)
            content = as_file(self._batches, self.content_bytes)
            self._batches.clear()
            place, keys = f"{self.source.folder}/{path}", store.keys
            content = keys.sealed(place, content)
            store.write(place, content)
            checksum = keys.covered(f"blake2b:{self._checksum.hexdigest()}", keys.newest, store.shown(place))
            files = (FileEntry(path, len(content), self.records, checksum, keys.newest),)
            del content
        manifest = Manifest(
            source=self.source,
            start=self.start,
            end=end,
            partitions=partitions,
            written_at=written_at,
            records=self.records,
            content_bytes=self.content_bytes,
            min_ms=self.min_ms,
            max_ms=self.max_ms,
            last_offset=None if self.last is None else self.last[0],
            last_epoch=None if self.last is None else self.last[1],
            leader_epoch=leader_epoch,
            files=files,
        )
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
    found = load(store, manifest.place)
    if replace(found, written_at=manifest.written_at, leader_epoch=manifest.leader_epoch) != manifest:
        raise ArchiveError(f"{store.shown(manifest.path)} was written, and reads back differently")


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


def check_unchanged(store: Store, manifest: Manifest) -> None:
    """Check that the archive still has this very manifest.

    Raises:
        DamagedError: it has another one.
        ArchiveError: it can't be read.
    """
    if load(store, manifest.place) != manifest:
        raise DamagedError(f"{store.shown(manifest.path)} differs from what was written")


def verify_files(store: Store, manifest: Manifest, on_records: Callable[[int], None] = lambda _: None) -> None:
    """Read a segment's file, and check its size, count, checksum, and each record's offset.

    Raises:
        DamagedError: the file differs; the text names it and the difference.
    """
    for _ in records_of(store, manifest, on_records=on_records):
        pass


def records_of(
    store: Store, manifest: Manifest, start: int = 0, on_records: Callable[[int], None] = lambda _: None
) -> Iterator[Record]:
    """Yield a segment's records from an offset on, in offset order. ``on_records`` is called with how many were read.

    The file's checksum is compared only after its last record: where damaged records must not be used, call
    :func:`verify_files` first.

    Raises:
        DamagedError: the file differs from the manifest.
    """
    for file in manifest.files:
        path = f"{manifest.source.folder}/{file.path}"
        shown, size = store.shown(path), store.size(path)
        if size is None:
            raise DamagedError(f"{shown} is missing")
        if size != file.size_bytes:
            raise DamagedError(f"{shown} has {size:,} bytes, its manifest says {file.size_bytes:,}")
        checksum, records, position = _new_checksum(), 0, manifest.start
        for record in read_file(store, path, file.key):
            if not position <= record.offset < manifest.end:
                raise DamagedError(f"{shown}: offset {record.offset:,} does not belong there")
            position = record.offset + 1
            try:
                checksum.update(encoded(record))
            except (KeyError, OverflowError, AttributeError, TypeError, ValueError, struct.error):
                raise DamagedError(f"{shown}: offset {record.offset:,} is not a record: the file is damaged") from None
            records += 1
            if records % 10_000 == 0:
                on_records(10_000)
            if record.offset >= start:
                yield record
        on_records(records % 10_000)
        covered = store.keys.covered(f"blake2b:{checksum.hexdigest()}", file.key, shown)
        if (records, covered) != (file.records, file.checksum):
            raise DamagedError(
                f"{shown}: its checksum differs ({records:,} of {file.records:,} records): it was damaged or changed"
            )


def schema() -> Any:
    """Return the files' schema. ``timestamp`` is Unix ms, as on the broker."""
    pa = arrow()
    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("leader_epoch", pa.int32()),
            pa.field("timestamp", pa.int64()),
            pa.field("timestamp_type", pa.string()),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(header), nullable=False),
            pa.field("topic_id", pa.string(), nullable=False),
        ]
    )


def as_batch(records: Sequence[Record], source: Source) -> Any:
    """Return records as one Arrow batch."""
    pa = arrow()
    columns: dict[str, Sequence[Any]] = {
        **dict(zip(Record._fields, zip(*records, strict=True), strict=True)),
        "headers": [[{"key": name, "value": value} for name, value in one.headers] for one in records],
        "partition": [source.partition] * len(records),
        "topic_id": [source.topic_id] * len(records),
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in schema()], schema=schema()
    )


def as_file(batches: Sequence[Any], content_bytes: int) -> Any:
    """Return batches as the bytes of one Parquet file; ``content_bytes`` is the approximate size of their content."""
    pa, pq = arrow(), arrow("pyarrow.parquet")
    table = pa.Table.from_batches(batches, schema=schema())
    groups = max(1, -(-content_bytes // ROW_GROUP_BYTES))
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        row_group_size=max(1, -(-table.num_rows // groups)),
        use_dictionary=["partition", "leader_epoch", "timestamp_type", "topic_id"],
        write_statistics=["offset", "timestamp"],
        store_schema=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


def read_file(store: Store, path: str, key_id: str = "") -> Iterator[Record]:
    """Read a file's records in file order, a few thousand at a time.

    Raises:
        KeyMissingError: it is encrypted with a key that was not given.
        DamagedError: the file is missing, or is not a file that kretain wrote.
    """
    pa, pq = arrow(), arrow("pyarrow.parquet")
    try:
        with store.opened(path, key_id) as opened:
            file = pq.ParquetFile(opened, page_checksum_verification=True)
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=list(Record._fields)):
                for offset, epoch, stamp, kind, key, value, headers in zip(
                    *(batch.column(name).to_pylist() for name in Record._fields), strict=True
                ):
                    yield Record(
                        offset, epoch, stamp, kind, key, value, tuple((one["key"], one["value"]) for one in headers)
                    )
    except KeyMissingError:
        raise
    except ArchiveError as error:  # the store's: a read that fails midway may mean a damaged file, too
        raise DamagedError(str(error)) from None
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise DamagedError(f"{store.shown(path)} is damaged: {parquet_problem(error)}") from None
