"""Where the groups stand on one partition, and the floor that results (F1–F6). Pure.

A standing sums up any number of commits. It is small, and the same whoever folded them: the local fold in memory, or
Spark with a groupBy. Floors and their reasons are made here, for both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from retention_cli.core.commands import kafka_tool
from retention_cli.core.consumers import floor_by, forget_hint, forget_line, is_outside, is_share, plain_name, who
from retention_cli.core.model import Floor, Maybe, Reason, Unknown

NAMED_AT_MOST: Final = 3
"""How many groups a reason names before it counts the rest."""
_GROUPS_TOOL: Final = "kafka-consumer-groups.sh"
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})
_SHARES_NOTHING: Final = "let it read some of it, or leave share groups out by groups.share: ignore"
_NOT_ASKED: Final = Unknown.because("F5", "where the leader epoch of a commit ends was not asked")


CUT_UNTOLD: Final = Unknown.because(
    "M4",
    "whether the log was cut since kretain last looked could not be asked, and some group's commit carries no leader "
    "epoch by which that would show; run again",
)


@dataclass(slots=True)
class Best:
    """A partition's lowest and highest commits, and whose they are: of equal ones, the first group by name."""

    low: int
    low_by: str
    high: int
    high_by: str


class Refused(NamedTuple):
    """A commit that belongs to another log, and does not count (F5). ``epoch`` is the commit's, None if it has none."""

    offset: int
    epoch: int | None
    group: str

    @property
    def rank(self) -> tuple[int, str]:
        """The sort key. The smallest is reported: the highest commit, of equal ones the first group by name."""
        return -self.offset, self.group


class GoneCommit(NamedTuple):
    """A position of a group whose commit is gone (F6), and when it was last seen, in words."""

    offset: int
    group: str
    seen: str


EpochEnd = Maybe[int | None]
"""Where a leader epoch ends, None if the leader does not know it."""


class Standing(NamedTuple):
    """What was read of all groups about one partition.

    ``best`` is None if nobody has committed. ``failed`` are all failures that concern the whole cluster (F3, F8, F9),
    ``failed_topic`` those of the topic (F3). ``epochs`` has the highest commit of each leader epoch, ``ends`` where
    epochs other than the current one end. ``refused`` is the highest commit known to belong to another log, ``ahead``
    the highest of those from an epoch that this log has not reached (F5). ``missing`` has name and text of the first
    few of the ``missing_count`` groups that read the topic and have no commit here (F2). ``absent`` are the required
    groups without a commit here (F4). ``gone`` has, by leader epoch, the lowest position of groups that are gone (F6),
    ``unproven`` is the first by name of those that were never seen to count. ``bare``: some commit carries no leader
    epoch. ``cut`` is where the log was cut since the last pass, and which epoch ended there; :data:`CUT_UNTOLD` if that
    could not be asked.
    """

    leader_epoch: int = -1
    best: Best | None = None
    failed: Collection[Reason] = ()
    failed_topic: Collection[Reason] = ()
    epochs: Mapping[int, tuple[int, str]] = _NONE
    ends: Mapping[int, EpochEnd] = _NONE
    refused: Refused | None = None
    ahead: Refused | None = None
    missing: Sequence[tuple[str, str]] = ()
    missing_count: int = 0
    absent: Sequence[str] = ()
    gone: Mapping[int, GoneCommit] = _NONE
    unproven: GoneCommit | None = None
    bare: bool = False
    cut: Maybe[tuple[int, int | None]] | None = None


