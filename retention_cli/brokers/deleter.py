"""The only object that can delete records. Only ``trim`` creates one; a plan and a dry run never do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kafka.protocol.admin import DeleteRecordsRequest

from retention_cli.brokers.errors import NotSentError, RequestFailedError
from retention_cli.brokers.log_offsets import by_topic
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.wire.connections import Job, error_named
from retention_cli.core.model import TopicPartition

_Request: Final[Any] = type("DeleteRecordsRequest", (DeleteRecordsRequest,), {"is_encoded": False}, init=False)
"""The client's class, with room for when it is too late to send it (:mod:`.wire.frames`)."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A leader executed the request, and reported the partition's log start offset. Read it back nevertheless."""

    log_start: int


Outcome = Answered | RequestFailedError


class Deleter:
    """Sends DeleteRecords: one request per leader. It never repeats a request; a retry needs a recheck first.

    It shares a reader's connections and clock.

    Raises:
        MissingApiError: the cluster does not offer it.
    """

    def __init__(self, reader: ClusterReader) -> None:
        reader.check_deletes()
        self._wire = reader.wire
        self._clock = reader.clock
        self.written: dict[TopicPartition, float] = {}
        """When each of the last call's requests was written to its socket, by the clock's time since boot."""

    def delete(
        self,
        by_leader: Mapping[int, Mapping[TopicPartition, int]],
        on_outcome: Callable[[TopicPartition, Outcome], None],
        *,
        timeout_s: float,
        good_until: float,
    ) -> None:
        """Ask each leader to move its partitions' log start offsets; all leaders are asked at the same time.

        An interrupted caller still gets outcomes: a leader answers before it reports where logs start by now.

        Args:
            by_leader: for each broker, the partitions that it led at the recheck, and their new log start offsets.
            on_outcome: called with each partition's outcome, in no particular order.
            timeout_s: how long to wait for an answer; after that, the outcome is an error.
            good_until: when the recheck is too old, by the clock's time since boot, which counts a suspended machine
                and a stopped process. A request that is not in the socket by then is never sent: ``NotSentError``.

        Raises:
            ValueError: an offset is negative. Nothing was sent.
        """
        for offsets in by_leader.values():
            for tp, offset in offsets.items():
                if offset < 0:  # to a broker, -1 means "everything"
                    raise ValueError(f"{tp}: {offset} is not an offset to trim to")
        work = {}
        self.written = {}
        for leader, offsets in by_leader.items():
            if offsets:
                request = delete_request(offsets, timeout_s)
                request.too_late = partial(self._too_late, offsets, good_until)
                work[leader] = [Job(request, (request, tuple(offsets)))]

        def on_reply(about: tuple[Any, tuple[TopicPartition, ...]], reply: Any | RequestFailedError) -> None:
            request, partitions = about
            is_late = self._clock.since_boot() > good_until
            if isinstance(reply, RequestFailedError) and not request.is_encoded and is_late:
                reply = NotSentError(f"not sent: its recheck was too old ({reply})")
            missing = RequestFailedError("the broker left it out of its answer", retriable=False)
            outcomes: dict[TopicPartition, Outcome] = {}
            if isinstance(reply, RequestFailedError):
                missing = reply
            else:
                outcomes = {
                    TopicPartition(topic.name, row.partition_index): error_named(row.error_code, needs="DELETE")
                    or Answered(row.low_watermark)
                    for topic in reply.topics
                    for row in topic.partitions
                }
            for tp in partitions:
                on_outcome(tp, outcomes.get(tp, missing))

        sent = self._wire.start(lambda: self._wire.fan_out(work, on_reply, in_flight=1, timeout_s=timeout_s))
        sent.result(leave=False)

    def _too_late(self, offsets: Mapping[TopicPartition, int], good_until: float) -> bool:
        """Return whether a request must not be written any more; it is asked right before each write."""
        now = self._clock.since_boot()
        if now <= good_until:
            self.written.update(dict.fromkeys(offsets, now))
        return now > good_until


def delete_request(offsets: Mapping[TopicPartition, int], timeout_s: float) -> Any:
    """Return a DeleteRecords request. Its ``too_late`` says whether it may still be written to a socket."""
    topic_class = DeleteRecordsRequest.DeleteRecordsTopic
    return _Request(
        topics=[
            topic_class(
                name=name,
                partitions=[
                    topic_class.DeleteRecordsPartition(partition_index=tp.partition, offset=offsets[tp]) for tp in tps
                ],
            )
            for name, tps in by_topic(offsets).items()
        ],
        # The broker's wait for its followers ends before ours, so that the broker reports the time-out.
        timeout_ms=max(1, int(timeout_s * 900)),
    )
