"""What a pass has read of one partition's log, to judge the commits on it (F5). Pure."""

from __future__ import annotations

from typing import NamedTuple


class LogNow(NamedTuple):
    """What a pass knows of a partition's log, to judge the commits on it (F5).

    ``unknown_epochs`` are leader epochs of commits that the leader does not know, ``unasked_epochs`` those that it
    could not be asked about. ``cut`` is where the log was cut since the last pass, None if it was not. A commit that
    was seen to count under a leader epoch above ``cut_until`` was seen after the cut; None if that is known of none.
    ``last_epoch`` is the epoch of the log's last record, None if unknown.
    """

    high_watermark: int
    leader_epoch: int
    unknown_epochs: frozenset[int] = frozenset()
    unasked_epochs: frozenset[int] = frozenset()
    cut: int | None = None
    last_epoch: int | None = None
    cut_until: int | None = None

    @property
    def proves(self) -> int:
        """The leader epoch whose end shows later whether the log below H is still the same."""
        return self.leader_epoch if self.last_epoch is None else self.last_epoch
