"""What kretain remembers of a cluster, as values: what brokers forget and decisions need (docs/memory.md). Pure.

Two memories of the same thing merge in any order, so that processes, pods or laptops can share them. Everything
belongs to a topic id: a recreated topic starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

if TYPE_CHECKING:
    from retention_cli.memory.positions import Logs

Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
"""A leader epoch: a larger one can't be asked about."""
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A number that the ledger's columns can hold, and brokers be asked about."""

Commits = Mapping[str, Sequence[tuple[int, int, int | None]]]
"""A group's commits by topic: partition, committed offset, and the commit's leader epoch, None if it has none."""
Rows = dict[str, list[tuple[int, int, int | None]]]
"""Remembered commits, likewise. The epoch is the one under which a commit was last seen to count: its own, else the
leader's. None: it was never seen to count, and whether it does is unknown."""


Last = tuple[str, int, Rows]
"""A group that is gone: its name, when it was last seen (Unix ms), and its last commits."""


LogsOf = Callable[[], "Logs"]
"""Returns what this pass has read of logs."""


@dataclass(frozen=True, slots=True)
class RecalledGroup:
    """What is remembered of a live group: commits that are gone (F6), and those that are refused (F5)."""

    gone: Rows = field(default_factory=dict)
    refused: Mapping[tuple[str, int], tuple[int, int | None]] = field(default_factory=dict)


NOTHING_RECALLED: Final = RecalledGroup()
