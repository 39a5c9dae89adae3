"""The few topic settings that decide what may be trimmed, as the cluster has them now."""

from __future__ import annotations

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


async def read_topic_configs(wire: Wire, topics: Sequence[str]) -> dict[str, TopicConfig | RequestFailedError]:
    """Return each topic's settings, or why they could not be read."""
    found: dict[str, TopicConfig | RequestFailedError] = {}
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
        work.setdefault(brokers[number % len(brokers)], []).append(job)

    def on_reply(names: Sequence[str], reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            found.update(dict.fromkeys(names, reply))
            return
        for result in reply.results:
            error = error_named(result.error_code, result.error_message)
            found[result.resource_name] = error or _config({row.name: row.value for row in result.configs})

    await wire.fan_out(work, on_reply)
    missing = RequestFailedError("the broker left the topic out of its answer", retriable=True)
    return {name: found.get(name, missing) for name in topics}


def _config(values: dict[str, str | None]) -> TopicConfig | RequestFailedError:
    try:
        policy = values["cleanup.policy"] or ""
        return TopicConfig(
            frozenset(word.strip() for word in policy.split(",") if word.strip()), int(values["retention.ms"] or "")
        )
    except (KeyError, ValueError):
        return RequestFailedError(f"cleanup.policy or retention.ms is missing in {sorted(values)}", retriable=False)
