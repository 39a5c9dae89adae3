"""How many bytes each partition's leader replica takes on disk."""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.wire import Job, Wire, error_named
from retention_cli.model import TopicPartition


async def read_sizes(wire: Wire, leaders: Leaders) -> tuple[dict[TopicPartition, int], str | None]:
    """Return the leader replica's bytes per partition, and why some are missing, where they are."""
    sizes: dict[TopicPartition, int] = {}
    problems: list[str] = []
    wanted: dict[int, dict[str, list[int]]] = {}
    for tp, partition in leaders.items():
        if partition.leader is not None:
            wanted.setdefault(partition.leader, {}).setdefault(tp.topic, []).append(tp.partition)
    work = {
        broker: [
            Job(
                DescribeLogDirsRequest(
                    topics=[
                        DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=partitions)
                        for name, partitions in topics.items()
                    ]
                ),
                broker,
            )
        ]
        for broker, topics in wanted.items()
    }

    def on_reply(broker: int, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            problems.append(f"broker {broker}: {reply}")
            return
        if (error := error_named(getattr(reply, "error_code", 0))) is not None:
            problems.append(f"broker {broker}: {error}")
            return
        for folder in reply.results:
            if (error := error_named(folder.error_code)) is not None:
                problems.append(f"broker {broker}, log dir {folder.log_dir}: {error}")
                continue
            for topic in folder.topics:
                for row in topic.partitions:
                    if not row.is_future_key:  # a copy that is being moved to another dir
                        sizes[TopicPartition(topic.name, row.partition_index)] = row.partition_size

    await wire.fan_out(work, on_reply)
    if len(sizes) < len(leaders) and not problems:
        problems.append("brokers left some partitions out (DESCRIBE on the cluster is needed)")
    return sizes, problems[0] if problems else None
