"""Data sources for notebooks (docs/spark.md), including ``kretain.commits`` and ``kretain.offsets``.

::

    from retention_cli.spark import register
    register(spark)
    spark.read.format("kretain.commits").option("bootstrap.servers", "broker:9092").load()

Common options: ``bootstrap.servers``; ``command.config``, the path of a file with connection settings that exists on
the driver and on every executor (no secret is an option); ``topics``, comma-separated globs; ``timeout`` (a duration).
``kretain.commits`` has ``groups``, globs; ``kretain.offsets`` has ``times``, moments to look up (Unix ms or ISO 8601).
"""

from __future__ import annotations

import atexit
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from retention_cli.brokers.errors import BrokerError, SettingsError
from retention_cli.brokers.groups import ListedGroup
from retention_cli.brokers.metadata import ClusterMetadata, TopicMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.client_files import Setting, read_properties, translate
from retention_cli.core.clock import SYSTEM
from retention_cli.core.consumers import plain_name
from retention_cli.core.grouping import by_key, in_batches
from retention_cli.core.model import LookUp, PartitionFacts, TopicFacts, Unknown
from retention_cli.core.units import parse_duration_ms, parse_time_ms
from retention_cli.engines.spark.session import ship_code
from retention_cli.engines.spark.shipping import Row, check_cluster, ddl
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.cluster import observe
from retention_cli.observe.floors.fold import FloorFold, TopicScope
from retention_cli.observe.floors.kafka_groups import Doubt, list_counted, read_groups
from retention_cli.observe.recall import Recall
from retention_cli.observe.request import Prepared, Request
from retention_cli.observe.times import with_lookups
from retention_cli.policy.model import matches
from retention_cli.policy.settings import GroupRules, Settings

T = TypeVar("T")
_GROUPS_A_SLICE: Final = 50
_PARTITIONS_A_SLICE: Final = 1_000
_NO_TYPE: Final[Any] = TopicFacts("", "", internal=False, cleanup_policy=frozenset(), retention_ms=0).timestamp_type

COMMITS: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("kind", pa.string()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("code", pa.string()),
        ("text", pa.string()),
    ]
)
"""One row per group and partition; ``kind`` as in :class:`retention_cli.observe.floors.fold.CommitRow`."""

OFFSETS: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("topic_id", pa.string()),
        ("internal", pa.bool_()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("cleanup_policy", pa.string()),
        ("retention_ms", pa.int64()),
        ("timestamp_type", pa.string()),
        ("log_start", pa.int64()),
        ("high_watermark", pa.int64()),
        ("last_stable_offset", pa.int64()),
        (
            "lookups",
            pa.list_(
                pa.struct(
                    [
                        ("time", pa.int64()),
                        ("data", pa.bool_()),
                        ("offset", pa.int64()),
                        ("timestamp", pa.int64()),
                        ("record", pa.int64()),
                        ("code", pa.string()),
                        ("text", pa.string()),
                    ]
                )
            ),
        ),
        ("unknown", pa.list_(pa.struct([("field", pa.string()), ("code", pa.string()), ("text", pa.string())]))),
        ("read_ms", pa.int64()),
    ]
)
"""One row per partition: S, H, L and look-ups. ``lookups.offset`` is ``offset_at(time)``; null if unknown."""


@dataclass(frozen=True)
class Options:
    """A source's validated options. ``topics`` is empty if the option is not set; ``own`` are the source's own."""

    bootstrap: str | None
    command_config: str | None
    topics: tuple[str, ...]
    timeout_s: float
    own: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str], *own: str) -> Options:
        """Parse the options; ``own`` are the names of those that only this source has.

        Raises:
            SettingsError: an option is unknown or invalid.
            UnitError: a value can't be parsed.
        """
        given = {key.lower(): value for key, value in options.items()}
        known = {"bootstrap.servers", "command.config", "topics", "timeout", "path", *own}
        if unknown := given.keys() - known:
            raise SettingsError(f"unknown option {min(unknown)!r}; options are {', '.join(sorted(known))}")
        if "bootstrap.servers" not in given and "command.config" not in given:
            raise SettingsError("option bootstrap.servers, or a command.config that has it, is needed")
        return cls(
            bootstrap=given.get("bootstrap.servers"),
            command_config=given.get("command.config"),
            topics=comma_separated(given.get("topics", "")),
            timeout_s=parse_duration_ms(given.get("timeout", "30s")) / 1000,
            own={name: given[name] for name in own if name in given},
        )

    def reader(self) -> ClusterReader:
        """Return an unopened reader; the file is read on the machine that calls this."""
        settings = {} if self.command_config is None else read_properties(Path(self.command_config))
        if self.bootstrap is not None:
            settings |= {"bootstrap.servers": Setting(self.bootstrap, "option")}
        return ClusterReader(translate(settings), self.timeout_s)

    @contextmanager
    def reader_at(self, cluster: str) -> Iterator[ClusterReader]:
        """Open a reader on an executor, of the cluster that the driver reached.

        Raises:
            BrokerError: the cluster can't be reached from here, or another cluster answers.
        """
        with self.reader() as reader:
            check_cluster(reader, cluster)
            yield reader

    def takes(self, topic: str) -> bool:
        """Return whether the option ``topics`` includes a topic."""
        return not self.topics or matches(self.topics, topic)


