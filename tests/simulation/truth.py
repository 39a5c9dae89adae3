"""What no client can see, and the invariants about it: who really read what, when it was really written.

Each delete that takes effect is held against RULES.md by the records' true histories. Nothing of kretain's is used.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tests.simulation.kafka import HOUR, SimKafka, Tp
from tests.simulation.logs import Partition, Record

YEAR_2000_MS = 946_684_800_000
REMEMBER_MS = 30 * 24 * HOUR
AHEAD_MS = HOUR


@dataclass(frozen=True)
class Rules:
    """What the policy wants of the managed topics; ages in hours, None where a rule is off."""

    consumed_h: int | None = None
    forced_h: int | None = None
    event_h: int | None = None
    header: bool = False
    minimum_ms: int | None = None
    wallclock_h: int | None = None
    unconsumed: Literal["hold", "trim"] = "hold"

    def entry(self) -> list[str]:
        """The lines of a policy's entry."""
        lines = []
        if self.consumed_h is not None:
            lines += ["retention.commitoffset.enable: true", f"retention.commitoffset.hours: {self.consumed_h}"]
        if self.forced_h is not None:
            lines.append(f"retention.ms: {self.forced_h * HOUR}")
        if self.event_h is not None:
            lines.append(f"retention.max.eventtime.ms: {self.event_h * HOUR}")
        if self.header:
            lines.append("retention.eventtime.source: header:et")
        if self.minimum_ms is not None:
            lines.append(f"log.retention.min.timestamp: {self.minimum_ms}")
        if self.wallclock_h is not None:
            lines.append(f"retention.min.wallclock.ms: {self.wallclock_h * HOUR}")
        return [*lines, f"unconsumed: {self.unconsumed}"]


class Seen(NamedTuple):
    """A group's commit as a pass counted it: when, what, in which life of the log, and what it had read by then."""

    when_ms: int
    commit: tuple[int, int | None]
    life: int
    released: frozenset[int]
    stale: bool = False


@dataclass
class MemoryTruth:
    """What a state directory (or the shared topic) may be expected to know of groups."""

    counted: dict[tuple[str, str, int], Seen] = field(default_factory=dict)
    refused: set[tuple[str, str, int, int]] = field(default_factory=set)
    kinds: dict[str, bool] = field(default_factory=dict)

    def copy(self) -> MemoryTruth:
        return copy.deepcopy(self)


LOGS_CHANGE = (
    "an unclean election",
    "a log start went back",
    "a lost tail",
    "a trim was undone",
    "a topic was made anew",
)


class Hazard(NamedTuple):
    """Something that no client can see between its last read and a delete (RULES.md, What no client can see)."""

    number: int
    name: str


@dataclass
class Reading:
    """What a running process has read: when it last began to, and what its plan said."""

    memory: MemoryTruth
    rules: Rules
    began: int = 0
    hold_seen: int = 0
    unconsumed: dict[Tp, int] = field(default_factory=dict)
    seen: dict[tuple[str, str, int], Seen] = field(default_factory=dict)
    moved: dict[Tp, int] = field(default_factory=dict)


