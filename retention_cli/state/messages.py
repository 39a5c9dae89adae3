"""The messages of the topic ``_kretain_state``: one document per key, complete and merged (docs/memory.md). Pure.

====================  =================================================================================
key                   value
====================  =================================================================================
``TOPICID``           partitions 0 to 31 of that topic id; ``TOPICID/1`` the next 32, and so on
``group:NAME``        a consumer group: its commits that counted, those that are gone, those that are refused
``disk:NAME``         a broker's disk: how much of it was in use, and when
``watched:KEY``       since when the cluster's groups have been watched
``clock``             only a stamp, by which a trim compares clocks (G8)
====================  =================================================================================

A value is two lines of JSON, compressed with zlib: a :class:`Written`, and the document.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from retention_cli.memory.ages import Watched
from retention_cli.memory.disk import DISK_SAMPLE_BYTES
from retention_cli.memory.documents import (
    DISK,
    GROUP,
    WATCHED,
    DiskDocument,
    Document,
    GroupDocument,
    TopicDocument,
    partitions_of,
)
from retention_cli.memory.event_scan import read_scan
from retention_cli.memory.partition import SAMPLE_BYTES
from retention_cli.memory.positions import Int64
from retention_cli.memory.replica import ROW_BYTES

T = TypeVar("T")
VERSION: Final = 4
_AT_MOST_BYTES: Final = 1 << 26
CLOCK_KEY: Final = "clock"
"""The key of messages without a document, of which only the stamp counts."""


class DocumentError(ValueError):
    """A message that is not a valid document; the text says why."""


class OtherVersionError(DocumentError):
    """A document that another version of kretain wrote; the text also says what to do."""


@dataclass(frozen=True, slots=True)
class Written:
    """When a document was written, by the writer's clock, when its ledger was begun (Unix ms), and in which version.

    Every later version must keep these fields: by them another kretain knows that it can't read it, and holds.
    """

    at_ms: Int64
    since_ms: Int64
    version: int = VERSION


@cache
def _adapters() -> Mapping[type, TypeAdapter[Any]]:
    """Return what reads and writes each kind, made at its first use: most runs have no shared ledger."""
    return {kind: TypeAdapter(kind) for kind in (Written, TopicDocument, GroupDocument, DiskDocument, Watched)}


def encode(document: Document | None, written: Written) -> bytes:
    """Return a document as a message's value; None: that of :data:`CLOCK_KEY`."""
    body = b"" if document is None else _adapters()[type(document)].dump_json(document, exclude_defaults=True)
    return zlib.compress(_adapters()[Written].dump_json(written) + b"\n" + body, 1)


def decode(key: str, value: bytes) -> tuple[Document | None, Written]:
    """Return a message's document, None for :data:`CLOCK_KEY`, and when it was written.

    Raises:
        OtherVersionError: another version of kretain wrote it.
        DocumentError: it is not valid, or is not the document that its key names.
    """
    try:
        head, _, body = zlib.decompressobj().decompress(value, _AT_MOST_BYTES).partition(b"\n")
    except zlib.error:
        head = body = b""
    written = _parsed(Written, head)
    if written.version > VERSION:
        text = f"a newer kretain wrote it (version {written.version}, this one knows {VERSION}): use that one"
        raise OtherVersionError(text)
    if written.version < VERSION:
        raise OtherVersionError(
            f"an older kretain wrote it (version {written.version}, this one knows {VERSION}): delete its topic, and "
            f"run kretain cluster init again"
        )
    if key == CLOCK_KEY:
        return None, written
    document = _parsed(_kind_of(key), body)
    _check(key, document)
    return document, written


def _parsed(kind: type[T], text: bytes) -> T:
    try:
        found: T = _adapters()[kind].validate_json(text, strict=True)
    except (ValueError, TypeError):
        raise DocumentError("it can't be read: it is damaged, or kretain did not write it") from None
    return found


def _kind_of(key: str) -> type[Document]:
    for prefix, kind in ((GROUP, GroupDocument), (DISK, DiskDocument), (WATCHED, Watched)):
        if key.startswith(prefix):
            return kind
    if partitions_of(key) is None:
        raise DocumentError("this kretain does not know its key")
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
            if GROUP + name != key:
                raise DocumentError(f"it is about group {name}")
        case DiskDocument(name=name, disk=disk):
            if DISK + name != key or len(disk.packed) % DISK_SAMPLE_BYTES:
                raise DocumentError("it is about another disk, or its looks are cut short")
        case Watched():
            if WATCHED + document.key != key:
                raise DocumentError("it is about looks at other groups")
