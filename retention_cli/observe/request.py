"""A request to observe a cluster, and the result: values that any engine can use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, Protocol

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, Leaders
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicConfig
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import PartitionFacts, TopicPartition, Unknown
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import Commits
from retention_cli.observe.floors.fold import CommitRow, FloorFold, Seen
from retention_cli.observe.floors.outside import Read
from retention_cli.observe.lineage import Cut, EpochEnds, by_partition
from retention_cli.observe.recall import Remembered
from retention_cli.policy.settings import GroupRules, Settings


class Times(NamedTuple):
    """When a reading began each step of the safe order, by the reader's clock: the one before was over by then."""

    began: float
    commits: float
    ends: float
    lookups: float
    again: float
    done: float


class Pass(NamedTuple):
    """One reading in the safe order: its times, and what groups had committed by then, if asked for."""

    times: Times
    seen: Sequence[Seen] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """What one reading of a cluster found.

    ``facts`` are those of every partition of every managed topic, by name and index. ``topics_seen`` are all topics of
    the cluster. ``sizes_problem`` says why some sizes are missing. ``epoch_ends`` has the ends of the leader epochs
    asked about, ``cuts`` where logs were cut since the last pass, ``doubts`` the partitions where that is unknown.
    ``began`` is when reading began, by the reader's clock: nothing in it is older. ``gone`` has the positions of groups
    whose commits are gone (F6), ``rows`` every consumer, if asked for. ``passes`` are the readings that it took, and
    ``read_in`` which of them a partition's facts are from, where that is not the first one.
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
    gone: Sequence[tuple[str, Commits]] = ()
    rows: Sequence[CommitRow] = ()
    passes: Sequence[Pass] = ()
    read_in: Mapping[TopicPartition, int] = field(default_factory=dict)

    def epoch_ends_by_partition(self) -> dict[TopicPartition, dict[int, int | None]]:
        """Return where the leader epochs asked about end, None where that is unknown."""
        return {
            tp: {epoch: answer.offset if isinstance(answer, Found) else None for epoch, answer in answers.items()}
            for tp, answers in by_partition(self.epoch_ends).items()
        }


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


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was read of a cluster before this slice of it: metadata and topic settings, then the commits.

    The slice continues from there in the safe order. ``configs`` are those of the topics that may be touched.
    """

    metadata: ClusterMetadata
    floors: FloorFold
    configs: Mapping[str, TopicConfig | RequestFailedError]


@dataclass(frozen=True, slots=True)
class Request:
    """What to read of a cluster: all of it, a slice (``prepared``), or partitions again, right before they are trimmed.

    Args:
        settings_for: returns a topic's effective settings, None if the topic is not managed.
        groups: which groups count.
        now_ms: now, for all cutoffs (Unix ms).
        memory_for: returns what is remembered of a cluster, by its id; None: remember nothing.
        clock_ms: returns our wall clock (Unix ms), for what is remembered.
        only: only these of the managed partitions; None: all.
        decides: read all that decisions need. Else only log ends, floors and each partition's samples of H, also of
            topics that are never touched.
        scan_all: read event times from records for as long as it takes, not only while patience lasts.
        disks: fills in what rules need to know about disks; None if no rule does.
        outside: what the sources of consumers outside Kafka's groups gave, if they were read elsewhere (F7).
        with_rows: keep every consumer as rows, and read sizes, too.
        with_seen: keep what groups have committed, for evidence.
        prepared: what was read before, if this is a slice of a cluster. A partition that changes is held, and not read
            again: its commits are not available.
        patience_s: how long to wait for leaders and coordinators that move; None: the reader's time-out.
        clock: why our clock can't be trusted, if it was compared (G8).
        epochs: further leader epochs to ask about, by partition: those of the plan (M2).
    """

    settings_for: Callable[[str], Settings | None]
    groups: GroupRules
    now_ms: int
    memory_for: Callable[[str], Ledger] | None = None
    clock_ms: Callable[[], int] = SYSTEM.wall_ms
    _: KW_ONLY
    only: Collection[TopicPartition] | None = None
    decides: bool = True
    scan_all: bool = True
    disks: Disks | None = None
    outside: Sequence[Read] | None = None
    with_rows: bool = False
    with_seen: bool = False
    prepared: Prepared | None = None
    patience_s: float | None = None
    clock: Unknown | None = None
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
