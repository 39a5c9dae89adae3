"""An inventory's format, and its values: the columns of segments, its files, and a summary of each replica. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from retention_cli.core.extras import arrow, texts_of
from retention_cli.core.model import TopicPartition
from retention_cli.disks.inventory.log_dirs import LogDir

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


def schema() -> Any:
    """Return the Arrow schema of :data:`COLUMNS`."""
    pa = arrow()
    return pa.schema([pa.field(name, pa.type_for_alias(kind), nullable=null) for name, kind, null in COLUMNS])


class InventoryError(Exception):
    """An inventory can't be used; the text says why."""


@dataclass(frozen=True, slots=True)
class InventoryFile:
    """One file of an inventory, and the log dirs that its scan read."""

    path: str
    broker: int
    cluster_id: str | None
    scanned_at_ms: int
    dirs: tuple[LogDir, ...]


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

    def age_ms(self, now_ms: int) -> int:
        """Return the age of the oldest file (ms); negative if it was written by a machine whose clock is ahead."""
        return now_ms - min(one.scanned_at_ms for one in self.files)

    def check_cluster(self, cluster_id: str) -> None:
        """Check that the inventory is of this cluster.

        Raises:
            InventoryError: it is another cluster's.
        """
        if self.cluster_id not in (None, cluster_id):
            raise InventoryError(f"the inventory is of cluster {self.cluster_id}, not {cluster_id}")


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


Replica = tuple[int, str, str, int]
"""A broker, a log dir, a topic and a partition."""


def first_rows(table: Any) -> Any:
    """Return the rows that begin another broker, dir, topic or partition. Texts must be dictionaries."""
    import numpy as np

    begins = np.zeros(len(table), dtype=bool)
    begins[:1] = True
    for column in (
        texts_of(table["dir"])[1],
        texts_of(table["topic"])[1],
        *(table[key].to_numpy() for key in ("broker", "partition")),
    ):
        begins[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(begins)


def replicas_at(table: Any, rows: Any) -> list[Replica]:
    """Return the replicas of some rows."""
    few = table.select(["broker", "dir", "topic", "partition"]).take(arrow().array(rows))
    return list(zip(*(column.to_pylist() for column in few.columns), strict=True))
