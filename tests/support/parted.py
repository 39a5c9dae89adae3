"""A trim in a network namespace whose link goes down meanwhile; prints what the report says and where the log begins.

``unshare --net python -m tests.support.parted FOLDER SECONDS``
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kretain.embedded import EmbeddedKafka
from retention_cli.brokers.deleter import Deleter
from tests.support.world import HOUR, World, consumed


def link(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def main(folder: Path, apart_s: float) -> None:
    link("up")
    with EmbeddedKafka(1) as kafka:
        world = World(kafka.bootstrap, folder / "state")
        topic = world.filled([100 * HOUR] * 10, {"a": 8})
        plan = world.plan(consumed(topic))
        honest = Deleter.delete
        sent: list[Any] = []

        def parted(self: Deleter, by_leader: Any, on_outcome: Any, **times: float) -> None:
            if not sent:
                link("down")
                threading.Timer(apart_s, link, ["up"]).start()
            sent.append(by_leader)
            honest(self, by_leader, on_outcome, **times)

        Deleter.delete = parted  # type: ignore[method-assign]
        report = world.trim(plan, lambda: consumed(topic))
        [row] = report.rows
        time.sleep(2)
        found = {"outcome": row.outcome, "records": report.trimmed.records, "sent": len(sent)}
        print(json.dumps({**found, "log_start": world.ends(topic, patience_s=120)[0]}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
