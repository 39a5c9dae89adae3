"""The few topic settings that decide what may be trimmed, as the cluster has them now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.admin import DescribeConfigsRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.wire import Job, Wire, error_named

_KEYS: Final = ["cleanup.policy", "retention.ms"]
_TOPIC: Final = 2
_TOPICS_A_REQUEST: Final = 250


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's live settings. ``retention_ms`` is −1 for infinite, as Kafka writes it."""

    cleanup_policy: frozenset[str]
    retention_ms: int


async def read_topic_configs(
    wire: Wire, topics: Sequence[str], deadline: float
) -> dict[str, TopicConfig | RequestFailedError]:
    """Return each topic's settings, or why they could not be read. Any broker has them: one that fails is passed over."""
    found: dict[str, TopicConfig | RequestFailedError] = {}
    waiting: Sequence[str] = topics
    turn = 0
    while waiting:
        found.update(await _read_once(wire, waiting, turn))
        waiting = [name for name in waiting if isinstance(one := found[name], RequestFailedError) and one.retriable]
        turn += 1
        if waiting:
            if time.monotonic() > deadline:
                break
            if turn % max(1, len(wire.brokers())) == 0:
                await wire.sleep(0.25)
    return {name: found[name] for name in topics}


async def _read_once(wire: Wire, topics: Sequence[str], turn: int) -> dict[str, TopicConfig | RequestFailedError]:
    left_out = RequestFailedError("the broker left the topic out of its answer", retriable=True)
    found: dict[str, TopicConfig | RequestFailedError] = dict.fromkeys(topics, left_out)
    brokers = wire.brokers()
    work: dict[int, list[Job[Sequence[str]]]] = {}
    for number, start in enumerate(range(0, len(topics), _TOPICS_A_REQUEST)):
        names = topics[start : start + _TOPICS_A_REQUEST]
        resources = [
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=_TOPIC, resource_name=name, configuration_keys=_KEYS
            )
            for name in names
        ]
        job = Job(DescribeConfigsRequest(resources=resources), names)
        work.setdefault(brokers[(number + turn) % len(brokers)], []).append(job)

    def on_reply(names: Sequence[str], reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            found.update(dict.fromkeys(names, reply))
            return
        for result in reply.results:
            error = error_named(result.error_code, result.error_message)
            found[result.resource_name] = error or _config({row.name: row.value for row in result.configs})

    await wire.fan_out(work, on_reply)
    return found


def _config(values: dict[str, str | None]) -> TopicConfig | RequestFailedError:
    try:
        policy = values["cleanup.policy"] or ""
        return TopicConfig(
            frozenset(word.strip() for word in policy.split(",") if word.strip()), int(values["retention.ms"] or "")
        )
    except (KeyError, ValueError):
        return RequestFailedError(f"cleanup.policy or retention.ms is missing in {sorted(values)}", retriable=False)
