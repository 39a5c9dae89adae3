"""What a ledger has not seen for long: what ``kretain ledger prune`` forgets."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection


def seen_before(db: sqlite3.Connection, before_ms: int, keep: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the topic ids, but those in ``keep``, and the groups that were last seen before a moment (Unix ms)."""
    topics = db.execute("SELECT topic_id FROM topics WHERE seen_ms < ?", (before_ms,))
    groups = db.execute("SELECT name FROM groups WHERE seen_ms < ?", (before_ms,))
    return [one for (one,) in topics if one not in keep], [one for (one,) in groups]
