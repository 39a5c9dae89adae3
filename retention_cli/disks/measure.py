"""What one run knows of disks: how full they are, what lies on them, and what R6 comes to on each (R5 to R7).

The client reads this; whoever walks the segments, this process or Spark, goes by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.extras import MissingPartError, numpy
from retention_cli.core.model import Maybe, PartitionFacts, Reason, Tail, TopicPartition, Unknown, Usage, known
from retention_cli.core.units import format_duration, format_time
from retention_cli.decide.decision import Limit
from retention_cli.disks.replica_sizes import Sizes
from retention_cli.disks.solve.outcome import DiskOutcome, Space, space_of
from retention_cli.disks.solve.room import Disk, disks_of, excess_bytes, sized_by_policy
from retention_cli.disks.solve.watermarks import usage_for
from retention_cli.disks.topic_tails import estimated_topic_tails
from retention_cli.disks.usage import remember
from retention_cli.memory.disk import Growth
from retention_cli.observe.recall import Remembered
from retention_cli.policy.settings import DiskRules, Settings

if TYPE_CHECKING:  # numpy and pyarrow come with an inventory, and not before
    from retention_cli.disks.solve.oldest_first import OldestFirst

BYTES: Final = "retention.bytes"
TOPIC_BYTES: Final = "retention.topic.bytes"
_OLD_MS: Final = 3_600_000
_TIERED: Final = "remote.storage.enable"
_NO_NUMPY: Final = Unknown.because("R6", "R6 needs numpy, also without an inventory: pip install 'kretain[parquet]'")


@dataclass(slots=True)
class DiskState:
    """The disks of one run, or of one recheck.

    Args:
        rules: the policy's.
        exact: whether an inventory is at hand.
    """

    rules: DiskRules
    exact: bool = False
    disks: list[Disk] = field(default_factory=list)
    notes: list[Reason] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    facts: dict[TopicPartition, PartitionFacts] = field(default_factory=dict)
    _leaders: dict[TopicPartition, PartitionMetadata] = field(default_factory=dict)
    _outcomes: Sequence[DiskOutcome] = ()
    _growths: Mapping[str, Maybe[Growth]] = field(default_factory=dict)
    _above: dict[TopicPartition, list[DiskOutcome]] = field(default_factory=dict)

    @property
    def outcomes(self) -> list[DiskOutcome]:
        """What each disk comes to, once it is decided."""
        return [replace(one, growth=self._growths.get(one.disk.name)) for one in self._outcomes]

    def space(self, topics: Collection[str]) -> Space | None:
        """Return what brokers give back after a plan of these topics, and when; None where no disk is decided about."""
        return space_of(self._outcomes, *self.sizes.longest({disk.broker for disk in self.disks}, topics))

    def look(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        leaders: Leaders,
        remembered: Remembered,
        clock_ms: Callable[[], int],
    ) -> None:
        """Read the log dirs, after these facts' S and H.

        What they show is remembered, with our wall clock: how full disks are, and replicas' sizes where a rule goes
        by them.
        """
        answers = reader.log_dirs(reader.brokers())
        self.disks, self.notes = disks_of(dict(answers), self.rules)
        self.facts.update(facts)
        self._leaders.update(leaders)
        if self.rules.percent is not None or sized_topics(settings):
            self.sizes.add(reader, answers, facts, remembered.partitions, clock_ms())
        self._growths = remember(self.disks, remembered.memory, clock_ms())

    def usages(self, tps: Collection[TopicPartition], leaders: Leaders) -> dict[TopicPartition, Maybe[Usage | None]]:
        """Return R7's usage of each partition; nothing where the policy has no watermarks."""
        if not self.rules.watermarks:
            return {}
        on = self._on()
        return {tp: self._usage(on.get(tp, ()), leaders[tp].replicas) for tp in tps}

    def estimated_tails(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        now_ms: int,
    ) -> dict[TopicPartition, dict[str, Maybe[Tail]]]:
        """Return R5's bounds by the sizes that brokers say, by the policy's key.

        Args:
            reader: asks the brokers.
            facts: of all partitions of topics that have a size.
            settings: by topic.
            now_ms: the clock of all cutoffs.
        """
        leading = self._leading_disks(facts.keys())
        most = {name: one.max_topic_bytes for name, one in settings.items() if one.max_topic_bytes is not None}
        of_topics = {tp: one for tp, one in facts.items() if tp.topic in most}
        together: Mapping[TopicPartition, Maybe[Tail]] = {}
        if of_topics:
            together = estimated_topic_tails(reader, of_topics, most, leading, self.sizes, self._leaders, now_ms)
        found: dict[TopicPartition, dict[str, Maybe[Tail]]] = {}
        for tp, one in facts.items():
            here = found.setdefault(tp, {})
            if tp in together:
                here[TOPIC_BYTES] = together[tp]
            if (most_bytes := settings[tp.topic].max_bytes) is not None:
                here[BYTES] = self._estimated_tail(tp, one, leading.get(tp), most_bytes)
        return found

    def leading_bytes(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return what leaders' replicas of these take, dead bytes and all; of those that could be read."""
        return {tp: disk.replicas[tp] for tp, disk in self._leading_disks(tps).items()}

    def say_age(self, age_ms: int) -> None:
        """Note that an inventory is old, where it is."""
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
        """Bisect times, for want of an inventory (R6). numpy is there: see :meth:`without_numpy`."""
        from retention_cli.disks.bisect_offsets import estimate
        from retention_cli.disks.solve.estimated import Known

        ends = {}
        for tp, one in self.facts.items():
            if not isinstance(one.log_start, Unknown) and not isinstance(one.high_watermark, Unknown):
                ends[tp] = (one.log_start, one.high_watermark)
        replicas = [(n, disk, tp) for n, disk in enumerate(self.disks) for tp in disk.replicas if tp in ends]
        doubts = {(n, tp): why for n, disk, tp in replicas if (why := self.sizes.doubt(disk, tp, "R6")) is not None}
        dead = {place: self.sizes.dead_bytes(self.disks[place[0]], place[1]) for place in doubts}
        doubtful = {place: self.sizes.doubtful_bytes(self.disks[place[0]], place[1]) for place in doubts}
        lying = Known(ends, decided, limits, self.sizes.segment_bytes, doubts, dead, doubtful, self.leaving_bytes())
        return estimate(reader, self.disks, self.rules, lying, self._leaders, now_ms)

    def leaving_bytes(self) -> list[int]:
        """Return, per disk, what has left replicas' sizes lately and is in use until its files are deleted."""
        return [0 if sized_by_policy(one, self.rules) else self.sizes.leaving_bytes(one) for one in self.disks]

    def without_numpy(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, Unknown] | None:
        """Return why R6 holds these partitions where numpy is not installed; None where it is."""
        try:
            numpy()
        except MissingPartError:
            self._outcomes = [DiskOutcome(disk, self.rules.percent, _NO_NUMPY) for disk in self.disks]
            percent = 100.0 if self.rules.percent is None else self.rules.percent
            may_be_above = {
                tp
                for one in self.disks
                if isinstance(one.room, Unknown) or excess_bytes(one.room, percent) > 0
                for tp in one.replicas
            }
            return {tp: _NO_NUMPY for tp in tps if tp in may_be_above}
        return None

    def settle(self, outcomes: Sequence[DiskOutcome]) -> None:
        """Take what R6 comes to on each disk."""
        self._outcomes = outcomes
        self.notes += [note for one in outcomes for note in one.notes()]
        self._above = {}
        for one in outcomes:
            if one.excess_bytes or one.level_ms is not None:
                for tp in one.disk.replicas:
                    self._above.setdefault(tp, []).append(one)

    def without_ceiling(self) -> None:
        """Note that no disk has a ceiling."""
        self._outcomes = [DiskOutcome(disk, None) for disk in self.disks]

    def why(self, tp: TopicPartition) -> Reason:
        """Return why R6 trims a partition."""
        on = self._above.get(tp, ())
        names = [one.disk.name for one in on if one.excess_bytes]
        levels = [one.level_ms for one in on if one.level_ms is not None]
        until = f", up to {format_time(max(levels))}" if levels else ""
        how = "" if self.exact else "; estimated, for want of an inventory"
        return Reason("R6", f"among the oldest on {'; '.join(names)}, fuller than {self.rules.percent:g} %{until}{how}")

    def tiered(
        self, reader: ClusterReader, names: Collection[str], settings: Mapping[str, Settings]
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

    def topic_ids(self) -> dict[TopicPartition, str]:
        """Return the topic ids that are known."""
        return {tp: found for tp, one in self.facts.items() if (found := known(one.topic.topic_id)) is not None}

    def leading(self) -> dict[TopicPartition, int | None]:
        """Return who leads each partition, None where nobody does."""
        return {tp: one.leader for tp, one in self._leaders.items()}

    def _leading_disks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Disk]:
        return {
            tp: disk
            for disk in self.disks
            for tp in disk.replicas
            if tp in tps and self._leaders[tp].leader == disk.broker
        }

    def _on(self) -> dict[TopicPartition, list[Disk]]:
        on: dict[TopicPartition, list[Disk]] = {}
        for disk in self.disks:
            for tp in disk.replicas:
                on.setdefault(tp, []).append(disk)
        return on

    def _usage(self, disks: Sequence[Disk], replicas: Sequence[int]) -> Maybe[Usage | None]:
        states: list[tuple[str, Maybe[tuple[int, int]]]] = [
            (one.name, one.room if isinstance(one.room, Unknown) else (one.room.used_bytes, one.room.total_bytes))
            for one in disks
        ]
        for broker in {*replicas} - {one.broker for one in disks}:
            why = f"how full broker {broker}'s disks are could not be read: the watermarks can't be told"
            states.append((f"broker {broker}", Unknown.because("R7", why)))
        return usage_for(self.rules.watermarks, states)

    def _estimated_tail(
        self, tp: TopicPartition, facts: PartitionFacts, leading: Disk | None, most_bytes: int
    ) -> Maybe[Tail]:
        """Return R5's bound from the size that the broker says, where there can be no dead segments in it."""
        start, end = facts.log_start, facts.high_watermark
        if isinstance(start, Unknown):
            return start
        if isinstance(end, Unknown):
            return end
        if leading is None:
            return Unknown.because("R5", "its size could not be read")
        if leading.replicas[tp] <= most_bytes:  # whatever of it is dead
            return Tail(start, exact=False)
        size_bytes = self.sizes.live_bytes(leading, tp, start)
        if isinstance(size_bytes, Unknown):
            return size_bytes
        try:
            numpy()
        except MissingPartError:
            return Unknown.because("R5", "sizes are estimated with numpy: pip install 'kretain[parquet]'")
        from retention_cli.disks.solve.tails import estimated_tail

        return Tail(estimated_tail(start, end, size_bytes, most_bytes), exact=False)


def sized_topics(settings: Mapping[str, Settings]) -> set[str]:
    """Return the topics that R5 has a size for."""
    return {name for name, one in settings.items() if one.max_bytes is not None or one.max_topic_bytes is not None}
