"""Committed offsets of many partitions as columns of numbers, and whether they count (F5). Pure.

A live cluster has millions of commits, and all of them have moved since the last pass. So they are kept, judged and
stored as columns: some 30 bytes and a microsecond for each.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, count, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pydantic import Field
from pydantic_core import from_json

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
else:

    class _Numpy:
        """Imports numpy on first use: it takes a sixth of a plan's start, and is not needed without new commits."""

        def __getattr__(self, name: str) -> Any:
            import numpy  # noqa: ICN001  (np is what it replaces)

            globals()["np"] = numpy
            return getattr(numpy, name)

    np = _Numpy()

Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
"""A leader epoch: a larger one can't be asked about."""
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A number that the ledger's columns can hold, and brokers be asked about."""

Commits = Mapping[str, Sequence[tuple[int, int, int | None]]]
"""A group's commits by topic: partition, committed offset, and the commit's leader epoch, None if it has none."""
Rows = dict[str, list[tuple[int, int, int | None]]]
"""Remembered commits, too. The epoch is the one under which a commit was last seen to count: its own, else the
leader's. None: it was never seen to count, and whether it does is unknown."""
Last = tuple[str, int, Rows]
"""A group that is gone: its name, when it was last seen (Unix ms), and its last commits."""
Place = tuple[str, int]
"""A topic's name, and a partition."""
_AT_MOST_BYTES: Final = 1 << 30
NONE: Final = -1
"""No leader epoch."""
_NO_CUT: Final = 2**63 - 1
_KEY, _OFFSET, _OWN, _PROVEN, _SEEN = range(5)
_STORED: Final = ("<i4", "<i4", "<i8", "<i4", "<i4", "<i8")
"""The columns of :func:`packed`: topic, partition, offset, own, proven, seen."""
_TOPICS: Final[dict[int, str]] = {}
_NUMBERS: Final[dict[str, int]] = {}
_NEXT: Final = count()


class Position(NamedTuple):
    """A committed offset, its own leader epoch (None: it has none), and the one under which it was seen to count.

    ``proven`` is None if it was never seen to count. ``seen_ms`` is when a commit that is gone was last seen (Unix ms).
    """

    offset: int
    own: int | None
    proven: int | None = None
    seen_ms: int = 0

    @property
    def epoch(self) -> int | None:
        """The leader epoch to ask about next time: its own, else ``proven``; None if it never counted."""
        return None if self.proven is None else self.proven if self.own is None else self.own


