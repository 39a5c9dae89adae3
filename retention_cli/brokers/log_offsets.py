"""ListOffsets: look up where partitions start and end, and offsets by time. Sentinels don't leave this module."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, cast

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.wire import offset_answers
from retention_cli.brokers.wire.connections import LEFT_OUT, Job, Wire, error_named
from retention_cli.core.grouping import by_key, in_batches
from retention_cli.core.model import TopicPartition

PARTITIONS_A_REQUEST: Final = 1_000
"""How many partitions a request names at most."""

Spec = Literal["earliest", "latest", "last-stable", "max-timestamp"] | int
"""The kind of look-up; a number is a time in Unix ms."""

_TIMESTAMPS: Final = {"earliest": -2, "latest": -1, "last-stable": -1, "max-timestamp": -3}


class Found(NamedTuple):
    """An offset, and the timestamp of the record there, None if the broker did not return it."""

    offset: int
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class NotFound:
    """The broker returned −1: no such offset. This never means "the end" (docs/rules.md, Look-ups)."""


Answer = Found | NotFound | RequestFailedError
Leaders = Mapping[TopicPartition, PartitionMetadata]
"""The brokers to ask: each partition with its leader and leader epoch in the first metadata read."""

_NOT_FOUND: Final = NotFound()
_UNNAMED: Final = -1
"""The epoch in the answer of brokers before 2.0, which don't return whose end it is."""
_NO_LEADER: Final = RequestFailedError("has no leader", retriable=True)

Wanted = Mapping[TopicPartition, Spec]
"""The look-up of each partition. ``last-stable`` and ``max-timestamp`` can't be mixed with others in a mapping."""


async def list_offsets(wire: Wire, wanted: Sequence[Wanted], leaders: Leaders) -> list[dict[TopicPartition, Answer]]:
    """Look up offsets at the partitions' leaders, all mappings at once; return one answer or error per partition.

    Requests are not repeated: a leader that moved is an error (the broker checks the epoch).
    ``last-stable`` is read_committed, all others are read_uncommitted.
    """
    found: list[dict[TopicPartition, Answer]] = [dict.fromkeys(one, LEFT_OUT) for one in wanted]
    work: dict[int, list[Job[tuple[int, _Slice]]]] = {}
    for number, one in enumerate(wanted):
        led, homeless = by_leader(one, leaders)
        found[number].update(dict.fromkeys(homeless, _NO_LEADER))
        for leader, partitions in led.items():
            for cut in _slices(partitions, one, leaders):
                work.setdefault(leader, []).append(Job(None, (number, cut)))

    def on_reply(about: tuple[int, _Slice], reply: Any | RequestFailedError) -> None:
        number, cut = about
        # All partitions are keys already, and a plain tuple finds one in half the time of making a TopicPartition.
        answers = cast(dict[tuple[str, int], Answer], found[number])
        if isinstance(reply, RequestFailedError):
            answers.update(((topic, row[0]), reply) for topic, rows in cut.items() for row in rows)
            return
        for name, rows in reply.topics:
            for partition, error_code, timestamp, offset in rows:
                if (name, partition) in answers:  # else it was not asked for
                    answers[name, partition] = _answer(error_code, timestamp, offset)

    def made(jobs: Sequence[Job[tuple[int, _Slice]]]) -> Iterator[Job[tuple[int, _Slice]]]:
        for job in jobs:  # a request is made when its turn comes, so that not all of them are in memory
            number, cut = job.about
            spec = next(iter(wanted[number].values()))
            request = offset_answers.Request(cut, committed=spec == "last-stable", timed=spec == "max-timestamp")
            yield Job(request, job.about)

    await wire.fan_out({leader: made(jobs) for leader, jobs in work.items()}, on_reply)
    return found


def _answer(error_code: int, timestamp: int, offset: int) -> Answer:
    if error_code:
        return error_named(error_code) or LEFT_OUT
    return _NOT_FOUND if offset < 0 else Found(offset, timestamp if timestamp >= 0 else None)


_Slice = dict[str, list[tuple[int, int, int]]]
"""The content of a request: by topic, partitions with their leader epochs and times (or Kafka's sentinels)."""


def _slices(partitions: Sequence[TopicPartition], wanted: Wanted, leaders: Leaders) -> Iterator[_Slice]:
    for chunk in in_batches(partitions, PARTITIONS_A_REQUEST):
        cut: _Slice = {}
        for tp in chunk:
            spec = wanted[tp]
            if not isinstance(spec, int):
                spec = _TIMESTAMPS[spec]
            elif spec < 0:  # to a broker, -1 means "the end"
                raise ValueError(f"{tp}: {spec} is no time to look up")
            topic, partition = tp
            cut.setdefault(topic, []).append((partition, leaders[tp].leader_epoch, spec))
        yield cut


async def epoch_ends(
    wire: Wire, wanted: Sequence[tuple[TopicPartition, int]], leaders: Leaders
) -> dict[tuple[TopicPartition, int], Answer]:
    """Ask leaders where leader epochs end (OffsetForLeaderEpoch), by partition and epoch.

    The answer is ``NotFound`` if the log has no record of the epoch, unless it is the current one. The leader then
    returns the highest earlier epoch that has records, and that epoch's end is returned, too.
    """
    found: dict[tuple[TopicPartition, int], Answer] = dict.fromkeys(wanted, LEFT_OUT)
    rounds: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    earlier: dict[TopicPartition, int] = Counter()
    for tp, epoch in wanted:  # a partition may be in a request only once
        rounds[earlier[tp]][tp] = epoch
        earlier[tp] += 1

    def on_reply(epochs: Mapping[TopicPartition, int], reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            found.update(dict.fromkeys(epochs.items(), reply))
            return
        for topic in reply.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.topic, row.partition)
                epoch, named = epochs[tp], row.leader_epoch
                failed = error_named(row.error_code)
                if failed is None and 0 <= named < epoch:
                    found[tp, named] = Found(row.end_offset)
                is_known = row.end_offset >= 0 and named in (epoch, _UNNAMED)
                found[tp, epoch] = failed or (Found(row.end_offset) if is_known else _NOT_FOUND)

    for epochs in rounds.values():
        led, homeless = by_leader(epochs, leaders)
        found.update({(tp, epochs[tp]): _NO_LEADER for tp in homeless})
        work = {}
        for leader, tps in led.items():
            parts = [{tp: epochs[tp] for tp in some} for some in in_batches(tps, PARTITIONS_A_REQUEST)]
            work[leader] = [Job(_epoch_request(one, leaders), one) for one in parts]
        await wire.fan_out(work, on_reply)
    return found


def _epoch_request(epochs: Mapping[TopicPartition, int], leaders: Leaders) -> Any:
    topic_class = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

    def row(tp: TopicPartition) -> Any:
        return topic_class.OffsetForLeaderPartition(
            partition=tp.partition, current_leader_epoch=leaders[tp].leader_epoch, leader_epoch=epochs[tp]
        )

    topics = [topic_class(topic=name, partitions=list(map(row, tps))) for name, tps in by_topic(epochs).items()]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def by_leader(
    partitions: Iterable[TopicPartition], leaders: Leaders
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """Return partitions by their leaders, and those that have none."""
    led: dict[int, list[TopicPartition]] = {}
    homeless = []
    for tp in partitions:
        leader = leaders[tp].leader
        if leader is None:
            homeless.append(tp)
        else:
            led.setdefault(leader, []).append(tp)
    return led, homeless


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return the partitions by topic, as requests name them."""
    return by_key((tp.topic, tp) for tp in partitions)
