"""Earlier memories of a partition that a later one replaced: what is still to be proven of them. Pure.

Two runs may observe a partition under two leader epochs and remember both (``state: cluster``, or one state directory).
The later memory replaces the earlier one. But if it was not derived from it, nobody has asked yet whether the log was
cut after the earlier run, and commits that counted then may lie beyond the cut (F5, M2).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from retention_cli.memory.interface import Int32, Int64

_AT_MOST: Final = 4


class Earlier(NamedTuple):
    """An earlier memory, last proven under ``leader_epoch``, that covers the log up to ``reach``.

    The end of leader epoch ``asked`` shows whether the log was cut since. ``settled``: it was asked for, and the answer
    was applied to the groups' commits.
    """

    asked: Int32
    leader_epoch: Int32
    reach: Int64
    settled: bool = False

    def settles(self, other: Earlier) -> bool:
        """Return whether this one is settled, and its answer also settles the other."""
        same = self.asked == other.asked and self.leader_epoch >= other.leader_epoch and self.reach >= other.reach
        return self.settled and same


def pending(earlier: Iterable[Earlier]) -> list[Earlier]:
    """Return those that are not settled yet."""
    return [one for one in earlier if not one.settled]


def joined(earlier: Iterable[Earlier]) -> tuple[Earlier, ...]:
    """Return the earlier memories that several memories have, merged and shortened; their order does not matter.

    Only the last few settled ones are kept: one that is dropped is asked about again. If too many are not settled, the
    earliest are merged into one with the lowest ``asked`` epoch and the largest ``reach``: it may find a cut where
    there is none, but never misses one.
    """
    every = frozenset(earlier)
    settled = [one for one in every if one.settled]
    settled = sorted(one for one in settled if not any(other.settles(one) for other in settled if other != one))
    settled = sorted(settled, key=lambda one: one.leader_epoch)[-_AT_MOST:]
    asked = _without_lesser(one for one in every if not one.settled and not any(o.settles(one) for o in settled))
    while len(asked) > _AT_MOST:
        one, other, *more = asked
        lowest, reach = min(one.asked, other.asked), max(one.reach, other.reach)
        asked = _without_lesser([Earlier(lowest, max(one.leader_epoch, other.leader_epoch), reach), *more])
    return (*settled, *asked)


def _without_lesser(asked: Iterable[Earlier]) -> list[Earlier]:
    """Return those that are not settled, by epoch, without those that another's answer settles."""
    every = frozenset(asked)
    return sorted(one for one in every if not any(o._replace(settled=True).settles(one) for o in every if o != one))
