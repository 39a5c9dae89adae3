"""R6 without an inventory, asked of a cluster: offsets at bisected times, all partitions of a round at once.

A −1 is not taken at its word (docs/rules.md): it means H only where MAX_TIMESTAMP, asked after H was read, bears
it out; else it counts as S, so that nothing goes. So does an answer that is missing.
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
"""Times begin at a multiple of some 17 minutes."""
_ROUNDS: Final = 64
"""More than a bisection of any times needs: whatever brokers answer, it ends."""


def estimate(
    reader: ClusterReader, disks: Sequence[Disk], rules: DiskRules, known: Known, leaders: Leaders, now_ms: int
) -> OldestFirst:
    """Return how far R6 trims, by estimated levels (R6). ``known.ends`` must have been read before.

    Args:
        reader: asks the brokers.
        disks: all disks that could be read.
        rules: the policy's; ``percent`` is set.
        known: what is known of what lies on them.
        leaders: where to ask.
        now_ms: the clock of all cutoffs.
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
        open_ = np.flatnonzero(~over & (first[partition] < at))  # up to its first record's time the answer is S
        for rows, wanted in _rounds(search.names, partition[open_], at[open_], asked):
            for tp, answer in reader.list_offsets([wanted], leaders)[0].items():
                if isinstance(answer, Found):
                    offset[open_[rows[tp]]] = answer.offset
        search.answer(partition, at, offset)
    return search.result()


def _span(newest: Ints, first: Ints, now_ms: int) -> tuple[int, int]:
    """Return times before and after all stamps, on a grid that does not depend on now: the same facts, the same plan.

    Up to the oldest first record's time nothing would go.
    """
    oldest_ms = 0 if bool((first == _UNKNOWN_MS).any()) else max(0, int(first.min())) >> _GRID_BITS << _GRID_BITS
    latest_ms = int(newest.max()) if bool((newest != _UNKNOWN_MS).all()) else max(now_ms, int(newest.max()))
    return oldest_ms, oldest_ms + (1 << max(_GRID_BITS, (latest_ms - oldest_ms).bit_length()))


def _rounds(
    names: Sequence[TopicPartition], partition: Ints, at: Ints, asked: Mapping[TopicPartition, int]
) -> list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]]:
    """Cut pairs into rounds in which a partition stands once: a request names it once. Each has rows, and times."""
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
