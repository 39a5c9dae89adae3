"""What tasks have seen, put into the ledger: by the client, which holds it (DESIGN.md, the ledger)."""

from __future__ import annotations

import base64
from typing import Any

from retention_cli.group_memory import GroupMemory
from retention_cli.memory import PartitionMemory
from retention_cli.model import Sample
from retention_cli.observation import wall_clock_ms
from retention_cli.spark.fact_rows import memory_of
from retention_cli.spark.prepare import Prepared
from retention_cli.state.ledger import Ledger


def remember_groups(prepared: Prepared, commits: Any) -> None:
    """Take in the groups whose commits have changed."""
    memory = prepared.memory
    if not isinstance(memory, Ledger):
        return
    mine = commits.where((commits.cluster == prepared.cluster) & (commits.kind == "memory")).select("group", "text")
    for row in mine.toLocalIterator():
        memory.adopt_group(row["group"], GroupMemory.from_bytes(base64.b64decode(row["text"])))


def remember_partitions(prepared: Prepared, decided: Any) -> None:
    """Add each high watermark and when it was that, note leftovers (F5), and save."""
    memories, memory = prepared.target.memories, prepared.memory
    if memories is None:
        return
    names = ("topic", "topic_id", "partition", "high_watermark", "leader_epoch", "read_ms", "memory", "leftover")
    mine = decided.where((decided.cluster == prepared.cluster) & decided.high_watermark.isNotNull()).select(*names)
    ends: dict[tuple[str, int], int] = {}
    for row in mine.toLocalIterator(prefetchPartitions=True):
        if row["leftover"]:
            ends[row["topic"], row["partition"]] = row["high_watermark"]
        if row["topic_id"] is None:
            continue
        mine_now = memory.partition(row["topic"], row["topic_id"], row["partition"])
        if row["memory"] is not None:
            _absorb(mine_now, memory_of(row["memory"].asDict(recursive=True)))
        mine_now.add_sample(Sample(row["read_ms"], row["high_watermark"], row["leader_epoch"]))
    memory.note_leftovers(ends)
    memories.save(wall_clock_ms())


def _absorb(mine: PartitionMemory, theirs: PartitionMemory) -> None:
    """Take over what a task has brought up to date: it began with what we had."""
    both = theirs.merged(mine)
    mine.packed, mine.newest, mine.data_at, mine.scan = both.packed, both.newest, both.data_at, both.scan
    mine.changed = True
