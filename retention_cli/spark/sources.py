"""Data sources for anyone's notebook: ``kretain.commits`` and ``kretain.offsets`` (docs/spark.md has the columns).

::

    from retention_cli.spark import register
    register(spark)
    spark.read.format("kretain.commits").option("bootstrap.servers", "broker:9092").load()

Options: ``bootstrap.servers``; ``command.config``, the path of a file with connection settings that lies on the
driver and on every executor (no secret is an option); ``topics`` and ``groups``, globs with commas between;
``timeout`` (a duration); ``times`` (``kretain.offsets``): moments to look up, Unix ms or ISO 8601.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, In, InputPartition

from retention_cli import lookups
from retention_cli.brokers.client_files import Setting, read_properties, translate
from retention_cli.brokers.errors import BrokerError, SettingsError
from retention_cli.brokers.groups import ListedGroup
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.decide import Wanted
from retention_cli.floors.kafka_groups import Doubt, Recall, list_counted, read_groups
from retention_cli.floors.rows import CommitRows
from retention_cli.memory import NoMemory
from retention_cli.model import Floor, Maybe, PartitionFacts, TopicPartition, Unknown
from retention_cli.observation import Prepared, Request, wall_clock_ms
from retention_cli.observe import observe
from retention_cli.policy.model import matches
from retention_cli.policy.settings import DEFAULT_SCAN_RECORDS, GroupRules, Settings
from retention_cli.progress import silent
from retention_cli.spark.commit_tasks import commit_batch
from retention_cli.spark.fact_rows import facts_row
from retention_cli.spark.prepare import leader_of
from retention_cli.spark.schemas import COMMITS, OFFSETS, ddl
from retention_cli.spark.slices import GROUPS_A_SLICE, NO_BROKER, PARTITIONS_A_SLICE, sliced
from retention_cli.units import parse_duration_ms, parse_time_ms


@dataclass(frozen=True)
class Options:
    """A source's options, read and checked."""

    bootstrap: str | None
    command_config: str | None
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    times: tuple[int, ...]
    timeout_s: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Options:
        """Read them.

        Raises:
            SettingsError: one is not known, or wrong.
        """
        given = {key.lower(): value for key, value in options.items()}
        known = {"bootstrap.servers", "command.config", "topics", "groups", "times", "timeout", "path"}
        if unknown := given.keys() - known:
            raise SettingsError(f"unknown option {min(unknown)!r}; options are {', '.join(sorted(known))}")
        if "bootstrap.servers" not in given and "command.config" not in given:
            raise SettingsError("option bootstrap.servers, or a command.config that has it, is needed")
        return cls(
            bootstrap=given.get("bootstrap.servers"),
            command_config=given.get("command.config"),
            topics=_words(given.get("topics", "*")),
            groups=_words(given.get("groups", "*")),
            times=tuple(parse_time_ms(one) for one in _words(given.get("times", ""))),
            timeout_s=parse_duration_ms(given.get("timeout", "30s")) / 1000,
        )

    def reader(self) -> ClusterReader:
        """Return an unopened reader; the file is read where this runs."""
        settings = {} if self.command_config is None else read_properties(Path(self.command_config))
        if self.bootstrap is not None:
            settings |= {"bootstrap.servers": Setting(self.bootstrap, "option")}
        return ClusterReader(translate(settings), self.timeout_s)


