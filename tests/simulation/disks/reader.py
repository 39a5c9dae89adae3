"""What a kretain reads of disks, and what a scan of them writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_dirs import LogDirState, Replica as ReplicaBytes
from retention_cli.core.model import TopicPartition
from retention_cli.disks.inventory.format import COLUMNS, Inventory, InventoryFile, schema
from retention_cli.disks.inventory.log_dirs import LogDir
from retention_cli.disks.inventory.read import check_rows
from tests.simulation.clients import SimClock
from tests.simulation.disks.kafka import CHECK_MS, DELAY_MS, PLACES, SEGMENT_BYTES, TOTALS, DiskKafka, segments_of
from tests.simulation.hub import Hub
from tests.simulation.reader import SimReader

_SETTINGS = {
    "log.retention.check.interval.ms": str(CHECK_MS),
    "log.segment.delete.delay.ms": str(DELAY_MS),
    "file.delete.delay.ms": str(DELAY_MS),
    "segment.bytes": str(SEGMENT_BYTES),
    "cleanup.policy": "delete",
    "remote.storage.enable": "false",
}
_DICTIONARY = ("dir", "topic", "topic_id", "problem")


class DiskReader(SimReader):
    """A reader to which brokers tell of their log dirs, too."""

    def __init__(self, kafka: DiskKafka, hub: Hub, clock: SimClock) -> None:
        super().__init__(kafka, hub, clock)
        self._disks = kafka

    def log_dirs(self, brokers: Iterable[int]) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for broker in brokers:
            if broker in self._disks.deaf:
                found[broker] = RequestFailedError("timed out", retriable=True)
                continue
            found[broker] = [
                LogDirState(
                    place.path,
                    TOTALS[broker, place.device],
                    max(0, TOTALS[broker, place.device] - self._disks.used((broker, place.device))),
                    [
                        ReplicaBytes(TopicPartition(*tp), sum(one.log_bytes for one in segments_of(replica)), False)
                        for tp, replica in self._disks.replicas_in(place)
                    ],
                )
                for place in PLACES
                if place.broker == broker
            ]
        return found

    def topic_values(self, topics: Sequence[str], keys: Sequence[str], *, own: bool = False) -> dict[str, Any]:
        del own
        return {name: {key: _SETTINGS[key] for key in keys} for name in topics}

    def broker_values(self, brokers: Iterable[int], keys: Sequence[str]) -> dict[int, Any]:
        return {broker: {key: _SETTINGS[key] for key in keys} for broker in brokers}


def scan(kafka: DiskKafka, broker: int) -> tuple[InventoryFile, Any]:
    """Return what `kretain segments scan` writes on a broker: its file's word of itself, and its rows."""
    rows: list[tuple[Any, ...]] = []
    dirs: list[LogDir] = []
    for place in PLACES:
        if place.broker != broker:
            continue
        log_bytes = 0
        for tp, replica in kafka.replicas_in(place):
            topic_id = kafka.topics[tp[0]].topic_id
            begun = max((one.epoch for one in replica.epochs), default=None)
            epoch = max((one.epoch for one in replica.epochs if one.start < replica.end), default=begun)
            for one in segments_of(replica):
                log_bytes += one.log_bytes
                stamp = one.newest_ms if one.newest_ms >= 0 else None
                rows.append(
                    (
                        *(broker, place.path, tp[0], topic_id, tp[1], one.base, one.end, one.disk_bytes, one.log_bytes),
                        *(stamp, stamp, kafka.now_ms, one.active, False, None, epoch),
                    )
                )
        total = TOTALS[broker, place.device]
        usable = max(0, total - kafka.used((broker, place.device)))
        going = kafka.going_in(place)
        dirs.append(LogDir(place.path, place.device, None, total, usable, log_bytes=log_bytes, pending_bytes=going))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    table = pa.table(
        {
            field.name: pa.array(column, field.type).dictionary_encode()
            if field.name in _DICTIONARY
            else pa.array(column, field.type)
            for field, column in zip(schema(), columns, strict=True)
        }
    )
    about = InventoryFile(f"broker-{broker}.parquet", broker, kafka.cluster_id, kafka.now_ms, tuple(dirs))
    check_rows(about.path, about, table)
    return about, table


def inventory_of(files: dict[int, tuple[InventoryFile, Any]]) -> Inventory:
    tables = pa.concat_tables([table for _, table in files.values()]).unify_dictionaries()
    return Inventory(tuple(about for about, _ in files.values()), tables, {})
