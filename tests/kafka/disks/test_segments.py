"""The inventory of real brokers' disks, beside what Kafka's own DumpLogSegments reads of the same files."""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retention_cli.disks.inventory.read import read_inventory
from retention_cli.disks.inventory.scan import scan
from tests.support.clusters import EmbeddedKafka, kafka_tool
from tests.support.leaders import leaders
from tests.support.plain import meanwhile
from tests.support.world import HOUR, World, now_ms, reader_for, wait_until

MIB = str(1 << 20)
"""The smallest segments that brokers from 4.0 on allow."""

BATCH = re.compile(
    r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) .*isControl: (?P<control>\w+).*"
    r" position: (?P<position>\d+) (?P<kind>CreateTime|LogAppendTime): (?P<stamp>-?\d+) size: (?P<size>\d+)"
)
RECORD = re.compile(r"\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): (?P<stamp>-?\d+) ")


@dataclass
class Dumped:
    """What DumpLogSegments says of a log file."""

    last: int | None = None
    largest: int | None = None
    end: int = 0
    stamps: list[int] = field(default_factory=list)


def dump(files: Sequence[Path]) -> dict[Path, Dumped]:
    """Run DumpLogSegments once over log files, all records included."""
    command = kafka_tool("DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, files)))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found: dict[Path, Dumped] = {}
    now = Dumped()
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            now = found.setdefault(Path(line.removeprefix("Dumping ").strip()), Dumped())
        elif (batch := BATCH.search(line)) is not None:
            now.last = int(batch["last"])
            now.end = int(batch["position"]) + int(batch["size"])
            now.largest = max(int(batch["stamp"]), -1 if now.largest is None else now.largest)
        elif (record := RECORD.search(line)) is not None:
            now.stamps.append(int(record["stamp"]))
    assert set(found) == set(files)
    return found


def scanned(dirs: Iterable[Path], out: Path, topics: Sequence[str]) -> list[dict[str, Any]]:
    report = scan([str(one) for one in dirs], str(out), now_ms=now_ms())
    mine = [one for one in report.incomplete if one.topic in topics]
    assert not mine, mine
    return [row for row in read_inventory([out]).table.to_pylist() if row["topic"] in topics]


def file_of(row: dict[str, Any]) -> Path:
    return Path(row["dir"], f"{row['topic']}-{row['partition']}", f"{row['base_offset']:020d}.log")


def compare(rows: list[dict[str, Any]], *, compacted: Sequence[str] = ()) -> None:
    """Every row is what Kafka's own tool says of its file."""
    dumped = dump([file_of(row) for row in rows])
    bases: dict[Path, list[int]] = {}
    for row in sorted(rows, key=lambda row: row["base_offset"]):
        bases.setdefault(file_of(row).parent, []).append(row["base_offset"])
    for row in rows:
        file = file_of(row)
        said, mine = dumped[file], bases[file.parent]
        at = mine.index(row["base_offset"])
        assert row["active"] == (at == len(mine) - 1), file
        if row["active"]:
            assert row["next_offset"] == (row["base_offset"] if said.last is None else said.last + 1), file
        else:
            assert row["next_offset"] == mine[at + 1], file
            assert said.last is None or said.last < row["next_offset"], file
        assert (row["largest_timestamp"], row["log_bytes"]) == (said.largest, said.end), file
        if row["topic"] not in compacted:
            assert row["first_timestamp"] == (said.stamps[0] if said.stamps else None), file
        elif row["first_timestamp"] is not None and said.stamps:
            assert row["first_timestamp"] <= said.largest, file
        on_disk = sum(one.stat().st_size for one in file.parent.glob(f"{file.stem}.*"))
        assert row["bytes"] == on_disk if not row["active"] else row["bytes"] <= on_disk, file


def fill(world: World, topic: str, stamps: Sequence[int], *, compression: str = "none", batch: int = 20) -> None:
    chance = random.Random(topic)
    world.produce_at(topic, stamps, value=lambda: chance.randbytes(1000), compression=compression, batch=batch)


def test_inventory_matches_dump_log_segments(kafka: EmbeddedKafka, world: World, tmp_path: Path) -> None:
    """Codecs, both kinds of timestamps, out of order, transactions, a compacted topic; rolled and active segments."""
    began, count = now_ms() - 24 * HOUR, 2500
    in_order = [began + 1000 * n for n in range(count)]
    chance = random.Random(7)
    shuffled = [began + chance.randrange(20 * HOUR) for _ in range(count)]
    plain = []
    kinds: list[tuple[str, list[int], dict[str, Any], dict[str, Any]]] = [
        *((codec, in_order, {}, {"compression": codec}) for codec in ("none", "gzip", "snappy", "zstd")),
        ("lz4", shuffled, {}, {"compression": "lz4"}),
        ("append-time", in_order, {"message_timestamp_type": "LogAppendTime"}, {}),
        ("large-batches", shuffled, {}, {"batch": 300}),
        ("single-records", shuffled[:1500], {}, {"batch": 1}),
    ]
    for stem, stamps, config, how in kinds:
        plain.append(world.topic(f"seg-{stem}", segment_bytes=MIB, **config))
        fill(world, plain[-1], stamps, **how)
    transactional = world.topic("seg-transactions", segment_bytes=MIB)
    for number in range(6):
        world.transaction(transactional, in_order[number * 10 :][:10], end="abort" if number % 3 else "commit")
    compacted = world.topic(
        "seg-compacted",
        cleanup_policy="compact",
        segment_bytes=MIB,
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="0",
    )
    for _ in range(3):
        fill(world, compacted, in_order[:1200])
    topics = [*plain, transactional, compacted, world.topic("seg-empty")]
    dirs = {node.node_id: node.log_dirs for node in kafka.nodes}

    def cleaned() -> bool:
        kept = [one for one in files_of(dirs, compacted) if not one.name.endswith((".deleted", ".cleaned"))]
        return sum(one.stat().st_size for one in kept) < 3_000_000

    wait_until(cleaned, "the cleaner's first pass")
    # else it may pass once more between our scan and Kafka's dump
    world.configure(compacted, {"min.compaction.lag.ms": "9000000000"})
    seen: list[list[str]] = []

    def at_rest() -> bool:
        seen.append(sorted(str(one) for one in files_of(dirs, compacted) if not one.name.endswith(".deleted")))
        busy = any(one.endswith((".cleaned", ".swap")) for one in seen[-1])
        return not busy and len(seen) > 20 and all(one == seen[-1] for one in seen[-20:])

    wait_until(at_rest, "the end of the cleaner's last pass")
    rows = []
    for node_id, log_dirs in dirs.items():
        mine = scanned(log_dirs, tmp_path / f"{node_id}.parquet", topics)
        assert {row["broker"] for row in mine} <= {node_id}
        rows += mine
    assert sum(not row["active"] for row in rows) >= 12
    compare(rows, compacted=[compacted])
    with reader_for(kafka.bootstrap) as reader:
        ids = {name: one.topic_id for name, one in reader.metadata(topics).topics.items()}
    assert {(row["topic"], row["topic_id"], row["tiered"]) for row in rows} == {(*one, None) for one in ids.items()}
    for row in rows:
        if row["active"] and row["topic"] != transactional:
            assert row["next_offset"] == world.ends(row["topic"])[1]
    for topic in plain:
        largest = max(row["largest_timestamp"] for row in rows if row["topic"] == topic)
        assert largest == max(stamp for _, stamp in world.records(topic))


def files_of(dirs: dict[int, Sequence[Path]], topic: str) -> list[Path]:
    return [
        file
        for log_dirs in dirs.values()
        for folder in log_dirs
        for file in folder.glob(f"{topic}-*/*.log*")
        if file.exists()
    ]


def test_inventory_scanned_during_writes_and_deletes_is_consistent(
    kafka: EmbeddedKafka, world: World, tmp_path: Path
) -> None:
    """Segments are rolled, trimmed and deleted all the time: rows always join, and end between two looks at H."""
    topic = world.topic("busy", segment_bytes=MIB, file_delete_delay_ms="0", retention_ms="-1")
    leader = kafka.node(leaders(world, topic)[0] or 0)
    doomed = [world.topic("doomed", partitions=4) for _ in range(4)]
    stamp = itertools.count(now_ms() - HOUR)

    def produce() -> None:
        world.produce_at(topic, [next(stamp) for _ in range(300)], value=os.urandom(2000), batch=30)

    def delete() -> None:
        world.delete_records(topic, max(0, world.ends(topic)[1] - 600))
        if doomed:
            world.delete(doomed.pop())

    firsts: set[int] = set()
    lasts: set[int] = set()
    deadline = time.monotonic() + 60
    with meanwhile(produce, delete):
        while len(firsts) < 4 or len(lasts) < 4:
            assert time.monotonic() < deadline, (firsts, lasts)
            _, before = world.ends(topic)
            rows = scanned(leader.log_dirs, tmp_path / "out.parquet", [topic])
            _, after = world.ends(topic)
            assert rows
            for one, other in itertools.pairwise(rows):
                assert one["next_offset"] == other["base_offset"]
                if other["first_timestamp"] is not None:  # one that was rolled right now is empty
                    assert one["largest_timestamp"] <= other["first_timestamp"]
                assert one["log_bytes"] <= 1 << 20
            assert [row["active"] for row in rows] == [False] * (len(rows) - 1) + [True]
            assert before <= rows[-1]["next_offset"]
            assert rows[-1]["base_offset"] <= after
            firsts.add(rows[0]["base_offset"])
            lasts.add(rows[-1]["base_offset"])
