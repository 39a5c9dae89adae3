"""The names of files and folders in a log dir, and the formats of the broker's small text files. Pure.

From Apache Kafka's LogFileUtils, UnifiedLog, PartitionMetadataFile and MetaProperties, 2.8 to 4.3.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
SWAP: Final = ".swap"

STEM_LENGTH: Final = 20
"""The number of digits of a base offset in a file's name."""

_PARTITION: Final = re.compile(r"([A-Za-z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_LEAVING: Final = re.compile(r".+\.[0-9a-f]{32}-(delete|future|stray)")
_TOPIC_ID: Final = re.compile(r"topic_id: ?([A-Za-z0-9_-]{22})")
_LEADER_EPOCH: Final = re.compile(r"([0-9]{1,10}) ([0-9]{1,19})")
_NO_TOPIC_ID: Final = "A" * 22
_COMPANIONS: Final = re.compile(
    r"leader-epoch-checkpoint(\.tmp)?|partition\.metadata(\.tmp)?|quorum-state(\.tmp)?|remote_log_snapshot(\.tmp)?"
    r"|[0-9]{20}-[0-9]{10}\.checkpoint(\..*)?|.*\.cleaned|\.lock"
)
_BESIDE: Final = re.compile(
    r"meta\.properties(\.tmp)?|bootstrap\.checkpoint(\.tmp)?|[a-z-]+-offset-checkpoint(\.tmp)?|\.lock|\.kafka_cleanshutdown"
    r"|remote-log-index-cache|lost\+found"
)


class LayoutError(ValueError):
    """A small file can't be used; the text says why."""


class Leaving(Enum):
    """The kind of a folder without a live replica: being deleted, being moved in, or not assigned to the broker."""

    delete = "delete"
    future = "future"
    stray = "stray"


@dataclass(frozen=True, slots=True)
class PartitionName:
    """A live partition, parsed from its folder's name."""

    topic: str
    partition: int


def folder_of(name: str) -> PartitionName | Leaving | None:
    """Return the kind of a folder in a log dir by its name, None if it is not a partition's."""
    if name.endswith(("-delete", "-future", "-stray")) and (leaving := _LEAVING.fullmatch(name)) is not None:
        return Leaving(leaving[1])
    match = _PARTITION.fullmatch(name)
    if match is None or int(match[2]) > MAX_PARTITION:
        return None
    return PartitionName(match[1], int(match[2]))


def is_companion(name: str) -> bool:
    """Return whether a file that is not a segment's belongs in a partition's folder."""
    return _COMPANIONS.fullmatch(name) is not None


def is_beside(name: str) -> bool:
    """Return whether a file or folder that is not a partition's belongs in a log dir."""
    return _BESIDE.fullmatch(name) is not None


def base_offset(stem: str) -> int | None:
    """Return the base offset in a segment's name, None if there is none (20 digits, at most 2^63 − 1)."""
    if len(stem) != STEM_LENGTH or not (stem.isascii() and stem.isdigit()):
        return None
    offset = int(stem)
    return offset if offset <= MAX_OFFSET else None


@functools.lru_cache(maxsize=256)  # a topic's partitions have equal contents, and are read one after the other
def topic_id_in(content: bytes) -> str | None:
    """Return the topic id in a ``partition.metadata``, None for the id of all zeros.

    Raises:
        LayoutError: it has none.
    """
    lines = content.decode("ascii", "replace").splitlines()
    found = [match[1] for line in lines if (match := _TOPIC_ID.fullmatch(line.strip())) is not None]
    if "version: 0" not in [line.strip() for line in lines] or len(found) != 1:
        raise LayoutError("says no topic id")
    return None if found[0] == _NO_TOPIC_ID else found[0]


def leader_epochs_in(content: bytes) -> list[tuple[int, int]]:
    """Return the leader epochs in a ``leader-epoch-checkpoint``, each with its first offset.

    Raises:
        LayoutError: the file is malformed.
    """
    lines = content.decode("ascii", "replace").split("\n")
    found = [match for line in lines[2:] if (match := _LEADER_EPOCH.fullmatch(line)) is not None]
    if lines[0] != "0" or lines[-1] or len(found) != len(lines) - 3 or lines[1] != str(len(found)):
        raise LayoutError("says no leader epochs")
    return [(int(match[1]), int(match[2])) for match in found]


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The ids in a ``meta.properties``; each is None if the file does not have it."""

    broker: int | None
    cluster_id: str | None
    directory_id: str | None


def meta_properties_in(content: bytes) -> MetaProperties:
    """Parse a ``meta.properties``: ``node.id`` (``broker.id`` before KRaft), cluster id, directory id.

    Raises:
        LayoutError: its broker id is not a number, or it has two different ones.
    """
    values: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith(("#", "!")):
            values[key.strip()] = value.strip()
    named = {values[key] for key in ("node.id", "broker.id") if key in values}
    if len(named) > 1:
        raise LayoutError("names two brokers: node.id and broker.id differ")
    broker = None
    for text in named:
        if re.fullmatch(r"[0-9]{1,10}", text) is None or int(text) > MAX_PARTITION:
            raise LayoutError(f"its broker id {text[:40]!r} is no id")
        broker = int(text)
    return MetaProperties(broker, values.get("cluster.id") or None, values.get("directory.id") or None)
