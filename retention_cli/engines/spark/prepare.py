"""Read a cluster's metadata, settings and list of groups in the client, before the tasks read the rest.

Metadata and settings are read while Spark starts, the groups are listed right before their commits are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.metadata import OFFSETS_TOPIC, ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.consumers import group_key
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.state_dir import StateError
from retention_cli.disks.batch_sizes import BatchSizes
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.engines.spark.jobs import ClusterJob, GroupsOf, Recalled
from retention_cli.engines.spark.packing import NO_BROKER
from retention_cli.engines.spark.places import Places
from retention_cli.engines.spark.recalling import recalled
from retention_cli.engines.spark.slice_memory import KnownGroup
from retention_cli.memory.interface import Memory, NoMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.lineage import Cut
from retention_cli.memory.stores import Memories
from retention_cli.observe.floors.fold import Both, FloorFold, FloorSink
from retention_cli.observe.floors.kafka_groups import Doubt, Listing, list_counted, not_listed
from retention_cli.observe.floors.latest import NOBODY, Latest
from retention_cli.observe.floors.outside import fold_outside
from retention_cli.observe.floors.recall import Recall
from retention_cli.observe.topic_facts import bare_facts, configured, never_touched
from retention_cli.plan.kept_forever import reached_by_pattern
from retention_cli.plan.lost import GoneCommits
from retention_cli.plan.make import PastDay, with_live
from retention_cli.policy.selection import Selection, check_matches

CLIENTS: Final = 8
"""How many clusters the client reads at a time."""
_AGAIN_AFTER_S: Final = 0.5
_SNAPSHOTS_AT_MOST: Final = 10


Connect = Callable[[], ConnectionRef]


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster to plan: its open reader, policy and topics.

    ``name`` is its name in a fleet. ``connect`` sends its connection settings to executors, once Spark is there, and
    returns where they find them. ``inventory`` are the files of its inventory, for the disk rules; without them,
    ``batches`` reads the bytes of batches in logs for R5. ``done`` is called once its plan is made, or it has failed:
    nothing more is read of the cluster then, or remembered of it.
    """

    name: str
    reader: ClusterReader
    selection: Selection
    connect: Connect
    past_day: PastDay
    memories: Memories | None = None
    inventory: Sequence[Path] = ()
    batches: BatchSizes | None = None
    done: Callable[[], None] = lambda: None


@dataclass(slots=True)
class Prepared:
    """A target, as far as the client has read it.

    ``metadata`` is the first metadata read, without topics unless the policy speaks of consumers
    outside Kafka's groups: ``job`` has the managed ones in columns. ``before`` is that of the groups' coordinators,
    which F9 compares, and ``listed_ms`` when it was about to be read (Unix ms): no commit was read before that.
    ``cuts`` are where this client itself found logs to be cut, ``outside`` the positions of consumers outside Kafka's
    groups (F7), ``gone`` those of consumers whose commits are gone (F6).
    """

    target: Target
    selection: Selection
    metadata: ClusterMetadata
    job: ClusterJob
    notes: Sequence[Reason] = ()
    memory: Memory = field(default_factory=NoMemory)
    listing: Listing | None = None
    doubt: Doubt | None = None
    before: ClusterMetadata | None = None
    listed_ms: int = 0
    cuts: Mapping[TopicPartition, Cut] = field(default_factory=dict)
    outside: Sequence[GroupCommits] = ()
    gone: GoneCommits = field(default_factory=GoneCommits)
    recalled: Recalled = field(default_factory=Recalled)

    @property
    def cluster(self) -> str:
        """The cluster's id."""
        return self.job.cluster

    def done(self) -> None:
        """Close what is open for it, and let go of what is proportional to its partitions."""
        self.target.done()
        self.memory, self.recalled, self.cuts, self.outside = NoMemory(), Recalled(), {}, ()
        self.gone = GoneCommits()

    def connected(self) -> None:
        """Send the connection settings to executors."""
        self.job = replace(self.job, connection=self.target.connect())


def prepare(target: Target, now_ms: int) -> Prepared:
    """Read the small data: proportional to topics, partitions and groups, not to commits.

    Raises:
        BrokerError: the cluster's metadata could not be read.
        PolicyError: R1 is enabled for a topic without a time.
        NothingMatchesError: there is no topic to decide about.
    """
    reader = target.reader
    selection = with_live(reader, target.selection)
    metadata = reader.metadata()
    settings = {name: found for name in sorted(metadata.topics) if (found := selection.settings_for(name)) is not None}
    bare = {name: bare_facts(metadata.topics[name]) for name in settings}
    asked = [name for name, topic in bare.items() if not never_touched(topic, settings[name])]
    configs = reader.topic_configs(asked) if asked else {}
    touched = [name for name in asked if not never_touched(configured(bare[name], configs.get(name)), settings[name])]
    job = ClusterJob(
        timeout_s=reader.timeout_s,
        groups=selection.policy.groups,
        now_ms=now_ms,
        places=Places.of(metadata, settings),
        settings=settings,
        partitions={name: max(metadata.topics[name].partitions) + 1 for name in touched},
        topic_ids=metadata.topic_ids,
        configs=configs,
    )
    notes = [*selection.policy.live.notes, *check_matches(selection, metadata.topics.keys())]
    known = (configured(bare[name], configs.get(name)) for name in settings)
    notes += reached_by_pattern(known, settings, selection.policy)
    prepared = Prepared(target, selection.decided_alone, metadata, job, notes)
    let_go_of_metadata(prepared)
    return prepared


