"""The messages of the topic ``_kretain_state``: one document per key, whole and merged (docs/memory.md). Pure.

====================  =================================================================================
key                   value
====================  =================================================================================
``TOPICID``           partitions 0 to 31 of that topic id; ``TOPICID/1`` the next 32, and so on
``group:NAME``        a consumer group: its commits that counted, those that are gone, those that are refused
``disk:NAME``         a broker's disk: how much of it was in use, and when
``clock``             only a stamp, by which a trim compares clocks (G8)
====================  =================================================================================

A value is two lines of JSON, compressed with zlib: a :class:`Written`, and the document.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeVar

from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from retention_cli.memory.disk import LOOK_BYTES, DiskMemory
from retention_cli.memory.event_scan import read_scan
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.interface import Int64
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.replica import ROW_BYTES
from retention_cli.memory.samples import SAMPLE_BYTES

T = TypeVar("T")
VERSION: Final = 4
PARTITIONS_A_DOCUMENT: Final = 32
"""Keeps a message below 500 kB in practice, and below a broker's limit at worst."""
_AT_MOST_BYTES: Final = 1 << 26
CLOCK_KEY: Final = "clock"
"""The key of messages without a document, of which only the stamp counts."""
_GROUP: Final = "group:"
_DISK: Final = "disk:"
_TOPIC_KEY: Final = re.compile(r"([A-Za-z0-9_-]{22})(?:/(\d{1,6}))?", re.ASCII)


class DocumentError(ValueError):
    """A message that is not a valid document; the text says why."""


class NewerDocumentError(DocumentError):
    """A document that a newer kretain wrote."""


@dataclass(frozen=True, slots=True)
class Written:
    """When a document was written, by the writer's clock, when its ledger was begun (Unix ms), and in which version.

    Every later version must keep these fields: by them an older kretain knows that a newer one wrote it, and holds.
    """

    at_ms: Int64
    since_ms: Int64
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class TopicDocument:
    """Some partitions of a topic id, and when the topic was last seen (Unix ms).

    ``widths`` are those of the topic, in the document of its first partitions, if it has grown.
    """

    topic_id: str
    name: str
    seen_ms: Int64
    partitions: Mapping[int, PartitionMemory] = field(default_factory=dict)
    widths: tuple[tuple[Int64, Int64], ...] = ()


def _group_in(text: str) -> GroupMemory:
    return GroupMemory.from_bytes(base64.b64decode(text, validate=True))


def _as_text(group: GroupMemory) -> str:
    return base64.b64encode(group.as_bytes()).decode()


@dataclass(frozen=True, slots=True)
class GroupDocument:
    """A consumer group, and when it was first seen (Unix ms); 0: before any topic has grown."""

    name: str
    group: Annotated[GroupMemory, PlainValidator(_group_in), PlainSerializer(_as_text)]
    born_ms: Int64 = 0


@dataclass(frozen=True, slots=True)
class DiskDocument:
    """A broker's disk."""

    name: str
    disk: DiskMemory


Document = TopicDocument | GroupDocument | DiskDocument
_WRITTEN: Final = TypeAdapter(Written)
_ADAPTERS: Final[Mapping[type[Document], TypeAdapter[Document]]] = {
    TopicDocument: TypeAdapter(TopicDocument),
    GroupDocument: TypeAdapter(GroupDocument),
    DiskDocument: TypeAdapter(DiskDocument),
}


def topic_key(topic_id: str, partition: int) -> str:
    """Return the key of the document that holds a partition."""
    number = partition // PARTITIONS_A_DOCUMENT
    return f"{topic_id}/{number}" if number else topic_id


def group_key(name: str) -> str:
    """Return the key of a group's document."""
    return _GROUP + name


def group_of(key: str) -> str | None:
    """Return the group that a key names, None if it names none."""
    return key.removeprefix(_GROUP) if key.startswith(_GROUP) else None


def disk_key(name: str) -> str:
    """Return the key of a disk's document."""
    return _DISK + name


def disk_of(key: str) -> str | None:
    """Return the disk that a key names, None if it names none."""
    return key.removeprefix(_DISK) if key.startswith(_DISK) else None


def partitions_of(key: str) -> tuple[str, range] | None:
    """Return the topic id and the partitions that a key names, None if it names none."""
    match = _TOPIC_KEY.fullmatch(key)
    if match is None:
        return None
    first = int(match[2] or 0) * PARTITIONS_A_DOCUMENT
    return match[1], range(first, first + PARTITIONS_A_DOCUMENT)


def encode(document: Document | None, written: Written) -> bytes:
    """Return a document as a message's value; None: that of :data:`CLOCK_KEY`."""
    body = b"" if document is None else _ADAPTERS[type(document)].dump_json(document, exclude_defaults=True)
    return zlib.compress(_WRITTEN.dump_json(written) + b"\n" + body, 1)


def decode(key: str, value: bytes) -> tuple[Document | None, Written]:
    """Return a message's document, None for :data:`CLOCK_KEY`, and when it was written.

    Raises:
        NewerDocumentError: a newer kretain wrote it.
        DocumentError: it is not valid, or is not the document that its key names.
    """
    try:
        head, _, body = zlib.decompressobj().decompress(value, _AT_MOST_BYTES).partition(b"\n")
    except zlib.error:
        head = body = b""
    written = _parsed(_WRITTEN, head)
    if written.version > VERSION:
        raise NewerDocumentError(f"a newer kretain wrote it (version {written.version}, this one knows {VERSION})")
    if written.version < VERSION:
        raise DocumentError(f"it has version {written.version}")
    if key == CLOCK_KEY:
        return None, written
    document = _parsed(_ADAPTERS[_kind_of(key)], body)
    _check(key, document)
    return document, written


def _parsed(adapter: TypeAdapter[T], text: bytes) -> T:
    try:
        return adapter.validate_json(text, strict=True)
    except (ValueError, TypeError):
        raise DocumentError("it can't be read: it is damaged, or kretain did not write it") from None


def _kind_of(key: str) -> type[Document]:
    if group_of(key) is not None:
        return GroupDocument
    if disk_of(key) is not None:
        return DiskDocument
    if partitions_of(key) is None:
        raise DocumentError("its key is none that this kretain knows")
    return TopicDocument


def _check(key: str, document: Document) -> None:
    """Check that a document is about what its key names, and that what is packed in it can be read.

    Raises:
        DocumentError: it is not, or they can't.
    """
    match document:
        case TopicDocument(topic_id=topic_id, partitions=memories):
            named = partitions_of(key)
            if named is None or topic_id != named[0] or not all(number in named[1] for number in memories):
                raise DocumentError(f"it is about topic id {topic_id}, or about other partitions")
            if any(len(one.packed) % SAMPLE_BYTES or len(one.replicas) % ROW_BYTES for one in memories.values()):
                raise DocumentError("samples or replicas are cut short")
            if any(one.scan is not None and read_scan(one.scan) is None for one in memories.values()):
                raise DocumentError("a scan is broken")
        case GroupDocument(name=name):
            if group_key(name) != key:
                raise DocumentError(f"it is about group {name}")
        case DiskDocument(name=name, disk=disk):
            if disk_key(name) != key or len(disk.packed) % LOOK_BYTES:
                raise DocumentError("it is about another disk, or its looks are cut short")
