"""One group's memory as a document: what counted of its commits, what is gone, what was refused (F5, F6). Pure.

A commit that is seen is open until the pass has read its log's end: then it counts, or is refused. Only what counted
is ever a position. What counted before stays beside a commit that is refused: once that is deleted, it is the last.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from retention_cli.memory.commit import UNTOLD, Gone, Position, lower_proven, same
from retention_cli.memory.commit import verdict as judge_commit
from retention_cli.memory.interface import Commits, LogOf, RecalledGroup, Rows

Place = tuple[str, int]  # a topic's name, and a partition

_VERSION: Final = 2


@dataclass(slots=True)
class GroupMemory:
    """A group as it was last seen, at ``seen_ms`` (Unix ms).

    ``ids`` names each topic's id then, behind a "?" where its log was cut unseen. ``counted`` are positions that
    counted, ``open`` commits not judged yet, ``refused`` those of another log (F5), ``gone`` those that were there once
    (F6). ``doubted`` were refused by one machine and not seen by another: if they are there again, they are refused.
    """

    seen_ms: int = 0
    digest: bytes = b""
    ids: dict[str, str] = field(default_factory=dict)
    counted: dict[Place, Position] = field(default_factory=dict)
    open: dict[Place, Position] = field(default_factory=dict)
    refused: dict[Place, Position] = field(default_factory=dict)
    gone: dict[Place, Gone] = field(default_factory=dict)
    doubted: dict[Place, Position] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Whether there is nothing to recall while the group stands where it stands."""
        return not (self.gone or self.refused or self.doubted)

    @property
    def open_topics(self) -> frozenset[str]:
        """The topics of which some commit was never judged."""
        return frozenset(topic for topic, _partition in self.open)

    def live(self) -> dict[Place, tuple[int, int | None]]:
        """Return the commits that were there at the last look."""
        found = {place: one.commit for place, one in self.counted.items()}
        for others in (self.open, self.refused):
            found |= {place: one.commit for place, one in others.items()}
        return found

    def update(
        self, commits: Commits, ids: Mapping[str, str], digest: bytes, now_ms: int, *, outlives: bool = False
    ) -> None:
        """Take in what the group has committed by now. A topic recreated takes its positions with it.

        A look that knows of an earlier one is later than that, whatever two machines' clocks say. With ``outlives``
        nobody clears positions with their topic: all that stand there when it was recreated are of the former (F5).
        """
        now = {(topic, row[0]): (row[1], row[2]) for topic, rows in commits.items() for row in rows}
        anew = {topic for topic, one in self.ids.items() if topic in ids and ids[topic] != one}
        self._made_anew(anew, now)
        if outlives:
            self.refused |= {place: Position(*commit) for place, commit in now.items() if place[0] in anew}
        self._mark_gone(now)
        self.refused |= {
            place: one for place, one in self.doubted.items() if same(now.get(place, _NO_COMMIT), one.commit)
        }
        self.doubted = {}
        for place, commit in now.items():
            if place in self.refused:
                if same(self.refused[place].commit, commit):
                    if commit[1] != UNTOLD:
                        self.refused[place] = Position(*commit)
                    continue
                del self.refused[place]
            known = self.open.get(place) or self.counted.get(place)
            if known is None or known.own == UNTOLD or not same(known.commit, commit):
                self.open[place] = Position(*commit)
        kept = {place[0] for place in self.gone}
        still = kept.union(commits)  # a topic that is gone just now may come back as another (F5)
        self.ids = {topic: one for topic, one in self.ids.items() if topic in still and topic not in anew}
        self.ids |= dict.fromkeys(commits if outlives else (), "")  # of a topic not there: what comes is another
        self.ids |= {topic: ids[topic] for topic in (*commits, *kept) if topic in ids}
        self.digest = digest
        self.seen_ms = max(now_ms, self.seen_ms + 1)

    def topics(self) -> set[str]:
        """Return the topics on which it was ever seen to stand, whether or not that counts."""
        return {topic for some in (self.live(), self.doubted, self.gone) for topic, _ in some}

    def cut_unseen(self, topics: Collection[str]) -> None:
        """Note that logs were cut while it was not looked at: its next positions there are refused."""
        self.ids |= {topic: _CUT + self.ids[topic].removeprefix(_CUT) for topic in topics if topic in self.ids}

    def _made_anew(self, anew: set[str], now: Mapping[Place, tuple[int, int | None]]) -> None:
        """Forget what was committed to topics that are gone; what still stands there unchanged is refused (F5)."""
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
        """Move commits that are there no more to those that are gone, and back (F6). A refused one just goes."""
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
        """Judge open commits by what was read of their logs since; return whether any was."""
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
        """Refuse commits that counted before their log was cut, and lie beyond the cut; return whether there were any.

        They have not changed since, and carry no leader epoch by which that could be seen each time; but for those that
        were seen to count in the log as it was cut. What the group had read of the log before the cut, it has read.
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
        """Return what counts beside the commits that are there, and which of these don't."""
        rows: Rows = {}
        for place, (position, seen_ms) in sorted(self.gone.items()):
            if seen_ms >= since_ms:
                self._recall(place, position, ids, rows)
        return RecalledGroup(rows, {place: one.commit for place, one in self.refused.items()})

    def last_commits(self, ids: Mapping[str, str], since_ms: int) -> Rows:
        """Return everything that a group which is gone still counts for."""
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
        epoch = None if known is None else position.epoch  # of a topic without an id nobody knows which it was
        rows.setdefault(topic, []).append((partition, position.offset, epoch))

    def merged(self, other: GroupMemory) -> GroupMemory:
        """Return what both remember: the same, whichever is asked.

        The commits are those that were seen last; what the earlier look alone knew is gone. What either has refused is
        refused until it changes, and doubted where the later look has none, which may be the earlier one. Of a commit
        that both have seen to count the lower epoch stays: one of them may not have noticed a cut.
        """
        first, last = sorted((self, other), key=lambda one: (one.seen_ms, one.digest, one.as_bytes()))
        live = last.live()
        both = first.copied()
        both.update(_rows(live), last.ids, last.digest, last.seen_ms)
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
        """Return a copy of its own."""
        places = (dict(self.counted), dict(self.open), dict(self.refused), dict(self.gone), dict(self.doubted))
        return GroupMemory(self.seen_ms, self.digest, dict(self.ids), *places)

    def covers(self, other: GroupMemory) -> bool:
        """Return whether the other knows nothing that this one doesn't, but for when the group was seen."""
        both = self.merged(other)
        mine = (self.counted, self.open, self.refused, self.doubted, self.gone.keys())
        return (both.counted, both.open, both.refused, both.doubted, both.gone.keys()) == mine

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON's own types."""
        return {
            "format": _VERSION,
            "seen": self.seen_ms,
            "digest": self.digest.hex(),
            "ids": self.ids,
            "counted": _by_topic(self.counted, list),
            "open": _by_topic(self.open, lambda one: list(one.commit)),
            "refused": _by_topic(self.refused, lambda one: list(one.commit)),
            "gone": _by_topic(self.gone, lambda one: [*one.position, one.seen_ms]),
            **({"doubted": _by_topic(self.doubted, lambda one: list(one.commit))} if self.doubted else {}),
        }

    @classmethod
    def from_data(cls, data: Any) -> GroupMemory:
        """Return what :meth:`as_data` made, or an older version did.

        Raises:
            ValueError: it is something else.
        """
        try:
            group = cls(seen_ms=data["seen"], digest=bytes.fromhex(data["digest"]), ids=dict(data["ids"]))
            if data.get("format") == _VERSION:
                group.counted = {place: Position(*one) for place, one in _flat(data["counted"])}
                group.open = {place: Position(*one) for place, one in _flat(data["open"])}
                group.refused = {place: Position(*one) for place, one in _flat(data["refused"])}
                group.gone = {place: Gone(Position(*one[:3]), one[3]) for place, one in _flat(data["gone"])}
                group.doubted = {place: Position(*one) for place, one in _flat(data.get("doubted", {}))}
            else:
                group._read_older(data)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"a group's memory can't be read: {error}") from None
        if not group._is_sound():
            raise ValueError("a group's memory can't be read: an offset is no number")
        return group

    def _read_older(self, data: Any) -> None:
        """Take over what the first format knew. It has no epochs: nothing of it was seen to count (M1)."""
        self.digest = b""
        self.open = {place: Position(offset, UNTOLD) for place, (offset,) in _flat(data["commits"])}
        self.gone = {place: Gone(Position(one[0], None), one[1]) for place, (one,) in _flat(data["gone"])}
        for place, (offset,) in _flat(data["leftovers"]):
            self.refused[place] = Position(offset, UNTOLD)
            self.open.pop(place, None)

    def _is_sound(self) -> bool:
        positions = [one for some in (self.counted, self.open, self.refused, self.doubted) for one in some.values()]
        positions += [one.position for one in self.gone.values()]
        numbers = [self.seen_ms, *(one.seen_ms for one in self.gone.values()), *(one.offset for one in positions)]
        numbers += [number for one in positions for number in one[1:] if number is not None]
        places = (*self.counted, *self.open, *self.refused, *self.gone, *self.doubted)
        ids = all(isinstance(one, str) for one in self.ids.values())
        return ids and all(type(number) is int for number in (*numbers, *(place[1] for place in places)))

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
        except (zlib.error, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"a group's memory can't be read: {error}") from None


