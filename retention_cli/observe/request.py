"""What is asked of a cluster, and what reading it found: values, for whichever engine reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import Floor, Maybe, PartitionFacts, TopicPartition, Unknown
from retention_cli.core.progress import Progress
from retention_cli.memory.interface import Memory
from retention_cli.memory.lineage import Cut, EpochEnds
from retention_cli.observe.floors.kafka_groups import EpochChecks
from retention_cli.policy.settings import GroupRules, Settings

if TYPE_CHECKING:
    from retention_cli.observe.recall import Remembered

SettingsFor = Callable[[str], Settings | None]
"""Gives a topic's effective settings, None where the topic is not managed."""


MemoryFor = Callable[[str], Memory]
"""Gives what is remembered of a cluster, by its id."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one reading of a cluster found.

    ``facts`` are those of every partition of every managed topic, by name and index. ``topics_seen`` names all
    topics of the cluster. ``sizes_problem`` says why some sizes are missing. ``epoch_ends`` says where leader epochs
    end that were asked about, ``cuts`` where logs were cut since the last pass; of ``doubts`` that could not be told.
    ``began`` is when reading began (of the reader's clock): nothing in it is older.
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
    """Gives each partition's floor, once its ends are known: a fold of commits, made here or elsewhere."""

    def floor(self, tp: TopicPartition, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
        """Return the partition's floor."""
        ...


class Disks(Protocol):
    """Lays in what rules want to know of disks, before times are looked up."""

    def with_disks(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        leaders: Leaders,
        cluster_id: str,
        remembered: Remembered,
        clock_ms: Callable[[], int],
        progress: Progress,
    ) -> dict[TopicPartition, PartitionFacts]:
        """Return the facts with R7's usage, R5's tails and the segments' base offsets laid in."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was read of a cluster before this slice of it: metadata and topic settings, then the commits.

    In that order, so that the slice goes on where they ended. ``configs`` are those of the topics that may be touched.
    """

    metadata: ClusterMetadata
    floors: Floors
    configs: Mapping[str, TopicConfig | RequestFailedError]


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be observed, at which now (Unix ms).

    Args:
        settings_for: the policy, topic by topic.
        groups: which groups count.
        now_ms: the clock of all cutoffs.
        only: these partitions alone, of those that are managed.
        sizes: whether bytes are wanted.
        lookups: whether times are looked up; without them nothing can be decided.
        patience_s: how long what moves may move.
        memory_for: gives what is remembered of a cluster, by its id; None: nothing is, and nothing will be.
        scan_all: whether event times are read out of records for as long as it takes, or while patience lasts.
        clock_ms: our wall clock, for what is remembered.
        clock: why our clock can't be trusted, where it was compared (G8).
        prepared: what was read before, of a slice. What changes under a slice is held, and not read again:
            its commits are not at hand.
        disks: lays in what rules want to know of disks; None where none does.
        epochs: leader epochs of partitions to ask about besides: of what a plan that was saved speaks (M2).
    """

    settings_for: SettingsFor
    groups: GroupRules
    now_ms: int
    only: Collection[TopicPartition] | None = None
    sizes: bool = True
    lookups: bool = True
    patience_s: float | None = None
    memory_for: MemoryFor | None = None
    scan_all: bool = False
    clock_ms: Callable[[], int] = SYSTEM.wall_ms
    clock: Unknown | None = None
    prepared: Prepared | None = None
    disks: Disks | None = None
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
