"""R6 over Spark, by an inventory: ``python -m bench.spark_segments`` (some minutes, no Kafka).

Two and twenty million segments, three replicas of each partition, on 1,000 disks of 100 brokers, as the Parquet files
that ``kretain segments scan`` writes: a row is a segment of a replica. Each measurement is a process of its own. Of the
smaller one this process's own walk must come to the same. CPU seconds are of this process, Spark and its workers, after
Spark's start: they tell more than seconds where others use the machine, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.spark_fleet import Watch, own_peak_mib
from bench.work import Work
from retention_cli.core.model import Maybe, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.inventory.table import FORMAT, METADATA_KEY, ROW_GROUP, schema
from retention_cli.disks.solve.outcome import DiskOutcome, outcome_as_json
from retention_cli.disks.solve.room import Disk, Room
from retention_cli.engines.spark.schemas import LIMITS
from retention_cli.policy.settings import DiskRules

EACH, REPLICAS, BROKERS, DIRS, TOPICS = 25, 3, 100, 10, 2_000
SECONDS, PEAK_MIB = 60.0, 3 * 1024.0
RULES: Final = DiskRules(percent=80)
NOW: Final = 1_800_000_000_000
LOG_START: Final = 50_000
_SEGMENT: Final = 1 << 30
_UNREAD: Final = [{"code": "F4", "text": "no group has committed"}]
_PARTITIONS: Final = pa.schema(
    [*(one for one in LIMITS if one.name not in ("cluster", "skipped")), ("managed", pa.bool_())]
)


def make(folder: Path, segments: int) -> None:
    """Write inventories, a file a broker, and what the other rules say of the partitions."""
    chance = np.random.default_rng(1)
    count, disks = segments // EACH // REPLICAS, BROKERS * DIRS
    pace = chance.integers(60_000, 86_400_000, count)  # ms that a segment takes to fill
    first = chance.integers(0, disks, count)
    on: list[list[int]] = [[] for _ in range(disks)]
    for replica in range(REPLICAS):
        for which, disk in enumerate(((first + replica * 37) % disks).tolist()):
            on[disk].append(which)
    (folder / "inventory").mkdir(parents=True)
    for broker in range(BROKERS):
        said = {
            "format": FORMAT,
            "broker": broker,
            "cluster": {"id": "bench"},
            "scanned_at": "2026-11-21T00:00:00Z",
            "dirs": [{"path": f"/data/{n}"} for n in range(DIRS)],
            "incomplete": [],
        }
        kind = schema().with_metadata({METADATA_KEY: json.dumps(said).encode()})
        path = folder / "inventory" / f"{broker:03}.parquet"
        with pq.ParquetWriter(path, kind, compression="zstd", write_page_checksum=True) as file:
            for number in range(DIRS):
                held = sorted(on[broker * DIRS + number], key=_name)
                file.write_table(_segments(broker, number, held, pace, chance, kind), row_group_size=ROW_GROUP)
    numbers = np.arange(count)
    free = numbers % 50 != 0
    columns = {
        "topic": [_name(n).topic for n in numbers.tolist()],
        "partition": [_name(n).partition for n in numbers.tolist()],
        "topic_id": [f"id-{n % TOPICS:019}" for n in numbers.tolist()],
        "managed": [True] * count,
        "log_start": [LOG_START] * count,
        "limit_offset": [10**9 if one else None for one in free.tolist()],
        "limit_guard": ["G1"] * count,
        "limit_text": ["the high watermark"] * count,
        "limit_reasons": [None if one else _UNREAD for one in free.tolist()],
    }
    arrays = [pa.array(columns.get(one.name, [None] * count), one.type) for one in _PARTITIONS]
    pq.write_table(pa.Table.from_arrays(arrays, schema=_PARTITIONS), folder / "partitions.parquet")


def _name(number: int) -> TopicPartition:
    return TopicPartition(f"topic-{number % TOPICS:05}", number // TOPICS)


def _segments(broker: int, folder: int, held: Sequence[int], pace: Any, chance: Any, kind: Any) -> Any:
    """Return a log dir's segments: of every fifth partition the replicas roll on their own."""
    partition = np.repeat(np.array(held, dtype=np.int64), EACH)
    number = np.tile(np.arange(EACH), len(held))
    shift = np.where(partition % 5 == 0, broker % 3, 0)
    base = np.where(number == 0, 0, number * 100_000 + shift)
    size = chance.integers(_SEGMENT // 2, _SEGMENT, len(partition))
    stamp = NOW - (EACH - number) * pace[partition] - chance.integers(0, 60_000, len(partition))
    names = [_name(n) for n in held]
    columns: dict[str, Any] = {
        "broker": np.full(len(partition), broker, dtype=np.int32),
        "dir": _words([f"/data/{folder}"], np.zeros(len(partition), np.int32)),
        "topic": _words([one.topic for one in names], np.repeat(np.arange(len(held), dtype=np.int32), EACH)),
        "topic_id": _words(
            [f"id-{n % TOPICS:019}" for n in held], np.repeat(np.arange(len(held), dtype=np.int32), EACH)
        ),
        "partition": np.repeat(np.array([one.partition for one in names], dtype=np.int32), EACH),
        "base_offset": base,
        "next_offset": (number + 1) * 100_000 + shift,
        "bytes": size,
        "log_bytes": size - 4096,
        "first_timestamp": stamp,
        "largest_timestamp": stamp,
        "mtime": stamp,
        "active": number == EACH - 1,
        "tiered": np.zeros(len(partition), dtype=np.bool_),
    }
    nothing = pa.nulls(len(partition), pa.string())
    arrays = [pa.array(columns[one.name], one.type) if one.name in columns else nothing for one in kind]
    return pa.Table.from_arrays(arrays, schema=kind)


def _words(words: Sequence[str], numbers: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(words, pa.string())).cast(pa.string())


def disks_of(folder: Path) -> list[Disk]:
    """Return what brokers say of their disks: 15 to 25 % above the ceiling. Read a file at a time."""
    found = []
    chance = np.random.default_rng(2)
    for broker, path in enumerate(sorted((folder / "inventory").glob("*.parquet"))):
        names = ["dir", "topic", "partition", "bytes", "log_bytes"]
        table = pq.read_table(path, columns=names)
        each = table.group_by(["dir", "topic", "partition"]).aggregate([("bytes", "sum"), ("log_bytes", "sum")])
        replicas: dict[str, dict[TopicPartition, int]] = {}
        used: dict[str, int] = {}
        for one in each.to_batches():
            for row in zip(*(one.column(n).to_pylist() for n in range(5)), strict=True):
                values = dict(zip(each.column_names, row, strict=True))
                tp = TopicPartition(sys.intern(values["topic"]), values["partition"])
                replicas.setdefault(values["dir"], {})[tp] = values["log_bytes_sum"]
                used[values["dir"]] = used.get(values["dir"], 0) + values["bytes_sum"]
        for place in sorted(replicas):
            total = used[place] * (100 - int(chance.integers(15, 25))) // 80
            held = replicas[place]
            found.append(Disk(broker, (place,), Room(total, used[place], sum(held.values())), held))
    return found


def over_spark(folder: Path, master: str, out: Path) -> dict[str, Any]:
    """Walk over Spark, write the bounds; return what that took."""
    from retention_cli.engines.spark.inventory import read_inventory
    from retention_cli.engines.spark.oldest_first import oldest_first
    from retention_cli.engines.spark.session import open_session

    disks = disks_of(folder)
    with tempfile.TemporaryDirectory() as name:
        watch = Watch()
        watch.start()
        session = open_session(master, {}, Path(name))
        before = own_peak_mib()
        partitions = session.read.parquet(str(folder / "partitions.parquet"))
        work = Work(session)
        with read_inventory(session, [folder / "inventory"]) as inventory:
            read = work.since()
            found = oldest_first(inventory, disks, RULES, partitions)
            walk = work.since()
        watch.done.set()
        session.stop()
    _write(found.bounds, out)
    return {
        "read": read,
        "walk": walk,
        "unknown": len(found.unknown),
        "client_mib": own_peak_mib(),
        "client_before_mib": before,
        "all_mib": watch.peak,
        "rows": inventory.rows,
        "disks": _told(found.outcomes),
    }


def here(folder: Path, out: Path) -> dict[str, Any]:
    """Walk in this process, write the bounds; return what each disk comes to."""
    from retention_cli.disks.inventory.inventory import read_inventory
    from retention_cli.disks.solve.inventory_view import COLUMNS, InventoryView
    from retention_cli.disks.solve.oldest_first import oldest_first

    disks = disks_of(folder)
    began = time.perf_counter()
    view = InventoryView(read_inventory([folder / "inventory"], COLUMNS))
    rows = pq.read_table(folder / "partitions.parquet").to_pylist()
    free = Limit(10**9, "G1", "the high watermark")
    held = Unknown.because(_UNREAD[0]["code"], _UNREAD[0]["text"])
    names = [TopicPartition(row["topic"], row["partition"]) for row in rows]
    limits: Mapping[TopicPartition, Maybe[Limit]] = {
        tp: held if row["limit_offset"] is None else free for tp, row in zip(names, rows, strict=True)
    }
    ids = {tp: row["topic_id"] for tp, row in zip(names, rows, strict=True)}
    found = oldest_first(view.segment_table(ids), disks, RULES, dict.fromkeys(names, LOG_START), {}, limits)
    seconds = time.perf_counter() - began
    _write(found.bounds, out)
    return {"seconds": seconds, "unknown": len(found.unknown), "disks": _told(found.outcomes)}


def _write(bounds: Mapping[TopicPartition, int], out: Path) -> None:
    columns = list(zip(*((*tp, bound) for tp, bound in bounds.items()), strict=True))
    pq.write_table(pa.table(dict(zip(("topic", "partition", "bound"), columns, strict=True))), out)


def _told(outcomes: Sequence[DiskOutcome]) -> list[str]:
    return [json.dumps(outcome_as_json(one)) for one in outcomes]


def _work(one: Mapping[str, float]) -> str:
    return f"{one['seconds']:.0f} s ({one['cpu_s']:.0f} of the processors, {one['jobs']} jobs, {one['stages']} stages)"


def _in_a_process(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.spark_segments", *arguments]
    return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))


