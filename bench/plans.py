"""``make bench-large``: plans and trims of clusters that three brokers here can't hold, on a synthetic one.

CPU seconds, as the machine is shared: the least of some runs, each a whole process. The yardstick is as in
:mod:`bench.run`; ``--base DIR`` times another checkout of kretain in turn with this one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench.harness import POLICY, Timed, build_yardstick, run
from bench.seed import Shape
from bench.synthetic.start import synthetic

HERE = Path(__file__).resolve().parents[1]


@dataclass
class Plans:
    """Times commands against one synthetic cluster after another."""

    scratch: Path
    checkouts: Mapping[str, Path]
    yardstick: Path | None
    rounds: int

    def of(self, name: str, shape: Shape, *, moving: bool = False, trims: bool = False) -> None:
        """Time first plans, plans, and with ``trims`` a trim."""
        with synthetic(shape, moving=moving) as served:
            runs: dict[str, list[Timed]] = {}
            for number in range(self.rounds):
                for who in self.checkouts:
                    at, state = served.bootstrap, f"{name}-{who}-{number}"
                    runs.setdefault(f"{who}, first plan", []).append(self._kretain(who, at, state, "plan"))
                    runs.setdefault(f"{who}, plan", []).append(self._kretain(who, at, state, "plan"))
                if self.yardstick is not None:
                    command = [
                        str(self.yardstick),
                        "-bootstrap",
                        served.bootstrap,
                        "-prefix",
                        shape.prefix,
                        "-reads",
                        "all",
                    ]
                    runs.setdefault("yardstick", []).append(run(command))
            if trims:
                runs["trim"] = [self._kretain("kretain", served.bootstrap, f"{name}-kretain-0", "trim", "--yes")]
            for what, timed in runs.items():
                cpu, wall = min(one.cpu_seconds for one in timed), min(one.seconds for one in timed)
                peak = max(one.peak_mib for one in timed)
                print(f"{name:24} {what:24} {cpu:7.2f} s CPU {wall:7.2f} s {peak:7.0f} MiB", flush=True)

    def _kretain(self, who: str, bootstrap: str, state: str, *arguments: str) -> Timed:
        common = ("-b", bootstrap, "-p", str(self.scratch / "policy.yaml"), "--state-dir", str(self.scratch / state))
        command = [sys.executable, "-m", "kretain", *arguments, *common, "--timeout", "120s"]
        return run(command, self.checkouts[who])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yardstick", type=Path, default=HERE.parent / "shared" / "yardstick" / "kadm")
    parser.add_argument("--base", type=Path, help="another checkout, timed in turn with this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, nargs="*", default=[50_000, 100_000, 200_000])
    given = parser.parse_args()
    checkouts = {"kretain": HERE} if given.base is None else {"base": given.base.resolve(), "kretain": HERE}
    with tempfile.TemporaryDirectory(prefix="kretain-bench-") as folder:
        (Path(folder) / "policy.yaml").write_text(POLICY)
        plans = Plans(Path(folder), checkouts, build_yardstick(given.yardstick, Path(folder)), given.rounds)
        plans.of("20,000", Shape())
        plans.of("20,000, a quarter empty", Shape(empty_share=0.25))
        plans.of("20,000, all move", Shape(), moving=True)
        for partitions in given.partitions:
            plans.of(f"{partitions:,}", replace(Shape(), topics=partitions // 10, groups=partitions // 40), trims=True)


if __name__ == "__main__":
    main()
