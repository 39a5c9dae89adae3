"""R7: if a disk has reached a watermark, R1's T and R4's A are shortened (dynamic retention).

Both are separate rules in addition to R1 and R4: the trim beyond the unscaled time is guarded by G2.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from retention_cli.core.model import Code, PartitionFacts, Reason, Unknown, Usage, Watermark
from retention_cli.core.units import format_duration
from retention_cli.decide.triggers.consumed import (
    forced_retention_conflict,
    live_retention,
    read_before,
    read_cutoffs,
)
from retention_cli.decide.triggers.interface import Ask, Bound, NotEnabled, Trigger, offset_at
from retention_cli.policy.settings import Settings


@lru_cache(1_000)  # a policy has few times and marks, and its topics many partitions
def scaled_ms(time_ms: int, mark: Watermark) -> int:
    """Return ``time_ms`` × factor, at least the watermark's minimum, and at most ``time_ms``."""
    return min(time_ms, max(int(time_ms * Fraction(str(mark.factor))), mark.minimum_ms))


class PressedConsumed(Trigger):
    """R1 with the shorter T. The floor still applies."""

    code = Code.R7
    rule = "consumed"

    def on(self, facts: PartitionFacts, settings: Settings) -> bool:
        """Return whether a disk has reached a watermark, or may have, and the policy has a time to shorten."""
        return facts.usage is not None and settings.consumed_after_ms is not None

    def cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return ``now − T × factor`` if R1 is on and a watermark shortens it."""
        shorter = _shorter(facts, settings.consumed_after_ms)
        if shorter is None or isinstance(shorter, Unknown):
            return ()
        return read_cutoffs(facts, now_ms - shorter[0])

    def ask(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> Ask:
        """Return R1's bound with the shorter T; unknown also if R1 is, by its unscaled T."""
        after_ms = settings.consumed_after_ms
        shorter = _shorter(facts, after_ms)
        if after_ms is None or shorter is None:
            return NotEnabled()
        if isinstance(shorter, Unknown):
            return shorter
        conflict = forced_retention_conflict(after_ms, live_retention(facts.topic), settings.forced_age_ms)
        if conflict is not None:
            return conflict
        bound = read_before(facts, now_ms - shorter[0], settings, now_ms)
        return _with_note(bound, shorter[1], "retention.commitoffset", after_ms, shorter[0])


class PressedAge(Trigger):
    """R4 with the shorter A: it is not forced by the policy file's own number, so it is guarded by G2."""

    code = Code.R7
    rule = "forced-age"

    def on(self, facts: PartitionFacts, settings: Settings) -> bool:
        """Return whether a disk has reached a watermark, or may have, and the policy has a time to shorten."""
        return facts.usage is not None and settings.forced_age_ms is not None

    def cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return ``now − A × factor`` if R4 is on and a watermark shortens it."""
        shorter = _shorter(facts, settings.forced_age_ms)
        return () if shorter is None or isinstance(shorter, Unknown) else (now_ms - shorter[0],)

    def ask(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> Ask:
        """Return R4's bound with the shorter A."""
        age_ms = settings.forced_age_ms
        shorter = _shorter(facts, age_ms)
        if age_ms is None or shorter is None:
            return NotEnabled()
        if isinstance(shorter, Unknown):
            return shorter
        bound = offset_at(facts, now_ms - shorter[0], settings, now_ms)
        return _with_note(bound, shorter[1], "retention.ms", age_ms, shorter[0])


def _shorter(facts: PartitionFacts, time_ms: int | None) -> tuple[int, Usage] | Unknown | None:
    """Return the shortened time and the usage that causes it, None if nothing shortens it."""
    if time_ms is None or facts.usage is None or facts.topic.diskless:
        return None
    if isinstance(facts.usage, Unknown):
        return facts.usage
    scaled = scaled_ms(time_ms, facts.usage.mark)
    return None if scaled == time_ms else (scaled, facts.usage)


def _with_note(bound: Bound | Unknown, usage: Usage, key: str, was_ms: int, is_ms: int) -> Ask:
    return Bound(bound.offset, (*bound.notes, _note(usage, key, was_ms, is_ms))) if isinstance(bound, Bound) else bound


@lru_cache(1_000)
def _note(usage: Usage, key: str, was_ms: int, is_ms: int) -> Reason:
    text = (
        f"{usage.disk} is {usage.percent:.1f} % full, past the watermark of {usage.mark.percent:g} %: {key} of "
        f"{format_duration(was_ms)} counts as {format_duration(is_ms)}"
    )
    return Reason(Code.R7, text)
