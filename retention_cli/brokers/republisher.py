"""Append archived records to a topic, in transactions that also commit the progress, and set groups' offsets.

Only ``kretain restore`` does either; a dry run has no such objects.

The progress of a restore is committed together with the records, as the metadata of an offset of a group of its own. So
both are committed or neither is, even if the restore is killed. The group's offset stays at the partition's start:
until the restore is finished, it holds the topic's floor.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from retention_cli.brokers.errors import BrokerError, RequestFailedError, UnauthorizedError
from retention_cli.brokers.metadata import OFFSETS_TOPIC
from retention_cli.brokers.records import Record, elsewhere, until_silent
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.wire.problems import client_problem, may_pass

_POLL_S: Final = 0.25

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Marked:
    """A restore group's commit on a partition: the offset that it holds, and the restore's progress."""

    offset: int
    progress: str


class RestoreGroup:
    """The consumer group that stores one restore's progress. It has no members.

    Args:
        settings: the connection settings.
        name: the group's name.
        timeout_s: the time-out of a request.
        settled: read marks only after transactions that a killed run left open. This may take until these time out,
            unless a :class:`Republisher` of the partition has ended them. Otherwise, read those committed before them.
    """

    def __init__(self, settings: ConnectionSettings, name: str, timeout_s: float, *, settled: bool = True) -> None:
        self.name = name
        self._settings = settings
        self._timeout_s = timeout_s
        self._isolation = "read_committed" if settled else "read_uncommitted"
        self._consumer: Any = None

    def __enter__(self) -> Self:
        self._consumer = Consumer(
            {
                **self._settings.for_librdkafka(),
                "group.id": self.name,
                "enable.auto.commit": False,
                "isolation.level": self._isolation,
            }
        )
        _check_cluster(self._consumer, self._settings, self._timeout_s)
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def metadata(self) -> Any:
        """The group's metadata, for a transaction."""
        return self._consumer.consumer_group_metadata()

    def marks(self, topic: str, partitions: Iterable[int]) -> dict[int, Marked]:
        """Return the group's marks by partition.

        Raises:
            BrokerError: they can't be read.
        """
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        try:
            answers = _again(
                lambda: self._consumer.committed(wanted, timeout=self._timeout_s), self._timeout_s, may_pass
            )
        except KafkaException as error:
            raise _error(error.args[0], f"group {self.name} can't be read", self._settings) from None
        found = {}
        for one in answers:
            if one.error is not None:
                raise _error(one.error, f"group {self.name} can't be read", self._settings)
            if one.offset >= 0:
                found[one.partition] = Marked(one.offset, one.metadata or "")
        return found

    def delete(self) -> None:
        """Delete the group, so that it no longer holds a floor. Does nothing if it does not exist; needs no entering.

        Raises:
            BrokerError: it could not be deleted.
        """
        client = AdminClient(self._settings.for_librdkafka())
        _check_cluster(client, self._settings, self._timeout_s)
        futures = client.delete_consumer_groups([self.name], request_timeout=self._timeout_s)
        try:
            futures[self.name].result(self._timeout_s + 5)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise _error(error.args[0], f"group {self.name} can't be deleted", self._settings) from None
        except TimeoutError:
            raise BrokerError(f"group {self.name} can't be deleted: no answer in time") from None


