"""How many bytes each group has yet to read, and how many only that group has yet to read: who blocks what. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from retention_cli.core.model import TopicPartition


class Summary(Protocol):
    """A group's row, in which its bytes are set."""

    lag: int | None
    lag_bytes: int | None
    alone_bytes: int | None

    @property
    def sets_floors(self) -> bool: ...  # noqa: D102


@dataclass(slots=True)
class _Partition:
    """S, H and the leader replica's bytes; the group that stands lowest and where, and where the next one stands."""

    start: int
    end: int
    size: int
    lowest: tuple[int, str] | None = None
    second: int | None = None

    def bytes_between(self, low: int, high: int) -> int:
        """Return the share of the replica's bytes between two offsets."""
        records = self.end - self.start
        return 0 if records <= 0 else self.size * (high - low) // records


@dataclass(slots=True)
class HeldBytes:
    """Collects the positions of all groups that set floors, and keeps each partition's two lowest.

    Args:
        starts: S, where it is known.
        ends: H.
        sizes: the leader replicas' bytes, assumed to be spread evenly over the offsets.
    """

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int]
    _partitions: dict[TopicPartition, _Partition | None] = field(default_factory=dict)
    _behind: dict[str, int | None] = field(default_factory=dict)

    def add(self, group: str, tp: TopicPartition, offset: int) -> None:
        """Add a group's position on a partition. Call it once per pair."""
        try:
            here = self._partitions[tp]
        except KeyError:
            here = self._partitions[tp] = self._partition(tp)
        if here is None:
            self._behind[group] = None
            return
        offset = min(max(offset, here.start), here.end)
        so_far = self._behind.setdefault(group, 0)
        self._behind[group] = None if so_far is None else so_far + here.bytes_between(offset, here.end)
        if here.lowest is None:
            here.lowest = (offset, group)
        elif (offset, group) < here.lowest:
            here.second, here.lowest = here.lowest[0], (offset, group)
        elif here.second is None or offset < here.second:
            here.second = offset

    def lay_into(self, groups: Mapping[str, Summary], *, everyone: bool) -> None:
        """Set each group's bytes.

        Args:
            groups: by name.
            everyone: whether all groups were added; otherwise what one of them holds alone is unknown.
        """
        alone = dict.fromkeys(self._behind, 0)
        for here in self._partitions.values():
            if here is not None and here.lowest is not None:
                offset, group = here.lowest
                alone[group] += here.bytes_between(offset, here.end if here.second is None else here.second)
        everyone = everyone and all(one.lag is not None for one in groups.values() if one.sets_floors)
        for name, one in groups.items():
            if one.sets_floors and one.lag is not None:
                one.lag_bytes = self._behind.get(name, 0)
                if everyone and one.lag_bytes is not None:
                    one.alone_bytes = alone.get(name, 0)

    def _partition(self, tp: TopicPartition) -> _Partition | None:
        start, end, size = self.starts.get(tp), self.ends.get(tp), self.sizes.get(tp)
        return None if start is None or end is None or size is None else _Partition(start, end, size)
