"""The layout of an archive, and the manifest that makes a segment count. Pure.

Below an archive's URL::

    cluster=ID/topic=NAME/topic_id=ID/
        partition=3/00000000000000000000-00000000000000120000.parquet
        _manifests/partition=3/00000000000000000000-00000000000000120000.json

A segment holds the data records of one partition from one offset to another (exclusive), in one file. Its name is
derived from the partition and the two offsets, so writing a segment again writes the same file. The manifest is
written last; a file that no manifest lists does not count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote, unquote

from pydantic import Field, TypeAdapter

FORMAT: Final = "kretain.archive/v1"
Text = Annotated[str, Field(strict=True, min_length=1)]
Count = Annotated[int, Field(strict=True, ge=0)]
StrictInt = Annotated[int, Field(strict=True)]
KeyId = Annotated[str, Field(strict=True, pattern=r"^([0-9a-f]{16})?$")]
_MANIFESTS: Final = "_manifests"
_MANIFEST_PATH: Final = re.compile(
    r"cluster=(?P<cluster>[^/]+)/topic=(?P<topic>[^/]+)/topic_id=(?P<id>[^/]+)/_manifests/"
    r"partition=(?P<partition>[0-9]+)/(?P<start>[0-9]{20})-(?P<end>[0-9]{20})\.json"
)


class ArchiveError(Exception):
    """An archive could not be reached, read or written."""


class DamagedError(ArchiveError):
    """A file of an archive is missing, or differs from its manifest."""


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """The partition that records come from. The topic id excludes another topic of the same name."""

    cluster_id: Text
    topic: Text
    topic_id: Text
    partition: Count

    @property
    def folder(self) -> str:
        """The topic's folder, relative to the archive's URL."""
        return f"cluster={_quoted(self.cluster_id)}/topic={_quoted(self.topic)}/topic_id={_quoted(self.topic_id)}"

    @property
    def manifests(self) -> str:
        """The folder of the partition's manifests, relative to the archive's URL."""
        return f"{self.folder}/{_MANIFESTS}/partition={self.partition}"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """The file of a segment: its path in the topic's folder, size, number of records, and their checksum.

    ``key`` is the id of the key that it is encrypted with, "" if it is not.
    """

    path: Text
    size_bytes: Count
    records: Count
    checksum: Text
    key: KeyId = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A segment that was joined to a larger one: its range, and a checksum of its manifest (:func:`checksum_of`)."""

    start: Count
    end: Count
    checksum: Text


@dataclass(frozen=True, slots=True)
class Manifest:
    """A segment's contents: every data record of its partition from ``start`` to ``end`` (exclusive).

    ``partitions`` is the topic's partition count. ``last_offset`` and ``last_epoch`` are the last record's, None if
    there is no record, or no epoch. ``leader_epoch`` is the partition's when the log was read: between the last record
    and ``end``, only it identifies the log (M1).
    ``min_ms`` and ``max_ms`` are the smallest and largest timestamp (Unix ms).
    ``parts`` are the segments that this one was joined from, and ``inner`` their marks.
    """

    source: Source
    start: Count
    end: Count
    partitions: Count
    written_at: Text
    leader_epoch: StrictInt
    records: Count = 0
    content_bytes: Count = 0
    min_ms: StrictInt | None = None
    max_ms: StrictInt | None = None
    last_offset: StrictInt | None = None
    last_epoch: StrictInt | None = None
    files: tuple[FileEntry, ...] = ()
    parts: tuple[Part, ...] = ()
    inner: tuple[tuple[Count, Count], ...] = ()

    @property
    def place(self) -> Place:
        """Where the manifest belongs."""
        return Place(self.source, self.start, self.end)

    @property
    def path(self) -> str:
        """The manifest's path, relative to the archive's URL."""
        return self.place.path

    @property
    def size_bytes(self) -> int:
        """The size of the segment's files in bytes."""
        return sum(one.size_bytes for one in self.files)

    @property
    def marks(self) -> tuple[tuple[int, int], ...]:
        """The (offset, leader epoch) pairs that identify the log: it must still have all of them. By offset."""
        last = () if self.last_offset is None or self.last_epoch is None else ((self.last_offset, self.last_epoch),)
        return (*self.inner, *last, (self.end - 1, self.leader_epoch))


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A segment: its partition and offsets (``end`` exclusive)."""

    source: Source
    start: int
    end: int

    @property
    def path(self) -> str:
        """The path of its manifest, relative to the archive's URL."""
        return f"{self.source.manifests}/{_span(self.start, self.end)}.json"