def _bounds(path: Path) -> list[Any]:
    return sorted(tuple(row.values()) for row in pq.read_table(path).to_pylist())


def main() -> int:
    """Print a line per measurement, whether both walks agree, and the growth; 1 where one misses its mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--segments", type=int, nargs=2, default=(2_000_000, 20_000_000))
    parser.add_argument("--one", choices=["spark", "here"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        out = given.folder / f"{given.one}.parquet"
        found = over_spark(given.folder, given.master, out) if given.one == "spark" else here(given.folder, out)
        print(json.dumps(found))
        return 0
    told, good = [], True
    with tempfile.TemporaryDirectory() as scratch:
        for segments in given.segments:
            folder = Path(scratch) / str(segments)
            make(folder, segments)
            one = _in_a_process("--one", "spark", "--folder", str(folder), "--master", given.master)
            seconds, cpu_s = (one["read"][name] + one["walk"][name] for name in ("seconds", "cpu_s"))
            told.append((one["rows"], seconds, cpu_s))
            fits = seconds <= SECONDS and one["all_mib"] <= PEAK_MIB
            good &= fits
            print(
                f"{one['rows']:>12,} segments: read {_work(one['read'])}, walk {_work(one['walk'])}; client "
                f"{one['client_mib']:,.0f} MiB ({one['client_before_mib']:,.0f} of them what brokers say of their "
                f"disks), with Spark and its workers {one['all_mib']:,.0f} MiB (wanted <= {SECONDS:g} s, "
                f"<= {PEAK_MIB:,.0f} MiB: {'yes' if fits else 'NO'})",
                flush=True,
            )
            if segments == given.segments[0]:
                local = _in_a_process("--one", "here", "--folder", str(folder))
                same = (one["disks"], one["unknown"]) == (local["disks"], local["unknown"])
                same &= _bounds(folder / "spark.parquet") == _bounds(folder / "here.parquet")
                good &= same
                agree = "the same bounds and disks" if same else "OTHER BOUNDS OR DISKS"
                print(f"{'':>12} here in {local['seconds']:.0f} s: {agree}", flush=True)
    (few, quick, little), (many, slow, much) = told
    times = f"{slow / quick:.1f} times the seconds, {much / little:.1f} times the processor's"
    print(f"growth: {many / few:.1f} times the segments take {times}")
    return 0 if good and much / little <= many / few else 1


if __name__ == "__main__":
    sys.exit(main())
