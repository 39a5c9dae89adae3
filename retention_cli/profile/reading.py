"""Read topics for their profile: choose topics and offset ranges, and read every data record in them once.

And the profile as rows, for scripts and Parquet (``kretain.profile/v1``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, Leaders, NotFound
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.record_columns import Columns
from retention_cli.brokers.records import Ended, Range
from retention_cli.core.extras import arrow
from retention_cli.core.grouping import in_batches
from retention_cli.core.model import TopicPartition
from retention_cli.core.progress import Progress, adding, silent
from retention_cli.core.units import format_time, timestamp
from retention_cli.observe.record_times import read_time
from retention_cli.policy.model import Policy, matches
from retention_cli.policy.selection import no_topic
from retention_cli.policy.settings import DEFAULT_MAX_AHEAD_MS, EventSource
from retention_cli.profile.hours import Frame, PartitionHours

_AGAIN_AFTER_S: Final = 0.5
_ROUNDS: Final = 3
"""How many times a partition is read at most, if its log start overtakes the reader."""


class NoEventTimeError(Exception):
    """A profile by event time was requested, but the policy names no event time source for a topic."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to profile. ``patterns`` select the topics; times are in Unix ms, ``to_ms`` is exclusive."""

    patterns: Sequence[str]
    now_ms: int
    policy: Policy | None = None
    by_event_time: bool = False
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(slots=True)
class TopicHours:
    """A topic's partitions. ``source`` is the policy's event time source, None if it has none.

    ``by_event_time``: records are counted by event time, not by timestamp.
    """

    name: str
    frame: Frame
    source: EventSource | None
    by_event_time: bool
    partitions: dict[int, PartitionHours] = field(default_factory=dict)

    @property
    def by(self) -> str:
        """The time that records are counted by: ``timestamp``, or the policy's ``retention.eventtime.source``."""
        return str(self.source) if self.by_event_time else "timestamp"


@dataclass(frozen=True, slots=True)
class Unread:
    """A partition that could not be read completely, and why. The profile has its records before ``reached``."""

    tp: TopicPartition
    text: str
    reached: int | None = None
    end: int | None = None


@dataclass(slots=True)
class Profile:
    """A profile, as far as it was read. ``ranges`` are those to read; ``interrupted``: the user ended it early."""

    cluster_id: str
    bootstrap: str
    wanted: Wanted
    topics: dict[str, TopicHours]
    ranges: dict[TopicPartition, Range] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False


Read = Callable[
    [Profile, Mapping[TopicPartition, Range], Callable[[int], None], Callable[[], bool]], Mapping[TopicPartition, Ended]
]
"""Reads ranges into a profile's hours. Its callbacks get the number of offsets passed, and return whether to stop."""


def prepare(reader: ClusterReader, wanted: Wanted, progress: Progress = silent) -> Profile:
    """Choose the topics and read their log ends; return an empty profile for :func:`fill`.

    Raises:
        BrokerError: the cluster's metadata could not be read.
        NothingMatchesError: a pattern matches no topic.
        NoEventTimeError: a profile by event time is requested, but the policy names no source for a topic.
        PolicyError: the policy is wrong for a topic.
    """
    progress("metadata")
    metadata = reader.metadata()
    names = choose(metadata, wanted.patterns)
    profile = Profile(
        metadata.cluster_id, reader.settings.bootstrap, wanted, {name: _topic(name, wanted) for name in names}
    )
    progress("log ends")
    if again := _find_ranges(reader, profile, metadata.partitions_of(names), last=False):
        time.sleep(_AGAIN_AFTER_S)
        moved = reader.metadata({tp.topic for tp in again})
        leaders = moved.partitions_of(name for name in names if name in moved.topics)
        profile.unread += [Unread(tp, "the topic no longer exists") for tp in again if tp not in leaders]
        _find_ranges(reader, profile, {tp: leaders[tp] for tp in again if tp in leaders}, last=True)
    return profile


def fill(
    reader: ClusterReader,
    profile: Profile,
    progress: Progress = silent,
    stop: Callable[[], bool] = lambda: False,
    read: Read | None = None,
) -> None:
    """Read every record of the profile's ranges. Partitions that can't be read are added to ``unread``.

    ``stop`` is called several times a second; once it returns true, reading ends, and the profile has what was read
    until then. ``read`` replaces reading in this process alone.
    """

    def read_here(
        profile: Profile, todo: Mapping[TopicPartition, Range], on_read: Callable[[int], None], stop: Callable[[], bool]
    ) -> Mapping[TopicPartition, Ended]:
        hours = {tp: profile.topics[tp.topic].partitions[tp.partition] for tp in todo}
        return read_into(reader, profile.topics, hours, todo, on_read, stop)

    todo = dict(profile.ranges)
    for tp, one in todo.items():
        topic = profile.topics[tp.topic]
        topic.partitions[tp.partition] = PartitionHours.begin(topic.frame, one.start)
    on_read = adding(progress, "records", sum(one.end - one.start for one in todo.values()))
    for number in range(_ROUNDS):
        ended = (read or read_here)(profile, todo, on_read, stop)
        overtaken = {tp: how for tp, how in ended.items() if how.out_of_range} if number + 1 < _ROUNDS else {}
        for tp, how in ended.items():
            if tp not in overtaken:
                _note_end(profile, tp, how)
        if not (todo := _go_on(reader, profile, overtaken, on_read)):
            break
    profile.interrupted = stop()


