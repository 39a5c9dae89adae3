"""Data sources for anyone's notebook (docs/spark.md); ``kretain.commits`` and ``kretain.offsets`` are here.

::

    from retention_cli.engines.spark import register
    register(spark)
    spark.read.format("kretain.commits").option("bootstrap.servers", "broker:9092").load()

Options of all: ``bootstrap.servers``; ``command.config``, the path of a file with connection settings that lies on the
driver and on every executor (no secret is an option); ``topics``, globs with commas between; ``timeout`` (a duration).
``kretain.commits`` has ``groups``, globs; ``kretain.offsets`` has ``times``, moments to look up (Unix ms or ISO 8601).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.groups import ListedGroup
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import Floor, Maybe, PartitionFacts, TopicPartition, Unknown
from retention_cli.core.progress import silent
from retention_cli.core.units import parse_time_ms
from retention_cli.decide.decision import Wanted
from retention_cli.engines.spark.commit_tasks import commit_batch
from retention_cli.engines.spark.fact_rows import facts_row
from retention_cli.engines.spark.prepare import leader_of
from retention_cli.engines.spark.record_source import RecordsSource
from retention_cli.engines.spark.schemas import COMMITS, OFFSETS
from retention_cli.engines.spark.size_source import SizesSource
from retention_cli.engines.spark.slices import GROUPS_A_SLICE, NO_BROKER, PARTITIONS_A_SLICE, sliced
from retention_cli.engines.spark.source_options import Options, Slice, SlicedReader, SlicedSource, comma_separated
from retention_cli.memory.interface import NoMemory
from retention_cli.observe import lookups
from retention_cli.observe.cluster import observe
from retention_cli.observe.floors.kafka_groups import Doubt, Recall, list_counted, read_groups
from retention_cli.observe.floors.rows import CommitRows
from retention_cli.observe.floors.standing import EpochEnd
from retention_cli.observe.request import Prepared, Request
from retention_cli.policy.model import matches
from retention_cli.policy.settings import DEFAULT_SCAN_RECORDS, GroupRules, Settings


@dataclass
class _GroupSlice(Slice):
    groups: tuple[ListedGroup, ...]
    partitions: dict[str, int]


class CommitsReader(SlicedReader):
    """Reads groups' committed offsets, a coordinator's groups after each other. Rows as ``schemas.COMMITS``."""

    pushed_columns = ("group", "topic")

    def partitions(self) -> Sequence[InputPartition]:
        """List the groups, where the listing is whole (F8, F9).

        Raises:
            BrokerError: it is not, or brokers did not answer.
        """
        options = self.options
        patterns = comma_separated(options.own.get("groups", "*"))
        with options.reader() as reader:
            metadata = reader.metadata()
            found = list_counted(reader, GroupRules(ignore=()), metadata, options.deadline())
            if isinstance(found, Doubt):
                raise BrokerError(found.reason.text)
            wanted = [
                one for one in found.counted if matches(patterns, one.name) and self.pushed.allows("group", one.name)
            ]
            coordinators = reader.coordinators([one.name for one in wanted])
        counts = {
            name: max(one.partitions) + 1
            for name, one in metadata.topics.items()
            if options.takes(name) and self.pushed.allows("topic", name)
        }
        slices: dict[int, list[ListedGroup]] = {}
        for number, group in sliced(wanted, lambda one: coordinators.get(one.name, NO_BROKER), GROUPS_A_SLICE):
            slices.setdefault(number, []).append(group)
        return [_GroupSlice(metadata.cluster_id, tuple(groups), counts) for groups in slices.values()]

    def read_slice(self, one: _GroupSlice) -> Iterator[pa.RecordBatch]:
        """Read one slice. A group that can't be read is a row of kind ``failed``."""
        sink = CommitRows(one.partitions)
        try:
            with self.options.reader_at(one.cluster) as reader:
                recall = Recall(NoMemory(), GroupRules(), SYSTEM.wall_ms())
                read_groups(reader, one.groups, sink, self.options.timeout_s, silent, None, recall)
        except BrokerError as error:
            sink = CommitRows(one.partitions)
            for group in one.groups:
                sink.fail(group.name, str(error), None)
        if rows := sink.take():
            yield commit_batch(one.cluster, rows)


@dataclass
class _PartitionSlice(Slice):
    topics: dict[str, TopicMetadata]


class _NoFloors:
    """Nobody asks for floors here."""

    def floor(self, tp: TopicPartition, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
        """Return that there is none."""
        del tp, log_start, high_watermark
        return Unknown.because("F4", "not read")

    def epochs_to_check(self) -> list[tuple[TopicPartition, int]]:
        """Return none."""
        return []

    def epoch_ends_at(self, tp: TopicPartition, epoch: int, end: EpochEnd) -> None:
        """Never called."""

    def cut_at(self, tp: TopicPartition, cut: int, epoch: int | None) -> None:
        """Do nothing."""

    def cut_untold(self, tp: TopicPartition) -> None:
        """Do nothing."""


class OffsetsReader(SlicedReader):
    """Reads where logs start and end, and looks times up, at each partition's leader. Rows as ``schemas.OFFSETS``."""

    pushed_columns = ("topic", "partition")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._times = tuple(parse_time_ms(one) for one in comma_separated(options.own.get("times", "")))

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the topics' partitions into slices of one leader each.

        Raises:
            BrokerError: nobody answered.
        """
        with self.options.reader() as reader:
            metadata = reader.metadata()
        wanted = [
            (topic, number, one)
            for name, topic in sorted(metadata.topics.items())
            if self.options.takes(name) and self.pushed.allows("topic", name)
            for number, one in sorted(topic.partitions.items())
            if self.pushed.allows("partition", number)
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

    def read_slice(self, one: _PartitionSlice) -> Iterator[pa.RecordBatch]:
        """Read one slice. What can't be read is null, and ``unknown`` says why."""
        metadata = ClusterMetadata(one.cluster, frozenset(), one.topics)
        places = {
            TopicPartition(name, number): place
            for name, topic in one.topics.items()
            for number, place in topic.partitions.items()
        }
        settings = Settings()
        with self.options.reader_at(one.cluster) as reader:
            configs = reader.topic_configs(list(one.topics))
            request = Request(
                lambda _topic: settings,
                GroupRules(),
                SYSTEM.wall_ms(),
                only=places.keys(),
                sizes=False,
                lookups=False,
                prepared=Prepared(metadata, _NoFloors(), configs),
            )
            seen = observe(reader, request)
            facts = self._with_times(reader, dict(seen.facts), places)
        rows = [
            {
                **facts_row(found),
                "cluster": one.cluster,
                "leader": places[tp].leader,
                "leader_epoch": places[tp].leader_epoch,
                "read_ms": seen.ends_read_ms,
            }
            for tp, found in facts.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=OFFSETS)

    def _with_times(
        self,
        reader: ClusterReader,
        facts: dict[TopicPartition, PartitionFacts],
        leaders: Mapping[TopicPartition, PartitionMetadata],
    ) -> dict[TopicPartition, PartitionFacts]:
        times = self._times
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
        for one in lookups.look_up(reader, facts, wanted, leaders, limits, self.options.deadline()):
            found[one.tp][one.time_ms] = one.answer
        return facts | {tp: facts[tp]._replace(lookups=answers) for tp, answers in found.items()}


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


SOURCES: Final[tuple[type[DataSource], ...]] = (CommitsSource, OffsetsSource, SizesSource, RecordsSource)
