"""A synthetic fleet decided by Spark: commits and offsets as Parquet stand in for the readers, all else is the product.

``python -m bench.spark_fleet`` prints seconds and peak memory for 2 and 20 million commits, and how they grow;
``--master`` chooses where. ``--workers`` compares one and two workers of a standalone cluster, a core each, instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention_cli.core.model import LookUp, PartitionFacts, TopicFacts
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.engines.spark.engine import decided_frame
from retention_cli.engines.spark.fact_tasks import ReadPartition
from retention_cli.engines.spark.frames import join_commits, standing_of
from retention_cli.engines.spark.jobs import ClusterJob
from retention_cli.engines.spark.schemas import COMMITS, PLAN
from retention_cli.engines.spark.summaries import summaries_of
from retention_cli.observe.floors.standing import floor_of
from retention_cli.policy.load import parse_policy

CLUSTERS: Final = 5
PARTITIONS_A_TOPIC: Final = 100
TOPICS_A_GROUP: Final = 8
HOUR: Final = 3_600_000
NOW: Final = 1_800_000_000_000
POLICY: Final = """version: 1
topics:
  - match: "bench-*"
    retention.commitoffset.enable: true
    retention.commitoffset.hours: 1
"""
DELETED: Final = frozenset({"delete"})
PLACES: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("high_watermark", pa.int64()),
    ]
)
TOLD: Final = {"read_ms": NOW, "memory": None, "doubt": False, "ends": None, "note": None}


def make(folder: Path, partitions: int, groups: int) -> int:
    """Write a fleet: each cluster so many partitions and groups; return how many commits there are."""
    rng = np.random.default_rng(61)
    topics = partitions // PARTITIONS_A_TOPIC
    total = 0
    for name in ("facts", "commits"):
        (folder / name).mkdir(parents=True)
    for number in range(CLUSTERS):
        cluster = f"cluster-{number}"
        ends = rng.integers(1_000, 1_000_000, partitions)
        names = [f"bench-{t}" for t in range(topics)]
        _facts(folder / "facts" / f"{cluster}.parquet", cluster, names, ends)
        total += _commits(folder / "commits" / f"{cluster}.parquet", cluster, names, ends, groups, rng)
    return total


def _facts(path: Path, cluster: str, topics: list[str], ends: Any) -> None:
    with pq.ParquetWriter(path, PLACES) as file:
        rows = len(topics) * PARTITIONS_A_TOPIC
        for start in range(0, rows, 50_000):
            numbers = np.arange(start, min(rows, start + 50_000))
            count = len(numbers)
            columns = [
                [cluster] * count,
                [topics[n // PARTITIONS_A_TOPIC] for n in numbers],
                (numbers % PARTITIONS_A_TOPIC).astype("int32"),
                [3] * count,
                ends[numbers],
            ]
            arrays = [pa.array(column, one.type) for column, one in zip(columns, PLACES, strict=True)]
            file.write_batch(pa.RecordBatch.from_arrays(arrays, schema=PLACES))


def read(batches: Iterator[Any]) -> Iterator[ReadPartition]:
    """Stand in for the reader of slices: the same partitions, with look-ups that brokers would have answered."""
    for batch in batches:
        for row in batch.to_pylist():
            end = row["high_watermark"]
            facts = PartitionFacts(
                topic=TopicFacts(row["topic"], f"id-{row['topic']}", False, DELETED, 7 * 24 * HOUR, "CreateTime"),
                partition=row["partition"],
                log_start=0,
                high_watermark=end,
                last_stable_offset=end,
                floor=floor_of(standing_of(row, ()), 0, end),
                lookups={
                    NOW - HOUR: LookUp(end * 9 // 10, timestamp=NOW - HOUR // 2),
                    946_684_800_000: LookUp(0, timestamp=NOW - 9 * HOUR),
                },
                size_bytes=end * 300,
                leader_epoch=3,
            )
            yield ReadPartition(row["cluster"], facts, TOLD)


def _commits(path: Path, cluster: str, topics: list[str], ends: Any, groups: int, rng: Any) -> int:
    total = 0
    partitions = np.arange(PARTITIONS_A_TOPIC)
    with pq.ParquetWriter(path, COMMITS) as file:
        for first in range(0, groups, 50):
            names: list[str] = []
            places: list[Any] = []
            for group in range(first, min(groups, first + 50)):
                for number in range(TOPICS_A_GROUP):
                    topic = (group * 7 + number * 131) % len(topics)
                    names += [f"group-{group}"] * PARTITIONS_A_TOPIC
                    places.append(topic * PARTITIONS_A_TOPIC + partitions)
            numbers = np.concatenate(places)
            lag = rng.random(len(numbers)) ** 4
            columns = {
                "cluster": [cluster] * len(numbers),
                "group": names,
                "topic": [topics[n // PARTITIONS_A_TOPIC] for n in numbers],
                "partition": (numbers % PARTITIONS_A_TOPIC).astype("int32"),
                "kind": ["commit"] * len(numbers),
                "offset": (ends[numbers] * (1 - lag)).astype("int64"),
                "leader_epoch": [3] * len(numbers),
            }
            arrays = [pa.array(columns.get(one.name, [None] * len(numbers)), one.type) for one in COMMITS]
            file.write_batch(pa.RecordBatch.from_arrays(arrays, schema=COMMITS))
            total += len(numbers)
    return total


def decide(session: Any, folder: Path, out: Path) -> dict[str, Any]:
    """Decide the fleet and write its plan as Parquet; return what that took."""
    policy = parse_policy(POLICY, "bench.yaml", "sha256:bench")
    jobs = {
        f"cluster-{n}": ClusterJob(f"cluster-{n}", ConnectionRef(path="nowhere"), 30.0, policy, (), NOW)
        for n in range(CLUSTERS)
    }
    began = time.perf_counter()
    facts = session.read.parquet(str(folder / "facts"))
    commits = session.read.parquet(str(folder / "commits"))
    decided = decided_frame(join_commits(facts, commits), jobs, read).persist()
    decided.select(*PLAN.names).write.parquet(str(out))
    summaries = summaries_of(decided)
    seconds = time.perf_counter() - began
    decided.unpersist()
    return {"seconds": seconds, "trim": sum(one.totals.trim for one in summaries.values())}


class Watch(threading.Thread):
    """Sums the resident memory of this process and all below it, and keeps the peak (MiB)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self.done = threading.Event()

    def run(self) -> None:
        """Look ten times a second."""
        while not self.done.wait(0.1):
            self.peak = max(self.peak, _tree_mib(os.getpid()))


