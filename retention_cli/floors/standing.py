"""Where the groups stand on one partition, and the floor that this comes to (RULES.md F1–F6). Pure.

A standing is what is left of any number of commits: small, and the same whoever folded them. The local fold
makes it in memory, Spark by a groupBy; what is said of it is said here, once.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from retention_cli.model import Floor, Maybe, Reason, Unknown

NAMED_AT_MOST: Final = 3
"""How many groups a reason names before it counts the rest."""


@dataclass(slots=True)
class Best:
    """The lowest and highest commit of a partition, and whose they are: of equal ones, the first by name."""

    low: int
    low_by: str
    high: int
    high_by: str


class Standing(NamedTuple):
    """What was read of all groups, as far as one partition goes.

    ``best`` is None where nobody has committed. ``failed`` holds for the whole cluster (F3, F8, F9), ``failed_topic``
    for the topic (F3), ``diverged`` for the partition (F5): all of them. ``missing`` are the first few of the
    ``missing_count`` groups that read the topic and have no commit here (F2): name and text. ``absent`` are the
    required groups without a commit here (F4). ``recalled`` says when the lowest commit was last seen, where it
    is a remembered one (F6).
    """

    best: Best | None = None
    failed: Collection[Reason] = ()
    failed_topic: Collection[Reason] = ()
    diverged: Collection[Reason] = ()
    missing: Sequence[tuple[str, str]] = ()
    missing_count: int = 0
    absent: Sequence[str] = ()
    recalled: str | None = None


def floor_of(standing: Standing, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
    """Return the partition's floor. ``high_watermark`` must have been read after the commits (F5)."""
    if isinstance(high_watermark, Unknown):
        return high_watermark
    best = standing.best
    reasons = _doubts(standing)
    if best is not None and best.high > high_watermark:
        text = (
            f"group {best.high_by} committed {best.high:,}, beyond the log's end {high_watermark:,}: a leftover of "
            f"an older topic of this name? Reset it, or delete its offsets"
        )
        reasons.append(Reason("F5", text))
    if best is None and not reasons:
        reasons.append(Reason("F4", "no consumer group has committed here: nothing says what was read"))
    if reasons or best is None:
        return Unknown(tuple(dict.fromkeys(reasons)))
    notes: tuple[Reason, ...] = ()
    if not isinstance(log_start, Unknown) and best.low < log_start:
        lost = f"{log_start - best.low:,} records were gone before it read them"
        notes = (Reason("F5", f"group {best.low_by} stands at {best.low:,}: {lost}"),)
    if standing.recalled is not None:
        text = (
            f"group {best.low_by} is gone since it committed {best.low:,} here (seen {standing.recalled}) and still "
            f"counts; if it won't come back: kretain groups forget {shlex.quote(best.low_by)}"
        )
        notes = (*notes, Reason("F6", text))
    return Floor(best.low, f"group:{best.low_by}", notes)


def diverged_reason(group: str, offset: int, epoch: int, end: int) -> Reason:
    """Return why a commit beyond the end of its own leader epoch counts for nothing (F5)."""
    text = (
        f"group {group} committed {offset:,} in leader epoch {epoch}, which ended at {end:,}: those records "
        f"were lost in an election and others stand there now; let it commit again"
    )
    return Reason("F5", text)


def leftover_reason(group: str, offset: int) -> Reason:
    """Return why a commit that was seen beyond the log's end, or on a topic that is gone, counts for nothing (F5)."""
    text = (
        f"group {group} committed {offset:,} to an older topic of this name or before the log was lost, and has "
        f"not committed since: reset it, or delete its offsets"
    )
    return Reason("F5", text)


def failed_reason(group: str, text: str) -> Reason:
    """Return why what a group may touch is unknown (F3)."""
    return Reason("F3", f"group {group} could not be read: {text}")


def without_commit_text(group: str, topic: str, rows: Iterable[tuple[int, int, int | None]]) -> str:
    """Return what to do about a group that reads a topic and has no commit on a partition of it (F2)."""
    partition, offset, _epoch = max(rows)
    return (
        f"group {group} reads {topic} but has no commit on this partition (its commit on "
        f"{topic}-{partition} is {offset:,}). If it reads no more: kafka-consumer-groups.sh "
        f"--delete-offsets --group {shlex.quote(group)} --topic {topic}, or list it under "
        f"groups.ignore; if it starts at the end, under groups.latest"
    )


def only_member_text(group: str, topic: str) -> str:
    """Return what to do about a group that has committed nothing on a topic that its member reads (F2)."""
    return (
        f"group {group} has a live member that reads {topic}, and has committed nothing there yet. Let it "
        f"commit, or list it under groups.ignore; if it starts at the end, under groups.latest"
    )


def _doubts(standing: Standing) -> list[Reason]:
    """Return why the groups' commits do not say all: nothing, for nearly every partition."""
    reasons: list[Reason] = []
    for some in (standing.failed, standing.failed_topic, standing.diverged):
        if some:
            reasons += _some(some)
    if standing.missing_count:
        reasons += _missing_reasons(standing)
    for group in standing.absent:
        reasons.append(Reason("F4", f"group {group} is required (groups.require) and has no commit here"))
    return reasons


def _missing_reasons(standing: Standing) -> list[Reason]:
    reasons = [Reason("F2", text) for _group, text in sorted(standing.missing)]
    if standing.missing_count > len(reasons):
        reasons.append(Reason("F2", f"and {standing.missing_count - len(reasons):,} more groups without a commit here"))
    return reasons


def _some(reasons: Collection[Reason]) -> list[Reason]:
    """Return the first few reasons in order, and how many more there are."""
    ordered = sorted(reasons)
    if len(ordered) <= NAMED_AT_MOST:
        return ordered
    more = Reason(ordered[0].code, f"and {len(ordered) - NAMED_AT_MOST:,} more like these")
    return [*ordered[:NAMED_AT_MOST], more]
