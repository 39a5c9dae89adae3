"""Records and segments of archives, made by hand; and damage to their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from retention_cli.archive.catalog import ArchivedPartition, stitched
from retention_cli.archive.layout import Manifest, Source
from retention_cli.archive.segment import SegmentBuilder, commit, records_of
from retention_cli.archive.store import Store
from retention_cli.brokers.records import Record

SOURCE = Source("MkU3OEVBNTcwNTJENDM2Qg", "orders.eu", "-a_Zbc4DQmq1x2y3z4w5v6", 3)


AT = "2026-11-21T03:00:00.000Z"


DAY = 86_400_000


def written(
    store: Store,
    records: Sequence[Record],
    start: int = 0,
    end: int | None = None,
    at: str = AT,
    *,
    leader_epoch: int = 0,
) -> Manifest:
    """Archive records in one segment."""
    building = SegmentBuilder(SOURCE, start)
    for record in records:
        building.add(record)
    end = (records[-1].offset + 1 if records else start + 1) if end is None else end
    manifest = building.write(store, end, 4, at, leader_epoch)
    commit(store, manifest)
    return manifest


def sample(count: int = 30) -> list[Record]:
    return [
        Record(n, 0, n * DAY // 10, "CreateTime", b"k%d" % n, b"v" * n, (("h", b"1"), ("h", None)))
        for n in range(count)
    ]


def republished(store: Store, partition: ArchivedPartition) -> list[Record]:
    """What a restore would republish of a partition. There are no gaps between its segments."""
    pieces, gaps = stitched(partition.segments)
    assert gaps == []
    return [
        record
        for piece in pieces
        for record in records_of(store, piece.manifest, piece.start)
        if record.offset < piece.end
    ]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path: Path) -> None:
    whole = path.read_bytes()
    at = len(whole) // 3
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
