"""The facts of a cluster that tasks get: values in files (:mod:`retention_cli.engines.spark.sent`). None is a secret.

The connection is a *reference*: the name of a file with the connection's settings, which the task opens where it runs
(:mod:`retention_cli.engines.spark.connections`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.groups import ListedGroup
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.engines.spark.packing import Piece, share
from retention_cli.engines.spark.places import Places
from retention_cli.engines.spark.slice_memory import KnownGroup
from retention_cli.memory.documents import memory_from_bytes
from retention_cli.memory.earlier import pack, unpack
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.samples import SAMPLE
from retention_cli.observe.floors.fold import TopicScope
from retention_cli.observe.floors.latest import Latest
from retention_cli.policy.settings import GroupRules, Settings


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """One cluster's part of a plan.

    ``settings`` are those of the managed topics, ``partitions`` has the partition count of each that may be trimmed.
    ``topic_ids`` are those of all topics, managed or not: all of a group's commits are remembered (F5, F6). ``configs``
    are the settings that the client read first. ``now_ms`` is the time from which all cutoffs are calculated.
    ``ends_only``: nothing is decided, so no times or sizes are looked up. ``unread``: sizes and samples are, for what
    consumers have yet to read. ``connection`` is set once Spark is there.
    """

    timeout_s: float
    groups: GroupRules
    now_ms: int
    places: Places
    settings: Mapping[str, Settings]
    partitions: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, TopicConfig | RequestFailedError] = field(default_factory=dict)
    ends_only: bool = False
    unread: bool = False
    connection: ConnectionRef = field(default_factory=ConnectionRef)

    @property
    def cluster(self) -> str:
        """The cluster's id."""
        return self.places.cluster

    def needs_memory(self, topic: str) -> bool:
        """Return whether a topic's rules need more of the ledger than what proves its logs."""
        settings = self.settings[topic]
        return self.unread or (settings.event_time_ms, settings.min_wallclock_ms) != (None, None)

    def scopes(self, topics: Collection[str] | None = None) -> dict[str, TopicScope]:
        """Return what a fold of commits must know of the topics that may be trimmed, or of those of ``topics``."""
        require = {name: one.require_groups for name, one in self.settings.items() if one.require_groups}
        chosen = self.partitions.keys() if topics is None else self.partitions.keys() & topics
        return self.places.scopes(chosen, require)


@dataclass(frozen=True, slots=True)
class GroupsOf:
    """The groups of a cluster that count, each with its coordinator (:data:`.packing.NO_BROKER`: none was found).

    ``latest`` are the groups that start at the end where they have no commit (F2). ``memories`` has what the ledger
    knows of each, by key (:mod:`retention_cli.core.consumers`); None: nothing is remembered. By ``slack_ms`` a group
    may have been seen later than the ledger knows.
    """

    groups: Sequence[ListedGroup]
    coordinators: Sequence[int]
    latest: Latest
    memories: Mapping[str, KnownGroup] | None = None
    slack_ms: int = 0

    def by_coordinator(self, cluster: str) -> dict[tuple[str, int], int]:
        """Return how many groups each coordinator has, by cluster and broker."""
        return {(cluster, broker): count for broker, count in Counter(self.coordinators).items()}

    def of_piece(self, piece: Piece) -> Sequence[ListedGroup]:
        """Return the groups that a piece has."""
        theirs = [one for one, at in zip(self.groups, self.coordinators, strict=True) if at == piece.broker]
        part = share(len(theirs), piece.part, piece.parts)
        return theirs[part.start : part.stop]


