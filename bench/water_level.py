"""What R6 costs with an inventory: ``python -m bench.water_level`` (some minutes, no Kafka).

Inventories of 2 and 20 million segments, three replicas of each partition on 100 disks of 10 brokers. Each measurement
is a process of its own that reads the files, sums up each replica and walks, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention_cli.core.codes import Code
from retention_cli.decide.decision import Limit
from retention_cli.disks.disk import Disk, Leaving, Room
from retention_cli.disks.inventory.format import FORMAT, METADATA_KEY, schema
from retention_cli.disks.inventory.read import inventory_view
from retention_cli.disks.water_level import oldest_first
from retention_cli.policy.settings import DiskRules

EACH, REPLICAS, BROKERS, DIRS, TOPICS = 25, 3, 10, 10, 2_000
CPU_S, PEAK_MIB = 45.0, 3.8 * 1024
_FIGURES = (
    *("total_bytes", "usable_bytes", "topics", "partitions", "segments", "bytes", "log_bytes", "pending_bytes"),
    *("future_bytes", "stray_bytes", "ignored", "unread"),
)


def write(folder: Path, segments: int) -> None:
    """Write an inventory of so many segments: boundaries differ from replica to replica a little."""
    chance = np.random.default_rng(1)
    partitions, disks, now = segments // EACH // REPLICAS, BROKERS * DIRS, 1_800_000_000_000
    first = chance.integers(0, disks, partitions)
    pace = chance.integers(60_000, 86_400_000, partitions)  # ms that a segment takes to fill
    names, ids = (pa.array([form.format(n) for n in range(TOPICS)]) for form in ("topic-{:05d}", "id-{:05d}"))
    for broker in range(BROKERS):
        dirs = [
            {"path": f"/data/{n}", "device": f"{broker}:{n}", "directory_id": None, **dict.fromkeys(_FIGURES, 1 << 50)}
            for n in range(DIRS)
        ]
        about = {"format": FORMAT, "broker": broker, "cluster": {"id": "c"}, "scanned_at": "2027-01-15T08:00:00Z"}
        said = json.dumps({**about, "dirs": dirs, "incomplete": []}).encode()
        whole = schema().with_metadata({METADATA_KEY: said})
        with pq.ParquetWriter(folder / f"{broker}.parquet", whole, compression="zstd") as file:
            for number in range(DIRS):
                disk = broker * DIRS + number
                here = np.concatenate([np.flatnonzero((first + n * 37) % disks == disk) for n in range(REPLICAS)])
                held = here[np.lexsort((here // TOPICS, here % TOPICS))]
                partition, place = np.repeat(held, EACH), np.tile(np.arange(EACH), len(held))
                shift = np.where(partition % 5 == 0, disk % 3, 0)  # every fifth partition's replicas roll on their own
                size = chance.integers(1 << 29, 1 << 30, len(partition))
                stamp = now - (EACH - place) * pace[partition] - chance.integers(0, 60_000, len(partition))
                columns = {
                    "broker": np.full(len(partition), broker, dtype=np.int32),
                    "dir": pa.array([f"/data/{number}"]).take(pa.array(np.zeros(len(partition), dtype=np.int32))),
                    "topic": names.take(pa.array(partition % TOPICS)),
                    "topic_id": ids.take(pa.array(partition % TOPICS)),
                    "partition": (partition // TOPICS).astype(np.int32),
                    "base_offset": np.where(place == 0, 0, place * 100_000 + shift),
                    "next_offset": (place + 1) * 100_000 + shift,
                    "bytes": size + 1000,
                    "log_bytes": size,
                    "first_timestamp": stamp - 1000,
                    "largest_timestamp": stamp,
                    "mtime": stamp,
                    "active": place == EACH - 1,
                    "tiered": np.zeros(len(partition), dtype=np.bool_),
                    "problem": pa.nulls(len(partition), pa.string()),
                    "leader_epoch": np.full(len(partition), 3, dtype=np.int32),
                }
                file.write_table(pa.table(columns, schema=schema()), row_group_size=65_536)


def measure(folder: Path) -> dict[str, float]:
    """Read and walk, with every disk a fifth of what lies on it above its ceiling."""
    view = inventory_view([folder])
    if view is None:
        raise RuntimeError("no inventory")
    replicas = sum(1 for _ in view.replicas({}))
    names, dirs, segments = view.partitions, view.dirs, view.segments
    held = np.zeros(len(dirs), dtype=np.int64)
    np.add.at(held, segments.disk, segments.size_bytes)
    rooms = [Room(size, size, size) for size in held.tolist()]
    disks = [Disk(broker, (path,), room, {}) for (broker, path), room in zip(dirs, rooms, strict=True)]
    starts, ids = dict.fromkeys(names, 50_000), {tp: tp.topic.replace("topic", "id") for tp in names}
    found = oldest_first(
        view.on_disks(disks, starts, ids),
        disks,
        DiskRules(percent=80.0),
        starts,
        dict.fromkeys(names, Limit(2**62, Code.G1, "")),
        [Leaving()] * len(disks),
    )
    if any(one.short_bytes for one in found.outcomes) or not found.bounds:
        raise RuntimeError("a disk is not under its ceiling")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": len(segments), "replicas": replicas, "cpu_s": time.process_time(), "peak_mib": peak}


def main() -> int:
    """Print a line per measurement; 1 where a figure misses its mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, nargs="+", default=(2_000_000, 20_000_000))
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        print(json.dumps(measure(given.measure)))
        return 0
    good = True
    for segments in given.segments:
        with tempfile.TemporaryDirectory() as scratch:
            write(Path(scratch), segments)
            command = [sys.executable, "-m", "bench.water_level", "--measure", scratch]
            one = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        fits = one["cpu_s"] <= CPU_S and one["peak_mib"] <= PEAK_MIB
        good &= fits
        print(
            f"{one['rows']:>10,} segments of {one['replicas']:,} replicas: {one['cpu_s']:.1f} s of the processor, "
            f"peak {one['peak_mib']:,.0f} MiB "
            f"(wanted <= {CPU_S:g} s, <= {PEAK_MIB:,.0f} MiB: {'yes' if fits else 'NO'})"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
