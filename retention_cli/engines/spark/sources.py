"""Data sources for notebooks (docs/spark.md), including ``kretain.commits`` and ``kretain.offsets``.

::

    from retention_cli.engines.spark import register
    register(spark)
    spark.read.format("kretain.commits").option("bootstrap.servers", "broker:9092").load()

Common options: ``bootstrap.servers``; ``command.config``, the path of a file with connection settings that exists on
the driver and on every executor (no secret is an option); ``topics``, comma-separated globs; ``timeout`` (a duration).
``kretain.commits`` has ``groups``, globs; ``kretain.offsets`` has ``times``, moments to look up (Unix ms or ISO 8601).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.groups import ListedGroup
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.core.clock import SYSTEM
from retention_cli.core.consumers import plain_name
from retention_cli.core.progress import silent
from retention_cli.core.units import parse_time_ms
from retention_cli.engines.spark.fact_rows import facts_row
from retention_cli.engines.spark.schemas import COMMITS, OFFSETS
from retention_cli.engines.spark.slices import GROUPS_A_SLICE, NO_BROKER, partition_slices, sliced
from retention_cli.engines.spark.source_options import Options, Slice, SlicedReader, SlicedSource, comma_separated
from retention_cli.memory.interface import NoMemory
from retention_cli.observe.cluster import observe
from retention_cli.observe.floors.fold import FloorFold, TopicScope
from retention_cli.observe.floors.kafka_groups import Doubt, list_counted, read_groups
from retention_cli.observe.floors.recall import Recall
from retention_cli.observe.floors.rows import CommitRow, CommitRows
from retention_cli.observe.request import Prepared, Request
from retention_cli.observe.times import with_lookups
from retention_cli.policy.model import matches
from retention_cli.policy.settings import GroupRules, Settings


@dataclass
class _GroupSlice(Slice):
    groups: tuple[ListedGroup, ...]
    partitions: dict[str, int]


class CommitsReader(SlicedReader):
    """Reads groups' committed offsets, a coordinator's groups one after the other. Rows as ``schemas.COMMITS``."""

    pushed_columns = ("group", "topic")

    def partitions(self) -> Sequence[InputPartition]:
        """List the groups, if the listing is complete (F8, F9).

        Raises:
            BrokerError: the listing is incomplete, or brokers did not answer.
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
                read_groups(reader, one.groups, one.partitions, sink, self.options.timeout_s, silent, None, recall)
        except BrokerError as error:
            sink = CommitRows(one.partitions)
            for group in one.groups:
                sink.fail(group.name, str(error), None)
        if rows := [row._replace(group=plain_name(row.group)) for row in sink.take()]:
            yield commit_batch(one.cluster, rows)


def commit_batch(cluster: str, rows: Sequence[CommitRow]) -> pa.RecordBatch:
    """Return rows as a batch of ``schemas.COMMITS``."""
    group, topic, partition, kind, offset, epoch, code, text = zip(*rows, strict=True)
    columns = ([cluster] * len(rows), group, topic, partition, kind, offset, epoch, code, text)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, COMMITS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=COMMITS)


@dataclass
class _PartitionSlice(Slice):
    topics: dict[str, TopicMetadata]


class OffsetsReader(SlicedReader):
    """Reads log start and end offsets, and looks times up, at each partition's leader. Rows as ``schemas.OFFSETS``."""

    pushed_columns = ("topic", "partition")

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
        places = {
            tp: one
            for tp, one in metadata.places(name for name in names if self.pushed.allows("topic", name)).items()
            if self.pushed.allows("partition", tp.partition)
        }
        slices: dict[int, dict[str, dict[int, PartitionMetadata]]] = {}
        for slice_number, tp, place in partition_slices(places):
            slices.setdefault(slice_number, {}).setdefault(tp.topic, {})[tp.partition] = place
        return [
            _PartitionSlice(
                metadata.cluster_id,
                {name: replace(metadata.topics[name], partitions=some) for name, some in topics.items()},
            )
            for topics in slices.values()
        ]

    def read_slice(self, one: _PartitionSlice) -> Iterator[pa.RecordBatch]:
        """Read one slice. A field that can't be read is null, and ``unknown`` has the reason."""
        metadata = ClusterMetadata(one.cluster, frozenset(), one.topics)
        places = metadata.places()
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
                prepared=Prepared(metadata, FloorFold(_scopes(one.topics)), configs),
            )
            seen = observe(reader, request)
            facts = with_lookups(reader, seen.facts, self._times, places, self.options.deadline())
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


def _scopes(topics: Mapping[str, TopicMetadata]) -> dict[str, TopicScope]:
    """Return the scopes of topics of which no commits are read: their floors are not asked for."""
    return {name: TopicScope([-1] * (max(one.partitions) + 1)) for name, one in topics.items()}


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


SOURCES: Final[tuple[type[DataSource], ...]] = (CommitsSource, OffsetsSource)
