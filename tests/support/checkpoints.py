"""A streaming query's checkpoint, as Spark writes it, and what sources of floors reach: a clock that stands still."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.clock import Clock
from retention_cli.observe.floors.sources.interface import Reach
from retention_cli.policy.settings import FloorSource

NOW = 1_800_000_000_000


HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795479442687,"conf":{"spark.sql.shuffle.partitions":"1"}}\n'


DONE = 'v1\n{"nextBatchWatermarkMs":0}'


FILES = {
    "metadata": '{"id":"4b0a2a0e-9f6e-4f5f-8a55-3f1d5d6a2f11"}',
    "offsets/0": HEAD + '{"orders":{"0":6,"1":0}}\n{"payments":{"0":6}}\n-',
    "offsets/1": HEAD + '{"orders":{"0":10,"1":3}}\n{"payments":{"0":9}}\n{"logOffset":0}',
    "offsets/2": HEAD + '{"orders":{"0":99,"1":99}}\n{"payments":{"0":99}}\n{"logOffset":0}',
    "commits/0": DONE,
    "commits/1": DONE,
    "sources/0/0": '\0v1\n{"orders":{"0":2,"1":0}}',
    "sources/1/0": '\0v1\n{"payments":{"0":1}}',
    "sources/2/0": 'v1\n{"path":"file:///in/a","timestamp":1,"batchId":0}\n{"path":"file:///in/b","timestamp":1,"batchId":0}',
}


def written(folder: Path, **changes: str | None) -> FloorSource:
    """Write the files, with these instead ("_" for "/"; None: without it)."""
    for name, text in {**FILES, **{name.replace("_", "/"): text for name, text in changes.items()}}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
            (folder / name).with_name(f".{Path(name).name}.crc").write_bytes(b"crc\0")
            os.utime(folder / name, ((NOW - 60_000 * ("offsets" in name)) / 1000,) * 2)
    return FloorSource("checkpoint", "enrich", place=str(folder), max_age_ms=None)


@dataclass
class StillClock(Clock):
    now_ms: int

    def wall_ms(self) -> int:
        return self.now_ms


def reach_at(now_ms: int) -> Reach:
    return Reach(
        ClusterReader(ConnectionSettings("not-asked:9092"), clock=StillClock(now_ms)),
        ClusterMetadata("c", frozenset(), {}),
    )
