"""R6 without an inventory, asked of a cluster: offsets at bisected times, all partitions of a round at once.

A −1 is not taken at its word (RULES.md, Look-ups): it means H only where MAX_TIMESTAMP, asked after H was read, bears
it out; else it counts as S, so that nothing goes. So does an answer that is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from retention_cli.brokers.log_offsets import Answer, Found, Leaders
from retention_cli.brokers.reader import ClusterReader
from retention_cli.disks.estimated import Estimation, Known
from retention_cli.disks.oldest_first import OldestFirst
from retention_cli.disks.room import Disk
from retention_cli.model import TopicPartition
from retention_cli.policy.settings import DiskRules

_LEAST_BITS: Final = 41
"""Unix ms until 2039."""
_ROUNDS: Final = 64
"""More than a bisection of any times needs: whatever brokers answer, it ends."""


def estimate(
    reader: ClusterReader, disks: Sequence[Disk], rules: DiskRules, known: Known, leaders: Leaders, now_ms: int
) -> OldestFirst:
    """Return how far R6 trims, by estimated levels (RULES.md R6). ``known.ends`` must have been read before.

    Args:
        reader: asks the brokers.
        disks: all disks that could be read.
        rules: the policy's; ``percent`` is set.
        known: what is known of what lies on them.
        leaders: where to ask.
        now_ms: the clock of all cutoffs.
    """
    search = Estimation(disks, rules, known, now_ms)
    asked = [tp for tp in search.candidates() if tp in leaders]
    if not asked:
        return search.result()
    newest = {
        tp: answer.timestamp
        for tp, answer in reader.list_offsets([dict.fromkeys(asked, "max-timestamp")], leaders)[0].items()
        if isinstance(answer, Found) and answer.timestamp is not None
    }
    # Times are tried on a grid that does not depend on now: the same facts give the same plan.
    search = Estimation(disks, rules, known, 1 << max(_LEAST_BITS, max((now_ms, *newest.values())).bit_length()))
    for _ in range(_ROUNDS):
        wanted = search.wanted()
        if not wanted:
            break
        found: dict[tuple[TopicPartition, int], Answer] = {}
        for times in _rounds([(tp, at) for tp, at in wanted if tp in leaders and newest.get(tp, at) >= at]):
            answers = reader.list_offsets([times], leaders)[0]
            found |= {(tp, times[tp]): answer for tp, answer in answers.items()}

        def offset_of(tp: TopicPartition, at: int, found: dict[tuple[TopicPartition, int], Answer] = found) -> int:
            start, end = known.ends[tp]
            if newest.get(tp, at) < at:
                return end
            answer = found.get((tp, at))
            return answer.offset if isinstance(answer, Found) else start

        search.answer(offset_of)
    return search.result()


def _rounds(wanted: Sequence[tuple[TopicPartition, int]]) -> list[dict[TopicPartition, int]]:
    """Cut the times of partitions on several disks into mappings with one each: a request names a partition once."""
    rounds: list[dict[TopicPartition, int]] = []
    count: dict[TopicPartition, int] = {}
    for tp, at in wanted:
        number = count[tp] = count.get(tp, -1) + 1
        if number == len(rounds):
            rounds.append({})
        rounds[number][tp] = at
    return rounds
