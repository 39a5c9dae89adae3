"""A group's commits as columns of numbers: made, compared and stored at once, in some 20 bytes a commit. Pure.

Groups of a live cluster have moved since the last look, all of them. As JSON their commits took longer to write and to
read again than all else that a plan does with them.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

NO_EPOCH: Final = -(2**31)
"""Stands in columns for None: no leader epoch."""

_MARK: Final = b"\x03"
"""How a document of columns begins. One of JSON is compressed alone, and begins with zlib's own mark."""
_HEAD: Final = struct.Struct("<I")
_FOUR, _EIGHT = "i", "q"
_NUMBER_OR_NONE: Final = frozenset({int, type(None)})
_BROKEN: Final = (
    *(zlib.error, struct.error, RecursionError, LookupError),
    *(TypeError, ValueError, AttributeError, OverflowError),
)

COUNTED, OPEN, REFUSED = 0, 1, 2
"""What became of a commit, as in :class:`~retention_cli.memory.group.GroupMemory`."""

_DAMAGED: Final = "a group's memory can't be read: it is damaged"

Row = Sequence[Any]
"""A partition, an offset, a leader epoch or None, and where it counts the epoch under which that was seen, or None."""
ByTopic = Mapping[str, Sequence[Row]]


class Columns(NamedTuple):
    """Commits, topic after topic: ``counts`` are the rows of each topic.

    ``partitions`` ascend within a topic, and none is there twice. ``epochs`` are the commits' own leader epochs,
    ``proven`` those under which they were seen to count (empty for commits of which that is not said), both
    :data:`NO_EPOCH` for none.
    """

    counts: Mapping[str, int]
    partitions: array[int]
    offsets: array[int]
    epochs: array[int]
    proven: array[int]

    def slices(self) -> Iterator[tuple[str, slice]]:
        """Yield each topic with its rows."""
        ends = pairwise(accumulate(self.counts.values(), initial=0))
        return ((topic, slice(*some)) for topic, some in zip(self.counts, ends, strict=True))

    @property
    def are_in_order(self) -> bool:
        """Whether partitions ascend within a topic, and none is there twice: of columns that somebody else has made."""
        parts = (self.partitions[some].tolist() for _, some in self.slices())
        return all(numbers == sorted(set(numbers)) for numbers in parts)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows by topic; a row ends with what was proven, where that is said."""
        columns: list[Sequence[Any]] = [self.partitions, self.offsets, with_none(self.epochs)]
        if self.proven:
            columns.append(with_none(self.proven))
        rows = list(zip(*columns, strict=True))
        return {topic: rows[some] for topic, some in self.slices()}

    def places(self) -> list[tuple[str, int]]:
        """Return the topics and partitions, in order."""
        return [(topic, number) for topic, some in self.slices() for number in self.partitions[some]]


def nothing() -> Columns:
    """Return columns without a row."""
    return Columns({}, array(_FOUR), array(_EIGHT), array(_FOUR), array(_FOUR))


def with_none(epochs: array[int]) -> Sequence[int | None]:
    """Return leader epochs with None for those that are none."""
    return [None if one == NO_EPOCH else one for one in epochs] if NO_EPOCH in epochs else epochs


def columns_of(by_topic: ByTopic, *, proven: bool = False) -> Columns | None:
    """Return rows as columns, with ``proven`` also their last ones.

    None is returned if they don't fit: a partition is named twice, or a number is none of its size.
    """
    found = _in_order(by_topic)
    return None if found is None else _columns(*found, proven=proven)


def _in_order(by_topic: ByTopic) -> tuple[dict[str, int], list[Row]] | None:
    rows: list[Row] = []
    counts: dict[str, int] = {}
    for topic in sorted(by_topic):
        some = by_topic[topic]
        numbers = [row[0] for row in some]
        if len(set(numbers)) < len(numbers):
            return None
        rows += some if numbers == sorted(numbers) else sorted(some, key=itemgetter(0))
        counts[topic] = len(numbers)
    return counts, rows


def _columns(counts: Mapping[str, int], rows: Sequence[Row], *, proven: bool) -> Columns | None:
    try:
        return Columns(
            counts,
            array(_FOUR, [row[0] for row in rows]),
            array(_EIGHT, [row[1] for row in rows]),
            _epochs([row[2] for row in rows]),
            _epochs([row[3] for row in rows] if proven else []),
        )
    except (OverflowError, TypeError):
        return None


def _epochs(epochs: list[int | None]) -> array[int]:
    if NO_EPOCH in epochs:
        raise OverflowError
    known: list[Any] = [NO_EPOCH if one is None else one for one in epochs] if None in epochs else epochs
    return array(_FOUR, known)


def are_numbers(some: ByTopic, width: int) -> bool:
    """Return whether all of JSON's rows are numbers, in so many columns, and none of the first two is null."""
    rows = list(chain.from_iterable(some.values()))
    return (
        {width}.issuperset(map(len, rows))
        and _NUMBER_OR_NONE.issuperset(map(type, chain.from_iterable(rows)))
        and None not in map(itemgetter(0), rows)
        and None not in map(itemgetter(1), rows)
    )


def packed(head: Any, sections: Sequence[Columns], state: bytes = b"") -> bytes:
    """Return columns as bytes, with what else is to be said of them, in JSON's own types, and a byte for some rows."""
    counts = [dict(one.counts) for one in sections]
    about = json.dumps([head, counts], separators=(",", ":"), ensure_ascii=False, check_circular=False).encode()
    columns = [_little(column).tobytes() for one in sections for column in one[1:]]
    return zlib.compress(b"".join([_HEAD.pack(len(about)), about, *columns, state]), 1)


