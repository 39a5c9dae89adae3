"""The target of a trim for one partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from retention_cli.core.model import Decision
from retention_cli.decide.decision import unread_below


@dataclass(frozen=True, slots=True)
class Target:
    """The partition may be trimmed to ``offset``; ``decision`` is the recheck's."""

    offset: int
    decision: Decision

    @property
    def records(self) -> int:
        """The number of records (offsets) to trim."""
        return self.offset - (self.decision.log_start or 0)

    @property
    def unconsumed(self) -> int:
        """How many of the records a consumer has yet to read."""
        return unread_below(self.offset, self.decision.log_start or 0, self.decision.min_commit)

    @property
    def size_bytes(self) -> int | None:
        """The approximate number of bytes to trim, None if unknown."""
        size, records = self.decision.size_bytes, self.decision.records
        if size is None or records <= 0:
            return size
        return size * self.records // records
