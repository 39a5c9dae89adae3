"""What tasks have seen, put into the ledger: by the client, which holds it (DESIGN.md, the ledger)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from retention_cli.clock import SYSTEM
from retention_cli.group_memory import GroupMemory
from retention_cli.memory import PartitionMemory
from retention_cli.model import Sample
from retention_cli.spark.fact_rows import memory_of
from retention_cli.spark.prepare import Prepared
from retention_cli.state.ledger import Ledger

_SEEN: Final = (
    "cluster",
    "topic",
    "topic_id",
    "partition",
    "high_watermark",
    "leader_epoch",
    "read_ms",
    "memory",
    "leftover",
)


def remember_groups(prepared: Sequence[Prepared], commits: Any) -> None:
    """Take in the groups whose commits have changed, and that the others were seen again (RULES.md F6)."""
    ledgers = {one.cluster: one.memory for one in prepared if isinstance(one.memory, Ledger)}
    if not ledgers:
        return
    now_ms = SYSTEM.wall_ms()
    changed = commits.where((commits.kind == "memory") & commits.cluster.isin(*ledgers))
    for row in changed.select("cluster", "group", "text").toLocalIterator():
        ledger = ledgers[row["cluster"]]
        if row["text"] is None:
            ledger.saw_again(row["group"], now_ms)
        else:
            ledger.adopt_group(row["group"], GroupMemory.from_bytes(base64.b64decode(row["text"])))


def remember_partitions(prepared: Sequence[Prepared], decided: Any) -> None:
    """Add each high watermark and when it was that, note leftovers (F5), and save."""
    remembering = {one.cluster: one for one in prepared if one.target.memories is not None}
    if not remembering:
        return
    known = decided.where(decided.high_watermark.isNotNull() & decided.cluster.isin(*remembering)).select(*_SEEN)
    ends: dict[str, dict[tuple[str, int], int]] = {cluster: {} for cluster in remembering}
    for row in known.toLocalIterator(prefetchPartitions=True):
        if row["leftover"]:
            ends[row["cluster"]][row["topic"], row["partition"]] = row["high_watermark"]
        if row["topic_id"] is None:
            continue
        mine = remembering[row["cluster"]].memory.partition(row["topic"], row["topic_id"], row["partition"])
        if row["memory"] is not None:
            _absorb(mine, memory_of(row["memory"].asDict(recursive=True)))
        mine.add_sample(Sample(row["read_ms"], row["high_watermark"], row["leader_epoch"]))
    for cluster, one in remembering.items():
        one.memory.note_leftovers(ends[cluster])
        if one.target.memories is not None:
            one.target.memories.save(SYSTEM.wall_ms())


def _absorb(mine: PartitionMemory, theirs: PartitionMemory) -> None:
    """Take over what a task has brought up to date: it began with what we had."""
    both = theirs.merged(mine)
    mine.packed, mine.newest, mine.data_at, mine.scan = both.packed, both.newest, both.data_at, both.scan
    mine.changed = True
