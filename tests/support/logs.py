"""Log dirs made by hand: batches, segments and indexes as brokers write them, for tests that then break them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retention_cli.brokers.wire.batch_headers import HEADER
from retention_cli.disks.inventory.scan import PartitionRead, read_partition
from tests.support.facts import known

INDEX_INTERVAL = 4096
TOPIC_ID = "qCKCnnUmRDu8xKoaqyCwHA"


def batch(
    base: int, stamps: Sequence[int], size: int = 200, *, attributes: int = 0, gap: int = 0, horizon: int | None = None
) -> bytes:
    """Return a record batch (KIP-98) with a record per stamp; ``gap``: so many offsets more than records."""
    delta = len(stamps) - 1 + gap
    first = stamps[0] if horizon is None else horizon
    header = HEADER.pack(
        base, size - 12, 0, 2, 0xC0FFEE, attributes, delta, first, max(stamps), -1, -1, -1, len(stamps)
    )
    return header + b"v" * (size - len(header))


def old_message(offset: int, stamp: int | None, *, attributes: int = 0) -> bytes:
    """Return a message of before KIP-98: magic 1, magic 0 where there is no stamp."""
    head = struct.pack(">qiIbb", offset, 188, 0xC0FFEE, 0 if stamp is None else 1, attributes)
    return (head + (b"" if stamp is None else struct.pack(">q", stamp))).ljust(200, b"v")


@dataclass
class Made:
    """A segment in bytes: its log, both indexes, and what is true of it."""

    base: int
    log: bytearray = field(default_factory=bytearray)
    index: bytearray = field(default_factory=bytearray)
    timeindex: bytearray = field(default_factory=bytearray)
    next_offset: int = 0
    first: int | None = None
    largest: int | None = None
    stamps: list[int] = field(default_factory=list)

    def write(self, folder: Path, *, snapshot: bool = True) -> str:
        stem = f"{self.base:020d}"
        for suffix, content in ((".log", self.log), (".index", self.index), (".timeindex", self.timeindex)):
            (folder / (stem + suffix)).write_bytes(content)
        if snapshot:
            (folder / f"{stem}.snapshot").write_bytes(b"s" * 10)
        return stem

    @property
    def bytes(self) -> int:
        return len(self.log) + len(self.index) + len(self.timeindex)


def segment(
    base: int,
    batches: Iterable[Sequence[int]],
    size: int = 200,
    *,
    closed: bool = True,
    attributes: int = 0,
    interval: int = INDEX_INTERVAL,
) -> Made:
    """Return a segment of batches, each with its records' stamps, as LogSegment.append and its closing write them."""
    made = Made(base, next_offset=base)
    since, last_entry, where = 0, -1, 0
    for stamps in batches:
        data = batch(made.next_offset, stamps, size, attributes=attributes)
        last = made.next_offset + len(stamps) - 1
        if made.largest is None or max(stamps) > made.largest:
            made.largest, where = max(stamps), last
        if since > interval:
            made.index += struct.pack(">ii", last - base, len(made.log))
            if made.largest > last_entry:
                made.timeindex += struct.pack(">qi", made.largest, where - base)
                last_entry = made.largest
            since = 0
        made.log += data
        since += len(data)
        made.next_offset = last + 1
        made.first = stamps[0] if made.first is None else made.first
        made.stamps.append(max(stamps))
    if closed and made.largest is not None and made.largest > last_entry:
        made.timeindex += struct.pack(">qi", made.largest, where - base)
    return made


def preallocated(made: Made, size: int = 1 << 20) -> Made:
    """Return it as a running broker holds its active segment: indexes filled up with zeros."""
    made.index += bytes(size // 8 * 8 - len(made.index))
    made.timeindex += bytes(size // 12 * 12 - len(made.timeindex))
    return made


def log_dir(path: Path, broker: int = 1, cluster: str = "kNPKKYq_QvOnBaZb46V_BQ") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    text = f"#\n#Sat Nov 21 10:00:00 UTC 2026\ncluster.id={cluster}\nnode.id={broker}\nversion=1\ndirectory.id=AbCdEfGhIjKlMnOpQrStUv\n"
    (path / "meta.properties").write_text(text)
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", ".lock", ".kafka_cleanshutdown"):
        (path / name).write_text("0\n0\n")
    return path


def partition(folder: Path, name: str = "orders-0", topic_id: str | None = TOPIC_ID) -> Path:
    """Make a partition's folder without segments."""
    path = folder / name
    path.mkdir(parents=True)
    (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    if topic_id is not None:
        (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    return path


def filled(folder: Path, segments: int = 3, batches: int = 60, *, began_ms: int = 1_700_000_000_000) -> list[Made]:
    """Put segments into a partition's folder, the last of them active."""
    firsts = [[began_ms + 10 * (number * batches + n) for n in range(batches)] for number in range(segments)]
    return put(folder, [[[first, first + 5] for first in some] for some in firsts])


def put(
    folder: Path,
    parts: Sequence[Iterable[Sequence[int]]],
    size: int = 200,
    base: int = 0,
    *,
    grown: bool = False,
    **how: Any,
) -> list[Made]:
    """Put segments of these batches into a partition's folder; the last is active, ``grown``: and preallocated."""
    made = []
    for number, batches in enumerate(parts, start=1):
        one = segment(base, batches, size, closed=number < len(parts), **how)
        if grown and number == len(parts):
            preallocated(one, 8192)
        one.write(folder)
        made.append(one)
        base = one.next_offset
    return made


def read(folder: Path) -> PartitionRead:
    return known(read_partition(str(folder.parent), folder.name))


def column(found: PartitionRead, name: str) -> list[Any]:
    return [getattr(one, name) for one in found.segments]


def flaws(found: PartitionRead) -> dict[int, str]:
    """Return what is unknown of segments, by their places."""
    return {n: one.problem for n, one in enumerate(found.segments) if one.problem is not None}


def facts(found: PartitionRead) -> list[tuple[Any, ...]]:
    """Return what each segment says of its records: next offset, first and largest timestamp."""
    return [(one.next_offset, one.first_timestamp, one.largest_timestamp) for one in found.segments]


def true_facts(made: Iterable[Made]) -> list[tuple[Any, ...]]:
    """Return what ``facts`` must say of segments as they were made."""
    return [(one.next_offset, one.first, one.largest) for one in made]


def sound(folder: Path) -> PartitionRead:
    """Read a folder in which nothing is wrong or worth a note."""
    found = read(folder)
    assert (found.problems, found.notes) == ([], [])
    return found
