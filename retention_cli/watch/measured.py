"""What metrics show of a plan: partitions, holds, lags, time to loss, disks. Pure.

Any user of the cluster may name groups and topics, so only a bounded number have series: those that matter most.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from retention_cli.core.model import Decision, Unknown
from retention_cli.core.printable import printable
from retention_cli.plan.value import Plan

MOST_GROUPS: Final = 200
"""This many groups have series: those with the largest lag, and those that lose records first."""
MOST_PAIRS: Final = 1_000
"""This many pairs of a group and a topic have a time to loss: the shortest."""
_LABEL: Final = 200

LossOf = Callable[[Decision], float | None]
"""Returns the least number of seconds until the oldest record goes that a partition's floor has yet to read.

None: that is unknown, or it stays forever.
"""


Series = Mapping[tuple[str, ...], float | None]
"""A metric's values by its labels; None: that series is absent."""


def measured(plan: Plan, groups: Mapping[str, Series], percent: float | None) -> dict[str, Series]:
    """Return the series of a plan by metric (:data:`~retention_cli.watch.board.NAMES`).

    ``groups`` is what :func:`groups_of` returned, ``percent`` the policy's ceiling for disks. Held partitions are
    counted by reason code; one may have several.
    """
    totals = plan.totals
    holds = Counter(
        code for one in plan.decisions if one.action == "hold" for code in {reason.code for reason in one.reasons}
    )
    return {
        "partitions": {(one,): getattr(totals, one) for one in ("trim", "keep", "hold", "skip")},
        "trimmable_records": {(): totals.records},
        "trimmable_bytes": {(): totals.size_bytes},
        "holds": {(code,): holds[code] for code in sorted(holds)},
        **groups,
        "disk_usage_ratio": {
            (str(one.broker), label(folder)): room.used_bytes / room.total_bytes
            for one in (outcome.disk for outcome in plan.disks)
            if not isinstance(room := one.room, Unknown) and room.total_bytes > 0
            for folder in one.dirs
        },
        "disk_ceiling_ratio": {(): None if percent is None else percent / 100},
    }


def groups_of(decisions: Sequence[Decision], loss_of: LossOf) -> dict[str, Series]:
    """Return how many records consumers that set floors have not read, and in how many seconds they may lose them."""
    lag: dict[tuple[str], int] = {}
    loss: dict[tuple[str, str], float] = {}
    for one in decisions:
        if one.min_commit_by is None or (unread := unread_in(one)) is None:
            continue
        name = label(one.min_commit_by)
        lag[name,] = lag.get((name,), 0) + unread
        left = loss_of(one) if unread > 0 else None
        if left is not None:
            pair = (name, one.topic)
            loss[pair] = min(left, loss.get(pair, left))
    most = sorted(lag, key=lambda group: (-lag[group], group))[:MOST_GROUPS]
    first = sorted(loss, key=lambda pair: (loss[pair], pair))[:MOST_PAIRS]
    losers = list(dict.fromkeys((group,) for group, _topic in first))[:MOST_GROUPS]
    return {
        "group_lag_records": {group: lag[group] for group in sorted({*most, *losers})},
        "group_seconds_to_loss": {pair: loss[pair] for pair in sorted(first) if pair[:1] in losers},
    }


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
