"""R6 without an inventory: derive estimated bounds from disks and decisions (R6). Pure.

Call :meth:`Estimation.wanted`, look up the offsets, and pass them to :meth:`Estimation.answer`, until there are none;
then call :meth:`Estimation.result`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from retention_cli.core.model import Maybe, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.solve.estimate import Bisection, Estimate, Logs, Replicas, freed_bytes
from retention_cli.disks.solve.leaving import Leaving
from retention_cli.disks.solve.oldest_first import UNMANAGED, OldestFirst
from retention_cli.disks.solve.outcome import Blocker, DiskOutcome
from retention_cli.disks.solve.room import Disk, excess_bytes, mostly_others, named
from retention_cli.disks.solve.segments import Ints
from retention_cli.policy.settings import DiskRules


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of partitions and their replicas, without an inventory.

    ``ends`` are S and H where both are known, ``decided`` the other rules' bounds, ``limits`` how far R6 may trim the
    managed partitions, ``segment_bytes`` the topics' settings that could be read. ``doubts`` are, by disk number and
    partition, why a replica's size may include dead bytes, ``dead_bytes`` how many are likely dead, and
    ``doubtful_bytes`` how many more may be. ``leaving`` are other bytes that are leaving, or may be, per disk.
    """

    ends: Mapping[TopicPartition, tuple[int, int]]
    decided: Mapping[TopicPartition, int]
    limits: Mapping[TopicPartition, Maybe[Limit]]
    segment_bytes: Mapping[str, int]
    doubts: Mapping[tuple[int, TopicPartition], Unknown]
    dead_bytes: Mapping[tuple[int, TopicPartition], int]
    doubtful_bytes: Mapping[tuple[int, TopicPartition], int]
    leaving: Sequence[Leaving]


