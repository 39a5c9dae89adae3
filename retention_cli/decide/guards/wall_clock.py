"""G3: records written less than W ago are kept, regardless of their timestamps."""

from __future__ import annotations

from collections.abc import Sequence

from retention_cli.core.model import Code, PartitionFacts, Sample, Unknown
from retention_cli.core.units import format_duration, format_time
from retention_cli.decide.guards.interface import Guard
from retention_cli.decide.triggers.interface import offset_at
from retention_cli.policy.settings import Settings


class WallClock(Guard):
    """Limits every trigger but R6 to the offsets known to have been written at or before ``now − W``."""

    code: Code = Code.G3

    def applies(self, trigger: str, settings: Settings) -> bool:
        """Return whether ``retention.min.wallclock.ms`` is set and the trigger is not R6."""
        return settings.min_wallclock_ms is not None and trigger != Code.R6

    def cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return ``now − W`` if the broker stamps append times; otherwise only the ledger has write times."""
        if settings.min_wallclock_ms is None or facts.topic.timestamp_type != "LogAppendTime":
            return ()
        return (now_ms - settings.min_wallclock_ms,)

    def limit(self, bound: int, facts: PartitionFacts, settings: Settings, now_ms: int) -> int | Unknown:
        """Return min(bound, the offset below which every record was written at or before ``now − W``)."""
        wait_ms = settings.min_wallclock_ms
        if wait_ms is None:
            return bound
        written = _written_by(facts, settings, now_ms, wait_ms)
        return written if isinstance(written, Unknown) else min(bound, written)

    def holds_back(self, facts: PartitionFacts, settings: Settings) -> str:
        """Return the text for a limit by this guard."""
        del facts
        return f"the next records were written less than {format_duration(settings.min_wallclock_ms or 0)} ago"


def _written_by(facts: PartitionFacts, settings: Settings, now_ms: int, wait_ms: int) -> int | Unknown:
    kind = facts.topic.timestamp_type
    if isinstance(kind, Unknown):
        return kind
    if kind != "LogAppendTime":
        return _watched(facts, now_ms, wait_ms)
    if isinstance(facts.stamped_below, Unknown):
        return facts.stamped_below
    if isinstance(facts.log_start, Unknown):
        return facts.log_start
    watched = 0
    if facts.log_start < facts.stamped_below:  # the topic was CreateTime: up to there only the ledger's samples count
        seen = _watched(facts, now_ms, wait_ms)
        if isinstance(seen, Unknown) or seen < facts.stamped_below:
            return seen
        watched = seen
    found = offset_at(facts, now_ms - wait_ms, settings, now_ms)
    return found if isinstance(found, Unknown) else max(watched, found.offset)


def _watched(facts: PartitionFacts, now_ms: int, wait_ms: int) -> int | Unknown:
    """Return the offset below which every record was written at or before ``now − W``, by the ledger's samples."""
    if isinstance(facts.samples, Unknown):
        return facts.samples
    known = written_by(facts.samples, now_ms - wait_ms)
    if known is None:
        first = facts.samples[0].wall_ms if facts.samples else now_ms
        return Unknown.because(
            Code.G3,
            f"kretain has watched this partition only since {_to_the_second(first)}: with retention.min.wallclock.ms "
            f"of {format_duration(wait_ms)} it trims nothing before {_to_the_second(first + wait_ms)}",
        )
    return known


def _to_the_second(time_ms: int) -> str:
    return format_time(-(-time_ms // 1000) * 1000)


def telling(samples: Sequence[Sample], time_ms: int) -> int | None:
    """Return the index of the last sample at or before ``time_ms`` (Unix ms), None if there is none."""
    return next((n for n in range(len(samples) - 1, -1, -1) if samples[n].wall_ms <= time_ms), None)


def written_by(samples: Sequence[Sample], time_ms: int) -> int | None:
    """Return the largest offset below which every record was written at or before ``time_ms``, None if unknown.

    ``samples`` are sorted by time. If the high watermark fell, a sample counts only up to the smallest later one: the
    offsets above may belong to other records now (G3).
    """
    index = telling(samples, time_ms)
    return None if index is None else min(sample.high_watermark for sample in samples[index:])
