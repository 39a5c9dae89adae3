"""A Spark Structured Streaming query's position, from its checkpoint: the last committed batch (F7).

A query that starts again replays the batch after the last that it committed, from that one's offsets on. They are in
``offsets/N``, a line for each source of the query; ``commits/N`` says that batch N is done. Before the first batch is
done, ``sources/I/0`` has where a Kafka source began.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from retention_cli.core.printable import plain, shown
from retention_cli.observe.floors.sources.interface import (
    MAX_OFFSET,
    MAX_PARTITION,
    Consumer,
    Consumers,
    Position,
    Reach,
    SourceError,
)
from retention_cli.observe.floors.sources.stored import Storage, check_age, parse
from retention_cli.policy.settings import FloorSource
from retention_cli.policy.values import TOPIC_NAME

_MAX_BYTES: Final = 16 << 20
_MAX_SOURCES: Final = 10_000
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {"offsets": ("v1",), "commits": ("v1", "v2"), "sources": ("v1",)}
"""Which formats of each log are known. A commit's content does not matter here, only that it is complete."""

_Offsets = dict[str, dict[int, int]]


class _Batch(NamedTuple):
    """The offsets of a batch's Kafka sources by their numbers (None: it has none yet), and when it was written."""

    offsets: dict[int, _Offsets | None]
    written_ms: int | None


def read(source: FloorSource, reach: Reach) -> Consumers:
    """Return the positions of every Kafka source of the query.

    The query reads some partitions without a position (F2): those that a source reads for the first time in the batch
    under way, and those that only one of two sources of a topic has met. Nothing says where that source begins.

    Args:
        source: ``place`` is the checkpoint's folder, a path or a URL.
        reach: for our wall clock.

    Raises:
        SourceError: there is no checkpoint, it is damaged or of a format that is not known, or it is too old.
    """
    checkpoint = Storage(source.place)
    done, committed_ms = _last_batch(checkpoint, "commits"), None
    if done is not None:
        committed_ms = _text(checkpoint, "commits", f"commits/{done}")[1]
    newest = max(_last_batch(checkpoint, "offsets") or 0, done or 0)
    begun = sorted(int(name) for name in checkpoint.names("sources") if _NUMBER.fullmatch(name))
    under_way = _batch(checkpoint, newest, begun)
    last: Mapping[int, _Offsets | None] = dict.fromkeys(begun)
    if done is not None:
        batch = under_way if done == newest else _batch(checkpoint, done, begun)
        _check_order(checkpoint, done, batch.written_ms, committed_ms)
        last = batch.offsets
    stands = {number: _beginning(checkpoint, number) if one is None else one for number, one in last.items()}
    positions, torn = _furthest_behind(list(stands.values()), _first_read(under_way.offsets, stands))
    met = {topic for one in (*under_way.offsets.values(), *stands.values()) for topic in one or ()}
    reads = met.difference(positions).union(topic for topic, _partition in torn)
    if not met:
        raise SourceError(f"{checkpoint.shown}: no source of this query reads Kafka, or none has begun yet")
    if source.max_age_ms is not None:
        if committed_ms is None:
            raise SourceError(f"{checkpoint.shown}: its last batch has no time: leave out max.age")
        check_age(committed_ms, reach.reader.clock.wall_ms(), source.max_age_ms)
    return {source.name: Consumer(positions, frozenset(reads), unread=frozenset(torn))}


def _check_order(checkpoint: Storage, done: int, begun_ms: int | None, committed_ms: int | None) -> None:
    """Check that a batch was written down before it was done, where both times are known."""
    if committed_ms is not None and begun_ms is not None and begun_ms > committed_ms:
        raise SourceError(
            f"{checkpoint.shown}: offsets/{done} was written after commits/{done}: the query was set back, or its "
            "checkpoint copied; kretain can read it again after its next batch"
        )


def _first_read(under_way: Mapping[int, _Offsets | None], stands: Mapping[int, _Offsets]) -> set[tuple[str, int]]:
    """Return the partitions that some source reads in the batch under way without a position there."""
    return {
        (topic, n)
        for number, one in under_way.items()
        for topic, partitions in (one or {}).items()
        for n in partitions.keys() - stands.get(number, {}).get(topic, {}).keys()
    }


