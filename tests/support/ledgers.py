"""Ledgers filled by hand."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from retention_cli.core.model import EventMax, Sample
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import Front
from retention_cli.memory.positions import LogNow
from tests.support.groups import judge_ledger

IDS = {"orders": "id-1", "clicks": "id-2"}


def filled(folder: Path, groups: int = 3) -> Path:
    """Make a ledger of two passes; return its file."""
    for at in (1_000, 2_000):
        with Ledger(folder) as ledger:
            ledger.begin(IDS)
            for topic, topic_id in IDS.items():
                for number in range(2):
                    memory = ledger.partition(topic, topic_id, number)
                    memory.continue_at(3, 5, at)
                    memory.add_sample(Sample(at, at))
                    memory.add_newest(EventMax(at, 7), "CreateTime")
                    memory.set_front(Front(5, append_time=True))
                    memory.saw_stamps(at, append_time=at > 1_000)
            for number in range(groups):
                rows = {topic: [(0, at // 100 + number, None), (1, 3, 2)] for topic in IDS if at < 2_000 or number}
                ledger.saw_group(f"g{number}", rows, at, 0)
            judge_ledger(ledger, lambda _place: LogNow(5_000, 3), tuple(IDS), ())
            ledger.save(at)
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder / "ledger.sqlite"
