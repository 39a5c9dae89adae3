"""A group's remembered commits: their positions, and whether they count (F5, F6). Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from retention_cli.memory.interface import LogNow

UNTOLD: Final = -2
"""The leader epoch of a commit that an older version remembered without it: unknown (M1)."""


class Position(NamedTuple):
    """A committed offset, its own leader epoch (None: it has none), and the one under which it was seen to count.

    ``proven`` is None if it was never seen to count. If ``own`` is :data:`UNTOLD`, it may be any.
    """

    offset: int
    own: int | None
    proven: int | None = None

    @property
    def commit(self) -> tuple[int, int | None]:
        """The offset and the leader epoch that the group committed."""
        return self.offset, self.own

    @property
    def epoch(self) -> int | None:
        """The leader epoch to ask about next time: its own, else ``proven``; None if it never counted."""
        return None if self.proven is None else self.proven if self.own is None else self.own


class Gone(NamedTuple):
    """The position of a commit that no longer exists, and when it was last seen (Unix ms)."""

    position: Position
    seen_ms: int


def same(one: tuple[int, int | None], other: tuple[int, int | None]) -> bool:
    """Return whether two are the same commit; an unknown leader epoch equals any."""
    return one[0] == other[0] and (one[1] == other[1] or UNTOLD in (one[1], other[1]))


def verdict(position: Position, log: LogNow) -> bool | None:
    """Return whether a commit counts, None if that can't be told (F5)."""
    if position.own is not None and (position.own == UNTOLD or position.own in log.unasked_epochs):
        return None
    if position.offset > log.high_watermark:
        return False
    if position.own is not None:
        return position.own not in log.unknown_epochs
    return log.cut is None or position.offset <= log.cut


def lower_proven(one: Position, other: Position | None) -> Position:
    """Return the one proven under the lower leader epoch if both are one commit that counted, else the first."""
    if other is None or one.commit != other.commit or one.proven is None or other.proven is None:
        return one
    return min(one, other, key=lambda position: position.proven or 0)
