"""R6 as docs/rules.md tells it, in plain loops: a walk that takes one segment after another. Knows no numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Row(NamedTuple):
    """One segment of one replica."""

    disk: int
    partition: int
    base: int
    next: int
    size: int
    time: int
    active: bool


@dataclass
class Simulation:
    """The brokers' disks, and what goes of them."""

    rows: Sequence[Row]
    above: dict[int, int]
    """Bytes above the ceiling, by disk; falls while segments go."""
    bounds: dict[int, int]
    gone: set[int] = field(default_factory=set)
    freed: dict[int, int] = field(default_factory=dict)

    def trim(self, partition: int, to: int) -> None:
        """Trim a partition: every replica drops its own segments wholly below, but for the active one."""
        self.bounds[partition] = to
        for number, row in enumerate(self.rows):
            if row.partition == partition and not row.active and row.next <= to and number not in self.gone:
                self.gone.add(number)
                self.above[row.disk] -= row.size
                self.freed[row.disk] = self.freed.get(row.disk, 0) + row.size


def simulate(
    rows: Sequence[Row], start: Mapping[int, int], limit: Mapping[int, int], excess: Mapping[int, int]
) -> tuple[Simulation, dict[int, int]]:
    """Return how it ends, and what the other rules' trims had freed before R6's walk began."""
    world = Simulation(rows, dict(excess), dict(start))
    for partition, offset in start.items():
        world.trim(partition, offset)
    before = dict(world.freed)
    left = [row for number, row in enumerate(rows) if number not in world.gone and not row.active]
    walk = []
    for row in left:
        so_far = [one for one in left if one.partition == row.partition and one.next <= row.next]
        if any(one.time < 0 for one in so_far):  # nobody knows how old
            continue
        walk.append((max(one.time for one in so_far), row.partition, row.next, row.disk))
    for time, partition, offset in sorted({one[:3] for one in walk}):
        holders = {disk for *where, disk in walk if where == [time, partition, offset]}
        if offset <= limit[partition] and any(world.above[disk] > 0 for disk in holders):
            world.trim(partition, offset)
    return world, before
