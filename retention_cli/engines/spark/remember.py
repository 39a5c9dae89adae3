"""Write tasks' observations to the ledger. Only the client does this (docs/memory.md)."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import Maybe, Sample, TopicPartition, Unknown
from retention_cli.engines.spark.prepare import Prepared
from retention_cli.memory.documents import memory_from_bytes
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.interface import LogNow
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.lineage import Cut, prove
from retention_cli.observe.recall import log_now

_SEEN: Final = (
    *("cluster", "topic", "topic_id", "partition", "log_start", "high_watermark"),
    *("leader_epoch", "read_ms", "memory", "doubt", "ends"),
)


def remember_groups(prepared: Sequence[Prepared], commits: Any) -> None:
    """Record groups whose commits have changed, and mark the others as seen again (F6)."""
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
    """Record each high watermark and when it was read, judge the commits read (F5, F6), and save the ledgers."""
    remembering = {one.cluster: one for one in prepared if one.target.memories is not None}
    if not remembering:
        return
    known = decided.where(decided.high_watermark.isNotNull() & decided.cluster.isin(*remembering)).select(*_SEEN)
    logs: dict[str, dict[tuple[str, int], LogNow]] = {cluster: {} for cluster in remembering}
    for row in known.toLocalIterator(prefetchPartitions=True):
        one = remembering[row["cluster"]]
        ends = {end["leader_epoch"]: _answer(end) for end in row["ends"] or ()}
        cut: Maybe[Cut | None] = Unknown(()) if row["doubt"] else None
        if row["topic_id"] is not None and cut is None:
            cut = remember_partition(one, row, ends)
        if not isinstance(cut, Unknown):
            logs[row["cluster"]][row["topic"], row["partition"]] = log_now(
                row["high_watermark"],
                row["leader_epoch"],
                frozenset(epoch for epoch, end in ends.items() if isinstance(end, NotFound)),
                frozenset(epoch for epoch, end in ends.items() if isinstance(end, RequestFailedError)),
                cut,
                _last_epoch(one, row),
            )
    for cluster, one in remembering.items():
        note_create_time(one)
        here = logs[cluster]
        cuts = [TopicPartition(*place) for place, log in here.items() if log.cut is not None]
        one.memory.judge(here.get, {topic for topic, _ in here}, cuts)
        if one.target.memories is not None:
            one.target.memories.save(SYSTEM.wall_ms())


def note_create_time(one: Prepared) -> None:
    """Record which topics are CreateTime, even if a log could not be read: that can only keep more records (G3)."""
    for name, config in one.job.configs.items():
        about = one.metadata.topics[name]
        if isinstance(config, TopicConfig) and config.timestamp_type == "CreateTime" and about.topic_id is not None:
            for number in about.partitions:
                one.memory.partition(name, about.topic_id, number).saw_stamps(0, append_time=False)


def _last_epoch(one: Prepared, row: Any) -> int | None:
    if row["topic_id"] is None:
        return None
    return one.memory.partition(row["topic"], row["topic_id"], row["partition"]).last_epoch


def remember_partition(one: Prepared, row: Any, ends: Mapping[int, Answer]) -> Maybe[Cut | None]:
    """Record a partition's facts; return where its log was cut (None: nowhere), unknown if that can't be verified."""
    cut = one.cuts.get(TopicPartition(row["topic"], row["partition"]))
    mine = one.memory.partition(row["topic"], row["topic_id"], row["partition"])
    epoch, start, end = row["leader_epoch"], row["log_start"], row["high_watermark"]
    if start is not None:
        proven = prove(mine, epoch, start, end, ends, row["read_ms"])
        if isinstance(proven, Unknown):
            return proven
        cut = cut or proven
    if row["memory"] is not None:  # a task has updated the partition's record
        mine.take(memory_from_bytes(row["memory"]))
        mine.changed = True
    mine.add_sample(Sample(max(row["read_ms"], SYSTEM.wall_ms()), end))  # a later time is just as valid (G3)
    config = one.job.configs.get(row["topic"])
    if isinstance(config, TopicConfig) and config.timestamp_type is not None:
        mine.saw_stamps(end, append_time=config.timestamp_type == "LogAppendTime")
    return cut


def _answer(row: Any) -> Answer:
    if row["text"] is not None:
        return RequestFailedError(row["text"], retriable=True)
    return NotFound() if row["end"] is None else Found(row["end"])