class Positions(Mapping[Place, Position]):
    """Positions by topic and partition. The columns of a value never change."""

    __slots__ = ("columns",)

    def __init__(self, columns: Numbers | None = None) -> None:
        if columns is not None:
            self.columns = columns
            """Keys (ascending, no two alike), offsets, own leader epochs, proven ones, and when they were last seen."""

    def __getattr__(self, name: str) -> Any:
        """Return the columns of no positions: they are made when they are first read, as numpy is imported for them."""
        if name != "columns":
            raise AttributeError(name)
        self.columns = np.zeros((5, 0), np.int64)
        return self.columns

    @classmethod
    def of(cls, by_topic: Mapping[str, Sequence[Sequence[Any]]]) -> Positions:
        """Return rows by topic: partition, offset, leader epoch or None. Of two on a partition the last one counts."""
        rows = [row for some in by_topic.values() for row in some]
        topics = np.repeat(_numbers(by_topic), [len(some) for some in by_topic.values()])
        columns = np.zeros((5, len(rows)), np.int64)
        columns[_KEY] = _keys(topics, np.fromiter((row[0] for row in rows), np.int64, len(rows)))
        columns[_OFFSET] = np.fromiter((row[1] for row in rows), np.int64, len(rows))
        columns[_OWN] = np.fromiter((NONE if row[2] is None else row[2] for row in rows), np.int64, len(rows))
        columns[_PROVEN] = NONE
        return cls(_sorted(columns))

    @classmethod
    def at(cls, by_place: Mapping[Place, Position]) -> Positions:
        """Return positions by place."""
        return cls.of_rows(
            (_key(place), offset, NONE if own is None else own, NONE if proven is None else proven, seen_ms)
            for place, (offset, own, proven, seen_ms) in by_place.items()
        )

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, int, int, int, int]]) -> Positions:
        """Return positions from rows of :attr:`columns`, in any order."""
        return cls(_sorted(np.array([*rows], np.int64).reshape(-1, 5).T.copy()))

    # -- as a mapping ------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def __iter__(self) -> Iterator[Place]:
        keys = self.columns[_KEY]
        return zip(map(_TOPICS.__getitem__, (keys >> 32).tolist()), keys.astype(np.int32).tolist(), strict=True)

    def __getitem__(self, place: Place) -> Position:
        keys = self.columns[_KEY]
        n = int(np.searchsorted(keys, key := _key(place)))
        if n == len(keys) or keys[n] != key:
            raise KeyError(place)
        offset, own, proven, seen_ms = self.columns[1:, n].tolist()
        return Position(offset, None if own == NONE else own, None if proven == NONE else proven, seen_ms)

    def items(self) -> Any:
        """Return the places with their positions."""
        offsets, own, proven, seen = (column.tolist() for column in self.columns[1:])
        epochs = ([None if one == NONE else one for one in column] for column in (own, proven))
        return list(zip(self, map(Position, offsets, *epochs, seen), strict=True))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Positions):
            return np.array_equal(self.columns, other.columns)
        return isinstance(other, Mapping) and dict(self.items()) == dict(other)

    def __hash__(self) -> int:
        return hash(self.columns.tobytes())

    def topics(self) -> set[str]:
        """Return their topics."""
        return {_TOPICS[one] for one in np.unique(self.columns[_KEY] >> 32).tolist()}

    def commits(self) -> dict[Place, tuple[int, int | None]]:
        """Return the offset and the leader epoch of each."""
        rows = zip(self, self.columns[_OFFSET].tolist(), self.columns[_OWN].tolist(), strict=True)
        return {place: (offset, None if own == NONE else own) for place, offset, own in rows}

    # -- as a set of places ------------------------------------------------------------

    def where(self, mask: Mask) -> Positions:
        """Return those for which ``mask`` is true."""
        return self if mask.all() else Positions(self.columns[:, mask])

    def within(self, other: Positions) -> Mask:
        """Return, for each, whether the other has a position at its place."""
        return self._in(other)[1]

    def same_in(self, other: Positions, *, any_epoch: bool = False) -> Mask:
        """Return, for each, whether the other has the same commit at its place; with ``any_epoch`` the same offset."""
        at, found = self._in(other)
        for column in (_OFFSET, _OWN)[: 1 if any_epoch else 2] if len(other) else ():
            found &= other.columns[column][at] == self.columns[column]
        return found

    def unchanged_in(self, other: Positions) -> Mask:
        """Return, for each, whether the other has it unchanged: either may have been read without its epoch (F5)."""
        at, found = self._in(other)
        if len(other):
            own, theirs = self.columns[_OWN], other.columns[_OWN][at]
            found &= other.columns[_OFFSET][at] == self.columns[_OFFSET]
            found &= (own == theirs) | (own == NONE) | (theirs == NONE)
        return found

    def lower_in(self, other: Positions) -> Mask:
        """Return, for each, whether the other has a higher offset at its place."""
        at, found = self._in(other)
        return found & (other.columns[_OFFSET][at] > self.columns[_OFFSET]) if len(other) else found

    def of_topics(self, topics: Collection[str]) -> Mask:
        """Return, for each, whether it is on one of these topics."""
        return np.isin(self.columns[_KEY] >> 32, _numbers(topics))

    def joined(self, other: Positions) -> Positions:
        """Return both; where both have a position, the other's."""
        if not len(self) or not len(other):
            return self if not len(other) else other
        mine = self.where(~self.within(other)).columns
        return other if not mine.shape[1] else Positions(_sorted(np.concatenate((mine, other.columns), axis=1)))

    def with_proven(self, proven: Numbers | int) -> Positions:
        """Return them as proven under these leader epochs; :data:`NONE`: not seen to count."""
        return self._with(_PROVEN, proven)

    def with_seen(self, seen_ms: int) -> Positions:
        """Return them as last seen at that time (Unix ms)."""
        return self._with(_SEEN, seen_ms)

    def proven_lower(self, other: Positions) -> Positions:
        """Return them with the lower leader epoch where both are proven and the other has the same commit (F5)."""
        at, _ = self._in(other)
        same = self.same_in(other)
        if not same.any():
            return self
        mine, theirs = self.columns[_PROVEN], other.columns[_PROVEN][at]
        return self.with_proven(np.where(same & (theirs != NONE) & (theirs < mine), theirs, mine))

    @property
    def is_proven(self) -> Mask:
        """Whether each was seen to count."""
        proven: Mask = self.columns[_PROVEN] != NONE
        return proven

    def _in(self, other: Positions) -> tuple[Numbers, Mask]:
        """Return where each one's place is in the other, and whether the other has it."""
        mine, theirs = self.columns[_KEY], other.columns[_KEY]
        if not len(theirs):
            return np.zeros(len(mine), np.int64), np.zeros(len(mine), np.bool_)
        if len(mine) == len(theirs) and np.array_equal(mine, theirs):
            return np.arange(len(mine)), np.ones(len(mine), np.bool_)
        return _found(mine, theirs)

    def _with(self, column: int, values: Numbers | int) -> Positions:
        columns = self.columns.copy()
        columns[column] = values
        return Positions(columns)


