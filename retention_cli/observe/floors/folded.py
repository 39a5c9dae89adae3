"""Floors of commits that were folded elsewhere, into one standing per partition. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from retention_cli.core.model import Floor, Maybe, TopicPartition
from retention_cli.observe.floors.standing import CUT_UNTOLD, EpochEnd, Standing, floor_of


class FoldedFloors:
    """Returns the floors of standings (:class:`retention_cli.observe.request.Floors`).

    Args:
        standings: one for each partition whose floor is wanted.
    """

    def __init__(self, standings: Mapping[TopicPartition, Standing]) -> None:
        self._standings = dict(standings)

    def floor(self, tp: TopicPartition, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
        """Return the partition's floor. ``high_watermark`` must have been read after the commits (F5)."""
        return floor_of(self._standings[tp], log_start, high_watermark)

    def epochs_to_check(self) -> list[tuple[TopicPartition, int]]:
        """Return the leader epochs of commits, including gone ones, other than the partition's current one (F5, F6)."""
        return sorted(
            (tp, epoch)
            for tp, one in self._standings.items()
            for epoch in one.epochs.keys() | one.gone.keys()
            if epoch != one.leader_epoch
        )

    def epoch_ends_at(self, tp: TopicPartition, epoch: int, end: EpochEnd) -> None:
        """Record where a leader epoch ends, None if the leader does not know it."""
        one = self._standings[tp]
        self._standings[tp] = one._replace(ends={**one.ends, epoch: end})

    def cut_at(self, tp: TopicPartition, cut: int, epoch: int | None) -> None:
        """Record where the log was cut since the last pass, and which epoch ended there."""
        self._standings[tp] = self._standings[tp]._replace(cut=(cut, epoch))

    def cut_untold(self, tp: TopicPartition) -> None:
        """Record that it is unknown whether the log was cut: commits without a leader epoch hold (M4)."""
        self._standings[tp] = self._standings[tp]._replace(cut=CUT_UNTOLD)
