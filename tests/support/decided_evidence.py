"""``python -m tests.support.decided_evidence FOLDER``: evidence by the code that is there, of each rule and guard."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from retention_cli.evidence.value import DiskPart
from retention_cli.evidence.verify import verify_runs
from tests.support.evidence import RUN, drawn, left_behind, trimmed, usual


def write(folder: Path) -> None:
    """Write the evidence of a run of 600 partitions."""
    draw = random.Random(1)
    plain, seen = usual(600, topics=600)
    rows = [drawn(one, draw, every=n % 2 == 0) for n, one in enumerate(plain)]
    rows = [one._replace(disks=one.disks or DiskPart()) for one in rows]  # so that decide is asked, and not columns
    left_behind(folder / "c", rows, seen, trimmed(rows))


def wrong(folder: Path) -> int:
    """Return how much of it is wrong."""
    return len(verify_runs(folder, [RUN])[0].findings)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    sys.stdout.write(f"{wrong(Path(sys.argv[2]))}\n")