def _tree_mib(root: int) -> float:
    parents, sizes = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)], sizes[int(folder.name)] = (
                int(stat[1]),
                int(stat[21]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20),
            )
    found, waiting = 0.0, [root]
    while waiting:
        one = waiting.pop()
        found += sizes.get(one, 0)
        waiting += [child for child, parent in parents.items() if parent == one]
    return found


def own_peak_mib() -> float:
    """The peak of this process alone: getrusage's is never less than what the parent had when it started us."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def one(folder: str, master: str) -> None:
    """Measure one size in a process of its own, and print it as JSON."""
    from retention_cli.engines.spark.session import open_session

    with tempfile.TemporaryDirectory() as name:
        watch = Watch()
        watch.start()
        session = open_session(master, {"spark.sql.shuffle.partitions": "32"}, Path(name))
        found = decide(session, Path(folder), Path(name) / "plan.parquet")
        watch.done.set()
        session.stop()
        client = own_peak_mib()
        print(json.dumps({**found, "peak_mib": watch.peak, "client_mib": client}))


def measured(folder: Path, master: str) -> dict[str, float]:
    """Measure one size in a process of its own."""
    command = [sys.executable, "-m", "bench.spark_fleet", "--master", master, "--one", str(folder)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1800, check=True).stdout
    return dict(json.loads(said))


def growth(master: str, partitions: list[int], groups: list[int]) -> None:
    """Print both sizes and their ratios."""
    told = []
    with tempfile.TemporaryDirectory() as name:
        for one, other in zip(partitions, groups, strict=True):
            folder = Path(name) / f"{one}-{other}"
            commits = make(folder, one, other)
            told.append((commits, measured(folder, master)))
            print(f"{commits:>12,} commits of {CLUSTERS * one:,} partitions: {told[-1][1]}", flush=True)
    (few, less), (many, more) = told
    print(f"commits x {many / few:.1f}: seconds x {more['seconds'] / less['seconds']:.1f}")
    print(f"the client's own memory x {more['client_mib'] / less['client_mib']:.2f} (<= 1.2)")
    print(f"seconds {more['seconds']:.0f} (<= 180), peak {more['peak_mib']:.0f} MiB (<= 6144)")


def _pin(pid: int, core: int) -> None:
    """Keep a worker, and the executors that it will start, to one core: a task slot alone would use two."""
    for thread in (Path("/proc") / str(pid) / "task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def one_and_two_workers(partitions: int, groups: int) -> None:
    """Print what a second worker brings: each has one core."""
    from tests.spark.clusters import standalone

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "fleet"
        make(folder, partitions, groups)
        seconds = []
        for workers in (1, 2):
            place = Path(name) / f"workers-{workers}"
            place.mkdir()
            with standalone(place, workers) as cluster:
                for core, worker in enumerate(cluster.workers):
                    _pin(worker.pid, core)
                seconds.append(measured(folder, cluster.url)["seconds"])
            print(f"{workers} of one core each: {seconds[-1]:.0f} s", flush=True)
    print(f"one / two workers: {seconds[0] / seconds[1]:.2f} (>= 1.3)")


def main() -> None:
    """Measure as asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--groups", type=int, nargs=2, default=[500, 5_000])
    parser.add_argument("--partitions", type=int, nargs=2, default=[20_000, 200_000])
    parser.add_argument("--workers", action="store_true")
    parser.add_argument("--one", metavar="FOLDER")
    given = parser.parse_args()
    if given.one:
        one(given.one, given.master)
    elif given.workers:
        one_and_two_workers(given.partitions[1], given.groups[1])
    else:
        growth(given.master, given.partitions, given.groups)


if __name__ == "__main__":
    main()
