"""What is out of the ordinary about the commits on one partition (F2, F5, F6). Pure.

Nearly no partition has any of it. It is the same in whatever order groups come, and in however many parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from retention_cli.core.model import Maybe
from retention_cli.observe.floors.standing import NAMED_AT_MOST, EpochEnd, GoneCommit, Refused


@dataclass(slots=True)
class Odd:
    """The oddities of one partition; the fields are those of :class:`~retention_cli.observe.floors.standing.Standing`.

    ``missing`` has the first few groups by name without a commit, of ``missing_count``.
    """

    missing_count: int = 0
    missing: tuple[tuple[str, str], ...] = ()
    epochs: dict[int, tuple[int, str]] | None = None
    ends: dict[int, EpochEnd] | None = None
    refused: Refused | None = None
    ahead: Refused | None = None
    gone: dict[int, GoneCommit] | None = None
    unproven: GoneCommit | None = None
    cut: Maybe[tuple[int, int | None]] | None = None

    def lacks(self, group: str, text: str) -> None:
        """Add a group without a commit here, and what to do about it (F2)."""
        self.missing_count += 1
        self.missing = tuple(sorted((*self.missing, (group, text)))[:NAMED_AT_MOST])

    def commits(self, epoch: int, offset: int, group: str) -> None:
        """Add a commit in another leader epoch than the current one: the highest of each epoch is kept (F5)."""
        if self.epochs is None:
            self.epochs = {}
        before = self.epochs.get(epoch)
        if before is None or (-offset, group) < (-before[0], before[1]):
            self.epochs[epoch] = (offset, group)

    def refuses(self, one: Refused) -> None:
        """Add a commit that belongs to another log (F5)."""
        if self.refused is None or one.rank < self.refused.rank:
            self.refused = one

    def is_ahead(self, one: Refused) -> None:
        """Add a commit of an epoch that this log has not reached (F5)."""
        if self.ahead is None or one.rank < self.ahead.rank:
            self.ahead = one

    def left(self, epoch: int | None, one: GoneCommit) -> None:
        """Add a position of a group whose commit is gone (F6): the lowest of each leader epoch is kept.

        Of those that were never seen to count (None), the first group by name is.
        """
        if epoch is None:
            if self.unproven is None or one.group < self.unproven.group:
                self.unproven = one
            return
        if self.gone is None:
            self.gone = {}
        lowest = self.gone.get(epoch)
        if lowest is None or one[:2] < lowest[:2]:
            self.gone[epoch] = one

    def take(self, other: Odd) -> None:
        """Add what other groups come to."""
        self.missing_count += other.missing_count
        self.missing = tuple(sorted((*self.missing, *other.missing))[:NAMED_AT_MOST])
        for epoch, (offset, group) in (other.epochs or {}).items():
            self.commits(epoch, offset, group)
        for epoch, one in (other.gone or {}).items():
            self.left(epoch, one)
        if other.unproven is not None:
            self.left(None, other.unproven)
        if other.refused is not None:
            self.refuses(other.refused)
        if other.ahead is not None:
            self.is_ahead(other.ahead)
