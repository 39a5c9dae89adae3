"""The cluster in memory: topics, groups, coordinators, its clock, and what of requests gets lost.

Its logs answer as a broker's do where that matters (docs/facts.md): look-ups by time that search one segment alone,
MAX_TIMESTAMP on dead records and markers, epochs' ends, logs that are cut by an unclean election. Nothing is random.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from retention_cli.brokers.writer import Appended
from retention_cli.policy.live import Message
from retention_cli.state.own_topics import STATE_TOPIC

BROKERS = (1, 2, 3)
OFFSETS_PARTITIONS = 2
BEGAN_MS = 1_800_000_000_000
HOUR = 3_600_000
Tp = tuple[str, int]

Lost = Literal["before", "after", "late", "refused"]
"""A delete that never arrives, one whose answer gets lost, one that is carried out later, one that is refused."""

Storage = Literal["local", "tiered", "diskless"]


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: str
    partitions: list[Partition]
    append_time: bool = False
    storage: Storage = "local"


@dataclass(slots=True)
class Group:
    """A consumer group: what it has committed (offset, leader epoch), and which topics live members read.

    One of kind ``outside`` keeps its positions in a file: no broker knows it (F7).
    An offset below zero is what some clients store to start anew. ``pending`` has offsets in transactions that are open.
    ``pattern`` is a member's regular expression (KIP-848), ``assigned`` what that member was given so far.

    ``away`` are topics of static members that have stopped: brokers list these until their sessions are over (Unix ms).
    """

    name: str
    kind: Literal["classic", "consumer", "outside"] = "classic"
    commits: dict[Tp, tuple[int, int | None]] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    away: dict[str, int] = field(default_factory=dict)
    pending: dict[Tp, tuple[int, int | None]] = field(default_factory=dict)
    pattern: str | None = None
    assigned: set[str] = field(default_factory=set)
    rebalancing: bool = False

    def listed(self, now_ms: int) -> frozenset[str]:
        """Return the topics of all members that its coordinator lists."""
        return frozenset(self.members).union(name for name, until_ms in self.away.items() if now_ms < until_ms)

    def reads(self, now_ms: int) -> frozenset[str]:
        """Return the topics that its members truly read, or are about to."""
        found = self.listed(now_ms).union(tp[0] for tp in self.pending)
        return found if self.pattern is None else found.union(self.pattern.strip("[]"))

    def state(self, now_ms: int) -> str:
        if not self.listed(now_ms) and self.pattern is None:
            return "Empty"
        if not self.rebalancing:
            return "Stable"
        return "PreparingRebalance" if self.kind == "classic" else "Reconciling"


@functools.cache
def offsets_partition(group: str) -> int:
    """Return which partition of __consumer_offsets keeps a group: its name's hash in Java, without its sign."""
    value = sum(ord(one) * 31**place for place, one in enumerate(reversed(group))) % 2**32
    return abs(value - 2**32 if value >= 2**31 else value) % OFFSETS_PARTITIONS


