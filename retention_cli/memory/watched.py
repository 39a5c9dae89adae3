"""Since when a cluster's groups have been watched without a long pause (F10). Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter

from retention_cli.memory.interface import Int64

PAUSE_MS: Final = 2 * 86_400_000
"""A longer pause starts the watch over. Brokers keep a group's offsets for 7 days by default, once 1."""
SKEW_MS: Final = 60_000
"""So much may the clocks of two machines differ. An older look than the last one says that our clock was set back."""
_AGAIN_MS: Final = 3_600_000
"""A look is noted at most once an hour: the first one counts, and a pause is much longer."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Looks at all groups of a cluster, the first and the last (Unix ms), with no long pause between any two.

    They saw the groups whose names begin with ``scope``, without the ``ignored`` patterns.
    """

    scope: str = ""
    ignored: tuple[str, ...] = ()
    since_ms: Int64 = 0
    last_ms: Int64 = 0

    @property
    def key(self) -> str:
        """What was watched, as a short name."""
        return hashlib.sha256(repr((self.scope, self.ignored)).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def merged(self, other: Watched) -> Watched:
        """Return both as one; after a long pause the later one alone."""
        first, last = sorted((self, other), key=lambda one: (one.last_ms, -one.since_ms))
        if last.since_ms - first.last_ms > PAUSE_MS:
            return last
        return replace(last, since_ms=min(first.since_ms, last.since_ms))

    def is_current(self, now_ms: int) -> bool:
        """Return whether the last look is neither too long ago nor in the future."""
        return self.last_ms - SKEW_MS <= now_ms <= self.last_ms + PAUSE_MS

    def is_fresh(self, now_ms: int, since_ms: int) -> bool:
        """Return whether another look since then need not be noted."""
        return self.is_current(now_ms) and self.since_ms <= since_ms and now_ms - self.last_ms < _AGAIN_MS


def watched_since(known: Iterable[Watched], scope: str, ignored: Collection[str], now_ms: int) -> int | None:
    """Return since when all groups of a scope but those ignored have been watched (Unix ms); None: not watched now.

    Whoever ignores fewer groups has seen these, too.
    """
    current = (one for one in known if one.scope == scope and one.is_current(now_ms))
    return min((one.since_ms for one in current if {*ignored}.issuperset(one.ignored)), default=None)


def as_text(one: Watched) -> str:
    """Return it as JSON."""
    return _ADAPTER.dump_json(one).decode()


def from_text(text: str) -> Watched:
    """Return what :func:`as_text` wrote.

    Raises:
        ValueError: it is not valid.
    """
    return _ADAPTER.validate_json(text, strict=True)


_ADAPTER: Final = TypeAdapter(Watched)
