"""Check plain R1 rows by columns: derived from :mod:`.checks`, and only for rows that cannot be anything else. Pure.

A row is plain if R1 alone is on, every fact is known and has no notes, and all commits are in the current leader epoch
or in none. All other rows, and those that look wrong, are left to :mod:`.checks`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from retention_cli.core.model import ANCIENT_MS, PartitionFacts, TopicFacts, Unknown
from retention_cli.decide.guards import frozen, untouchable
from retention_cli.decide.triggers import TRIGGERS
from retention_cli.decide.triggers.consumed import forced_retention_conflict, live_retention
from retention_cli.evidence.files import Part
from retention_cli.evidence.format import from_json
from retention_cli.evidence.value import KINDS, Numbers, ReadTimes
from retention_cli.policy.settings import Settings

Mask = npt.NDArray[np.bool_]
_BIG: Final = 2**31
_NONE: Final = -1


class Plain(NamedTuple):
    """Which rows are plain and right, and how far a request for each may go: −1 for none."""

    right: Mask
    allowed: Numbers


def check(part: Part, *, inventory: bool) -> Plain:
    """Return which of a recheck's rows are plain and right."""
    table = part.table
    count = len(table)
    if not count or inventory:
        return Plain(np.zeros(count, np.bool_), np.full(count, _NONE))
    codes, after_ms = _kinds(table)
    column = {name: numbers(table, name) for name in _NUMBERS}
    start, end, stable, floor = (column[n] for n in ("log_start", "high_watermark", "last_stable_offset", "floor"))
    sizes = column["size_bytes"]
    good: Mask = (after_ms != _NONE) & (table.column("more").is_null().to_numpy())
    for one in (start, end, stable, floor, sizes):
        good &= one >= 0
    wait = np.where(after_ms == _NONE, 0, after_ms)
    old, front = _looked_up(table, column["now_ms"] - wait)
    past = floor > start  # else R1 asks for nothing, and nothing is looked up
    good &= ~past | ((old >= 0) & (front >= 0) & (front <= start))
    bound = np.minimum(np.where(past, np.minimum(floor, old), start), np.where(end < stable, end, stable))
    unguarded = np.where(past, np.minimum(floor, old), start)
    trims = (unguarded > start) & (bound > start) & (start != end)
    target = np.where(trims, bound, _NONE)
    size = np.where(trims, bound - start, 0)
    whole = np.maximum(end - start, 1)
    good &= (whole < _BIG) | ~trims
    share = sizes // whole * size + sizes % whole * np.where(whole < _BIG, size, 0) // whole  # without an overflow
    good &= _is(table, "action", np.where(trims, "trim", "keep"))
    good &= _is(table, "rule", np.where(trims, "consumed", ""))
    good &= _is(table, "limited_by", np.where(trims & (bound < unguarded), "G1", ""))
    good &= column["trim_to"] == target
    good &= column["trim_bytes"] == np.where(trims, share, 0)
    good &= ~table.column("trim_bytes_exact").to_numpy()
    good &= _floor_holds(part, column, floor, end)
    times = [column[f"{name}_ms"] for name in ReadTimes._fields]
    for before, later in pairwise(times):
        good &= before <= later
    good &= (times[0] - 1 <= column["now_ms"]) & (column["now_ms"] <= times[-1] + 1)
    planned = column["plan_trim_to"]
    same = (column["plan_epoch"] == column["leader_epoch"]) & (column["plan_epoch"] >= 0)
    same &= _same_topic(table, codes) & (column["plan_min_commit"] <= floor)
    least = np.where(trims, np.minimum(planned, target), _NONE)
    unread = np.maximum(least - np.maximum(start, floor), 0)
    sent = same & trims & (least > start) & (unread <= column["plan_unconsumed"])
    return Plain(good, np.where(sent, least, _NONE))


_NUMBERS: Final = (
    *("log_start", "high_watermark", "last_stable_offset", "floor", "size_bytes", "trim_to", "trim_bytes", "now_ms"),
    *("plan_trim_to", "plan_min_commit", "plan_unconsumed", "plan_epoch", "leader_epoch"),
    *(f"{name}_ms" for name in ReadTimes._fields),
)


def numbers(table: Any, name: str) -> Numbers:
    """Return a column of numbers, −1 where there is none."""
    found: Numbers = table.column(name).fill_null(_NONE).to_numpy().astype(np.int64)
    return found


