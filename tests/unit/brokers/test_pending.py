"""Which partition of ``__consumer_offsets`` has a group: Java's hash of its id."""

from __future__ import annotations

import pytest

from retention_cli.brokers.pending import coordinator_partition


@pytest.mark.parametrize(
    ("group", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("\U0001f4a5", 31 * 0xD83D + 0xDCA5),
        ("sink-1-tx", 1439800166),  # negative in Java: Kafka takes its absolute value
        ("polygenelubricants", 0),  # -2^31, which has none
    ],
)
def test_coordinator_partition_uses_javas_hash(group: str, java_hash: int) -> None:
    assert coordinator_partition(group, 2**31 - 1) == java_hash % (2**31 - 1)
    assert coordinator_partition(group, 50) == java_hash % 50