class Republisher:
    """Appends to one partition. A context manager; entering it aborts transactions left open under its id.

    Args:
        settings: the connection settings.
        topic: the only topic that it writes to.
        partition: the only partition that it writes to.
        transactional_id: a later Republisher with the same id fences this one.
        group: the group that progress is committed to.
        timeout_s: the time-out of a request.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        topic: str,
        partition: int,
        transactional_id: str,
        group: RestoreGroup,
        timeout_s: float,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._partition = partition
        self._id = transactional_id
        self._group = group
        self._timeout_s = timeout_s
        self._producer: Any = None
        self._failed: Any = None

    def __enter__(self) -> Self:
        # Brokers refuse transactions that may take longer than transaction.max.timeout.ms, 15 minutes by default.
        limit = min(int(self._timeout_s * 1000), 600_000)
        self._producer = Producer(
            {
                **self._settings.for_librdkafka(),
                "transactional.id": self._id,
                "compression.type": "zstd",
                "linger.ms": 20,
                "message.max.bytes": 1_000_000_000,
                "message.timeout.ms": limit,
                "transaction.timeout.ms": limit + 1000,
                "delivery.report.only.error": True,
                "on_delivery": self._delivered,
            }
        )
        _check_cluster(self._producer, self._settings, self._timeout_s)
        try:
            self._again(lambda: self._producer.init_transactions(self._timeout_s))
        except KafkaException as error:
            raise self._error_of(error) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._producer = None

    def append(self, records: Sequence[Record], hold_at: int, progress: str) -> None:
        """Append records and commit the progress in one transaction.

        Args:
            records: the records, with the content, headers and timestamps to write.
            hold_at: the offset that the group commits.
            progress: the metadata committed with it.

        Raises:
            BrokerError: nothing was committed, or it is unknown until the next Republisher with this id is entered.
        """
        self._failed = None
        where = TopicPartition(self._topic, self._partition, hold_at, progress)
        try:
            self._producer.begin_transaction()
            for record in records:
                self._produce(record)
            self._again(
                lambda: self._producer.send_offsets_to_transaction([where], self._group.metadata, self._timeout_s)
            )
            self._again(lambda: self._producer.commit_transaction(self._timeout_s))
        except BaseException as error:  # including Ctrl-C
            with contextlib.suppress(KafkaException):  # otherwise its time-out or the next Republisher ends it
                self._producer.abort_transaction(self._timeout_s)
            if isinstance(error, KafkaException):
                raise self._error_of(error) from None
            raise

    def _produce(self, record: Record) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    partition=self._partition,
                    timestamp=record.timestamp,
                    headers=list(record.headers) or None,
                )
            except BufferError:  # its queue is full
                self._producer.poll(_POLL_S)
            else:
                break
        self._producer.poll(0)

    def _again(self, work: Callable[[], object]) -> None:
        _again(work, self._timeout_s, KafkaError.retriable)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def _error_of(self, error: Any) -> BrokerError:
        cause = error.args[0]
        if cause.name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
            return BrokerError(f"{self._topic}-{self._partition}: another restore of the same has taken over from this")
        if self._failed is not None and not cause.fatal():
            cause = self._failed
        return _error(cause, f"{self._topic}-{self._partition} could not be written to", self._settings)


def _check_cluster(client: Any, settings: ConnectionSettings, timeout_s: float) -> None:
    """Check that a client, which connects by itself, is connected to the cluster that the settings name.

    Raises:
        BrokerError: it is not, or that is unknown.
    """
    late = until_silent(timeout_s, f"{settings.bootstrap} did not answer within")
    if (why := elsewhere(client, settings.cluster_id, OFFSETS_TOPIC, late)) is not None:
        raise why


def _again(work: Callable[[], T], timeout_s: float, passes: Callable[[Any], bool]) -> T:
    """Do work, again after an error of the client's that passes, until the time-out."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return work()
        except KafkaException as error:
            if not passes(error.args[0]) or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def _error(cause: Any, what: str, settings: ConnectionSettings) -> BrokerError:
    text = settings.without_secrets(client_problem(cause))
    if cause.name().endswith("AUTHORIZATION_FAILED"):
        return UnauthorizedError(
            f"{what}: this user may not ({cause.name()}): it needs WRITE on the topic, WRITE and DESCRIBE on "
            f"transactional ids, and READ and DELETE on groups that start with kretain-restore-"
        )
    return RequestFailedError(f"{what}: {text}", retriable=bool(cause.retriable()))


@dataclass(frozen=True, slots=True)
class GroupResetter:
    """Commits offsets for groups, on one topic only.

    Args:
        settings: the connection settings.
        topic: the only topic that it commits on.
        timeout_s: the time-out of a request.
    """

    settings: ConnectionSettings
    topic: str
    timeout_s: float

    def reset(self, group: str, offsets: Mapping[int, int]) -> None:
        """Commit a group's offsets by partition. Its coordinator refuses that while the group has a live member.

        Raises:
            BrokerError: not all of them were committed, or that is unknown.
        """
        positions = [TopicPartition(self.topic, partition, offset) for partition, offset in sorted(offsets.items())]
        client, deadline = AdminClient(self.settings.for_librdkafka()), time.monotonic() + self.timeout_s
        _check_cluster(client, self.settings, self.timeout_s)
        while (error := self._tried(client, ConsumerGroupTopicPartitions(group, positions))) is not None:
            if not may_pass(error) or time.monotonic() > deadline:
                live = error.name() in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP", "REBALANCE_IN_PROGRESS")
                problem = self.settings.without_secrets(client_problem(error))
                text = "it has live members by now: stop its consumers" if live else problem
                raise RequestFailedError(f"group {group} could not be reset: {text}", retriable=False)
            time.sleep(_POLL_S)

    def _tried(self, client: AdminClient, wanted: ConsumerGroupTopicPartitions) -> Any:
        future = client.alter_consumer_group_offsets([wanted], request_timeout=self.timeout_s)[wanted.group_id]
        try:
            answered = future.result(self.timeout_s + 5).topic_partitions
        except KafkaException as error:
            return error.args[0]
        except TimeoutError:
            raise BrokerError(f"group {wanted.group_id} could not be reset: no answer in time") from None
        return next((one.error for one in answered if one.error is not None), None)
