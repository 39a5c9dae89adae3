"""What no client can see, and the invariants about it: who really read what, when it was really written.

Each delete that takes effect is held against docs/rules.md by the records' true histories. Nothing of kretain's is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tests.simulation.clients import SimClock
from tests.simulation.kafka import HOUR, Partition, Record, SimKafka, Tp


@dataclass(frozen=True)
class Rules:
    """What the policy wants of the managed topics; ages in hours, None where a rule is off.

    With ``outside`` the last of the consumers keeps its positions in a file (F7). ``explicit``: the policy says that event
    times are the timestamps, also where brokers set these. ``latest`` groups start at the end (F2), ``stale`` ones always
    name an old leader epoch (F5). ``require`` groups must have committed (F4); with ``hidden`` the offsets topic may be
    (F9), with ``scope`` the user sees the groups of a prefix alone, and the last group has another name (F8). ``start`` has
    the hours by which groups start back that have no commit (F2). ``avro``: event times are read by schemas that may be
    missing, and records without one are passed over. ``watch_h``: groups must have been watched for so long (F10).
    """

    consumed_h: int | None = None
    forced_h: int | None = None
    event_h: int | None = None
    header: bool = False
    json: bool = False
    avro: bool = False
    minimum_ms: int | None = None
    live: bool = False
    wallclock_h: int | None = None
    unconsumed: Literal["hold", "trim"] = "hold"
    outside: bool = False
    explicit: bool = False
    latest: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    hidden: bool = False
    scope: str | None = None
    start: dict[str, int] = field(default_factory=dict, hash=False)
    watch_h: int | None = None

    @property
    def source(self) -> str:
        return "header" if self.header else "timestamp" if self.explicit else "default"

    def groups(self) -> dict[str, Any]:
        told = {
            "latest": self.latest,
            "stale.epochs": self.stale,
            "require": self.require,
            "offsets.topic": "hidden" if self.hidden else None,
            "watch.first": None if self.watch_h is None else f"{self.watch_h}h",
            "start": {name: f"{hours}h" for name, hours in self.start.items()},
            "scope": None if self.scope is None else f"{self.scope}*",
        }
        return {key: value for key, value in told.items() if value}

    def entry(self) -> dict[str, Any]:
        place = "avro:/et" if self.avro else "json:/et" if self.json else "header:et"
        told = {
            "retention.commitoffset.enable": None if self.consumed_h is None else True,
            "retention.commitoffset.hours": self.consumed_h,
            "retention.ms": _ms(self.forced_h),
            "retention.max.eventtime.ms": _ms(self.event_h),
            "retention.eventtime.source": place if self.header else "timestamp" if self.explicit else None,
            "on.unreadable": "skip" if self.header and self.avro else None,
            "log.retention.min.timestamp": "cluster" if self.live else self.minimum_ms,
            "retention.min.wallclock.ms": _ms(self.wallclock_h),
            "unconsumed": self.unconsumed,
        }
        return {key: value for key, value in told.items() if value is not None}


def _ms(hours: int | None) -> int | None:
    return None if hours is None else hours * HOUR


YEAR_2000_MS = 946_684_800_000
REMEMBER_MS = 30 * 24 * HOUR


class Seen(NamedTuple):
    """A group's commit as a pass counted it: when, what, in which life of the log, and what it had read by then.

    ``epoch`` is the log's last leader epoch then: a log where that ends no earlier is the same below the commit, also
    if a replica has brought back what an election had lost. ``at`` is its number among the answers of its pass (:attr:`Reading.answers`).
    """

    when_ms: int
    commit: tuple[int, int | None]
    life: int
    released: frozenset[int]
    stale: bool = False
    looked_right: bool = False
    at: int = 0
    epoch: int = 0
    saved: int = 0


@dataclass
class MemoryTruth:
    """What a state directory (or the shared topic) may be expected to know of groups.

    ``widths``: how many partitions topics (by id) had when a group was first seen. ``looks``: when all groups were listed.
    ``forgotten``: the step after which an operator had a group forgotten.
    """

    counted: dict[tuple[str, str, int], Seen] = field(default_factory=dict)
    refused: set[tuple[str, str, int, tuple[int, int | None]]] = field(default_factory=set)
    last: dict[tuple[str, Tp], tuple[str, tuple[int, int | None]]] = field(default_factory=dict)
    kinds: dict[str, bool] = field(default_factory=dict)
    created_below: dict[tuple[str, int], int] = field(default_factory=dict)
    glimpsed: dict[tuple[str, str, int, tuple[int, int | None]], Seen] = field(default_factory=dict)
    widths: dict[str, dict[str, int]] = field(default_factory=dict)
    looks: list[int] = field(default_factory=list)
    clock_was_off: bool = False
    forgotten: dict[str, int] = field(default_factory=dict)


LOGS_CHANGE = (
    "an unclean election",
    "a log start went back",
    "a lost tail",
    "a trim was undone",
    "a topic was recreated",
)


class Moved(NamedTuple):
    """A log start that went forward: when, whose it is, from where and to, and through whom ("" by retention)."""

    number: int
    tp: Tp
    start: int
    to: int
    who: str = ""


@dataclass
class Reading:
    """What a running process has read: when it last began to, and what its plan said."""

    memory: MemoryTruth
    rules: Rules
    clock: SimClock
    shared: bool = False
    who: str = ""
    began: int = 0
    began_s: float = 0.0
    unconsumed: dict[Tp, int] = field(default_factory=dict)
    seen: dict[tuple[str, str, int], Seen] = field(default_factory=dict)
    moved: dict[Tp, int] = field(default_factory=dict)
    answers: int = 0
    groups: set[str] = field(default_factory=set)
    ends: dict[Tp, int] = field(default_factory=dict)

    def ends_read(self, tp: Tp) -> None:
        """The log's ends were read: commits that were read before can be judged by them (F5)."""
        self.answers += 1
        self.ends[tp] = self.answers


