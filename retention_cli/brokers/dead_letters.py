"""Find share groups whose dead letters only point into the topics that they read (KIP-1191, Kafka 4.4).

A record that a share group rejects is written to the group's dead-letter topic: by default without its content, as a
pointer to where it lies. The group's start offset has passed it by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafka.protocol.metadata import ApiVersionsRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.topic_configs import Values, read_values
from retention_cli.brokers.wire.connections import Wire

_TOPIC: Final = "errors.deadletterqueue.topic.name"
_COPY: Final = "errors.deadletterqueue.copy.record.enable"
_FEATURE: Final = "share.version"
_FROM_LEVEL: Final = 2


async def pointing_letters(wire: Wire, groups: Sequence[str], deadline: float) -> dict[str, str]:
    """Return the share groups whose dead letters point into their topics, or may do so, and why.

    Raises:
        BrokerError: no broker answered until the deadline (of ``time.monotonic``).
    """
    if not groups or not await _has_dead_letters(wire, deadline):
        return {}
    read = await read_values(wire, "group", groups, [_TOPIC, _COPY], deadline)
    found = {name: why(values) for name, values in read.items()}
    return {name: text for name, text in found.items() if text is not None}


def why(values: Values | RequestFailedError) -> str | None:
    """Return why a group's dead letters point into its topics, or may do so; None if they don't. Pure."""
    if isinstance(values, RequestFailedError):
        return f"whether its dead letters only point into its topics is unknown: {values}"
    topic = values.get(_TOPIC)
    if topic is None:
        return "whether its dead letters only point into its topics is unknown: its broker does not say"
    if not topic or values.get(_COPY) == "true":
        return None
    return (
        f"its dead letters in {topic} only point to records here ({_COPY} is false): have them copied, or list the "
        f"group under groups.ignore"
    )


async def _has_dead_letters(wire: Wire, deadline: float) -> bool:
    """Return whether the cluster's share groups can have dead letters; True where that is not said."""

    def request() -> Any:
        return ApiVersionsRequest(client_software_name="kretain", client_software_version="0", min_version=3)

    reply = await wire.ask_any(request, deadline)
    epoch = reply.finalized_features_epoch
    if reply.error_code or epoch is None or epoch < 0:
        return True
    levels = {one.name: one.max_version_level for one in reply.finalized_features or ()}
    return bool(levels.get(_FEATURE, 0) >= _FROM_LEVEL)
