"""Which groups start at the end where they have no commit, and of which partitions that is true (F2). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from retention_cli.memory.ages import Ages


@dataclass(frozen=True, slots=True)
class Latest:
    """The groups of ``groups.latest``, by key, and the ages of groups and partitions.

    A partition that was added after a group was first seen is not covered: with KIP-1327 its members read it from 0.
    """

    groups: frozenset[str] = frozenset()
    ages: Ages = field(default_factory=Ages)

    def covered(self, group: str, topic: str, partitions: int) -> int:
        """Return on how many of a topic's partitions, the first ones, a missing commit of a group says nothing."""
        return self.ages.covered(group, topic, partitions) if group in self.groups else 0


NOBODY: Final = Latest()
