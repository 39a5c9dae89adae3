"""R5 by the batches in logs: ``python -m bench.batch_sizes`` (a minute), beside Kafka's own consumer benchmark.

Two million records of 100 bytes, uncompressed, in four partitions. kretain looks at their batches' headers alone, but
all of it crosses the network.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.event_times import SCAN_RECORDS, SCANNED, produce

if TYPE_CHECKING:
    from bench.harness import Bench

POLICY: Final = f"""version: 1
topics:
  - match: {SCANNED}
    retention.bytes: 10MiB
    unconsumed: trim
"""
_MIB: Final = 1 << 20


def batch_sizes(bench: Bench, run: Any, tools: list[str]) -> None:
    """Plan with an estimate, with every batch read, and have the stock tool read the same, in turn."""
    policy = bench.scratch / "bytes.yaml"
    policy.write_text(POLICY)
    state = bench.scratch / "state-bytes"
    perf = [*tools, "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", bench.bootstrap]
    perf += ["--topic", SCANNED, "--messages", str(SCAN_RECORDS), "--timeout", "60000"]
    more, peaks, stock = [], [], []
    for _ in range(bench.rounds):
        estimated = run(bench.kretain("plan", policy=policy, state=state))
        read = run(bench.kretain("plan", "--exact-bytes", policy=policy, state=state))
        if "4 trim" not in read.out or "by the batches in its log" not in read.out:
            raise RuntimeError(f"the plan does not trim every partition by its batches:\n{read.out}")
        more.append(read.seconds - estimated.seconds)
        peaks.append(read.peak_mib)
        stock.append(run(perf).seconds)
    seconds = statistics.median(more)
    mib = SCAN_RECORDS * 100 / _MIB
    bench.say("plan --exact-bytes, MiB/s (beyond the plan without)", mib / seconds, "", good=None)
    bench.say("plan --exact-bytes, peak MiB", max(peaks), "", good=None)
    bench.say("kafka-consumer-perf-test / what --exact-bytes adds", statistics.median(stock) / seconds, "", good=None)


def main() -> None:
    """Seed, measure, print."""
    from bench.harness import Bench, run, stock_tools
    from bench.seed import Shape
    from kretain.embedded import EmbeddedKafka
    from kretain.embedded.java import find_java

    with (
        tempfile.TemporaryDirectory(prefix="kretain-bench-") as folder,
        EmbeddedKafka(1, heap_mb=768, progress=print) as kafka,
    ):
        produce(kafka.bootstrap)
        batch_sizes(Bench(kafka, Shape(), Path(folder), 5), run, stock_tools(find_java()))


if __name__ == "__main__":
    main()
