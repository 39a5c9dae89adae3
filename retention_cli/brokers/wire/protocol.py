"""Kafka's own definitions of the APIs that kafka-python lacks, as kafka-python's message classes.

The JSON files in ``schemas/`` are Apache Kafka 4.3.0's, unchanged; the client builds its encoders from such files for
every API it supports.
"""

from __future__ import annotations

from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from retention_cli.brokers.wire import schemas

MESSAGES: Final[dict[str, Any]] = {
    name: type(ApiMessage)(name, (ApiMessage,), {}, load_json=schemas)
    for api in (
        "ConsumerGroupDescribe",  # API 69: members of KIP-848 groups
        "ShareGroupDescribe",  # API 77: members of share groups
        "StreamsGroupDescribe",  # API 89: members and topology of streams groups
        "DescribeShareGroupOffsets",  # API 90: the start offsets of share groups
    )
    for name in (f"{api}Request", f"{api}Response")  # the client finds a response's class by its request's
}
