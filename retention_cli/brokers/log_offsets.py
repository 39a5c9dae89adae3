"""ListOffsets: where partitions start and end, and where times stand in them. Sentinels end here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.wire import Job, Wire, error_named
from retention_cli.model import TopicPartition

PARTITIONS_A_REQUEST: Final = 1_000

Spec = Literal["earliest", "latest", "last-stable", "max-timestamp"] | int
"""What to look up; a number is a time in Unix ms."""

_TIMESTAMPS: Final = {"earliest": -2, "latest": -1, "last-stable": -1, "max-timestamp": -3}
_READ_COMMITTED: Final = 1
_TUPLES_VERSION: Final = 4
"""From here on a row is partition, leader epoch and time."""
_MAX_TIMESTAMP_VERSION: Final = 7
"""Before 3.0 a broker answers MAX_TIMESTAMP with the first record, in silence."""


class Found(NamedTuple):
    """An offset, and the timestamp of the record there where the broker names one."""

    offset: int
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class NotFound:
    """The broker answered −1: it names no such offset. Never "the end" (RULES.md, Look-ups)."""


Answer = Found | NotFound | RequestFailedError
Leaders = Mapping[TopicPartition, PartitionMetadata]
"""Where to ask: each partition with its leader and leader epoch, as the first metadata read named them."""

_NOT_FOUND: Final = NotFound()
_LEFT_OUT: Final = RequestFailedError("the broker left it out of its answer", retriable=True)
_NO_LEADER: Final = RequestFailedError("has no leader", retriable=True)

Wanted = Mapping[Any, Collection[TopicPartition]]
"""By spec (Any: a mapping's keys are invariant), the partitions to look up."""
Answers = dict[Spec, dict[TopicPartition, Answer]]


async def list_offsets(wire: Wire, wanted: Wanted, leaders: Leaders) -> Answers:
    """Look partitions up at their leaders, all specs in flight together; one answer or error for each.

    Nothing is repeated: a leader that moved is an error here (the broker checks the epoch).
    ``last-stable`` is read_committed, all else read_uncommitted.
    """
    found: Answers = {spec: dict.fromkeys(partitions, _LEFT_OUT) for spec, partitions in wanted.items()}
    work: dict[int, list[Job[tuple[Spec, _Slice]]]] = {}
    slices: dict[int, list[tuple[int, _Slice]]] = {}  # the same set of partitions is often asked several things
    for spec, partitions in wanted.items():
        cut = slices.setdefault(id(partitions), [])
        if not cut:
            by_leader, homeless = _by_leader(partitions, leaders)
            cut.extend((leader, one) for leader, tps in by_leader.items() for one in _slices(tps, leaders))
        else:
            homeless = [tp for tp in partitions if leaders[tp].leader is None]
        found[spec].update(dict.fromkeys(homeless, _NO_LEADER))
        for leader, one in cut:
            work.setdefault(leader, []).append(Job(_Later(spec, one), (spec, one)))

    def on_reply(about: tuple[Spec, _Slice], reply: Any | RequestFailedError) -> None:
        spec, asked = about
        answers = found[spec]
        if isinstance(reply, RequestFailedError):
            answers.update((TopicPartition(topic, n), reply) for topic, rows in asked.items() for n, _epoch in rows)
            return
        for topic in reply.topics:
            name = topic.name
            for row in topic.partitions:
                if row.error_code:
                    answer: Answer = error_named(row.error_code) or _LEFT_OUT
                elif row.offset < 0:
                    answer = _NOT_FOUND
                else:
                    answer = Found(row.offset, row.timestamp if row.timestamp >= 0 else None)
                answers[TopicPartition(name, row.partition_index)] = answer

    await wire.fan_out({leader: _made(jobs) for leader, jobs in work.items()}, on_reply)
    return found


_Slice = dict[str, list[tuple[int, int]]]
"""What one request asks about: by topic, partitions with their leader epochs."""


class _Later(NamedTuple):
    """A request that is made when its turn comes, so that not all of them lie in memory."""

    spec: Spec
    asked: _Slice


def _made(jobs: Sequence[Job[tuple[Spec, _Slice]]]) -> Iterator[Job[tuple[Spec, _Slice]]]:
    for job in jobs:
        yield Job(_request(*job.request), job.about)


def _slices(partitions: Sequence[TopicPartition], leaders: Leaders) -> Iterator[_Slice]:
    for chunk in _chunks(partitions):
        asked: _Slice = {}
        for tp in chunk:
            asked.setdefault(tp.topic, []).append((tp.partition, leaders[tp].leader_epoch))
        yield asked


def _request(spec: Spec, asked: _Slice) -> Any:
    timestamp = spec if isinstance(spec, int) else _TIMESTAMPS[spec]
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=_READ_COMMITTED if spec == "last-stable" else 0,
        # (name, [(partition, leader epoch, time)]): the client takes tuples too, at half the cost of its classes
        topics=[(name, [(n, epoch, timestamp) for n, epoch in rows]) for name, rows in asked.items()],
        min_version=_MAX_TIMESTAMP_VERSION if spec == "max-timestamp" else _TUPLES_VERSION,
    )