class Proofs(NamedTuple):
    """The parts of the ledger's records that show whether a log was cut (M2), in columns by position.

    ``leader_epochs`` is :data:`NOTHING` where nothing is remembered, ``last_epochs`` where it is unknown. ``created``
    are the topics' partitions that the ledger knows to be CreateTime. ``stands``: where the log is as it was, there is
    nothing to prove or to add.
    """

    leader_epochs: Any
    last_epochs: Any
    log_starts: Any
    high_watermarks: Any
    created: Any
    stands: Any
    earlier: dict[int, bytes]

    @classmethod
    def of(cls, count: int) -> Proofs:
        """Return the columns of so many positions of which nothing is remembered."""
        return cls(
            leader_epochs=np.full(count, NOTHING, np.int32),
            last_epochs=np.full(count, NOTHING, np.int32),
            log_starts=np.zeros(count, np.int64),
            high_watermarks=np.zeros(count, np.int64),
            created=np.zeros(count, bool),
            stands=np.zeros(count, bool),
            earlier={},
        )

    def add(self, position: int, one: PartitionMemory, *, created: bool | None) -> None:
        """Add what is remembered of a position. ``created``: whether the topic is CreateTime now, None: unknown."""
        self.created[position] = one.created
        if one.leader_epoch is None:
            return
        self.leader_epochs[position] = one.leader_epoch
        self.last_epochs[position] = NOTHING if one.last_epoch is None else one.last_epoch
        end = one.high_watermark
        self.log_starts[position], self.high_watermarks[position] = one.log_start, end
        if one.last_epoch is not None and one.packed and not one.earlier and created in (None, one.created):
            plain = one.newest is None and one.scan is None and not one.data_at  # then it reaches up to H
            self.stands[position] = plain or one.reach == end
        if one.earlier:
            self.earlier[position] = pack(one.earlier)

    def add_plain(self, positions: Any, rows: Sequence[Sequence[Any]], created: Any) -> None:
        """Add the ledger's rows of positions, all with nothing but samples (``partition_rows.has_samples_alone``).

        ``created`` is 1 where the topic is CreateTime now, 0 where it is not, -1 where that is unknown.
        """
        _, _, _, epochs, last_epochs, _, starts, samples, _, _, _, was_created, *_ = zip(*rows, strict=True)
        ends = np.frombuffer(b"".join([one[-_OFFSET_BYTES:] for one in samples]), "<i8")
        last = np.array([NOTHING if one is None else one for one in last_epochs], np.int32)
        was = np.array(was_created, bool)
        self.leader_epochs[positions], self.last_epochs[positions] = np.array(epochs, np.int32), last
        self.log_starts[positions], self.high_watermarks[positions] = np.array(starts, np.int64), ends
        self.created[positions] = was
        self.stands[positions] = (last != NOTHING) & ((created == -1) | (created == was))

    def at(self, positions: Any) -> list[PartitionMemory | None]:
        """Return the proofs of these positions, new objects; None where nothing is remembered."""
        columns = (self.leader_epochs, self.last_epochs, self.log_starts, self.high_watermarks)
        return [
            None
            if epoch == NOTHING
            else PartitionMemory(
                packed=SAMPLE.pack(0, end),  # the time proves nothing
                leader_epoch=epoch,
                last_epoch=None if last == NOTHING else last,
                earlier=unpack(self.earlier.get(position, b"")) if self.earlier else (),
                log_start=start,
            )
            for position, epoch, last, start, end in zip(
                positions.tolist(), *(one[positions].tolist() for one in columns), strict=True
            )
        ]


NOTHING: Final = -(2**31)
_OFFSET_BYTES: Final = 8
"""H is the last of a row's samples."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What the client knows of a cluster's partitions before their ends are read, by position.

    ``memories`` are the ledger's records that rules need, ``proofs`` what shows of the others whether their logs were
    cut; ``lost`` is why nothing can be recalled.
    """

    memories: Mapping[int, bytes] = field(default_factory=dict)
    proofs: Proofs | None = None
    lost: str | None = None

    def at(self, positions: Any) -> list[PartitionMemory | None]:
        """Return what is known of these positions, new objects; None where nothing is."""
        found: list[PartitionMemory | None]
        found = [None] * len(positions) if self.proofs is None else self.proofs.at(positions)
        for index, position in enumerate(positions.tolist()) if self.memories else ():
            if (known := self.memories.get(position)) is not None:
                found[index] = memory_from_bytes(known)
        return found
