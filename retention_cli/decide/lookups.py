"""Which offsets at a time a decision needs (docs/rules.md, Look-ups). Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from retention_cli.core.model import ANCIENT_MS, PartitionFacts, TopicFacts, Unknown
from retention_cli.decide.guards import GUARDS, frozen, untouchable
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


def settled(facts: PartitionFacts, settings: Settings) -> bool:
    """Return whether the decision needs no look-ups: the partition is empty, frozen, skipped, or unreadable."""
    return (
        facts.empty
        or isinstance(facts.log_start, Unknown)
        or isinstance(facts.high_watermark, Unknown)
        or _is_settled(facts.topic, settings)
    )


def _is_settled(topic: TopicFacts, settings: Settings) -> bool:
    return settings.unsettled is not None or frozen(settings) is not None or untouchable(topic, settings) is not None


class Lookups:
    """Tells which look-ups a topic's partitions need: what is the same for all of them is found out once."""

    def __init__(self, topic: TopicFacts, settings: Settings, now_ms: int) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._settled = _is_settled(topic, settings)
        self._on: dict[bool, list[Trigger]] = {}
        self._guarding: frozenset[int] | None = None
        self._made: dict[tuple[tuple[int, ...], ...], Wanted] = {}

    def of(self, facts: PartitionFacts) -> Wanted:
        """Return the times whose ``offset_at`` the decision needs; ``facts.newest`` must have been read.

        Look-ups that can't matter are left out: all of them if the partition is settled, or if no trigger could ask
        for a bound. Times that guards need (G3, G9) are returned together with the triggers' own.
        """
        start, end = facts.log_start, facts.high_watermark
        if self._settled or start == end or isinstance(start, Unknown) or isinstance(end, Unknown):
            return _NOTHING
        settings, now_ms = self._settings, self._now_ms
        pressed = facts.usage is not None  # of a partition's facts, no trigger is on by any other
        if (on := self._on.get(pressed)) is None:
            on = self._on[pressed] = [trigger for trigger in TRIGGERS if trigger.on(facts, settings)]
        plain = tuple([trigger.cutoffs(facts, settings, now_ms) for trigger in on])
        data = [time for trigger in on for time in trigger.data_cutoffs(facts, settings, now_ms)]
        if not (data or any(plain) or facts.tails) and isinstance(facts.event_prefix, Unknown):
            return _NOTHING
        if (guarding := self._guarding) is None:
            found = {time for guard in GUARDS for time in guard.cutoffs(facts, settings, now_ms)}
            guarding = self._guarding = frozenset(found)
        wanted = None if data else self._made.get(plain)  # data's times are each partition's own (R2)
        if wanted is None:
            times = guarding.union(*plain)
            wanted = Wanted(
                frozenset(t for t in times if t > 0), frozenset(t for t in data if t > 0), ANCIENT_MS in guarding
            )
            if not data:
                self._made[plain] = wanted
        return wanted
