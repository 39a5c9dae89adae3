"""The groups' positions on one partition, and the floor that results (F1–F6). Pure.

A standing sums up any number of commits. It is small, and the same in any order of commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from retention_cli.core.commands import kafka_tool
from retention_cli.core.consumers import (
    NO_GROUP,
    floor_by,
    forget_hint,
    forget_line,
    is_outside,
    is_share,
    plain_name,
    who,
)
from retention_cli.core.model import Code, Floor, Maybe, Reason, Unknown
from retention_cli.core.units import format_duration

NAMED_AT_MOST: Final = 3
"""How many groups a reason names before it counts the rest."""
_GROUPS_TOOL: Final = "kafka-consumer-groups.sh"
_SHARES_NOTHING: Final = "let it read a record, or set groups.share: ignore"
_START_NOT_READ: Final = Unknown.because(Code.F2, "where a group without a commit starts was not read")
_END_NOT_READ: Final = Unknown.because(Code.F5, "where the leader epoch of a commit ends was not read")


CUT_UNKNOWN: Final = Unknown.because(
    Code.M4,
    "kretain could not check whether the log was cut since its last run, and a group's commit has no leader "
    "epoch that would show it; run again",
)


NO_HIGHEST: Final = -1
"""The highest commit where no group has committed: below any offset."""


class Refused(NamedTuple):
    """A commit that belongs to another log, and does not count (F5). ``epoch`` is the commit's, None if it has none."""

    offset: int
    epoch: int | None
    group: str


def highest(one: Refused | None, other: Refused | None) -> Refused | None:
    """Return the one that is reported: the highest commit, of equal ones the first group by name."""
    if one is None or other is None:
        return one or other
    return one if (-one.offset, one.group) <= (-other.offset, other.group) else other


class GoneCommit(NamedTuple):
    """A position of a group whose commit is gone (F6), and when it was last seen, in words."""

    offset: int
    group: str
    seen: str


class Start(NamedTuple):
    """How far back a group starts that has no commit (``groups.start``, F2): if several do, the longest time counts."""

    back_ms: int
    group: str


EpochEnd = Maybe[int | None]
"""Where a leader epoch ends, None if the leader does not know it."""


@dataclass(slots=True)
class Irregular:
    """What is out of the ordinary about the commits on one partition (F2, F5, F6): nearly no partition has any of it.

    It is the same for any order of groups, and any number of parts. ``missing`` has name and text of the first
    few of the ``missing_count`` groups that read the topic and have no commit here (F2). ``epochs`` has the highest
    commit of each leader epoch, ``ends`` where epochs other than the current one end. ``refused`` is the highest commit
    known to belong to another log, ``ahead`` the highest of those from an epoch that this log has not reached (F5).
    ``gone`` has, by leader epoch, the lowest position of groups that are gone (F6), ``farthest`` the highest,
    ``unproven`` is the first by name of those that were never seen to count. ``cut`` is where the log was cut since the
    last pass, and which epoch ended there; :data:`CUT_UNKNOWN` if that could not be asked. ``start`` is of a group that
    starts that far back, and ``start_at`` the first offset that it may read then (F2).
    """

    missing_count: int = 0
    missing: tuple[tuple[str, str], ...] = ()
    epochs: dict[int, tuple[int, str]] = field(default_factory=dict)
    ends: dict[int, EpochEnd] = field(default_factory=dict)
    refused: Refused | None = None
    ahead: Refused | None = None
    gone: dict[int, GoneCommit] = field(default_factory=dict)
    farthest: dict[int, GoneCommit] = field(default_factory=dict)
    unproven: GoneCommit | None = None
    cut: Maybe[tuple[int, int | None]] | None = None
    start: Start | None = None
    start_at: Maybe[int] = _START_NOT_READ

    def starts(self, one: Start) -> None:
        """Add a group that has no commit here, and starts this far back."""
        self.start = one if self.start is None else max(self.start, one)

    def lacks(self, group: str, text: str) -> None:
        """Add a group without a commit here, and what to do about it (F2)."""
        self.missing_count += 1
        self.missing = tuple(sorted((*self.missing, (group, text)))[:NAMED_AT_MOST])

    def commits(self, epoch: int, offset: int, group: str) -> None:
        """Add a commit in another leader epoch than the current one: the highest of each epoch is kept (F5)."""
        if (before := self.epochs.get(epoch)) is None or (-offset, group) < (-before[0], before[1]):
            self.epochs[epoch] = (offset, group)

    def left(self, epoch: int | None, one: GoneCommit) -> None:
        """Add a position of a group whose commit is gone (F6): the lowest and the highest of each leader epoch stay.

        Of those that were never seen to count (None), the first group by name does.
        """
        if epoch is None:
            if self.unproven is None or one.group < self.unproven.group:
                self.unproven = one
            return
        if (lowest := self.gone.get(epoch)) is None or one[:2] < lowest[:2]:
            self.gone[epoch] = one
        if (before := self.farthest.get(epoch)) is None or (-one.offset, one.group) < (-before.offset, before.group):
            self.farthest[epoch] = one

    def take(self, other: Irregular) -> None:
        """Add what other groups amount to."""
        self.missing_count += other.missing_count
        self.missing = tuple(sorted((*self.missing, *other.missing))[:NAMED_AT_MOST])
        for epoch, (offset, group) in other.epochs.items():
            self.commits(epoch, offset, group)
        for epoch, one in (*other.gone.items(), *other.farthest.items()):
            self.left(epoch, one)
        if other.unproven is not None:
            self.left(None, other.unproven)
        if other.start is not None:
            self.starts(other.start)
        self.refused, self.ahead = highest(self.refused, other.refused), highest(self.ahead, other.ahead)


