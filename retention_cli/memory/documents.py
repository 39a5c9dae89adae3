"""The messages of the topic ``_kretain_state``: one document per key, whole and merged (docs/memory.md). Pure.

====================  =================================================================================
key                   value
====================  =================================================================================
``TOPICID``           partitions 0 to 31 of that topic id; ``TOPICID/1`` the next 32, and so on
``group:NAME``        a consumer group: its commits that counted, those that are gone, those that are refused
``disk:NAME``         a broker's disk: how much of it was in use, and when
``clock``             only a stamp, by which a trim compares clocks (G8)
====================  =================================================================================

A value is JSON, compressed with zlib. ``v`` is the format's version, ``at`` the writer's clock when it wrote.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from retention_cli.core.model import EventMax
from retention_cli.memory.ages import Width
from retention_cli.memory.disk import LOOK_BYTES, DiskMemory
from retention_cli.memory.earlier import pack, unpack
from retention_cli.memory.event_scan import read_scan
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.partition import Front, PartitionMemory
from retention_cli.memory.replica import ROW_BYTES
from retention_cli.memory.samples import SAMPLE_BYTES

VERSION: Final = 3
PARTITIONS_A_DOCUMENT: Final = 32
"""Keeps a message below 500 kB in practice, and below a broker's limit at worst."""
_AT_MOST_BYTES: Final = 1 << 26
CLOCK_KEY: Final = "clock"
_GROUP: Final = "group:"
_DISK: Final = "disk:"
_TOPIC_KEY: Final = re.compile(r"([A-Za-z0-9_-]{22})(?:/(\d{1,6}))?", re.ASCII)
_HALF_CHARACTER: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class DocumentError(ValueError):
    """A message that is not a valid document; the text says why."""


class NewerDocumentError(DocumentError):
    """A document that a newer kretain wrote."""


