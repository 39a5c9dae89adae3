"""A read-only view of one cluster: all of kretain's reads, and nothing that could change the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, Literal, Self

from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions

from retention_cli.brokers import (
    commits,
    groups,
    log_offsets,
    metadata,
    records,
    rights,
)
from retention_cli.brokers.errors import BrokerError, MissingApiError, RequestFailedError, SettingsError
from retention_cli.brokers.metadata import ClusterMetadata, TopicConfig, TopicValue, Values
from retention_cli.brokers.rights import Writers
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.wire.connections import Wire
from retention_cli.brokers.wire.work import Pending
from retention_cli.core.clock import SYSTEM, Clock
from retention_cli.core.model import TopicPartition

if TYPE_CHECKING:  # methods that read complete records or batches import them
    from retention_cli.brokers import record_columns
    from retention_cli.brokers.schemas import SchemaRegistry

DEFAULT_TIMEOUT_S = 30.0

Elsewhere = Callable[[str], ConnectionSettings]
"""Returns the connection settings of another cluster, by its context; raises a :class:`SettingsError`."""


_READ: Final = {0: "Produce", 1: "Fetch"}
"""librdkafka reads today's batches only where both are offered."""
WRITE: Final = {**_READ, 22: "InitProducerId"}
RESTORE: Final = {
    **WRITE,
    9: "OffsetFetch",
    10: "FindCoordinator",
    42: "DeleteGroups",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
}
"""The APIs that writing to the cluster, and restoring, need."""
_LEAST: Final = {1: 4}
"""The lowest version that fits, by API: by an older Fetch, librdkafka returns aborted records as data."""


def _missing(apis: Mapping[int, str], offered: Mapping[int, tuple[int, int]]) -> str:
    """Return the names of the APIs that are not offered, empty if all are, or if nothing is known."""
    return ", ".join(
        name for key, name in apis.items() if offered and offered.get(key, (0, -1))[1] < _LEAST.get(key, 0)
    )


def _extent(start: log_offsets.Answer, end: log_offsets.Answer) -> records.Range | RequestFailedError:
    if isinstance(start, log_offsets.Found) and isinstance(end, log_offsets.Found):
        return records.Range(start.offset, end.offset)
    none = RequestFailedError("the broker reports none", retriable=False)
    return next((one for one in (start, end) if isinstance(one, RequestFailedError)), none)