class Standing(NamedTuple):
    """What was read of all groups about one partition.

    ``low`` and ``high`` are the lowest and the highest commit, and whose they are: of equal ones, the first group by
    name; ``high`` is :data:`NO_HIGHEST` if no group has committed. ``bare``: some commit carries no leader epoch.
    ``failed`` are the failures that concern the complete cluster (F3, F8,
    F9), ``failed_topic`` those of the topic (F3). ``absent`` are the required groups without a commit here (F4).
    """

    leader_epoch: int
    low: int
    low_by: str
    high: int
    high_by: str
    bare: bool
    failed: Collection[Reason]
    failed_topic: Collection[Reason]
    absent: Sequence[str]
    irregular: Irregular


def floor_of(standing: Standing, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
    """Return the partition's floor. ``high_watermark`` must have been read after the commits (F5)."""
    if isinstance(high_watermark, Unknown):
        return high_watermark
    irregular = standing.irregular
    reasons = _doubts(standing, empty=log_start == high_watermark)
    reasons += _other_log(standing, high_watermark)
    starts = irregular.start if log_start != high_watermark else None
    lowest, gone, unknown = _lowest(standing, high_watermark, starts)
    reasons += unknown
    if lowest is None and not reasons:
        reasons.append(NO_GROUP)
    if reasons or lowest is None:
        return Unknown(tuple(dict.fromkeys(reasons)))
    low, by = lowest
    begins = starts is not None and by == starts.group and low == irregular.start_at
    return Floor(low, floor_by(by), tuple(_notes(low, by, log_start, gone, starts if begins else None)))


def _lowest(
    standing: Standing, high_watermark: int, starts: Start | None
) -> tuple[tuple[int, str] | None, GoneCommit | None, list[Reason]]:
    """Return the lowest position and whose it is, the gone commit that it is from (None: none), and doubts.

    ``starts`` is the group without a commit that may begin here (F2).
    """
    irregular = standing.irregular
    lowest, gone, unknown = _with_gone(standing, high_watermark)
    if starts is not None:
        if isinstance(irregular.start_at, Unknown):
            unknown += irregular.start_at.reasons
        elif lowest is not None and irregular.start_at < lowest[0]:
            lowest, gone = (irregular.start_at, starts.group), None
    return lowest, gone, unknown


def _notes(low: int, by: str, log_start: Maybe[int], gone: GoneCommit | None, starts: Start | None) -> Iterator[Reason]:
    """Yield the notes on a floor at ``low``: ``gone`` or ``starts`` is what sets it, if that is not a live commit."""
    if not isinstance(log_start, Unknown) and low < log_start:
        yield Reason(Code.F5, f"{who(by)} is at {low:,}: {log_start - low:,} records were deleted before it read them")
    if gone is not None:
        cut = "" if gone.offset == low else f", at {low:,}, where the log was cut"
        text = f"{who(by)} no longer exists; it committed {gone.offset:,} here (seen {gone.seen}) and still counts"
        yield Reason(Code.F6, f"{text}{cut}; {forget_hint(by)}")
    if starts is not None:
        yield Reason(
            Code.F2,
            f"{who(by)} has no commit here; if it starts to read, it begins {format_duration(starts.back_ms)} back, at "
            f"{low:,} (groups.start)",
        )


def _with_gone(
    standing: Standing, high_watermark: int
) -> tuple[tuple[int, str] | None, GoneCommit | None, list[Reason]]:
    """Return the lowest position of all groups, the gone commit that it is from (None: a live one), and doubts.

    A group that is gone has read what is before the end of the epoch in which it committed, and nothing after it.
    """
    unknown: list[Reason] = []
    which: GoneCommit | None = None
    lowest = None if standing.high == NO_HIGHEST else (standing.low, standing.low_by)
    for epoch, one in sorted(standing.irregular.gone.items()):
        far = standing.irregular.farthest[epoch]
        end: EpochEnd = (
            high_watermark if epoch == standing.leader_epoch else standing.irregular.ends.get(epoch, _END_NOT_READ)
        )
        if isinstance(end, Unknown):
            gone = f"{who(one.group)}, which no longer exists"
            unknown += [Reason(Code.F6, f"{gone}: {reason.text}") for reason in end.reasons]
        elif end is None or (epoch == standing.leader_epoch and far.offset > high_watermark):
            text = (
                f"{who(far.group)} no longer exists; it committed {far.offset:,} here, to a log that was longer than "
                f"this one (seen {far.seen}); {forget_hint(far.group)}"
            )
            unknown.append(Reason(Code.F6, text))
        elif lowest is None or (min(one.offset, end), one.group) < lowest:
            lowest, which = (min(one.offset, end), one.group), one
    if (never := standing.irregular.unproven) is not None:
        text = f"{who(never.group)} no longer exists; it committed {never.offset:,} here (seen {never.seen}), and"
        unknown.append(Reason(Code.F6, f"{text} nothing shows to which log; {forget_hint(never.group)}"))
    return lowest, which, unknown


def _other_log(standing: Standing, high_watermark: int) -> Iterator[Reason]:
    """Yield why commits do not belong to this log (F5): the highest commit of each kind."""
    irregular = standing.irregular
    beyond, ahead = irregular.refused, irregular.ahead
    if standing.high > high_watermark:
        beyond = highest(Refused(standing.high, None, standing.high_by), beyond)
    for epoch, (offset, group) in sorted(irregular.epochs.items()):
        if epoch == standing.leader_epoch or offset > high_watermark:
            continue
        if isinstance(end := irregular.ends.get(epoch, _END_NOT_READ), Unknown):
            yield from end.reasons
        elif end is None:
            ahead = highest(ahead, Refused(offset, epoch, group))
        elif offset > end:
            yield Reason(
                Code.F5,
                f"{who(group)} committed {offset:,} in leader epoch {epoch}, which ended at {end:,}: those records "
                f"were lost in an election, and others have their offsets now. Let it commit again. If it still names "
                f"epoch {epoch}, its client does not update the epoch: use a newer one, or groups.stale.epochs",
            )
    if ahead is not None and ahead.offset <= high_watermark:
        yield _ahead_reason(ahead, standing.leader_epoch)
    if beyond is not None and (beyond.offset > high_watermark or ahead is None or beyond != ahead):
        yield _refused_reason(beyond, standing.leader_epoch, high_watermark)
    if irregular.cut is not None and standing.bare:
        yield from _maybe_older(irregular.cut)


def _maybe_older(cut: tuple[int, int | None] | Unknown) -> tuple[Reason, ...]:
    """Return why a commit without a leader epoch may be older than the log: that was cut (M2, F5)."""
    if isinstance(cut, Unknown):
        return cut.reasons
    offset, ended = cut
    which = "" if ended is None else f" (leader epoch {ended} ended there)"
    text = (
        f"the log was cut back to {offset:,} since kretain's last run{which}, and a group's commit has no "
        f"leader epoch, so it may be older; run again"
    )
    return (Reason(Code.F5, text),)


def _reset(key: str) -> str:
    return "Correct it" if is_outside(key) else "Reset it, or delete its offsets"


def _refused_reason(one: Refused, leader_epoch: int, high_watermark: int) -> Reason:
    if one.offset > high_watermark:
        return Reason(
            Code.F5,
            f"{who(one.group)} committed {one.offset:,}, beyond the log's end {high_watermark:,}, maybe to "
            f"an older topic of this name. {_reset(one.group)}",
        )
    if (one.epoch or 0) > leader_epoch:
        return _ahead_reason(one, leader_epoch)
    again = "take them out of it" if is_outside(one.group) else "delete its offsets"
    return Reason(
        Code.F5,
        f"{who(one.group)} committed {one.offset:,} to an older topic of this name or before the log was lost, and has "
        f"not committed since: {again}; if it has read this topic up to there: {forget_line(one.group)}",
    )


def _ahead_reason(one: Refused, leader_epoch: int) -> Reason:
    """Return why a commit in a leader epoch that the log does not have does not count (F5)."""
    return Reason(
        Code.F5,
        f"{who(one.group)} committed {one.offset:,} in leader epoch {one.epoch}, which this log does not have (its "
        f"leader is in epoch {leader_epoch}): it may have read an older topic of this name. {_reset(one.group)}",
    )


def without_commit_text(group: str, topic: str, rows: Iterable[tuple[int, int, int | None]]) -> str:
    """Return what to do about a group that reads a topic and has no commit on a partition of it (F2)."""
    partition, offset, _epoch = max(rows)
    if is_outside(group):
        return (
            f"{plain_name(group)} has a position on {topic}-{partition} ({offset:,}) and none on this partition: "
            f"{_SHARES_NOTHING if is_share(group) else 'add it (0, if nothing was read)'}"
        )
    return (
        f"{who(group)} reads {topic} but has no commit on this partition (its commit on "
        f"{topic}-{partition} is {offset:,}). If it still reads the topic, let it commit here, or list it under "
        f"groups.ignore, or under groups.latest if it starts at the end. If it no longer does: "
        f"{_delete_offsets(group, topic)}; then {forget_line(group)}"
    )


def no_position_text(group: str, topic: str, partition: int, offset: int) -> str:
    """Return what to do about a group that stored an offset below zero, or a share group without a start (F1, F2)."""
    if is_share(group):
        return (
            f"{plain_name(group)} is configured to read this partition and has no position here yet: "
            f"share.auto.offset.reset decides where it starts. {_SHARES_NOTHING.capitalize()}"
        )
    place = ("--topic", f"{topic}:{partition}")
    reset = kafka_tool(_GROUPS_TOOL, "--reset-offsets", "--group", group, *place, "--to-earliest", "--execute")
    remedy = f", or set a position: {reset}" if group else " (Kafka's own tool can't set one for this group)"
    return (
        f"{who(group)} stored offset {offset} here: it reads this partition, and only its client knows where to start. "
        f"Start it and let it commit{remedy}"
    )


def _delete_offsets(group: str, topic: str) -> str:
    """Return the line that deletes a group's offsets on a topic. Of the group ``''`` brokers only delete all."""
    if not group:
        return kafka_tool(_GROUPS_TOOL, "--delete", "--group", group)
    return kafka_tool(_GROUPS_TOOL, "--delete-offsets", "--group", group, "--topic", topic)


def gone_without_commit_text(group: str, topic: str, seen: str) -> str:
    """Return what to do about a group that is gone, and had commits only on other partitions of the topic (F6)."""
    return (
        f"{who(group)}, last seen {seen}, no longer exists; it read {topic} without a commit on this partition; "
        f"{forget_hint(group)}"
    )


def only_member_text(group: str, topic: str) -> str:
    """Return what to do about a group that has committed nothing on a topic that its member reads (F2)."""
    if is_outside(group):
        remedy = _SHARES_NOTHING if is_share(group) else "let it commit"
        return f"{plain_name(group)} has a live member that reads {topic}, and no position there yet: {remedy}"
    return (
        f"{who(group)} has a live member that reads {topic}, and has not committed there yet. Let it "
        f"commit, or list it under groups.ignore, or under groups.latest if it starts at the end"
    )


def started_text(group: str, topic: str) -> str:
    """Return why ``groups.start`` does not say where a live member without a commit reads (F2)."""
    return (
        f"{who(group)} has a live member that reads {topic}, and no commit on this partition: when it started, "
        f"and so how far back it reads, is unknown (groups.start). Let it commit here"
    )


def gone_without_start_text(group: str, topic: str, *, listed: bool) -> str:
    """Return why ``groups.start`` says nothing about a group whose commit is gone (F2)."""
    forget = "" if listed else f"; {forget_hint(group)}"
    return (
        f"{who(group)} no longer has a commit on this partition, and how far back it starts on {topic} is unknown "
        f"(groups.start): the clocks differ, or kretain can't or does not ask its members what they read. Let it "
        f"commit here{forget}"
    )


def younger_text(group: str) -> str:
    """Return why ``groups.latest`` does not waive a group's missing commit (F2)."""
    return (
        f"{who(group)} has no commit on this partition, and groups.latest does not cover it: the partition was added "
        f"after kretain first saw the group, which may read it from the start. Let it commit here"
    )


def _doubts(standing: Standing, *, empty: bool) -> list[Reason]:
    """Return why the commits are not enough for a floor: no reason, for nearly every partition.

    A partition without records needs no commit (F2).
    """
    irregular, reasons = standing.irregular, [*_some(standing.failed), *_some(standing.failed_topic)]
    if not empty:
        reasons += [Reason(Code.F2, text) for _group, text in irregular.missing]
        if (more := irregular.missing_count - len(irregular.missing)) > 0:
            reasons.append(Reason(Code.F2, f"and {more:,} more groups without a commit here"))
    return reasons + [
        Reason(Code.F4, f"{who(group)} is required (groups.require) and has no commit here")
        for group in standing.absent
    ]


def _some(reasons: Collection[Reason]) -> list[Reason]:
    """Return the first few reasons in order, and how many more there are."""
    ordered = sorted(reasons)
    if (more := len(ordered) - NAMED_AT_MOST) > 0:
        ordered[NAMED_AT_MOST:] = [Reason(ordered[0].code, f"and {more:,} more like these")]
    return ordered
