"""Where consumers stood on a topic when its records were archived, and where they continue in what was restored.

Each run that archives a topic keeps a file of it before it copies, and one before it trims:
``_groups/20261121T030000123Z.json`` in the topic's folder, with every consumer that counts, all partitions, their
leader epochs and log starts. Only :func:`keep`, :func:`newest` and :func:`until` touch files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Final, Literal, NamedTuple

from pydantic import TypeAdapter

from retention_cli.archive.layout import ArchiveError, DamagedError, Source, body_checksum
from retention_cli.archive.store import Store
from retention_cli.core.units import timestamp

FORMAT: Final = "kretain.positions/v1"
_FOLDER: Final = "_groups"
_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{9}Z\.json")

Kind = Literal["group", "gone", "streams", "share", "outside"]


@dataclass(frozen=True, slots=True)
class Stood:
    """One consumer: its position by partition, None where it has none that counts (F2, F5).

    ``unreadable`` says why nothing is known of it (F3), None if it was read.
    """

    name: str
    kind: Kind
    offsets: Mapping[int, int | None] = field(default_factory=dict)
    unreadable: str | None = None


@dataclass(frozen=True, slots=True)
class Positions:
    """All consumers of a topic at one moment. ``epochs`` are the partitions' leader epochs: of which log they are (M1).

    ``starts`` are the log start offsets, None if unknown.
    ``unlisted`` says why there may be consumers that are not named (F8, F9), None if all are.
    """

    cluster_id: str
    topic: str
    topic_id: str
    read_ms: int
    epochs: tuple[int | None, ...]
    starts: tuple[int | None, ...]
    consumers: tuple[Stood, ...] = ()
    unlisted: str | None = None

    @property
    def path(self) -> str:
        """The file's path, relative to the archive's URL."""
        name = re.sub(r"[-:.]", "", timestamp(self.read_ms))
        return f"{Source(self.cluster_id, self.topic, self.topic_id, 0).folder}/{_FOLDER}/{name}.json"


_FORM: Final = TypeAdapter(Positions)


def keep(store: Store, one: Positions) -> None:
    """Write a topic's positions as JSON with a checksum over the rest of it, and read them back.

    Raises:
        ArchiveError: they can't be written, or differ when read back.
    """
    body = {"format": FORMAT, **_FORM.dump_python(one, mode="json")}
    text = json.dumps({**body, "checksum": body_checksum(body)}, separators=(",", ":")) + "\n"
    store.write(one.path, text.encode())
    if _read(store, one.path) != one:
        raise ArchiveError(f"{store.shown(one.path)} was written, and reads back differently")


def newest(store: Store, source: Source, until_ms: int | None = None) -> Positions:
    """Return the positions on a topic that were read last, at or before ``until_ms``.

    Raises:
        DamagedError: that file is damaged.
        ArchiveError: there are none, or they can't be read.
    """
    if fitting := _paths(store, source, until_ms):
        return _read(store, fitting[-1])
    folder = store.shown(f"{source.folder}/{_FOLDER}")
    if not (files := _paths(store, source)):
        raise ArchiveError(f"{folder} has no positions of groups: an older kretain wrote this archive")
    first = timestamp(_read(store, files[0]).read_ms)
    raise ArchiveError(
        f"{folder} has no positions of groups from {timestamp(until_ms or 0)} or before; the first are of "
        f"{first}: name the time to use with --positions-at"
    )


def until(store: Store, source: Source, until_ms: int) -> Iterator[Positions]:
    """Yield all positions on a topic that were read at or before ``until_ms``, by time.

    Raises:
        DamagedError: a file is damaged.
        ArchiveError: they can't be read.
    """
    return (_read(store, path) for path in _paths(store, source, until_ms))


def _paths(store: Store, source: Source, until_ms: int | None = None) -> list[str]:
    folder = f"{source.folder}/{_FOLDER}"
    limit = "" if until_ms is None else re.sub(r"[-:.]", "", timestamp(until_ms)) + ".json"
    names = (path.removeprefix(f"{folder}/") for path in store.files(folder))
    return [f"{folder}/{name}" for name in names if _NAME.fullmatch(name) and (not limit or name <= limit)]


def _read(store: Store, path: str) -> Positions:
    with suppress(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        data = json.loads(store.read(path))
        sound = data.pop("checksum") == body_checksum(data) and data.pop("format") == FORMAT
        if sound and (found := _FORM.validate_python(data)).path == path:
            return found
    raise DamagedError(f"{store.shown(path)} is damaged, or is not kretain's file for that place")


class Behind(NamedTuple):
    """A group's position before records that it had not read were trimmed, and the partition's leader epoch then."""

    position: int
    epoch: int | None


def left_behind(
    files: Iterable[Positions], covered: Mapping[int, Sequence[tuple[int, int]]]
) -> dict[tuple[str, int], Behind]:
    """Return the earliest position from which a trim deleted archived records of a group, by group and partition. Pure.

    Later positions do not show that the group has read these records: it may have started over behind them. A group
    without a position that counts may stand anywhere: it counts at the log start. So does one that is not named where
    not all are.

    Args:
        files: a topic's positions, by time.
        covered: the archived ranges (end exclusive) of each partition to look at.
    """
    stood: dict[tuple[str, int], Behind] = {}
    unnamed: dict[int, Behind] = {}
    found: dict[tuple[str, int], Behind] = {}
    for one in files:
        of = enumerate(zip(one.starts, one.epochs, strict=False))
        known = [(number, start, epoch) for number, (start, epoch) in of if number in covered and start is not None]
        groups: dict[str, Mapping[int, int | None]] = {} if one.unlisted is None else {name: {} for name, _ in stood}
        # share groups and consumers outside Kafka's may be named alike
        groups |= {other.name: other.offsets for other in one.consumers if other.kind not in ("share", "outside")}
        for (number, start, epoch), (name, offsets) in product(known, groups.items()):
            key, position = (name, number), offsets.get(number)
            was = stood.get(key, unnamed.get(number))
            if was is not None and _overlaps(covered[number], was.position, start):
                found[key] = min(found.get(key, was), was, key=lambda one: one.position)
            stood[key] = Behind(start if position is None else position, epoch)
        if one.unlisted is not None:
            unnamed = {number: Behind(start, epoch) for number, start, epoch in known} | unnamed
    return found


def _overlaps(covered: Iterable[tuple[int, int]], start: int, end: int) -> bool:
    return start < end and any(low < end and start < high for low, high in covered)


class Continuation:
    """Finds, for positions in an archived log, the offsets at which to continue in the restored one. Pure.

    A position continues with the first restored record at or behind it, even if others were left out before. If records
    before it are of a leader epoch above ``epoch``, the position is another log's, and it continues with the first of
    those: it never skips a record that may be unread (M1).

    Args:
        positions: offsets in the archived log.
        epoch: the partition's leader epoch when they were read; None: unknown.
        start: where the restored partition begins.
    """

    def __init__(self, positions: Collection[int], epoch: int | None, start: int) -> None:
        self.found: dict[int, int] = {}
        self.other_log: set[int] = set()
        self._epoch = epoch
        self._left = sorted(positions, reverse=True)
        self._end = start

    def add(self, archived: int, epoch: int | None, restored: int) -> None:
        """Add the next restored record: its archived offset, its leader epoch there, and its new offset."""
        other = epoch is not None and self._epoch is not None and epoch > self._epoch
        while self._left and (other or self._left[-1] <= archived):
            position = self._left.pop()
            self.found[position] = restored
            if position > archived:
                self.other_log.add(position)
        self._end = restored + 1

    def ended(self) -> dict[int, int]:
        """Return all: positions behind every restored record continue with what is written next."""
        return self.found | dict.fromkeys(self._left, self._end)


def gap_at(position: int, covered: Iterable[tuple[int, int]]) -> bool:
    """Return whether the archive lacks the record at a position, though it has later ones. Pure.

    ``covered`` are the archived ranges (end exclusive), in order.
    """
    return next((position < start for start, end in covered if end > position), False)
