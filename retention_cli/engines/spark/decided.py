"""Decide many partitions at once, from facts to columns.

Nearly all partitions of nearly all fleets are plain (:mod:`retention_cli.decide.plain`). They are decided here, in
columns; all others by :func:`~retention_cli.decide.decision.decide`, one by one. Both give the same
(tests/unit/engines/test_spark_decided.py), as in a plan nobody can tell which it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from retention_cli.core.model import Decision, PartitionFacts, Unknown
from retention_cli.decide.decision import decide
from retention_cli.decide.plain import PlainRule, plain_bound, plain_rule
from retention_cli.plan.columns import COLUMNS
from retention_cli.plan.parquet import schema
from retention_cli.policy.settings import Settings

PLAN_COLUMNS: Final = schema(COLUMNS)
_FIELDS: Final = tuple(Decision._fields.index(one.field) for one in COLUMNS)


class _Plain(NamedTuple):
    """A partition that R1 alone decides: its place, S, H, L, the floor, what R1 allows, and its size; −1 for none."""

    place: int
    log_start: int
    high_watermark: int
    last_stable_offset: int
    floor: int
    floor_by: str | None
    bound: int
    size_bytes: int


def decided_batch(facts: Sequence[PartitionFacts], settings: Mapping[str, Settings], now_ms: int) -> pa.RecordBatch:
    """Return the partitions' decisions, in order, as a batch of the plan's columns.

    Args:
        facts: the partitions, a topic's together.
        settings: the topics' settings.
        now_ms: the time from which all cutoffs are calculated.
    """
    plain: list[_Plain] = []
    rest: list[int] = []
    rule: PlainRule | None = None
    topic = None
    for index, one in enumerate(facts):
        if one.topic is not topic:
            topic, rule = one.topic, plain_rule(one, settings[one.topic.name], now_ms)
        found = None if rule is None else _plain(index, one, rule)
        if found is None:
            rest.append(index)
        else:
            plain.append(found)
    others = [decide(facts[n], settings[facts[n].topic.name], now_ms) for n in rest]
    if not plain:
        return decisions_batch(others)
    if not rest:
        return _columns(facts, plain)
    both = pa.Table.from_batches([_columns(facts, plain), decisions_batch(others)])
    order = np.argsort([*(one.place for one in plain), *rest])
    return both.take(order).combine_chunks().to_batches()[0]


def _plain(index: int, one: PartitionFacts, rule: PlainRule) -> _Plain | None:
    """Return what R1 allows of a partition, None if there is more to be said of it."""
    bound = plain_bound(one, rule)
    if bound is None:
        return None
    start: Any = one.log_start  # none of these is unknown, else there would be no such bound
    end: Any = one.high_watermark
    stable: Any = one.last_stable_offset
    floor, size = one.floor, one.size_bytes
    if isinstance(floor, Unknown):
        return _Plain(index, start, end, stable, -1, None, bound, 0)
    return _Plain(index, start, end, stable, floor.offset, floor.by, bound, -1 if isinstance(size, Unknown) else size)


def _columns(facts: Sequence[PartitionFacts], plain: Sequence[_Plain]) -> pa.RecordBatch:
    index, starts, ends, stable, floors, floors_by, bounds, sizes = zip(*plain, strict=True)
    start, bound, end = np.array(starts), np.array(bounds), np.array(ends)
    trims = bound > start
    records = np.where(trims, bound - start, 0)
    unsized = trims & (np.array(sizes, object) == -1)
    bytes_ = [
        size * gone // (last - first) if gone else 0
        for size, gone, first, last in zip(sizes, records.tolist(), starts, ends, strict=True)
    ]
    floor = np.array(floors)
    some = [facts[n] for n in index]
    text, count = pa.string(), len(some)
    columns: dict[str, Any] = {
        "topic": pa.array([one.topic.name for one in some], text),
        "topic_id": pa.array([one.topic.topic_id for one in some], text),
        "partition": pa.array([one.partition for one in some], pa.int32()),
        "leader_epoch": pa.array([one.leader_epoch for one in some], pa.int32()),
        "action": pa.DictionaryArray.from_arrays(pa.array(trims.astype(np.int8)), ["keep", "trim"]).cast(text),
        "log_start": pa.array(start),
        "high_watermark": pa.array(end),
        "last_stable_offset": pa.array(np.array(stable)),
        "min_commit": pa.array(floor, mask=floor < 0),
        "min_commit_by": pa.array(floors_by, text),
        "trim_to": pa.array(bound, mask=~trims),
        "records": pa.array(records),
        "bytes": pa.array(bytes_, pa.int64(), mask=unsized.astype(bool)),
        "unconsumed": pa.array(np.zeros(count, np.int64)),
        "rule": pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8), mask=~trims), ["consumed"]).cast(
            text
        ),
        "limited_by": pa.nulls(count, text),
        "reasons": pa.ListArray.from_arrays(np.zeros(count + 1, np.int32), pa.array([], _REASONS.value_type)),
        "bytes_exact": pa.array(np.zeros(count, bool)),
    }
    return pa.RecordBatch.from_arrays([columns[one.name] for one in PLAN_COLUMNS], schema=PLAN_COLUMNS)


_REASONS: Final = PLAN_COLUMNS.field("reasons").type


def decisions_batch(decisions: Iterable[Decision]) -> pa.RecordBatch:
    """Return decisions as a batch of the plan's columns."""
    fields = list(zip(*decisions, strict=True)) or [()] * len(Decision._fields)
    reasons = Decision._fields.index("reasons")
    fields[reasons] = tuple([{"code": one.code, "text": one.text} for one in some] for some in fields[reasons])
    arrays = [pa.array(fields[at], one.type) for at, one in zip(_FIELDS, PLAN_COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PLAN_COLUMNS)
