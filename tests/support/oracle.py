"""What docs/rules.md demands of a partition, worked out from its records alone: nothing of kretain's is used here."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Literal

HOUR = 3_600_000
YEAR_2000 = 946_684_800_000


@dataclass(frozen=True)
class Rules:
    """What the operator wants of one topic. ``guarded`` is a forced age that was given as a flag (R4, G2)."""

    consumed_after_h: int | None = None
    forced_age_h: int | None = None
    guarded: bool = False
    frozen: bool = False
    skipped: bool = False
    ancient: bool = False
    require: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """One partition as plain consumers saw it: S, H, L, every record's timestamp, which of them are committed.

    ``commits`` are those of the groups that count, ``readers`` the groups that consume the topic and must
    have a commit here (F2). ``whole`` says that the log was never trimmed nor compacted.
    """

    start: int
    end: int
    stable: int
    stamps: Mapping[int, int]
    committed: AbstractSet[int]
    whole: bool
    retention_h: int | None = None
    commits: Mapping[str, int] = field(default_factory=dict)
    readers: AbstractSet[str] = frozenset()


@dataclass(frozen=True)
class Verdict:
    """Where S must be afterwards: from ``least`` to ``most``. ``action`` is None where the two allow several."""

    least: int
    most: int
    action: Literal["trim", "keep", "hold", "skip"] | None


def floor_of(seen: Seen, require: tuple[str, ...]) -> int | None:
    """F1, F2, F4, F5: the smallest commit, None where it is unknown."""
    commits = seen.commits
    if not commits or any(offset > seen.end for offset in commits.values()):
        return None
    if not seen.readers <= commits.keys() or not set(require) <= commits.keys():
        return None
    return min(commits.values())


def older_than(seen: Seen, cutoff_ms: int) -> tuple[int, int]:
    """The Look-ups section: the least and the most that ``offset_at`` may answer.

    The least is the first offset that may be as young: a gap may be a transaction's marker, which is stamped with
    the wall clock. The most is the first *data* record as young, or the end; where that is the very first one, a
    look-up that is settled by reading answers S. On a log that was never trimmed brokers answer the least, always.
    """
    every = range(seen.start, seen.end)
    least = next((o for o in every if seen.stamps.get(o, cutoff_ms) >= cutoff_ms), seen.end)
    if seen.whole:
        return least, least
    data = [o for o in every if o in seen.committed]
    most = next((o for o in data if seen.stamps[o] >= cutoff_ms), max(least, seen.stable))
    return (seen.start if data[:1] == [most] else least), most


def judge(seen: Seen, rules: Rules, now_ms: int) -> Verdict:
    """Deciding: every trigger under its guards, and the largest bound that remains."""
    start = seen.start
    if rules.skipped:
        return Verdict(start, start, "skip")
    if rules.frozen:
        return Verdict(start, start, "hold")
    if start == seen.end:
        return Verdict(start, start, "keep")
    floor = floor_of(seen, rules.require)
    bounds: list[tuple[int, int]] = []
    unknown = unsure = False
    last = min(seen.end, seen.stable)  # G1
    first = next((seen.stamps[o] for o in sorted(seen.stamps)), None)
    seconds = first is not None and first < YEAR_2000 and not rules.ancient  # G9
    if rules.consumed_after_h is not None:
        forced = [hours for hours in (seen.retention_h, rules.forced_age_h) if hours is not None]
        if floor is None or any(rules.consumed_after_h > hours for hours in forced):
            unknown = True
        else:
            least, most = older_than(seen, now_ms - rules.consumed_after_h * HOUR)
            bounds.append((min(least, floor, last), min(most, floor, last)))
    if rules.forced_age_h is not None:
        least, most = older_than(seen, now_ms - rules.forced_age_h * HOUR)
        least, most = min(least, last), min(most, last)
        if not rules.guarded:
            bounds.append((least, most))
        elif floor is not None:
            bounds.append((min(least, floor), min(most, floor)))
        else:
            unknown |= least > start
            unsure |= least <= start < most
    if seconds and any(most > start for _, most in bounds):
        unknown, bounds = True, []
    least = max((one for one, _ in bounds), default=start)
    most = max((one for _, one in bounds), default=start)
    if least > start:
        return Verdict(least, most, "trim")
    if most > start or unsure:
        return Verdict(start, max(start, most), None)
    return Verdict(start, start, "hold" if unknown else "keep")
