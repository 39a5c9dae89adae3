"""Set committed offsets of groups without members. Only for ``kretain restore``; a dry run has no such object."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.wire.problems import client_problem, may_pass

_AGAIN_AFTER_S: Final = 0.25


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
        places = [TopicPartition(self.topic, partition, offset) for partition, offset in sorted(offsets.items())]
        client, deadline = AdminClient(self.settings.for_librdkafka()), time.monotonic() + self.timeout_s
        while (error := self._tried(client, ConsumerGroupTopicPartitions(group, places))) is not None:
            if not may_pass(error) or time.monotonic() > deadline:
                raise self._said(group, error)
            time.sleep(_AGAIN_AFTER_S)

    def _tried(self, client: AdminClient, wanted: ConsumerGroupTopicPartitions) -> Any:
        """Commit once; return the first error, None if there is none."""
        future = client.alter_consumer_group_offsets([wanted], request_timeout=self.timeout_s)[wanted.group_id]
        try:
            answered = future.result(self.timeout_s + 5).topic_partitions
        except KafkaException as error:
            return error.args[0]
        except TimeoutError:
            raise BrokerError(f"group {wanted.group_id} could not be reset: no answer in time") from None
        return next((one.error for one in answered if one.error is not None), None)

    def _said(self, group: str, error: Any) -> BrokerError:
        if error.name() in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP", "REBALANCE_IN_PROGRESS"):
            text = "it has live members by now: stop its consumers"
        else:
            text = self.settings.without_secrets(client_problem(error))
        return RequestFailedError(f"group {group} could not be reset: {text}", retriable=False)
