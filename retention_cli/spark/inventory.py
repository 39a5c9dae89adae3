"""An inventory of segments, read by Spark: this process reads the files' footers, and never a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retention_cli.segments.inventory import InventoryFile


@dataclass(frozen=True, slots=True)
class SparkInventory:
    """What lies on the disks of brokers of one cluster, as a frame of the columns of ``segments/table.py``.

    ``incomplete`` are replicas (broker, topic, partition) of which something is unknown, with why. ``replicas`` is a
    frame of broker, dir, topic and partition, a row per replica; ``dirs`` are the (broker, dir) that have any.
    """

    frame: Any
    files: tuple[InventoryFile, ...]
    incomplete: dict[tuple[int, str, int], str]
    replicas: Any
    dirs: frozenset[tuple[int, str]]
    rows: int

    @property
    def cluster_id(self) -> str | None: ...
    @property
    def brokers(self) -> frozenset[int]: ...
    def age_ms(self, now_ms: int) -> int: ...
    def check_cluster(self, cluster_id: str) -> None: ...
    def close(self) -> None:
        """Let go of what Spark keeps."""


def read_inventory(session: Any, paths: Sequence[str | Path]) -> SparkInventory:
    """Read inventories: files, or folders of ``*.parquet``, which executors see by the same paths.

    Raises:
        InventoryError: as :func:`retention_cli.segments.inventory.read_inventory`, or executors read other files.
    """
    raise NotImplementedError