@dataclass(slots=True)
class Estimation:
    """One search for the levels of all disks at once.

    Args:
        disks: all disks that could be read.
        rules: the policy's disk rules; ``percent`` is set.
        known: what is known of partitions and replicas.
        newest_ms: a time (Unix ms) after which no record is stamped.
        oldest_ms: a time (Unix ms) before which no record is stamped.
    """

    disks: Sequence[Disk]
    rules: DiskRules
    known: Known
    newest_ms: int
    oldest_ms: int = 0
    _names: list[TopicPartition] = field(default_factory=list)
    _limits: dict[TopicPartition, Maybe[Limit]] = field(default_factory=dict)
    _unknown: dict[int, Unknown] = field(default_factory=dict)
    _search: Bisection = field(init=False)
    _logs: Logs = field(init=False)
    _replicas: Replicas = field(init=False)
    _excess: Ints = field(init=False)
    _dead: Ints = field(init=False)
    _doubtful: Ints = field(init=False)

    def __post_init__(self) -> None:
        known, percent = self.known, 100.0 if self.rules.percent is None else self.rules.percent
        doubted: dict[TopicPartition, Unknown] = {}
        for (_, tp), why in known.doubts.items():
            doubted.setdefault(tp, why)
        self._limits = {tp: doubted.get(tp) or self._sized(tp, limit) for tp, limit in known.limits.items()}
        self._names = sorted(tp for tp in known.limits if tp in known.ends)
        number = {tp: n for n, tp in enumerate(self._names)}
        self._excess = np.zeros(len(self.disks), dtype=np.int64)
        self._dead = np.array([one.known_bytes for one in known.leaving], dtype=np.int64)
        self._doubtful = np.array([one.uncertain_bytes for one in known.leaving], dtype=np.int64)
        rows: list[tuple[int, int, int]] = []
        for n, disk in enumerate(self.disks):
            unknown: Unknown | None = disk.room if isinstance(disk.room, Unknown) else None
            if not isinstance(disk.room, Unknown) and excess_bytes(disk.room, percent) > 0:
                unknown = mostly_others(disk.room, self.rules)
            if unknown is not None:
                self._unknown[n] = unknown
            elif not isinstance(disk.room, Unknown):
                self._excess[n] = excess_bytes(disk.room, percent)
            for tp, size_bytes in disk.replicas.items():
                dead = min(size_bytes, known.dead_bytes.get((n, tp), 0))
                doubtful = min(size_bytes - dead, known.doubtful_bytes.get((n, tp), 0))
                self._dead[n] += dead
                self._doubtful[n] += doubtful
                if tp in number:
                    rows.append((n, number[tp], size_bytes - dead - doubtful))
        columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        self._replicas = Replicas(columns[0], columns[1], columns[2])
        self._logs = self._as_logs()
        self._search = Bisection(
            self._replicas, self._logs, self._excess - self._dead - self._doubtful, self.oldest_ms, self.newest_ms
        )

    @property
    def names(self) -> Sequence[TopicPartition]:
        """The partitions, by number."""
        return self._names

    def ends(self) -> tuple[Ints, Ints]:
        """Return S and H of each partition, by number."""
        return self._logs.log_start, self._logs.high_watermark

    def wanted(self) -> tuple[Ints, Ints]:
        """Return (partition number, time in Unix ms) rows to look up, each pair once; empty when the search is done."""
        return self._search.wanted()

    def answer(self, partition: Ints, time_ms: Ints, offset: Ints) -> None:
        """Continue with the offsets before which every record is older. Pass S for an unknown one: it trims nothing."""
        self._search.answer(partition, time_ms, offset)

    def result(self) -> OldestFirst:
        """Return the bounds, and each disk's outcome, marked as estimated."""
        found = self._search.result()
        bounds = {self._names[n]: int(found.bound[n]) for n in np.flatnonzero(found.bound > self._logs.start).tolist()}
        blockers = self._blockers(found)
        outcomes = [
            DiskOutcome(
                disk=disk,
                percent=self.rules.percent,
                unknown=self._unknown.get(n),
                excess_bytes=max(0, int(self._excess[n])),
                dead_bytes=int(self._dead[n]),
                doubtful_bytes=int(self._doubtful[n] + found.perhaps_freed[n]),
                unexplained_bytes=self.known.leaving[n].possible_bytes,
                other_rules_bytes=int(found.already_freed[n]),
                freed_bytes=int(found.freed[n]),
                short_bytes=0 if n in self._unknown else int(found.short[n]),
                level_ms=int(found.level_ms[n]) if found.freed[n] and found.level_ms[n] >= 0 else None,
                in_the_way=tuple(blockers.get(n, ())),
                estimated=True,
            )
            for n, disk in enumerate(self.disks)
        ]
        return OldestFirst(bounds, outcomes, self._unknown_partitions(outcomes))

    def _sized(self, tp: TopicPartition, limit: Maybe[Limit]) -> Maybe[Limit]:
        if not isinstance(limit, Unknown) and tp.topic not in self.known.segment_bytes:
            return Unknown.because("R6", "how large its segments are (segment.bytes) could not be read: run again")
        return limit

    def _as_logs(self) -> Logs:
        ends, decided = self.known.ends, self.known.decided
        rows = []
        for tp in self._names:
            limit = self._limits[tp]
            allowed = -1 if isinstance(limit, Unknown) else limit.offset
            start, end = ends[tp]
            rows.append(
                (start, end, max(start, decided.get(tp, 0)), allowed, self.known.segment_bytes.get(tp.topic, 1 << 62))
            )
        columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        return Logs(columns[0], columns[1], columns[2], columns[3], columns[4])

    def _unknown_partitions(self, outcomes: Sequence[DiskOutcome]) -> dict[TopicPartition, Unknown]:
        """Return why R6 could not judge managed partitions on disks above their ceilings or of unknown usage."""
        found: dict[TopicPartition, Unknown] = {}
        for n, one in enumerate(outcomes):
            if one.unknown is None and one.excess_bytes <= 0:
                continue
            asks = (
                one.unknown is not None
                or one.excess_bytes > one.dead_bytes + one.doubtful_bytes + one.other_rules_bytes
            )
            for tp in one.disk.replicas:
                if (limit := self._limits.get(tp)) is None:
                    continue
                doubt = self.known.doubts.get((n, tp))
                if one.unknown is not None:
                    found.setdefault(tp, named(one.disk, one.unknown))
                elif doubt is not None:
                    found.setdefault(tp, doubt)
                elif asks and isinstance(limit, Unknown):
                    found.setdefault(tp, limit)
                elif one.waits is not None:
                    found.setdefault(tp, named(one.disk, one.waits))
        return found

    def _blockers(self, found: Estimate) -> dict[int, list[Blocker]]:
        """Return the bytes that stay on the disks that are short, by disk, the largest first."""
        replicas, logs = self._replicas, self._logs
        of = replicas.partition
        freed = freed_bytes(
            found.bound[of], logs.log_start[of], logs.high_watermark[of], replicas.size_bytes, logs.segment_bytes[of]
        )
        stays = {
            (n, self._names[p]): size
            for n, p, size in zip(
                replicas.disk.tolist(), of.tolist(), (replicas.size_bytes - freed).tolist(), strict=True
            )
        }
        blockers: dict[int, list[Blocker]] = {}
        for n in np.flatnonzero(found.short > 0).tolist():
            if n in self._unknown:
                continue
            rows = [self._blocker(tp, stays.get((n, tp), size)) for tp, size in self.disks[n].replicas.items()]
            blockers[n] = sorted((row for row in rows if row.size_bytes), key=lambda row: (-row.size_bytes, row.tp))
        return blockers

    def _blocker(self, tp: TopicPartition, size_bytes: int) -> Blocker:
        limit = self._limits.get(tp, UNMANAGED)
        if isinstance(limit, Unknown):
            return Blocker(tp, size_bytes, limit.reasons[0].code, limit.reasons[0].text)
        if tp in self.known.ends and limit.offset >= self.known.ends[tp][1]:  # all of it may be trimmed
            return Blocker(tp, size_bytes, "active", "the active segment frees nothing")
        return Blocker(tp, size_bytes, limit.guard, limit.text)
