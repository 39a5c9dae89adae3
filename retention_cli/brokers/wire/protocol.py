"""Kafka's own definitions of the APIs that kafka-python lacks, as kafka-python's message classes.

The JSON files in ``schemas/`` are Apache Kafka 4.3.0's, unchanged; the client builds its encoders from such files for
every API it supports.
"""

# mypy: disable-error-code="misc,call-arg"
# (the base class is untyped)

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

from retention_cli.brokers.wire import schemas


class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas):
    """API 69: members of KIP-848 groups."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas):
    """API 69."""


class ShareGroupDescribeRequest(ApiMessage, load_json=schemas):
    """API 77: members of share groups."""


class ShareGroupDescribeResponse(ApiMessage, load_json=schemas):
    """API 77."""


class StreamsGroupDescribeRequest(ApiMessage, load_json=schemas):
    """API 89: members and topology of streams groups."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=schemas):
    """API 89."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=schemas):
    """API 90: the start offsets of share groups."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=schemas):
    """API 90."""