@dataclass(frozen=True, slots=True)
class Written:
    """When a document was written, by the writer's clock, and when its ledger was begun (Unix ms)."""

    at_ms: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class TopicDocument:
    """Some partitions of a topic id, and when the topic was last seen (Unix ms).

    ``widths`` are those of the topic, in the document of its first partitions, if it has grown.
    """

    topic_id: str
    name: str
    seen_ms: int
    partitions: Mapping[int, PartitionMemory] = field(default_factory=dict)
    widths: tuple[Width, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDocument:
    """A consumer group, and when it was first seen (Unix ms); 0: before any topic has grown."""

    name: str
    group: GroupMemory
    born_ms: int = 0


@dataclass(frozen=True, slots=True)
class DiskDocument:
    """A broker's disk."""

    name: str
    disk: DiskMemory


@dataclass(frozen=True, slots=True)
class ClockDocument:
    """A document without content: only its stamp counts."""


Document = TopicDocument | GroupDocument | DiskDocument | ClockDocument


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


def encode(document: Document, written: Written) -> bytes:
    """Return a document as a message's value."""
    head = {"v": VERSION, "at": written.at_ms, "since": written.since_ms}
    match document:
        case TopicDocument():
            body: dict[str, Any] = {
                "topic": document.name,
                "id": document.topic_id,
                "seen": document.seen_ms,
                "partitions": [_row(number, one) for number, one in sorted(document.partitions.items())],
                **({"widths": [list(one) for one in document.widths]} if document.widths else {}),
            }
        case GroupDocument():
            memory = base64.b64encode(document.group.as_bytes()).decode()
            body = {"group": document.name, "born": document.born_ms, "memory": memory}
        case DiskDocument():
            body = {"disk": document.name, "looks": base64.b64encode(document.disk.packed).decode()}
        case ClockDocument():
            body = {}
    return zlib.compress(json.dumps({**head, **body}, separators=(",", ":"), ensure_ascii=False).encode(), 1)


def decode(key: str, value: bytes) -> tuple[Document, Written]:
    """Return a message's document, and when it was written.

    Raises:
        NewerDocumentError: a newer kretain wrote it.
        DocumentError: it is not valid, or is not the document that its key names.
    """
    try:
        data = _parsed(value)
        return _document(key, data), Written(_whole(data["at"]), _whole(data["since"]))
    except DocumentError:
        raise
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise DocumentError("it can't be read: it is damaged, or kretain did not write it") from None


def _parsed(value: bytes) -> Any:
    text = zlib.decompressobj().decompress(value, _AT_MOST_BYTES)
    if _HALF_CHARACTER.search(text):  # surrogates: a lone one can't be encoded again
        raise DocumentError("it has a character that is none")
    data = json.loads(text)
    version = data["v"]
    if not isinstance(version, int) or version < VERSION:
        raise DocumentError(f"it has version {version!r}")
    if version > VERSION:
        raise NewerDocumentError(f"a newer kretain wrote it (version {version}, this one knows {VERSION})")
    return data


def _whole(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise DocumentError(f"{value!r} is no whole number that can be kept")
    return value


def _document(key: str, data: Any) -> Document:
    if key == CLOCK_KEY:
        return ClockDocument()
    if (group := group_of(key)) is not None:
        if data["group"] != group:
            raise DocumentError(f"it is about group {data['group']}")
        found = GroupMemory.from_bytes(base64.b64decode(data["memory"], validate=True))
        _whole(found.seen_ms)
        return GroupDocument(group, found, _whole(data.get("born", 0)))
    if (disk := disk_of(key)) is not None:
        looks = base64.b64decode(data["looks"], validate=True)
        if data["disk"] != disk or len(looks) % LOOK_BYTES:
            raise DocumentError("it is about another disk, or its looks are cut short")
        return DiskDocument(disk, DiskMemory(looks))
    named = partitions_of(key)
    if named is None:
        raise DocumentError("its key is none that this kretain knows")
    topic_id, numbers = named
    memories = dict(_memories(data["partitions"]))
    if data["id"] != topic_id or not all(number in numbers for number in memories):
        raise DocumentError(f"it is about topic id {data['id']}, or about other partitions")
    widths = tuple((_whole(count), _whole(seen_ms)) for count, seen_ms in data.get("widths", ()))
    return TopicDocument(topic_id, str(data["topic"]), _whole(data["seen"]), memories, widths)


def _row(number: int, one: PartitionMemory) -> dict[str, Any]:
    """Return a partition's memory as JSON's own types, without empty fields."""
    row = {
        "n": number,
        "epoch": one.leader_epoch,
        "last": one.last_epoch,
        "earlier": base64.b64encode(pack(one.earlier)).decode(),
        "start": one.log_start,
        "samples": base64.b64encode(one.packed).decode(),
        "newest": None if one.newest is None else [one.newest.time_ms, one.newest.offset, one.newest_under],
        "data": list(one.data_at),
        "scan": None if one.scan is None else base64.b64encode(one.scan).decode(),
        "replicas": base64.b64encode(one.replicas).decode(),
        "created": one.created,
        "created_below": one.created_below,
        "front": None if one.front is None else [one.front.offset, one.front.append_time],
    }
    return {key: value for key, value in row.items() if value or key in ("n", "epoch", "last")}


def _memories(rows: Any) -> Iterable[tuple[int, PartitionMemory]]:
    for row in rows:
        packed = base64.b64decode(row.get("samples", ""), validate=True)
        replicas = base64.b64decode(row.get("replicas", ""), validate=True)
        if len(packed) % SAMPLE_BYTES or len(replicas) % ROW_BYTES:
            raise DocumentError("samples or replicas are cut short")
        raw = None if row.get("scan") is None else base64.b64decode(row["scan"], validate=True)
        if raw is not None and read_scan(raw) is None:
            raise DocumentError("a scan is broken")
        newest, front = row.get("newest"), row.get("front")
        found = None
        if newest is not None:
            found = EventMax(_whole(newest[0]), None if newest[1] is None else _whole(newest[1]))
        epoch, last = row["epoch"], row.get("last")
        yield (
            _whole(row["n"]),
            PartitionMemory(
                packed=packed,
                newest=found,
                newest_under="" if newest is None or len(newest) < 3 else str(newest[2]),
                data_at=tuple(_whole(offset) for offset in row.get("data", ())),
                scan=raw,
                replicas=replicas,
                leader_epoch=None if epoch is None else _whole(epoch),
                last_epoch=None if last is None else _whole(last),
                earlier=unpack(base64.b64decode(row.get("earlier", ""), validate=True)),
                log_start=_whole(row.get("start", 0)),
                created=bool(row.get("created")),
                created_below=_whole(row.get("created_below", 0)),
                front=None if front is None else Front(_whole(front[0]), bool(front[1])),
            ),
        )
