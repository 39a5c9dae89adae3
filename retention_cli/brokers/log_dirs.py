"""Read brokers' log dirs: the bytes of each replica, and the usage of volumes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeLogDirsRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Leaders, by_leader, by_topic
from retention_cli.brokers.wire.connections import Job, Wire, error_named, failure_of
from retention_cli.core.model import Maybe, TopicPartition, Unknown


class Replica(NamedTuple):
    """A replica's bytes in a log dir. ``future``: it is a copy that is being moved there from another dir."""

    tp: TopicPartition
    size_bytes: int
    future: bool


@dataclass(frozen=True, slots=True)
class LogDirState:
    """A log dir as reported by its broker.

    ``total_bytes`` and ``usable_bytes`` are those of its volume, unknown if the broker does not report them (before
    3.3). An offline dir has an ``error``, and nothing else is known of it. ``cordoned``: brokers place no new replica
    there (``cordoned.log.dirs``, KIP-1066, from 4.3).
    """

    path: str
    total_bytes: Maybe[int]
    usable_bytes: Maybe[int]
    replicas: Sequence[Replica] = ()
    error: str | None = None
    cordoned: bool = False


async def read_sizes(wire: Wire, leaders: Leaders) -> tuple[dict[TopicPartition, int], str | None]:
    """Return the leader replica's bytes per partition, and why some are missing (None: none are)."""
    sizes: dict[TopicPartition, int] = {}
    problems: list[str] = []
    topic_of = DescribeLogDirsRequest.DescribableLogDirTopic
    wanted = {
        broker: [topic_of(topic=name, partitions=[tp.partition for tp in tps]) for name, tps in by_topic(led).items()]
        for broker, led in by_leader(leaders, leaders)[0].items()
    }
    for broker, folders in (await _describe(wire, wanted)).items():
        if isinstance(folders, RequestFailedError):
            problems.append(f"broker {broker}: {folders}")
            continue
        for folder in folders:
            if folder.error is not None:
                problems.append(f"broker {broker}, log dir {folder.path}: {folder.error}")
            sizes.update((one.tp, one.size_bytes) for one in folder.replicas if not one.future)
    if len(sizes) < len(leaders) and not problems:
        problems.append("brokers left some partitions out (DESCRIBE on the cluster is needed)")
    return sizes, problems[0] if problems else None


async def read_log_dirs(wire: Wire, brokers: Iterable[int]) -> dict[int, list[LogDirState] | RequestFailedError]:
    """Return each broker's log dirs, or why they could not be read (KIP-113, KIP-827)."""
    none = RequestFailedError("it named no log dir (DESCRIBE on the cluster is needed)", retriable=False)
    return {broker: folders or none for broker, folders in (await _describe(wire, dict.fromkeys(brokers))).items()}


async def _describe(
    wire: Wire, topics: Mapping[int, Sequence[Any] | None]
) -> dict[int, list[LogDirState] | RequestFailedError]:
    found: dict[int, list[LogDirState] | RequestFailedError] = {}

    def on_reply(broker: int, reply: Any) -> None:
        found[broker] = failure_of(reply) or [_log_dir(folder) for folder in reply.results]

    await wire.fan_out(
        {broker: [Job(DescribeLogDirsRequest(topics=some), broker)] for broker, some in topics.items()}, on_reply
    )
    return found


def _log_dir(folder: Any) -> LogDirState:
    if (error := error_named(folder.error_code)) is not None:
        unknown = Unknown.because("disk", str(error))
        return LogDirState(folder.log_dir, unknown, unknown, error=str(error))
    replicas = [
        Replica(TopicPartition(topic.name, row.partition_index), row.partition_size, bool(row.is_future_key))
        for topic in folder.topics
        for row in topic.partitions
    ]
    total, usable = (_said(getattr(folder, name, -1)) for name in ("total_bytes", "usable_bytes"))
    return LogDirState(folder.log_dir, total, usable, replicas, cordoned=bool(getattr(folder, "is_cordoned", False)))


def _said(value: int) -> Maybe[int]:
    if value >= 0:
        return value
    return Unknown.because(
        "disk", "the broker does not report its volume's size (before Kafka 3.3): set disks.capacity in the policy"
    )
