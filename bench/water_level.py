"""What R6's water level costs: ``python -m bench.water_level`` (two minutes, no Kafka).

Half a million segments of 20,000 partitions and five million of 200,000, three replicas each, on 1,000 disks: each
segment is a row on each of its three disks. They are written as an inventory's Parquet; each measurement is a process
of its own that reads the columns it needs and walks, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention_cli.disks.solve.dictionary import encoded
from retention_cli.disks.solve.segments import Ints, add_up
from retention_cli.disks.solve.water_level import water_level

EACH, REPLICAS, DISKS, TOPICS = 25, 3, 1_000, 2_000
SECONDS, PEAK_MIB = 20.0, 3 * 1024.0
_SEGMENT = 1 << 30


def write(path: Path, segments: int) -> None:
    """Write an inventory, a disk after another as brokers would: boundaries differ from replica to replica a little."""
    chance = np.random.default_rng(1)
    partitions, each = segments // EACH, EACH
    now = 1_800_000_000_000
    first = chance.integers(0, DISKS, partitions)
    pace = chance.integers(60_000, 86_400_000, partitions)  # ms that a segment takes to fill
    names = pa.array([f"topic-{n:05d}" for n in range(TOPICS)])
    columns = (
        "broker",
        "dir",
        "topic",
        "partition",
        "base_offset",
        "next_offset",
        "bytes",
        "largest_timestamp",
        "active",
    )
    kinds = (
        pa.int32(),
        pa.string(),
        pa.string(),
        pa.int32(),
        pa.int64(),
        pa.int64(),
        pa.int64(),
        pa.int64(),
        pa.bool_(),
    )
    schema = pa.schema(list(zip(columns, kinds, strict=True)))
    by_disk: list[list[int]] = [[] for _ in range(DISKS)]
    for replica in range(REPLICAS):
        for which, disk in enumerate(((first + replica * 37) % DISKS).tolist()):
            by_disk[disk].append(which)
    with pq.ParquetWriter(path, schema) as writer:
        for disk, held in enumerate(by_disk):
            partition: Ints = np.repeat(np.array(held, dtype=np.int64), each)
            number = np.tile(np.arange(each), len(held))
            shift = np.where(partition % 5 == 0, disk % 3, 0)  # every fifth partition's replicas roll on their own
            base = np.where(number == 0, 0, number * 100_000 + shift)
            stamp = now - (each - number) * pace[partition] - chance.integers(0, 60_000, len(partition))
            size = chance.integers(_SEGMENT // 2, _SEGMENT, len(partition))
            rows: list[object] = [
                np.full(len(partition), disk // 10, dtype=np.int32),
                pa.DictionaryArray.from_arrays(np.zeros(len(partition), np.int32), [f"/data/{disk % 10}"]).cast(
                    pa.string()
                ),
                names.take(pa.array(partition % TOPICS)),
                (partition // TOPICS).astype(np.int32),
                base,
                (number + 1) * 100_000 + shift,
                size,
                stamp,
                number == each - 1,
            ]
            arrays = [one if isinstance(one, pa.Array) else pa.array(one) for one in rows]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def measure(path: Path) -> dict[str, float]:
    """Read and walk, with every disk 15 to 25 % of what lies on it above its ceiling."""
    began = time.perf_counter()
    cpu = time.process_time()
    file = pq.ParquetFile(path, read_dictionary=["topic", "dir"])
    inventory = encoded(lambda name: file.read(columns=[name]).column(0))
    read = time.perf_counter()
    segments = inventory.segments
    held = add_up(segments.size_bytes, segments.disk, len(inventory.dirs))
    excess: Ints = held * np.random.default_rng(2).integers(15, 25, len(held)) // 100
    start = np.full(len(inventory.partitions), 50_000)
    limit = np.where(np.arange(len(start)) % 50 == 0, 0, np.int64(2**62))
    ready = time.perf_counter()
    found = water_level(segments, start, limit, excess)
    done = time.perf_counter()
    if int(found.short.sum()) or not bool((found.freed >= excess - found.already_freed).all()):
        raise RuntimeError("a disk is not under its ceiling")
    return {
        "rows": len(segments),
        "partitions": len(start),
        "disks": len(inventory.dirs),
        "read_s": read - began,
        "walk_s": done - ready,
        "cpu_s": time.process_time() - cpu,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> int:
    """Print a line per measurement and the growth; 1 where a figure misses its mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--segments", type=int, nargs=2, default=(500_000, 5_000_000))
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        print(json.dumps(measure(given.measure)))
        return 0
    totals, good = [], True
    with tempfile.TemporaryDirectory() as scratch:
        for segments in given.segments:
            path = Path(scratch) / f"{segments}.parquet"
            write(path, segments)
            rounds = []
            for _ in range(given.rounds):
                command = [sys.executable, "-m", "bench.water_level", "--measure", str(path)]
                rounds.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            read, walk = (statistics.median(one[key] for one in rounds) for key in ("read_s", "walk_s"))
            peak = max(one["peak_mib"] for one in rounds)
            totals.append((rounds[0]["rows"], read + walk))
            fits = read + walk <= SECONDS and peak <= PEAK_MIB
            good &= fits
            print(
                f"{segments:>10,} segments, {rounds[0]['rows']:,} rows of replicas on {rounds[0]['disks']:,} disks: "
                f"read {read:.1f} s, walk {walk:.1f} s ({rounds[0]['cpu_s']:.1f} s of the processor), "
                f"peak {peak:,.0f} MiB "
                f"(wanted <= {SECONDS:g} s, <= {PEAK_MIB:,.0f} MiB: {'yes' if fits else 'NO'})"
            )
    (few, quick), (many, slow) = totals
    print(f"growth: {many / few:.1f} times the rows take {slow / quick:.1f} times the seconds")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
