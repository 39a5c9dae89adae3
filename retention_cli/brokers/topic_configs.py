"""Read live settings of topics, groups and brokers: the few that decisions need, and any others by name."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.wire.connections import LEFT_OUT, Job, Wire, error_named
from retention_cli.core.grouping import by_key, in_batches
from retention_cli.core.model import TimestampType

_TIERED: Final = "remote.storage.enable"
_DISKLESS: Final = "diskless.enable"
_KEYS: Final = ["cleanup.policy", "retention.ms", "message.timestamp.type", _TIERED, _DISKLESS]
_TYPES: Final[dict[str | None, TimestampType]] = {"CreateTime": "CreateTime", "LogAppendTime": "LogAppendTime"}
Kind = Literal["topic", "broker", "group"]
_RESOURCES: Final[dict[Kind, int]] = {"topic": 2, "broker": 4, "group": 32}
_NAMES_A_REQUEST: Final = 250
_OF_TOPIC: Final = 1
"""The source of a value that was set on the topic itself (DYNAMIC_TOPIC_CONFIG)."""

Values = Mapping[str, str | None]
"""Settings by name, as Kafka's own texts. Settings that a broker does not know are missing."""


class TopicValue(NamedTuple):
    """The value of a topic's setting, and whether it is the topic's own: else it is the brokers' default."""

    value: str | None
    own: bool


UNNAMED: Final = TopicValue(None, own=False)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's live settings. ``retention_ms`` is −1 for infinite, as Kafka writes it.

    ``timestamp_type`` is CreateTime or LogAppendTime, None if the broker returned neither. ``tiered``: it has remote
    storage (KIP-405). ``diskless``: its records are in object storage alone (KIP-1150).
    """

    cleanup_policy: frozenset[str]
    retention_ms: int
    timestamp_type: TimestampType | None = None
    tiered: bool = False
    diskless: bool = False


async def read_topic_configs(
    wire: Wire, topics: Sequence[str], deadline: float
) -> dict[str, TopicConfig | RequestFailedError]:
    """Return each topic's settings, or why they could not be read. If a broker fails, another one is asked."""
    found = await read_values(wire, "topic", topics, _KEYS, deadline)
    return {name: one if isinstance(one, RequestFailedError) else _config(one) for name, one in found.items()}


async def read_values(
    wire: Wire, kind: Kind, names: Sequence[str], keys: Sequence[str], deadline: float, *, own: bool = False
) -> dict[str, Any]:
    """Return the named settings of each topic or group, or why they can't be read. ``own``: as :class:`TopicValue`."""
    found: dict[str, Any] = {}
    waiting: Sequence[str] = names
    turn = 0

    def on_reply(some: Sequence[str], reply: Any | RequestFailedError) -> None:
        found.update(dict.fromkeys(some, reply) if isinstance(reply, RequestFailedError) else _values(reply, own=own))

    while waiting:
        found.update(dict.fromkeys(waiting, LEFT_OUT))
        brokers = wire.brokers()
        work = by_key(
            (brokers[number % len(brokers)], Job(_request(kind, some, keys), some))
            for number, some in enumerate(in_batches(waiting, _NAMES_A_REQUEST), turn)
        )
        await wire.fan_out(work, on_reply)
        waiting = [name for name in waiting if isinstance(one := found[name], RequestFailedError) and one.retriable]
        turn += 1
        if waiting:
            if time.monotonic() > deadline:
                break
            if turn % len(brokers) == 0:
                await wire.sleep(0.25)
    return {name: found[name] for name in names}


async def read_everywhere(
    wire: Wire, topic: str, keys: Sequence[str]
) -> dict[str, frozenset[TopicValue]] | RequestFailedError:
    """Return what brokers say of a topic's settings: they agree on its own, and each has a default of its own."""
    found = await _read_each(wire, "topic", dict.fromkeys(wire.brokers(), topic), keys, own=True)
    for one in found.values():
        if isinstance(one, RequestFailedError):
            return one
    return {key: frozenset(one.get(key, UNNAMED) for one in found.values()) for key in keys}


async def read_broker_values(
    wire: Wire, brokers: Iterable[int], keys: Sequence[str]
) -> dict[int, Values | RequestFailedError]:
    """Return the named settings of each broker, or why they could not be read: only the broker itself has them."""
    return await _read_each(wire, "broker", {broker: str(broker) for broker in brokers}, keys)


async def _read_each(
    wire: Wire, kind: Kind, names: Mapping[int, str], keys: Sequence[str], *, own: bool = False
) -> dict[int, Any]:
    found: dict[int, Any] = dict.fromkeys(names, LEFT_OUT)
    work = {broker: [Job(_request(kind, [name], keys), broker)] for broker, name in names.items()}

    def on_reply(broker: int, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            found[broker] = reply
        else:
            found.update((broker, values) for _name, values in _values(reply, own=own))

    await wire.fan_out(work, on_reply)
    return found


def _request(kind: Kind, names: Sequence[str], keys: Sequence[str]) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            resource(resource_type=_RESOURCES[kind], resource_name=name, configuration_keys=list(keys))
            for name in names
        ]
    )


def _values(reply: Any, *, own: bool = False) -> Iterable[tuple[str, Any]]:
    for result in reply.results:
        error = error_named(result.error_code, result.error_message, needs="DESCRIBE_CONFIGS")
        yield (
            result.resource_name,
            error
            or {
                row.name: TopicValue(row.value, row.config_source == _OF_TOPIC) if own else row.value
                for row in result.configs
            },
        )


def _config(values: Values) -> TopicConfig | RequestFailedError:
    policy, retention_ms = values.get("cleanup.policy"), values.get("retention.ms")
    if policy is None or retention_ms is None or re.fullmatch(r"-?[0-9]{1,19}", retention_ms) is None:
        return RequestFailedError(f"cleanup.policy or retention.ms is missing in {sorted(values)}", retriable=False)
    policies = frozenset(one.strip() for one in policy.split(",") if one.strip())
    kind = _TYPES.get(values.get("message.timestamp.type"))
    tiered, diskless = (values.get(key) == "true" for key in (_TIERED, _DISKLESS))
    return TopicConfig(policies, int(retention_ms), kind, tiered, diskless)
