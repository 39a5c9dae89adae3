"""R5 and whole segments by an inventory, over Spark."""

from __future__ import annotations

from typing import Any

from retention_cli.spark.inventory import SparkInventory


def bases(inventory: SparkInventory, partitions: Any) -> Any:
    """Return topic, partition, bases (array<bigint>, sorted; null: unknown), reasons (null: known), a row for each row.

    Args:
        inventory: of this cluster.
        partitions: topic, partition, topic_id (null: not known), leader (null: it has none); a row each.
    """
    raise NotImplementedError


def tails(inventory: SparkInventory, partitions: Any) -> Any:
    """Return topic, partition, bytes_tail, bytes_reasons, topic_tail, topic_reasons, a row for each row.

    Where a rule is not asked for, both its columns are null; else exactly one is.

    Args:
        inventory: of this cluster.
        partitions: as for :func:`bases`, and log_start (null: unknown), log_start_reasons
            (array<struct<code,text>>), max_bytes, max_topic_bytes (null: not asked for).
    """
    raise NotImplementedError
