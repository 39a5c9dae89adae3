"""What the current facts leave of a planned row (docs/plan.md, Saved plans). Pure.

Where a planned row and a fresh decision differ, the narrower one wins. Nothing here can make a trim larger.
"""

from __future__ import annotations

from dataclasses import dataclass

from retention_cli.core.model import Decision, Maybe, Reason, Unknown
from retention_cli.decide.decision import unread_below


@dataclass(frozen=True, slots=True)
class Target:
    """The partition may be trimmed to ``offset``; ``decision`` is the recheck's."""

    offset: int
    decision: Decision

    @property
    def records(self) -> int:
        """The number of records (offsets) to trim."""
        return self.offset - (self.decision.log_start or 0)

    @property
    def unconsumed(self) -> int:
        """How many of the records a consumer has yet to read."""
        return unread_below(self.offset, self.decision.log_start or 0, self.decision.min_commit)

    @property
    def size_bytes(self) -> int | None:
        """The approximate number of bytes to trim, None if unknown."""
        size, records = self.decision.size_bytes, self.decision.records
        return size if size is None or records <= 0 else size * self.records // records


@dataclass(frozen=True, slots=True)
class Held:
    """The partition must not be trimmed now."""

    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Unchanged:
    """There is nothing to trim now."""

    reasons: tuple[Reason, ...]
    log_start: int | None


Reconciled = Target | Held | Unchanged


def reconcile(planned: Decision, fresh: Decision | None, epoch_end: Maybe[int | None] = None) -> Reconciled:
    """Return the part of a planned trim that the current facts and policy still allow.

    Args:
        planned: the plan's row; its action is trim.
        fresh: the current decision, None if the topic or partition no longer exists or is no longer managed.
        epoch_end: the end offset of the leader epoch in which the row was planned, if that epoch is not the current
            one; None if the leader does not know that epoch (M2).
    """
    if planned.trim_to is None:
        raise ValueError(f"{planned.tp} has nothing planned")
    if fresh is None:
        return _held("the topic no longer exists, or the policy no longer matches it")
    if fresh.topic_id is None or fresh.topic_id != planned.topic_id:
        return _held("the topic was deleted and recreated since the plan")
    if fresh.action == "keep":
        return Unchanged(fresh.reasons, fresh.log_start)
    if (other := _other_log(planned.trim_to, planned.leader_epoch, fresh.leader_epoch, epoch_end)) is not None:
        return other
    if fresh.action != "trim" or fresh.trim_to is None or fresh.log_start is None:
        return Held(fresh.reasons)
    if planned.min_commit is not None:
        if fresh.min_commit is None:
            return _held("the floor was known in the plan, and is unknown now", fresh.reasons)
        if fresh.min_commit < planned.min_commit:
            return _held(
                f"{fresh.min_commit_by} went back to {fresh.min_commit:,} since the plan, when the floor was "
                f"{planned.min_commit:,}: it may read those records again; run kretain plan again"
            )
    offset = min(planned.trim_to, fresh.trim_to)
    if offset <= fresh.log_start:
        return Unchanged(fresh.reasons, fresh.log_start)
    unread = unread_below(offset, fresh.log_start, fresh.min_commit)
    if unread > planned.unconsumed:
        return _held(
            f"{unread:,} unread records would be trimmed, the plan showed {planned.unconsumed:,}; run kretain plan "
            f"again"
        )
    return Target(offset, fresh)


def _other_log(target: int, planned: int | None, now: int | None, epoch_end: Maybe[int | None]) -> Held | None:
    """Return Held if the plan may be of another log than the current one; None if it is the same log (M1 to M4)."""
    if planned is None or now is None:
        return _held("the plan has no leader epoch, so which log it was made for is unknown")
    if planned == now:
        return None
    if isinstance(epoch_end, Unknown):
        return _held(f"whether the log was cut since the plan is unknown: {epoch_end.reasons[0].text}")
    if planned > now or epoch_end is None:
        return _held(
            f"the plan was made in leader epoch {planned}, which this log does not have; run kretain plan again"
        )
    if epoch_end < target:
        return _held(
            f"the log was cut back to {epoch_end:,} since the plan (leader epoch {planned} ended there), which trims "
            f"to {target:,}: other records have their offsets now; run kretain plan again"
        )
    return None


def _held(text: str, more: tuple[Reason, ...] = ()) -> Held:
    return Held((Reason("plan", text), *more))