def _furthest_behind(
    stands: Sequence[_Offsets], first_read: Collection[tuple[str, int]]
) -> tuple[dict[str, list[Position]], set[tuple[str, int]]]:
    """Return, of all sources that read a partition, the lowest offset; and the partitions that only some have met.

    Those that some source only reads now (``first_read``) are among them.
    """
    found: _Offsets = {}
    torn = set(first_read)
    for one in stands:
        for topic, partitions in one.items():
            before = found.setdefault(topic, partitions)
            torn.update((topic, n) for n in before.keys() ^ partitions.keys())
            found[topic] = {n: min(offset, before[n]) for n, offset in partitions.items() if n in before}
    known = {
        topic: [(n, at) for n, at in sorted(here.items()) if (topic, n) not in torn] for topic, here in found.items()
    }
    return {topic: rows for topic, rows in known.items() if rows}, torn


def _last_batch(checkpoint: Storage, log: str) -> int | None:
    names = [name for name in checkpoint.names(log) if not name.startswith(".")]
    for name in names:
        if _NUMBER.fullmatch(name) is None:
            raise SourceError(f"{checkpoint.shown}: {log}/{plain(name)} is not of a checkpoint that kretain knows")
    return max(map(int, names), default=None)


def _text(checkpoint: Storage, log: str, name: str) -> tuple[list[str], int | None]:
    """Return a file's lines, and when it was written; of a source that has not begun there are none."""
    if (found := checkpoint.read(name, _MAX_BYTES)) is None:
        if log == "sources":
            return [], None
        raise SourceError(f"{checkpoint.shown}: {name} does not exist: is this the checkpoint of a query that has run?")
    content, written_ms = found
    try:
        version, *lines = content.decode().removeprefix("\0").split("\n")  # a zero byte is for Spark before 2.1
    except UnicodeDecodeError:
        raise SourceError(f"{checkpoint.shown}: {name} is damaged: it is not UTF-8 text") from None
    if version not in _VERSIONS[log]:
        known = f"its format is {shown(version)}, and kretain knows {' and '.join(_VERSIONS[log])}"
        raise SourceError(f"{checkpoint.shown}: {name}: {known if version else 'it is empty'}")
    if len(content) > _MAX_BYTES or not any(lines):
        raise SourceError(f"{checkpoint.shown}: {name} is damaged: {'too large' if any(lines) else 'cut short'}")
    if log == "commits":
        parse("\n".join(lines))
    return lines, written_ms


def _batch(checkpoint: Storage, number: int, begun: Sequence[int]) -> _Batch:
    """Return a batch of the offsets log; ``begun`` are the numbers of the sources that have begun."""
    name = f"offsets/{number}"
    lines, written_ms = _text(checkpoint, "offsets", name)
    if lines[0].strip():
        parse(lines[0], 2)
    sources = [line.strip() for line in lines[1:]]
    highest = max(begun, default=0)
    if not highest < len(sources) <= _MAX_SOURCES:
        few = f"is cut short: it has {len(sources)} of its sources"
        raise SourceError(f"{checkpoint.shown}: {name} {few if len(sources) <= highest else 'has too many sources'}")
    read = {at: None if one == "-" else _kafka_offsets(one, name, at + 3) for at, one in enumerate(sources)}
    return _Batch({at: one for at, one in read.items() if one is not None or sources[at] == "-"}, written_ms)


def _beginning(checkpoint: Storage, number: int) -> _Offsets:
    """Return where a source began: nowhere if it is not Kafka's, or has not begun."""
    name = f"sources/{number}/0"
    lines = [line for line in _text(checkpoint, "sources", name)[0] if line.strip()]
    return (_kafka_offsets(lines[0], name, 2) if len(lines) == 1 else None) or {}  # of files there is a line for each


def _kafka_offsets(text: str, name: str, line: int) -> _Offsets | None:
    """Return a source's offsets by topic and partition; None if the source is not Kafka's."""
    try:
        data = parse(text, line)
    except SourceError as error:
        raise SourceError(f"{name}, {error}") from None
    some = list(data.values()) if isinstance(data, dict) else [None]
    if some and not any(isinstance(one, dict) and (not one or any(map(_NUMBER.fullmatch, one))) for one in some):
        return None
    found: _Offsets = {}
    for topic, partitions in data.items():
        if TOPIC_NAME.fullmatch(topic) is None or not isinstance(partitions, dict):
            raise SourceError(f"{name}, line {line}: {plain(topic)} is not a topic with its offsets")
        found[topic] = {}
        for partition, offset in partitions.items():
            if _NUMBER.fullmatch(partition) is None or int(partition) > MAX_PARTITION:
                raise SourceError(f"{name}, line {line}: {plain(topic)} has a partition {shown(partition)}")
            if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
                raise SourceError(f"{name}, line {line}: partition {partition} of {plain(topic)} has no offset")
            found[topic][int(partition)] = offset
    return found
