"""R6 without an inventory: look up offsets at bisected times in a cluster, all partitions of a round at once.

A −1 means H only if MAX_TIMESTAMP, read after H, confirms it (docs/rules.md); otherwise it counts as S, so that
nothing is trimmed. So does a missing answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from retention_cli.brokers.log_offsets import Found, Leaders, Spec
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import TopicPartition
from retention_cli.disks.solve.estimated import Estimation, Known
from retention_cli.disks.solve.oldest_first import OldestFirst
from retention_cli.disks.solve.room import Disk
from retention_cli.disks.solve.segments import Ints
from retention_cli.policy.settings import DiskRules

_UNKNOWN_MS: Final = -1
_GRID_BITS: Final = 20
"""Times begin at a multiple of 2^20 ms, about 17 minutes."""
_ROUNDS: Final = 64
"""More rounds than any bisection of times needs: it ends whatever the brokers return."""


def estimate(
    reader: ClusterReader, disks: Sequence[Disk], rules: DiskRules, known: Known, leaders: Leaders, now_ms: int
) -> OldestFirst:
    """Return how far R6 trims, by estimated levels (R6). ``known.ends`` must have been read before.

    Args:
        reader: the cluster, read-only.
        disks: all disks that could be read.
        rules: the policy's disk rules; ``percent`` is set.
        known: what is known of the replicas on the disks.
        leaders: the brokers to ask.
        now_ms: the time from which all cutoffs are calculated.
    """
    search = Estimation(disks, rules, known, 1)
    numbers = np.unique(search.wanted()[0])
    asked = {search.names[n]: n for n in numbers.tolist() if search.names[n] in leaders}
    if not asked:
        return search.result()
    newest = np.full(len(search.names), _UNKNOWN_MS, dtype=np.int64)
    first = newest.copy()
    specs: list[Spec] = ["max-timestamp", 0]
    answers = reader.list_offsets([dict.fromkeys(asked, spec) for spec in specs], leaders)
    for times, found in zip((newest, first), answers, strict=True):
        for tp, answer in found.items():
            if isinstance(answer, Found) and answer.timestamp is not None:
                times[asked[tp]] = answer.timestamp
    oldest_ms, newest_ms = _span(newest[[*asked.values()]], first[[*asked.values()]], now_ms)
    search = Estimation(disks, rules, known, newest_ms, oldest_ms)
    start, end = search.ends()
    for _ in range(_ROUNDS):
        partition, at = search.wanted()
        if not len(partition):
            break
        offset = start[partition]
        over = (newest[partition] != _UNKNOWN_MS) & (newest[partition] < at)
        offset[over] = end[partition[over]]
        open_ = np.flatnonzero(~over & (first[partition] < at))  # up to the first record's time the answer is S
        for rows, wanted in _rounds(search.names, partition[open_], at[open_], asked):
            for tp, answer in reader.list_offsets([wanted], leaders)[0].items():
                if isinstance(answer, Found):
                    offset[open_[rows[tp]]] = answer.offset
        search.answer(partition, at, offset)
    return search.result()


def _span(newest: Ints, first: Ints, now_ms: int) -> tuple[int, int]:
    """Return times (Unix ms) before and after all timestamps, on a grid independent of now: equal facts, equal plans.

    Up to the oldest of the first records' times nothing would be trimmed.
    """
    oldest_ms = 0 if bool((first == _UNKNOWN_MS).any()) else max(0, int(first.min())) >> _GRID_BITS << _GRID_BITS
    latest_ms = int(newest.max()) if bool((newest != _UNKNOWN_MS).all()) else max(now_ms, int(newest.max()))
    return oldest_ms, oldest_ms + (1 << max(_GRID_BITS, (latest_ms - oldest_ms).bit_length()))


def _rounds(
    names: Sequence[TopicPartition], partition: Ints, at: Ints, asked: Mapping[TopicPartition, int]
) -> list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]]:
    """Return rounds of rows and times by partition, with each partition once per round, as in a request."""
    rounds: list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = []
    before, number = -1, 0
    for row, (one, time_ms) in enumerate(zip(partition.tolist(), at.tolist(), strict=True)):
        number = number + 1 if one == before else 0
        before, tp = one, names[one]
        if tp not in asked:
            continue
        while number >= len(rounds):
            rounds.append(({}, {}))
        rounds[number][0][tp], rounds[number][1][tp] = row, time_ms
    return rounds