class SimKafka:
    """The cluster. Everything that happens to it is a method; nothing here is random."""

    def __init__(self) -> None:
        self.cluster_id = "simulated"
        self.pause: Callable[[str], None] = lambda _request: None
        """Called before each request: others may act meanwhile."""
        self.now_ms = BEGAN_MS
        self.elapsed_s = 0.0
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.offsets_leaders: list[tuple[int | None, int]] = [(BROKERS[n % 3], 0) for n in range(OFFSETS_PARTITIONS)]
        self.loading = False
        self.may_describe = True
        self.offsets_hidden = False
        self.scope: str | None = None
        self.may_describe_scope = True
        self.failing: dict[str, int] = {}
        self.lost: list[Lost] = []
        self.deposed = 0
        self.state_messages: list[Message] = []
        self.state_end = 0
        self.state_epoch = 0
        self.policy_messages: list[tuple[bytes, bytes | None, int]] = []
        self._uids = itertools.count(1)
        self._ids = itertools.count(1)
        self._txns = itertools.count(1)

    # -- time ------------------------------------------------------------------------

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.elapsed_s += milliseconds / 1000

    def may_describe_group(self, name: str) -> bool:
        """Return whether the user may describe a group: of a tenant's prefix all, or one alone by its name."""
        if self.scope is None:
            return self.may_describe or name == min(self.groups, default=name)
        return name == f"{self.scope}0" or (self.may_describe_scope and name.startswith(self.scope))

    def lose(self, call: str) -> bool:
        """Return whether the next request of a kind gets lost; it is one fewer then."""
        if self.failing.get(call, 0) <= 0:
            return False
        self.failing[call] -= 1
        return True

    # -- what kretain shares ------------------------------------------------------------

    def append_state(self, key: bytes, value: bytes | None) -> Appended:
        """Append to the topic that all kretains share, stamped by a broker."""
        self.state_messages.append(Message(0, self.state_end, key, value, self.now_ms, STATE_TOPIC))
        self.state_end += 1
        return Appended(0, self.state_end - 1, self.now_ms)

    def cut_state(self, end: int) -> None:
        """Elect a leader for that topic that lacks all from this offset on."""
        self.state_messages = [one for one in self.state_messages if one.offset < end]
        self.state_end, self.state_epoch = end, self.state_epoch + 1

    # -- topics ------------------------------------------------------------------------

    def create(self, name: str, partitions: int, *, append_time: bool = False) -> Topic:
        topic_id = f"ID{next(self._ids):020d}"
        logs = [Partition.new(BROKERS[(n + i) % 3] for i in range(2)) for n in range(partitions)]
        self.topics[name] = Topic(name, topic_id, logs, append_time)
        return self.topics[name]

    def delete(self, name: str, *, clear_commits: bool) -> None:
        del self.topics[name]
        for group in self.groups.values():
            if clear_commits and group.kind != "outside":
                group.commits = {tp: one for tp, one in group.commits.items() if tp[0] != name}
                group.pending = {tp: one for tp, one in group.pending.items() if tp[0] != name}

    def add_partition(self, name: str) -> Tp:
        logs = self.topics[name].partitions
        logs.append(Partition.new(BROKERS[(len(logs) + i) % 3] for i in range(2)))
        return name, len(logs) - 1

    def logs(self) -> Iterator[tuple[Tp, Partition]]:
        return (((name, n), log) for name, topic in self.topics.items() for n, log in enumerate(topic.partitions))

    def partition(self, tp: Tp) -> Partition:
        return self.topics[tp[0]].partitions[tp[1]]

    # -- records -----------------------------------------------------------------------

    def append(
        self,
        tp: Tp,
        *,
        stamp: int | None = None,
        header: bytes | None = None,
        txn: int | None = None,
    ) -> Record:
        """Append a data record stamped by its producer (None: now), unless the topic stamps append times."""
        topic, log = self.topics[tp[0]], self.partition(tp)
        when = self.now_ms if topic.append_time else (self.now_ms if stamp is None else stamp)
        place = (next(self._uids), log.log.end, log.epoch)
        return log.append(Record(*place, when, "data", topic.append_time, self.now_ms, header, txn))

    def begin_transaction(self, tp: Tp) -> int:
        txn = next(self._txns)
        self.partition(tp).txns[txn] = "open"
        return txn

    def end_transaction(self, tp: Tp, txn: int, state: Literal["committed", "aborted"]) -> None:
        """Write the marker, stamped with wall-clock time, and let the transaction's records be."""
        log, append_time = self.partition(tp), self.topics[tp[0]].append_time
        if log.leader is not None:
            place = (next(self._uids), log.log.end, log.epoch)
            log.append(Record(*place, self.now_ms, "marker", append_time, self.now_ms, None))
            log.txns[txn] = state

    def compact(self, tp: Tp, every: int) -> None:
        """Clean: every so many-th data record below the active segment is superseded. Offsets stay."""
        log = self.partition(tp)
        for broker in log.in_sync:
            replica = log.replicas[broker]
            last, before = max(0, replica.end - 1), replica.records
            replica.records = [
                one
                for n, one in enumerate(replica.records)
                if one.kind != "data" or one.txn is not None or n % every or one.offset == last
            ]
            log.superseded |= {one.uid for one in before} - {one.uid for one in replica.records}