def _words(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


@dataclass
class Pushed:
    """What filters leave to read: names and partitions that are asked for, None where all are."""

    values: dict[str, frozenset[Any]] = field(default_factory=dict)

    def take(self, filters: Sequence[Filter], columns: Sequence[str]) -> Iterable[Filter]:
        """Keep what can be used; all are given back, so that Spark checks them, too."""
        for one in filters:
            name = ".".join(getattr(one, "attribute", ()))
            if name in columns and isinstance(one, EqualTo | In):
                wanted = frozenset([one.value] if isinstance(one, EqualTo) else one.value)
                self.values[name] = self.values.get(name, wanted) & wanted
        return filters

    def allows(self, column: str, value: Any) -> bool:
        """Return whether rows with this value are wanted."""
        return column not in self.values or value in self.values[column]


@dataclass
class _GroupSlice(InputPartition):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    cluster: str
    groups: tuple[ListedGroup, ...]
    partitions: dict[str, int]

    def __post_init__(self) -> None:
        super().__init__(None)


class CommitsReader(DataSourceReader):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    """Reads groups' committed offsets, a coordinator's groups after each other. Rows as ``schemas.COMMITS``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's own name)
        """Read only the groups and topics that are asked for."""
        return self._pushed.take(filters, ("group", "topic"))

    def partitions(self) -> Sequence[InputPartition]:
        """List the groups, where the listing is whole (RULES.md F8, F9).

        Raises:
            BrokerError: it is not, or brokers did not answer.
        """
        options = self._options
        with options.reader() as reader:
            metadata = reader.metadata()
            found = list_counted(reader, GroupRules(ignore=()), metadata, _deadline(options.timeout_s))
            if isinstance(found, Doubt):
                raise BrokerError(found.reason.text)
            wanted = [
                one
                for one in found.counted
                if matches(options.groups, one.name) and self._pushed.allows("group", one.name)
            ]
            coordinators = reader.coordinators([one.name for one in wanted])
        counts = {
            name: max(one.partitions) + 1
            for name, one in metadata.topics.items()
            if matches(options.topics, name) and self._pushed.allows("topic", name)
        }
        slices: dict[int, list[ListedGroup]] = {}
        for number, group in sliced(wanted, lambda one: coordinators.get(one.name, NO_BROKER), GROUPS_A_SLICE):
            slices.setdefault(number, []).append(group)
        return [_GroupSlice(metadata.cluster_id, tuple(groups), counts) for groups in slices.values()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice. A group that can't be read is a row of kind ``failed``."""
        assert isinstance(partition, _GroupSlice)  # noqa: S101  (partitions() makes no others)
        sink = CommitRows(partition.partitions)
        try:
            with self._options.reader() as reader:
                recall = Recall(NoMemory(), GroupRules(), wall_clock_ms())
                read_groups(reader, partition.groups, sink, self._options.timeout_s, silent, None, recall)
        except BrokerError as error:
            sink = CommitRows(partition.partitions)
            for group in partition.groups:
                sink.fail(group.name, str(error), None)
        if rows := sink.take():
            yield commit_batch(partition.cluster, rows)


@dataclass
class _PartitionSlice(InputPartition):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    cluster: str
    topics: dict[str, TopicMetadata]

    def __post_init__(self) -> None:
        super().__init__(None)


class _NoFloors:
    """Nobody asks for floors here."""

    def floor(self, tp: TopicPartition, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
        """Return that there is none."""
        del tp, log_start, high_watermark
        return Unknown.because("F4", "not read")

    def epochs_to_check(self) -> list[tuple[TopicPartition, int]]:
        """Return none."""
        return []

    def epoch_ends_at(self, tp: TopicPartition, epoch: int, end: Maybe[int]) -> None:
        """Never called."""


class OffsetsReader(DataSourceReader):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    """Reads where logs start and end, and looks times up, at each partition's leader. Rows as ``schemas.OFFSETS``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's own name)
        """Read only the topics and partitions that are asked for."""
        return self._pushed.take(filters, ("topic", "partition"))

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the topics' partitions into slices of one leader each.

        Raises:
            BrokerError: nobody answered.
        """
        with self._options.reader() as reader:
            metadata = reader.metadata()
        wanted = [
            (topic, number, one)
            for name, topic in sorted(metadata.topics.items())
            if matches(self._options.topics, name) and self._pushed.allows("topic", name)
            for number, one in sorted(topic.partitions.items())
            if self._pushed.allows("partition", number)
        ]
        slices: dict[int, dict[str, dict[int, PartitionMetadata]]] = {}
        for slice_number, (topic, number, one) in sliced(wanted, lambda item: leader_of(item[2]), PARTITIONS_A_SLICE):
            slices.setdefault(slice_number, {}).setdefault(topic.name, {})[number] = one
        return [
            _PartitionSlice(
                metadata.cluster_id,
                {name: replace(metadata.topics[name], partitions=some) for name, some in topics.items()},
            )
            for topics in slices.values()
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice. What can't be read is null, and ``unknown`` says why."""
        assert isinstance(partition, _PartitionSlice)  # noqa: S101  (partitions() makes no others)
        metadata = ClusterMetadata(partition.cluster, frozenset(), partition.topics)
        places = {
            TopicPartition(name, number): one
            for name, topic in partition.topics.items()
            for number, one in topic.partitions.items()
        }
        settings = Settings()
        with self._options.reader() as reader:
            configs = reader.topic_configs(list(partition.topics))
            request = Request(
                lambda _topic: settings,
                GroupRules(),
                wall_clock_ms(),
                only=places.keys(),
                sizes=False,
                lookups=False,
                prepared=Prepared(metadata, _NoFloors(), configs),
            )
            seen = observe(reader, request)
            facts = self._with_times(reader, dict(seen.facts), places)
        rows = [
            {
                **facts_row(one),
                "cluster": partition.cluster,
                "leader": places[tp].leader,
                "leader_epoch": places[tp].leader_epoch,
                "read_ms": seen.ends_read_ms,
            }
            for tp, one in facts.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=OFFSETS)

    def _with_times(
        self,
        reader: ClusterReader,
        facts: dict[TopicPartition, PartitionFacts],
        leaders: Mapping[TopicPartition, PartitionMetadata],
    ) -> dict[TopicPartition, PartitionFacts]:
        times = self._options.times
        wanted = {
            tp: Wanted(frozenset(times))
            for tp, one in facts.items()
            if times
            and not one.empty
            and not isinstance(one.log_start, Unknown)
            and not isinstance(one.high_watermark, Unknown)
        }
        if not wanted:
            return facts
        limits = dict.fromkeys((tp.topic for tp in wanted), DEFAULT_SCAN_RECORDS)
        found: dict[TopicPartition, dict[int, Any]] = {tp: {} for tp in wanted}
        for one in lookups.look_up(reader, facts, wanted, leaders, limits, _deadline(self._options.timeout_s)):
            found[one.tp][one.time_ms] = one.answer
        return facts | {tp: replace(facts[tp], lookups=answers) for tp, answers in found.items()}


def _deadline(seconds: float) -> float:
    return time.monotonic() + seconds


class CommitsSource(DataSource):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    """``kretain.commits``."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kretain.commits"

    def schema(self) -> str:
        """Return the columns (``schemas.COMMITS``)."""
        return ddl(COMMITS)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return a reader by the options."""
        del schema
        return CommitsReader(Options.of(self.options))


class OffsetsSource(DataSource):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    """``kretain.offsets``."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kretain.offsets"

    def schema(self) -> str:
        """Return the columns (``schemas.OFFSETS``)."""
        return ddl(OFFSETS)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return a reader by the options."""
        del schema
        return OffsetsReader(Options.of(self.options))


SOURCES: Final[tuple[type[DataSource], ...]] = (CommitsSource, OffsetsSource)
