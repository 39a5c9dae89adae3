"""Log dirs: their broker and device, the names in them, and the formats of the broker's small text files.

From Apache Kafka's LogFileUtils, UnifiedLog, PartitionMetadataFile and MetaProperties, 2.8 to 4.3.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar, cast

from pydantic import Field

from retention_cli.core.files import read_file
from retention_cli.core.model import TopicPartition

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
COMPANIONS: Final = re.compile(
    r"leader-epoch-checkpoint(\.tmp)?|partition\.metadata(\.tmp)?|quorum-state(\.tmp)?|remote_log_snapshot(\.tmp)?"
    r"|[0-9]{20}-[0-9]{10}\.checkpoint(\..*)?|.*\.cleaned|\.lock"
)
BESIDE: Final = re.compile(
    r"meta\.properties(\.tmp)?|bootstrap\.checkpoint(\.tmp)?|[a-z-]+-offset-checkpoint(\.tmp)?|\.lock|\.kafka_cleanshutdown"
    r"|remote-log-index-cache|lost\+found"
)
META_FILE: Final = "meta.properties"

_T = TypeVar("_T", int, str)


class LayoutError(ValueError):
    """A small file can't be used; the text says why."""


def folder_of(name: str) -> TopicPartition | Literal["delete", "future", "stray"] | None:
    """Return the live partition whose folder in a log dir has this name, None if it is not a partition's.

    A folder without a live replica is one that is being deleted, being moved in, or not assigned to the broker.
    """
    if name.endswith(("-delete", "-future", "-stray")) and (leaving := _LEAVING.fullmatch(name)) is not None:
        return cast(Literal["delete", "future", "stray"], leaving[1])
    if (match := _PARTITION.fullmatch(name)) is None or int(match[2]) > MAX_PARTITION:
        return None
    return TopicPartition(match[1], int(match[2]))


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
        raise LayoutError("has no topic id")
    return None if found[0] == _NO_TOPIC_ID else found[0]


def leader_epochs_in(content: bytes) -> list[tuple[int, int]]:
    """Return the leader epochs in a ``leader-epoch-checkpoint``, each with its first offset.

    Raises:
        LayoutError: the file is malformed.
    """
    lines = content.decode("ascii", "replace").split("\n")
    found = [match for line in lines[2:] if (match := _LEADER_EPOCH.fullmatch(line)) is not None]
    if lines[0] != "0" or lines[-1] or len(found) != len(lines) - 3 or lines[1] != str(len(found)):
        raise LayoutError("has no leader epochs")
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
            raise LayoutError(f"its broker id {text[:40]!r} is not an id")
        broker = int(text)
    return MetaProperties(broker, values.get("cluster.id") or None, values.get("directory.id") or None)


class ScanError(Exception):
    """Dirs can't be scanned, or an inventory can't be written; the text says what to do."""


Figure = Annotated[int, Field(strict=True, ge=0, le=MAX_OFFSET)]
"""A number of a scanned log dir, as a file may state it."""


@dataclass(slots=True)
class LogDir:
    """A log dir and its contents.

    ``device`` is its file system's number as ``major:minor``; ``total_bytes`` and ``usable_bytes`` are those of the
    complete device, usable by users other than root, as brokers report it.

    ``bytes`` are the sizes of all of the segments' files, ``log_bytes`` those of the log files only. The following are
    allocated blocks: ``pending_bytes`` of files that the broker has renamed and is about to delete, ``future_bytes`` of
    replicas that are being moved into this dir, and ``stray_bytes`` of replicas that the cluster does not assign to the
    broker. ``ignored`` counts files and folders that are not Kafka's, ``unread`` partitions that vanished meanwhile, or
    could not be read completely: the bytes that were not read are in no sum.
    """

    path: str
    device: str
    directory_id: str | None
    total_bytes: Figure
    usable_bytes: Figure
    topics: Figure = 0
    partitions: Figure = 0
    segments: Figure = 0
    bytes: Figure = 0
    log_bytes: Figure = 0
    pending_bytes: Figure = 0
    future_bytes: Figure = 0
    stray_bytes: Figure = 0
    ignored: Figure = 0
    unread: Figure = 0


def find_log_dirs(paths: Sequence[str], broker: int | None = None) -> tuple[int, str | None, list[LogDir]]:
    """Return a broker's id, its cluster's (None if no ``meta.properties`` has it), and its log dirs in the order given.

    ``broker`` is the id if no ``meta.properties`` has one.

    Raises:
        ScanError: a dir is missing, given twice, or not a log dir; they are of two brokers or clusters, or of another
            broker than ``broker``; or no broker id is known.
    """
    found: list[LogDir] = []
    metas: list[tuple[str, MetaProperties]] = []
    seen: dict[tuple[int, int], str] = {}
    for given in paths:
        path = os.path.abspath(given)  # noqa: PTH100  (links are not resolved: the broker knows the dir by this name)
        try:
            about, space = Path(path).stat(), os.statvfs(path)
            names = [one.name for one in Path(path).iterdir()]
        except OSError as error:
            raise ScanError(f"{path} can't be read: {error.strerror or error}") from None
        if (twin := seen.get((about.st_dev, about.st_ino))) is not None:
            raise ScanError(f"{twin} and {path} are the same folder: name it once")
        seen[about.st_dev, about.st_ino] = path
        if (meta := _meta(path)) is not None:
            metas.append((path, meta))
        elif not any(isinstance(folder_of(name), TopicPartition) for name in names):
            raise ScanError(
                f"{path} is not a log dir (log.dirs in server.properties): it holds neither {META_FILE} nor a partition"
            )
        unit = space.f_frsize
        device = f"{os.major(about.st_dev)}:{os.minor(about.st_dev)}"
        directory_id = None if meta is None else meta.directory_id
        found.append(LogDir(path, device, directory_id, space.f_blocks * unit, space.f_bavail * unit))
    owner = _same("brokers", [(path, meta.broker) for path, meta in metas if meta.broker is not None])
    cluster_id = _same("clusters", [(path, meta.cluster_id) for path, meta in metas if meta.cluster_id is not None])
    if owner is None:
        if broker is None:
            raise ScanError(f"no {META_FILE} says which broker {found[0].path} belongs to: give --broker-id")
        return broker, cluster_id, found
    if broker not in (None, owner):
        raise ScanError(f"{metas[0][0]} belongs to broker {owner}, not {broker}: leave --broker-id out")
    return owner, cluster_id, found


def _same(what: str, values: Sequence[tuple[str, _T]]) -> _T | None:
    """Return the value that all dirs have, None if there is none.

    Raises:
        ScanError: two dirs have different values.
    """
    for path, value in values[1:]:
        if value != values[0][1]:
            raise ScanError(
                f"{values[0][0]} and {path} belong to two {what} ({values[0][1]} and {value}): scan each separately"
            )
    return values[0][1] if values else None


def _meta(path: str) -> MetaProperties | None:
    file = Path(path, META_FILE)
    try:
        return meta_properties_in(read_file(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ScanError(f"{file} can't be read: {error.strerror or error}") from None
    except LayoutError as error:
        raise ScanError(f"{file}: {error}") from None
