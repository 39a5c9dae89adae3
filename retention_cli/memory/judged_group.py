"""Judge what was committed by a group that is kept as columns (F5). Pure.

It comes to what :class:`~retention_cli.memory.group.GroupMemory` comes to, commit by commit
(tests/unit/memory/test_seen_group.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import eq, le
from typing import Any, Final, NamedTuple

from retention_cli.memory.commit import Position, verdict
from retention_cli.memory.group_columns import COUNTED, NO_EPOCH, OPEN, REFUSED, Columns, Document, live_of, nothing
from retention_cli.memory.interface import NO_LOG, LogNow, LogOf, PlainLogs
from retention_cli.memory.seen_group import SeenGroup


class JudgedGroup(NamedTuple):
    """A group's document, and what its row says of it (:class:`~retention_cli.memory.ledger_groups.Head`)."""

    seen_ms: int
    digest: bytes
    plain: bool
    open: frozenset[str]
    document: bytes


class Logs:
    """Looks logs up once for all groups."""

    def __init__(self, log_of: LogOf, plain: PlainLogs = lambda _topic: ((), ())) -> None:
        self._log_of = log_of
        self._plain_of = plain
        self._found: dict[tuple[str, int], LogNow | None] = {}
        self._plain: dict[str, tuple[list[int], list[int]]] = {}

    def plain(self, topic: str, count: int) -> tuple[list[int], list[int]]:
        """Return a topic's plain logs (:data:`retention_cli.memory.interface.PlainLogs`), so many at least."""
        found = self._plain.get(topic)
        if found is None:
            ends, proves = self._plain_of(topic)
            found = self._plain[topic] = [*ends], [*proves]
        for partition in range(len(found[0]), count):
            log = self._log_of((topic, partition))
            found[0].append(log.high_watermark if log is not None and is_plain(log) else NO_LOG)
            found[1].append(0 if log is None else log.proves)
        return found

    def verdict(self, place: tuple[str, int], position: Position) -> tuple[bool | None, int]:
        """Return whether a commit counts, None if that can't be told, and what its log proves."""
        if place not in self._found:
            self._found[place] = self._log_of(place)
        log = self._found[place]
        return (None, 0) if log is None else (verdict(position, log), log.proves)


def is_plain(log: LogNow) -> bool:
    """Return whether a commit on a log counts wherever it is not beyond H."""
    return log.cut is None and not log.unknown_epochs and not log.unasked_epochs


def judged(one: SeenGroup, logs: Logs) -> JudgedGroup:
    """Judge a group's open commits by what was read of their logs since (F5), and return its document."""
    live, state, _ = found = _by_columns(one, logs) or _by_rows(one, logs)
    document = Document(one.seen_ms, one.stood_ms, one.digest, one.ids, *found).as_bytes()
    left = frozenset(topic for topic, some in live.slices() if OPEN in state[some]) if OPEN in state else frozenset()
    return JudgedGroup(one.seen_ms, one.digest, REFUSED not in state, left, document)


_SPARSE: Final = 100
_Live = tuple[Columns, bytes, Columns]
"""A document's ``live``, ``state`` and ``beside``."""


def _by_columns(one: SeenGroup, logs: Logs) -> _Live | None:
    """Judge commits that are where they were; None if one that counted is kept beside another one."""
    now, was = one.now, one.before.live
    known = bool(was.offsets)
    if one.before.beside.offsets or (known and was[:2] != now[:2]):
        return None
    if (read := _ends(now, logs)) is None:
        return None
    ends, proven = read
    if all(map(le, now.offsets, ends)) and not any(one.before.state):  # as nearly always
        if known and any(map(eq, now.offsets, was.offsets)):  # what stands was proven by another log's end
            both = zip(now.offsets, was.offsets, now.epochs, was.epochs, proven, was.proven, strict=True)
            stays = [old if offset == then and own == its else new for offset, then, own, its, new, old in both]
            proven = array("i", stays)
        return _kept(now, proven), bytes(len(ends)), nothing()
    state = bytearray(len(ends))
    place = now.places() if NO_LOG in ends else ()
    for at, (offset, own, end) in enumerate(zip(now.offsets, now.epochs, ends, strict=True)):
        before = one.before.state[at] if known else OPEN
        if before == COUNTED and offset == was.offsets[at] and own == was.epochs[at]:
            proven[at] = was.proven[at]  # it counted before, and stands there still
            continue
        says: bool | None = offset <= end
        if before == REFUSED:
            says = False
        elif end == NO_LOG:
            says, proven[at] = logs.verdict(place[at], Position(offset, None if own == NO_EPOCH else own))
        if says:
            continue
        if before == COUNTED:
            return None
        state[at], proven[at] = OPEN if says is None else REFUSED, NO_EPOCH
    return _kept(now, proven), bytes(state), nothing()


def _kept(now: Columns, proven: array[int]) -> Columns:
    """Return the commits with what is proven of them. A topic without any is left out, as where rows are judged."""
    return now._replace(counts={topic: count for topic, count in now.counts.items() if count}, proven=proven)


def _ends(now: Columns, logs: Logs) -> tuple[array[int], array[int]] | None:
    """Return where the commits' logs end, :data:`NO_LOG` of those that are not plain, and what they prove."""
    ends: array[int] = array("q")
    proven: array[int] = array("i")
    for topic, some in now.slices():
        numbers = now.partitions[some]
        if not numbers:
            continue
        if numbers[0] < 0:
            return None
        # A commit may name any partition: one of two thousand million is looked up by itself.
        theirs, proves = logs.plain(topic, min(numbers[-1] + 1, 2 * len(numbers) + _SPARSE))
        if numbers[-1] >= len(theirs):
            ends.extend([theirs[one] if one < len(theirs) else NO_LOG for one in numbers])
            proven.extend([proves[one] if one < len(theirs) else NO_EPOCH for one in numbers])
        elif len(numbers) == len(theirs):  # ascending, none twice, none beyond: these are all partitions
            ends.extend(theirs)
            proven.extend(proves)
        else:
            ends.extend(map(theirs.__getitem__, numbers))
            proven.extend(map(proves.__getitem__, numbers))
    return ends, proven


def _by_rows(one: SeenGroup, logs: Logs) -> _Live:
    found: tuple[dict[str, _Rows], dict[str, _Rows], dict[str, _Rows]] = ({}, {}, {})
    was, waited, refused = one.before.rows()
    for topic, rows in one.now.rows().items():
        known = (was.get(topic, ()), waited.get(topic, ()), refused.get(topic, ()))
        judgement = _judged(rows, *known, logs, topic)
        for section, some in zip(found, judgement, strict=True):
            if some:
                section[topic] = some
    if (live := live_of(*found)) is None:
        raise ValueError("what became of a group's commits can't be stored")  # they were columns before
    return live


_Rows = list[Sequence[Any]]


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
            says, proven = logs.verdict((topic, partition), Position(offset, epoch))
            if says:
                counts.append((partition, offset, epoch, proven))
                continue
            (left if says is None else beyond).append((partition, offset, epoch))
        if before is not None:
            counts.append(before)
    return counts, left, beyond
