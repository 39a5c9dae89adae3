"""The cluster in memory with disks under it: segments, dirs on devices, files about to go; and what is read of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import LogDirState, Replica as ReplicaBytes
from retention_cli.core.model import TopicPartition
from retention_cli.disks.inventory.format import COLUMNS, Inventory, InventoryFile, schema
from retention_cli.disks.inventory.log_dirs import LogDir
from retention_cli.disks.inventory.read import check_rows
from tests.simulation.kafka import BROKERS, NO_STAMP, SEGMENT_RECORDS, Partition, Record, Replica, SimKafka, Topic, Tp
from tests.simulation.reader import SimReader

CHECK_MS: Final = 300_000
DELAY_MS: Final = 60_000
INDEX_BYTES: Final = 2_000
"""What the indexes of a segment take: on the volume, and in no broker's word about a replica's size."""
SEGMENT_BYTES: Final = 400_000
"""The topics' ``segment.bytes``: about as much as a segment's records take."""


def record_bytes(one: Record) -> int:
    return 80_000 + 5_000 * (one.uid * 7 % 9)


class Place(NamedTuple):
    """A log dir, and the device that it is on."""

    broker: int
    path: str
    device: str


PLACES: Final = (
    Place(1, "/d1", "8:1"),
    Place(2, "/d1", "8:1"),
    Place(2, "/d2", "8:1"),
    Place(3, "/d1", "8:1"),
    Place(3, "/d2", "8:2"),
)
"""Broker 2 has two dirs on one device, broker 3 has two devices."""
TOTALS: Final = {(1, "8:1"): 30_000_000, (2, "8:1"): 34_000_000, (3, "8:1"): 22_000_000, (3, "8:2"): 16_000_000}
Device = tuple[int, str]


class Segment(NamedTuple):
    """A segment of a replica that lies on a disk."""

    base: int
    end: int
    log_bytes: int
    active: bool
    newest_ms: int

    @property
    def disk_bytes(self) -> int:
        return self.log_bytes + INDEX_BYTES


@dataclass(slots=True)
class Going:
    """Files that no replica has any more, and when they are removed."""

    place: Place
    size_bytes: int
    until_ms: int


def segments_of(replica: Replica) -> list[Segment]:
    """Return what a replica has on its disk, dead segments and all; the last one is active."""
    found = []
    for records in replica.segments():
        base = records[0].offset // SEGMENT_RECORDS * SEGMENT_RECORDS
        size, newest = sum(map(record_bytes, records)), max(one.stamp for one in records)
        found.append(Segment(base, base + SEGMENT_RECORDS, size, active=False, newest_ms=newest))
    if not found:
        base = replica.end // SEGMENT_RECORDS * SEGMENT_RECORDS
        found = [Segment(base, replica.end, 0, active=True, newest_ms=NO_STAMP)]
    return [*found[:-1], found[-1]._replace(end=replica.end, active=True)]


class DiskKafka(SimKafka):
    """A cluster whose brokers sweep every so often, and remove files a while after that."""

    def __init__(self) -> None:
        super().__init__()
        self.others: dict[Device, int] = dict.fromkeys(TOTALS, 400_000)
        self.placed: dict[tuple[int, Tp], Place] = {}
        self.going: list[Going] = []
        self.deaf: set[int] = set()

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, and brokers sweep and remove files meanwhile."""
        end = self.now_ms + milliseconds
        while self.now_ms < end:
            checks = [self.now_ms + CHECK_MS - (self.now_ms + 100_000 * broker) % CHECK_MS for broker in BROKERS]
            following = min([end, *checks, *(one.until_ms for one in self.going if one.until_ms > self.now_ms)])
            super().pass_time(following - self.now_ms)
            self.going = [one for one in self.going if one.until_ms > self.now_ms]
            for broker in BROKERS:
                if (self.now_ms + 100_000 * broker) % CHECK_MS == 0:
                    self.sweep(broker)

    # -- what happens to files -----------------------------------------------------------

    def sweep(self, broker: int) -> None:
        for (one, tp), place in self.placed.items():
            if one == broker:
                replica = self.partition(tp).replicas[broker]
                before = segments_of(replica)
                replica.sweep()
                self.leave(place, before[: -len(segments_of(replica))])

    def leave(self, place: Place, segments: Sequence[Segment]) -> None:
        """Rename files: no broker counts them any more, and the volume does."""
        if segments:
            self.going.append(Going(place, sum(one.disk_bytes for one in segments), self.now_ms + DELAY_MS))

    def create_on(self, name: str, brokers: tuple[tuple[int, ...], ...]) -> Topic:
        """Create a topic whose replicas are on these brokers, in their dirs by turns."""
        topic = self.create(name, 0)
        for number, ids in enumerate(brokers):
            topic.partitions.append(Partition.new(ids))
            for broker in ids:
                dirs = [one for one in PLACES if one.broker == broker]
                self.placed[broker, (name, number)] = dirs[(number + len(name)) % len(dirs)]
        return topic

    def delete_with_files(self, name: str) -> None:
        """Delete a topic: its folders stay for a while, as ``-delete``."""
        for number, log in enumerate(self.topics[name].partitions):
            for broker, replica in log.replicas.items():
                self.leave(self.placed.pop((broker, (name, number))), segments_of(replica))
        self.delete(name, clear_commits=True)

    def move(self, tp: Tp, source: int, place: Place) -> None:
        """Move a follower to another broker, or a replica to another dir of its broker."""
        log = self.partition(tp)
        if source not in log.replicas:
            return
        old = self.placed[source, tp]
        if place == old or (place.broker != source and (place.broker in log.replicas or source == log.leader)):
            return
        gone = log.replicas[source]
        if place.broker != source:
            del log.replicas[source], self.placed[source, tp]
            log.in_sync.discard(source)
            log.replicas[place.broker] = log.log.copy()
            log.replicas[place.broker].records = log.log.live()
            log.in_sync.add(place.broker)
        self.placed[place.broker, tp] = place
        self.leave(old, segments_of(gone))

    # -- what lies where -------------------------------------------------------------------

    def replicas_in(self, place: Place) -> list[tuple[Tp, Replica]]:
        here = [tp for (_, tp), one in sorted(self.placed.items()) if one == place]
        return [(tp, self.partition(tp).replicas[place.broker]) for tp in here]

    def going_in(self, place: Place) -> int:
        return sum(one.size_bytes for one in self.going if one.place == place)

    def used(self, device: Device) -> int:
        here = [one for one in PLACES if (one.broker, one.device) == device]
        replicas = [replica for place in here for _, replica in self.replicas_in(place)]
        logs = sum(one.disk_bytes for replica in replicas for one in segments_of(replica))
        return self.others[device] + logs + sum(self.going_in(place) for place in here)

    def room(self, place: Place) -> tuple[int, int]:
        """Return the size of a place's device, and how much of that is free."""
        device = (place.broker, place.device)
        return TOTALS[device], max(0, TOTALS[device] - self.used(device))


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

    _kafka: DiskKafka

    def log_dirs(self, brokers: Iterable[int]) -> dict[int, Any]:
        states = {one: [self._state(place) for place in PLACES if place.broker == one] for one in brokers}
        deaf = RequestFailedError("timed out", retriable=True)
        return {broker: deaf if broker in self._kafka.deaf else state for broker, state in states.items()}

    def _state(self, place: Place) -> LogDirState:
        replicas = [
            ReplicaBytes(TopicPartition(*tp), sum(one.log_bytes for one in segments_of(replica)), False)
            for tp, replica in self._kafka.replicas_in(place)
        ]
        total, usable = self._kafka.room(place)
        return LogDirState(place.path, total, usable, replicas)

    def topic_values(self, topics: Sequence[str], keys: Sequence[str]) -> dict[str, Any]:
        # settings that a broker does not know are left out
        return {name: {key: _SETTINGS[key] for key in keys if key in _SETTINGS} for name in topics}

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
        total, usable = kafka.room(place)
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
