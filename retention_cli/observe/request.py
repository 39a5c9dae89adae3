"""A request to observe a cluster, and the result: values that any engine can use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import Floor, Maybe, PartitionFacts, TopicPartition, Unknown
from retention_cli.memory.interface import Memory
from retention_cli.memory.lineage import Cut, EpochEnds
from retention_cli.observe.floors.kafka_groups import BeginRows, EpochChecks
from retention_cli.observe.floors.outside import Read
from retention_cli.policy.settings import GroupRules, Settings

if TYPE_CHECKING:
    from retention_cli.observe.recall import Remembered

SettingsFor = Callable[[str], Settings | None]
"""Returns a topic's effective settings, None if the topic is not managed."""


MemoryFor = Callable[[str], Memory]
"""Returns what is remembered of a cluster, by its id."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one reading of a cluster found.

    ``facts`` are those of every partition of every managed topic, by name and index. ``topics_seen`` are all topics of
    the cluster. ``sizes_problem`` says why some sizes are missing. ``epoch_ends`` has the ends of the leader epochs
    asked about, ``cuts`` where logs were cut since the last pass, ``doubts`` the partitions where that is unknown.
    ``began`` is when reading began, by the reader's clock: nothing in it is older.
    """

    cluster_id: str
    began: float
    facts: Mapping[TopicPartition, PartitionFacts]
    settings: Mapping[str, Settings]
    leaders: Mapping[TopicPartition, PartitionMetadata]
    topics_seen: frozenset[str] = frozenset()
    sizes_problem: str | None = None
    ends_read_ms: int = 0
    epoch_ends: EpochEnds = field(default_factory=dict)
    cuts: Mapping[TopicPartition, Cut] = field(default_factory=dict)
    doubts: Collection[TopicPartition] = ()


class Floors(EpochChecks, Protocol):
    """Returns each partition's floor, once its ends are known: a fold of commits, made here or elsewhere."""

    def floor(self, tp: TopicPartition, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
        """Return the partition's floor."""
        ...


class Disks(Protocol):
    """Fills in what rules need to know about disks, before times are looked up."""

    def with_disks(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        leaders: Leaders,
        cluster_id: str,
        remembered: Remembered,
        clock_ms: Callable[[], int],
    ) -> dict[TopicPartition, PartitionFacts]:
        """Return the facts with R7's usage, R5's tails and the segments' base offsets filled in."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was read of a cluster before this slice of it: metadata and topic settings, then the commits.

    The slice continues from there in the safe order. ``configs`` are those of the topics that may be touched.
    """

    metadata: ClusterMetadata
    floors: Floors
    configs: Mapping[str, TopicConfig | RequestFailedError]


@dataclass(frozen=True, slots=True)
class Request:
    """What to observe.

    Args:
        settings_for: returns each topic's settings.
        groups: which groups count.
        now_ms: now, for all cutoffs (Unix ms).
        only: only these of the managed partitions.
        sizes: whether to read sizes.
        samples: whether to recall every partition's samples of H, not only those that G3 needs.
        lookups: whether to look up times; without them nothing can be decided.
        patience_s: how long to wait for leaders and coordinators that move.
        memory_for: returns what is remembered of a cluster, by its id; None: remember nothing.
        scan_all: whether to read event times from records for as long as it takes, not only while patience lasts.
        clock_ms: returns our wall clock (Unix ms), for what is remembered.
        clock: why our clock can't be trusted, if it was compared (G8).
        prepared: what was read before a slice. A partition of a slice that changes is held, and not read again: its
            commits are not available.
        disks: fills in what rules need to know about disks; None if no rule does.
        epochs: further leader epochs to ask about, by partition: those of a saved plan (M2).
        outside: what the sources of consumers outside Kafka's groups gave, if they were read elsewhere (F7).
        begin_rows: makes a sink that gets every consumer, beside the floors; unused with ``prepared``.
    """

    settings_for: SettingsFor
    groups: GroupRules
    now_ms: int
    only: Collection[TopicPartition] | None = None
    sizes: bool = True
    samples: bool = False
    lookups: bool = True
    patience_s: float | None = None
    memory_for: MemoryFor | None = None
    scan_all: bool = False
    clock_ms: Callable[[], int] = SYSTEM.wall_ms
    clock: Unknown | None = None
    prepared: Prepared | None = None
    disks: Disks | None = None
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    outside: Sequence[Read] | None = None
    begin_rows: BeginRows | None = None
