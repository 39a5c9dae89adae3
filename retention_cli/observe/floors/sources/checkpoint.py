"""Where a Spark Structured Streaming query stands, by its checkpoint: the last committed batch (F7).

A query that starts again replays the batch after the last that it committed, from that one's offsets on. They are in
``offsets/N``, a line for each source of the query; ``commits/N`` says that batch N is done. Before the first batch is
done, ``sources/I/0`` has where a Kafka source began.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from retention_cli.observe.floors.sources import strict_json
from retention_cli.observe.floors.sources.interface import (
    MAX_OFFSET,
    MAX_PARTITION,
    Consumer,
    Consumers,
    Position,
    SourceError,
)
from retention_cli.observe.floors.sources.positions import check_age
from retention_cli.observe.floors.sources.stored import Storage
from retention_cli.policy.settings import FloorSource
from retention_cli.policy.shown import plain, shown

_MAX_BYTES: Final = 16 << 20
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {"offsets": ("v1",), "commits": ("v1", "v2"), "sources": ("v1",)}
"""Which formats of each log are known. What a commit holds is of no matter here, only that it is whole."""

_Offsets = dict[str, dict[int, int]]


def read(source: FloorSource, now_ms: Callable[[], int]) -> Consumers:
    """Return the positions of every Kafka source of the query.

    Args:
        source: ``place`` is the checkpoint's folder, a path or a URL.
        now_ms: gives our wall clock.

    Raises:
        SourceError: there is no checkpoint, it is damaged or of a format that is not known, or it is too old.
    """
    checkpoint = Storage(source.place)
    done = _last_batch(checkpoint, "commits")
    if done is None:
        count, written_ms = len(_sources_of(checkpoint, 0)), None
        lines = ["-"] * count
    else:
        written_ms = _text(checkpoint, "commits", f"commits/{done}")[1]
        lines = _sources_of(checkpoint, done)
    _check_count(checkpoint, len(lines), done)
    found: dict[str, dict[int, int]] = {}
    for index, line in enumerate(lines):
        at = _began(checkpoint, index) if line == "-" else _kafka_offsets(line, f"offsets/{done}", index + 3)
        for topic, partitions in (at or {}).items():
            here = found.setdefault(topic, {})
            for partition, offset in partitions.items():  # of two sources that read it, the one behind
                here[partition] = min(offset, here.get(partition, offset))
    if not found:
        raise SourceError(f"{checkpoint.shown}: no source of this query reads Kafka, or none has begun yet")
    if source.max_age_ms is not None:
        if written_ms is None:
            raise SourceError(f"{checkpoint.shown}: nothing says how old its last batch is: leave out max.age")
        check_age(written_ms, now_ms(), source.max_age_ms)
    positions: dict[str, list[Position]] = {topic: sorted(here.items()) for topic, here in found.items()}
    return {source.name: Consumer(positions)}


def _last_batch(checkpoint: Storage, log: str) -> int | None:
    """Return the number of a log's last batch."""
    names = [name for name in checkpoint.names(log) if not name.startswith(".")]
    for name in names:
        if _NUMBER.fullmatch(name) is None:
            raise SourceError(f"{checkpoint.shown}: {log}/{plain(name)} is not of a checkpoint that kretain knows")
    return max(map(int, names), default=None)


def _text(checkpoint: Storage, log: str, name: str) -> tuple[list[str], int | None]:
    """Return a log file's lines after its version, and when it was written."""
    found = checkpoint.read(name, _MAX_BYTES)
    if found is None:
        raise SourceError(f"{checkpoint.shown}: {name} is not there: is this the checkpoint of a query that ran?")
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
        strict_json.parse("\n".join(lines))
    return lines, written_ms


def _sources_of(checkpoint: Storage, batch: int) -> list[str]:
    """Return a batch's line for each source."""
    lines, _ = _text(checkpoint, "offsets", f"offsets/{batch}")
    if lines[0].strip():
        strict_json.parse(lines[0], 2)
    return [line.strip() for line in lines[1:]]


def _check_count(checkpoint: Storage, count: int, batch: int | None) -> None:
    """Refuse a batch with fewer lines than there are sources: it was cut short between two of them."""
    begun = [int(name) for name in checkpoint.names("sources") if _NUMBER.fullmatch(name)]
    if count <= max(begun, default=0):
        raise SourceError(f"{checkpoint.shown}: offsets/{batch or 0} is cut short: it has {count} of its sources")


def _began(checkpoint: Storage, index: int) -> _Offsets | None:
    """Return where a Kafka source began; None where the source is none, or has not begun."""
    name = f"sources/{index}/0"
    if checkpoint.read(name, 0) is None:
        return None
    lines = [line for line in _text(checkpoint, "sources", name)[0] if line.strip()]
    return _kafka_offsets(lines[0], name, 2) if len(lines) == 1 else None  # a source of files has a line for each


def _kafka_offsets(text: str, name: str, line: int) -> _Offsets | None:
    """Return a source's offsets by topic and partition; None where the source is not Kafka's."""
    try:
        data = strict_json.parse(text, line)
    except SourceError as error:
        raise SourceError(f"{name}, {error}") from None
    if not isinstance(data, dict) or not all(isinstance(one, dict) for one in data.values()):
        return None
    rows = [(topic, *row) for topic, partitions in data.items() for row in partitions.items()]
    if rows and not any(_NUMBER.fullmatch(partition) for _topic, partition, _offset in rows):
        return None
    found: _Offsets = {}
    for topic, partition, offset in rows:
        if _NUMBER.fullmatch(partition) is None or int(partition) > MAX_PARTITION:
            raise SourceError(f"{name}, line {line}: {plain(topic)} has a partition {shown(partition)}")
        if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
            raise SourceError(f"{name}, line {line}: partition {partition} of {plain(topic)} stands at no offset")
        found.setdefault(topic, {})[int(partition)] = offset
    return found
