"""Decisions for a disk's ceiling."""

from __future__ import annotations

from retention_cli.core.model import Decision
from retention_cli.decide.decision import unread_below


def row(partition: int, start: int, records: int, size: int | None, floor: int | None) -> Decision:
    trim = records > 0
    target = start + records
    return Decision(
        "t",
        "id",
        partition,
        "trim" if trim else "hold",
        start,
        target + 5,
        target + 5,
        floor,
        None if floor is None else "group:g",
        target if trim else None,
        records,
        size if trim else 0,
        unread_below(target, start, floor) if trim else 0,
        "consumed" if trim else None,
        None,
        (),
        leader_epoch=0,
    )
