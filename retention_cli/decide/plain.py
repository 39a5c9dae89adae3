"""Decide the partitions of which R1 alone has a say, with nothing unknown and nothing to remark on. Pure.

Nearly all partitions of nearly all clusters are so. For them a decision is one comparison of numbers, once it is known
of a topic that no other rule or guard can matter; all others go to :func:`~retention_cli.decide.decision.decide`. Both
come to the same (tests/unit/decide/test_plain.py), as nobody can tell from a plan which it was.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from retention_cli.core.model import ANCIENT_MS, Decision, Floor, LookUp, PartitionFacts, TopicPartition, Unknown
from retention_cli.decide.decision import decide
from retention_cli.decide.guards import GUARDS, frozen, untouchable
from retention_cli.decide.triggers import TRIGGERS
from retention_cli.decide.triggers.consumed import forced_retention_conflict, live_retention
from retention_cli.policy.settings import Settings

_KNOWN_GUARDS: Final = frozenset({"G1", "G8", "G9"})


class PlainRule(NamedTuple):
    """R1 of a topic without anything else: the time of its look-up (Unix ms), and whether G9 guards it.

    A record stamped after ``latest_ms`` (Unix ms) lies in the future, which is to be noted.
    """

    cutoff_ms: int
    guarded: bool
    latest_ms: int


def plain_rule(one: PartitionFacts, settings: Settings, now_ms: int) -> PlainRule | None:
    """Return the rule of this partition's topic if R1 alone decides all of it, None if there is more to it."""
    topic, after_ms = one.topic, settings.consumed_after_ms
    on = [trigger.code for trigger in TRIGGERS if trigger.on(one._replace(usage=None), settings)]
    guards = {guard.code for guard in GUARDS if guard.applies("R1", settings)}
    if (
        after_ms is None
        or after_ms >= now_ms  # no record is older, whatever a look-up says
        or on != ["R1"]
        or not guards <= _KNOWN_GUARDS
        or settings.unsettled is not None
        or settings.whole_segments
        or frozen(settings) is not None
        or untouchable(topic, settings) is not None
        or isinstance(topic.topic_id, Unknown)
        or forced_retention_conflict(after_ms, live_retention(topic), settings.forced_age_ms) is not None
    ):
        return None
    return PlainRule(now_ms - after_ms, "G9" in guards, now_ms + settings.max_ahead_ms)


def plain_bound(one: PartitionFacts, rule: PlainRule) -> int | None:
    """Return how far R1 trims a partition, its log start if it does not; None if there is more to be said of it."""
    start, end, stable, floor = one.log_start, one.high_watermark, one.last_stable_offset, one.floor
    if type(start) is not int or type(end) is not int or type(stable) is not int:
        return None
    if one.usage is not None or one.clock is not None:
        return None
    if type(floor) is not Floor:
        return start if start == end else None
    if floor.notes:
        return None
    if start == end or floor.offset <= start:
        return start
    old = one.lookups.get(rule.cutoff_ms)
    if type(old) is not LookUp or old.note is not None:
        return None
    if old.timestamp is not None and old.timestamp > rule.latest_ms:
        return None
    bound = min(floor.offset, old.offset)
    if bound <= start:
        return start
    if rule.guarded:
        front = one.lookups.get(ANCIENT_MS)
        if type(front) is not LookUp or front.offset > start:
            return None
    return None if bound > stable or bound > end else bound


class Decider:
    """Decides partitions, in any order; what is the same for all partitions of a topic is found out once.

    A partition may be decided while others are still being read. Its decision is used again for the very same facts
    alone: where anything was read anew, or was found to have changed, there are other facts.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._rules: dict[str, tuple[object, Settings, PlainRule | None]] = {}
        self._ahead: dict[TopicPartition, tuple[PartitionFacts, Settings, Decision]] = {}

    def ahead(self, tp: TopicPartition, facts: PartitionFacts, settings: Settings) -> None:
        """Decide a partition for later."""
        self._ahead[tp] = facts, settings, self._decided(facts, settings)

    def decide(self, tp: TopicPartition, facts: PartitionFacts, settings: Settings) -> Decision:
        """Return what :func:`~retention_cli.decide.decision.decide` returns."""
        before = self._ahead.get(tp)
        if before is not None and before[0] is facts and before[1] is settings:
            return before[2]
        return self._decided(facts, settings)

    def _decided(self, one: PartitionFacts, settings: Settings) -> Decision:
        topic = one.topic
        found = self._rules.get(topic.name)
        if found is None or found[0] is not topic or found[1] is not settings:
            found = self._rules[topic.name] = topic, settings, plain_rule(one, settings, self._now_ms)
        rule = found[2]
        bound = None if rule is None else plain_bound(one, rule)
        return decide(one, settings, self._now_ms) if bound is None else _plainly(one, bound)


def _plainly(one: PartitionFacts, bound: int) -> Decision:
    """Return the decision of a partition that R1 alone trims to ``bound``, or not at all: it is the log start then."""
    start: Any = one.log_start  # none of these is unknown, else there would be no such bound
    end: Any = one.high_watermark
    stable: Any = one.last_stable_offset
    topic_id: Any = one.topic.topic_id
    floor: Any = None if type(one.floor) is Unknown else one.floor
    size: int | None = 0
    if records := bound - start:
        size = None if isinstance(one.size_bytes, Unknown) else one.size_bytes * records // (end - start)
    return Decision(
        one.topic.name,
        topic_id,
        one.partition,
        "trim" if records else "keep",
        start,
        end,
        stable,
        None if floor is None else floor.offset,
        None if floor is None else floor.by,
        bound if records else None,
        records,
        size,
        0,
        "consumed" if records else None,
        None,
        (),
        False,
        one.leader_epoch,
    )
