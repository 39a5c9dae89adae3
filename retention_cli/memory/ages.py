"""Since when kretain knows groups and partitions (F2), and watches a cluster's groups without a long pause (F10)."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from pydantic import TypeAdapter

from retention_cli.core.grouping import by_key
from retention_cli.memory.positions import Int64

Width = tuple[int, int]
"""A number of partitions, and when a topic was first seen with that many (Unix ms); 0: it has never had fewer."""


@dataclass(frozen=True, slots=True)
class Ages:
    """When topics were first seen with more partitions, and groups at all.

    ``widths`` has only topics that have grown, by name, fewest partitions first. A group that is not in ``born``
    existed before any topic grew.
    """

    widths: Mapping[str, Sequence[Width]] = field(default_factory=dict)
    born: Mapping[str, int] = field(default_factory=dict)

    def covered(self, group: str, topic: str, partitions: int) -> int:
        """Return how many of a topic's partitions, the first ones, are not younger than a group."""
        born_ms = self.born.get(group, 0)
        older = (fewer for (fewer, _), (_, since_ms) in pairwise(self.widths.get(topic, ())) if since_ms > born_ms)
        return min(next(older, partitions), partitions)


class StoredAges:
    """The tables of a ledger that :class:`Ages` come from. What is noted (``new_…``) waits for :meth:`write`.

    Groups are noted only once some topic has grown: until then there is nothing that they could be older than.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.new_widths: dict[tuple[str, int], int] = {}
        self.new_groups: dict[str, int] = {}

    def note(
        self, topics: Mapping[str, tuple[str, int]], groups: Iterable[str], known: Collection[str], now_ms: int
    ) -> Ages:
        """Note topics (by name: id and number of partitions) and groups; return what is known of their ages.

        ``known`` are the groups that the ledger remembers. What is new in one call is equally old.
        """
        rows = self._db.execute("SELECT topic_id, partitions, seen_ms FROM widths ORDER BY 1, 2")
        widths: dict[str, list[Width]] = by_key((topic_id, (count, seen_ms)) for topic_id, count, seen_ms in rows)
        for (topic_id, count), seen_ms in self.new_widths.items():
            widths[topic_id] = merged(widths.get(topic_id, ()), [(count, seen_ms)])
        born = {**dict(self._db.execute("SELECT name, seen_ms FROM born")), **self.new_groups}
        last_ms = max((one for some in widths.values() for _, one in some), default=0)
        stamp_ms = max(now_ms, last_ms + 1, max(born.values(), default=0) + 1)  # our clock may have been set back
        self._note_widths(topics.values(), widths, stamp_ms)
        if any(len(some) > 1 for some in widths.values()):
            new = {name: stamp_ms for name in groups if name not in known and name not in born}
            self.new_groups |= new
            born |= new
        grown = {name: widths[one] for name, (one, _) in topics.items() if len(widths[one]) > 1}
        return Ages(grown, born if grown else {})

    def _note_widths(self, topics: Collection[tuple[str, int]], widths: dict[str, list[Width]], stamp_ms: int) -> None:
        """Add topics (id and number of partitions) to ``widths``, and note those that are new or have grown."""
        most: dict[str, int] = {}  # partitions that the ledger has: others send widths only of topics that grew
        if not all(one in widths for one, _ in topics):
            most.update(self._db.execute("SELECT topic_id, max(partition) + 1 FROM partitions GROUP BY topic_id"))
        for topic_id, count in topics:
            its = widths.get(topic_id) or ([(most[topic_id], 0)] if topic_id in most else [])
            if not its or count > its[-1][0]:
                self.new_widths |= {(topic_id, some): seen_ms for some, seen_ms in its}
                self.new_widths[topic_id, count] = seen_ms = stamp_ms if its else 0
                its = [*its, (count, seen_ms)]
            widths[topic_id] = its

    def write(self) -> set[str]:
        """Write what was noted, before the groups are; return the ids of the topics that have grown."""
        grown = {topic_id for (topic_id, _), seen_ms in self.new_widths.items() if seen_ms}
        for (topic_id, count), seen_ms in self.new_widths.items():
            self.merge_widths(topic_id, [(count, seen_ms)])
        for name, seen_ms in self.new_groups.items():  # one that another process has seen earlier is older
            self._db.execute(
                "INSERT OR IGNORE INTO born SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM groups WHERE name = ?)",
                (name, seen_ms, name),
            )
        return grown

    def widths_of(self, topic_id: str) -> tuple[Width, ...]:
        """Return a topic's widths, none if it has never grown."""
        rows = self._db.execute(
            "SELECT partitions, seen_ms FROM widths WHERE topic_id = ? ORDER BY partitions", (topic_id,)
        ).fetchall()
        return tuple(rows) if len(rows) > 1 else ()

    def born_ms(self, group: str) -> int:
        """Return when a group was first seen, 0 if that was before any topic has grown."""
        row = self._db.execute("SELECT seen_ms FROM born WHERE name = ?", (group,)).fetchone()
        return 0 if row is None else int(row[0])

    def merge_widths(self, topic_id: str, theirs: Iterable[Width]) -> None:
        """Merge what another operator knows of a topic."""
        known = self._db.execute("SELECT partitions, seen_ms FROM widths WHERE topic_id = ?", (topic_id,))
        rows = [(topic_id, *width) for width in merged(known, theirs)]
        self._db.executemany("INSERT OR REPLACE INTO widths VALUES (?, ?, ?)", rows)

    def merge_born(self, group: str, seen_ms: int, *, known: bool) -> None:
        """Merge when another operator first saw a group; ``known`` says that this ledger has seen it, too."""
        mine = self.born_ms(group)
        if known or mine:
            seen_ms = min(mine, seen_ms)
        self._db.execute("DELETE FROM born WHERE name = ?", (group,))
        if seen_ms:
            self._db.execute("INSERT INTO born VALUES (?, ?)", (group, seen_ms))

    def forget(self, topics: Iterable[str], groups: Iterable[str]) -> None:
        """Forget topic ids and groups."""
        self._db.executemany("DELETE FROM widths WHERE topic_id = ?", ((one,) for one in topics))
        self._db.executemany("DELETE FROM born WHERE name = ?", ((one,) for one in groups))


def merged(mine: Iterable[Width], theirs: Iterable[Width]) -> list[Width]:
    """Return both histories of one topic as one: of two times the earlier one counts.

    0 says only that its writer has never seen fewer partitions: any other time does.
    """
    found: dict[int, int] = {}
    for count, seen_ms in (*mine, *theirs):
        known = found.get(count, 0)
        found[count] = min(known, seen_ms) if known and seen_ms else known or seen_ms
    return sorted(found.items())


PAUSE_MS: Final = 2 * 86_400_000
"""A longer pause starts the watch over. Brokers keep a group's offsets for 7 days by default, once 1."""
SKEW_MS: Final = 60_000
"""How far the clocks of two machines may differ. If a look is older than the last one, our clock was set back."""
AGAIN_MS: Final = 3_600_000
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


def watched_since(known: Iterable[Watched], scope: str, ignored: Collection[str], now_ms: int) -> int | None:
    """Return since when all groups of a scope but those ignored have been watched (Unix ms); None: not watched now.

    A look that ignores fewer groups has seen these, too.
    """
    current = (one for one in known if one.scope == scope and one.is_current(now_ms))
    return min((one.since_ms for one in current if {*ignored}.issuperset(one.ignored)), default=None)


STORED: Final = TypeAdapter(Watched)
"""How a ledger has it: as JSON."""
