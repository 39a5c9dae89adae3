"""One group's memory as a document: its commits, those that are gone, and leftovers (RULES.md F5, F6). Pure."""

from __future__ import annotations

import hashlib
import json
import marshal
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from retention_cli.memory import Commits, RecalledGroup, Rows

Place = tuple[str, int]
"""A topic's name and a partition."""


@dataclass(slots=True)
class GroupMemory:
    """A group as it was last seen, at ``seen_ms`` (Unix ms).

    ``ids`` names each topic's id then, ``commits`` the offsets. ``gone`` are commits that were there once: offset
    and when they were last seen. ``leftovers`` are offsets that belong to an older log of that name.
    """

    seen_ms: int = 0
    digest: bytes = b""
    ids: dict[str, str] = field(default_factory=dict)
    commits: dict[Place, int] = field(default_factory=dict)
    gone: dict[Place, tuple[int, int]] = field(default_factory=dict)
    leftovers: dict[Place, int] = field(default_factory=dict)

    def update(self, commits: Commits, ids: Mapping[str, str], digest: bytes, now_ms: int) -> None:
        """Take in what the group has committed by now. A topic made anew takes its gone commits with it."""
        now = {(topic, row[0]): row[1] for topic, rows in commits.items() for row in rows}
        same = {topic: ids.get(topic) == one for topic, one in self.ids.items()}
        for place, offset in self.commits.items():
            if place not in now:
                self.gone[place] = (offset, self.seen_ms)
            elif self.ids.get(place[0]) != ids.get(place[0]) and now[place] == offset:
                self.leftovers[place] = offset  # it was committed to the topic that is gone
        # What was deleted with its topic is no one's; what can't be told is kept.
        self.gone = {
            place: one
            for place, one in self.gone.items()
            if place not in now and (same.get(place[0], True) or place[0] not in ids)
        }
        self.leftovers = {place: offset for place, offset in self.leftovers.items() if now.get(place) == offset}
        kept = {topic: one for topic, one in self.ids.items() if any(place[0] == topic for place in self.gone)}
        self.ids = kept | {topic: ids[topic] for topic in commits if topic in ids}
        self.commits, self.digest, self.seen_ms = now, digest, now_ms

    def recalled(self, ids: Mapping[str, str], since_ms: int) -> RecalledGroup:
        """Return what counts beside the commits that are there."""
        rows: Rows = {}
        for (topic, partition), (offset, seen_ms) in sorted(self.gone.items()):
            if seen_ms >= since_ms and self.ids.get(topic) == ids.get(topic):
                rows.setdefault(topic, []).append((partition, offset, None))
        return RecalledGroup(rows, dict(self.leftovers))

    def last_commits(self, ids: Mapping[str, str], since_ms: int) -> Rows:
        """Return everything that a group which is gone still counts for."""
        rows = self.recalled(ids, since_ms).gone
        for (topic, partition), offset in sorted(self.commits.items()):
            if self.ids.get(topic) == ids.get(topic):
                rows.setdefault(topic, []).append((partition, offset, None))
        return rows

    def merged(self, other: GroupMemory) -> GroupMemory:
        """Return what both remember: the same, whichever is asked.

        The commits are those that were seen last; what the earlier look knew and the later one doesn't is gone.
        """
        first, last = sorted((self, other), key=lambda one: (one.seen_ms, one.digest, sorted(one.commits.items())))
        both = replace(first, gone=dict(first.gone), leftovers=dict(first.leftovers))
        both.update(_rows(last.commits), last.ids, last.digest, last.seen_ms)
        for place, (offset, seen_ms) in last.gone.items():
            known = both.gone.get(place)
            if place not in both.commits and (known is None or (seen_ms, -offset) > (known[1], -known[0])):
                both.gone[place] = (offset, seen_ms)
        both.leftovers |= last.leftovers
        both.ids |= {topic: one for topic, one in last.ids.items() if topic not in both.ids}
        return both

    def covers(self, other: GroupMemory) -> bool:
        """Return whether the other knows nothing that this one doesn't, but for when the group was seen."""
        both = self.merged(other)
        mine = (self.commits, self.gone.keys(), self.leftovers)
        return (both.commits, both.gone.keys(), both.leftovers) == mine

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON's own types."""
        return {
            "seen": self.seen_ms,
            "digest": self.digest.hex(),
            "ids": self.ids,
            "commits": _by_topic(self.commits),
            "gone": _by_topic(self.gone),
            "leftovers": _by_topic(self.leftovers),
        }

    @classmethod
    def from_data(cls, data: Any) -> GroupMemory:
        """Return what :meth:`as_data` made.

        Raises:
            ValueError: it is something else.
        """
        try:
            group = cls(
                seen_ms=data["seen"],
                digest=bytes.fromhex(data["digest"]),
                ids=dict(data["ids"]),
                commits=_flat(data["commits"]),
                gone={place: (one[0], one[1]) for place, one in _flat(data["gone"]).items()},
                leftovers=_flat(data["leftovers"]),
            )
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"a group's memory can't be read: {error}") from None
        if not group._is_sound():
            raise ValueError("a group's memory can't be read: an offset is no number")
        return group

    def _is_sound(self) -> bool:
        numbers = [
            self.seen_ms,
            *self.commits.values(),
            *self.leftovers.values(),
            *(n for pair in self.gone.values() for n in pair),
        ]
        places = (*self.commits, *self.gone, *self.leftovers)
        return all(isinstance(number, int) for number in numbers) and all(isinstance(place[1], int) for place in places)

    def as_bytes(self) -> bytes:
        """Return it as compressed JSON."""
        return zlib.compress(json.dumps(self.as_data(), separators=(",", ":"), ensure_ascii=False).encode(), 1)

    @classmethod
    def from_bytes(cls, raw: bytes) -> GroupMemory:
        """Return what :meth:`as_bytes` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            return cls.from_data(json.loads(zlib.decompress(raw)))
        except (zlib.error, UnicodeDecodeError) as error:
            raise ValueError(f"a group's memory can't be read: {error}") from None


def digest_of(commits: Commits, ids: Mapping[str, str]) -> bytes:
    """Return a short digest of a group's commits and their topics' ids: where it is the same, nothing has changed."""
    whole = [(topic, ids.get(topic), rows) for topic, rows in sorted(commits.items())]
    # Version 2 of the format knows no references, which would make equal values differ.
    return hashlib.blake2b(marshal.dumps(whole, 2), digest_size=16).digest()


def _rows(commits: Mapping[Place, int]) -> Rows:
    rows: Rows = {}
    for (topic, partition), offset in commits.items():
        rows.setdefault(topic, []).append((partition, offset, None))
    return rows


def _by_topic(places: Mapping[Place, Any]) -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for (topic, partition), value in places.items():
        found.setdefault(topic, []).append([partition, value])
    return found


def _flat(by_topic: Mapping[str, list[list[Any]]]) -> dict[Place, Any]:
    return {(topic, row[0]): row[1] for topic, rows in by_topic.items() for row in rows}
