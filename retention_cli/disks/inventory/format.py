"""An inventory's format, and its values: the columns of segments, its files, and a summary of each replica. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from retention_cli.core.extras import arrow
from retention_cli.core.model import TopicPartition

FORMAT: Final = "kretain.segments/v1"
METADATA_KEY: Final = b"kretain.segments"
"""The key in the Parquet file's metadata; its value is a JSON object."""

COLUMNS: Final = (
    ("broker", "int32", False),
    ("dir", "string", False),
    ("topic", "string", False),
    ("topic_id", "string", True),
    ("partition", "int32", False),
    ("base_offset", "int64", False),
    ("next_offset", "int64", True),
    ("bytes", "int64", False),
    ("log_bytes", "int64", False),
    ("first_timestamp", "int64", True),
    ("largest_timestamp", "int64", True),
    ("mtime", "int64", False),
    ("active", "bool", False),
    ("tiered", "bool", True),
    ("problem", "string", True),
    ("leader_epoch", "int32", True),
)
"""Each column's name, type, and whether it may be null. Times are Unix ms."""
LATER: Final = frozenset({"leader_epoch"})
"""Columns that files of earlier versions lack: they are read as null."""


def schema() -> Any:
    """Return the Arrow schema of :data:`COLUMNS`."""
    pa = arrow()
    types = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string(), "bool": pa.bool_()}
    return pa.schema([pa.field(name, types[kind], nullable=null) for name, kind, null in COLUMNS])


class InventoryError(Exception):
    """An inventory can't be used; the text says why."""


@dataclass(frozen=True, slots=True)
class InventoryFile:
    """One file of an inventory. ``dirs`` has the figures of each log dir, by the keys in docs/segments.md."""

    path: str
    broker: int
    cluster_id: str | None
    scanned_at_ms: int
    dirs: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """The segments on the disks of brokers of one cluster.

    ``table`` is a pyarrow Table of the columns in :data:`COLUMNS`; ``dir``, ``topic``, ``topic_id`` and ``problem`` are
    dictionaries. The rows of a dir, topic and partition are consecutive, in the order of base offsets. ``incomplete``
    maps replicas (broker, topic, partition) of which something is unknown to the reason: rows may be missing, or have
    nulls. ``unread`` says why files were left out: their brokers' disks are as if they had not been scanned.
    """

    files: tuple[InventoryFile, ...]
    table: Any
    incomplete: dict[tuple[int, str, int], str]
    unread: tuple[str, ...] = ()

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, None if no file has one."""
        return next((one.cluster_id for one in self.files if one.cluster_id is not None), None)

    @property
    def brokers(self) -> frozenset[int]:
        """The brokers whose disks were scanned."""
        return frozenset(one.broker for one in self.files)

    @property
    def scanned_dirs(self) -> frozenset[tuple[int, str]]:
        """Every (broker, log dir) that was scanned, including those without segments."""
        return frozenset((file.broker, str(one.get("path"))) for file in self.files for one in file.dirs)

    def age_ms(self, now_ms: int) -> int:
        """Return the age of the oldest file (ms); negative if it was written by a machine whose clock is ahead."""
        return now_ms - min(one.scanned_at_ms for one in self.files)

    def check_cluster(self, cluster_id: str) -> None:
        """Check that the inventory is of this cluster.

        Raises:
            InventoryError: it is another cluster's.
        """
        if self.cluster_id not in (None, cluster_id):
            raise InventoryError(f"the inventory is of cluster {self.cluster_id}, this is {cluster_id}")


class ScannedReplica(NamedTuple):
    """An inventory's rows of one replica, summarized.

    ``topic_id`` is None if the rows have none, or two. ``actives`` counts active segments, ``active_base`` is the last
    one's base offset. ``end`` is the next offset, -1 if unknown. ``log_bytes`` are the bytes of all log files,
    ``live_bytes`` those of closed segments that end beyond S, ``active_bytes`` those of active ones. ``index_bytes``
    are the bytes of all indexes, ``dead_index_bytes`` those of closed segments below S. ``leader_epoch`` is the last
    record's, None if the scan did not find it.
    """

    broker: int
    dir: str
    tp: TopicPartition
    topic_id: str | None
    actives: int
    active_base: int
    first_base: int
    last_base: int
    end: int
    log_bytes: int
    live_bytes: int
    active_bytes: int
    index_bytes: int
    dead_index_bytes: int
    leader_epoch: int | None
