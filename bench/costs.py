"""What parts of kretain cost: time rules, event times in headers, scans of log dirs, and the check of evidence."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import struct
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.harness import Bench, Timed, run, stock_tool
from bench.seed import Record, produce
from retention_cli.core.model import ANCIENT_MS, EventMax, LookUp, Reason, Sample, Tail, Usage, Watermark
from retention_cli.evidence.checks import decided
from retention_cli.evidence.value import DiskPart, RecordedDecision, Row
from retention_cli.policy.settings import Settings
from tests.support import logs
from tests.support.evidence import RUN, left_behind, trimmed, usual
from tests.support.facts import HOUR, NOW
from tests.support.world import written

TIME_RULES = """version: 1
topics:
  - match: "bench-*"
    retention.commitoffset.enable: true
    retention.commitoffset.hours: 1
    retention.max.eventtime.ms: 3h
    log.retention.min.timestamp: {minimum}
    retention.ms: 238h
"""
SCANNED = "scanned"
SCAN_RECORDS = 2_000_000
SCAN_POLICY = f"""version: 1
topics:
  - match: {SCANNED}
    retention.max.eventtime.ms: 10m
    retention.eventtime.source: "header:et"
    unconsumed: trim
"""


def every_time_rule(bench: Bench) -> None:
    """R1 to R4 on every topic, with a memory and without, beside R1 alone, in turn."""
    minimum = int(time.time() * 1000) - 10 * 86_400_000 + 7_200_000
    policy = written(bench.scratch / "times.yaml", TIME_RULES.format(minimum=minimum))
    state = bench.scratch / "state-times"

    def timed() -> Timed:
        return run(bench.kretain("plan", policy=policy, state=state))

    first = timed()
    bench.check(first)
    bench.say("plan by R1-R4, first run, seconds", first.seconds)
    pairs = [(run(bench.kretain("plan")), timed()) for _ in range(bench.rounds)]
    bench.say("plan by R1-R4, warm ledger, seconds", statistics.median(every.seconds for _, every in pairs))
    bench.say("plan by R1-R4, peak MiB", max(every.peak_mib for _, every in pairs))
    ratio = statistics.median(every.seconds / alone.seconds for alone, every in pairs)
    bench.say("plan by R1-R4, warm / R1 alone (median of pairs)", ratio, "<= 1.6")
    shutil.rmtree(state)


def header_scan(bench: Bench) -> None:
    """Read the event times of two million records of 100 bytes, beside Kafka's own console consumer."""
    make_scanned(bench.bootstrap)
    policy = written(bench.scratch / "scan.yaml", SCAN_POLICY)
    state = bench.scratch / "state-scan"
    done = run(bench.kretain("plan", policy=policy, state=state))
    again = run(bench.kretain("plan", policy=policy, state=state))
    stock = run(
        stock_tool(
            "consumer.ConsoleConsumer",
            *("--bootstrap-server", bench.bootstrap, "--topic", SCANNED, "--from-beginning"),
            *("--max-messages", str(SCAN_RECORDS), "--property", "print.headers=true"),
        )
    )
    bench.say("header scan, records/s (whole process)", SCAN_RECORDS / done.seconds)
    bench.say("header scan, records/s a core", SCAN_RECORDS / done.cpu_seconds, ">= 200000")
    bench.say("header scan, peak MiB", done.peak_mib)
    bench.say("the next run, seconds", again.seconds)
    bench.say("kafka-console-consumer, records/s (whole process)", SCAN_RECORDS / stock.seconds)
    bench.say("header scan / console consumer", stock.seconds / done.seconds)


def make_scanned(bootstrap: str) -> None:
    """Make the topic of two million records with an event time in a header each."""
    wanted = NewTopic(SCANNED, 4, 1, config={"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"})
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must live until the answer is there
    admin.create_topics([wanted])[SCANNED].result(60)
    began = int(time.time() * 1000) - SCAN_RECORDS
    produce(
        bootstrap,
        (
            Record(SCANNED, number % 4, began + number, b"x" * 80, [("et", b"%d" % (began + number))])
            for number in range(SCAN_RECORDS)
        ),
    )