NOTHING: Final = Positions()


class LogNow(NamedTuple):
    """What a pass knows of a partition's log, to judge the commits on it (F5).

    ``unknown_epochs`` are leader epochs of commits that the leader does not know, ``unasked_epochs`` those that it
    could not be asked about. ``cut`` is where the log was cut since the last pass, None if it was not. A commit that
    was seen to count under a leader epoch above ``cut_until`` was seen after the cut; None if that is known of none.
    ``last_epoch`` is the epoch of the log's last record, None if unknown. Where ``in_doubt``, kretain could not ask
    whether the log is the one it remembers: no commit counts, and those beyond H are still refused.
    ``ended`` has leader epochs of commits, and where each ended.
    """

    high_watermark: int
    leader_epoch: int
    unknown_epochs: frozenset[int] = frozenset()
    unasked_epochs: frozenset[int] = frozenset()
    cut: int | None = None
    last_epoch: int | None = None
    cut_until: int | None = None
    in_doubt: bool = False
    ended: tuple[tuple[int, int], ...] = ()

    @property
    def proves(self) -> int:
        """The leader epoch whose end shows later whether the log below H is still the same."""
        return self.leader_epoch if self.last_epoch is None else self.last_epoch


class Logs:
    """What a pass has read of logs, to judge the commits on them at once."""

    def __init__(self, logs: Iterable[tuple[Place, LogNow]]) -> None:
        rows = []  # of each log H, what proves it, and where it was cut
        self.special: dict[Place, LogNow] = {}
        """Those that were cut, or that do not know all leader epochs of the commits on them."""
        for place, one in logs:
            rows.append((_key(place), one.high_watermark, NONE, one.proves, _NO_CUT if one.cut is None else one.cut))
            if one.cut is not None or one.unknown_epochs or one.unasked_epochs or one.in_doubt or one.ended:
                self.special[place] = one
        special = [(_key(place), one) for place, one in self.special.items()]
        self._doubtful = {key: one for key, one in special if one.unknown_epochs or one.unasked_epochs}
        self._in_doubt = [key for key, one in special if one.in_doubt]
        self._ended = [(key, epoch, end) for key, one in special for epoch, end in one.ended]
        self._ends = Positions.of_rows(rows)

    def topics(self) -> set[str]:
        """Return their topics."""
        return self._ends.topics()

    def end_of(self, place: Place) -> Position:
        """Return the position where a log was cut; 0 if no cut is known: it may have ended anywhere meanwhile."""
        end, cut = self._ends[place], None if (log := self.special.get(place)) is None else log.cut
        return Position(0 if cut is None else min(end.offset, cut), None, end.proven)

    def sent(self) -> bytes:
        """Return all but the special logs as bytes, for :meth:`take`."""
        special = [_key(place) for place in self.special]
        return packed(None, (self._ends.where(~np.isin(self._ends.columns[_KEY], special)),))

    def take(self, sent: bytes) -> None:
        """Add what another process has sent of other logs.

        Raises:
            ValueError: it is not what that sends.
        """
        _, (ends,) = unpacked(sent)
        self._ends = self._ends.joined(ends)

    def judged(self, commits: Positions) -> tuple[Positions, Positions, Positions]:
        """Return the commits that count, those that are refused, and those where that is unknown (F5).

        A commit beyond H is of another log. One with a leader epoch counts if the leader knows that epoch and the
        offset is not beyond its end; one without counts unless it lies beyond where the log was cut.
        """
        keys, high, _, proves, cut = self._ends.columns
        if not len(keys):
            return NOTHING, NOTHING, commits
        mine, offset, own = commits.columns[:3]
        at, known = _found(mine, keys)
        foreign = np.zeros(len(mine), np.bool_)
        for n in np.flatnonzero((own != NONE) & np.isin(mine, [*self._doubtful])).tolist():
            log = self._doubtful[int(mine[n])]
            known[n] &= int(own[n]) not in log.unasked_epochs
            foreign[n] = int(own[n]) in log.unknown_epochs
        known &= ~self._beyond(at, own, offset)
        if self._in_doubt:
            known &= (offset > high[at]) | ~np.isin(mine, self._in_doubt)
        refused = (offset > high[at]) | np.where(own == NONE, offset > cut[at], foreign)
        counted = commits.with_proven(proves[at]).where(known & ~refused)
        return counted, commits.where(known & refused), commits.where(~known)

    def _beyond(self, at: Numbers, own: Numbers, offset: Numbers) -> Mask:
        """Return, for each commit on the log at ``at``, whether it is beyond the end of its own leader epoch."""
        if not self._ended:
            return np.zeros(len(at), np.bool_)
        key, epoch, end = np.array(self._ended, np.int64).T
        names = np.searchsorted(self._ends.columns[_KEY], key) << 32 | epoch
        order = np.argsort(names)
        n, found = _found(at << 32 | own & 0xFFFFFFFF, names[order])
        beyond: Mask = found & (offset > end[order][n])
        return beyond


