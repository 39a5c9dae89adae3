"""Where partitions begin and end, for sources that read topics themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, Spec
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import TopicPartition


class Extent(NamedTuple):
    """S, and H or the last stable offset, of a partition."""

    start: int
    end: int


def read_extents(
    reader: ClusterReader,
    metadata: ClusterMetadata,
    topics: Iterable[str],
    end: Literal["latest", "last-stable"] = "latest",
) -> dict[TopicPartition, Extent | str]:
    """Return where each partition of these topics begins and ends, or why that can't be read."""
    leaders = metadata.places(sorted(set(topics)))
    specs: tuple[Spec, ...] = ("earliest", end)
    starts, ends = reader.list_offsets([dict.fromkeys(leaders, spec) for spec in specs], leaders)
    found: dict[TopicPartition, Extent | str] = {}
    for tp in leaders:
        first, last = starts[tp], ends[tp]
        if isinstance(first, Found) and isinstance(last, Found):
            found[tp] = Extent(first.offset, last.offset)
        else:
            failed = next((one for one in (first, last) if isinstance(one, RequestFailedError)), "it names no end")
            found[tp] = f"can't be read: {failed}"
    return found
