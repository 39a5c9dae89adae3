"""What a recheck leaves of a plan (docs/plan.md, Saved plans), and the requests that this comes to. Pure.

Partition by partition :func:`~retention_cli.plan.reconcile.reconcile` says so. Nothing here can make a trim larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from retention_cli.core.grouping import by_key
from retention_cli.core.model import Decision, Maybe, Reason, TopicPartition
from retention_cli.plan.reconcile import Held, Target, Unchanged, reconcile
from retention_cli.trim.report import TrimRow

PARTITIONS_A_LEADER: Final = 1_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """``targets`` are to be sent, ``ended`` are held or have nothing to trim, ``failed`` could not be rechecked."""

    targets: Mapping[TopicPartition, Target]
    ended: Mapping[TopicPartition, TrimRow]
    failed: Mapping[TopicPartition, TrimRow]


def wanted(
    planned: Mapping[TopicPartition, Decision],
    waiting: Sequence[TopicPartition],
    decisions: Mapping[TopicPartition, Decision],
    unreadable: Mapping[TopicPartition, Reason],
    epoch_end: Callable[[TopicPartition, int | None], Maybe[int | None]],
) -> Wanted:
    """Return what a recheck still allows of the plan, partition by partition.

    Args:
        planned: the plan's rows that trim.
        waiting: the partitions that are not yet settled.
        decisions: the recheck's.
        unreadable: partitions whose leader is missing or did not answer.
        epoch_end: returns where a leader epoch ends; None if the leader does not know it.
    """
    targets: dict[TopicPartition, Target] = {}
    ended: dict[TopicPartition, TrimRow] = {}
    failed: dict[TopicPartition, TrimRow] = {}
    for tp in waiting:
        plan = planned[tp]
        if (reason := unreadable.get(tp)) is not None:
            failed[tp] = TrimRow(tp, "failed", plan.trim_to, reasons=(reason,))
            continue
        match reconcile(plan, decisions.get(tp), epoch_end(tp, plan.leader_epoch)):
            case Held(reasons):
                ended[tp] = TrimRow(tp, "held", reasons=reasons)
            case Unchanged(reasons, log_start):
                ended[tp] = TrimRow(tp, "unchanged", log_start=log_start, reasons=reasons)
            case Target() as target:
                targets[tp] = target
    return Wanted(targets, ended, failed)


def batches_of(
    targets: Mapping[TopicPartition, Target], leaders: Mapping[TopicPartition, int | None]
) -> Iterator[dict[TopicPartition, Target]]:
    """Cut targets into batches, each with one request of bounded size per leader (broker id)."""
    by_leader = by_key((leaders[tp], tp) for tp in sorted(targets))
    longest = max((len(tps) for tps in by_leader.values()), default=0)
    for start in range(0, longest, PARTITIONS_A_LEADER):
        yield {tp: targets[tp] for tps in by_leader.values() for tp in tps[start : start + PARTITIONS_A_LEADER]}


def requests_of(
    batch: Mapping[TopicPartition, Target], leaders: Mapping[TopicPartition, int | None]
) -> dict[int, dict[TopicPartition, int]]:
    """Return a batch's target offsets by leader (broker id). Partitions without a leader are left out."""
    found: dict[int, dict[TopicPartition, int]] = {}
    for tp, target in batch.items():
        if (leader := leaders[tp]) is not None:
            found.setdefault(leader, {})[tp] = target.offset
    return found