@dataclass
class Truth:
    """The histories of a cluster's records and groups.

    ``hazards``: what no client can see between its last read and a delete (docs/rules.md), and when that happened.
    """

    kafka: SimKafka
    number: int = 0
    released: dict[tuple[str, Tp], set[int]] = field(default_factory=dict)
    stale: dict[tuple[str, Tp], int] = field(default_factory=dict)
    coordinators: dict[int, int] = field(default_factory=dict)
    pending_in: dict[tuple[str, Tp], int] = field(default_factory=dict)
    upgraded: dict[str, int] = field(default_factory=dict)
    added: set[tuple[str, int]] = field(default_factory=set)
    hazards: dict[Tp, list[tuple[int, str]]] = field(default_factory=dict)
    cuts: dict[Tp, list[int]] = field(default_factory=dict)
    largest_event: dict[tuple[Tp, str, bool], int] = field(default_factory=dict)
    held_since: int | None = None
    moves: list[Moved] = field(default_factory=list)
    residues: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def excuses(self, what: str, so: bool) -> bool:
        """Count what no client can see, where it is so; return whether it is."""
        if so:
            self.residues[what] += 1
        return so

    # -- what happens ------------------------------------------------------------

    def moved_by_others(self, tp: Tp, who: str, since: int) -> list[Moved]:
        """Return where others (another run, a broker's retention) moved a log start meanwhile."""
        return [one for one in self.moves if one.tp == tp and one.who != who and one.number >= since]

    def hazard(self, tp: Tp, name: str) -> None:
        self.hazards.setdefault(tp, []).append((self.number, name))

    def hazards_since(self, tp: Tp, number: int) -> set[str]:
        return {name for at, name in self.hazards.get(tp, ()) if at >= number}

    def counts(self, source: str, tp: Tp, append_time: bool, records: Iterable[Record]) -> None:
        """Note the event times of records that are there under a source and a timestamp type (M0)."""
        for one in records:
            time_ms = told(one.header) if source == "header" else one.stamp
            if one.kind == "data" and time_ms is not None:
                key = (tp, source, append_time and source != "header")
                self.largest_event[key] = max(self.largest_event.get(key, 0), time_ms)

    def largest(self, source: str, tp: Tp, append_times: Iterable[bool]) -> int:
        """Return the newest event time that was ever there under these settings (Unix ms)."""
        return max(self.largest_event.get((tp, source, one and source != "header"), 0) for one in append_times)

    def forget_events(self, tp: Tp) -> None:
        self.largest_event = {key: time_ms for key, time_ms in self.largest_event.items() if key[0] != tp}

    def committed(self, group: str, tp: Tp, log: Partition, offset: int) -> None:
        """A group commits what it has really read (or passes over by its own will)."""
        below = {one.uid for one in log.log.records if one.offset < offset}
        here = {one.uid for one in log.log.records}
        before = self.released.get((group, tp), set())
        if before & here - below:
            self.hazard(tp, "a group went back")
        self._commits(group, tp, (before - here) | below)

    def starts_anew(self, group: str, tp: Tp) -> None:
        if self.released.get((group, tp)):
            self.hazard(tp, "a group went back")
        self._commits(group, tp, set())

    def _commits(self, group: str, tp: Tp, released: set[int]) -> None:
        self.came(group, tp)
        self.released[group, tp] = released
        self.stale.pop((group, tp), None)

    def came(self, group: str, tp: Tp) -> None:
        """Note a group's first commit, or its first again: from then on it consumes the whole topic (F2)."""
        if tp not in self.kafka.groups[group].commits:
            for number in range(len(self.kafka.topics[tp[0]].partitions)):
                self.hazard((tp[0], number), "a group came")

    def committed_late(self, group: str, tp: Tp, offset: int) -> None:
        """A consumer of an older log of that name commits: it has read nothing of this one."""
        self.came(group, tp)
        self.released.setdefault((group, tp), set())
        self.stale[group, tp] = offset

    def log_changed(self, tp: Tp, log: Partition, name: str, *, lost: bool) -> None:
        """A log was cut, restored, or recreated: commits beyond its end are of another one.

        Where it ``lost`` records, others may stand there from now on: that is another life of it.
        """
        self.hazard(tp, name)
        if lost:
            self.cuts.setdefault(tp, []).append(log.log.end)
        for group in self.kafka.groups.values():
            commit = group.commits.get(tp)
            if commit is not None and (commit[0] > log.high_watermark or self._says_too_much(group.name, tp, log)):
                self.stale[group.name, tp] = commit[0]

    def life_of(self, tp: Tp) -> int:
        """Return how often the log has lost records: others may stand there since."""
        return len(self.cuts.get(tp, ()))

    def _uncut(self, tp: Tp, log: Partition, seen: Seen) -> bool:
        """Return whether the log below a commit is the one that it was when the commit was seen."""
        offset, end = seen.commit[0], log.log.epoch_end(seen.epoch)
        return all(cut >= offset for cut in self.cuts.get(tp, [])[seen.life :]) or (
            end is not None and end.epoch == seen.epoch and end.start >= offset
        )

    def _says_too_much(self, group: str, tp: Tp, log: Partition) -> bool:
        """Return whether records lie below a commit that the group has never read."""
        had, offset = self.released.get((group, tp), set()), self.kafka.groups[group].commits[tp][0]
        return any(one.offset < offset and log.is_data(one) and one.uid not in had for one in log.log.live())

    # -- what a pass learns ---------------------------------------------------------

    def read(self, reading: Reading, name: str) -> None:
        group = self.kafka.groups.get(name)
        reading.answers += 1
        if group is not None:
            reading.groups.add(name)
        doubted = {tp[0] for tp in group.pending if tp in group.commits} if group is not None else ()
        for tp, commit in () if group is None else group.commits.items():
            topic = self.kafka.topics[tp[0]]
            if commit[0] >= 0 and tp[0] not in doubted:
                done = frozenset(self.released.get((name, tp), ()))
                key = (name, topic.topic_id, tp[1])
                stale, log = (name, tp) in self.stale, topic.partitions[tp[1]]
                looked_right = self.cannot_know(reading, name, tp, topic.topic_id, log, commit)
                at, known = reading.answers, reading.seen.get(key)
                if known is not None and known.commit == commit:
                    at = known.at
                epoch = log.log.records[-1].epoch if log.log.records else log.epoch
                seen = Seen(self.kafka.now_ms, commit, self.life_of(tp), done, stale, looked_right, at, epoch)
                reading.seen[key] = reading.memory.glimpsed[*key, commit] = seen

    def passed(self, reading: Reading, topics: Iterable[str], only: Collection[Tp] | None = None) -> None:
        """A pass over the cluster is done and saved: note which commits it counted, and which it refused.

        A recheck looks at ``only`` these partitions' logs.
        """
        names = {topic.topic_id: topic for topic in self.kafka.topics.values() if topic.name in topics}
        for one_id, one in names.items():
            if one.append_time and not reading.memory.kinds.get(one_id, True):  # switched back, and that was seen
                ends = {(one_id, n): log.high_watermark for n, log in enumerate(one.partitions)}
                reading.memory.created_below |= ends
        for name in reading.groups:
            widths = reading.memory.widths.setdefault(name, {})
            for one_id, one in names.items():
                widths.setdefault(one_id, len(one.partitions))
        reading.memory.kinds |= {one_id: one.append_time for one_id, one in names.items()}
        for key, seen in reading.seen.items():
            group, topic_id, number = key
            topic = names.get(topic_id)
            if reading.memory.forgotten.get(group, -1) >= reading.began:  # for all runs, also one under way
                continue
            if topic is None or (only is not None and (topic.name, number) not in only):  # its log was not looked at
                continue
            tp, log = (topic.name, number), topic.partitions[number]
            if reading.ends.get(tp, seen.at) < seen.at:  # commits were read again, for others: not judged by this log
                continue
            if not self.hazards_since(tp, reading.began).isdisjoint(LOGS_CHANGE):
                continue
            memory, refused = reading.memory, (*key, seen.commit)
            before_id, before = memory.last.get((group, tp), (topic_id, seen.commit))
            if seen.commit[0] > log.high_watermark or (before_id != topic_id and before == seen.commit):
                memory.refused.add(refused)  # the second is a leftover, or looks like one until it changes (F5)
                continue
            memory.last[group, tp] = topic_id, seen.commit
            if seen.stale and looks_right(reading, key, log, seen.commit):  # H has grown since it was read
                counted = memory.counted.get(key)  # what was counted in an earlier log is known, whoever saves last
                if counted is None or counted.commit != seen.commit or self._uncut(tp, log, counted):
                    memory.counted[key] = reading.seen[key] = seen._replace(looked_right=True, saved=self.number)
            elif refused not in memory.refused and not seen.stale:
                memory.counted[key] = seen._replace(saved=self.number)

    def is_younger(self, memory: MemoryTruth, group: str, topic_id: str, number: int) -> bool:
        """Return whether a partition was added after a group had been seen on its topic (F2)."""
        widths = memory.widths.get(group, {})
        return (topic_id, number) in self.added and widths.get(topic_id, number + 1) <= number

    def cannot_know(
        self, reading: Reading, group: str, tp: Tp, topic_id: str, log: Partition, commit: tuple[int, int | None]
    ) -> bool:
        """Return whether a commit is of another log, and neither its epoch nor this memory can tell."""
        key = (group, topic_id, tp[1])
        if (group, tp) not in self.stale or not looks_right(reading, key, log, commit):
            return False
        seen = reading.memory.counted.get(key)
        return seen is None or seen.commit != commit or self._uncut(tp, log, seen)


def told(header: bytes | None) -> int | None:
    """Return the event time that a record carries, None where nobody can read it."""
    return int(header) if header is not None and header.isdigit() and len(header) < 20 else None


def looks_right(reading: Reading, key: tuple[str, str, int], log: Partition, commit: tuple[int, int | None]) -> bool:
    """Return whether nothing tells a client that a commit is of another log: not its epoch, H, or this memory."""
    offset, epoch = commit
    if epoch is not None and key[0] not in reading.rules.stale:
        end = log.log.epoch_end(epoch)
        if end is None or end.epoch != epoch or end.start < offset:
            return False
    return offset <= log.high_watermark and (*key, commit) not in reading.memory.refused