def _is(table: Any, name: str, wanted: npt.NDArray[np.str_]) -> Mask:
    column = table.column(name).dictionary_encode().combine_chunks()
    texts = np.array([*column.dictionary.to_pylist(), ""])
    found: Mask = texts[column.indices.fill_null(len(texts) - 1).to_numpy()] == wanted
    return found


def _kinds(table: Any) -> tuple[Numbers, Numbers]:
    """Return which topic's facts each row has, and R1's T (ms): −1 where something else may decide."""
    facts = table.column("topic_facts").dictionary_encode().combine_chunks()
    settings = table.column("settings").dictionary_encode().combine_chunks()
    chosen = [from_json("settings", text) for text in settings.dictionary.to_pylist()]
    about = [from_json("topic", text) for text in facts.dictionary.to_pylist()]
    pairs = facts.indices.to_numpy().astype(np.int64) * len(chosen) + settings.indices.to_numpy()
    found, places = np.unique(pairs, return_inverse=True)
    after = [only_consumed(about[one // len(chosen)], chosen[one % len(chosen)]) for one in found.tolist()]
    return facts.indices.to_numpy().astype(np.int64), np.array(after, np.int64)[places]


def only_consumed(topic: TopicFacts, settings: Settings) -> int:
    """Return R1's T if R1 alone may decide about a topic, else −1."""
    after_ms = settings.consumed_after_ms
    asked = replace(settings, consumed_after_ms=None)
    bare = PartitionFacts(topic, 0, 0, 0, 0, Unknown(()))
    if (
        after_ms is None
        or any(trigger.on(bare, asked) for trigger in TRIGGERS)
        or frozen(settings) is not None
        or untouchable(topic, settings) is not None
        or settings.unsettled is not None
        or isinstance(topic.topic_id, Unknown)
        or settings.watch_first_ms is not None
        or settings.min_wallclock_ms is not None
        or settings.whole_segments
        or settings.allow_ancient
        or forced_retention_conflict(after_ms, live_retention(topic), None) is not None
    ):
        return _NONE
    return after_ms


def _looked_up(table: Any, cutoff: Numbers) -> tuple[Numbers, Numbers]:
    """Return what the look-ups of R1's time and of 2000-01-01 say by row, −1 where they were not made."""
    column = table.column("lookups").combine_chunks()
    ends = column.offsets.to_numpy()
    values = column.flatten()
    row = np.repeat(np.arange(len(table)), np.diff(ends))
    at, offset = (values.field(name).fill_null(_NONE).to_numpy(zero_copy_only=False) for name in ("at_ms", "offset"))
    plain = ~values.field("data").to_numpy(zero_copy_only=False)
    found = []
    for mask in (plain & (at == cutoff[row]) & (cutoff[row] > 0), plain & (at == ANCIENT_MS)):
        answers = np.full(len(table), _NONE, np.int64)
        answers[row[mask]] = offset[mask]
        found.append(answers)
    return found[0], found[1]


def _floor_holds(part: Part, column: dict[str, Numbers], floor: Numbers, end: Numbers) -> Mask:
    """Return where every commit is plain, in the current epoch, within the log, and not below the floor."""
    commits = part.commits
    row = np.repeat(np.arange(len(floor)), np.diff(commits.start))
    epoch = commits.epoch
    odd = (commits.kind != KINDS.index("commit")) | ((epoch != _NONE) & (epoch != column["leader_epoch"][row]))
    odd |= (commits.offset > end[row]) | (commits.offset < floor[row])
    good: Mask = np.diff(commits.start).astype(np.bool_)
    good[row[odd]] = False
    names = np.array([*commits.names, ""])
    column_by = part.table.column("floor_by").dictionary_encode().combine_chunks()
    whose = np.array([*column_by.dictionary.to_pylist(), ""])[column_by.indices.fill_null(-1).to_numpy()]
    lowest = np.zeros(len(floor), np.bool_)
    lowest[row[names[commits.by] == whose[row]]] = True
    good &= lowest
    return good


def _same_topic(table: Any, codes: Numbers) -> Mask:
    """Return where the plan's topic id is the one that was read."""
    facts = table.column("topic_facts").dictionary_encode().combine_chunks().dictionary.to_pylist()
    ids: Sequence[Any] = [json.loads(text).get("topic_id") for text in facts]
    there = np.array([one if isinstance(one, str) else "" for one in ids])[codes]
    same: Mask = _is(table, "plan_topic_id", there) & (there != "")
    return same
