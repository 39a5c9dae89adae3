"""What event times cost: every time rule at once beside R1 alone, and reading event times out of headers."""

from __future__ import annotations

import shutil
import statistics
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from bench.harness import Bench

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


def every_time_rule(bench: Bench, run: Any, rounds: int) -> None:
    """R1 to R4 on every topic, with a memory and without, beside R1 alone, in turn."""
    policy = bench.scratch / "times.yaml"
    policy.write_text(TIME_RULES.format(minimum=int(time.time() * 1000) - 10 * 86_400_000 + 7_200_000))
    state = bench.scratch / "state-times"

    def timed() -> Any:
        return run(bench.kretain("plan", policy=policy, state=state))

    first = timed()
    if f"{bench.shape.partitions:,} trim" not in first.out:
        raise RuntimeError(f"the plan does not trim every partition:\n{first.out}")
    bench.say("plan by R1-R4, first run, seconds", first.seconds, "", good=None)
    alone, every = [], []
    for _ in range(rounds):
        alone.append(run(bench.kretain("plan")))
        every.append(timed())
    bench.say("plan by R1-R4, warm ledger, seconds", statistics.median(one.seconds for one in every), "", good=None)
    bench.say("plan by R1-R4, peak MiB", max(one.peak_mib for one in every), "", good=None)
    ratio = statistics.median(many.seconds / one.seconds for one, many in zip(alone, every, strict=True))
    bench.say("plan by R1-R4, warm / R1 alone (median of pairs)", ratio, "<= 1.6", good=ratio <= 1.6)
    shutil.rmtree(state)


def header_scan(bench: Bench, run: Any, tools: list[str]) -> None:
    """Read the event times of two million records of 100 bytes, beside Kafka's own console consumer."""
    produce(bench.bootstrap)
    policy = bench.scratch / "scan.yaml"
    policy.write_text(SCAN_POLICY)
    state = bench.scratch / "state-scan"
    done = run(bench.kretain("plan", policy=policy, state=state))
    again = run(bench.kretain("plan", policy=policy, state=state))
    stock = run(
        [
            *tools,
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            "--bootstrap-server",
            bench.bootstrap,
            "--topic",
            SCANNED,
            "--from-beginning",
            "--max-messages",
            str(SCAN_RECORDS),
            "--property",
            "print.headers=true",
        ]
    )
    bench.say("header scan, records/s (whole process)", SCAN_RECORDS / done.seconds, "", good=None)
    rate = SCAN_RECORDS / done.cpu_seconds
    bench.say("header scan, records/s a core", rate, ">= 200000", good=rate >= 200_000)
    bench.say("header scan, peak MiB", done.peak_mib, "", good=None)
    bench.say("the next run, seconds", again.seconds, "", good=None)
    bench.say("kafka-console-consumer, records/s (whole process)", SCAN_RECORDS / stock.seconds, "", good=None)
    bench.say("header scan / console consumer", stock.seconds / done.seconds, "", good=None)


def produce(bootstrap: str) -> None:
    """Make the topic of two million records with an event time in a header each."""
    wanted = NewTopic(SCANNED, 4, 1, config={"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"})
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must live until the answer is there
    admin.create_topics([wanted])[SCANNED].result(60)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000, "log_level": 3}
    )
    began = int(time.time() * 1000) - SCAN_RECORDS
    for number in range(SCAN_RECORDS):
        headers: Any = [("et", b"%d" % (began + number))]
        while True:
            try:
                producer.produce(SCANNED, b"x" * 80, partition=number % 4, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 1000:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the records to scan were not taken")
