"""Earlier memories of a partition that a later one took the place of: what is still to be proven of them. Pure.

Two runs may look at a partition under two leader epochs and remember both (``state: cluster``, or one state directory).
The later memory is the one to go on with; but where it was not made from the earlier one, nobody has asked yet whether
the log was cut after the earlier look, and commits that counted then may lie beyond (F5, M2).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

_ROW: Final = struct.Struct("<iiq?")
EARLIER_BYTES: Final = _ROW.size
_AT_MOST: Final = 4


class Earlier(NamedTuple):
    """An earlier memory, last proven under ``leader_epoch``, which spoke of the log up to ``reach``.

    The end of leader epoch ``asked`` tells whether the log was cut since. ``settled`` says that it was asked, and what
    follows from it is known of the groups' commits.
    """

    asked: int
    leader_epoch: int
    reach: int
    settled: bool = False

    def settles(self, other: Earlier) -> bool:
        """Return whether the answer to this one is that to the other, too."""
        same = self.asked == other.asked and self.leader_epoch >= other.leader_epoch and self.reach >= other.reach
        return self.settled and same


def pending(earlier: Iterable[Earlier]) -> list[Earlier]:
    """Return those that are still to be asked about."""
    return [one for one in earlier if not one.settled]


def joined(earlier: Iterable[Earlier]) -> tuple[Earlier, ...]:
    """Return what several memories know of earlier ones: the same in any order, and no longer than it must be.

    Of those that are settled the last few are kept: one that is forgotten is asked about again. Of too many that are
    not, the earliest are asked about as one, at the lowest epoch and up to the largest offset: that may find a cut
    where there is none, never the other way.
    """
    every = sorted(set(earlier), key=lambda one: (one.leader_epoch, one.asked, one.reach, one.settled))
    settled = [one for one in every if one.settled]
    settled = [one for one in settled if not any(other.settles(one) for other in settled if other is not one)]
    settled = settled[-_AT_MOST:]
    open_ = [one for one in every if not one.settled and not any(other.settles(one) for other in settled)]
    if (many := len(open_) - _AT_MOST) > 0:
        first = open_[: many + 1]
        last_epoch, reach = max(one.leader_epoch for one in first), max(one.reach for one in first)
        open_ = [Earlier(min(one.asked for one in first), last_epoch, reach), *open_[many + 1 :]]
    return (*settled, *open_)


def pack(earlier: Iterable[Earlier]) -> bytes:
    """Return them as bytes."""
    return b"".join(_ROW.pack(*one) for one in earlier)


def unpack(packed: bytes) -> tuple[Earlier, ...]:
    """Return what :func:`pack` made.

    Raises:
        ValueError: it is cut short.
    """
    try:
        return tuple(Earlier(*one) for one in _ROW.iter_unpack(packed)) if packed else ()
    except struct.error:
        raise ValueError("what is known of earlier memories is cut short") from None