LogsOf = Callable[[], Logs]
"""Returns what this pass has read of logs."""


def packed(head: Any, sections: Sequence[Positions]) -> bytes:
    """Return sections of positions as bytes, with a head in JSON's own types."""
    columns = np.concatenate([one.columns for one in sections], axis=1)
    numbers = np.unique(columns[_KEY] >> 32)
    names = [_TOPICS[one] for one in numbers.tolist()]
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    topics = rank[np.searchsorted(numbers, columns[_KEY] >> 32)]
    partitions = columns[_KEY].astype(np.int32)
    section = np.repeat(np.arange(len(sections)), [len(one) for one in sections])
    by_name = np.lexsort((partitions, topics, section))
    about = json.dumps([head, [names[n] for n in order], [len(one) for one in sections]], ensure_ascii=False).encode()
    stored = (topics, partitions, *columns[1:])
    rows = b"".join(one[by_name].astype(kind).tobytes() for one, kind in zip(stored, _STORED, strict=True))
    return zlib.compress(len(about).to_bytes(4, "little") + about + rows, 1)


def unpacked(raw: bytes) -> tuple[Any, list[Positions]]:
    """Return what :func:`packed` wrote.

    Raises:
        ValueError: it is not what that writes.
    """
    try:
        stream = zlib.decompressobj()
        found = _unpacked(stream.decompress(raw, _AT_MOST_BYTES))
    except (zlib.error, ValueError, TypeError, IndexError, OverflowError):
        found = None
    if found is None or not stream.eof or stream.unused_data:
        raise ValueError("it is damaged")
    return found


def _unpacked(content: bytes) -> tuple[Any, list[Positions]] | None:
    end = 4 + int.from_bytes(content[:4], "little")
    head, names, counts = from_json(content[4:end])  # refuses half a character, which could not be stored again
    if {*map(type, names)} - {str} or len({*names}) < len(names) or {*map(type, counts)} - {int}:
        return None
    columns = []
    for kind in _STORED:
        column = np.frombuffer(content, kind, sum(counts), end)
        end += column.nbytes
        columns.append(column.astype(np.int64))
    topics, partitions, _offsets, own, proven, _seen = columns
    negative = min(counts, default=0) < 0 or (topics < 0).any() or (own < NONE).any() or (proven < NONE).any()
    if end < len(content) or negative:
        return None
    rows = np.stack((_keys(_numbers(names)[topics] if len(topics) else topics, partitions), *columns[2:]))
    sections = [Positions(_sorted(rows[:, a:b])) for a, b in pairwise(accumulate(counts, initial=0))]
    return (head, sections) if [len(one) for one in sections] == counts else None  # else it has a partition twice


def _sorted(columns: Numbers) -> Numbers:
    """Return rows in the order of their keys; of two with one key, the last."""
    keys = columns[_KEY]
    if (keys[1:] > keys[:-1]).all():
        return columns
    columns = columns[:, np.argsort(keys, kind="stable")]
    keys = columns[_KEY]
    last = np.append(keys[1:] != keys[:-1], True)
    return columns if last.all() else columns[:, last]


def _found(mine: Numbers, theirs: Numbers) -> tuple[Numbers, Mask]:
    """Return where each key is in others, which are sorted and not empty, and whether they have it."""
    at = np.minimum(np.searchsorted(theirs, mine), len(theirs) - 1)
    return at, theirs[at] == mine


def _key(place: Place) -> int:
    return int(_number(place[0]) << 32 | place[1] & 0xFFFFFFFF)


def _keys(topics: Numbers, partitions: Numbers) -> Numbers:
    return topics << 32 | partitions & 0xFFFFFFFF


def _numbers(topics: Iterable[str]) -> Numbers:
    return np.fromiter(map(_number, topics), np.int64)


def _number(topic: str) -> int:
    """Return the number by which this process knows a topic."""
    if (found := _NUMBERS.get(topic)) is None:
        _TOPICS[number := next(_NEXT)] = topic  # first, as another thread may look for the name
        found = _NUMBERS.setdefault(topic, number)
    return found
