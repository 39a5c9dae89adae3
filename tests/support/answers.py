"""Answers of brokers, encoded by kafka-python."""

from __future__ import annotations

from typing import Any

from kafka.protocol.consumer import OffsetFetchResponse

Batched = OffsetFetchResponse.OffsetFetchResponseGroup


Single = OffsetFetchResponse.OffsetFetchResponseTopic


def batched(groups: list[tuple[str, Any, int]], throttle_ms: int = 0) -> bytes:
    topic_class = Batched.OffsetFetchResponseTopics
    row_class = topic_class.OffsetFetchResponsePartitions
    answers = [
        Batched(
            group_id=name,
            topics=[topic_class(name=topic, partitions=[row_class(**row) for row in rows]) for topic, rows in topics],
            error_code=error,
        )
        for name, topics, error in groups
    ]
    return OffsetFetchResponse(throttle_time_ms=throttle_ms, groups=answers).encode(version=8)  # type: ignore[no-any-return]


def single(topics: Any, error: int) -> bytes:
    row_class = Single.OffsetFetchResponsePartition
    answers = [Single(name=topic, partitions=[row_class(**row) for row in rows]) for topic, rows in topics]
    return OffsetFetchResponse(throttle_time_ms=0, topics=answers, error_code=error).encode(version=7)  # type: ignore[no-any-return]
