"""R1: trim records that every consumer has read, after a time (KIP-68)."""

from __future__ import annotations

from retention_cli.core.model import INFINITE_MS, Code, Maybe, PartitionFacts, TopicFacts, Unknown, known
from retention_cli.core.units import format_duration, format_time
from retention_cli.decide.triggers.interface import Ask, Bound, NotEnabled, Trigger, offset_at
from retention_cli.policy.settings import Settings


class Consumed(Trigger):
    """Asks for ``min(floor, offset_at(now - T))``. An unknown floor makes the bound unknown."""

    code = Code.R1

    def on(self, facts: PartitionFacts, settings: Settings) -> bool:
        """Return whether the policy turns it on."""
        del facts
        return settings.consumed_after_ms is not None

    def cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return ``now - T`` if R1 is on and the floor is beyond the log start; otherwise no time matters."""
        return () if settings.consumed_after_ms is None else read_cutoffs(facts, now_ms - settings.consumed_after_ms)

    def ask(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> Ask:
        """Return R1's bound; unknown also if T is longer than the forced retention (R1), or while R1 waits (F10)."""
        after_ms = settings.consumed_after_ms
        if after_ms is None:
            return NotEnabled()
        conflict = forced_retention_conflict(after_ms, live_retention(facts.topic), settings.forced_age_ms)
        return read_before(facts, now_ms - after_ms, settings, now_ms) if conflict is None else conflict


def read_cutoffs(facts: PartitionFacts, time_ms: int) -> tuple[int, ...]:
    """Return the time that :func:`read_before` looks up, none if the floor is not beyond the log start."""
    if isinstance(facts.floor, Unknown) or isinstance(facts.log_start, Unknown):
        return ()
    return () if facts.floor.offset <= facts.log_start else (time_ms,)


def read_before(facts: PartitionFacts, time_ms: int, settings: Settings, now_ms: int) -> Bound | Unknown:
    """Return ``min(floor, offset_at(time_ms))``; unknown while R1 waits (F10)."""
    if isinstance(facts.floor, Unknown):
        return facts.floor
    floor = Bound(facts.floor.offset, facts.floor.notes)
    if not isinstance(facts.log_start, Unknown) and floor.offset <= facts.log_start:
        return floor  # the smaller of floor and look-up is not beyond S
    old = offset_at(facts, time_ms, settings, now_ms)
    if isinstance(old, Unknown):
        return old
    bound = floor if floor.offset < old.offset else old
    waits = watched_first(facts, settings, now_ms)
    return bound if waits is None or bound.offset <= (known(facts.log_start) or 0) else waits


def watched_until_ms(facts: PartitionFacts, settings: Settings, now_ms: int) -> int | None:
    """Return until when R1 waits at least (F10, Unix ms), None if it does not."""
    if settings.watch_first_ms is None:
        return None
    if facts.watched_since_ms is None:
        return now_ms + settings.watch_first_ms
    until_ms = facts.watched_since_ms + settings.watch_first_ms
    return until_ms if until_ms > now_ms else None


def watched_first(facts: PartitionFacts, settings: Settings, now_ms: int) -> Unknown | None:
    """Return why R1 must wait until kretain has watched the cluster's groups for long enough (F10), else None."""
    first_ms, until_ms = settings.watch_first_ms, watched_until_ms(facts, settings, now_ms)
    if first_ms is None or until_ms is None:
        return None
    return Unknown.because(
        Code.F10,
        f"kretain has watched this cluster's groups since {format_time((until_ms - first_ms) // 1000 * 1000)}: R1 "
        f"holds until {format_time(-until_ms // 1000 * -1000)} (groups.watch.first: {format_duration(first_ms)}). "
        f"Until then run kretain plan every day, or kretain watch: a pause of more than 2 days starts this over",
    )


def live_retention(topic: TopicFacts) -> Maybe[int]:
    """Return after how long a topic's brokers delete records, −1 for never: where it has no ``delete`` policy (R1)."""
    if isinstance(topic.cleanup_policy, Unknown):
        return topic.cleanup_policy
    return topic.retention_ms if "delete" in topic.cleanup_policy else INFINITE_MS


def forced_retention_conflict(after_ms: int, live_ms: int | Unknown, forced_age_ms: int | None) -> Unknown | None:
    """Return the error if T is longer than the forced retention, None if it is not; unknown if ``live_ms`` is (R1).

    ``live_ms`` is the topic's own retention (:func:`live_retention`), ``forced_age_ms`` R4's A.
    """
    if isinstance(live_ms, Unknown):
        return live_ms
    for name, forced_ms in (("the topic's retention.ms", live_ms), ("the policy's retention.ms", forced_age_ms)):
        if forced_ms is not None and forced_ms != INFINITE_MS and after_ms > forced_ms:
            return Unknown.because(
                Code.R1,
                f"retention.commitoffset is {format_duration(after_ms)}, longer than {name} of "
                f"{format_duration(forced_ms)}: records would be deleted before R1 applies; "
                f"shorten the first or lengthen the second",
            )
    return None
