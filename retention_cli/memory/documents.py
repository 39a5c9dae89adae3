"""Complete documents of what is remembered, for others: by topic and some partitions, by group, by disk. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import PlainSerializer, PlainValidator

from retention_cli.memory.ages import Watched
from retention_cli.memory.disk import DiskMemory
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.positions import Int64

PARTITIONS_A_DOCUMENT: Final = 32
"""Keeps a message below 500 kB in practice, and below a broker's limit at worst."""
GROUP: Final = "group:"
DISK: Final = "disk:"
WATCHED: Final = "watched:"
"""How keys begin; the name of a group, a disk or a look (:attr:`.ages.Watched.key`) follows."""
_TOPIC_KEY: Final = re.compile(r"([A-Za-z0-9_-]{22})(?:/(\d{1,6}))?", re.ASCII)


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


@dataclass(frozen=True, slots=True)
class GroupDocument:
    """A consumer group, and when it was first seen (Unix ms); 0: before any topic has grown."""

    name: str
    group: Annotated[
        GroupMemory,
        PlainValidator(lambda text: GroupMemory.from_bytes(base64.b64decode(text, validate=True))),
        PlainSerializer(lambda group: base64.b64encode(group.as_bytes()).decode()),
    ]
    born_ms: Int64 = 0


@dataclass(frozen=True, slots=True)
class DiskDocument:
    """A broker's disk."""

    name: str
    disk: DiskMemory


Document = TopicDocument | GroupDocument | DiskDocument | Watched


def topic_key(topic_id: str, partition: int) -> str:
    """Return the key of the document that holds a partition."""
    number = partition // PARTITIONS_A_DOCUMENT
    return f"{topic_id}/{number}" if number else topic_id


def name_in(key: str, prefix: str) -> str | None:
    """Return the name that a key with :data:`GROUP`, :data:`DISK` or :data:`WATCHED` has, None if it is another one."""
    return key.removeprefix(prefix) if key.startswith(prefix) else None


def partitions_of(key: str) -> tuple[str, range] | None:
    """Return the topic id and the partitions that a key names, None if it names none."""
    if (match := _TOPIC_KEY.fullmatch(key)) is None:
        return None
    first = int(match[2] or 0) * PARTITIONS_A_DOCUMENT
    return match[1], range(first, first + PARTITIONS_A_DOCUMENT)
