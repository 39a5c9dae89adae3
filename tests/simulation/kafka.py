"""The cluster in memory: topics, groups, coordinators, its clock, and what of requests gets lost."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field
from typing import Literal

from retention_cli.brokers.writer import Appended
from retention_cli.policy.live import Message
from retention_cli.state.own_topics import STATE_TOPIC
from tests.simulation.logs import Partition, Record

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
    cleanup: str = "delete"
    retention_ms: int = -1
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

    def compact_state(self) -> None:
        """Clean it: of each key the last word stays."""
        self.state_messages = sorted({one.key: one for one in self.state_messages}.values(), key=lambda one: one.offset)

    # -- topics ------------------------------------------------------------------------

    def create(self, name: str, partitions: int, *, append_time: bool = False, cleanup: str = "delete") -> Topic:
        topic_id = f"ID{next(self._ids):020d}"
        logs = [Partition.new(BROKERS[(n + i) % 3] for i in range(2)) for n in range(partitions)]
        self.topics[name] = Topic(name, topic_id, logs, append_time, cleanup)
        return self.topics[name]

    def delete(self, name: str, *, clear_commits: bool) -> None:
        del self.topics[name]
        if clear_commits:
            for group in self.groups.values():
                if group.kind == "outside":
                    continue
                group.commits = {tp: one for tp, one in group.commits.items() if tp[0] != name}
                group.pending = {tp: one for tp, one in group.pending.items() if tp[0] != name}

    def add_partition(self, name: str) -> Tp:
        logs = self.topics[name].partitions
        logs.append(Partition.new(BROKERS[(len(logs) + i) % 3] for i in range(2)))
        return name, len(logs) - 1

    def partition(self, tp: Tp) -> Partition | None:
        topic = self.topics.get(tp[0])
        return topic.partitions[tp[1]] if topic is not None and tp[1] < len(topic.partitions) else None

    # -- records -----------------------------------------------------------------------

    def append(
        self,
        tp: Tp,
        *,
        stamp: int | None = None,
        event_ms: int | None = None,
        header: bytes | None = None,
        txn: int | None = None,
    ) -> Record | None:
        """Append a data record stamped by its producer (None: now), unless the topic stamps append times."""
        topic, log = self.topics[tp[0]], self.partition(tp)
        if log is None:
            return None
        when = self.now_ms if topic.append_time else (self.now_ms if stamp is None else stamp)
        event = event_ms if event_ms is not None else when

        def made(offset: int, epoch: int) -> Record:
            return Record(
                next(self._uids), offset, epoch, when, "data", topic.append_time, self.now_ms, event, header, txn
            )

        return log.append(made)

    def begin_transaction(self, tp: Tp) -> int | None:
        log = self.partition(tp)
        if log is None:
            return None
        txn = next(self._txns)
        log.txns[txn] = "open"
        return txn

    def end_transaction(self, tp: Tp, txn: int, state: Literal["committed", "aborted"]) -> None:
        """Write the marker, stamped with wall-clock time, and let the transaction's records be."""
        log, topic = self.partition(tp), self.topics.get(tp[0])
        if log is None or topic is None or log.txns.get(txn) != "open" or log.leader is None:
            return
        append_time = topic.append_time

        def made(offset: int, epoch: int) -> Record:
            return Record(next(self._uids), offset, epoch, self.now_ms, "marker", append_time, self.now_ms, None, None)

        log.append(made)
        log.txns[txn] = state

    def compact(self, tp: Tp, every: int) -> None:
        """Clean: every so many-th data record below the active segment is superseded. Offsets stay."""
        log = self.partition(tp)
        if log is None:
            return
        for broker in log.in_sync:
            replica = log.replicas[broker]
            last, before = max(0, replica.end - 1), replica.records
            replica.records = [
                one
                for n, one in enumerate(replica.records)
                if one.kind != "data" or one.txn is not None or n % every or one.offset == last
            ]
            log.superseded |= {one.uid for one in before} - {one.uid for one in replica.records}