SEGMENT_RECORDS = 4
"""How many offsets a segment has: few, so that look-ups meet segments' borders."""

NO_STAMP = -1


class Record(NamedTuple):
    """A record as it lies in a log, and what no client can see of it.

    ``uid`` identifies it even after its offset has gone to another record. ``append_time`` says that the broker stamped
    its batch. ``written_ms`` is when it was truly appended.
    """

    uid: int
    offset: int
    epoch: int
    stamp: int
    kind: Literal["data", "marker"]
    append_time: bool
    written_ms: int
    header: bytes | None
    txn: int | None = None


class Epoch(NamedTuple):
    """A leader epoch, and the offset at which it begins in a replica's log."""

    epoch: int
    start: int


@dataclass(slots=True)
class Replica:
    """A broker's copy: records in the order of offsets (dead ones below ``start`` too, until they are swept)."""

    records: list[Record] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epochs: list[Epoch] = field(default_factory=list)

    def copy(self) -> Replica:
        return Replica(list(self.records), self.start, self.end, list(self.epochs))

    # -- leader epochs ------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        """Note that this replica leads in an epoch, from its end on; one before without a record is forgotten."""
        if not self.epochs or self.epochs[-1].epoch < epoch:
            self.epochs = [*(one for one in self.epochs if one.start < self.end), Epoch(epoch, self.end)]

    def epoch_end(self, epoch: int) -> Epoch | None:
        """Where an epoch ends (OffsetForLeaderEpoch), or the one below, where this log has nothing of it.

        None where it is above all that this log knows.
        """
        if not self.epochs or epoch > self.epochs[-1].epoch:
            return None
        if epoch == self.epochs[-1].epoch:
            return Epoch(epoch, self.end)
        below = max((one.epoch for one in self.epochs if one.epoch <= epoch), default=epoch)
        return Epoch(below, next(one.start for one in self.epochs if one.epoch > epoch))

    def cut(self, end: int) -> None:
        if end < self.end:
            self.records = [one for one in self.records if one.offset < end]
            self.epochs = [one for one in self.epochs if one.start < end] or self.epochs[:1]
            self.end = end
            self.start = min(self.start, end)

    def forget_epochs(self) -> None:
        """As LeaderEpochFileCache does when S moves: of the epochs below S the last stays, and begins at S."""
        below = [one for one in self.epochs if one.start <= self.start]
        if below:
            self.epochs = [Epoch(below[-1].epoch, self.start), *(one for one in self.epochs if one.start > self.start)]

    # -- what is read -------------------------------------------------------------

    def live(self) -> list[Record]:
        return [one for one in self.records if one.offset >= self.start]

    def segments(self) -> Iterator[list[Record]]:
        """Segments that lie on the disk, dead records and all."""
        parts = itertools.groupby(self.records, lambda one: one.offset // SEGMENT_RECORDS)
        return (list(part) for _, part in parts)

    def sweep(self) -> None:
        """Delete the segments that lie wholly below S; never the active one."""
        active = max(0, self.end - 1) // SEGMENT_RECORDS
        alive = self.start // SEGMENT_RECORDS
        self.records = [one for one in self.records if one.offset // SEGMENT_RECORDS >= min(alive, active)]

    def offset_at(self, time_ms: int, before: int) -> Record | None:
        """ListOffsets of a time: the first segment whose largest timestamp is not older is searched, and no other."""
        for segment in self.segments():
            if max(one.stamp for one in segment) >= time_ms:
                found = next((one for one in segment if one.offset >= self.start and one.stamp >= time_ms), None)
                return found if found is not None and found.offset < before else None
        return None

    def max_timestamp(self, before: int) -> Record | None:
        """MAX_TIMESTAMP: the first of the largest, markers and dead records included."""
        found = max(self.records, key=lambda one: (one.stamp, -one.offset), default=None)
        return None if found is None or found.offset >= before or found.stamp < 0 else found


TxnState = Literal["open", "committed", "aborted"]


@dataclass(slots=True)
class Partition:
    """A partition: replicas by broker, those in sync, its leader and leader epoch, its transactions.

    ``superseded``: records (uids) that compaction has removed from one replica at least.
    """

    replicas: dict[int, Replica]
    leader: int | None
    epoch: int = 0
    in_sync: set[int] = field(default_factory=set)
    txns: dict[int, TxnState] = field(default_factory=dict)
    superseded: set[int] = field(default_factory=set)

    @classmethod
    def new(cls, brokers: Iterable[int]) -> Partition:
        ids = list(brokers)
        one = cls({broker: Replica() for broker in ids}, ids[0], 0, set(ids))
        for replica in one.replicas.values():
            replica.begin_epoch(0)
        return one

    @property
    def log(self) -> Replica:
        """The leader's log; of a partition without a leader, the last leader's."""
        return self.replicas[self.leader if self.leader is not None else next(iter(self.replicas))]

    @property
    def high_watermark(self) -> int:
        return self.log.end

    @property
    def last_stable(self) -> int:
        """L: the first offset of an open transaction, else H."""
        first = [one.offset for one in self.log.records if self.txns.get(one.txn or 0) == "open"]
        return max(self.log.start, min([self.log.end, *first]))

    def is_data(self, one: Record) -> bool:
        """Whether it is a data record that a read_committed consumer is given."""
        return one.kind == "data" and (one.txn is None or self.txns.get(one.txn) == "committed")

    def committed(self) -> list[Record]:
        """What a read_committed consumer can read."""
        stable = self.last_stable
        return [one for one in self.log.live() if one.offset < stable and self.is_data(one)]

    # -- what happens to it ---------------------------------------------------------

    def append(self, record: Record) -> Record:
        """Append a record, which is of our end and epoch, to all replicas in sync; it has a leader."""
        for broker in self.in_sync:
            replica = self.replicas[broker]
            replica.begin_epoch(record.epoch)
            replica.records.append(record)
            replica.end = record.offset + 1
        return record

    def move_start(self, offset: int) -> int:
        """Move S of the leader and of those in sync; return where it is then."""
        for broker in self.in_sync:
            replica = self.replicas[broker]
            if offset > replica.start:
                replica.start = min(offset, replica.end)
                replica.forget_epochs()
        return self.log.start

    def elect(self, *, skip: int = 1) -> None:
        """Make the other replica, or the next one, the leader: unclean, where it is not in sync."""
        self.lead(next(one for one in self.replicas if one != self.leader), skip=skip)

    def lead(self, broker: int, *, skip: int = 1) -> None:
        self.leader = broker
        if broker not in self.in_sync:
            self.in_sync = {broker}
        self.begin_epoch(skip=skip)

    def begin_epoch(self, *, skip: int = 1) -> None:
        self.epoch += skip
        self.log.begin_epoch(self.epoch)

    def catch_up(self, *brokers: int) -> None:
        """Bring these replicas back in sync, or all of them: each takes the leader's log for its own."""
        for broker in brokers or tuple(self.replicas):
            if broker not in self.in_sync:
                self.replicas[broker] = self.log.copy()
                self.in_sync.add(broker)

    def fall_behind(self) -> None:
        """Take the followers out of sync: what comes now they do not get."""
        self.in_sync &= {self.leader}