def floor_of(standing: Standing, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
    """Return the partition's floor. ``high_watermark`` must have been read after the commits (F5)."""
    if isinstance(high_watermark, Unknown):
        return high_watermark
    best, gone = standing.best, standing.gone
    reasons = _doubts(standing, empty=log_start == high_watermark)
    if standing.epochs or standing.refused or standing.cut or (best is not None and best.high > high_watermark):
        reasons += _other_log(standing, high_watermark)
    lowest, lowest_gone = (None if best is None else (best.low, best.low_by)), None
    if gone or standing.unproven is not None:
        lowest, lowest_gone, unknown = _with_gone(standing, lowest, high_watermark)
        reasons += unknown
    if lowest is None and not reasons:
        reasons.append(Reason("F4", "no consumer group has committed here: nothing says what was read"))
    if reasons or lowest is None:
        return Unknown(tuple(dict.fromkeys(reasons)))
    low, by = lowest
    notes: tuple[Reason, ...] = ()
    if not isinstance(log_start, Unknown) and low < log_start:
        lost = f"{log_start - low:,} records were gone before it read them"
        notes = (Reason("F5", f"{who(by)} stands at {low:,}: {lost}"),)
    if lowest_gone is not None:
        text = (
            f"{who(by)} is gone since it committed {lowest_gone.offset:,} here (seen {lowest_gone.seen}) and still "
            f"counts{'' if lowest_gone.offset == low else f', at {low:,}: behind that the log was cut'}; "
            f"{forget_hint(by)}"
        )
        notes = (*notes, Reason("F6", text))
    return Floor(low, floor_by(by), notes)


def _with_gone(
    standing: Standing, lowest: tuple[int, str] | None, high_watermark: int
) -> tuple[tuple[int, str] | None, GoneCommit | None, list[Reason]]:
    """Return the lowest position of all groups, the gone commit that it is from (None: a live one), and doubts.

    A group that is gone has read what is before the end of the epoch in which it committed, and nothing after it.
    """
    unknown: list[Reason] = []
    which: GoneCommit | None = None
    for epoch, one in sorted(standing.gone.items()):
        end: EpochEnd = high_watermark if epoch == standing.leader_epoch else standing.ends.get(epoch, _NOT_ASKED)
        if isinstance(end, Unknown):
            unknown += [Reason("F6", f"{who(one.group)}, gone since: {reason.text}") for reason in end.reasons]
        elif end is None or (epoch == standing.leader_epoch and one.offset > high_watermark):
            text = f"{who(one.group)} is gone since it committed {one.offset:,} here, to a log that went on further"
            unknown.append(Reason("F6", f"{text} than this one (seen {one.seen}); {forget_hint(one.group)}"))
        elif lowest is None or (min(one.offset, end), one.group) < lowest:
            lowest, which = (min(one.offset, end), one.group), one
    if (never := standing.unproven) is not None:
        text = f"{who(never.group)} is gone since it committed {never.offset:,} here (seen {never.seen}), and nothing"
        unknown.append(Reason("F6", f"{text} says of which log that was; {forget_hint(never.group)}"))
    return lowest, which, unknown


def _other_log(standing: Standing, high_watermark: int) -> list[Reason]:
    """Return why commits do not belong to this log (F5): the highest commit of each kind."""
    reasons: list[Reason] = []
    best, beyond, ahead = standing.best, standing.refused, standing.ahead
    if best is not None and best.high > high_watermark:
        highest = Refused(best.high, None, best.high_by)
        beyond = highest if beyond is None or highest.rank < beyond.rank else beyond
    for epoch, (offset, group) in sorted(standing.epochs.items()):
        if epoch == standing.leader_epoch or offset > high_watermark:
            continue
        end = standing.ends.get(epoch, _NOT_ASKED)
        if isinstance(end, Unknown):
            reasons += end.reasons
        elif end is None:
            one = Refused(offset, epoch, group)
            ahead = one if ahead is None or one.rank < ahead.rank else ahead
        elif offset > end:
            reasons.append(diverged_reason(group, offset, epoch, end))
    if ahead is not None and ahead.offset <= high_watermark:
        reasons.append(ahead_reason(ahead, standing.leader_epoch))
    if beyond is not None and (beyond.offset > high_watermark or ahead is None or beyond != ahead):
        reasons.append(_refused_reason(beyond, standing.leader_epoch, high_watermark))
    if standing.cut is not None and standing.bare:
        reasons += standing.cut.reasons if isinstance(standing.cut, Unknown) else [_cut_reason(*standing.cut)]
    return reasons


def _reset(key: str) -> str:
    return "Correct it" if is_outside(key) else "Reset it, or delete its offsets"


def _refused_reason(one: Refused, leader_epoch: int, high_watermark: int) -> Reason:
    if one.offset > high_watermark:
        text = (
            f"{who(one.group)} committed {one.offset:,}, beyond the log's end {high_watermark:,}: a leftover of "
            f"an older topic of this name? {_reset(one.group)}"
        )
        return Reason("F5", text)
    return (
        ahead_reason(one, leader_epoch) if (one.epoch or 0) > leader_epoch else leftover_reason(one.group, one.offset)
    )


def ahead_reason(one: Refused, leader_epoch: int) -> Reason:
    """Return why a commit in a leader epoch that the log does not have does not count (F5)."""
    text = (
        f"{who(one.group)} committed {one.offset:,} in leader epoch {one.epoch}, of which this log has nothing (its "
        f"leader is in epoch {leader_epoch}): a consumer of an older topic of this name? {_reset(one.group)}"
    )
    return Reason("F5", text)


def _cut_reason(cut: int, epoch: int | None) -> Reason:
    which = "" if epoch is None else f" (leader epoch {epoch} ended there)"
    text = (
        f"the log was cut back to {cut:,} since kretain last looked{which}, and some group's commit carries no leader "
        f"epoch: whether it is older is unknown now; run again"
    )
    return Reason("F5", text)


def diverged_reason(group: str, offset: int, epoch: int, end: int) -> Reason:
    """Return why a commit beyond the end of its own leader epoch does not count (F5)."""
    text = (
        f"{who(group)} committed {offset:,} in leader epoch {epoch}, which ended at {end:,}: those records "
        f"were lost in an election and others stand there now; let it commit again. If it has, and names epoch {epoch} "
        f"each time, its client never learns a new one: use a newer client, or groups.stale.epochs"
    )
    return Reason("F5", text)


def leftover_reason(group: str, offset: int) -> Reason:
    """Return why a commit that was seen beyond the log's end, or on a deleted topic, does not count (F5)."""
    again = "take them out of it" if is_outside(group) else "delete its offsets"
    text = (
        f"{who(group)} committed {offset:,} to an older topic of this name or before the log was lost, and has "
        f"not committed since: {again}; if it has read so far here all the same: "
        f"{forget_line(group)}"
    )
    return Reason("F5", text)


def failed_reason(group: str, text: str) -> Reason:
    """Return the reason for a group that could not be read (F3)."""
    return Reason("F3", f"{who(group)} could not be read: {text}")


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
        f"{topic}-{partition} is {offset:,}). If it reads no more: {_delete_offsets(group, topic)}; then "
        f"{forget_line(group)}, as kretain remembers it where it stood (F6). Or list it under "
        f"groups.ignore; if it starts at the end, under groups.latest"
    )