def choose(metadata: ClusterMetadata, patterns: Sequence[str]) -> list[str]:
    """Return the names of the topics that match, sorted; internal ones only if a pattern is their full name.

    Raises:
        NothingMatchesError: a pattern matches no topic.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        names = [
            name
            for name, topic in metadata.topics.items()
            if (name == pattern if topic.internal else matches((pattern,), name))
        ]
        if not names:
            raise no_topic(pattern, metadata.topics)
        found.update(dict.fromkeys(names))
    return sorted(found)


def _topic(name: str, wanted: Wanted) -> TopicHours:
    settings = None if wanted.policy is None else wanted.policy.settings_for(name)
    source = None if settings is None else settings.event_source
    if wanted.by_event_time and source is None:
        policy = "no policy" if wanted.policy is None else wanted.policy.source
        raise NoEventTimeError(
            f"{policy}: retention.eventtime.source is not set for {name}: where are its event times?"
        )
    ahead = DEFAULT_MAX_AHEAD_MS if settings is None else settings.max_ahead_ms
    frame = Frame(wanted.now_ms, ahead, wanted.from_ms, wanted.to_ms)
    stamps = source is not None and source.kind == "timestamp"
    return TopicHours(name, frame, None if stamps else source, wanted.by_event_time and not stamps)


def _find_ranges(reader: ClusterReader, profile: Profile, leaders: Leaders, *, last: bool) -> list[TopicPartition]:
    """Find the ranges to read; return the partitions to ask again, none if this was the last attempt."""
    ranges: dict[TopicPartition, Range] = {}
    again = []
    for tp, found in reader.extents(leaders).items():
        if not isinstance(found, RequestFailedError):
            ranges[tp] = Range(found.start, max(found))
        elif found.retriable and not last:
            again.append(tp)
        else:
            profile.unread.append(Unread(tp, f"its ends can't be read: {found}"))
    profile.ranges.update(_from_time(reader, profile, ranges, leaders))
    return again


def _from_time(
    reader: ClusterReader, profile: Profile, ranges: Mapping[TopicPartition, Range], leaders: Leaders
) -> dict[TopicPartition, Range]:
    """Return the ranges without offsets before the window, if brokers return where it starts.

    A −1 alone does not prove that no record is in the window (docs/rules.md).
    """
    found = dict(ranges)
    from_ms = profile.wanted.from_ms
    by_append_time = [
        tp for tp, one in ranges.items() if one.start < one.end and not profile.topics[tp.topic].by_event_time
    ]
    if from_ms is None or not by_append_time:
        return found
    answers = reader.list_offsets([dict.fromkeys(by_append_time, from_ms)], leaders)[0]
    silent_ones = [tp for tp, answer in answers.items() if isinstance(answer, NotFound)]
    newest = reader.list_offsets([dict.fromkeys(silent_ones, "max-timestamp")], leaders)[0] if silent_ones else {}
    for tp, answer in answers.items():
        one, largest = ranges[tp], newest.get(tp)
        if isinstance(answer, Found):
            found[tp] = Range(min(max(one.start, answer.offset), one.end), one.end)
        elif isinstance(largest, Found) and largest.timestamp is not None and largest.timestamp < from_ms:
            found[tp] = Range(one.end, one.end)
    return found


def read_into(
    reader: ClusterReader,
    topics: Mapping[str, TopicHours],
    hours: Mapping[TopicPartition, PartitionHours],
    todo: Mapping[TopicPartition, Range],
    on_read: Callable[[int], None] = lambda _offsets: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[TopicPartition, Ended]:
    """Read ranges into their partitions' hours, by each topic's kind of time; return where and how each range ended."""

    def take(tp: TopicPartition, columns: Columns) -> None:
        found = columns.event_times
        times = columns.timestamps if found is None or not topics[tp.topic].by_event_time else found
        hours[tp].add(columns.offsets, times, columns.sizes, columns.tombstones, None if found is None else found < 0)

    return reader.read_columns(
        todo,
        take,
        event_time={
            name: partial(read_time, topic.source, 0, schemas=reader.schemas)
            for name, topic in topics.items()
            if topic.source
        },
        on_read=on_read,
        stop=stop,
    )


def _note_end(profile: Profile, tp: TopicPartition, how: Ended) -> None:
    profile.topics[tp.topic].partitions[tp.partition].reached(how.offset)
    end = profile.ranges[tp].end
    if how.error is not None:
        profile.unread.append(Unread(tp, str(how.error), how.offset, end))
    elif how.offset < end:
        profile.notes.append(
            f"{tp}: an open transaction begins at offset {how.offset:,}; records after it do not count yet"
        )


def _go_on(
    reader: ClusterReader, profile: Profile, overtaken: Mapping[TopicPartition, Ended], on_read: Callable[[int], None]
) -> dict[TopicPartition, Range]:
    """Return the rest of the ranges whose next records were deleted by retention before they could be read."""
    if not overtaken:
        return {}
    partitions, todo = reader.metadata({tp.topic for tp in overtaken}).partitions_of(), {}
    starts = reader.list_offsets([{tp: "earliest" for tp in overtaken if tp in partitions}], partitions)[0]
    for tp, how in overtaken.items():
        start, end = starts.get(tp), profile.ranges[tp].end
        if not isinstance(start, Found) or start.offset <= how.offset:
            _note_end(profile, tp, how)
            continue
        to = min(start.offset, end)
        profile.notes.append(
            f"{tp}: the records from offset {how.offset:,} to {to:,} were deleted before they could be read"
        )
        profile.topics[tp.topic].partitions[tp.partition].reached(to)
        on_read(to - how.offset)
        todo[tp] = Range(to, end)
    return todo


FORMAT: Final = "kretain.profile/v1"
COLUMNS: Final = (
    "topic",
    "partition",
    "kind",
    "hour",
    "records",
    "bytes",
    "tombstones",
    "first_offset",
    "last_offset",
    "oldest_ms",
    "newest_ms",
    "newest_offset",
    "out_of_order",
    "out_of_order_ms",
    "future",
    "no_event_time",
)
"""The columns of a row, in order; docs/profile.md describes them."""


_ROWS_AT_ONCE: Final = 50_000


def all_rows(topics: Iterable[TopicHours]) -> Iterator[dict[str, Any]]:
    """Yield every row as a dict, by topic, partition and hour.

    ``hour`` is the hour's start in Unix ms, None for kinds without an hour. Event times that are missing are counted
    where they were read at all.
    """
    for topic in topics:
        for partition, hours in sorted(topic.partitions.items()):
            for kind, hour, row in hours.items():
                timeless = kind == "no-time"
                yield {
                    "topic": topic.name,
                    "partition": partition,
                    "kind": kind,
                    "hour": hour,
                    "records": row.records,
                    "bytes": row.size_bytes,
                    "tombstones": row.tombstones,
                    "first_offset": row.first_offset,
                    "last_offset": row.last_offset,
                    "oldest_ms": None if timeless else row.oldest_ms,
                    "newest_ms": None if timeless else row.newest_ms,
                    "newest_offset": None if timeless else row.newest_offset,
                    "out_of_order": row.late,
                    "out_of_order_ms": row.late_ms,
                    "future": row.records if kind == "future" else 0,
                    "no_event_time": None if topic.source is None else row.unreadable,
                }


def as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for JSON and CSV, with its hour as ISO 8601."""
    hour = row["hour"]
    return {**row, "hour": None if hour is None else timestamp(hour)}