_CUT: Final = "?"
_NOTHING: Final = Position(-1, None)
_NO_COMMIT: Final = _NOTHING.commit


def digest_of(commits: Commits, ids: Mapping[str, str]) -> bytes:
    """Return a short digest of a group's commits and their topics' ids: where it is the same, nothing has changed."""
    whole = [(topic, ids.get(topic), rows) for topic, rows in sorted(commits.items())]
    # Version 2 of the format knows no references, which would make equal values differ.
    return hashlib.blake2b(marshal.dumps(whole, 2), digest_size=16).digest()


def _doubted(first: GroupMemory, last: GroupMemory, live: Collection[Place]) -> dict[Place, Position]:
    """Return what was refused by the earlier look alone, or was doubted before; of two of one partition the higher."""
    found: dict[Place, Position] = {}
    for some in (first.doubted, last.doubted, first.refused):
        for place, one in some.items():
            if place not in live:
                found[place] = max(one, found.get(place, _NOTHING), key=lambda other: (other.offset, other.own or -1))
    return found


def _lower_later(one: Gone, other: Gone) -> bool:
    return (one.seen_ms, -one.position.offset) > (other.seen_ms, -other.position.offset)


def _rows(live: Mapping[Place, tuple[int, int | None]]) -> Rows:
    rows: Rows = {}
    for (topic, partition), (offset, epoch) in live.items():
        rows.setdefault(topic, []).append((partition, offset, epoch))
    return rows


def _by_topic(places: Mapping[Place, Any], row: Callable[[Any], list[Any]]) -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for (topic, partition), value in places.items():
        found.setdefault(topic, []).append([partition, *row(value)])
    return found


def _flat(by_topic: Mapping[str, list[list[Any]]]) -> Iterator[tuple[Place, list[Any]]]:
    for topic, rows in by_topic.items():
        for row in rows:
            yield (topic, row[0]), row[1:]