def no_position_text(group: str, topic: str, partition: int, offset: int) -> str:
    """Return what to do about a group that stored an offset below zero, or a share group without a start (F1, F2)."""
    if is_share(group):
        return (
            f"{plain_name(group)} is set up to read this partition and has no position here yet: "
            f"share.auto.offset.reset decides where it starts. {_SHARES_NOTHING.capitalize()}"
        )
    place = ("--topic", f"{topic}:{partition}")
    reset = kafka_tool(_GROUPS_TOOL, "--reset-offsets", "--group", group, *place, "--to-earliest", "--execute")
    remedy = f", or set a position: {reset}" if group else " (Kafka's own tool can't set one for this group)"
    return (
        f"{who(group)} stored offset {offset} here: it reads this partition, and only its client knows from where. "
        f"Start it and let it commit{remedy}"
    )


def _delete_offsets(group: str, topic: str) -> str:
    """Return the line that deletes a group's offsets on a topic. Of the group ``''`` brokers only delete all."""
    if not group:
        return kafka_tool(_GROUPS_TOOL, "--delete", "--group", group)
    return kafka_tool(_GROUPS_TOOL, "--delete-offsets", "--group", group, "--topic", topic)


def gone_without_commit_text(group: str, topic: str, seen: str) -> str:
    """Return what to do about a group that is gone, and had commits only on other partitions of the topic (F6)."""
    text = f"{who(group)}, gone since it was seen {seen}, read {topic} and had no commit on this partition"
    return f"{text}; {forget_hint(group)}"


def only_member_text(group: str, topic: str) -> str:
    """Return what to do about a group that has committed nothing on a topic that its member reads (F2)."""
    if is_outside(group):
        remedy = _SHARES_NOTHING if is_share(group) else "let it commit"
        return f"{plain_name(group)} has a live member that reads {topic}, and no position there yet: {remedy}"
    return (
        f"{who(group)} has a live member that reads {topic}, and has committed nothing there yet. Let it "
        f"commit, or list it under groups.ignore; if it starts at the end, under groups.latest"
    )


def younger_text(group: str) -> str:
    """Return why ``groups.latest`` does not waive a group's missing commit (F2)."""
    return (
        f"{who(group)} has no commit on this partition, and groups.latest does not cover it: the partition was added "
        f"after kretain had first seen the group, which may read it from the start. Let it commit here"
    )


def _doubts(standing: Standing, *, empty: bool) -> list[Reason]:
    """Return why the commits are not enough for a floor: no reason, for nearly every partition.

    A partition without records needs no commit (F2).
    """
    reasons: list[Reason] = []
    for some in (standing.failed, standing.failed_topic):
        if some:
            reasons += _some(some)
    if standing.missing_count and not empty:
        reasons += _missing_reasons(standing)
    for group in standing.absent:
        reasons.append(Reason("F4", f"{who(group)} is required (groups.require) and has no commit here"))
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
