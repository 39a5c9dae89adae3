"""Consumers' positions over Spark, with rows collected one by one (:mod:`retention_cli.reports.offsets`)."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from retention_cli.core.consumers import OUTSIDE, plain_name
from retention_cli.core.grouping import SameReasons
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.progress import Progress, silent
from retention_cli.engines.spark.commits import read_commits
from retention_cli.engines.spark.fact_tasks import Reading, slice_reader
from retention_cli.engines.spark.frames import ArrowTask, batches_of, kept
from retention_cli.engines.spark.jobs import ClusterJob
from retention_cli.engines.spark.packing import CONNECTIONS
from retention_cli.engines.spark.places import Places
from retention_cli.engines.spark.prepare import Prepared, Target, let_go_of_metadata, open_memory
from retention_cli.engines.spark.schemas import FLOORS, LOGS, ddl
from retention_cli.engines.spark.sent import Sender
from retention_cli.engines.spark.unread import log_row, unread_frame
from retention_cli.policy.model import matches
from retention_cli.policy.selection import check_matches
from retention_cli.reports.offsets import ListedRows, Positions, Row, Rows, floor_row, is_shown
from retention_cli.reports.unread import ORDER, sort_key
from retention_cli.reports.unread import Rows as UnreadRows

_PLACE: Final = ("topic", "partition")
IN_MEMORY: Final = 50_000
"""At most this many rows are sorted by the client."""


@contextlib.contextmanager
def read_positions(
    sender: Sender,
    target: Target,
    now_ms: int,
    *,
    groups: Collection[str] = (),
    unread: UnreadRows | None = None,
    connections: int = CONNECTIONS,
    progress: Progress = silent,
) -> Iterator[Positions]:
    """Read floors and ends, like :func:`retention_cli.reports.offsets.read_positions`. Nothing is remembered.

    With ``unread`` the groups' rows are those of :func:`retention_cli.reports.unread.read_unread`.

    Spark keeps the rows while the context is open: only rows to be shown are collected to the client.

    Raises:
        BrokerError: the cluster's metadata could not be read.
        NothingMatchesError: a TOPIC, or the policy, matches nothing.
    """
    progress("topics")
    prepared = _prepare(target, now_ms, unread=unread is not None)
    open_memory(prepared)
    prepared.connected()
    with contextlib.ExitStack() as stack:
        wanted = bool(groups) or unread is not None
        commits = stack.enter_context(read_commits(sender, [prepared], progress, connections, rows=wanted))
        known = {prepared.cluster: sender.send(prepared.recalled)}
        read = slice_reader(commits.jobs, known, commits.tasks, commits.sources)
        floors = kept(commits.arrived().mapInArrow(_log_task(read), ddl(LOGS)), stack)
        progress("log ends")
        rows = FrameFloors(floors.select(*FLOORS.names))
        positions: Rows = ListedRows()
        if unread is not None:
            found = kept(unread_frame(floors, _chosen(commits.of_groups(), groups), unread), stack)
            positions = FrameRows(found, ORDER[unread], "records")
        elif groups:
            found = kept(_groups(floors, commits.of_groups(), groups), stack)
            positions = FrameRows(found, ("topic", "partition", "group"))
        yield Positions(prepared.cluster, target.reader.settings.bootstrap, rows, positions)


def _prepare(target: Target, now_ms: int, *, unread: bool) -> Prepared:
    """Read the metadata: for every topic shown, whether or not it may be trimmed."""
    reader, selection = target.reader, target.selection
    metadata = reader.metadata()
    check_matches(selection, metadata.topics.keys())
    settings = {
        name: found
        for name, about in sorted(metadata.topics.items())
        if is_shown(name, selection, internal=about.internal) and (found := selection.settings_for(name)) is not None
    }
    job = ClusterJob(
        timeout_s=reader.timeout_s,
        groups=selection.policy.groups,
        now_ms=now_ms,
        places=Places.of(metadata, settings),
        settings=settings,
        partitions={name: max(metadata.topics[name].partitions) + 1 for name in settings},
        topic_ids=metadata.topic_ids,
        ends_only=True,
        unread=unread,
    )
    prepared = Prepared(target, selection, metadata, job)
    let_go_of_metadata(prepared)
    return prepared


def _log_task(read: Reading) -> ArrowTask:
    """Return the task that reads log ends at their leaders: to rows of ``schemas.LOGS``."""

    def rows(batches: Iterator[Any]) -> Iterator[Row]:
        for _piece, slices in read(batches):
            for one in slices:
                for facts, ends in zip(one.facts, one.told["ends"], strict=True):
                    yield {**floor_row(facts), **log_row(facts, ends)}

    return lambda batches: batches_of(rows(batches), LOGS)


def _groups(floors: Any, commits: Any, patterns: Collection[str]) -> Any:
    """Return the positions of the groups that match, like :func:`~retention_cli.reports.offsets.group_row`."""
    from pyspark.sql import functions as f

    mine = _chosen(commits.where("kind = 'commit'"), patterns)
    ends = floors.select("topic", "partition", "high_watermark")
    lag = f.col("high_watermark") - f.col("offset")
    columns = ("topic", "partition", "group", f.col("offset").alias("committed"), lag.alias("lag"))
    return mine.join(ends, [*_PLACE]).select(*columns)


def _chosen(commits: Any, patterns: Collection[str]) -> Any:
    """Return the rows of the consumers whose names match, with their plain names."""
    from pyspark.sql import functions as f

    if "*" not in patterns:
        keys = [row["group"] for row in commits.select("group").distinct().collect()]
        commits = commits.where(f.col("group").isin([key for key in keys if matches(patterns, plain_name(key))]))
    return commits.withColumn("group", f.regexp_replace("group", f"^{OUTSIDE}", ""))


class FrameRows:
    """A frame's rows (:class:`retention_cli.reports.offsets.Rows`). Counting them makes Spark read them.

    Args:
        frame: a persisted frame.
        order: the columns that rows are sorted by, null first.
        by: the column of what is furthest.
    """

    def __init__(self, frame: Any, order: Sequence[str], by: str = "lag") -> None:
        self._frame = frame
        self._order = order
        self._by = by
        self._count: int = frame.count()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        if self._count > IN_MEMORY:
            ordered = self._frame.sort(*self._order)
            return (row.asDict(recursive=True) for row in ordered.toLocalIterator(prefetchPartitions=True))
        rows = (row.asDict(recursive=True) for row in self._frame.collect())
        return iter(sorted(rows, key=lambda row: sort_key(row, self._order)))

    def most_lagging(self, most: int) -> list[Row]:
        """See :class:`retention_cli.reports.offsets.Rows`."""
        from pyspark.sql import functions as f

        first = self._frame.orderBy(-f.coalesce(self._by, f.lit(0)), *self._order).limit(most)
        return [row.asDict(recursive=True) for row in first.collect()]


class FrameFloors(FrameRows):
    """Floors in a persisted frame (:class:`retention_cli.reports.offsets.FloorRows`)."""

    def __init__(self, frame: Any) -> None:
        from pyspark.sql import functions as f

        super().__init__(frame, _PLACE)
        self._without = frame.where(f.col("min_commit").isNull() & (f.size("reasons") > 0))
        self.with_floor: int = frame.where(f.col("min_commit").isNotNull()).count()
        self.unknown: int = self._without.count()

    def grouped(self, most: int, topics: int) -> tuple[Sequence[SameReasons], int]:
        """See :class:`retention_cli.reports.offsets.FloorRows`."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        by_topic = self._without.groupBy("reasons", "topic").agg(
            f.sort_array(f.collect_list("partition")).alias("some")
        )
        ranked = by_topic.withColumn("rank", f.row_number().over(Window.partitionBy("reasons").orderBy("topic")))
        first = f.when(f.col("rank") <= topics, f.struct("topic", "some"))
        kinds = ranked.groupBy("reasons").agg(
            f.sum(f.size("some")).alias("count"),
            f.count("*").alias("topics"),
            f.sort_array(f.collect_list(first)).alias("places"),
        )
        kinds = kinds.withColumn("first", f.struct(f.col("places")[0]["topic"], f.col("places")[0]["some"][0]))
        found = kinds.orderBy(f.col("count").desc(), "first").limit(most).collect()
        return [_group(row) for row in found], len(found) if len(found) < most else kinds.count()


def _group(row: Any) -> SameReasons:
    reasons = tuple(Reason(one["code"], one["text"]) for one in row["reasons"])
    places = [TopicPartition(one["topic"], number) for one in row["places"] for number in one["some"]]
    return SameReasons(reasons, row["count"], row["topics"], places)
