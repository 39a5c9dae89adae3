"""Read a cluster's metadata, settings and list of groups in the client, before the tasks read the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.metadata import OFFSETS_TOPIC, ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.consumers import group_key
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.disks.batch_sizes import BatchSizes
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.engines.spark.jobs import ClusterJob
from retention_cli.engines.spark.slices import GROUPS_A_SLICE, NO_BROKER, partition_slices, sliced
from retention_cli.memory.documents import memory_as_bytes
from retention_cli.memory.interface import Memory, NoMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.lineage import Cut
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.stores import Memories
from retention_cli.observe.floors.kafka_groups import Doubt, Listing, list_counted, not_listed
from retention_cli.observe.floors.outside import fold_outside
from retention_cli.observe.floors.recall import Recall
from retention_cli.observe.floors.rows import CommitRow, CommitRows
from retention_cli.observe.topic_facts import bare_facts, configured, never_touched
from retention_cli.plan.make import PastDay, with_live
from retention_cli.policy.selection import Selection, check_matches
from retention_cli.policy.settings import Settings

_AGAIN_AFTER_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster to plan: its open reader, policy and topics, and where executors find its connection settings.

    ``name`` is its name in a fleet. ``inventory`` are the files of its inventory, for the disk rules; without them,
    ``batches`` reads the bytes of batches in logs for R5.
    """

    name: str
    reader: ClusterReader
    selection: Selection
    connection: ConnectionRef
    past_day: PastDay
    memories: Memories | None = None
    inventory: Sequence[Path] = ()
    batches: BatchSizes | None = None


@dataclass(slots=True)
class Prepared:
    """A target, as far as the client has read it.

    ``before_cuts`` are the ledger's records of partitions whose logs this client already found to be cut, as before:
    tasks, which judge commits, must see that state, too; ``cuts`` are the offsets where they were cut.
    """

    target: Target
    selection: Selection
    metadata: ClusterMetadata
    job: ClusterJob
    settings: Mapping[str, Settings]
    notes: Sequence[Reason] = ()
    memory: Memory = field(default_factory=NoMemory)
    listing: Listing | None = None
    doubt: Doubt | None = None
    before: ClusterMetadata | None = None
    before_cuts: Mapping[TopicPartition, PartitionMemory] = field(default_factory=dict)
    cuts: Mapping[TopicPartition, Cut] = field(default_factory=dict)

    @property
    def cluster(self) -> str:
        """The cluster's id."""
        return self.metadata.cluster_id


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
        cluster=metadata.cluster_id,
        connection=target.connection,
        timeout_s=reader.timeout_s,
        policy=selection.policy,
        topics=selection.topics,
        now_ms=now_ms,
        partitions={name: max(metadata.topics[name].partitions) + 1 for name in touched},
        topic_ids=metadata.topic_ids,
        configs=configs,
    )
    notes = [*selection.policy.live.notes, *check_matches(selection, metadata.topics.keys())]
    prepared = Prepared(target, selection.decided_alone, metadata, job, settings, notes, before=metadata)
    if touched:
        list_groups(prepared)
    return prepared


def recall(prepared: Prepared) -> None:
    """Open the cluster's ledger, in the thread that will use it."""
    if prepared.target.memories is not None:
        prepared.memory = prepared.target.memories(prepared.cluster)
    prepared.memory.begin(prepared.metadata.topic_ids)
    lost = prepared.memory.lost
    prepared.job = replace(prepared.job, lost=None if lost is None else lost.reasons[0].text)


def list_groups(prepared: Prepared) -> None:
    """List the groups that count, and retry while that may help; set ``doubt`` if the listing stays incomplete."""
    reader, rules = prepared.target.reader, prepared.selection.policy.groups
    deadline = reader.clock.monotonic() + reader.timeout_s
    attempts = 0
    while True:
        attempts += 1
        try:
            before = prepared.before or reader.metadata([OFFSETS_TOPIC])
            prepared.before = before
            found = list_counted(reader, rules, before, deadline)
        except BrokerError as error:
            found = not_listed(error)
        if isinstance(found, Listing):
            prepared.listing, prepared.doubt = found, None
            prepared.job = replace(prepared.job, latest=tuple(found.latest(rules)))
            return
        prepared.listing, prepared.doubt, prepared.before = None, found, None
        if not found.allows_another(attempts, late=reader.clock.monotonic() > deadline):
            return
        reader.clock.sleep(_AGAIN_AFTER_S)


def group_rows(prepared: Prepared) -> Iterator[dict[str, Any]]:
    """Yield the groups that count with the slice that reads each; a coordinator's groups are adjacent."""
    if prepared.listing is None:
        return
    groups = prepared.listing.counted
    try:
        coordinators = prepared.target.reader.coordinators([group.name for group in groups])
    except BrokerError:  # the tasks look them up, too, and report the error
        coordinators = {}
    for number, group in sliced(groups, lambda one: coordinators.get(one.name, NO_BROKER), GROUPS_A_SLICE):
        name, key, memory = group.name, group_key(group.kind, group.name), None
        if isinstance(prepared.memory, Ledger) and prepared.memory.remembers_group(key):
            memory = prepared.memory.group(key).as_bytes()
        yield {
            "cluster": prepared.cluster,
            "broker": coordinators.get(name, NO_BROKER),
            "slice": number,
            "name": name,
            "kind": group.kind,
            "protocol_type": group.protocol_type,
            "state": group.state,
            "memory": memory,
        }


def own_rows(prepared: Prepared) -> list[CommitRow]:
    """Return the client's own rows: deleted groups (F6), other consumers (F7), why listings are incomplete (F8, F9)."""
    sink = CommitRows(prepared.job.partitions, prepared.job.latest)
    rules = prepared.selection.policy.groups
    recall = Recall(prepared.memory, rules, SYSTEM.wall_ms())
    if prepared.doubt is not None:
        sink.fail_all(prepared.doubt.reason)
    elif prepared.listing is not None:
        recall.add_gone(sink, prepared.listing.keys)
    if prepared.job.partitions:
        reader = prepared.target.reader
        fold_outside(sink, rules.sources, prepared.job.partitions, prepared.metadata, recall, reader)
    return sink.take()


def slice_rows(prepared: Prepared, disk_facts: Mapping[TopicPartition, bytes]) -> Iterator[dict[str, Any]]:
    """Yield every managed partition with the slice that reads it; a leader's partitions are adjacent.

    Args:
        prepared: the cluster.
        disk_facts: the facts about disks (``schemas.SLICES``), for partitions that disk rules apply to.
    """
    for slice_number, tp, one in partition_slices(prepared.metadata.places(prepared.settings)):
        about, settings = prepared.metadata.topics[tp.topic], prepared.settings[tp.topic]
        memory = proof = None
        if about.topic_id is not None:
            known = prepared.before_cuts.get(tp)
            known = known or prepared.memory.partition(tp.topic, about.topic_id, tp.partition)
            if prepared.job.unread or (settings.event_time_ms, settings.min_wallclock_ms) != (None, None):
                memory = memory_as_bytes(known)
            elif (proven := known.proof) is not None:
                proof = memory_as_bytes(proven)
        yield {
            "cluster": prepared.cluster,
            "slice": slice_number,
            "topic": tp.topic,
            "partition": tp.partition,
            "topic_id": about.topic_id,
            "internal": about.internal,
            "leader": one.leader,
            "leader_epoch": one.leader_epoch,
            "memory": memory,
            "proof": proof,
            "disk_facts": disk_facts.get(tp),
        }