def unpacked(raw: bytes, sections: int, *, proven: bool) -> tuple[Any, list[Columns], bytes]:
    """Return what :func:`packed` wrote: the head, so many sections, and the bytes after them.

    Raises:
        ValueError: it is not what that writes.
    """
    try:
        content = zlib.decompress(raw)
        start = _HEAD.size + _HEAD.unpack_from(content)[0]
        head, all_counts = json.loads(content[_HEAD.size : start])
        if len(all_counts) != sections:
            raise ValueError("it has other sections")
        found = []
        for counts in all_counts:
            if any(type(one) is not int or one < 0 for one in counts.values()) or [*counts] != sorted(counts):
                raise ValueError("a number of rows is none, or topics are out of order")
            size, columns = sum(counts.values()), []
            for kind, count in ((_FOUR, size), (_EIGHT, size), (_FOUR, size), (_FOUR, size if proven else 0)):
                column = array(kind)
                end = start + count * column.itemsize
                if end > len(content):
                    raise ValueError("rows are missing")
                column.frombytes(content[start:end])
                columns.append(_little(column))
                start = end
            found.append(Columns(counts, *columns))
    except _BROKEN:
        raise ValueError("columns can't be read: they are damaged") from None
    return head, found, content[start:]


def _little(column: array[int]) -> array[int]:
    """Return a column in the byte order in which it is stored, or back from that."""
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped


class Document(NamedTuple):
    """A group's document of columns.

    ``live`` are its commits when it was last seen, with what was proven of those that counted; ``state`` is what became
    of each. ``beside`` are those that counted where one that is open or refused has followed.
    """

    seen_ms: int
    stood_ms: int
    digest: bytes
    ids: Mapping[str, str]
    live: Columns
    state: bytes
    beside: Columns

    def as_bytes(self) -> bytes:
        """Return the document as bytes."""
        head = {"seen": self.seen_ms, "stood": self.stood_ms, "digest": self.digest.hex(), "ids": dict(self.ids)}
        return _MARK + packed(head, (self.live, self.beside), self.state)

    def rows(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]], dict[str, list[Row]]]:
        """Return the commits that counted, are open and are refused, by topic. Those that counted have four columns.

        Raises:
            ValueError: one is there twice.
        """
        if not (self.live.are_in_order and self.beside.are_in_order):
            raise ValueError(_DAMAGED)
        found: tuple[dict[str, list[Row]], dict[str, list[Row]], dict[str, list[Row]]] = ({}, {}, {})
        every = self.live.rows()
        for topic, some in self.live.slices():
            for row, state in zip(every[topic], self.state[some], strict=True):
                found[state].setdefault(topic, []).append(row[:3] if state else row)
        for topic, rows in self.beside.rows().items():
            found[COUNTED].setdefault(topic, []).extend(rows)
        return found

    def refused(self) -> dict[tuple[str, int], tuple[int, int | None]]:
        """Return the commits that are refused, by topic and partition."""
        if REFUSED not in self.state:
            return {}
        commits = zip(self.live.offsets, with_none(self.live.epochs), strict=True)
        return dict(compress(zip(self.live.places(), commits, strict=True), are_refused(self.state)))

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON's own types, as :meth:`retention_cli.memory.group.GroupMemory.as_data` does."""
        counted, opened, refused = self.rows()
        about = {"seen": self.seen_ms, "stood": self.stood_ms, "digest": self.digest.hex(), "ids": self.ids}
        return {**about, "counted": counted, "open": opened, "refused": refused, "gone": {}}


def are_refused(state: bytes) -> bytes:
    """Return 1 for each commit that is refused, else 0."""
    return state.translate(_ARE_REFUSED)


_ARE_REFUSED: Final = bytes(state == REFUSED for state in range(256))


def live_of(counted: ByTopic, opened: ByTopic, refused: ByTopic) -> tuple[Columns, bytes, Columns] | None:
    """Return commits as ``live``, ``state`` and ``beside`` of a :class:`Document`, None if they don't fit."""
    live: dict[str, list[Row]] = {}
    beside: dict[str, list[Row]] = {}
    for state, by_topic in ((OPEN, opened), (REFUSED, refused)):
        for topic, rows in by_topic.items():
            live.setdefault(topic, []).extend((*row, None, state) for row in rows)
    for topic, rows in counted.items():
        followed = {row[0] for row in live.get(topic, ())}
        live.setdefault(topic, []).extend((*row, COUNTED) for row in rows if row[0] not in followed)
        if some := [row for row in rows if row[0] in followed]:
            beside[topic] = some
    found, others = _in_order(live), columns_of(beside, proven=True)
    columns = None if found is None else _columns(*found, proven=True)
    if found is None or columns is None or others is None:
        return None
    return columns, bytes([row[4] for row in found[1]]), others


def is_columns(raw: bytes) -> bool:
    """Return whether a group's document is one of columns."""
    return raw[:1] == _MARK


def document_of(raw: bytes) -> Document:
    """Return the document in bytes of :meth:`Document.as_bytes`.

    Raises:
        ValueError: it is damaged.
    """
    head, (live, beside), state = unpacked(raw[len(_MARK) :], 2, proven=True)
    try:
        seen_ms, stood_ms, digest, ids = head["seen"], head["stood"], bytes.fromhex(head["digest"]), head["ids"]
        sound = type(seen_ms) is int and type(stood_ms) is int and all(isinstance(one, str) for one in ids.values())
    except _BROKEN:
        sound = False
    if not sound or len(state) != len(live.offsets) or max(state, default=0) > REFUSED:
        raise ValueError(_DAMAGED)
    if beside.offsets and not set(compress(live.places(), state)).issuperset(beside.places()):
        raise ValueError(_DAMAGED)  # beside none it would be gone without a trace at the next look (F6)
    return Document(seen_ms, stood_ms, digest, ids, live, state, beside)
