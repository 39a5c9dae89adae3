"""A group's commits from reading to judging, as rows instead of an object each. Pure.

Groups of a live cluster have moved since the last look, each of them. :class:`~retention_cli.memory.group.GroupMemory`
has three objects for each commit, which took more time and memory than all else of a plan. What nearly every group
comes to is done here: all of its places are still there, and what was refused is unchanged. For anything else
(a commit that is gone, a recreated topic, an older format) the functions return None, and ``GroupMemory`` does it.
tests/unit/memory/test_seen_group.py checks that both come to the same.
"""

from __future__ import annotations

import json
import marshal
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter, le
from typing import Any, Final, NamedTuple

from retention_cli.memory.commit import Position, verdict
from retention_cli.memory.group import VERSION, GroupMemory
from retention_cli.memory.group_rows import digest_of_packed, flat
from retention_cli.memory.interface import Commits, LogNow, LogOf, PlainLogs, RecalledGroup

_ByTopic = Mapping[str, Sequence[Sequence[Any]]]
_NUMBER_OR_NONE: Final = frozenset({int, type(None)})


class Stored(NamedTuple):
    """What a stored document says, as far as it is needed here. Rows by topic, each begins with its partition."""

    stood_ms: int
    ids: Mapping[str, str]
    counted: _ByTopic
    open: _ByTopic
    refused: _ByTopic


_NEW: Final = Stored(0, {}, {}, {}, {})


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """A group that was read and is not judged yet. ``packed`` are its commits, ``before`` is what was stored."""

    seen_ms: int
    stood_ms: int
    digest: bytes
    packed: bytes
    before: bytes

    def commits(self) -> tuple[Commits, dict[str, str]]:
        """Return the commits, and the ids of those topics that have one."""
        whole = marshal.loads(self.packed)  # noqa: S302  (our own bytes, of this process)
        return {name: rows for name, _id, rows in whole}, {name: one for name, one, _rows in whole if one is not None}


class JudgedGroup(NamedTuple):
    """A group's document, and what its row says of it (:class:`~retention_cli.memory.ledger_groups.Head`)."""

    seen_ms: int
    digest: bytes
    plain: bool
    open: frozenset[str]
    document: bytes


def _read(raw: bytes) -> Stored | None:
    try:
        data = json.loads(zlib.decompress(raw))
        if data.get("format") != VERSION or data["gone"] or data.get("doubted"):
            return None
        return Stored(data["stood"], data["ids"], data["counted"], data["open"], data["refused"])
    except (zlib.error, UnicodeDecodeError, RecursionError, KeyError, TypeError, AttributeError):
        raise ValueError("a group's memory can't be read: it is damaged") from None


def stored(raw: bytes) -> Stored | None:
    """Return what a document says, None if it has what only :class:`GroupMemory` knows how to use.

    Raises:
        ValueError: it is no document.
    """
    found = _read(raw)
    if found is None or not (_are_rows(found.counted, 4) and _are_rows(found.open, 3) and _are_rows(found.refused, 3)):
        return None
    return found if type(found.stood_ms) is int and all(isinstance(text, str) for text in found.ids.values()) else None


def _are_rows(some: _ByTopic, width: int) -> bool:
    """Return whether all rows are numbers, in so many columns, and none of the first two is null."""
    rows = list(chain.from_iterable(some.values()))
    return (
        {width}.issuperset(map(len, rows))
        and _NUMBER_OR_NONE.issuperset(map(type, chain.from_iterable(rows)))
        and None not in map(itemgetter(0), rows)
        and None not in map(itemgetter(1), rows)
    )


def recalled_of(raw: bytes) -> RecalledGroup | None:
    """Return the refused commits of a group that has not changed, None if ``GroupMemory`` must be asked.

    Nothing else of the document is looked at: its bytes are those that were written.

    Raises:
        ValueError: it is no document.
    """
    found = _read(raw)
    return recalled(found) if found is not None and _are_rows(found.refused, 3) else None


def recalled(one: Stored) -> RecalledGroup:
    """Return the refused commits: nothing of the group is gone."""
    return RecalledGroup({}, dict(_places(one.refused)))


