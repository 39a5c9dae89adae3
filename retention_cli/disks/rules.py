"""Apply R5, R6, R7 and whole segments in a run of this process: read disks and an inventory, then evaluate R6.

There are three steps. :meth:`DiskRun.with_disks` adds the facts about disks that partitions' own rules need, before
times are looked up. :meth:`DiskRun.measure` evaluates R6, after all other rules and over all partitions at once;
:func:`retention_cli.disks.decide.decide` applies its result to the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Decision, Maybe, PartitionFacts, TopicPartition
from retention_cli.decide.decision import Limit, disk_limit
from retention_cli.disks.decide import Measured
from retention_cli.disks.measure import DiskState
from retention_cli.disks.tiered import tiered_topics
from retention_cli.disks.topic_tails import estimated_tails
from retention_cli.observe.recall import Remembered
from retention_cli.policy.disks import sized_topics
from retention_cli.policy.settings import DiskRules, Settings

if TYPE_CHECKING:  # importing these imports numpy and pyarrow, which only an inventory needs
    from retention_cli.disks.solve.inventory_view import InventoryView
    from retention_cli.disks.solve.oldest_first import OldestFirst


@dataclass(slots=True)
class DiskRun:
    """R5 to R7 in one run, or one recheck.

    Args:
        state: the disks.
        inventory: the inventory, None if none was given.
    """

    state: DiskState
    inventory: InventoryView | None = None

    @classmethod
    def of(cls, rules: DiskRules, inventory: InventoryView | None) -> Self:
        """Return a run before anything is read."""
        return cls(DiskState.of(rules, inventory), inventory)

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
        state, inventory = self.state, self.inventory
        if inventory is not None:
            inventory.check_cluster(cluster_id)
        state.look(reader, facts, settings, leaders, remembered, clock_ms)
        if inventory is not None:
            doubts = state.unproven(reader, list(inventory.replicas(state.log_starts())))
            self.inventory = inventory = inventory.without(doubts)
        usages = state.usages(facts.keys(), leaders)
        found = {tp: one._replace(usage=usages[tp]) for tp, one in facts.items()} if usages else dict(facts)
        if sized := sized_topics(settings):
            chosen = {tp: one for tp, one in state.facts.items() if tp.topic in sized}
            if inventory is not None:
                tails = inventory.tails(chosen, settings, state.leading(), state.topic_ids())
            else:
                leading = state.leading_disks(chosen.keys())
                tails = estimated_tails(reader, chosen, settings, leading, state.sizes, leaders, remembered.now_ms)
            found = {tp: one._replace(tails=tails[tp]) if tp in tails else one for tp, one in found.items()}
        whole = {name for name, one in settings.items() if one.whole_segments}
        if whole and inventory is not None:
            bases = inventory.bases({tp: leaders[tp].leader for tp in found if tp.topic in whole}, state.topic_ids())
            found = {tp: one._replace(segment_bases=bases[tp]) if tp in bases else one for tp, one in found.items()}
        return found

    def measure(
        self,
        reader: ClusterReader,
        facts: Mapping[TopicPartition, PartitionFacts],
        settings: Mapping[str, Settings],
        decisions: Sequence[Decision],
        now_ms: int,
    ) -> Measured:
        """Return R6's results after the partitions' own rules, and set the state's outcomes.

        Without an inventory, brokers are asked for offsets at times. That is after everything else was read, so
        leaders, leader epochs and topic ids are compared once more (M1).
        """
        state = self.state
        state.topics = {one.topic for one in decisions if one.action != "skip"}
        if state.rules.percent is None:
            state.without_ceiling()
            return Measured()
        missing = state.without_numpy([one.tp for one in decisions])
        if missing is not None:
            return Measured(unknown=missing)
        tiered, left_alone = tiered_topics(reader, state.topics, settings)
        limits: dict[TopicPartition, Maybe[Limit]] = {}
        for one in decisions:
            stopped = tiered.get(one.topic)
            limits[one.tp] = disk_limit(facts[one.tp], settings[one.topic], now_ms) if stopped is None else stopped
        state.facts.update(facts)
        decided = {one.tp: one.trim_to for one in decisions if one.trim_to is not None}
        if self.inventory is None:
            found = state.estimated(reader, decided, limits, now_ms)
        else:
            found = self._walked(self.inventory, decided, limits, now_ms)
        return state.measured(reader, found, limits, left_alone)

    def with_bytes(self, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
        """Return the decisions with the bytes that they trim according to the inventory, where it has them."""
        if self.inventory is None:
            return tuple(decisions)
        trims = {
            one.tp: (one.log_start, one.trim_to)
            for one in decisions
            if one.log_start is not None and one.trim_to is not None
        }
        found = self.inventory.log_bytes(trims, self.state.leading(), self.state.topic_ids())
        return tuple(
            one._replace(size_bytes=found[one.tp][0], size_exact=found[one.tp][1]) if one.tp in found else one
            for one in decisions
        )

    def _walked(
        self,
        inventory: InventoryView,
        decided: Mapping[TopicPartition, int],
        limits: Mapping[TopicPartition, Maybe[Limit]],
        now_ms: int,
    ) -> OldestFirst:
        """Walk the inventory's segments."""
        from retention_cli.disks.solve.oldest_first import oldest_first

        state = self.state
        state.say_age(inventory.age_ms(now_ms))
        segment_table = inventory.segment_table(state.topic_ids())
        walk = partial(oldest_first, segment_table, state.disks, state.rules, state.log_starts(), decided, limits)
        return state.walked(decided, walk)
