"""Ledgers and documents with all that they can hold; random commits, topic ids and logs of a few partitions."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from retention_cli.core.model import EventMax, Sample, TopicPartition
from retention_cli.memory.event_scan import BLOCKS_AT_MOST, Block, EventScan
from retention_cli.memory.group import GroupMemory, digest_of
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import SAMPLES_AT_MOST, Front, PartitionMemory, pack
from retention_cli.memory.positions import LogNow, Logs, Positions, Rows
from retention_cli.memory.replica import REPLICAS_AT_MOST, ReplicaSeen, pack as pack_replicas
from retention_cli.state import messages

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


TOPICS = ("a", "b", "c")
EPOCHS = st.sampled_from([None, 0, 1, 2])
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), EPOCHS), max_size=3, unique_by=lambda row: row[0])
COMMITS = st.dictionaries(st.sampled_from(TOPICS), ROWS, max_size=3)
TOPIC_IDS = st.dictionaries(st.sampled_from(TOPICS), st.sampled_from(["x", "x", "x", "y"]), max_size=3)
LOG = st.builds(
    LogNow,
    high_watermark=st.integers(0, 5),
    leader_epoch=st.integers(0, 2),
    unknown_epochs=st.sampled_from([frozenset(), frozenset({1})]),
    unasked_epochs=st.sampled_from([frozenset(), frozenset(), frozenset({2})]),
    cut=st.sampled_from([None, None, 2]),
    last_epoch=st.sampled_from([None, 0]),
    ended=st.sampled_from([(), (), ((1, 2),), ((0, 1), (1, 3))]),
)
LOGS = st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)), LOG, max_size=9)
LogOf = Callable[[tuple[str, int]], LogNow | None]


def judge(group: GroupMemory, log_of: LogOf) -> bool:
    """Judge a group's open commits by a function that returns a partition's log."""
    return group.judge(logs_at(group.open, log_of))


def judge_ledger(ledger: Ledger, log_of: LogOf, topics: Collection[str], cuts: Collection[TopicPartition] = ()) -> None:
    places = {place for group in ledger.groups().values() for place in group.live}
    ledger.judge(lambda: logs_at(places | {*cuts}, log_of), topics, cuts)


def logs_at(places: Collection[tuple[str, int]], log_of: LogOf) -> Logs:
    return Logs((place, log) for place in places if (log := log_of(place)) is not None)


def saw(
    group: GroupMemory, rows: Rows, ids: Mapping[str, str], now_ms: int, log: LogNow | None = None, **named: Any
) -> GroupMemory:
    """Let a group's memory see commits, and judge them if there is a log: all partitions have this one."""
    group.update(Positions.of(rows), ids, digest_of(rows, ids), now_ms, **named)
    if log is not None:
        judge(group, lambda _place: log)
    return group
