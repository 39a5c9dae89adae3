"""Apply R5, R6, R7 and whole segments in a run of this process: read disks and an inventory, then evaluate R6.

There are two steps. :meth:`DiskRun.with_disks` adds the facts about disks that partitions' own rules need, before
times are looked up. :meth:`DiskRun.decide` evaluates R6, after all other rules and over all partitions at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.log_offsets import Leaders, Spec
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Code, Decision, Maybe, PartitionFacts, Reason, Tail, TopicPartition, Unknown, known
from retention_cli.core.units import format_duration, format_time
from retention_cli.decide.decision import Limit, after_disks, disk_limit, off_disks
from retention_cli.decide.topic_rules import TopicRules, by_topic
from retention_cli.disks.devices import all_disks, last_sample_ms, remember, stays_bytes
from retention_cli.disks.disk import (
    Disk,
    DiskOutcome,
    Leaving,
    Space,
    above_ceiling,
    named,
    sized_by_policy,
    space_of,
    usages,
)
from retention_cli.disks.estimate import Known, estimate, estimated_tails
from retention_cli.disks.inventory.format import InventoryFile, ScannedReplica
from retention_cli.disks.inventory_view import InventoryView, doubts_of, epoch_to_ask
from retention_cli.disks.pending_deletes import doubted_bytes, indexes_gone, leaving
from retention_cli.disks.replica_sizes import Sizes, smaller_replicas
from retention_cli.disks.water_level import OldestFirst, oldest_first
from retention_cli.memory.disk import Growth
from retention_cli.memory.partition import PartitionMemory
from retention_cli.observe.cluster import bare_facts, change_between, end_of, unread_facts
from retention_cli.observe.lineage import ask_epochs
from retention_cli.observe.recall import Remembered
from retention_cli.policy.settings import DiskRules, Settings

_OLD_MS: Final = 3_600_000
_CHANGED: Final = Unknown.because(
    Code.R6, "its topic or leader changed while kretain looked up how far to trim it for disks (R6): run again"
)
_NO_ESTIMATE: Final = Unknown.because(
    Code.R6,
    "it has remote storage, and which of its records are on the disk is not estimated: give an inventory (kretain "
    "segments scan, --inventory)",
)
_UNREAD: Final = Unknown.because("offsets", "not read")
_ENDS: Final[tuple[Spec, ...]] = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class UnmanagedLogs:
    """Partitions that no entry matches, or that are never touched: only S, H and topic ids, and their memories."""

    facts: Mapping[TopicPartition, PartitionFacts] = field(default_factory=dict)
    memories: Mapping[TopicPartition, PartitionMemory] = field(default_factory=dict)
    leaders: Mapping[TopicPartition, PartitionMetadata] = field(default_factory=dict)


@dataclass(slots=True)
class DiskRun:
    """R5 to R7 in one run, or one recheck: the disks, and R6's result for each.

    ``disks`` are those of all brokers that have replicas; one that did not answer is a disk without dirs. Once R6 is
    decided, ``parts`` are what it asked for of a partition and why, or why it is unknown there; partitions where it had
    no part are missing. ``outcomes`` are its results, by disk, and ``space`` is how much brokers free after the plan,
    and when; None if no disk was judged.

    Args:
        rules: the policy's disk rules.
        inventory: the inventory, None if none was given.
    """

    rules: DiskRules
    inventory: InventoryView | None = None
    disks: list[Disk] = field(default_factory=list)
    notes: list[Reason] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    parts: dict[TopicPartition, tuple[tuple[int, Reason] | None, Unknown | None]] = field(default_factory=dict)
    outcomes: Sequence[DiskOutcome] = ()
    space: Space | None = None
    _facts: dict[TopicPartition, PartitionFacts] = field(default_factory=dict)
    _unmanaged: UnmanagedLogs = field(default_factory=UnmanagedLogs)
    _scanned: dict[tuple[int, TopicPartition], ScannedReplica] = field(default_factory=dict)
    _indexes_gone: Mapping[str, int] = field(default_factory=dict)
    _leaders: dict[TopicPartition, PartitionMetadata] = field(default_factory=dict)
    _growths: Mapping[str, Maybe[Growth]] = field(default_factory=dict)
    _stays: Mapping[str, int] = field(default_factory=dict)

    def with_disks(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        leaders: Leaders,
        cluster_id: str,
        remembered: Remembered,
        clock_ms: Callable[[], int],
    ) -> dict[TopicPartition, PartitionFacts]:
        """Read the disks; return the facts with R7's usage, R5's tails and the segments' base offsets added."""
        inventory = self.inventory
        if inventory is not None:
            inventory.inventory.check_cluster(cluster_id)
        self.take_samples(reader, facts, settings, leaders, remembered, clock_ms)
        if inventory is not None:
            self.inventory = inventory = inventory.without(self._doubts(reader, inventory))
        replicas = {tp: one.replicas for tp, one in leaders.items()}
        usage = usages(self.rules.watermarks, self.disks, facts.keys(), replicas)
        found = {**facts, **{tp: facts[tp]._replace(usage=one) for tp, one in usage.items()}}
        if sized := _sized_topics(settings):
            # all leaders: a second look gets only the partitions read again, but searches the complete topic
            tails = self._tails(reader, settings, sized, self._leaders, remembered.now_ms)
            found |= {tp: found[tp]._replace(tails=tails[tp]) for tp in found if tp in tails}
        rounded = {name for name, one in settings.items() if one.whole_segments}
        if rounded and inventory is not None:
            bases = inventory.bases({tp: leaders[tp].leader for tp in found if tp.topic in rounded}, self._topic_ids())
            found |= {tp: found[tp]._replace(segment_bases=bases[tp]) for tp in bases}
        return found

    def _tails(
        self,
        reader: ClusterReader,
        settings: Mapping[str, Settings],
        sized: Collection[str],
        leaders: Leaders,
        now_ms: int,
    ) -> Mapping[TopicPartition, Mapping[str, Maybe[Tail]]]:
        """Return R5's bounds for the partitions of the ``sized`` topics, by the policy's key."""
        chosen = {tp: one for tp, one in self._facts.items() if tp.topic in sized}
        if self.inventory is not None:
            return self.inventory.tails(chosen, settings, self._leading(), self._topic_ids())
        leading = {
            tp: disk
            for disk in self.disks
            for tp in disk.replicas
            if disk.dirs and tp in chosen and self._leaders[tp].leader == disk.broker
        }
        return estimated_tails(reader, chosen, settings, leading, self.sizes, leaders, now_ms)

    def take_samples(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        leaders: Leaders,
        remembered: Remembered,
        clock_ms: Callable[[], int],
    ) -> None:
        """Read the log dirs. The facts' S and H must have been read before.

        A pass looks again where partitions had to be read again: ``facts`` and ``leaders`` are of those alone, and
        the first look's results for the others still hold.

        Disk usage is remembered, with this machine's time, and so are replicas' sizes if rules need them.
        """
        answers = reader.log_dirs(reader.brokers())
        self._leaders.update(leaders)
        replicas = {tp: one.replicas for tp, one in self._leaders.items()}
        devices = {(file.broker, one.path): one.device for file in self._files() for one in file.dirs}
        self.disks, self.notes = all_disks(dict(answers), replicas, self.rules, devices)
        self._facts.update(facts)
        if self.rules.percent is not None or _sized_topics(settings):
            self._unmanaged = _read_unmanaged(reader, self.disks, self.rules, facts, remembered, clock_ms)
            memories = {**self._unmanaged.memories, **remembered.partitions}
            self.sizes.add(reader, answers, {**self._unmanaged.facts, **facts}, memories, clock_ms())
        wall_ms = clock_ms()
        self._growths = remember(self.disks, remembered.memory, wall_ms)
        if self.rules.percent is not None:
            over_ms, files = self.sizes.longest_leaving_ms(self._brokers()), self._files()
            self._stays = {
                one.name: stays_bytes(
                    one,
                    remembered.memory,
                    files,
                    self.rules.reserved,
                    wall_ms,
                    over_ms,
                    self.sizes.may_leave_bytes(one, last_sample_ms(one, remembered.memory)),
                )
                for one in self.disks
            }

    def decide(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        decisions: Sequence[Decision],
        now_ms: int,
    ) -> tuple[Decision, ...]:
        """Return the decisions, replaced by R6's where R6 trims further or is unknown, and set the disks' outcomes.

        With an inventory, the bytes that decisions trim are its own, where it has them. Without one, brokers are asked
        for offsets at times. That is after everything else was read, so leaders, leader epochs and topic ids are
        compared once more (M1).
        """
        if self.rules.percent is None:
            self.outcomes = [DiskOutcome(one, None, growth=self._growths.get(one.name)) for one in self.disks]
            return self._with_bytes(decisions)
        limits = {one.tp: self._limit(one, rules) for one, rules in by_topic(facts.values(), settings, now_ms)}
        self._facts.update(facts)
        decided = {one.tp: one.trim_to for one in decisions if one.trim_to is not None}
        if self.inventory is None:
            found = self._estimated(reader, decided, limits, now_ms)
        else:
            found = self._walked(self.inventory, decided, limits, now_ms)
        self.outcomes = [replace(one, growth=self._growths.get(one.disk.name)) for one in found.outcomes]
        topics = {one.topic for one in decisions if one.action != "skip"}
        self.space = space_of(found.outcomes, *self.sizes.longest(self._brokers(), topics))
        self.notes += [note for one in found.outcomes for note in one.notes()]
        changed = self.changed(reader, found.bounds)
        full = [one for one in found.outcomes if one.excess_bytes]
        above = {tp: [one for one in full if tp in one.disk.replicas] for tp in found.bounds if tp not in changed}
        unknown = {
            tp: why
            for tp, why in {**found.unknown, **changed}.items()
            if off_disks(facts[tp].topic, settings[tp.topic]) is None
        }
        after = []
        for one in decisions:
            bound = (found.bounds[one.tp], self._why(above[one.tp])) if one.tp in above else None
            limit, stopped = limits[one.tp], unknown.get(one.tp)
            if bound is not None or stopped is not None:
                self.parts[one.tp] = bound, stopped
            after.append(after_disks(facts[one.tp], settings[one.topic], one, limit, bound, stopped))
        return self._with_bytes(after)

    def _limit(self, facts: PartitionFacts, rules: TopicRules) -> Maybe[Limit]:
        """Return how far R6 may trim a partition; unknown if its topic is left alone, or can't be estimated."""
        if (elsewhere := off_disks(facts.topic, rules.settings)) is not None:
            return elsewhere
        return _NO_ESTIMATE if self.inventory is None and facts.topic.tiered else disk_limit(facts, rules)

    def _with_bytes(self, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
        """Return the decisions with the bytes that they trim according to the inventory, where it has them."""
        if self.inventory is None:
            return tuple(decisions)
        trims = {
            one.tp: (one.log_start, one.trim_to)
            for one in decisions
            if one.log_start is not None and one.trim_to is not None
        }
        found = self.inventory.log_bytes(trims, self._leading(), self._topic_ids())
        return tuple(
            one._replace(size_bytes=found[one.tp][0], size_exact=found[one.tp][1]) if one.tp in found else one
            for one in decisions
        )

    # -- R6's two sources of segments ---------------------------------------------------------------------

    def _walked(
        self,
        inventory: InventoryView,
        decided: Mapping[TopicPartition, int],
        limits: Mapping[TopicPartition, Maybe[Limit]],
        now_ms: int,
    ) -> OldestFirst:
        """Return R6's bounds by the inventory's segments.

        A bound may reach beyond what was scanned of a replica. The bytes that it frees there can't be counted, so the
        walk is repeated with them as doubted, and trims nothing to make up for them.
        """
        if (age_ms := inventory.inventory.age_ms(now_ms)) > _OLD_MS:
            text = f"the inventory is {format_duration(age_ms // 60_000 * 60_000)} old: records written since then stay"
            self.notes.append(Reason("inventory", f"{text}; scan again"))
        starts, ends = self._log_starts(), self._ends()
        segments = inventory.on_disks(self.disks, starts, self._topic_ids())
        stopped = {**inventory.broken(), **self._held()}
        limits = {tp: stopped.get(tp) or limit for tp, limit in limits.items()}
        away, bounds = self._leaving(), {**starts, **decided}
        most = [0] * len(self.disks)
        more = doubted_bytes(self.disks, self.rules, self._scanned, starts, ends, decided)
        while True:
            most = [max(pair) for pair in zip(most, more, strict=True)]
            going = [one._replace(doubted_bytes=size) for one, size in zip(away, most, strict=True)]
            found = oldest_first(segments, self.disks, self.rules, bounds, limits, going)
            more = doubted_bytes(self.disks, self.rules, self._scanned, starts, ends, {**decided, **found.bounds})
            if all(size >= new for size, new in zip(most, more, strict=True)):
                return found

    def _estimated(
        self,
        reader: ClusterReader,
        decided: Mapping[TopicPartition, int],
        limits: Mapping[TopicPartition, Maybe[Limit]],
        now_ms: int,
    ) -> OldestFirst:
        """Return R6's bounds by estimated segments. A replica whose size may include dead bytes is not trimmed."""
        sizes = self.sizes
        ends = {
            tp: (start, end)
            for tp, one in self._facts.items()
            if (start := known(one.log_start)) is not None and (end := known(one.high_watermark)) is not None
        }
        known_ends = ends.keys() | {tp for tp, one in self._unmanaged.facts.items() if known(one.log_start) is not None}
        replicas = [(n, disk, tp) for n, disk in enumerate(self.disks) for tp in disk.replicas if tp in known_ends]
        doubts = {(n, tp): why for n, disk, tp in replicas if (why := sizes.doubt(disk, tp, Code.R6)) is not None}
        behind = smaller_replicas(self.disks, {tp for _, _, tp in replicas}, sizes.segment_bytes)
        dead = {(n, tp): sizes.dead_bytes(self.disks[n], tp) for n, tp in doubts}
        doubtful = {(n, tp): sizes.doubtful_bytes(self.disks[n], tp) for n, tp in doubts}
        for n, disk in enumerate(self.disks):
            if above_ceiling(disk, self.rules):
                doubtful |= {(n, tp): size for tp, size in disk.replicas.items() if tp not in known_ends}
        doubtful |= {(n, tp): self.disks[n].replicas[tp] for n, tp in behind if tp in decided}
        held = self._held()
        lying = Known(
            ends,
            decided,
            {tp: held.get(tp) or limit for tp, limit in limits.items()},
            sizes.segment_bytes,
            {**behind, **doubts},
            dead,
            doubtful,
            self._leaving(),
        )
        return estimate(reader, self.disks, self.rules, lying, self._leaders, now_ms)

    # -- what R6 asks of the disks ------------------------------------------------------------------------

    def _doubts(self, reader: ClusterReader, inventory: InventoryView) -> dict[tuple[int, str, int], str]:
        """Return the managed replicas whose inventory rows are not trusted, and why; keep the others for R6 (M1)."""
        scanned = list(inventory.replicas(self._log_starts()))
        facts, leaders = self._every(), {**self._unmanaged.leaders, **self._leaders}
        wanted = {
            (one.tp, epoch)
            for one in scanned
            if one.tp in facts and (epoch := epoch_to_ask(one, facts[one.tp])) is not None
        }
        led = {tp: one for tp, one in leaders.items() if one.leader is not None}
        doubts = doubts_of(scanned, self.disks, facts, ask_epochs(reader, wanted, led))
        self._indexes_gone = indexes_gone(scanned, self.disks, doubts)
        on = {
            (disk.broker, path): n
            for n, disk in enumerate(self.disks)
            if above_ceiling(disk, self.rules)
            for path in disk.dirs
        }
        self._scanned = {
            (on[one.broker, one.dir], one.tp): one
            for one in scanned
            if (one.broker, one.dir) in on and (one.broker, *one.tp) not in doubts
        }
        return {replica: why for replica, why in doubts.items() if TopicPartition(*replica[1:]) in self._facts}

    def changed(self, reader: ClusterReader, tps: Collection[TopicPartition]) -> dict[TopicPartition, Unknown]:
        """Return the partitions whose topic, leader or epoch changed since R6 read them, with the reason (M1).

        R6 reads after everything else was read and compared, so its own reads need a comparison of their own.
        """
        try:
            topics = reader.metadata({tp.topic for tp in tps}).topics if tps else {}
        except BrokerError as error:
            why = Unknown.because(
                Code.R6, f"kretain could not read whether its topic or leader changed meanwhile: {error}"
            )
            return dict.fromkeys(tps, why)
        # The ids that decisions used: a second look reads S and H of these, too, perhaps of a topic that is new then.
        ids = {tp: known(one.topic.topic_id) for tp, one in self._facts.items()}
        return {tp: _CHANGED for tp in tps if change_between(tp, ids.get(tp), self._leaders[tp], topics.get(tp.topic))}

    def _why(self, on: Sequence[DiskOutcome]) -> Reason:
        """Return why R6 trims a partition that has replicas on these disks, which are above their ceilings."""
        names = "; ".join(one.disk.name for one in on)
        levels = [one.level_ms for one in on if one.level_ms is not None]
        until = f", up to {format_time(max(levels))}" if levels else ""
        how = "" if self.inventory is not None else "; estimated, without an inventory"
        return Reason(Code.R6, f"among the oldest on {names}, fuller than {self.rules.percent:g} %{until}{how}")

    def _leaving(self) -> list[Leaving]:
        """Return, per disk, the used bytes that will be freed without a trim, and those that may be (R6)."""
        stay_bytes = {name: max(0, size - self._indexes_gone.get(name, 0)) for name, size in self._stays.items()}
        return [
            Leaving()
            if sized_by_policy(disk, self.rules)
            else leaving(disk, self.sizes.leaving_bytes(disk), stay_bytes[disk.name])
            for disk in self.disks
        ]

    def _held(self) -> dict[TopicPartition, Unknown]:
        absent = [(one, one.room) for one in self.disks if not one.dirs]
        return {tp: named(one, why) for one, why in absent if isinstance(why, Unknown) for tp in one.replicas}

    # -- what was read ------------------------------------------------------------------------------------

    def _every(self) -> dict[TopicPartition, PartitionFacts]:
        return {**self._facts, **self._unmanaged.facts}  # of those never trimmed (G5) only the latter were read

    def _log_starts(self) -> dict[TopicPartition, int]:
        return {tp: start for tp, one in self._every().items() if (start := known(one.log_start)) is not None}

    def _ends(self) -> dict[TopicPartition, int]:
        return {tp: end for tp, one in self._every().items() if (end := known(one.high_watermark)) is not None}

    def _topic_ids(self) -> dict[TopicPartition, str]:
        return {tp: found for tp, one in self._every().items() if (found := known(one.topic.topic_id)) is not None}

    def _leading(self) -> dict[TopicPartition, int | None]:
        return {tp: one.leader for tp, one in self._leaders.items()}

    def _files(self) -> Sequence[InventoryFile]:
        return () if self.inventory is None else self.inventory.inventory.files

    def _brokers(self) -> set[int]:
        return {disk.broker for disk in self.disks if disk.dirs}


def _sized_topics(settings: Mapping[str, Settings]) -> set[str]:
    return {name for name, one in settings.items() if one.max_bytes is not None or one.max_topic_bytes is not None}


def _read_unmanaged(
    reader: ClusterReader,
    disks: Collection[Disk],
    rules: DiskRules,
    managed: Collection[TopicPartition],
    remembered: Remembered,
    clock_ms: Callable[[], int],
) -> UnmanagedLogs:
    """Read S and H of the other logs on disks above their ceilings. Logs that can't be read are left out.

    Args:
        reader: the cluster, read-only.
        disks: the disks as just reported by the brokers: S is read after sizes, so no dead byte counts as live.
        rules: the policy's disk rules.
        managed: partitions whose S and H are already known.
        remembered: the memory of this pass.
        clock_ms: returns this machine's time, Unix ms.
    """
    wanted = {tp for disk in disks if above_ceiling(disk, rules) for tp in disk.replicas if tp not in managed}
    if not wanted:
        return UnmanagedLogs()
    try:
        metadata = reader.metadata({tp.topic for tp in wanted})
    except BrokerError:
        return UnmanagedLogs()
    leaders = {tp: one for tp, one in metadata.partitions_of().items() if tp in wanted and one.leader is not None}
    starts, ends = reader.list_offsets([dict.fromkeys(leaders, spec) for spec in _ENDS], leaders)
    topics = {name: bare_facts(metadata.topics[name]) for name in {tp.topic for tp in leaders}}
    facts = {
        tp: unread_facts(
            *(topics[tp.topic], tp.partition, one, _UNREAD),
            ends=(end_of("start", starts[tp]), end_of("high watermark", ends[tp]), _UNREAD),
        )
        for tp, one in leaders.items()
    }
    known = Remembered(remembered.memory, {}, leaders, clock_ms(), remembered.now_ms)
    known.open({name: one.topic_id for name, one in topics.items()})
    widths = {name: len(metadata.topics[name].partitions) for name in topics}
    remembered.memory.ages(widths, (), remembered.now_ms)  # once it is managed, it must be known when it grew (F2)
    known.prove(ask_epochs(reader, known.epochs_to_check(facts), leaders), facts)
    return UnmanagedLogs(facts, known.partitions, leaders)
