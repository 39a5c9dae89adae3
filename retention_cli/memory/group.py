"""One group's memory: which of its commits counted, which are gone, and which were refused (F5, F6). Pure.

A commit is open until the pass has read the end of its log: then it counts, or is refused. Only a commit that counted
is ever a position. The last one that counted is kept beside a refused one: once that is deleted, it is the position.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from retention_cli.memory.commit import UNTOLD, Gone, Position, lower_proven, same
from retention_cli.memory.commit import verdict as judge_commit
from retention_cli.memory.group_columns import document_of, is_columns
from retention_cli.memory.group_rows import Place, by_topic, flat, rows
from retention_cli.memory.interface import Commits, LogOf, RecalledGroup, Rows

VERSION: Final = 2
"""The format of :meth:`GroupMemory.as_data`."""


@dataclass(slots=True)
class GroupMemory:
    """A group as last seen, at ``seen_ms`` (Unix ms).

    ``ids`` are the topics' ids then, prefixed with "?" if a log was cut while the group was not seen. ``counted`` are
    commits that counted, ``open`` those not judged yet, ``refused`` those of another log (F5), ``gone`` those that no
    longer exist (F6). ``doubted`` were refused by one machine and not seen by another: they are refused if they return.
    """

    seen_ms: int = 0
    digest: bytes = b""
    ids: dict[str, str] = field(default_factory=dict)
    counted: dict[Place, Position] = field(default_factory=dict)
    open: dict[Place, Position] = field(default_factory=dict)
    refused: dict[Place, Position] = field(default_factory=dict)
    gone: dict[Place, Gone] = field(default_factory=dict)
    doubted: dict[Place, Position] = field(default_factory=dict)
    stood_ms: int = 0

    @property
    def plain(self) -> bool:
        """Whether there is nothing to recall while the group's commits don't change."""
        return not (self.gone or self.refused or self.doubted)

    @property
    def open_topics(self) -> frozenset[str]:
        """The topics with a commit that was not judged yet."""
        return frozenset(topic for topic, _partition in self.open)

    def live(self) -> dict[Place, tuple[int, int | None]]:
        """Return the commits that existed when the group was last seen."""
        found = {place: one.commit for place, one in self.counted.items()}
        for others in (self.open, self.refused):
            found |= {place: one.commit for place, one in others.items()}
        return found

    def update(
        self, commits: Commits, ids: Mapping[str, str], digest: bytes, now_ms: int, *, outlives: bool = False
    ) -> None:
        """Set the group's current commits. Positions on a topic that was recreated since are forgotten.

        ``seen_ms`` always grows, whatever two machines' clocks say. With ``outlives`` nobody deletes commits with their
        topic: all that exist when it was recreated are of the former topic, and are refused (F5).
        """
        now = {(topic, row[0]): (row[1], row[2]) for topic, rows in commits.items() for row in rows}
        anew = {topic for topic, one in self.ids.items() if topic in ids and ids[topic] != one}
        moved = not self.seen_ms or not anew.isdisjoint(commits) or not self.gone.keys().isdisjoint(now)
        self._made_anew(anew, now)
        if outlives:
            self.refused |= {place: Position(*commit) for place, commit in now.items() if place[0] in anew}
        self._mark_gone(now)
        self.refused |= {
            place: one for place, one in self.doubted.items() if same(now.get(place, _NO_COMMIT), one.commit)
        }
        self.doubted = {}
        for place, commit in now.items():
            if (refused := self.refused.get(place)) is not None:
                if same(refused.commit, commit):
                    if commit[1] != UNTOLD:
                        self.refused[place] = Position(*commit)
                    continue
                del self.refused[place]
            known = self.open.get(place) or self.counted.get(place)
            if known is None or known.own == UNTOLD or not same(known.commit, commit):
                self.open[place] = Position(*commit)
                before = refused or known
                moved |= before is None or before.offset != commit[0]
        kept = {place[0] for place in self.gone}
        still = kept.union(commits)  # a topic that does not exist now may be recreated (F5)
        self.ids = {topic: one for topic, one in self.ids.items() if topic in still and topic not in anew}
        self.ids |= dict.fromkeys(commits if outlives else (), "")  # no such topic: one that is created is another
        self.ids |= {topic: ids[topic] for topic in (*commits, *kept) if topic in ids}
        self.digest = digest
        self.seen_ms = max(now_ms, self.seen_ms + 1)
        self.stood_ms = self.seen_ms if moved else self.stood_ms

    def topics(self) -> set[str]:
        """Return the topics that the group has ever committed on, whether or not that counts."""
        return {topic for some in (self.live(), self.doubted, self.gone) for topic, _ in some}

    def cut_unseen(self, topics: Collection[str]) -> None:
        """Note that these topics' logs were cut while the group was not seen: its next commits there are refused."""
        self.ids |= {topic: _CUT + self.ids[topic].removeprefix(_CUT) for topic in topics if topic in self.ids}

    def _made_anew(self, anew: set[str], now: Mapping[Place, tuple[int, int | None]]) -> None:
        """Forget the commits on topics that were recreated; refuse those that still exist unchanged (F5)."""
        if not anew:
            return
        for place, commit in self.live().items():
            there = now.get(place)
            if place[0] in anew and there is not None and same(there, commit):
                self.refused[place] = Position(*(commit if there[1] == UNTOLD else there))
        for some in (self.counted, self.open, self.gone):
            for place in [place for place in some if place[0] in anew]:
                del some[place]

    def _mark_gone(self, now: Mapping[Place, tuple[int, int | None]]) -> None:
        """Move commits that no longer exist to ``gone``, and back if they return (F6). Forget refused ones."""
        for place in [place for place in {**self.counted, **self.open} if place not in now]:
            counted, opened = self.counted.pop(place, None), self.open.pop(place, None)
            position = opened or counted
            if position is not None:
                self.gone[place] = Gone(position, self.seen_ms)
        for place in [place for place in self.refused if place not in now]:
            del self.refused[place]
        for place in [place for place in self.gone if place in now]:
            position = self.gone.pop(place).position
            if position.proven is not None:
                self.counted[place] = position

    def judge(self, log_of: LogOf) -> bool:
        """Judge open commits by what was read of their logs since; return whether any was judged."""
        left: dict[Place, Position] = {}
        for place, position in self.open.items():
            log = log_of(place)
            verdict = None if log is None else judge_commit(position, log)
            if log is None or verdict is None:
                left[place] = position
            elif verdict:
                self.counted[place] = Position(position.offset, position.own, log.proves)
            else:
                self.refused[place] = position
        judged, self.open = len(left) < len(self.open), left
        return judged

    def refuse_beyond(self, cuts: Collection[Place], log_of: LogOf) -> bool:
        """Refuse commits that counted before their log was cut and lie beyond the cut; return whether there were any.

        Only commits without a leader epoch: those with one are checked in each pass. Commits that were seen to count
        after the cut are kept. The group now counts at the cut: it has read what lies before.
        """
        found = False
        for place in cuts:
            known, log = self.counted.get(place), log_of(place)
            if known is None or known.own is not None or log is None or log.cut is None or known.offset <= log.cut:
                continue
            if log.cut_until is not None and known.proven is not None and known.proven > log.cut_until:
                continue
            if place not in self.open and place not in self.refused:
                self.refused[place] = known._replace(proven=None)
                self.counted[place] = Position(log.cut, None, log.proves)
                found = True
        return found

    def recalled(self, ids: Mapping[str, str], since_ms: int) -> RecalledGroup:
        """Return the gone commits seen at or after ``since_ms``, which still count, and the refused ones."""
        rows: Rows = {}
        for place, (position, seen_ms) in sorted(self.gone.items()):
            if seen_ms >= since_ms:
                self._recall(place, position, ids, rows)
        return RecalledGroup(rows, {place: one.commit for place, one in self.refused.items()})

    def last_commits(self, ids: Mapping[str, str], since_ms: int) -> Rows:
        """Return all commits at which a group that is gone still counts (F6)."""
        rows = self.recalled(ids, since_ms).gone
        for place, position in sorted({**self.counted, **self.open}.items()):
            self._recall(place, position, ids, rows)
        return rows

    def _recall(self, place: Place, position: Position, ids: Mapping[str, str], rows: Rows) -> None:
        topic, partition = place
        known, now = self.ids.get(topic), ids.get(topic)
        known = known and known.removeprefix(_CUT)
        if now is None or (known is not None and known != now):
            return
        epoch = None if known is None else position.epoch  # without an id, which topic it was is unknown
        rows.setdefault(topic, []).append((partition, position.offset, epoch))

    def merged(self, other: GroupMemory) -> GroupMemory:
        """Return what both remember; their order does not matter.

        The commits are those that were seen last; those that only the earlier memory has are gone. A commit that either
        has refused is refused until it changes. It is doubted if the later memory does not have it, as that one may
        really be the earlier. Of a commit that counted in both, the lower epoch is kept: one may have missed a cut.
        """
        first, last = sorted((self, other), key=lambda one: (one.seen_ms, one.digest, one.as_bytes()))
        live = last.live()
        both = first.copied()
        both.update(rows(live), last.ids, last.digest, last.seen_ms)
        if both.stood_ms == first.stood_ms:  # both found it there: since the later of the two nobody saw it elsewhere
            both.stood_ms = max(first.stood_ms, last.stood_ms)
        else:
            both.stood_ms = last.stood_ms if last.stood_ms >= first.seen_ms else last.seen_ms
        both.seen_ms = last.seen_ms
        both.doubted = _doubted(first, last, live)
        for place, position in last.counted.items():
            both.counted[place] = lower_proven(position, both.counted.get(place))
        for place in live:
            refused = both.refused.get(place) or first.doubted.get(place) or last.doubted.get(place) or _NOTHING
            if place in last.refused or same(refused.commit, live[place]):
                both.refused[place] = last.refused.get(place) or refused
                both.open.pop(place, None)
                if same(both.counted.get(place, _NOTHING).commit, live[place]):
                    del both.counted[place]
                    if place in first.counted and not same(first.counted[place].commit, live[place]):
                        both.counted[place] = first.counted[place]
            elif place in last.open:
                both.open[place] = last.open[place]
            else:
                both.open.pop(place, None)
        for place, one in last.gone.items():
            known = both.gone.get(place)
            if place not in live and (known is None or _lower_later(one, known)):
                both.gone[place] = one
        both.ids |= {topic: one for topic, one in last.ids.items() if topic not in both.ids}
        return both

    def copied(self) -> GroupMemory:
        """Return an independent copy."""
        places = (dict(self.counted), dict(self.open), dict(self.refused), dict(self.gone), dict(self.doubted))
        return GroupMemory(self.seen_ms, self.digest, dict(self.ids), *places, self.stood_ms)

    def covers(self, other: GroupMemory) -> bool:
        """Return whether this memory has all that the other has, except when the group was seen."""
        both = self.merged(other)
        mine = (self.counted, self.open, self.refused, self.doubted, self.gone.keys())
        return (both.counted, both.open, both.refused, both.doubted, both.gone.keys()) == mine

    def as_data(self) -> dict[str, Any]:
        """Return the memory as JSON's own types."""
        return {
            "format": VERSION,
            "seen": self.seen_ms,
            "stood": self.stood_ms,
            "digest": self.digest.hex(),
            "ids": self.ids,
            "counted": by_topic(self.counted, list),
            "open": by_topic(self.open, lambda one: list(one.commit)),
            "refused": by_topic(self.refused, lambda one: list(one.commit)),
            "gone": by_topic(self.gone, lambda one: [*one.position, one.seen_ms]),
            **({"doubted": by_topic(self.doubted, lambda one: list(one.commit))} if self.doubted else {}),
        }

    @classmethod
    def from_data(cls, data: Any) -> GroupMemory:
        """Return the memory that :meth:`as_data` returned, in this or an older version.

        Raises:
            ValueError: it is not valid.
        """
        try:
            group = cls(seen_ms=data["seen"], digest=bytes.fromhex(data["digest"]), ids=dict(data["ids"]))
            group.stood_ms = data.get("stood", group.seen_ms)  # an older version wrote it anew whenever it moved
            if data.get("format") == VERSION:
                group.counted = {place: Position(*one) for place, one in flat(data["counted"])}
                group.open = {place: Position(*one) for place, one in flat(data["open"])}
                group.refused = {place: Position(*one) for place, one in flat(data["refused"])}
                group.gone = {place: Gone(Position(*one[:3]), one[3]) for place, one in flat(data["gone"])}
                group.doubted = {place: Position(*one) for place, one in flat(data.get("doubted", {}))}
            else:
                group._read_older(data)
        except (KeyError, IndexError, TypeError, AttributeError):
            raise ValueError("a group's memory can't be read: it is damaged") from None
        if not group._is_sound():
            raise ValueError("a group's memory can't be read: an offset is no number")
        return group

    def _read_older(self, data: Any) -> None:
        """Read the first format. It has no leader epochs, so nothing in it was seen to count (M1)."""
        self.digest = b""
        self.open = {place: Position(offset, UNTOLD) for place, (offset,) in flat(data["commits"])}
        self.gone = {place: Gone(Position(one[0], None), one[1]) for place, (one,) in flat(data["gone"])}
        for place, (offset,) in flat(data["leftovers"]):
            self.refused[place] = Position(offset, UNTOLD)
            self.open.pop(place, None)

    def _is_sound(self) -> bool:
        positions = [one for some in (self.counted, self.open, self.refused, self.doubted) for one in some.values()]
        positions += [one.position for one in self.gone.values()]
        numbers = [
            self.seen_ms,
            self.stood_ms,
            *(one.seen_ms for one in self.gone.values()),
            *(one.offset for one in positions),
        ]
        numbers += [number for one in positions for number in one[1:] if number is not None]
        places = (*self.counted, *self.open, *self.refused, *self.gone, *self.doubted)
        ids = all(isinstance(one, str) for one in self.ids.values())
        return ids and all(type(number) is int for number in (*numbers, *(place[1] for place in places)))

    def as_bytes(self) -> bytes:
        """Return the memory as compressed JSON."""
        return zlib.compress(json.dumps(self.as_data(), separators=(",", ":"), ensure_ascii=False).encode(), 1)

    @classmethod
    def from_bytes(cls, raw: bytes) -> GroupMemory:
        """Return the memory that :meth:`as_bytes` wrote, or that is a document of columns.

        Raises:
            ValueError: it is not valid.
        """
        if is_columns(raw):
            return cls.from_data({"format": VERSION, **document_of(raw).as_data()})
        try:
            return cls.from_data(json.loads(zlib.decompress(raw)))
        except (zlib.error, UnicodeDecodeError, RecursionError):
            raise ValueError("a group's memory can't be read: it is damaged") from None


_CUT: Final = "?"
_NOTHING: Final = Position(-1, None)
_NO_COMMIT: Final = _NOTHING.commit


def _doubted(first: GroupMemory, last: GroupMemory, live: Collection[Place]) -> dict[Place, Position]:
    """Return what only the earlier memory refused, or was doubted before; of two on a partition the higher."""
    found: dict[Place, Position] = {}
    for some in (first.doubted, last.doubted, first.refused):
        for place, one in some.items():
            if place not in live:
                found[place] = max(one, found.get(place, _NOTHING), key=lambda other: (other.offset, other.own or -1))
    return found


def _lower_later(one: Gone, other: Gone) -> bool:
    return (one.seen_ms, -one.position.offset) > (other.seen_ms, -other.position.offset)
