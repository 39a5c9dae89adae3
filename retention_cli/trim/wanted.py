"""Determine the targets that a recheck leaves of a plan, and cut them into batches. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from retention_cli.core.model import Decision, Maybe, Reason, TopicPartition
from retention_cli.plan.target import Target
from retention_cli.trim.reconcile import Held, Unchanged, reconcile
from retention_cli.trim.report import TrimRow, row_of

PARTITIONS_A_LEADER: Final = 1_000


class Led(Protocol):
    """The part of a partition's metadata that batches need."""

    @property
    def leader(self) -> int | None:
        """The leader's broker id; None if there is no leader."""
        ...


class Fresh(Protocol):
    """A recheck's results (:class:`retention_cli.trim.recheck.Recheck`)."""

    @property
    def decisions(self) -> Mapping[TopicPartition, Decision]:
        """The current decisions."""
        ...

    @property
    def unreadable(self) -> Mapping[TopicPartition, Reason]:
        """Partitions whose leader is missing or did not answer."""
        ...

    def epoch_end(self, tp: TopicPartition, epoch: int | None) -> Maybe[int | None]:
        """Return where a leader epoch ends; None if the leader does not know it."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """``targets`` are to be sent, ``ended`` are held or have nothing to trim, ``failed`` could not be rechecked."""

    targets: Mapping[TopicPartition, Target]
    ended: Mapping[TopicPartition, TrimRow]
    failed: Mapping[TopicPartition, TrimRow]


def wanted(planned: Mapping[TopicPartition, Decision], waiting: Sequence[TopicPartition], fresh: Fresh) -> Wanted:
    """Return what the fresh decisions still allow of the plan, partition by partition."""
    targets: dict[TopicPartition, Target] = {}
    ended: dict[TopicPartition, TrimRow] = {}
    failed: dict[TopicPartition, TrimRow] = {}
    for tp in waiting:
        plan = planned[tp]
        if (reason := fresh.unreadable.get(tp)) is not None:
            failed[tp] = row_of(tp, "failed", plan.trim_to, reasons=(reason,))
            continue
        match reconcile(plan, fresh.decisions.get(tp), fresh.epoch_end(tp, plan.leader_epoch)):
            case Held(reasons):
                ended[tp] = row_of(tp, "held", reasons=reasons)
            case Unchanged(reasons, log_start):
                ended[tp] = row_of(tp, "unchanged", log_start=log_start, reasons=reasons)
            case Target() as target:
                targets[tp] = target
    return Wanted(targets, ended, failed)


def batches_of(
    targets: Mapping[TopicPartition, Target], leaders: Mapping[TopicPartition, Led]
) -> Iterator[dict[TopicPartition, Target]]:
    """Cut targets into batches, each with one request of bounded size per leader."""
    by_leader: dict[int | None, list[TopicPartition]] = {}
    for tp in sorted(targets):
        by_leader.setdefault(leaders[tp].leader, []).append(tp)
    longest = max((len(tps) for tps in by_leader.values()), default=0)
    for start in range(0, longest, PARTITIONS_A_LEADER):
        yield {tp: targets[tp] for tps in by_leader.values() for tp in tps[start : start + PARTITIONS_A_LEADER]}


def requests_of(
    batch: Mapping[TopicPartition, Target], leaders: Mapping[TopicPartition, Led]
) -> dict[int, dict[TopicPartition, int]]:
    """Return a batch's target offsets by leader (broker id). Partitions without a leader are left out."""
    found: dict[int, dict[TopicPartition, int]] = {}
    for tp, target in batch.items():
        if (leader := leaders[tp].leader) is not None:
            found.setdefault(leader, {})[tp] = target.offset
    return found