def _places(refused: _ByTopic) -> Iterator[tuple[tuple[str, int], tuple[int, int | None]]]:
    for topic, rows in refused.items():
        for partition, offset, epoch in rows:
            yield (topic, partition), (offset, epoch)


def seen(
    before: Stored | None, seen_ms: int, commits: Commits, ids: Mapping[str, str], packed: bytes, now_ms: int
) -> SeenGroup | None:
    """Return a group's current commits beside what is stored of it; None if ``GroupMemory`` must be asked.

    Args:
        before: what is stored, None if it was never seen.
        seen_ms: when it was last seen (Unix ms), 0 if it was not.
        commits: its commits now.
        ids: the topics' current ids.
        packed: those commits, from :func:`~retention_cli.memory.group_rows.packed_of`.
        now_ms: our wall clock (Unix ms).
    """
    known = before or _NEW
    if any(topic in ids and ids[topic] != one for topic, one in known.ids.items()):
        return None  # a recreated topic
    if not all(topic in commits for some in (known.counted, known.open, known.refused) for topic in some):
        return None
    moved = before is None or not seen_ms
    for topic, rows in commits.items():
        if before is None:
            if len(set(map(itemgetter(0), rows))) < len(rows):
                return None
            continue
        now = {row[0]: row[1] for row in rows}
        if len(now) < len(rows):
            return None
        then = {row[0]: row[1] for row in known.counted.get(topic, ())}
        then.update((row[0], row[1]) for row in known.open.get(topic, ()))
        if refused := known.refused.get(topic):
            there = {row[0]: (row[1], row[2]) for row in rows}
            for partition, offset, epoch in refused:
                if there.get(partition) != (offset, epoch):
                    return None
                then.pop(partition, None)
                del now[partition]
        if not then.keys() <= now.keys():
            return None  # a commit is gone
        moved = moved or then != now
    at_ms = max(now_ms, seen_ms + 1)
    old: Any = (seen_ms, *known)
    return SeenGroup(at_ms, at_ms if moved else known.stood_ms, digest_of_packed(packed), packed, marshal.dumps(old, 2))


def expanded(one: SeenGroup) -> GroupMemory:
    """Return the same as a group's memory, to be judged and changed as any other.

    It continues what was stored when the group was read, whatever another process has stored since: both are merged
    when ours is saved.
    """
    seen_ms, stood_ms, ids_then, counted, opened, refused = marshal.loads(one.before)  # noqa: S302  (our own bytes)
    group = GroupMemory(seen_ms=seen_ms, ids=ids_then, stood_ms=stood_ms)
    group.counted = {place: Position(*row) for place, row in flat(counted)}
    group.open = {place: Position(*row) for place, row in flat(opened)}
    group.refused = {place: Position(*row) for place, row in flat(refused)}
    commits, ids = one.commits()
    group.update(commits, ids, one.digest, one.seen_ms)
    return group


class _Log(NamedTuple):
    """A partition's log: ``plain`` if a commit counts where it is not beyond the high watermark."""

    high_watermark: int
    proves: int
    plain: bool
    whole: LogNow


class Logs:
    """Looks logs up once for all groups."""

    def __init__(self, log_of: LogOf, plain: PlainLogs = lambda _topic: ((), ())) -> None:
        self._log_of = log_of
        self._plain_of = plain
        self._found: dict[str, dict[int, _Log | None]] = {}
        self._plain: dict[str, tuple[Sequence[int], Sequence[int]]] = {}

    def plain(self, topic: str) -> tuple[Sequence[int], Sequence[int]]:
        """Return a topic's plain logs, as far as they are known to be plain."""
        if topic not in self._plain:
            self._plain[topic] = self._plain_of(topic)
        return self._plain[topic]

    def of(self, topic: str) -> tuple[dict[int, _Log | None], Callable[[int], _Log | None]]:
        """Return what was found of a topic's logs so far, and a function that finds another one."""
        here = self._found.setdefault(topic, {})

        def find(partition: int) -> _Log | None:
            log = self._log_of((topic, partition))
            here[partition] = None if log is None else _Log(log.high_watermark, log.proves, _is_plain(log), log)
            return here[partition]

        return here, find