_FORM: Final = TypeAdapter(Manifest)


def data_path(partition: int, start: int, end: int) -> str:
    """Return a data file's path, relative to its topic's folder."""
    return f"partition={partition}/{_span(start, end)}.parquet"


def place_of(path: str) -> Place | None:
    """Parse a manifest's path; return None if it is not one."""
    if (match := _MANIFEST_PATH.fullmatch(path)) is None:
        return None
    source = Source(unquote(match["cluster"]), unquote(match["topic"]), unquote(match["id"]), int(match["partition"]))
    place = Place(source, int(match["start"]), int(match["end"]))
    return place if place.path == path else None


def checksum_of(manifest: Manifest) -> str:
    """Return the checksum that the manifest's text includes."""
    return body_checksum(_body(manifest))


def manifest_text(manifest: Manifest) -> str:
    """Return the manifest as JSON, including a checksum over the rest of it."""
    body = _body(manifest)
    return json.dumps({**body, "checksum": body_checksum(body)}, indent=1, ensure_ascii=False) + "\n"


def read_manifest(text: bytes, place: Place) -> Manifest:
    """Parse a manifest and validate it.

    Raises:
        DamagedError: kretain did not write it, or it belongs at another place.
    """
    try:
        data = json.loads(text)
        body = {key: value for key, value in data.items() if key != "checksum"}
        if data["format"] != FORMAT:
            raise DamagedError(f"{place.path}: is of the format {str(data['format'])[:40]!r}, not {FORMAT}")
        if data["checksum"] != body_checksum(body):
            raise DamagedError(f"{place.path}: its checksum differs: it was damaged or changed")
        manifest = _manifest(data)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise DamagedError(f"{place.path}: is not a kretain manifest") from None
    if manifest.place != place:
        raise DamagedError(f"{place.path}: is for another place: {manifest.path}")
    if manifest.records != sum(one.records for one in manifest.files):
        raise DamagedError(f"{place.path}: its counts do not add up")
    return manifest


def _body(one: Manifest) -> dict[str, Any]:
    parts = [{"from": part.start, "to": part.end, "checksum": part.checksum} for part in one.parts]
    return {
        "format": FORMAT,
        "cluster": one.source.cluster_id,
        "topic": one.source.topic,
        "topic_id": one.source.topic_id,
        "partition": one.source.partition,
        "partitions": one.partitions,
        "from": one.start,
        "to": one.end,
        "records": one.records,
        "content_bytes": one.content_bytes,
        "min_timestamp": one.min_ms,
        "max_timestamp": one.max_ms,
        "last_offset": one.last_offset,
        "last_leader_epoch": one.last_epoch,
        "leader_epoch": one.leader_epoch,
        "written_at": one.written_at,
        "files": [
            {"path": file.path, "bytes": file.size_bytes, "records": file.records, "checksum": file.checksum}
            | ({"key": file.key} if file.key else {})
            for file in one.files
        ],
        **({"parts": parts, "marks": [list(mark) for mark in one.inner]} if parts else {}),  # of a joined one
    }


def _manifest(data: Mapping[str, Any]) -> Manifest:
    path = data_path(data["partition"], data["from"], data["to"])
    if any(file["path"] != path for file in data["files"]) or len(data["files"]) > 1:
        raise ValueError(path)  # a manifest is input, and may name another segment's file
    return _FORM.validate_python(
        {
            "source": {
                "cluster_id": data["cluster"],
                "topic": data["topic"],
                "topic_id": data["topic_id"],
                "partition": data["partition"],
            },
            "start": data["from"],
            "end": data["to"],
            "partitions": data["partitions"],
            "written_at": data["written_at"],
            "leader_epoch": data["leader_epoch"],
            "records": data["records"],
            "content_bytes": data["content_bytes"],
            "min_ms": data["min_timestamp"],
            "max_ms": data["max_timestamp"],
            "last_offset": data["last_offset"],
            "last_epoch": data["last_leader_epoch"],
            "files": [{**file, "size_bytes": file["bytes"]} for file in data["files"]],
            "parts": [{**part, "start": part["from"], "end": part["to"]} for part in data.get("parts", ())],
            "inner": data.get("marks", ()),
        }
    )


def body_checksum(body: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON document: neither order nor spaces in its text count."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"blake2b:{hashlib.blake2b(text.encode(), digest_size=32).hexdigest()}"


def _span(start: int, end: int) -> str:
    return f"{start:020d}-{end:020d}"


def _quoted(name: str) -> str:
    return quote(name, safe="-_") if name.strip(".") == "" else quote(name, safe="-_.")
