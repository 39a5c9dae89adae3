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
    _lowest: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    _second: dict[TopicPartition, int] = field(default_factory=dict)
    _behind: dict[str, int | None] = field(default_factory=dict)

    def add(self, group: str, tp: TopicPartition, offset: int) -> None:
        """Add a group's position on a partition. Call it once per pair."""
        here = self._span(tp)
        if here is None:
            self._behind[group] = None
            return
        start, end = here
        offset = min(max(offset, start), end)
        so_far = self._behind.setdefault(group, 0)
        self._behind[group] = None if so_far is None else so_far + self._bytes(tp, offset, end)
        lowest = self._lowest.get(tp, (end, ""))
        if (offset, group) < lowest or tp not in self._lowest:
            if tp in self._lowest:
                self._second[tp] = lowest[0]
            self._lowest[tp] = (offset, group)
        else:
            self._second[tp] = min(offset, self._second.get(tp, end))

    def lay_into(self, groups: Mapping[str, Summary], *, everyone: bool) -> None:
        """Set each group's bytes.

        Args:
            groups: by name.
            everyone: whether all groups were added; otherwise what one of them holds alone is unknown.
        """
        alone = dict.fromkeys(self._behind, 0)
        for tp, (offset, group) in self._lowest.items():
            alone[group] += self._bytes(tp, offset, self._second.get(tp, self.ends[tp]))
        everyone = everyone and all(one.lag is not None for one in groups.values() if one.sets_floors)
        for name, one in groups.items():
            if one.sets_floors and one.lag is not None:
                one.lag_bytes = self._behind.get(name, 0)
                if everyone and one.lag_bytes is not None:
                    one.alone_bytes = alone.get(name, 0)

    def _span(self, tp: TopicPartition) -> tuple[int, int] | None:
        start, end = self.starts.get(tp), self.ends.get(tp)
        return None if start is None or end is None or tp not in self.sizes else (start, end)

    def _bytes(self, tp: TopicPartition, low: int, high: int) -> int:
        records = self.ends[tp] - self.starts[tp]
        return 0 if records <= 0 else self.sizes[tp] * (high - low) // records
