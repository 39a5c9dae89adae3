"""What a scan of log dirs costs: segments a second and peak memory at two sizes, from a warm cache.

Log dirs of sparse files, as brokers leave them (the first and the last batches are there, both indexes, producer
snapshots; indexes of active segments are preallocated), are scanned, each time in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retention_cli.brokers.wire.batch_headers import HEADER

if TYPE_CHECKING:
    from bench.harness import Bench

RATE = 20_000
SEGMENT_BYTES = 16 << 20
TAIL = 3
BATCH_BYTES = 1100
_SCAN = """
import json, resource, sys, time
import numpy, pyarrow.parquet
from retention_cli.disks.inventory.scan import scan
began = time.process_time()
report = scan([sys.argv[1]], sys.argv[2], now_ms=time.time_ns() // 1_000_000)
print(json.dumps({"segments": report.total("segments"), "problems": len(report.incomplete), "notes": report.notes,
    "seconds": report.seconds, "cpu": time.process_time() - began,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


SEGMENTS = 40
"""Of each partition."""


def make(root: Path, partitions: int) -> None:
    """Write one log dir."""
    root.mkdir()
    (root / "meta.properties").write_text("version=1\ncluster.id=kBench\nnode.id=1\ndirectory.id=d\n")
    for number in range(partitions):
        folder = root / f"bench-{number // 10:05d}-{number % 10}"
        folder.mkdir()
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: qCKCnnUmRDu8xKoaqyCwHA")
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        opened = os.open(folder, os.O_RDONLY)
        for place in range(SEGMENTS):
            _segment(opened, place * 100_000, 1_700_000_000_000 + place * 3_600_000, place + 1 == SEGMENTS)
        os.close(opened)


def _segment(folder: int, base: int, stamp: int, active: bool) -> None:
    """Write 32 index entries, the first batch, and the three behind the last entry."""
    start = SEGMENT_BYTES - TAIL * BATCH_BYTES
    entries = [(base + 3000 * n, start * n // 32, stamp + 100_000 * n) for n in range(1, 33)]
    index = b"".join(struct.pack(">ii", offset - base, at) for offset, at, _ in entries)
    times = b"".join(struct.pack(">qi", when, offset - base) for offset, _, when in entries)
    offset, _, when = entries[-1]
    tail = b"".join(_batch(offset - 9 + 10 * n, when + 10 * n) for n in range(TAIL))
    if not active:
        times += struct.pack(">qi", when + 10 * (TAIL - 1), offset - base + 10 * (TAIL - 1))
    for suffix, content, size in (
        (".index", index, 10 << 20),
        (".timeindex", times, (10 << 20) // 12 * 12),
        (".snapshot", b"s" * 10, 0),
    ):
        file = os.open(f"{base:020d}{suffix}", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=folder)
        os.write(file, content)
        if active and size:
            os.truncate(file, size)
        os.close(file)
    file = os.open(f"{base:020d}.log", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=folder)
    os.write(file, _batch(base, stamp))
    os.pwrite(file, tail, start)
    os.close(file)


def _batch(base: int, stamp: int) -> bytes:
    header = HEADER.pack(base, BATCH_BYTES - 12, 0, 2, 0, 0, 9, stamp - 9, stamp, -1, -1, -1, 10)
    return header + b"v" * (BATCH_BYTES - len(header))


def once(root: Path, out: Path) -> dict[str, Any]:
    """Scan in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _SCAN, str(root), str(out)], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(scratch: Path, partitions: int, rounds: int) -> dict[str, float]:
    """Return segments, segments a second of a core (median), and peak MiB of a log dir of so many partitions."""
    root = scratch / f"data-{partitions}"
    began = time.perf_counter()
    make(root, partitions)
    print(f"made {partitions * SEGMENTS:,} segments in {time.perf_counter() - began:.0f} s", flush=True)
    runs = [once(root, scratch / "inventory.parquet") for _ in range(rounds + 1)][1:]  # the first warms the cache
    shutil.rmtree(root)
    if any(run["problems"] or run["notes"] or run["segments"] != partitions * SEGMENTS for run in runs):
        raise RuntimeError(f"the scan did not tell all of it: {runs[0]}")
    return {
        "segments": runs[0]["segments"],
        "core": statistics.median(run["segments"] / run["cpu"] for run in runs),
        "peak_mib": max(run["peak_mib"] for run in runs),
    }


def segments_scan(bench: Bench, rounds: int = 3) -> None:
    """Add the figures to those of ``make bench``."""
    small, large = (measure(bench.scratch, partitions, rounds) for partitions in (500, 5000))
    name = f"segments scan, {large['segments']:,.0f} segments"
    bench.say(f"{name}, segments/s a core", large["core"], f">= {RATE}", good=large["core"] >= RATE)
    bench.say(f"{name}, peak MiB", large["peak_mib"], "", good=None)
    growth = large["peak_mib"] / small["peak_mib"]
    bench.say("… peak memory beside that of a tenth of them", growth, "<= 1.5", good=growth <= 1.5)