def comma_separated(text: str) -> tuple[str, ...]:
    """Return the comma-separated items."""
    return tuple(one.strip() for one in text.split(",") if one.strip())


class SlicedReader(DataSourceReader):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    """Reads slices of one cluster: each is a partition whose value is the arguments of ``read_slice``."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one slice. If there was nothing to cut, Spark makes one without a value."""
        value = getattr(partition, "value", None)
        return iter(()) if value is None else self.read_slice(*value)

    def read_slice(self, cluster: str, *of: Any) -> Iterator[Any]:
        """Yield a slice's Arrow batches."""
        raise NotImplementedError


class SlicedSource(DataSource):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    """A format of rows that tasks read in slices, with options of its ``own`` in addition to the common ones."""

    format_name: ClassVar[str]
    columns: ClassVar[pa.Schema]
    slices: ClassVar[type[SlicedReader]]
    own: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return cls.format_name

    def schema(self) -> str:
        """Return the columns in Spark's type syntax."""
        return ddl(self.columns)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return a reader for the options."""
        del schema
        return self.slices(Options.of(self.options, *self.own))


def sliced(items: Iterable[T], broker_of: Callable[[T], int | None], most: int) -> list[list[T]]:
    """Return the items in slices of at most this many, all of one broker. Pure."""
    led = by_key((broker_of(item), item) for item in items)
    return [some for theirs in led.values() for some in in_batches(theirs, most)]


class CommitsReader(SlicedReader):
    """Reads groups' committed offsets, a coordinator's groups one after the other. Rows as :data:`COMMITS`."""

    def partitions(self) -> Sequence[InputPartition]:
        """List the groups, if the listing is complete (F8, F9).

        Raises:
            BrokerError: the listing is incomplete, or brokers did not answer.
        """
        options = self.options
        patterns = comma_separated(options.own.get("groups", "*"))
        with options.reader() as reader:
            metadata = reader.metadata()
            found = list_counted(reader, GroupRules(ignore=()), metadata, time.monotonic() + options.timeout_s)
            if isinstance(found, Doubt):
                raise BrokerError(found.reason.text)
            wanted = [one for one in found.counted if matches(patterns, one.name)]
            coordinators = reader.coordinators([one.name for one in wanted])
        counts = {name: max(one.partitions) + 1 for name, one in metadata.topics.items() if options.takes(name)}
        return [
            InputPartition((metadata.cluster_id, groups, counts))
            for groups in sliced(wanted, lambda one: coordinators.get(one.name), _GROUPS_A_SLICE)
        ]

    def read_slice(
        self, cluster: str, groups: Sequence[ListedGroup], counts: Mapping[str, int]
    ) -> Iterator[pa.RecordBatch]:
        """Read some groups. One that can't be read is a row of kind ``failed``."""
        scopes = {name: TopicScope([-1] * count) for name, count in counts.items()}
        fold = FloorFold(scopes, with_rows=True)
        try:
            with self.options.reader_at(cluster) as reader:
                recall = Recall(Ledger(None), GroupRules(), SYSTEM.wall_ms(), SYSTEM.wall_ms)
                read_groups(reader, groups, fold, recall, self.options.timeout_s)
        except BrokerError as error:
            fold = FloorFold(scopes, with_rows=True)
            for group in groups:
                fold.fail(group.name, str(error), None)
        if rows := [{**row._asdict(), "group": plain_name(row.group), "cluster": cluster} for row in fold.rows or ()]:
            yield pa.RecordBatch.from_pylist(rows, schema=COMMITS)


