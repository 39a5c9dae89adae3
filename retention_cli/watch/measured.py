"""What metrics tell of a plan: partitions, holds, lags, time to loss, disks. Pure.

Groups and topics are named by whoever uses the cluster, so how many have series is bounded: those that matter most.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from retention_cli.core.model import Decision, Unknown
from retention_cli.core.printable import printable
from retention_cli.disks.disk import DiskOutcome
from retention_cli.plan.value import Plan

MOST_GROUPS: Final = 200
"""This many groups have series: those with the largest lag, and those that lose records first."""
MOST_PAIRS: Final = 1_000
"""This many pairs of a group and a topic have a time to loss: the shortest."""
_LABEL: Final = 200

LossOf = Callable[[Decision], float | None]
"""Returns how many seconds at least the oldest record stays that a partition's floor has yet to read.

None: that is not known, or it stays for ever.
"""


@dataclass(frozen=True, slots=True)
class Groups:
    """Per consumer that sets a floor: records behind it that are unread, and seconds until they may be deleted."""

    lag: Mapping[str, int] = field(default_factory=dict)
    loss: Mapping[tuple[str, str], float] = field(default_factory=dict)
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """Values of one plan. ``holds`` counts held partitions by reason code; a partition may have several.

    ``disks`` is the share of each log dir's volume in use, by broker and dir; ``ceiling`` R6's, None if it is off.
    ``records`` and ``size_bytes`` are what the plan would trim; ``size_bytes`` is None if a size is unknown.
    """

    actions: Mapping[str, int]
    holds: Mapping[str, int]
    groups: Groups
    disks: Mapping[tuple[str, str], float]
    ceiling: float | None
    records: int
    size_bytes: int | None


def measured(plan: Plan, groups: Groups, percent: float | None) -> Measured:
    """Return the values of a plan. ``percent`` is the policy's ceiling for disks."""
    totals = plan.totals
    held = (one.reasons for one in plan.decisions if one.action == "hold")
    holds = Counter(code for reasons in held for code in {reason.code for reason in reasons})
    return Measured(
        {"trim": totals.trim, "keep": totals.keep, "hold": totals.hold, "skip": totals.skip},
        dict(sorted(holds.items())),
        groups,
        _usage(plan.disks),
        None if percent is None else percent / 100,
        totals.records,
        totals.size_bytes,
    )


def groups_of(decisions: Sequence[Decision], loss_of: LossOf) -> Groups:
    """Return lag and time to loss of the consumers that set floors."""
    lag: dict[str, int] = {}
    loss: dict[tuple[str, str], float] = {}
    for one in decisions:
        if one.min_commit_by is None or (unread := unread_in(one)) is None:
            continue
        name = label(one.min_commit_by)
        lag[name] = lag.get(name, 0) + unread
        left = loss_of(one) if unread > 0 else None
        if left is not None:
            pair = (name, one.topic)
            loss[pair] = min(left, loss.get(pair, left))
    most = sorted(lag, key=lambda group: (-lag[group], group))[:MOST_GROUPS]
    first = sorted(loss, key=lambda pair: (loss[pair], pair))[:MOST_PAIRS]
    losers = list(dict.fromkeys(group for group, _topic in first))[:MOST_GROUPS]
    return Groups(
        {group: lag[group] for group in sorted({*most, *losers})},
        {pair: loss[pair] for pair in sorted(first) if pair[0] in losers},
        len(lag) - len({*most, *losers}),
    )


def unread_in(one: Decision) -> int | None:
    """Return how many records the consumer that sets a partition's floor has yet to read; None if that is unknown."""
    if one.min_commit is None or one.high_watermark is None or one.log_start is None:
        return None
    return max(0, one.high_watermark - max(one.min_commit, one.log_start))


def label(text: str) -> str:
    """Return a name as a label's value: one that is very long or does not print is cut or escaped, and has a hash."""
    if len(text) <= _LABEL and text.isprintable():
        return text
    return f"{printable(text)[:_LABEL]}~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _usage(disks: Sequence[DiskOutcome]) -> dict[tuple[str, str], float]:
    return {
        (str(one.broker), label(folder)): room.used_bytes / room.total_bytes
        for one in (outcome.disk for outcome in disks)
        if not isinstance(room := one.room, Unknown) and room.total_bytes > 0
        for folder in one.dirs
    }