def let_go_of_metadata(prepared: Prepared) -> None:
    """Let go of metadata that is not needed any more."""
    if not prepared.selection.policy.groups.sources:
        prepared.metadata = replace(prepared.metadata, topics={})


def open_memory(prepared: Prepared) -> None:
    """Open the cluster's ledger, and set what tasks must know of the partitions.

    Raises:
        StateError: the ledger can't be read.
    """
    if prepared.target.memories is not None:
        prepared.memory = prepared.target.memories(prepared.cluster)
    memory = prepared.memory
    for _ in range(_SNAPSHOTS_AT_MOST):
        with memory.sparing() if isinstance(memory, Ledger) else nullcontext():
            memory.begin(prepared.job.topic_ids)
        prepared.recalled = recalled(prepared.job, memory)
        # One snapshot: another run notes a cut for groups and partitions together.
        if not isinstance(memory, Ledger) or not memory.others_wrote:
            return
    raise StateError("the ledger is written by other runs all the time: run again")


def recall_again(prepared: Prepared) -> None:
    """Recall what others have written to the ledger by now; call it once groups are listed.

    A group that another run has seen since the ledger was opened, and that is gone by now, is in no listing and counts
    (F6). If the ledger can't be read any more, every floor is unknown.
    """
    try:
        if isinstance(memory := prepared.memory, Ledger) and memory.told_more():
            open_memory(prepared)
    except StateError as error:
        prepared.listing, prepared.doubt = None, Doubt(Reason("F6", str(error)), "no")


def list_groups(prepared: Prepared) -> None:
    """List the groups that count, and retry while that may help; set ``doubt`` if the listing stays incomplete."""
    reader, rules = prepared.target.reader, prepared.selection.policy.groups
    deadline = reader.clock.monotonic() + reader.timeout_s
    attempts = 0
    while True:
        attempts += 1
        prepared.listed_ms = SYSTEM.wall_ms()
        try:
            prepared.before = before = reader.metadata([OFFSETS_TOPIC])
            found = list_counted(reader, rules, before, deadline)
        except BrokerError as error:
            found = not_listed(error)
        if isinstance(found, Listing):
            prepared.listing, prepared.doubt = found, None
            return
        prepared.listing, prepared.doubt, prepared.before = None, found, None
        if not found.allows_another(attempts, late=reader.clock.monotonic() > deadline):
            return
        reader.clock.sleep(_AGAIN_AFTER_S)


def latest_of(prepared: Prepared) -> Latest:
    """Return the groups that start at the end where they have no commit (F2), none without a listing."""
    if prepared.listing is None:
        return NOBODY
    rules = prepared.selection.policy.groups
    return prepared.listing.latest(prepared.job.partitions, Recall(prepared.memory, rules, SYSTEM.wall_ms()))


def groups_of(prepared: Prepared, listing: Listing) -> GroupsOf:
    """Return the groups that count, their coordinators, and what is remembered of each."""
    try:
        found = prepared.target.reader.coordinators([group.name for group in listing.counted])
    except BrokerError:  # the tasks look them up, too, and report the error
        found = {}
    coordinators = [found.get(group.name, NO_BROKER) for group in listing.counted]
    latest = latest_of(prepared)
    memories: dict[str, KnownGroup] | None = None
    slack_ms = 0
    if isinstance(ledger := prepared.memory, Ledger):
        keys = (group_key(group.kind, group.name) for group in listing.counted)
        memories = {key: KnownGroup(*known) for key in keys if (known := ledger.recalled_group(key)) is not None}
        slack_ms = ledger.slack_ms
    return GroupsOf(listing.counted, coordinators, latest, memories, slack_ms)


def own_fold(prepared: Prepared, rows: FloorSink | None = None) -> FloorFold:
    """Fold what the client adds: deleted groups (F6), other consumers (F7), why listings are incomplete (F8, F9).

    ``rows`` gets the same.
    """
    job, listing, rules = prepared.job, prepared.listing, prepared.selection.policy.groups
    fold = FloorFold(job.scopes(), latest_of(prepared))
    gone = prepared.gone = GoneCommits()
    sink: FloorSink = Both(fold, gone if rows is None else Both(rows, gone))
    recall = Recall(prepared.memory, rules, SYSTEM.wall_ms())
    if prepared.doubt is not None:
        sink.fail_all(prepared.doubt.reason)
    elif listing is not None:
        listing.tell(sink, job.scopes())
        recall.add_gone(sink, listing.keys)
    if job.partitions:
        outside: list[GroupCommits] = []
        reader, metadata = prepared.target.reader, prepared.metadata
        fold_outside(sink, rules.sources, job.partitions, metadata, recall, reader, outside.append)
        prepared.outside = outside
    return fold
