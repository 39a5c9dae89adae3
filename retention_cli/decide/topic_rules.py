"""The rules of a topic: what is the same for all of its partitions, found out once (docs/rules.md, Deciding). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from retention_cli.core.model import ANCIENT_MS, PartitionFacts, TopicFacts, Unknown
from retention_cli.decide.guards import GUARDS, Guard, frozen, untouchable
from retention_cli.decide.triggers import TRIGGERS, Trigger
from retention_cli.policy.settings import Settings


class Wanted(NamedTuple):
    """The times (Unix ms) whose ``offset_at`` a decision needs; ``data`` are those for ``data_lookups``.

    ``front``: 2000-01-01 is among them only to learn whether the first record is older (G9).
    """

    times: frozenset[int] = frozenset()
    data: frozenset[int] = frozenset()
    front: bool = False


_NOTHING: Final = Wanted()


class TopicRules:
    """The triggers that are on for a topic, the guards of each, and the look-ups that they need.

    Attributes:
        topic: the topic's facts.
        settings: its settings.
        now_ms: the time from which all cutoffs are calculated (Unix ms).
        untouchable: why the topic is skipped (G5); unknown if that is.
        frozen: why the topic is on hold (G7).
        unknown: the facts about it that are unknown, and without which nothing is trimmed.
    """

    def __init__(self, topic: TopicFacts, settings: Settings, now_ms: int) -> None:
        self.topic, self.settings, self.now_ms = topic, settings, now_ms
        self.untouchable, self.frozen = untouchable(topic, settings), frozen(settings)
        needed = (settings.unsettled, self.untouchable, topic.topic_id)
        self.unknown = [fact for fact in needed if isinstance(fact, Unknown)]
        self._settled = not (settings.unsettled is None and self.frozen is None and self.untouchable is None)
        self._triggers: dict[bool, list[Trigger]] = {}
        self._guards: dict[str, list[Guard]] = {}
        self._guarding: frozenset[int] | None = None
        self._wanted: dict[tuple[tuple[int, ...], ...], Wanted] = {}

    def triggers(self, facts: PartitionFacts) -> list[Trigger]:
        """Return the triggers that are on for a partition, in the rules' order."""
        pressed = facts.usage is not None  # of a partition's facts, no trigger is on by any other
        if (found := self._triggers.get(pressed)) is None:
            found = self._triggers[pressed] = [one for one in TRIGGERS if one.on(facts, self.settings)]
        return found

    def guards(self, trigger: str) -> list[Guard]:
        """Return the guards of the trigger with this code, in the rules' order."""
        if (found := self._guards.get(trigger)) is None:
            found = self._guards[trigger] = [one for one in GUARDS if one.applies(trigger, self.settings)]
        return found

    def settles(self, facts: PartitionFacts) -> bool:
        """Return whether a decision needs no look-ups: the partition is empty, frozen, skipped, or unreadable."""
        start, end = facts.log_start, facts.high_watermark
        return self._settled or start == end or isinstance(start, Unknown) or isinstance(end, Unknown)

    def wanted(self, facts: PartitionFacts) -> Wanted:
        """Return the times whose ``offset_at`` the decision needs; ``facts.newest`` must have been read.

        Look-ups that can't matter are left out: all of them if the partition is settled, or if no trigger could ask
        for a bound. Times that guards need (G3, G9) are returned together with the triggers' own.
        """
        if self.settles(facts):
            return _NOTHING
        settings, now_ms, on = self.settings, self.now_ms, self.triggers(facts)
        plain = tuple([trigger.cutoffs(facts, settings, now_ms) for trigger in on])
        data = [time for trigger in on for time in trigger.data_cutoffs(facts, settings, now_ms)]
        if not (data or any(plain) or facts.tails) and isinstance(facts.event_prefix, Unknown):
            return _NOTHING
        wanted = None if data else self._wanted.get(plain)  # data's times are each partition's own (R2)
        if wanted is None:
            if self._guarding is None:
                self._guarding = frozenset(time for guard in GUARDS for time in guard.cutoffs(facts, settings, now_ms))
            times = self._guarding.union(*plain)
            wanted = Wanted(
                frozenset(t for t in times if t > 0), frozenset(t for t in data if t > 0), ANCIENT_MS in self._guarding
            )
            if not data:
                self._wanted[plain] = wanted
        return wanted


def by_topic(
    facts: Iterable[PartitionFacts], settings: Mapping[str, Settings], now_ms: int
) -> Iterator[tuple[PartitionFacts, TopicRules]]:
    """Yield each partition's facts, and the rules of its topic: made once, if a topic's partitions are together."""
    rules: TopicRules | None = None
    for one in facts:
        if rules is None or rules.topic is not one.topic:  # also if a topic was read again: it may differ
            rules = TopicRules(one.topic, settings[one.topic.name], now_ms)
        yield one, rules