def _is_plain(log: LogNow) -> bool:
    return log.cut is None and not log.unknown_epochs and not log.unasked_epochs


def judged(one: SeenGroup, logs: Logs) -> JudgedGroup:
    """Judge a group's open commits by what was read of their logs since (F5), and return its document."""
    _seen_ms, _stood_ms, old_ids, counted, opened, refused = marshal.loads(one.before)  # noqa: S302  (our own bytes, of this process)
    data: dict[str, Any] = {"counted": {}, "open": {}, "refused": {}}
    ids: dict[str, str] = {}
    for topic, topic_id, rows in marshal.loads(one.packed):  # noqa: S302
        if topic_id is not None or topic in old_ids:
            ids[topic] = topic_id if topic_id is not None else old_ids[topic]
        before = (counted.get(topic, ()), opened.get(topic, ()), refused.get(topic, ()))
        counts, left, beyond = _judged(rows, *before, logs, topic)
        for key, found in (("counted", counts), ("open", left), ("refused", beyond)):
            if found:
                data[key][topic] = found
    about = {"format": VERSION, "seen": one.seen_ms, "stood": one.stood_ms, "digest": one.digest.hex(), "ids": ids}
    text = json.dumps({**about, **data, "gone": {}}, separators=(",", ":"), ensure_ascii=False, check_circular=False)
    return JudgedGroup(
        one.seen_ms, one.digest, not data["refused"], frozenset(data["open"]), zlib.compress(text.encode(), 1)
    )


_Rows = list[Sequence[Any]]


def _all_counting(
    rows: Sequence[tuple[int, int, int | None]],
    counted: Sequence[Sequence[Any]],
    ends: Sequence[int],
    proves: Sequence[int],
) -> _Rows | None:
    """Return the rows that count, if these are all and their logs are plain; None if each must be looked at."""
    partitions, offsets, epochs = zip(*rows, strict=True)
    if min(partitions) < 0 or max(partitions) >= len(ends):
        return None
    if not all(map(le, offsets, map(ends.__getitem__, partitions))):
        return None
    if not counted:
        return list(zip(partitions, offsets, epochs, map(proves.__getitem__, partitions), strict=True))
    was = {row[0]: row for row in counted}
    return [
        before
        if (before := was.get(row[0])) is not None and before[1] == row[1] and before[2] == row[2]
        else (*row, proves[row[0]])
        for row in rows
    ]


def _judged(
    rows: Sequence[tuple[int, int, int | None]],
    counted: Sequence[Sequence[Any]],
    opened: Sequence[Sequence[Any]],
    refused: Sequence[Sequence[Any]],
    logs: Logs,
    topic: str,
) -> tuple[_Rows, _Rows, _Rows]:
    """Return a topic's rows that count, those that can't be judged yet, and those that are refused.

    The last commit that counted stays beside one that is open or refused.
    """
    if rows and not opened and not refused and (counting := _all_counting(rows, counted, *logs.plain(topic))):
        return counting, [], []
    here, find = logs.of(topic)
    was = {row[0]: row for row in counted}
    waits = {row[0] for row in opened}
    beyond: _Rows = list(refused)
    known_refused = {row[0] for row in refused}
    counts: _Rows = []
    left: _Rows = []
    for partition, offset, epoch in rows:
        before = was.get(partition)
        if partition in known_refused:
            says: bool | None = None
        elif before is not None and before[1] == offset and before[2] == epoch and partition not in waits:
            counts.append(before)  # it counted before, and stands there still
            continue
        else:
            log = here[partition] if partition in here else find(partition)
            if log is None:
                says = None
            elif log.plain:
                says = offset <= log.high_watermark
            else:
                says = verdict(Position(offset, epoch), log.whole)
            if says and log is not None:
                counts.append((partition, offset, epoch, log.proves))
                continue
            (left if says is None else beyond).append((partition, offset, epoch))
        if before is not None:
            counts.append(before)
    return counts, left, beyond
