"""One partition as its brokers keep it: replicas, segments, leader epochs, transactions. No clock, no randomness.

It answers as a broker does where that matters (docs/facts.md): look-ups by time that search one segment alone,
MAX_TIMESTAMP on dead records and markers, epochs' ends, logs that are cut by an unclean election.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

SEGMENT_RECORDS = 4
"""How many offsets a segment has: few, so that look-ups meet segments' borders."""

NO_STAMP = -1


class Record(NamedTuple):
    """A record as it lies in a log, and what no client can see of it.

    ``uid`` names it for ever, whatever its offset. ``append_time`` says that the broker stamped its batch.
    ``written_ms`` is when it was truly appended, ``event_ms`` its true event time, None of a marker.
    """

    uid: int
    offset: int
    epoch: int
    stamp: int
    kind: Literal["data", "marker"]
    append_time: bool
    written_ms: int
    event_ms: int | None
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
        found: dict[int, list[Record]] = {}
        for one in self.records:
            found.setdefault(one.offset // SEGMENT_RECORDS, []).append(one)
        return iter(found.values())

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

    def append(self, make: Callable[[int, int], Record]) -> Record | None:
        """Append one record (of an offset and an epoch) to all replicas in sync."""
        if self.leader is None:
            return None
        record = make(self.log.end, self.epoch)
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

    def elect(self, broker: int, *, skip: int = 1) -> bool:
        """Make a replica the leader: unclean, where it is not in sync. Return whether the log was cut."""
        if broker not in self.replicas:
            return False
        clean = broker in self.in_sync
        before = self.log.end
        self.leader, self.epoch = broker, self.epoch + skip
        if not clean:
            self.in_sync = {broker}
        self.log.begin_epoch(self.epoch)
        return not clean and self.log.end < before

    def catch_up(self, broker: int) -> None:
        """Bring a replica back in sync: it takes the leader's log for its own."""
        if self.leader is None or broker in self.in_sync or broker not in self.replicas:
            return
        self.replicas[broker] = self.log.copy()
        self.in_sync.add(broker)

    def fall_behind(self, broker: int) -> None:
        """Take a follower out of sync: what comes now it does not get."""
        if broker != self.leader and len(self.in_sync) > 1:
            self.in_sync.discard(broker)