async def epoch_ends(
    wire: Wire,
    wanted: Sequence[tuple[TopicPartition, int]],
    leaders: Leaders,
    on_answer: Callable[[TopicPartition, int, Answer], None],
) -> None:
    """Ask leaders where leader epochs end (OffsetForLeaderEpoch), and hand over (partition, epoch, answer).

    ``NotFound`` where the leader no longer knows the epoch.
    """
    rounds: list[dict[TopicPartition, int]] = []
    for tp, epoch in wanted:  # a request names a partition once
        for one in rounds:
            if tp not in one:
                one[tp] = epoch
                break
        else:
            rounds.append({tp: epoch})
    for epochs in rounds:
        by_leader, homeless = _by_leader(list(epochs), leaders)
        for tp in homeless:
            on_answer(tp, epochs[tp], RequestFailedError("has no leader", retriable=True))

        def jobs(partitions: list[TopicPartition], epochs: dict[TopicPartition, int]) -> Iterator[Job[Any]]:
            for chunk in _chunks(partitions):
                yield Job(_epoch_request(chunk, epochs, leaders), (chunk, epochs))

        def on_reply(about: tuple[Sequence[TopicPartition], dict[TopicPartition, int]], reply: Any) -> None:
            chunk, epochs = about
            if isinstance(reply, RequestFailedError):
                for tp in chunk:
                    on_answer(tp, epochs[tp], reply)
                return
            for topic in reply.topics:
                for row in topic.partitions:
                    tp = TopicPartition(topic.topic, row.partition)
                    failed = error_named(row.error_code)
                    on_answer(tp, epochs[tp], failed or (Found(row.end_offset) if row.end_offset >= 0 else NotFound()))

        await wire.fan_out({b: jobs(tps, epochs) for b, tps in by_leader.items()}, on_reply)


def _epoch_request(chunk: Sequence[TopicPartition], epochs: Mapping[TopicPartition, int], leaders: Leaders) -> Any:
    topic_class = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    rows: dict[str, list[Any]] = {}
    for tp in chunk:
        rows.setdefault(tp.topic, []).append(
            topic_class.OffsetForLeaderPartition(
                partition=tp.partition, current_leader_epoch=leaders[tp].leader_epoch, leader_epoch=epochs[tp]
            )
        )
    topics = [topic_class(topic=name, partitions=parts) for name, parts in rows.items()]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def _by_leader(
    partitions: Iterable[TopicPartition], leaders: Leaders
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    by_leader: dict[int, list[TopicPartition]] = {}
    homeless = []
    for tp in partitions:
        leader = leaders[tp].leader
        if leader is None:
            homeless.append(tp)
        else:
            by_leader.setdefault(leader, []).append(tp)
    return by_leader, homeless


def _chunks(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for i in range(0, len(partitions), PARTITIONS_A_REQUEST):
        yield partitions[i : i + PARTITIONS_A_REQUEST]
