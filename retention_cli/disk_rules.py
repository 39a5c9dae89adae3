"""R5, R6, R7 and whole segments in a run: log dirs are read, an inventory laid beside them, disks decided on.

Two steps. :meth:`DiskRun.lay` adds to partitions' facts what their own rules want to know of disks, before times are
looked up. :meth:`DiskRun.decide` is R6, after all other rules and over all partitions at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.columns import MissingPartError, numpy
from retention_cli.decide import Limit, disk_limit, raised
from retention_cli.disk_looks import remember
from retention_cli.disk_memory import Growth
from retention_cli.disk_sizes import Sizes
from retention_cli.disks.outcome import DiskOutcome, Space, space_of
from retention_cli.disks.room import Disk, disks_of, sized_by_policy
from retention_cli.disks.watermarks import usage_for
from retention_cli.model import (
    Action,
    Decision,
    Maybe,
    PartitionFacts,
    Reason,
    Tail,
    TopicPartition,
    Unknown,
    Usage,
    known,
)
from retention_cli.policy.settings import DiskRules, Settings
from retention_cli.remembered import Remembered
from retention_cli.units import format_duration, format_time

if TYPE_CHECKING:  # numpy and pyarrow come with an inventory, and not before
    from retention_cli.disks.oldest_first import OldestFirst
    from retention_cli.disks.stock import Stock

_OLD_MS: Final = 3_600_000
_TIERED: Final = "remote.storage.enable"
_HOW: Final = "make one with kretain segments scan on each broker, and give it with --inventory"


@dataclass(slots=True)
class DiskRun:
    """What one run, or one recheck, knows of disks.

    Args:
        rules: the policy's.
        stock: the inventory, None where none was given.
    """

    rules: DiskRules
    stock: Stock | None = None
    disks: list[Disk] = field(default_factory=list)
    notes: list[Reason] = field(default_factory=list)
    _outcomes: Sequence[DiskOutcome] = ()
    sizes: Sizes = field(default_factory=Sizes)
    _facts: dict[TopicPartition, PartitionFacts] = field(default_factory=dict)
    _leaders: dict[TopicPartition, PartitionMetadata] = field(default_factory=dict)
    _growths: Mapping[str, Maybe[Growth]] = field(default_factory=dict)

    @property
    def outcomes(self) -> list[DiskOutcome]:
        """What each disk comes to, once it is decided."""
        return [replace(one, growth=self._growths.get(one.disk.name)) for one in self._outcomes]

    def space(self, decisions: Sequence[Decision]) -> Space | None:
        """Return what brokers give back after these decisions, and when; None where no disk is decided about."""
        topics = {one.topic for one in decisions if one.action != "skip"}
        return space_of(self._outcomes, *self.sizes.longest({disk.broker for disk in self.disks}, topics))

    def lay(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        leaders: Leaders,
        cluster_id: str,
        remembered: Remembered,
        clock_ms: Callable[[], int],
    ) -> dict[TopicPartition, PartitionFacts]:
        """Return the facts with R7's usage, R5's tails and the segments' base offsets laid in.

        Log dirs are read after these facts' S and H. What they show is remembered, with our wall clock: how full
        disks are, and replicas' sizes where a rule goes by them.
        """
        answers = reader.log_dirs(reader.brokers())
        self.disks, self.notes = disks_of(dict(answers), self.rules)
        if self.stock is not None:
            self.stock.check_cluster(cluster_id)
        self._facts.update(facts)
        self._leaders.update(leaders)
        sized = {name for name, one in settings.items() if one.max_bytes is not None or one.max_topic_bytes is not None}
        if self.rules.percent is not None or sized:
            self.sizes.add(reader, answers, facts, remembered.partitions, clock_ms())
        self._growths = remember(self.disks, remembered.memory, clock_ms())
        on: dict[TopicPartition, list[Disk]] = {}
        for disk in self.disks:
            for tp in disk.replicas:
                on.setdefault(tp, []).append(disk)
        laid = dict(facts)
        if self.rules.watermarks:
            laid = {
                tp: replace(one, usage=self._usage(on.get(tp, ()), leaders[tp].replicas)) for tp, one in laid.items()
            }
        if sized:
            chosen = {tp: one for tp, one in self._facts.items() if tp.topic in sized}
            tails = self._tails(chosen, settings, leaders, on)
            laid = {tp: replace(one, tails=tails[tp]) if tp in tails else one for tp, one in laid.items()}
        whole = {name for name, one in settings.items() if one.whole_segments}
        if whole and self.stock is not None:
            bases = self.stock.bases({tp: leaders[tp].leader for tp in laid if tp.topic in whole}, self._ids())
            laid = {tp: replace(one, segment_bases=bases[tp]) if tp in bases else one for tp, one in laid.items()}
        return laid

    def decide(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        decisions: Sequence[Decision],
        now_ms: int,
    ) -> tuple[Decision, ...]:
        """Return the decisions with R6's in place, where it goes further; ``outcomes`` are set."""
        if self.rules.percent is None:
            self._outcomes = [DiskOutcome(disk, None) for disk in self.disks]
            return tuple(decisions)
        try:
            numpy()
        except MissingPartError:
            why = Unknown.because("R6", "R6 needs numpy, also without an inventory: pip install 'kretain[parquet]'")
            self._outcomes = [DiskOutcome(disk, self.rules.percent, why) for disk in self.disks]
            return tuple(_held(one, why) if self._over(one.tp) else one for one in decisions)
        tiered, left_alone = self._tiered(reader, {one.topic for one in decisions if one.action != "skip"}, settings)
        limits: dict[TopicPartition, Maybe[Limit]] = {}
        for one in decisions:
            stopped = tiered.get(one.topic)
            limits[one.tp] = disk_limit(facts[one.tp], settings[one.topic], now_ms) if stopped is None else stopped
        self._facts.update(facts)
        decided = {one.tp: one.trim_to for one in decisions if one.trim_to is not None}
        if self.stock is None:
            found = self._estimated(reader, decided, limits, now_ms)
        else:
            found = self._walked(self.stock, decided, limits, now_ms)
        self._outcomes = found.outcomes
        self.notes += [note for one in found.outcomes for note in one.notes()]
        after = (self._raised(one, found.bounds.get(one.tp), facts, settings, limits) for one in decisions)
        return tuple(
            one if why is None or one.topic in left_alone else _held(one, why)
            for one in after
            for why in (found.unknown.get(one.tp),)
        )

    def _walked(
        self,
        stock: Stock,
        decided: Mapping[TopicPartition, int],
        limits: Mapping[TopicPartition, Maybe[Limit]],
        now_ms: int,
    ) -> OldestFirst:
        """Walk the inventory's segments."""
        from retention_cli.disks.oldest_first import oldest_first

        age_ms = stock.age_ms(now_ms)
        if age_ms > _OLD_MS:
            text = f"the inventory is {format_duration(age_ms // 60_000 * 60_000)} old: what was written since stays"
            self.notes.append(Reason("inventory", f"{text}; scan anew"))
        starts = {tp: one.log_start for tp, one in self._facts.items() if not isinstance(one.log_start, Unknown)}
        return oldest_first(stock.lying(self._ids()), self.disks, self.rules, starts, decided, limits, self._leaving())

    def _estimated(
        self,
        reader: ClusterReader,
        decided: Mapping[TopicPartition, int],
        limits: Mapping[TopicPartition, Maybe[Limit]],
        now_ms: int,
    ) -> OldestFirst:
        """Bisect times, for want of an inventory (RULES.md R6)."""
        from retention_cli.disk_estimate import estimate
        from retention_cli.disks.estimated import Known

        ends = {}
        for tp, one in self._facts.items():
            if not isinstance(one.log_start, Unknown) and not isinstance(one.high_watermark, Unknown):
                ends[tp] = (one.log_start, one.high_watermark)
        replicas = [(n, disk, tp) for n, disk in enumerate(self.disks) for tp in disk.replicas if tp in ends]
        doubts = {(n, tp): why for n, disk, tp in replicas if (why := self.sizes.doubt(disk, tp, "R6")) is not None}
        dead = {place: self.sizes.dead_bytes(self.disks[place[0]], place[1]) for place in doubts}
        doubtful = {place: self.sizes.doubtful_bytes(self.disks[place[0]], place[1]) for place in doubts}
        known = Known(ends, decided, limits, self.sizes.segment_bytes, doubts, dead, doubtful, self._leaving())
        return estimate(reader, self.disks, self.rules, known, self._leaders, now_ms)

    def _leaving(self) -> list[int]:
        """Return, per disk, what has left replicas' sizes lately and is in use until its files are deleted."""
        return [0 if sized_by_policy(one, self.rules) else self.sizes.leaving_bytes(one) for one in self.disks]

    def _raised(
        self,
        decision: Decision,
        bound: int | None,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        limits: Mapping[TopicPartition, Maybe[Limit]],
    ) -> Decision:
        limit = limits[decision.tp]
        if bound is None or isinstance(limit, Unknown):
            return decision
        names = [one.disk.name for one in self._outcomes if one.excess_bytes and decision.tp in one.disk.replicas]
        levels = [
            one.level_ms for one in self._outcomes if one.level_ms is not None and decision.tp in one.disk.replicas
        ]
        until = f", up to {format_time(max(levels))}" if levels else ""
        how = "" if self.stock is not None else "; estimated, for want of an inventory"
        why = Reason("R6", f"among the oldest on {'; '.join(names)}, fuller than {self.rules.percent:g} %{until}{how}")
        return raised(facts[decision.tp], settings[decision.topic], decision, bound, limit, why)

    def _usage(self, disks: Sequence[Disk], replicas: Sequence[int]) -> Maybe[Usage | None]:
        states: list[tuple[str, Maybe[tuple[int, int]]]] = [
            (one.name, one.room if isinstance(one.room, Unknown) else (one.room.used_bytes, one.room.total_bytes))
            for one in disks
        ]
        for broker in {*replicas} - {one.broker for one in disks}:
            why = f"how full broker {broker}'s disks are could not be read: the watermarks can't be told"
            states.append((f"broker {broker}", Unknown.because("R7", why)))
        return usage_for(self.rules.watermarks, states)

    def _tails(
        self,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        leaders: Leaders,
        on: Mapping[TopicPartition, Sequence[Disk]],
    ) -> Mapping[TopicPartition, Mapping[str, Maybe[Tail]]]:
        if self.stock is not None:
            return self.stock.tails(facts, settings, {tp: one.leader for tp, one in leaders.items()}, self._ids())
        found: dict[TopicPartition, dict[str, Maybe[Tail]]] = {}
        for tp, one in facts.items():
            most, of_topic = settings[tp.topic].max_bytes, settings[tp.topic].max_topic_bytes
            here = found.setdefault(tp, {})
            if of_topic is not None:
                here["retention.topic.bytes"] = Unknown.because(
                    "R5", f"retention.topic.bytes needs an inventory: {_HOW}"
                )
            if most is not None and tp in leaders:
                leading = [disk for disk in on.get(tp, ()) if disk.broker == leaders[tp].leader]
                here["retention.bytes"] = self._estimated_tail(tp, one, leading, most)
        return found

    def _estimated_tail(
        self, tp: TopicPartition, facts: PartitionFacts, leading: Sequence[Disk], most_bytes: int
    ) -> Maybe[Tail]:
        """Return R5's bound from the size that the broker says, where there can be no dead segments in it.

        The segment in which S stands is there as a whole: one segment's bytes may be dead, and are not counted.
        Else each pass would trim a little more.
        """
        start, end = facts.log_start, facts.high_watermark
        if isinstance(start, Unknown):
            return start
        if isinstance(end, Unknown):
            return end
        if not leading:
            return Unknown.because("R5", "its size could not be read")
        size_bytes = leading[0].replicas[tp]
        if size_bytes <= most_bytes:  # whatever of it is dead
            return Tail(start, exact=False)
        if start > 0:
            if (why := self.sizes.doubt(leading[0], tp, "R5")) is not None:
                return why
            if tp.topic not in self.sizes.segment_bytes:
                return Unknown.because("R5", "how large its segments are (segment.bytes) could not be read: run again")
            size_bytes = max(0, size_bytes - self.sizes.segment_bytes[tp.topic])
        try:
            numpy()
        except MissingPartError:
            return Unknown.because("R5", "sizes are estimated with numpy: pip install 'kretain[parquet]'")
        from retention_cli.disks.tails import estimated_tail

        return Tail(estimated_tail(start, end, size_bytes, most_bytes), exact=False)

    def _tiered(
        self, reader: ClusterReader, names: set[str], settings: Mapping[str, Settings]
    ) -> tuple[dict[str, Unknown], set[str]]:
        """Return why R6 may not touch topics that have remote storage, or may have it; and those that do have it."""
        left_alone: set[str] = set()
        asked = sorted(name for name in names if not settings[name].trim_tiered)
        found: dict[str, Unknown] = {}
        for name, values in reader.topic_values(asked, [_TIERED]).items() if asked else ():
            if isinstance(values, RequestFailedError):
                found[name] = Unknown.because("R6", f"whether it has remote storage can't be read: {values}")
            elif values.get(_TIERED) == "true":
                text = "it has remote storage: a trim would delete all that is remote before it; tiered: trim allows it"
                found[name] = Unknown.because("R6", text)
                left_alone.add(name)
        return found, left_alone

    def _over(self, tp: TopicPartition) -> bool:
        """Whether a disk with a replica of it is, or may be, above its ceiling."""
        from retention_cli.disks.room import excess_bytes

        percent = 100.0 if self.rules.percent is None else self.rules.percent
        return any(
            isinstance(one.room, Unknown) or excess_bytes(one.room, percent) > 0
            for one in self.disks
            if tp in one.replicas
        )

    def _ids(self) -> dict[TopicPartition, str]:
        """Return the topic ids that are known."""
        return {tp: found for tp, one in self._facts.items() if (found := known(one.topic.topic_id)) is not None}


def _held(decision: Decision, why: Unknown) -> Decision:
    """Return the decision with the reason why R6 is unknown in it. What is settled without any rule stays so."""
    if decision.action == "skip" or decision.log_start == decision.high_watermark or why.reasons == decision.reasons:
        return decision
    action: Action = "hold" if decision.action == "keep" else decision.action
    return replace(decision, action=action, reasons=tuple(dict.fromkeys((*decision.reasons, *why.reasons))))
