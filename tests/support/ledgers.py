"""Ledgers and documents with all that they can hold."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

from retention_cli.core.model import EventMax, Sample
from retention_cli.memory.event_scan import BLOCKS_AT_MOST, Block, EventScan
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import SAMPLES_AT_MOST, Front, PartitionMemory, pack
from retention_cli.memory.positions import LogNow
from retention_cli.memory.replica import REPLICAS_AT_MOST, ReplicaSeen, pack as pack_replicas
from retention_cli.state import messages
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
                    memory.note(front=Front(5, append_time=True))
                    memory.saw_stamps(at, append_time=at > 1_000)
            for number in range(groups):
                rows = {topic: [(0, at // 100 + number, None), (1, 3, 2)] for topic in IDS if at < 2_000 or number}
                ledger.saw_group(f"g{number}", rows, at, 0)
            judge_ledger(ledger, lambda _place: LogNow(5_000, 3), tuple(IDS), ())
            ledger.save(at)
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder / "ledger.sqlite"


TOPIC_ID = "sq4xHpqlRAC092LVMPTfXw"


WRITTEN = messages.Written(1_800_000_000_000, 1_700_000_000_000)


def worst(seed: int) -> PartitionMemory:
    """Return as much as is ever remembered of a partition, in numbers that don't compress."""
    numbers = random.Random(seed)

    def big() -> int:
        return numbers.getrandbits(62)

    samples = [Sample(big(), big()) for _ in range(SAMPLES_AT_MOST)]
    blocks = [Block(big(), big(), big(), big(), big(), big()) for _ in range(BLOCKS_AT_MOST)]
    scan = EventScan("json:/some/long/pointer/into/a/value", big(), big(), EventMax(big(), big()), blocks, big())
    replicas = pack_replicas(ReplicaSeen(*(big() for _ in range(12))) for _ in range(REPLICAS_AT_MOST))
    data_at = tuple(big() for _ in range(8))
    return PartitionMemory(
        pack(samples),
        EventMax(big(), big()),
        data_at,
        scan.as_bytes(),
        replicas,
        leader_epoch=numbers.getrandbits(31),
        log_start=big(),
        created=True,
        created_below=big(),
        segments=((big(), big()), (big(), big())),
        front=Front(big(), append_time=True),
    )