def head(profile: Profile) -> dict[str, Any]:
    """Return the profile's header: everything but the rows."""
    wanted = profile.wanted
    from_at, to_at = (None if ms is None else format_time(ms) for ms in (wanted.from_ms, wanted.to_ms))
    return {
        "format": FORMAT,
        "read_at": timestamp(wanted.now_ms),
        "cluster": {"id": profile.cluster_id, "bootstrap": profile.bootstrap},
        "from": from_at,
        "to": to_at,
        "complete": not profile.unread and not profile.interrupted,
        "unread": [
            {
                "topic": one.tp.topic,
                "partition": one.tp.partition,
                "reached": one.reached,
                "end": one.end,
                "reason": one.text,
            }
            for one in profile.unread
        ],
        "notes": list(profile.notes),
    }


def schema(about: Mapping[str, Any] | None = None) -> Any:
    """Return the Arrow schema of the rows; its metadata has ``about`` as JSON, under the format's name.

    Raises:
        MissingPartError: pyarrow is not installed.
    """
    pa = arrow()
    kinds = {"topic": pa.string(), "partition": pa.int32(), "kind": pa.string(), "hour": pa.timestamp("ms", tz="UTC")}
    maybe = {"hour", "oldest_ms", "newest_ms", "newest_offset", "no_event_time"}
    fields = [pa.field(name, kinds.get(name, pa.int64()), nullable=name in maybe) for name in COLUMNS]
    return pa.schema(fields, metadata=None if about is None else {FORMAT: json.dumps(about, ensure_ascii=False)})


def write_parquet(path: Path, about: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as Parquet.

    Raises:
        MissingPartError: pyarrow is not installed.
        OSError: the file can't be written.
    """
    pa, wanted = arrow(), schema(about)
    with arrow("pyarrow.parquet").ParquetWriter(path, wanted, compression="zstd") as writer:
        for batch in in_batches(rows, _ROWS_AT_ONCE):
            writer.write_table(pa.Table.from_pylist(batch, schema=wanted))