RATE = 20_000
ROUNDS = 3
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
    logs.log_dir(root)
    for number in range(partitions):
        opened = os.open(logs.partition(root, f"bench-{number // 10:05d}-{number % 10}"), os.O_RDONLY)
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
    for suffix, parts, size in (
        (".index", {0: index}, 10 << 20),
        (".timeindex", {0: times}, (10 << 20) // 12 * 12),
        (".snapshot", {0: b"s" * 10}, 0),
        (".log", {0: _batch(base, stamp), start: tail}, 0),
    ):
        file = os.open(f"{base:020d}{suffix}", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=folder)
        for at, content in parts.items():
            os.pwrite(file, content, at)
        if active and size:
            os.truncate(file, size)
        os.close(file)


def _batch(base: int, stamp: int) -> bytes:
    return logs.batch(base, range(stamp - 9, stamp + 1), BATCH_BYTES)


def measure(scratch: Path, partitions: int) -> dict[str, float]:
    """Return segments, segments a second of a core (median), and peak MiB of a log dir of so many partitions."""
    root = scratch / f"data-{partitions}"
    began = time.perf_counter()
    make(root, partitions)
    print(f"made {partitions * SEGMENTS:,} segments in {time.perf_counter() - began:.0f} s", flush=True)
    command = [sys.executable, "-c", _SCAN, str(root), str(scratch / "inventory.parquet")]
    runs = [json.loads(run(command).out) for _ in range(ROUNDS + 1)][1:]  # the first warms the cache
    shutil.rmtree(root)
    if any(one["problems"] or one["notes"] or one["segments"] != partitions * SEGMENTS for one in runs):
        raise RuntimeError(f"the scan did not tell all of it: {runs[0]}")
    return {
        "segments": runs[0]["segments"],
        "core": statistics.median(one["segments"] / one["cpu"] for one in runs),
        "peak_mib": max(one["peak_mib"] for one in runs),
    }


def segments_scan(bench: Bench) -> None:
    """Scan log dirs of sparse files, as brokers leave them, each time in a process of its own; the cache is warm."""
    small, large = (measure(bench.scratch, partitions) for partitions in (500, 5000))
    name = f"segments scan, {large['segments']:,.0f} segments"
    bench.say(f"{name}, segments/s a core", large["core"], f">= {RATE}")
    bench.say(f"{name}, peak MiB", large["peak_mib"])
    bench.say("… peak memory beside that of a tenth of them", large["peak_mib"] / small["peak_mib"], "<= 1.5")


SMALL, LARGE = 5_000, 50_000
_BARE = Settings(named_in_full=True)


def by(rule: str, row: Row, at: int) -> Row:
    """Return a plain row as this rule trims it, to an offset: only the facts that the rule reads are there."""
    was = row.facts
    front = {ANCIENT_MS: was.lookups[ANCIENT_MS]}
    day, found = NOW - 24 * HOUR, LookUp(at, None, NOW - 24 * HOUR + 5)
    bare = was._replace(lookups=front)
    match rule:
        case "R2":
            facts = bare._replace(newest=EventMax(NOW - HOUR, at, True), data_lookups={day: found})
            return row._replace(settings=replace(_BARE, event_time_ms=23 * HOUR), facts=facts)
        case "R3":
            facts = bare._replace(data_lookups={day: found})
            return row._replace(settings=replace(_BARE, min_timestamp_ms=day), facts=facts)
        case "R4":
            settings = replace(_BARE, forced_age_ms=24 * HOUR, unconsumed="trim")
            return row._replace(settings=settings, facts=was._replace(lookups=front | {day: found}))
        case "R5":
            facts = was._replace(lookups={}, tails={"retention.bytes": Tail(at, False)})
            return row._replace(settings=replace(_BARE, max_bytes=2**30), facts=facts)
        case "R6":
            low: Any = was.floor
            return row._replace(disks=DiskPart((low.offset - 1, Reason("R6", "disk b1:/d is at 91 %")), None))
        case "R7":
            half = LookUp(max(at, was.lookups[NOW - HOUR].offset), None, NOW - HOUR // 2 + 5)  # type: ignore[union-attr]
            usage = Usage("b1:/d", 91.5, Watermark(90.0, 0.5, 0))
            return row._replace(facts=was._replace(usage=usage, lookups={**was.lookups, NOW - HOUR // 2: half}))
        case "G3":
            samples = [Sample(NOW - hours * HOUR, at) for hours in (3, 2, 1)]
            settings = replace(row.settings, min_wallclock_ms=HOUR)
            return row._replace(settings=settings, facts=was._replace(samples=samples))
    return row


def write(folder: Path, rule: str, count: int) -> None:
    """Write the evidence of a run that trimmed so many partitions, and its audit log."""
    draw, rows, chosen = random.Random(1), list[Row](), dict[str, Settings]()
    plain, seen = usual(count, topics=count // 50)
    for one in plain:
        start: Any = one.facts.log_start
        end: Any = one.facts.high_watermark
        made = by(rule, one, draw.randrange(start + 1, end))
        made = made._replace(settings=chosen.setdefault(one.facts.topic.name, made.settings))
        again = decided(made)
        planned = made.planned._replace(trim_to=again.trim_to or 0, unconsumed=again.unconsumed)
        rows.append(made._replace(decision=RecordedDecision.of(again), planned=planned))
    left_behind(folder / "c", rows, seen, trimmed(rows))


def verify_rates(bench: Bench) -> None:
    """Print how many partitions ``kretain verify`` checks a second of a core, by the rule that decided them.

    Of each rule a small and a large run are verified, each in a process of its own. The rate is that of the rows that
    the large one has more: imports and a run's own lines in the audit log cost the same in both.
    """
    program = str(Path(sys.executable).with_name("kretain"))
    for rule in ("R1", "R2", "R3", "R4", "R5", "R6", "R7", "G3"):
        least = []
        for count in (SMALL, LARGE):
            with tempfile.TemporaryDirectory(dir=bench.scratch) as folder:
                write(Path(folder), rule, count)
                command = [program, "verify", RUN, "--state-dir", folder]
                least.append(min(run(command).cpu_seconds for _ in range(ROUNDS)))
        bench.say(f"verify by {rule}, rows/s a core", (LARGE - SMALL) / (least[1] - least[0]), f">= {RATE}")
