"""Where a Spark Structured Streaming query stands, by its checkpoint: the last committed batch (F7).

A query that starts again replays the batch after the last that it committed, from that one's offsets on. They are in
``offsets/N``, a line for each source of the query; ``commits/N`` says that batch N is done. Before the first batch is
done, ``sources/I/0`` has where a Kafka source began.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from retention_cli.observe.floors.sources.interface import (
    MAX_OFFSET,
    MAX_PARTITION,
    Consumer,
    Consumers,
    Position,
    Reach,
    SourceError,
)
from retention_cli.observe.floors.sources.positions import check_age, parse
from retention_cli.observe.floors.sources.stored import Storage
from retention_cli.policy.live import TOPIC_NAME
from retention_cli.policy.settings import FloorSource
from retention_cli.policy.shown import plain, shown

_MAX_BYTES: Final = 16 << 20
_MAX_SOURCES: Final = 10_000
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {"offsets": ("v1",), "commits": ("v1", "v2"), "sources": ("v1",)}
"""Which formats of each log are known. What a commit holds is of no matter here, only that it is whole."""

_Offsets = dict[str, dict[int, int]]


class _Batch(NamedTuple):
    """The offsets of a batch's Kafka sources, whether every source of the query has any, and when it was written."""

    offsets: list[_Offsets]
    whole: bool
    written_ms: int | None


def read(source: FloorSource, reach: Reach) -> Consumers:
    """Return the positions of every Kafka source of the query.

    What the batch under way reads beside them, and partitions that only one of two sources of a topic has met, are
    topics that the query reads without a position there (F2).

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
    begun = [name for name in checkpoint.names("sources") if _NUMBER.fullmatch(name)]
    under_way = _batch(checkpoint, newest, begun)
    if done is None:
        stands = _beginnings(checkpoint, begun)
    else:
        last = under_way if done == newest else _batch(checkpoint, done, begun)
        if committed_ms is not None and last.written_ms is not None and last.written_ms > committed_ms:
            raise SourceError(
                f"{checkpoint.shown}: offsets/{done} was written after commits/{done}: the query was set back, or its "
                "checkpoint copied; it can be told again when its next batch is done"
            )
        met = {topic for one in last.offsets for topic in one}
        stands = last.offsets if last.whole else [*last.offsets, *_beginnings(checkpoint, begun, without=met)]
    positions, torn = _furthest_behind(stands)
    reads = torn | {topic for one in (*under_way.offsets, *stands) for topic in one}.difference(positions)
    if not positions and not reads:
        raise SourceError(f"{checkpoint.shown}: no source of this query reads Kafka, or none has begun yet")
    if source.max_age_ms is not None:
        if committed_ms is None:
            raise SourceError(f"{checkpoint.shown}: nothing says how old its last batch is: leave out max.age")
        check_age(committed_ms, reach.now_ms(), source.max_age_ms)
    return {source.name: Consumer(positions, frozenset(reads))}


def _furthest_behind(stands: Sequence[_Offsets]) -> tuple[dict[str, list[Position]], set[str]]:
    """Return, of all sources that read a topic, the positions of the one behind; and topics where one has none."""
    found: _Offsets = {}
    torn: set[str] = set()
    for one in stands:
        for topic, partitions in one.items():
            before = found.setdefault(topic, partitions)
            if before.keys() != partitions.keys():
                torn.add(topic)
            found[topic] = {n: min(offset, before[n]) for n, offset in partitions.items() if n in before}
    return {topic: sorted(here.items()) for topic, here in found.items() if here}, torn


def _last_batch(checkpoint: Storage, log: str) -> int | None:
    """Return the number of a log's last batch."""
    names = [name for name in checkpoint.names(log) if not name.startswith(".")]
    for name in names:
        if _NUMBER.fullmatch(name) is None:
            raise SourceError(f"{checkpoint.shown}: {log}/{plain(name)} is not of a checkpoint that kretain knows")
    return max(map(int, names), default=None)


def _text(checkpoint: Storage, log: str, name: str) -> tuple[list[str], int | None]:
    """Return a log file's lines after its version, and when it was written."""
    if (found := _text_if_there(checkpoint, log, name)) is None:
        raise SourceError(f"{checkpoint.shown}: {name} is not there: is this the checkpoint of a query that ran?")
    return found


def _text_if_there(checkpoint: Storage, log: str, name: str) -> tuple[list[str], int | None] | None:
    if (found := checkpoint.read(name, _MAX_BYTES)) is None:
        return None
    content, written_ms = found
    try:
        version, *lines = content.decode().removeprefix("\0").split("\n")  # a zero byte is for Spark before 2.1
    except UnicodeDecodeError:
        raise SourceError(f"{checkpoint.shown}: {name} is damaged: it is not UTF-8 text") from None
    if version not in _VERSIONS[log]:
        known = " and ".join(_VERSIONS[log])
        told = f"its format is {shown(version)}, and kretain knows {known}" if version else "it is empty"
        raise SourceError(f"{checkpoint.shown}: {name}: {told}")
    if len(content) > _MAX_BYTES or not any(lines):
        raise SourceError(f"{checkpoint.shown}: {name} is damaged: {'too large' if any(lines) else 'cut short'}")
    if log == "commits":
        parse("\n".join(lines))
    return lines, written_ms


def _batch(checkpoint: Storage, number: int, begun: Sequence[str]) -> _Batch:
    """Return a batch of the offsets log; ``begun`` are the numbers of the sources that have begun."""
    name = f"offsets/{number}"
    lines, written_ms = _text(checkpoint, "offsets", name)
    if lines[0].strip():
        parse(lines[0], 2)
    sources = [line.strip() for line in lines[1:]]
    highest = max(map(int, begun), default=0)
    if not highest < len(sources) <= _MAX_SOURCES:
        few = f"is cut short: it has {len(sources)} of its sources"
        raise SourceError(f"{checkpoint.shown}: {name} {few if len(sources) <= highest else 'has too many sources'}")
    read = [_kafka_offsets(one, name, at) for at, one in enumerate(sources, 3) if one != "-"]
    return _Batch([one for one in read if one is not None], "-" not in sources, written_ms)


def _beginnings(checkpoint: Storage, begun: Sequence[str], without: Collection[str] = ()) -> list[_Offsets]:
    """Return where the Kafka sources began, ``without`` some topics."""
    found = []
    for index in begun:
        name = f"sources/{index}/0"
        if (text := _text_if_there(checkpoint, "sources", name)) is None:
            continue
        lines = [line for line in text[0] if line.strip()]
        offsets = _kafka_offsets(lines[0], name, 2) if len(lines) == 1 else None  # of files there is a line for each
        if offsets is not None:
            found.append({topic: rows for topic, rows in offsets.items() if topic not in without})
    return found


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
                raise SourceError(f"{name}, line {line}: partition {partition} of {plain(topic)} stands at no offset")
            found[topic][int(partition)] = offset
    return found