class OffsetsReader(SlicedReader):
    """Reads log start and end offsets, and looks times up, at each partition's leader. Rows as :data:`OFFSETS`."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._times = tuple(parse_time_ms(one) for one in comma_separated(options.own.get("times", "")))

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the topics' partitions into slices of one leader each.

        Raises:
            BrokerError: no broker answered.
        """
        with self.options.reader() as reader:
            metadata = reader.metadata()
        names = [name for name in sorted(metadata.topics) if self.options.takes(name)]
        found = []
        for some in sliced(metadata.partitions_of(names).items(), lambda place: place[1].leader, _PARTITIONS_A_SLICE):
            topics = by_key((tp.topic, (tp.partition, place)) for tp, place in some)
            theirs = {name: replace(metadata.topics[name], partitions=dict(those)) for name, those in topics.items()}
            found.append(InputPartition((metadata.cluster_id, theirs)))
        return found

    def read_slice(self, cluster: str, topics: Mapping[str, TopicMetadata]) -> Iterator[pa.RecordBatch]:
        """Read some partitions. A field that can't be read is null, and ``unknown`` has the reason."""
        metadata = ClusterMetadata(cluster, frozenset(), topics)
        partitions = metadata.partitions_of()
        settings = Settings()
        # No commits are read, and the floors not asked for.
        floors = FloorFold({name: TopicScope([-1] * (max(one.partitions) + 1)) for name, one in topics.items()})
        with self.options.reader_at(cluster) as reader:
            seen = observe(
                reader,
                Request(
                    lambda _topic: settings,
                    GroupRules(),
                    SYSTEM.wall_ms(),
                    decides=False,
                    prepared=Prepared(metadata, floors, reader.topic_configs(list(topics))),
                ),
            )
            deadline = time.monotonic() + self.options.timeout_s
            facts = with_lookups(reader, seen.facts, self._times, partitions, deadline)
        rows = [
            {
                **facts_row(found),
                "cluster": cluster,
                "leader": partitions[tp].leader,
                "leader_epoch": partitions[tp].leader_epoch,
                "read_ms": seen.ends_read_ms,
            }
            for tp, found in facts.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=OFFSETS)


def facts_row(facts: PartitionFacts) -> Row:
    """Return a partition's facts as a row of :data:`OFFSETS`."""
    unknown: list[Row] = []

    def plain(name: str, value: Any, default: Unknown | None = None) -> Any:
        if not isinstance(value, Unknown):
            return value
        if value != default:
            unknown.extend({"field": name, "code": one.code, "text": one.text} for one in value.reasons)
        return None

    topic = facts.topic
    policy = plain("cleanup_policy", topic.cleanup_policy)
    return {
        "topic": topic.name,
        "partition": facts.partition,
        "topic_id": plain("topic_id", topic.topic_id),
        "internal": topic.internal,
        "cleanup_policy": None if policy is None else ",".join(sorted(policy)),
        "retention_ms": plain("retention_ms", topic.retention_ms),
        "timestamp_type": plain("timestamp_type", topic.timestamp_type, _NO_TYPE),
        "log_start": plain("log_start", facts.log_start),
        "high_watermark": plain("high_watermark", facts.high_watermark),
        "last_stable_offset": plain("last_stable_offset", facts.last_stable_offset),
        "lookups": [_lookup_row(at, plain(f"time:{at}", found)) for at, found in facts.lookups.items()],
        "unknown": unknown,
    }


def _lookup_row(time_ms: int, found: LookUp | None) -> Row:
    row: Row = {"time": time_ms, "data": False}
    if found is not None:
        row |= {"offset": found.offset, "timestamp": found.timestamp, "record": found.record}
        if found.note is not None:
            row |= {"code": found.note.code, "text": found.note.text}
    return row


class CommitsSource(SlicedSource):
    """``kretain.commits``."""

    format_name = "kretain.commits"
    columns = COMMITS
    slices = CommitsReader
    own = ("groups",)


class OffsetsSource(SlicedSource):
    """``kretain.offsets``."""

    format_name = "kretain.offsets"
    columns = OFFSETS
    slices = OffsetsReader
    own = ("times",)


def register(session: Any) -> None:
    """Register the formats with a session, and send kretain's code to its executors: for notebooks."""
    folder = tempfile.TemporaryDirectory(prefix="kretain-spark-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)  # executors may fetch the code at any time
    ship_code(session, Path(folder.name))
    for source in (CommitsSource, OffsetsSource):
        session.dataSource.register(source)