class ClusterReader:
    """A connected, read-only view of a cluster. A context manager.

    Args:
        settings: the connection settings.
        timeout_s: the time-out of a request, and of waiting for a coordinator or leader that moves.
        clock: the clock that callers wait and time out by.
        elsewhere: knows other clusters; None if there are no contexts.
        patient: keep trying a cluster that refuses connections until the time-out.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        clock: Clock = SYSTEM,
        elsewhere: Elsewhere | None = None,
        *,
        patient: bool = False,
    ) -> None:
        self.settings = settings
        self.timeout_s = timeout_s
        self.clock = clock
        self._elsewhere = elsewhere
        self.wire = Wire(settings, timeout_s, patient=patient)
        """The connections themselves, only for use within ``brokers/``."""
        self._unsettled: set[str] = set()

    def again(self, timeout_s: float) -> ClusterReader:
        """Return an unopened reader of the same cluster, with connections of its own."""
        return ClusterReader(self.settings, timeout_s, self.clock, self._elsewhere)

    def of_context(self, name: str, timeout_s: float) -> ClusterReader:
        """Return an unopened reader of another cluster.

        Raises:
            SettingsError: there is no such context, or it can't be used.
        """
        if self._elsewhere is None:
            raise SettingsError(f"there are no contexts here, and so no {name}")
        return ClusterReader(self._elsewhere(name), timeout_s, self.clock, self._elsewhere)

    @property
    def pinned_settings(self) -> ConnectionSettings:
        """The settings of a client that reads or writes records, of this cluster alone."""
        return replace(self.settings, cluster_id=self.wire.cluster_id)

    @cached_property
    def schemas(self) -> SchemaRegistry:
        """The schema registry, with the schemas that were fetched from it."""
        from retention_cli.brokers.schemas import SchemaRegistry

        return SchemaRegistry(self.settings.registry, self.timeout_s)

    def __enter__(self) -> Self:
        self.wire.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def brokers(self) -> list[int]:
        """Return the ids of the brokers in the latest metadata."""
        return self.wire.brokers()

    def metadata(
        self, topics: Iterable[str] | None = None, only: Mapping[str, Container[int]] | None = None
    ) -> metadata.ClusterMetadata:
        """Read metadata afresh, of the named topics or of all; ``only`` these partitions of them, by topic.

        Raises:
            BrokerError: no broker answered within the time-out.
        """
        return self.wire.run(metadata.read_metadata, self.wire, topics, self._deadline(), only)

    def agree(self, brokers: frozenset[int]) -> bool:
        """Return whether each broker names exactly these: one cut off from the controllers still names earlier ones."""
        return self.wire.run(metadata.agree, self.wire, brokers)

    def metadata_of_each(self, brokers: Iterable[int], topics: Sequence[str]) -> list[ClusterMetadata]:
        """Return what each of these brokers knows: one may be cut off. From now on only they count as coordinators.

        Raises:
            BrokerError: one of them did not answer.
        """
        self.wire.coordinators = frozenset(brokers)
        return self.wire.run(metadata.read_each_metadata, self.wire, self.wire.coordinators, topics, self._deadline(0))

    def may_describe_cluster(self, brokers: Iterable[int], patience_s: float | None = None) -> bool:
        """Return whether these brokers' listings of groups are complete for this user (F8).

        Raises:
            BrokerError: one of them has not answered after ``patience_s``.
        """
        return self.wire.run(rights.may_describe_cluster, self.wire, list(brokers), self._deadline(patience_s))

    def topic_operations(self) -> dict[str, frozenset[str]]:
        """Return, per topic, which operations this user may do, of those that kretain needs (``ALTER_CONFIGS``, …).

        Raises:
            BrokerError: no broker answered within the time-out.
        """
        return self.wire.run(rights.topic_operations, self.wire, self._deadline())

    def writers(self, topic: str) -> Writers:
        """Return the principals whose ACLs let them write to a topic.

        Raises:
            BrokerError: no broker answered within the time-out, or this user lacks DESCRIBE on the cluster.
        """
        return self.wire.run(rights.writers, self.wire, topic, self._deadline())

    def may_create(self, topic: str) -> Literal["yes", "no", "there"]:
        """Return whether this user may create a topic, or ``there`` if it exists. Creates nothing.

        Raises:
            BrokerError: no broker answered within the time-out, or the one that did does not know.
        """
        return self.wire.run(rights.may_create, self.wire, topic, self._deadline())

    def list_groups(self, brokers: Iterable[int], patience_s: float | None = None) -> list[groups.ListedGroup]:
        """Return the groups of all types that these brokers list, sorted by name.

        Raises:
            BrokerError: a broker did not answer, or was still loading, after ``patience_s``.
        """
        return self.wire.run(groups.list_groups, self.wire, list(brokers), self._deadline(patience_s))

    def coordinators(self, names: Sequence[str]) -> dict[str, int]:
        """Return the groups' coordinators, looked up afresh; a group without one is left out."""
        return self.wire.run(groups.find_coordinators, self.wire, names, self._deadline())[0]

    def group_rights(self, names: Sequence[str], brokers: Iterable[int]) -> dict[str, set[bool | None]]:
        """Return whether this user may describe each group, by what each broker says; None: no answer (F8)."""
        return self.wire.run(groups.group_rights, self.wire, names, list(brokers), self._deadline())

    def hidden_topic(self, brokers: Iterable[int], topics: Iterable[str]) -> tuple[int, str, RequestFailedError] | None:
        """Return a broker that does not let this user describe one of these topics, or may not; None if all let it.

        A broker leaves such a topic out of its groups' commits, without an error.
        """
        first = [TopicPartition(name, 0) for name in topics]  # which only its leader looks up: the others say so
        wanted: list[log_offsets.Wanted] = [dict.fromkeys(first, "latest")]
        ask = partial(self.wire.start, log_offsets.list_offsets, self.wire, wanted)
        leaders = [(one, dict.fromkeys(first, metadata.PartitionMetadata(one, -1))) for one in brokers]
        for broker, pending in [(one, ask(led)) for one, led in leaders]:
            for tp, answer in pending.result()[0].items():
                failed = isinstance(answer, RequestFailedError) and answer
                if failed and (not failed.answered or failed.code == "TOPIC_AUTHORIZATION_FAILED"):
                    return broker, tp.topic, failed
        return None

    def describe_members(
        self, listed: Sequence[groups.ListedGroup], on_group: groups.OnMembers, patience_s: float | None = None
    ) -> None:
        """Call ``on_group`` with each group and the topics that its live members read, or why these are unknown."""
        self.wire.run(groups.describe_members, self.wire, listed, on_group, self._deadline(patience_s), self._unsettled)

    def open_transactions(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, log_offsets.OpenTransaction]:
        """Return the first open transaction in each log that has one, as far as it can be read.

        Raises:
            BrokerError: no broker answered within the time-out.
        """
        wanted = set(partitions)
        leaders = {
            tp: one for tp, one in self.metadata({tp.topic for tp in wanted}).partitions_of().items() if tp in wanted
        }
        return self.wire.run(log_offsets.read_open_transactions, self.wire, leaders)

    def read_pending(
        self, names: Iterable[str], topics: Mapping[str, int], patience_s: float | None = None
    ) -> list[commits.CommitsUnknown]:
        """Return the groups with an offset on ``topics`` that a transaction may still set, after waiting for them."""
        return self.wire.run(commits.read_pending, self.wire, list(names), topics, self._deadline(patience_s))

    def read_share_offsets(self, names: Sequence[str], on_group: commits.OnCommits) -> None:
        """Call ``on_group`` with each share group's start offsets, or why these are unknown."""
        self.wire.run(commits.read_share_offsets, self.wire, names, on_group, self._deadline())

    def read_commits(self, names: Iterable[str], on_group: commits.OnCommits, patience_s: float | None = None) -> None:
        """Call ``on_group`` with each group's stable committed offsets, or why these are unknown."""
        self.wire.run(commits.read_commits, self.wire, list(names), on_group, self._deadline(patience_s))

    def list_offsets(
        self, wanted: Sequence[log_offsets.Wanted], leaders: log_offsets.Leaders
    ) -> list[dict[TopicPartition, log_offsets.Answer]]:
        """Look up offsets, each at its partition's leader; return, per mapping, one answer or error per partition."""
        return self.list_offsets_soon(wanted, leaders).result()

    def list_offsets_soon(
        self, wanted: Sequence[log_offsets.Wanted], leaders: log_offsets.Leaders
    ) -> Pending[list[dict[TopicPartition, log_offsets.Answer]]]:
        """Begin to look up offsets. A few calls may be under way, each with a few requests in flight."""
        return self.wire.start(log_offsets.list_offsets, self.wire, wanted, leaders)

    def extents(
        self, leaders: log_offsets.Leaders, end: Literal["latest", "last-stable"] = "latest"
    ) -> dict[TopicPartition, records.Range | RequestFailedError]:
        """Return where each log begins and ends, or why that can't be read."""
        starts, ends = self.list_offsets([dict.fromkeys(leaders, "earliest"), dict.fromkeys(leaders, end)], leaders)
        return {tp: _extent(starts[tp], ends[tp]) for tp in leaders}

    def epoch_ends(
        self, wanted: Sequence[tuple[TopicPartition, int]], leaders: log_offsets.Leaders
    ) -> dict[tuple[TopicPartition, int], log_offsets.Answer]:
        """Look up where leader epochs end, each at its partition's leader."""
        return self.wire.run(log_offsets.epoch_ends, self.wire, wanted, leaders)

    def topic_configs_soon(
        self, topics: Sequence[str], patience_s: float | None = None, brokers: Iterable[int] | None = None
    ) -> Pending[dict[str, TopicConfig | RequestFailedError]]:
        """Begin to read the result of :meth:`topic_configs`, concurrently with other work."""
        return self.wire.start(metadata.read_topic_configs, self.wire, topics, self._deadline(patience_s), brokers)

    def topic_configs(self, topics: Sequence[str]) -> dict[str, TopicConfig | RequestFailedError]:
        """Return each topic's live settings, or why they can't be read."""
        return self.topic_configs_soon(topics).result()

    def topic_values(self, topics: Sequence[str], keys: Sequence[str]) -> dict[str, Values | RequestFailedError]:
        """Return the named settings of each topic, as Kafka's own texts, or why they can't be read."""
        return self.wire.run(metadata.read_values, self.wire, "topic", topics, keys, self._deadline())

    def own_values(
        self, topics: Sequence[str], keys: Sequence[str]
    ) -> dict[str, Mapping[str, TopicValue] | RequestFailedError]:
        """Return the named settings of each topic, and whether they are its own, or why they can't be read."""
        return self.wire.run(
            partial(metadata.read_values, own=True), self.wire, "topic", topics, keys, self._deadline()
        )

    def values_everywhere(
        self, topic: str, keys: Sequence[str]
    ) -> dict[str, frozenset[TopicValue]] | RequestFailedError:
        """Return a topic's settings as all brokers report them, or why one of them doesn't."""
        return self.wire.run(metadata.read_everywhere, self.wire, topic, keys)

    def broker_values(self, brokers: Iterable[int], keys: Sequence[str]) -> dict[int, Values | RequestFailedError]:
        """Return the named settings of each broker, as Kafka's own texts, or why they can't be read."""
        return self.wire.run(metadata.read_each, self.wire, "broker", {one: str(one) for one in brokers}, keys)

    def sizes_soon(self, leaders: log_offsets.Leaders) -> Pending[tuple[dict[TopicPartition, int], str | None]]:
        """Begin to read the leader replica's bytes per partition, and why some are missing (None: none are)."""
        return self.wire.start(log_offsets.read_sizes, self.wire, leaders)

    def log_dirs(self, brokers: Iterable[int]) -> dict[int, list[log_offsets.LogDirState] | RequestFailedError]:
        """Return each broker's log dirs, or why they could not be read."""
        return self.wire.run(log_offsets.read_log_dirs, self.wire, list(brokers))

    def search_records(
        self, searches: Mapping[TopicPartition, records.Search], seconds: float, *, uncommitted: bool = False
    ) -> dict[TopicPartition, records.Reached | RequestFailedError]:
        """Read records where look-ups were ambiguous, for at most ``seconds``; see :func:`records.search_records`."""
        if (missing := self._unreadable()) is not None:
            return dict.fromkeys(searches, missing)
        return records.search_records(
            self.pinned_settings, searches, time.monotonic() + seconds, uncommitted=uncommitted
        )

    def read_ranges(
        self,
        ranges: Mapping[TopicPartition, records.Range],
        deadline: float | None,
        on_record: records.OnRecord,
        *,
        scan: bool = False,
    ) -> dict[TopicPartition, RequestFailedError | None]:
        """Read the data records of each range; see :func:`retention_cli.brokers.records.read_ranges`."""
        if (missing := self._unreadable()) is not None:
            return dict.fromkeys(ranges, missing)
        return records.read_ranges(self.pinned_settings, ranges, deadline, on_record, scan=scan)

    def read_columns(
        self,
        ranges: Mapping[TopicPartition, records.Range],
        on_columns: record_columns.OnColumns,
        *,
        event_time: Mapping[str, record_columns.EventTimeOf],
        on_read: Callable[[int], None],
        stop: Callable[[], bool] = lambda: False,
    ) -> dict[TopicPartition, records.Ended]:
        """Read the data records of each range; see :func:`retention_cli.brokers.record_columns.read_columns`."""
        from retention_cli.brokers import record_columns

        if (missing := self._unreadable()) is not None:
            return {tp: records.Ended(span.start, missing) for tp, span in ranges.items()}
        return record_columns.read_columns(
            self.pinned_settings,
            ranges,
            on_columns,
            event_time=event_time,
            patience_s=self.timeout_s,
            on_read=on_read,
            stop=stop,
        )

    def read_complete(
        self, tp: TopicPartition, span: records.Range, on_record: Callable[[records.Record], None]
    ) -> int | RequestFailedError:
        """Read one partition's complete data records; see :func:`retention_cli.brokers.records.read_complete`."""
        return self._unreadable() or records.read_complete(self.pinned_settings, tp, span, self.timeout_s, on_record)

    def _unreadable(self) -> MissingApiError | None:
        missing = _missing(_READ, self.wire.offered())
        return MissingApiError(f"this cluster does not offer {missing}") if missing else None

    def check_deletes(self) -> None:
        """Check that the cluster offers DeleteRecords; see :meth:`check_offers`.

        Raises:
            MissingApiError: it does not: nothing can be trimmed.
        """
        self.check_offers({21: "DeleteRecords"}, "nothing can be trimmed")

    def check_offers(self, apis: Mapping[int, str], without: str) -> None:
        """Check that the cluster offers these APIs (by key), according to one broker.

        Raises:
            MissingApiError: it does not; the text says which, and what can't be done ``without`` it.
        """
        answers = (one for one in self.api_versions().values() if not isinstance(one, BrokerError))
        if missing := _missing(apis, self.wire.offered() or next(answers, {})):
            raise MissingApiError(f"this cluster does not offer {missing}: {without}")

    def api_versions(self) -> dict[int, Mapping[int, tuple[int, int]] | BrokerError]:
        """Return the API versions that each broker supports, or why it could not be asked."""
        found: dict[int, Mapping[int, tuple[int, int]] | BrokerError] = {}
        for broker in self.brokers():
            try:
                found[broker] = self.wire.run(self.wire.api_versions, broker)
            except BrokerError as error:
                found[broker] = error
        return found

    def release(self) -> tuple[int, ...] | None:
        """Return the oldest release of Apache Kafka that a broker's APIs match, None if none could be asked."""
        offered = [one for one in self.api_versions().values() if isinstance(one, dict)]
        return min(map(infer_broker_version_from_api_versions, offered), default=None)

    def hosts(self) -> list[str]:
        """Return the host names in the latest metadata, and those of the bootstrap brokers."""
        return self.wire.hosts()

    def _deadline(self, patience_s: float | None = None) -> float:
        return time.monotonic() + (self.timeout_s if patience_s is None else min(patience_s, self.timeout_s))
