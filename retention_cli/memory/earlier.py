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
    """Return questions by epoch, without those that another one's answer answers."""
    every = frozenset(asked)
    return sorted(one for one in every if not any(o._replace(settled=True).settles(one) for o in every if o != one))


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