@dataclass
class Truth:
    """The histories of a cluster's records and groups."""

    kafka: SimKafka
    number: int = 0
    released: dict[tuple[str, Tp], set[int]] = field(default_factory=dict)
    stale: dict[tuple[str, Tp], int] = field(default_factory=dict)
    changed: dict[tuple[str, Tp], int] = field(default_factory=dict)
    hazards: dict[Tp, list[Hazard]] = field(default_factory=dict)
    lives: dict[Tp, int] = field(default_factory=dict)
    largest_event: dict[Tp, int] = field(default_factory=dict)
    held_since: int | None = None
    residues: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    # -- what happens ------------------------------------------------------------

    def hazard(self, tp: Tp, name: str) -> None:
        self.hazards.setdefault(tp, []).append(Hazard(self.number, name))

    def wrote(self, tp: Tp, record: Record | None) -> None:
        if record is not None and record.event_ms is not None and record.kind == "data":
            self.largest_event[tp] = max(self.largest_event.get(tp, record.event_ms), record.event_ms)

    def committed(self, group: str, tp: Tp, log: Partition, offset: int) -> None:
        """A group commits what it has really read (or passes over by its own will)."""
        below = {one.uid for one in log.log.records if one.offset < offset}
        here = {one.uid for one in log.log.records}
        before = self.released.get((group, tp), set())
        if before & here - below:
            self.hazard(tp, "a group went back")
        self._came(group, tp)
        self.released[group, tp] = (before - here) | below
        self.stale.pop((group, tp), None)
        self.changed[group, tp] = self.number

    def _came(self, group: str, tp: Tp) -> None:
        """Note a group's first commit: from then on it consumes the whole topic (F2)."""
        if (group, tp) not in self.released:
            for number in range(len(self.kafka.topics[tp[0]].partitions)):
                self.hazard((tp[0], number), "a group came")

    def committed_late(self, group: str, tp: Tp, offset: int) -> None:
        """A consumer of an older log of that name commits: it has read nothing of this one."""
        self._came(group, tp)
        self.released.setdefault((group, tp), set())
        self.stale[group, tp] = offset
        self.changed[group, tp] = self.number

    def log_changed(self, tp: Tp, log: Partition | None, name: str) -> None:
        """A log was cut, restored, or made anew: commits beyond its end are of another one."""
        self.hazard(tp, name)
        self.lives[tp] = self.lives.get(tp, 0) + 1
        if log is None:
            return
        for group in self.kafka.groups.values():
            commit = group.commits.get(tp)
            if commit is not None and commit[0] > log.high_watermark:
                self.stale[group.name, tp] = commit[0]

    # -- what a pass learns ---------------------------------------------------------

    def read(self, reading: Reading, name: str) -> None:
        """A process reads a group's commits."""
        group = self.kafka.groups.get(name)
        for tp, commit in () if group is None else group.commits.items():
            topic = self.kafka.topics.get(tp[0])
            if topic is not None:
                done = frozenset(self.released.get((name, tp), ()))
                key = (name, topic.topic_id, tp[1])
                stale = (name, tp) in self.stale
                reading.seen[key] = Seen(self.kafka.now_ms, commit, self.lives.get(tp, 0), done, stale)

    def passed(self, reading: Reading, topics: Iterable[str]) -> None:
        """A pass over the cluster is done and saved: note which commits it counted, and which it refused."""
        names = {topic.topic_id: topic for topic in self.kafka.topics.values() if topic.name in topics}
        reading.memory.kinds |= {topic_id: topic.append_time for topic_id, topic in names.items()}
        for key, seen in reading.seen.items():
            _group, topic_id, number = key
            topic = names.get(topic_id)
            if topic is None:
                continue
            tp, log = (topic.name, number), topic.partitions[number]
            if any(one.number >= reading.began and one.name in LOGS_CHANGE for one in self.hazards.get(tp, ())):
                continue
            if seen.commit[0] > log.high_watermark:
                reading.memory.refused.add((*key, seen.commit[0]))
            elif not seen.stale and (*key, seen.commit[0]) not in reading.memory.refused:
                reading.memory.counted[key] = seen

    # -- what a delete may take --------------------------------------------------------

    def check(self, reading: Reading, tp: Tp, offset: int) -> None:
        """Hold one delete, about to take effect, against what the policy clearly allows."""
        log = self.kafka.partition(tp)
        if log is None:
            return
        since = sorted({one.name for one in self.hazards.get(tp, ()) if one.number >= reading.began})
        if since:
            self.residues[" and ".join(since)] += 1
            return
        if self.held_since is not None and self.held_since < reading.hold_seen:
            self._violated(tp, offset, f"G7: it was on hold since event {self.held_since}")
        if offset > log.last_stable:
            self._violated(tp, offset, f"G1: L is {log.last_stable}")
        gone = [one for one in log.log.live() if one.offset < offset and log.is_data(one)]
        if not gone:
            return
        if (why := self._too_young(reading, tp, log, gone)) is not None:
            self._violated(tp, offset, why)
        reasons = [why for one in self._triggers(reading, tp, log, gone) if (why := one) is not None]
        if len(reasons) == self._asked(reading.rules):
            self._violated(tp, offset, "; ".join(reasons))
        if reading.unconsumed.get(tp) == 0 and (why := self._unread(reading, tp, log, gone)) is not None:
            self._violated(tp, offset, f"unconsumed is 0, but {why}")

    def _violated(self, tp: Tp, offset: int, why: str) -> None:
        self.violations.append(f"{tp[0]}-{tp[1]} to {offset}: {why}")

    @staticmethod
    def _asked(rules: Rules) -> int:
        return sum(one is not None for one in (rules.consumed_h, rules.forced_h, rules.event_h, rules.minimum_ms))

    def _too_young(self, reading: Reading, tp: Tp, log: Partition, gone: Sequence[Record]) -> str | None:
        """G3, by when records were truly written."""
        if reading.rules.wallclock_h is None:
            return None
        youngest = max(gone, key=lambda one: one.written_ms)
        age = self.kafka.now_ms - youngest.written_ms
        if age >= reading.rules.wallclock_h * HOUR:
            return None
        topic, first = self.kafka.topics[tp[0]], log.committed()[0]
        unseen = topic.append_time and first.append_time and reading.memory.kinds.get(topic.topic_id, True)
        if unseen and not youngest.append_time:
            self.residues["a topic was switched to CreateTime and back, unseen"] += 1
            return None
        return f"G3: {youngest.offset} was written {age / HOUR:.1f} h ago"

    def _triggers(self, reading: Reading, tp: Tp, log: Partition, gone: Sequence[Record]) -> Iterable[str | None]:
        """Yield, for each rule that is on, why it does not allow all of these records; None where it does."""
        rules, now = reading.rules, self.kafka.now_ms
        ancient = self._ancient(log)
        guarded = rules.unconsumed == "hold"
        if rules.consumed_h is not None:
            yield (
                ancient
                or self._unread(reading, tp, log, gone)
                or _not_before("R1", gone, now - rules.consumed_h * HOUR)
            )
        if rules.forced_h is not None:
            yield ancient or _not_before("R4", gone, now - rules.forced_h * HOUR)
        if rules.minimum_ms is not None:
            unread = self._unread(reading, tp, log, gone) if guarded else None
            yield ancient or unread or _not_before("R3", gone, rules.minimum_ms)
        if rules.event_h is not None:
            unread = self._unread(reading, tp, log, gone) if guarded else None
            yield (None if rules.header else ancient) or unread or self._event_time(rules, tp, gone)

    def _ancient(self, log: Partition) -> str | None:
        first = next((one for one in log.committed()), None)
        if first is not None and first.stamp < YEAR_2000_MS:
            return f"G9: {first.offset} at the front is stamped {first.stamp}"
        return None

    def _event_time(self, rules: Rules, tp: Tp, gone: Sequence[Record]) -> str | None:
        assert rules.event_h is not None
        largest = self.largest_event.get(tp, 0)
        if rules.header:
            told = [None if one.header is None or not one.header.isdigit() else int(one.header) for one in gone]
        else:
            told = [one.stamp for one in gone]
        for one, time_ms in zip(gone, told, strict=True):
            if time_ms is None:
                return f"R2: {one.offset} has no event time that can be read"
            if not rules.header:
                continue
            if time_ms < YEAR_2000_MS:
                return f"G9: {one.offset} has event time {time_ms}"
            if one.event_ms is not None and one.event_ms >= largest - rules.event_h * HOUR:
                return f"R2: {one.offset} is only {(largest - one.event_ms) / HOUR:.1f} h older than the newest ever"
        if not rules.header:
            return _not_before("R2", gone, largest - rules.event_h * HOUR)
        return None

    def _unread(self, reading: Reading, tp: Tp, log: Partition, gone: Sequence[Record]) -> str | None:
        """Return who had yet to read some of these records (F1, F2, F4, F6), None where nobody had."""
        topic_id = self.kafka.topics[tp[0]].topic_id
        anybody = False
        for group in self.kafka.groups.values():
            commit = group.commits.get(tp)
            if commit is None and tp[0] not in group.members and all(one[0] != tp[0] for one in group.commits):
                continue
            if commit is not None and self._cannot_know(reading.memory, group.name, tp, topic_id, log, commit):
                self.residues["a commit of another log that looks right"] += 1
                anybody = True
                continue
            anybody = True
            had = self.released.get((group.name, tp), set())
            late = next((one for one in gone if one.uid not in had), None)
            if late is not None:
                return f"{group.name} ({commit}) had yet to read {late.offset}"
        for (name, known_id, number), seen in {**reading.memory.counted, **reading.seen}.items():
            if (known_id, number) != (topic_id, tp[1]) or self.kafka.now_ms - seen.when_ms > REMEMBER_MS or seen.stale:
                continue
            if name in self.kafka.groups and tp in self.kafka.groups[name].commits:
                continue
            anybody = True
            all_read = seen.released | self.released.get((name, tp), set())
            late = next((one for one in gone if one.uid not in all_read), None)
            if late is not None:
                return f"{name}, gone since it stood at {seen.commit[0]}, had yet to read {late.offset}"
        return None if anybody else "no group says what was read"

    def _cannot_know(
        self, memory: MemoryTruth, group: str, tp: Tp, topic_id: str, log: Partition, commit: tuple[int, int | None]
    ) -> bool:
        """Return whether a commit is of another log, and neither its epoch nor this memory can tell."""
        if (group, tp) not in self.stale:
            return False
        offset, epoch = commit
        if epoch is not None:
            end = log.log.epoch_end(epoch)
            if end is None or end < offset:
                return False
        if offset > log.high_watermark or (group, topic_id, tp[1], offset) in memory.refused:
            return False
        seen = memory.counted.get((group, topic_id, tp[1]))
        return seen is None or seen.commit != commit or seen.life == self.lives.get(tp, 0)


def _not_before(rule: str, gone: Sequence[Record], time_ms: int) -> str | None:
    young = next((one for one in gone if one.stamp >= time_ms), None)
    return (
        None if young is None else f"{rule}: {young.offset} is stamped {(young.stamp - time_ms) / HOUR:.1f} h too late"
    )
