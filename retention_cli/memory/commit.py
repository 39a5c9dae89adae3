"""A group's commits as they are remembered: where it stood, and whether that counts (F5, F6). Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from retention_cli.memory.interface import LogNow

UNTOLD: Final = -2
"""Which leader epoch a commit carried is not known: an older version remembered it (M1)."""


class Position(NamedTuple):
    """A committed offset, its own leader epoch (None: it carries none), and the one under which it was seen to count.

    A commit that was never seen to count has no such ``proven`` epoch. An own epoch of :data:`UNTOLD` may be any.
    """

    offset: int
    own: int | None
    proven: int | None = None

    @property
    def commit(self) -> tuple[int, int | None]:
        """What the group has committed."""
        return self.offset, self.own

    @property
    def epoch(self) -> int | None:
        """The epoch by which it is asked about again: its own, else its leader's; None where it never counted."""
        return None if self.proven is None else self.proven if self.own is None else self.own


class Gone(NamedTuple):
    """A position of a commit that is there no more, and when it was last seen (Unix ms)."""

    position: Position
    seen_ms: int


def same(one: tuple[int, int | None], other: tuple[int, int | None]) -> bool:
    """Return whether two are the same commit, as far as is known."""
    return one[0] == other[0] and (one[1] == other[1] or UNTOLD in (one[1], other[1]))


def verdict(position: Position, log: LogNow) -> bool | None:
    """Return whether a commit counts; None where that can't be told (F5)."""
    if position.own is not None and (position.own == UNTOLD or position.own in log.unasked_epochs):
        return None
    if position.offset > log.high_watermark:
        return False
    if position.own is not None:
        return position.own not in log.unknown_epochs
    return log.cut is None or position.offset <= log.cut


def lower_proven(one: Position, other: Position | None) -> Position:
    """Return of the same commit, seen to count twice, the one in the lower leader epoch; of others the first."""
    if other is None or one.commit != other.commit or one.proven is None or other.proven is None:
        return one
    return min(one, other, key=lambda position: position.proven or 0)
