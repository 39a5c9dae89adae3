"""One group's memory: which of its commits counted, which are gone, and which were refused (F5, F6). Pure.

A commit is open until the pass has read the end of its log: then it counts, or is refused. Only a commit that counted
is ever a position. The last one that counted is kept with a refused one: once that is deleted, it is the position.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import TypeAdapter

from retention_cli.memory.positions import (
    NONE,
    NOTHING,
    Commits,
    Int64,
    Logs,
    Place,
    Position,
    Positions,
    Rows,
    packed,
    unpacked,
)


@dataclass(frozen=True, slots=True)
class RecalledGroup:
    """What is remembered of a live group: commits that are gone (F6), and those that are refused (F5)."""

    gone: Rows = field(default_factory=dict)
    refused: Mapping[tuple[str, int], tuple[int, int | None]] = field(default_factory=dict)


NOTHING_RECALLED: Final = RecalledGroup()


@dataclass(slots=True)
class GroupMemory:
    """A group as last seen, at ``seen_ms`` (Unix ms).

    ``ids`` are the topics' ids then, prefixed with "?" if a log was cut while the group was not seen. ``counted`` are
    commits that counted, ``open`` those not judged yet, ``refused`` those of another log (F5), ``gone`` those that no
    longer exist (F6). ``doubted`` were refused by one machine and not seen by another: they are refused if they return.
    ``stood_ms`` is the first look that found the group at its current positions. ``digest`` is that of all commits,
    empty where it is unknown which the group had (:meth:`smaller`).
    """

    seen_ms: int = 0
    digest: bytes = b""
    ids: dict[str, str] = field(default_factory=dict)
    counted: Positions = NOTHING
    open: Positions = NOTHING
    refused: Positions = NOTHING
    gone: Positions = NOTHING
    doubted: Positions = NOTHING
    stood_ms: int = 0

    @property
    def live(self) -> Positions:
        """The commits that existed when the group was last seen."""
        return self.counted.joined(self.open).joined(self.refused)

    def update(
        self,
        commits: Positions,
        ids: Mapping[str, str],
        digest: bytes,
        now_ms: int,
        *,
        named: Collection[str] | None = None,
    ) -> None:
        """Set the group's current commits. Positions on a topic that was recreated since are forgotten.

        ``seen_ms`` always grows, even if two machines' clocks differ. With ``named`` commits outlive their
        topic: all that exist when it was recreated are of the former topic, and are refused (F5). ``named`` are the
        topics that the consumer has, also those without a position yet.
        """
        outlives, topics = named is not None, commits.topics().union(named or ())
        recreated = {topic for topic, one in self.ids.items() if topic in ids and ids[topic] != one}
        moved = not self.seen_ms or not recreated.isdisjoint(topics) or bool(self.gone.within(commits).any())
        if recreated:
            cut = {topic for topic in recreated if self.ids[topic].removeprefix(_CUT) == ids[topic].removeprefix(_CUT)}
            self._refuse_recreated(recreated, cut, commits)
            if outlives:
                self.refused = self.refused.joined(commits.where(commits.of_topics(recreated)))
        self._mark_gone(commits)
        before = self.refused.joined(self.doubted.where(self.doubted.unchanged_in(commits)))
        self.refused, self.doubted = before.where(before.unchanged_in(commits)), NOTHING
        known = self.counted.joined(self.open)
        new = commits.where(~(commits.within(self.refused) | commits.same_in(known)))
        moved |= not new.same_in(known.joined(before), any_epoch=True).all()
        # One that may have changed stays refused, and is a position nevertheless once it is gone (F6).
        maybe = commits.where(commits.within(self.refused) & ~commits.same_in(self.refused))
        self.open = self.open.joined(new).joined(maybe.where(~maybe.within(known) | maybe.lower_in(known)))
        still = topics | (gone_topics := self.gone.topics())  # a topic that does not exist now may be recreated (F5)
        self.ids = {
            **{topic: one for topic, one in self.ids.items() if topic in still and topic not in recreated},
            **dict.fromkeys(topics if outlives else (), ""),  # no such topic: one that is created is another
            **{topic: ids[topic] for topic in topics | gone_topics if topic in ids},
        }
        self.digest = digest
        self.seen_ms = max(now_ms, self.seen_ms + 1)
        self.stood_ms = self.seen_ms if moved else self.stood_ms

    def smaller(self) -> Iterator[GroupMemory]:
        """Yield less and less of the memory: what must fit into a message.

        First without the commits that count, or may: what a look at the group does not show. Then also without those
        that are gone, without any, and last it says only when the group was seen.
        """
        yield replace(self, digest=b"", counted=NOTHING, open=NOTHING)
        yield replace(self, digest=b"", counted=NOTHING, open=NOTHING, gone=NOTHING)
        yield GroupMemory(self.seen_ms, ids=self.ids, stood_ms=self.stood_ms)
        yield GroupMemory(self.seen_ms, stood_ms=self.stood_ms)

    def topics(self) -> set[str]:
        """Return the topics that the group has ever committed on, whether or not that counts."""
        return self.live.topics() | self.doubted.topics() | self.gone.topics()

    def cut_unseen(self, topics: Collection[str]) -> None:
        """Note that these topics' logs were cut while the group was not seen: its next commits there are refused."""
        self.ids |= {topic: _CUT + self.ids[topic].removeprefix(_CUT) for topic in topics if topic in self.ids}

    def _refuse_recreated(self, recreated: Collection[str], cut: Collection[str], now: Positions) -> None:
        """Forget the commits on topics that were recreated; refuse those that still exist unchanged (F5).

        Where a log was only ``cut`` while the group was not seen, commits that do not exist any more are gone (F6).
        """
        live = self.live
        self.refused = self.refused.joined(
            live.where(live.of_topics(recreated) & live.unchanged_in(now)).with_proven(NONE)
        )
        self.counted, self.open, self.gone = (
            some.where(~some.of_topics(recreated) | (some.of_topics(cut) & ~(some.within(now) & ~some.is_proven)))
            for some in (self.counted, self.open, self.gone)
        )

    def _mark_gone(self, now: Positions) -> None:
        """Move commits that no longer exist to ``gone``, and back if they return (F6). Forget refused ones."""
        stood = self.counted.joined(self.open)
        left = stood.where(~stood.within(now))
        back = self.gone.where(self.gone.within(now))
        self.counted, self.open, self.refused = (
            some.where(some.within(now)) for some in (self.counted, self.open, self.refused)
        )
        self.counted = self.counted.joined(back.where(back.is_proven).with_seen(0))
        self.gone = self.gone.where(~self.gone.within(now)).joined(left.with_seen(self.seen_ms))

    def judge(self, logs: Logs) -> bool:
        """Judge open commits by what was read of their logs since; return whether any was judged."""
        counted, refused, left = logs.judged(self.open)
        judged = len(left) < len(self.open)
        self.counted, self.refused, self.open = self.counted.joined(counted), self.refused.joined(refused), left
        return judged

    def refuse_unread(self, logs: Logs) -> bool:
        """Refuse open commits that this pass did not read, and that can't be of these logs; return whether there were.

        They were seen before, when nothing was known of their log. The group counts at the cut, as in
        :meth:`refuse_beyond`.
        """
        _, refused, _ = logs.judged(self.open)
        self.refused, self.open = refused.joined(self.refused), self.open.where(~self.open.within(refused))
        ends = {place: logs.end_of(place) for place in refused.where(~refused.within(self.counted))}
        self.counted = self.counted.joined(Positions.at(ends))
        return len(refused) > 0

    def refuse_beyond(self, cuts: Collection[Place], logs: Logs) -> bool:
        """Refuse commits that counted before their log was cut and lie beyond the cut; return whether there were any.

        Only commits without a leader epoch: those with one are checked in each pass. Commits that were seen to count
        after the cut are kept. The group now counts at the cut: it has read what lies before.
        """
        refused, counted = dict[Place, Position](), dict[Place, Position]()
        for place in cuts:
            known, log = self.counted.get(place), logs.special.get(place)
            if known is None or known.own is not None or log is None or log.cut is None or known.offset <= log.cut:
                continue
            if log.cut_until is not None and known.proven is not None and known.proven > log.cut_until:
                continue
            if place not in self.open and place not in self.refused:
                refused[place] = known._replace(proven=None)
                counted[place] = Position(log.cut, None, log.proves)
        self.refused = self.refused.joined(Positions.at(refused))
        self.counted = self.counted.joined(Positions.at(counted))
        return bool(refused)

    def recalled(self, ids: Mapping[str, str], since_ms: int) -> RecalledGroup:
        """Return the gone commits seen at or after ``since_ms``, which still count, and the refused ones."""
        rows: Rows = {}
        for place, position in sorted(self.gone.items()):
            if position.seen_ms >= since_ms:
                self._recall(place, position, ids, rows)
        return RecalledGroup(rows, self.refused.commits())

    def last_commits(self, ids: Mapping[str, str], since_ms: int) -> Rows:
        """Return all commits at which a group that is gone still counts (F6)."""
        rows = self.recalled(ids, since_ms).gone
        for place, position in sorted(self.counted.joined(self.open).items()):
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
        really be the earlier. Of a commit that counted in both, the lower epoch is kept: one may have missed a cut. Of
        two that counted before one that is refused, the lower is kept: the group may have gone back in between.
        """
        first, last = sorted((self, other), key=lambda one: (one.seen_ms, one.digest, one.as_bytes()))
        live = last.live
        both = replace(first)
        both.update(live.with_proven(NONE), last.ids, last.digest, last.seen_ms)
        counted = both.counted  # what counted before, but not on a topic that was recreated since
        if both.stood_ms == first.stood_ms:  # both found it there: since the later of the two neither saw it elsewhere
            both.stood_ms = max(first.stood_ms, last.stood_ms)
        else:
            both.stood_ms = last.stood_ms if last.stood_ms >= first.seen_ms else last.seen_ms
        both.seen_ms = last.seen_ms
        both.doubted = _doubted(first, last, live)
        both.counted = both.counted.joined(last.counted.proven_lower(both.counted))
        known = last.doubted.joined(first.doubted).joined(both.refused)
        refused = live.where(live.within(last.refused) | live.unchanged_in(known))
        both.refused = both.refused.joined(known.where(known.within(refused))).joined(last.refused)
        same = refused.where(refused.within(last.refused) | refused.same_in(known))  # others count once gone (F6)
        both.open = last.open.where(~(last.open.same_in(same) | last.open.same_in(known)))
        dropped = both.counted.where(both.counted.same_in(same))
        before = counted.where(counted.within(dropped) & ~counted.same_in(live))
        both.counted = both.counted.where(~both.counted.within(dropped)).joined(before)
        both.counted = both.counted.joined(counted.where(counted.within(both.refused) & counted.lower_in(both.counted)))
        left = last.gone.where(~last.gone.within(live)).items()
        later = {place: one for place, one in left if _is_later(one, both.gone.get(place))}
        both.gone = both.gone.joined(Positions.at(later))
        both.ids |= {topic: one for topic, one in last.ids.items() if topic not in both.ids}
        return both

    def covers(self, other: GroupMemory) -> bool:
        """Return whether this memory has all that the other has, except when the group was seen."""
        both = self.merged(other)
        mine = (self.counted, self.open, self.refused, self.doubted, self.gone.keys())
        return (both.counted, both.open, both.refused, both.doubted, both.gone.keys()) == mine

    def as_bytes(self) -> bytes:
        """Return the memory as bytes, the same on every machine."""
        head = [self.seen_ms, self.stood_ms, self.digest.hex(), dict(sorted(self.ids.items()))]
        return packed(head, (self.counted, self.open, self.refused, self.gone, self.doubted))

    @classmethod
    def from_bytes(cls, raw: bytes) -> GroupMemory:
        """Return the memory that :meth:`as_bytes` wrote.

        Raises:
            ValueError: it is not valid.
        """
        try:
            head, (counted, opened, refused, gone, doubted) = unpacked(raw)
            seen_ms, stood_ms, digest, ids = _HEAD.validate_python(tuple(head), strict=True)
            return cls(seen_ms, bytes.fromhex(digest), ids, counted, opened, refused, gone, doubted, stood_ms)
        except (ValueError, TypeError):
            raise ValueError("a group's memory can't be read: it is damaged") from None


def digest_of(commits: Commits, ids: Mapping[str, str]) -> bytes:
    """Return a short digest of a group's commits and their topics' ids: if it is the same, nothing has changed."""
    all_rows = [(topic, ids.get(topic), some) for topic, some in sorted(commits.items())]
    # Version 2 of the format has no references, which would make equal values differ.
    return hashlib.blake2b(marshal.dumps(all_rows, 2), digest_size=16).digest()


_CUT: Final = "?"
_HEAD: Final = TypeAdapter(tuple[Int64, Int64, str, dict[str, str]])
_NOTHING: Final = Position(-1, None)


def _doubted(first: GroupMemory, last: GroupMemory, live: Positions) -> Positions:
    """Return what only the earlier memory refused, or was doubted before; of two on a partition the higher."""
    found: dict[Place, Position] = {}
    for some in (first.doubted, last.doubted, first.refused):
        for place, one in some.where(~some.within(live)).items():
            found[place] = max(one, found.get(place, _NOTHING), key=lambda other: (other.offset, other.own or -1))
    return Positions.at(found)


def _is_later(one: Position, other: Position | None) -> bool:
    """Return whether a commit that is gone was seen later than another, or as late and lower."""
    return other is None or (one.seen_ms, -one.offset) > (other.seen_ms, -other.offset)
