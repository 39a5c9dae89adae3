"""The disks of one run: how full they are, the replicas on them, and R6's result for each (R5 to R7).

The client reads this; the walk over segments, in this process or in Spark, is based on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.extras import MissingPartError, numpy
from retention_cli.core.install import how_to_add
from retention_cli.core.model import Maybe, PartitionFacts, Reason, TopicPartition, Unknown, Usage, known
from retention_cli.core.units import format_duration, format_time
from retention_cli.decide.decision import Limit
from retention_cli.disks.decide import Measured
from retention_cli.disks.elsewhere import Elsewhere, above_ceiling, read_elsewhere
from retention_cli.disks.proof import unproven
from retention_cli.disks.replica_sizes import Sizes
from retention_cli.disks.solve.borne_out import ScannedReplica
from retention_cli.disks.solve.devices import devices_in
from retention_cli.disks.solve.lagging import smaller_replicas
from retention_cli.disks.solve.leaving import FileLike, FilesLike, Leaving, leaving, stays, stays_by_scan
from retention_cli.disks.solve.outcome import DiskOutcome, Space, space_of
from retention_cli.disks.solve.room import (
    Disk,
    absent_disks,
    disks_of,
    excess_bytes,
    named,
    sized_by_policy,
    unknown_room,
)
from retention_cli.disks.solve.uncounted import doubted_bytes, indexes_gone, until_counted
from retention_cli.disks.solve.watermarks import usages
from retention_cli.disks.usage import looks_at, remember, stays_by_ledger
from retention_cli.memory.disk import Growth, Look
from retention_cli.observe.recall import Remembered
from retention_cli.observe.topic_facts import change_between
from retention_cli.policy.disks import sized_topics
from retention_cli.policy.settings import DiskRules, Settings

if TYPE_CHECKING:  # importing this imports numpy
    from retention_cli.disks.solve.oldest_first import OldestFirst

Walk = Callable[[Sequence[Leaving], Mapping[TopicPartition, Unknown]], "OldestFirst"]
_OLD_MS: Final = 3_600_000
_CHANGED: Final = Unknown.because(
    "R6", "its topic or its leader changed while it was looked up how far disks want it trimmed: run again"
)


@dataclass(slots=True)
class DiskState:
    """The disks of one run, or of one recheck.

    Args:
        rules: the policy's disk rules.
        exact: whether there is an inventory.
        files: the inventory's files.

    ``topics`` are those that R6 may trim, set once the other rules have decided.
    """

    rules: DiskRules
    exact: bool = False
    files: Sequence[FileLike] = ()
    topics: Collection[str] = ()
    disks: list[Disk] = field(default_factory=list)
    absent: list[Disk] = field(default_factory=list)
    notes: list[Reason] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    facts: dict[TopicPartition, PartitionFacts] = field(default_factory=dict)
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    _scanned: dict[tuple[int, TopicPartition], ScannedReplica] = field(default_factory=dict)
    _indexes_gone: Mapping[str, int] = field(default_factory=dict)
    _leaders: dict[TopicPartition, PartitionMetadata] = field(default_factory=dict)
    _outcomes: Sequence[DiskOutcome] = ()
    _growths: Mapping[str, Maybe[Growth]] = field(default_factory=dict)
    _stays: Mapping[str, int] = field(default_factory=dict)
    _looks: Mapping[str, Sequence[Look]] = field(default_factory=dict)
    _now_ms: int = 0
    _over_ms: int | None = None
    _above: dict[TopicPartition, list[DiskOutcome]] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: DiskRules, inventory: FilesLike | None) -> Self:
        """Return a state before anything is read, with the inventory's files."""
        return cls(rules, exact=inventory is not None, files=() if inventory is None else inventory.files)

    @property
    def outcomes(self) -> list[DiskOutcome]:
        """R6's result for each disk, once it is decided."""
        return [replace(one, growth=self._growths.get(one.disk.name)) for one in self._outcomes]

    @property
    def space(self) -> Space | None:
        """How much space brokers free after the plan, and when; None if no disk was judged."""
        return space_of(self._outcomes, *self.sizes.longest(self._brokers(), self.topics))

    def look(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        leaders: Leaders,
        remembered: Remembered,
        clock_ms: Callable[[], int],
    ) -> None:
        """Read the log dirs. The facts' S and H must have been read before.

        A pass looks again where partitions had to be read again: ``facts`` and ``leaders`` are of those alone, and what
        the first look found of the others still holds.

        Disk usage is remembered, with this machine's time, and so are replicas' sizes if rules need them.
        """
        answers = reader.log_dirs(reader.brokers())
        self.disks, self.notes = disks_of(dict(answers), self.rules, devices_in(self.files))
        self._leaders.update(leaders)
        self.absent = absent_disks(self.disks, answers, {tp: one.replicas for tp, one in self._leaders.items()})
        self.disks += self.absent
        self.notes += [Reason("disk", f"{one.name}: {why.text}") for one in self.absent for why in unknown_room(one)]
        self.facts.update(facts)
        if self.rules.percent is not None or sized_topics(settings):
            self.elsewhere = read_elsewhere(reader, self.disks, self.rules, facts, remembered, clock_ms)
            memories = {**self.elsewhere.memories, **remembered.partitions}
            self.sizes.add(reader, answers, {**self.elsewhere.facts, **facts}, memories, clock_ms())
        self._now_ms = clock_ms()
        self._growths = remember(self.disks, remembered.memory, self._now_ms)
        if self.rules.percent is not None:
            self._over_ms = self.sizes.longest_leaving_ms(self._brokers())
            self._looks = {one.name: looks_at(one, remembered.memory) for one in self.disks}
            self._stays = stays_by_ledger(self.disks, remembered.memory, self._now_ms, self._over_ms)

    def _every(self) -> dict[TopicPartition, PartitionFacts]:
        """Return the facts of all partitions that were read, managed or not."""
        return {**self.facts, **self.elsewhere.facts}  # of those that are never touched (G5) only the latter were read

    def log_starts(self) -> dict[TopicPartition, int]:
        """Return S of all partitions, managed or not, whose S is known."""
        return {tp: one.log_start for tp, one in self._every().items() if not isinstance(one.log_start, Unknown)}

    def _ends(self) -> dict[TopicPartition, int]:
        """Return H of all partitions, managed or not, whose H is known."""
        every = self._every().items()
        return {tp: one.high_watermark for tp, one in every if not isinstance(one.high_watermark, Unknown)}

    def unproven(self, reader: ClusterReader, scanned: Sequence[ScannedReplica]) -> dict[tuple[int, str, int], str]:
        """Return the managed replicas whose inventory rows are not trusted, and why; keep the others for R6 (M1)."""
        leaders = {**self.elsewhere.leaders, **self._leaders}
        doubts = unproven(reader, scanned, self.disks, self._every(), leaders)
        self._indexes_gone = indexes_gone(scanned, self.disks, doubts)
        on = {
            (disk.broker, path): n
            for n, disk in enumerate(self.disks)
            if self._above_ceiling(disk)
            for path in disk.dirs
        }
        self._scanned = {
            (on[one.broker, one.dir], one.tp): one
            for one in scanned
            if (one.broker, one.dir) in on and (one.broker, *one.tp) not in doubts
        }
        return {replica: why for replica, why in doubts.items() if TopicPartition(*replica[1:]) in self.facts}

    def usages(self, tps: Collection[TopicPartition], leaders: Leaders) -> dict[TopicPartition, Maybe[Usage | None]]:
        """Return R7's usage of each partition; empty if the policy has no watermarks."""
        replicas = {tp: one.replicas for tp, one in leaders.items()}
        return usages(self.rules.watermarks, self.disks, tps, replicas)

    def say_age(self, age_ms: int) -> None:
        """Add a note if the inventory is older than an hour."""
        if age_ms > _OLD_MS:
            text = f"the inventory is {format_duration(age_ms // 60_000 * 60_000)} old: what was written since stays"
            self.notes.append(Reason("inventory", f"{text}; scan again"))

    def estimated(
        self,
        reader: ClusterReader,
        decided: Mapping[TopicPartition, int],
        limits: Mapping[TopicPartition, Maybe[Limit]],
        now_ms: int,
    ) -> OldestFirst:
        """Return R6's bounds by bisecting times, without an inventory (R6). Needs numpy: see :meth:`without_numpy`."""
        from retention_cli.disks.bisect_offsets import estimate
        from retention_cli.disks.solve.estimated import Known

        ends = {}
        for tp, one in self.facts.items():
            if not isinstance(one.log_start, Unknown) and not isinstance(one.high_watermark, Unknown):
                ends[tp] = (one.log_start, one.high_watermark)
        known_ends = ends.keys() | {
            tp for tp, one in self.elsewhere.facts.items() if not isinstance(one.log_start, Unknown)
        }
        replicas = [(n, disk, tp) for n, disk in enumerate(self.disks) for tp in disk.replicas if tp in known_ends]
        doubts = {(n, tp): why for n, disk, tp in replicas if (why := self.sizes.doubt(disk, tp, "R6")) is not None}
        behind = smaller_replicas(self.disks, {tp for _, _, tp in replicas}, self.sizes.segment_bytes)
        dead = {place: self.sizes.dead_bytes(self.disks[place[0]], place[1]) for place in doubts}
        doubtful = {place: self.sizes.doubtful_bytes(self.disks[place[0]], place[1]) for place in doubts}
        for n, disk in enumerate(self.disks):
            if self._above_ceiling(disk):
                doubtful |= {(n, tp): size for tp, size in disk.replicas.items() if tp not in known_ends}
        doubtful |= {(n, tp): self.disks[n].replicas[tp] for n, tp in behind if tp in decided}
        doubts = {**behind, **doubts}
        away, held = self.leaving(), self.held()
        most = {tp: held.get(tp) or limit for tp, limit in limits.items()}
        lying = Known(ends, decided, most, self.sizes.segment_bytes, doubts, dead, doubtful, away)
        return estimate(reader, self.disks, self.rules, lying, self._leaders, now_ms)

    def measured(
        self,
        reader: ClusterReader,
        found: OldestFirst,
        limits: Mapping[TopicPartition, Maybe[Limit]],
        left_alone: Collection[str],
    ) -> Measured:
        """Store R6's outcomes, and return its results. Partitions that changed since they were read are unknown.

        Args:
            reader: the cluster, to find changes.
            found: R6's bounds, outcomes and unknown partitions.
            limits: the guards' limits.
            left_alone: topics that R6 does not trim, so that their unknowns are left out.
        """
        self.settle(found.outcomes)
        changed = self.changed(reader, found.bounds)
        return Measured(
            {tp: (bound, self.why(tp)) for tp, bound in found.bounds.items() if tp not in changed},
            limits,
            {tp: why for tp, why in {**found.unknown, **changed}.items() if tp.topic not in left_alone},
        )

    def changed(self, reader: ClusterReader, tps: Collection[TopicPartition]) -> dict[TopicPartition, Unknown]:
        """Return the partitions whose topic, leader or epoch changed since R6 read them, with the reason (M1).

        R6 reads after everything else was read and compared, so its own reads need a comparison of their own.
        """
        try:
            topics = reader.metadata({tp.topic for tp in tps}).topics if tps else {}
        except BrokerError as error:
            why = Unknown.because("R6", f"whether its topic or its leader changed meanwhile could not be read: {error}")
            return dict.fromkeys(tps, why)
        ids = self.topic_ids()
        return {tp: _CHANGED for tp in tps if change_between(tp, ids.get(tp), self._leaders[tp], topics.get(tp.topic))}

    def leaving(self) -> list[Leaving]:
        """Return, per disk, the used bytes that will be freed without a trim, and those that may be (R6)."""
        return [Leaving() if sized_by_policy(one, self.rules) else self._leaving(one) for one in self.disks]

    def _leaving(self, disk: Disk) -> Leaving:
        by_scan = stays_by_scan(disk, self.files, self.rules.reserved, self._now_ms, self._looks.get(disk.name, ()))
        stays_bytes = stays(by_scan, self._stays.get(disk.name), self._now_ms, self._over_ms)
        return leaving(disk, self.sizes.leaving_bytes(disk), max(0, stays_bytes - self._indexes_gone.get(disk.name, 0)))

    def without_numpy(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, Unknown] | None:
        """Return why R6 holds partitions without numpy; None if numpy is installed."""
        try:
            numpy()
        except MissingPartError:
            self._outcomes = [DiskOutcome(disk, self.rules.percent, _no_numpy()) for disk in self.disks]
            percent = 100.0 if self.rules.percent is None else self.rules.percent
            may_be_above = {
                tp
                for one in self.disks
                if isinstance(one.room, Unknown) or excess_bytes(one.room, percent) > 0
                for tp in one.replicas
            }
            return {tp: _no_numpy() for tp in tps if tp in may_be_above}
        return None

    def settle(self, outcomes: Sequence[DiskOutcome]) -> None:
        """Store R6's outcome of each disk, and its notes."""
        self._outcomes = outcomes
        self.notes += [note for one in outcomes for note in one.notes()]
        self._above = {}
        for one in outcomes:
            if one.excess_bytes or one.level_ms is not None:
                for tp in one.disk.replicas:
                    self._above.setdefault(tp, []).append(one)

    def without_ceiling(self) -> None:
        """Treat every disk as unlimited: set outcomes without a ceiling."""
        self._outcomes = [DiskOutcome(disk, None) for disk in self.disks]

    def why(self, tp: TopicPartition) -> Reason:
        """Return why R6 trims a partition."""
        on = self._above.get(tp, ())
        names = [one.disk.name for one in on if one.excess_bytes]
        levels = [one.level_ms for one in on if one.level_ms is not None]
        until = f", up to {format_time(max(levels))}" if levels else ""
        how = "" if self.exact else "; estimated, for want of an inventory"
        return Reason("R6", f"among the oldest on {'; '.join(names)}, fuller than {self.rules.percent:g} %{until}{how}")

    def held(self) -> dict[TopicPartition, Unknown]:
        """Return why R6 holds the partitions with a replica on a broker that does not answer."""
        if self.rules.percent is None:
            return {}
        return {tp: named(one, one.room) for one in self.absent if isinstance(one.room, Unknown) for tp in one.replicas}

    def walked(self, decided: Mapping[TopicPartition, int], walk: Walk) -> OldestFirst:
        """Return the result of a walk over an inventory, repeated until it accounts for what its own bounds free.

        Args:
            decided: the other rules' bounds.
            walk: runs the walk, given what is leaving each disk and which partitions are held.
        """
        held, ends = self.held(), (self.log_starts(), self._ends())
        doubted = partial(doubted_bytes, self.disks, self._scanned, *ends, self._above_ceiling)
        return until_counted(self.leaving(), doubted, decided, lambda leaving: walk(leaving, held))

    def _above_ceiling(self, disk: Disk) -> bool:
        return above_ceiling(disk, self.rules)

    def topic_ids(self) -> dict[TopicPartition, str]:
        """Return the topic ids of partitions, where they are known."""
        return {tp: found for tp, one in self._every().items() if (found := known(one.topic.topic_id)) is not None}

    def leading(self) -> dict[TopicPartition, int | None]:
        """Return the leader's broker id of each partition, None if it has no leader."""
        return {tp: one.leader for tp, one in self._leaders.items()}

    def _brokers(self) -> set[int]:
        return {disk.broker for disk in self.disks if disk.dirs}

    def leading_disks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Disk]:
        """Return the disk of each partition's leader replica, of the disks that could be read."""
        return {
            tp: disk
            for disk in self.disks
            for tp in disk.replicas
            if disk.dirs and tp in tps and self._leaders[tp].leader == disk.broker
        }


def _no_numpy() -> Unknown:
    return Unknown.because("R6", f"R6 needs numpy, also without an inventory: {how_to_add('parquet')}")
