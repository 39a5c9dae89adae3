"""What a trim may do to one partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from retention_cli.core.model import Decision


@dataclass(frozen=True, slots=True)
class Target:
    """The partition may be trimmed to ``offset``; ``decision`` is the fresh one."""

    offset: int
    decision: Decision

    @property
    def records(self) -> int:
        """How many records (offsets) are trimmed."""
        return self.offset - (self.decision.log_start or 0)

    @property
    def size_bytes(self) -> int | None:
        """About how many bytes are trimmed, None if unknown."""
        size, records = self.decision.size_bytes, self.decision.records
        if size is None or records <= 0:
            return size
        return size * self.records // records
