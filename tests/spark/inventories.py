"""Random inventories: many small clusters that share nothing, laid beside each other as one."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from retention_cli.core.model import Maybe, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.inventory.inventory import _DIR_NUMBERS
from retention_cli.disks.inventory.table import FORMAT, METADATA_KEY, schema
from retention_cli.disks.solve.leaving import Leaving
from retention_cli.disks.solve.room import Disk, Room

MAD = 2**62
"""A clock in nanoseconds of another era."""
NAMES = ["a", "B", "a-1", "\U00010348", "\uffee", "é", "z" * 40, "a.b", "_x"]
"""Spark compares texts by their bytes, Python by their letters: the same order, also beyond 16 bits."""
Row = dict[str, Any]


def row(broker: int, folder: str, tp: TopicPartition, base: int, following: int | None, **more: Any) -> Row:
    plain = {
        "broker": broker,
        "dir": folder,
        "topic": tp.topic,
        "topic_id": "now",
        "partition": tp.partition,
        "base_offset": base,
        "next_offset": following,
        "bytes": 10,
        "log_bytes": 8,
        "mtime": 1,
        "active": False,
        "tiered": False,
    }
    return plain | more


def write(
    folder: Path, rows: Iterable[Row], incomplete: Mapping[tuple[int, str, int], str], *, ordered: bool = True
) -> Path:
    """Write a file per broker into a new folder."""
    folder.mkdir()
    by_broker: dict[int, list[Row]] = {}
    if ordered:
        rows = sorted(rows, key=lambda one: (one["dir"], one["topic"], one["partition"], one["base_offset"]))
    for one in rows:
        by_broker.setdefault(one["broker"], []).append(one)
    for broker, some in by_broker.items():
        said = {
            "format": FORMAT,
            "broker": broker,
            "cluster": {"id": "c"},
            "scanned_at": "2026-11-21T00:00:00Z",
            "dirs": [
                {"path": path, "device": "1:1", "directory_id": None, **dict.fromkeys(_DIR_NUMBERS, 0)}
                for path in sorted({one["dir"] for one in some})
            ],
            "incomplete": [
                {"topic": topic, "partition": partition, "problem": why}
                for (of, topic, partition), why in incomplete.items()
                if of == broker
            ],
        }
        table = pa.Table.from_pylist(some, schema=schema())
        named = table.replace_schema_metadata({METADATA_KEY: json.dumps(said).encode()})
        pq.write_table(named, folder / f"{broker:06}.parquet", row_group_size=50)
    return folder


@dataclass
class Clusters:
    """What all these small clusters have, together: as brokers, the inventory and the other rules tell it."""

    rows: list[Row] = field(default_factory=list)
    incomplete: dict[tuple[int, str, int], str] = field(default_factory=dict)
    disks: list[Disk] = field(default_factory=list)
    ids: dict[TopicPartition, str] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    decided: dict[TopicPartition, int] = field(default_factory=dict)
    limits: dict[TopicPartition, Maybe[Limit]] = field(default_factory=dict)
    leaders: dict[TopicPartition, int | None] = field(default_factory=dict)
    leaving: list[Leaving] = field(default_factory=list)
    most: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)

    @property
    def seen(self) -> list[TopicPartition]:
        """All partitions that the cluster has."""
        return sorted({*self.ids, *self.starts, *self.limits, *self.leaders})

    def add(self, number: int, chance: random.Random) -> None:
        """Add a small cluster: disks and topics of its own, on the three brokers that all share."""
        brokers = list(range(1, 1 + chance.randint(1, 3)))
        folders = {broker: [f"/{number}/{n}" for n in range(chance.randint(1, 3))] for broker in brokers}
        size: dict[tuple[int, str], dict[TopicPartition, int]] = {}
        for topic in chance.sample(NAMES, chance.randint(1, 2)):
            name = f"{topic}{number}"
            self.most[name] = (chance.choice([None, 0, 20, 60]), chance.choice([None, 0, 30, 90]))
            for partition in chance.sample(range(4), chance.randint(1, 3)):
                self._partition(TopicPartition(name, partition), brokers, folders, size, chance)
        for broker in brokers:
            paths = list(folders[broker])
            while paths:
                many = chance.randint(1, len(paths))
                self._disk(broker, paths[:many], size, chance)
                paths = paths[many:]

    def _partition(
        self,
        tp: TopicPartition,
        brokers: Sequence[int],
        folders: Mapping[int, Sequence[str]],
        size: dict[tuple[int, str], dict[TopicPartition, int]],
        chance: random.Random,
    ) -> None:
        end = chance.randint(5, 40)
        shared = sorted(chance.sample(range(1, end), chance.randint(0, 4)))
        aligned, clock = chance.random() < 0.6, chance.randint(0, 6)
        stamps = [max(0, clock + chance.randint(-2, 4) * n) for n in range(9)]
        held = chance.sample(brokers, chance.randint(1, len(brokers)))
        rows: list[Row] = []
        for broker in held:
            places = [chance.choice(folders[broker])]
            if chance.random() < 0.05:
                places.append(chance.choice(folders[broker]))
            for folder in dict.fromkeys(places):
                own = sorted(chance.sample(range(1, end), chance.randint(0, 4)))
                cuts = [0, *(shared if aligned else own), end]
                topic_id = chance.choice(["now"] * 12 + ["before", None])
                some = []
                for n, (base, following) in enumerate(itertools.pairwise(cuts)):
                    time: int | None = stamps[n] if chance.random() < 0.85 else chance.choice([None, -1, MAD, 50, 3])
                    last, log_bytes = n == len(cuts) - 2, chance.randint(0, 25)
                    some.append(
                        row(
                            *(broker, folder, tp, base, None if chance.random() < 0.02 else following),
                            bytes=log_bytes + chance.randint(0, 5),
                            log_bytes=log_bytes,
                            largest_timestamp=time,
                            active=last and chance.random() < 0.9,
                            topic_id="after" if last and end == 23 else topic_id,  # never by a scan: two of a replica
                            leader_epoch=None if end % 5 == 0 else n,
                        )
                    )
                if chance.random() < 0.1:
                    del some[0]
                rows += some
                now = sum(one["log_bytes"] for one in some[chance.choice([0, 0, 1]) :])
                size.setdefault((broker, folder), {})[tp] = now
        self.rows += rows
        if chance.random() < 0.06:
            self.incomplete[(held[0], tp.topic, tp.partition)] = "an index is broken"
        if chance.random() < 0.1:
            return  # nobody asked about it
        if chance.random() < 0.95:
            self.ids[tp] = "now"
        if chance.random() < 0.9:
            self.starts[tp] = chance.choice([0, 0, chance.randint(0, end)])
        self.leaders[tp] = chance.choice([*held, *held, *brokers, None])
        if chance.random() < 0.3:
            self.decided[tp] = chance.randint(0, end)
        if chance.random() < 0.9:
            free = Limit(end, "G1", "the high watermark")
            self.limits[tp] = chance.choice(
                [free] * 6
                + [Limit(chance.randint(0, end), "G2", f"group:slow of {tp}")]
                + [Unknown.because("F3", f"no answer about {tp}")]
            )

    def _disk(
        self,
        broker: int,
        paths: Sequence[str],
        size: Mapping[tuple[int, str], Mapping[TopicPartition, int]],
        chance: random.Random,
    ) -> None:
        replicas: dict[TopicPartition, int] = {}
        for path in paths:
            for tp, size_bytes in size.get((broker, path), {}).items():
                replicas[tp] = replicas.get(tp, 0) + size_bytes
        if chance.random() < 0.1:  # one that was made after the scan
            replicas[TopicPartition(f"new{broker}{paths[0].replace('/', '-')}", 0)] = 7
            self.limits[TopicPartition(f"new{broker}{paths[0].replace('/', '-')}", 0)] = Limit(
                9, "G1", "the high watermark"
            )
        segment_table = sum(one["bytes"] for one in self.rows if one["broker"] == broker and one["dir"] in paths)
        kafka = sum(replicas.values())
        used = max(segment_table + chance.randint(0, 20), 1)
        total = used * 100 // chance.choice([30, 55, 60, 70, 90, 99])
        room: Maybe[Room] = Room(total, used, kafka)
        if chance.random() < 0.05:
            room = Unknown.because("disk", "it is offline")
        if chance.random() < 0.95:  # else no broker names it any more
            self.disks.append(Disk(broker, tuple(paths), room, replicas))
            self.leaving.append(Leaving(chance.choice([0, 0, 5]), chance.choice([0, 0, 7]), chance.choice([0, 0, 3])))
