"""``make bench``: ratios of whole processes on one cluster, and what they are to reach.

The yardstick is a Go program built from ``--yardstick DIR`` (default: ../shared/yardstick/kadm); where that
folder or Go is missing, its ratio is left out, and said to be.
"""

from __future__ import annotations

import argparse
import compileall
import json
import statistics
import sys
import tempfile
from pathlib import Path

import kretain
import retention_cli
from bench.costs import every_time_rule, header_scan, segments_scan, verify_rates
from bench.harness import Bench, build_yardstick, run
from bench.seed import Shape, seed
from tests.support.clusters import EmbeddedKafka


def help_beside_typer() -> float:
    """Return how much longer ``kretain --help`` takes than importing typer."""
    program = Path(sys.executable).with_name("kretain")
    pairs = []
    for _ in range(15):
        typer = run([sys.executable, "-c", "import typer"])
        pairs.append(run([str(program), "--help"]).seconds / typer.seconds)
    return statistics.median(pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--yardstick", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "yardstick" / "kadm"
    )
    parser.add_argument("--topics", type=int, default=Shape.topics)
    parser.add_argument("--groups", type=int, default=Shape.groups)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for package in (kretain, retention_cli):  # as pip does for who installs it
        compileall.compile_dir(package.__path__[0], quiet=1)
    shape = Shape(topics=given.topics, groups=given.groups)
    kafka = EmbeddedKafka(3, progress=print)
    kafka.heap_mb = 768
    with tempfile.TemporaryDirectory(prefix="kretain-bench-") as folder, kafka:
        bench = Bench(kafka, shape, Path(folder), given.rounds)
        bench.say("kretain --help / import typer", help_beside_typer(), "<= 2.5")
        segments_scan(bench)
        verify_rates(bench)
        seed(kafka.bootstrap, shape, lambda what: print(f"seeding {what} …", flush=True))
        bench.plan_beside_the_yardstick(build_yardstick(given.yardstick, Path(folder)))
        bench.plan_beside_the_stock_tool()
        every_time_rule(bench)
        header_scan(bench)
        bench.plan_after_elections(kafka)
        bench.trim_beside_the_stock_tool()
        if given.out is not None:
            given.out.write_text(json.dumps(bench.results, indent=1) + "\n")


if __name__ == "__main__":
    main()
